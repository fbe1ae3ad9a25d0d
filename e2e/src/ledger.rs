//! What senders were told, and whether a log keeps it: nothing acknowledged is lost, every message
//! is at the offset that its sender was told, whole, in the order of its stream, and stored twice
//! only if it was sent twice.

use std::collections::{BTreeMap, HashMap};

use crate::random::mix;

/// Findings that are kept in words; more are only counted.
const WORDS_MAX: usize = 20;
/// The stream whose messages may overtake each other.
pub const UNORDERED: u32 = u32::MAX;

const HEAD_BYTES: usize = 12;
const CHECKSUM_BYTES: usize = 4;

/// A message as its sender names it. Its body follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sent {
    /// Messages of one stream are sent one after the other, each when the one before is stored.
    pub stream: u32,
    /// Place in the stream, from 0.
    pub number: u64,
}

impl Sent {
    /// The body: the name, filler, and a checksum over both.
    pub fn body(self) -> Vec<u8> {
        let mixed = mix(u64::from(self.stream) << 40 ^ self.number);
        let filler = match mixed % 64 {
            0 => 7_000,
            1..8 => 1_500,
            _ => mixed % 300,
        };
        let mut body = Vec::with_capacity(HEAD_BYTES + filler as usize + CHECKSUM_BYTES);
        body.extend_from_slice(&self.stream.to_be_bytes());
        body.extend_from_slice(&self.number.to_be_bytes());
        body.extend((0..filler).map(|at| b'a' + (mixed.wrapping_add(at) % 26) as u8));
        body.extend_from_slice(&crc32fast::hash(&body).to_be_bytes());
        body
    }

    /// The name that a body carries, if it is whole.
    pub fn read(body: &[u8]) -> Result<Self, String> {
        let wrong = || format!("a body of {} bytes is not what was sent", body.len());
        let (stream, rest) = body.split_first_chunk::<4>().ok_or_else(wrong)?;
        let (number, _) = rest.split_first_chunk::<8>().ok_or_else(wrong)?;
        let sent =
            Self { stream: u32::from_be_bytes(*stream), number: u64::from_be_bytes(*number) };
        if sent.body() == body { Ok(sent) } else { Err(wrong()) }
    }
}

/// What was sent and what was acknowledged.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    begun: HashMap<Sent, u32>,
    acked: BTreeMap<(i32, i64), Sent>,
    wrong: Findings,
}

impl Ledger {
    /// A message is about to be sent; up to `copies` of it may be stored for that.
    pub fn begin(&mut self, sent: Sent, copies: u32) {
        *self.begun.entry(sent).or_default() += copies;
    }

    /// A broker said that it stored a message.
    pub fn acked(&mut self, queue: i32, offset: i64, sent: Sent) {
        if let Some(other) = self.acked.insert((queue, offset), sent) {
            let text = format!("{other:?} and {sent:?} were both acknowledged at {queue}/{offset}");
            self.wrong.note(text);
        }
    }

    /// Messages acknowledged so far.
    pub fn acked_count(&self) -> usize {
        self.acked.len()
    }

    /// Messages sent so far, however often.
    pub fn begun_count(&self) -> usize {
        self.begun.len()
    }

    /// The end of what was acknowledged in a queue.
    pub fn acked_end(&self, queue: i32) -> i64 {
        let last = self.acked.range((queue, i64::MIN)..=(queue, i64::MAX)).next_back();
        last.map_or(0, |((_, offset), _)| offset + 1)
    }

    /// Any acknowledged message, with its place.
    pub fn any_acked(&self) -> Option<((i32, i64), Sent)> {
        self.acked.iter().next().map(|(place, sent)| (*place, *sent))
    }
}

/// What is wrong.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The first of them in words.
    pub words: Vec<String>,
    /// All of them.
    pub count: usize,
}

impl Findings {
    /// One more.
    pub fn note(&mut self, text: String) {
        self.count += 1;
        if self.words.len() < WORDS_MAX {
            self.words.push(text);
        }
    }
}

/// A log that is read from its beginning, perhaps in several goes.
#[derive(Debug, Default)]
pub struct Check {
    /// What is wrong.
    pub findings: Findings,
    /// Messages read.
    pub messages: u64,
    /// Of these, copies of messages that were there already.
    pub doubled: u64,
    next: BTreeMap<i32, i64>,
    last: HashMap<u32, u64>,
    copies: HashMap<Sent, u32>,
}

impl Check {
    /// The offset at which to go on reading a queue.
    pub fn next_offset(&self, queue: i32) -> i64 {
        self.next.get(&queue).copied().unwrap_or(0)
    }

