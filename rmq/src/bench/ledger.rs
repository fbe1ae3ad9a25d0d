//! Which messages were acknowledged and which came, to tell what was lost, doubled or reordered.

use std::collections::HashMap;

use client::MessageExt;
use serde::Serialize;

use super::stamp::{NoStamp, Stamp};

/// Numbers of one stream that are kept track of: 32 MiB of bits. Messages beyond count as foreign.
const NUMBERS_MAX: u64 = 1 << 28;

/// What became of the messages of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Verdict {
    /// Acknowledged, and never came.
    pub(crate) lost: u64,
    /// Came again.
    pub(crate) doubled: u64,
    /// Came behind a later one of its stream in the same queue.
    pub(crate) reordered: u64,
    /// Came with other bytes than were sent.
    pub(crate) damaged: u64,
}

impl Verdict {
    pub(crate) fn is_good(&self) -> bool {
        *self == Self::default()
    }
}

/// A set of numbers from 0.
#[derive(Debug, Default)]
struct Numbers {
    words: Vec<u64>,
}

impl Numbers {
    /// Adds a number; whether it is new.
    fn insert(&mut self, number: u64) -> bool {
        let at = usize::try_from(number / 64).unwrap_or(usize::MAX);
        if at >= self.words.len() {
            self.words.resize(at.saturating_add(1), 0);
        }
        let bit = 1 << (number % 64);
        let Some(word) = self.words.get_mut(at) else { return false };
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    fn len(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// How many of these are not in `other`.
    fn without(&self, other: Option<&Self>) -> u64 {
        let other = other.map_or([].as_slice(), |other| &other.words);
        let others = other.iter().chain(std::iter::repeat(&0));
        self.words.iter().zip(others).map(|(ours, its)| u64::from((ours & !its).count_ones())).sum()
    }

    /// The highest number.
    fn last(&self) -> Option<u64> {
        let (at, word) = self.words.iter().enumerate().rfind(|(_, word)| **word != 0)?;
        Some(at as u64 * 64 + u64::from(63 - word.leading_zeros()))
    }
}

/// Messages of one sender that were acknowledged, by stream.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged {
    streams: HashMap<u32, Numbers>,
}

impl Acknowledged {
    pub(crate) fn insert(&mut self, stream: u32, number: u64) {
        if number < NUMBERS_MAX {
            self.streams.entry(stream).or_default().insert(number);
        }
    }
}

/// What came of one stream.
#[derive(Debug, Default)]
struct Stream {
    came: Numbers,
    /// By queue: offset and number of the message that is furthest behind.
    last: HashMap<(String, i32), (i64, u64)>,
}

/// What was acknowledged, and what came.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The run whose messages count; all, when there is none.
    run: Option<u64>,
    acknowledged: HashMap<u32, Numbers>,
    streams: HashMap<(u64, u32), Stream>,
    /// Messages of this run that came, those that came again included.
    pub(crate) received: u64,
    /// Bytes of their bodies.
    pub(crate) bytes: u64,
    /// Messages of others.
    pub(crate) foreign: u64,
    verdict: Verdict,
}

impl Ledger {
    /// Of the messages of one run, or of all runs.
    pub(crate) fn new(run: Option<u64>) -> Self {
        Self { run, ..Self::default() }
    }

    /// These were acknowledged. No other sender has messages of their streams.
    pub(crate) fn acknowledge(&mut self, acknowledged: Acknowledged) {
        self.acknowledged.extend(acknowledged.streams);
    }

    /// A message came; its stamp, if it is of the run.
    pub(crate) fn receive(&mut self, broker: &str, message: &MessageExt) -> Option<Stamp> {
        let stamp = match Stamp::read(&message.body) {
            Ok(stamp) if self.run.is_none_or(|run| run == stamp.run) => stamp,
            Err(NoStamp::Damaged) => {
                self.verdict.damaged += 1;
                return None;
            }
            Ok(_) | Err(NoStamp::Foreign) => {
                self.foreign += 1;
                return None;
            }
        };
        if stamp.number >= NUMBERS_MAX {
            self.foreign += 1;
            return None;
        }
        self.received += 1;
        self.bytes += message.body.len() as u64;
        let stream = self.streams.entry((stamp.run, stamp.stream)).or_default();
        if !stream.came.insert(stamp.number) {
            self.verdict.doubled += 1;
            return Some(stamp);
        }
        let offset = message.queue_offset;
        let last = stream.last.entry((broker.to_owned(), message.queue_id));
        let last = last.or_insert((offset, stamp.number));
        // Deliveries may overtake each other on their way to us: offsets say what the order is.
        if (offset > last.0) != (stamp.number > last.1) && offset != last.0 {
            self.verdict.reordered += 1;
        }
        if offset > last.0 {
            *last = (offset, stamp.number);
        }
        Some(stamp)
    }