    /// The next message of a queue.
    pub fn message(&mut self, ledger: &Ledger, queue: i32, offset: i64, body: &[u8]) {
        let expected = self.next_offset(queue);
        self.next.insert(queue, offset + 1);
        self.messages += 1;
        if offset != expected {
            self.findings.note(format!("{queue}/{offset} follows {queue}/{}", expected - 1));
        }
        let sent = match Sent::read(body) {
            Ok(sent) => sent,
            Err(error) => return self.findings.note(format!("{queue}/{offset}: {error}")),
        };
        if let Some(acked) = ledger.acked.get(&(queue, offset)).filter(|acked| **acked != sent) {
            let text = format!("{queue}/{offset} was acknowledged for {acked:?} and has {sent:?}");
            self.findings.note(text);
        }
        let copies = self.copies.entry(sent).or_default();
        *copies += 1;
        self.doubled += u64::from(*copies > 1);
        match ledger.begun.get(&sent) {
            None => self.findings.note(format!("{queue}/{offset} has {sent:?}, never sent")),
            Some(begun) if *copies > *begun => {
                let text = format!("{sent:?} is there {copies} times and was sent {begun} times");
                self.findings.note(text);
            }
            Some(_) => {}
        }
        if *copies == 1 && sent.stream != UNORDERED {
            self.follow(sent, queue, offset);
        }
    }

    /// The first copies of a stream's messages are in order and without a gap.
    fn follow(&mut self, sent: Sent, queue: i32, offset: i64) {
        let expected = self.last.get(&sent.stream).map_or(0, |last| last + 1);
        if sent.number != expected {
            let text = format!("{queue}/{offset} has {sent:?}, but {expected} was to follow");
            self.findings.note(text);
        }
        self.last.insert(sent.stream, sent.number);
    }

    /// A queue has been read to its end: what was acknowledged behind it is lost.
    pub fn end(&mut self, ledger: &Ledger, queue: i32) {
        let next = self.next_offset(queue);
        for ((_, offset), sent) in ledger.acked.range((queue, next)..=(queue, i64::MAX)) {
            self.findings.note(format!("{queue}/{offset} {sent:?} was acknowledged and is lost"));
        }
    }

    /// What is wrong, with what the senders were told wrong.
    pub fn wrong<'a>(&'a self, ledger: &'a Ledger) -> (usize, Vec<&'a str>) {
        let words = self.findings.words.iter().chain(&ledger.wrong.words).map(String::as_str);
        (self.findings.count + ledger.wrong.count, words.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log of one queue in which all is well: two streams, and one message stored twice.
    fn good() -> (Ledger, Vec<Sent>) {
        let names = [(1, 0), (2, 0), (1, 1), (1, 1), (UNORDERED, 5), (2, 1), (UNORDERED, 4)];
        let log: Vec<Sent> = names
            .iter()
            .map(|(stream, number)| Sent { stream: *stream, number: *number })
            .collect();
        let mut ledger = Ledger::default();
        for (offset, sent) in (0..).zip(&log) {
            ledger.begin(*sent, 1);
            // The first copy of (1, 1) was stored but its answer lost.
            if offset != 2 {
                ledger.acked(0, offset, *sent);
            }
        }
        (ledger, log)
    }

    fn check(ledger: &Ledger, bodies: &[Vec<u8>]) -> Vec<String> {
        let mut check = Check::default();
        for (offset, body) in (0..).zip(bodies) {
            check.message(ledger, 0, offset, body);
        }
        check.end(ledger, 0);
        check.wrong(ledger).1.into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn each_fault_is_found() {
        let (ledger, log) = good();
        let bodies: Vec<Vec<u8>> = log.iter().map(|sent| sent.body()).collect();
        assert_eq!(check(&ledger, &bodies), [""; 0]);
        type Plant = fn(&mut Ledger, &mut Vec<Vec<u8>>);
        let planted: [(&str, Plant); 8] = [
            ("was acknowledged and is lost", |_, bodies| drop(bodies.pop())),
            ("was acknowledged and is lost", |ledger, _| {
                let forgotten = Sent { stream: 2, number: 2 };
                ledger.begin(forgotten, 1);
                ledger.acked(0, 7, forgotten);
            }),
            ("but 0 was to follow", |_, bodies| bodies.swap(1, 5)),
            ("is not what was sent", |_, bodies| bodies[4][14] ^= 1),
            ("is not what was sent", |_, bodies| bodies[3].truncate(9)),
            ("never sent", |_, bodies| bodies.push(Sent { stream: 3, number: 0 }.body())),
            ("is there 2 times and was sent 1", |_, bodies| bodies.push(bodies[4].clone())),
            ("were both acknowledged at 0/0", |ledger, _| {
                ledger.acked(0, 0, Sent { stream: 2, number: 0 });
            }),
        ];
        for (expected, plant) in planted {
            let (mut ledger, mut bodies) = (ledger.clone(), bodies.clone());
            plant(&mut ledger, &mut bodies);
            let found = check(&ledger, &bodies);
            assert!(found.iter().any(|words| words.contains(expected)), "{expected}: {found:?}");
        }
    }

    #[test]
    fn a_body_names_its_message() {
        for number in 0..200 {
            let sent = Sent { stream: 3, number };
            assert_eq!(Sent::read(&sent.body()), Ok(sent));
        }
        assert!(Sent::read(b"").is_err());
    }
}