    /// How many different messages came.
    pub(crate) fn distinct(&self) -> u64 {
        self.streams.values().map(|stream| stream.came.len()).sum()
    }

    /// How many were acknowledged and have not come.
    pub(crate) fn missing(&self) -> u64 {
        let Some(run) = self.run else { return self.gaps() };
        let came = |stream: &u32| self.streams.get(&(run, *stream)).map(|stream| &stream.came);
        self.acknowledged.iter().map(|(stream, numbers)| numbers.without(came(stream))).sum()
    }

    /// Without knowing what was acknowledged: numbers that are missing below the highest.
    fn gaps(&self) -> u64 {
        let gaps = self.streams.values().map(|stream| {
            let numbers = stream.came.last().map_or(0, |last| last + 1);
            numbers - stream.came.len()
        });
        gaps.sum()
    }

    /// What became of the messages, as far as is known now.
    pub(crate) fn verdict(&self) -> Verdict {
        Verdict { lost: self.missing(), ..self.verdict }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn message(run: u64, number: u64, queue_offset: i64) -> MessageExt {
        let stamp = Stamp { run, stream: 2, number, due: 0 };
        MessageExt {
            topic: "t".into(),
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            queue_offset,
            commit_log_offset: 0,
            store_size: 0,
            born_timestamp: 1,
            born_host: "127.0.0.1:1".parse().unwrap(),
            store_timestamp: 1,
            store_host: "127.0.0.1:10911".parse().unwrap(),
            body_crc: 0,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: stamp.body(&[]).into(),
            properties: BTreeMap::new(),
        }
    }

    /// Numbers that were acknowledged, and numbers with offsets as they came.
    fn check(acknowledged: &[u64], came: &[(u64, i64)], lost: u64, doubled: u64, reordered: u64) {
        let mut ledger = Ledger::new(Some(1));
        let mut numbers = Acknowledged::default();
        acknowledged.iter().for_each(|number| numbers.insert(2, *number));
        ledger.acknowledge(numbers);
        for (number, offset) in came {
            assert!(ledger.receive("b", &message(1, *number, *offset)).is_some());
        }
        let verdict = Verdict { lost, doubled, reordered, damaged: 0 };
        assert_eq!(ledger.verdict(), verdict, "{acknowledged:?} {came:?}");
        assert_eq!(verdict.is_good(), lost + doubled + reordered == 0);
    }

    #[test]
    fn what_is_lost_doubled_and_reordered_is_counted() {
        check(&[0, 1, 2], &[(0, 10), (1, 11), (2, 12)], 0, 0, 0);
        check(&[0, 1, 200], &[(0, 10), (3, 11)], 2, 0, 0);
        check(&[], &[(0, 10), (0, 11), (0, 12)], 0, 2, 0);
        check(&[], &[(0, 10), (2, 11), (1, 12)], 0, 0, 1);
        check(&[], &[(2, 12), (0, 10), (1, 11)], 0, 0, 0);
        check(&[], &[(1, 12), (2, 11)], 0, 0, 1);
    }

    #[test]
    fn others_messages_do_not_count() {
        let mut ledger = Ledger::new(Some(1));
        assert!(ledger.receive("b", &message(9, 0, 0)).is_none());
        let mut changed = message(1, 0, 1);
        changed.body = [&changed.body[..9], &[255], &changed.body[10..]].concat().into();
        assert!(ledger.receive("b", &changed).is_none());
        assert_eq!((ledger.foreign, ledger.received, ledger.verdict().damaged), (1, 0, 1));
    }

    #[test]
    fn without_acknowledgements_gaps_are_losses() {
        let mut ledger = Ledger::new(None);
        for (run, number) in [(1, 0), (1, 1), (1, 4), (2, 1)] {
            ledger.receive("b", &message(run, number, i64::try_from(number).unwrap()));
        }
        assert_eq!(ledger.verdict().lost, 3);
        assert_eq!(ledger.distinct(), 4);
    }
}
