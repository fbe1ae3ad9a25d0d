//! Crashes at random instants, of the process or of the machine, on a disk that forgets and tears
//! what was not synced.
//!
//! A failing seed is printed; run it again with `CRASH_SEED=n`. `CRASH_SEEDS=n` runs more.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::{TestClock, bodies, message, sim_config};
use protocol::message::Message;
use protocol::message_codec;
use store::sim_disk::{Fault, SimDisk};
use store::{FlushDiskType, MessageStore, PutFuture, QueryRequest, RecoveryReport, Threads};

const TOPICS: [&str; 3] = ["a", "b", "%RETRY%g"];

/// A stream of numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

type Queue = (&'static str, i32);

/// What must be true of the store.
#[derive(Default)]
struct Model {
    /// Bodies by queue in the order of sending.
    sent: BTreeMap<Queue, Vec<Vec<u8>>>,
    /// Acknowledged: by queue and offset the body.
    acked: BTreeMap<(Queue, i64), Vec<u8>>,
    /// Seen by a consumer: by queue and offset the body.
    seen: BTreeMap<(Queue, i64), Vec<u8>>,
    next_body: u64,
}

/// One life of a store between two crashes.
struct Life<'a> {
    store: MessageStore,
    model: &'a mut Model,
    random: &'a mut Random,
    waiting: Vec<(PutFuture, Queue, Vec<Vec<u8>>)>,
}

/// The key under which a message is found: the number in its body.
fn key(body: &[u8]) -> String {
    format!("key{}", u64::from_be_bytes(body[..8].try_into().unwrap()))
}

fn open(disk: &SimDisk, flush: FlushDiskType) -> (MessageStore, RecoveryReport) {
    let clock = Arc::new(TestClock::new(1_700_000_000_000));
    let disk = Arc::new(disk.clone());
    MessageStore::open_on(sim_config(flush), disk, clock, Threads::Stepped).unwrap()
}

impl Life<'_> {
    fn body(&mut self) -> Vec<u8> {
        self.model.next_body += 1;
        let length = match self.random.below(10) {
            0 => 3000,
            1..4 => 500,
            _ => 8 + self.random.below(40),
        };
        let mut body = vec![b'.'; usize::try_from(length).unwrap().max(8)];
        body[..8].copy_from_slice(&self.model.next_body.to_be_bytes());
        body
    }

    fn put(&mut self) {
        let topic = TOPICS[usize::try_from(self.random.below(3)).unwrap()];
        let queue = (topic, i32::try_from(self.random.below(2)).unwrap());
        let count = if self.random.below(8) == 0 { 3 } else { 1 };
        let bodies: Vec<Vec<u8>> = (0..count)
            .map(|_| self.body())
            .map(|mut body| {
                body.truncate(1500);
                body
            })
            .collect();
        let properties: Vec<_> =
            bodies.iter().map(|body| format!("KEYS\u{1}{} k\u{2}", key(body))).collect();
        let messages: Vec<_> = bodies
            .iter()
            .zip(&properties)
            .map(|(body, properties)| Message { properties, ..message(queue.0, queue.1, body) })
            .collect();
        let future = self.store.put_batch(&messages);
        self.model.sent.entry(queue).or_default().extend(bodies.iter().cloned());
        self.waiting.push((future, queue, bodies));
    }

    /// Lets the store work and notes what it acknowledges and shows.
    fn step(&mut self) {
        self.store.step();
        for (future, queue, bodies) in std::mem::take(&mut self.waiting) {
            // In a stepped store everything is answered by the step.
            let Ok(result) = future.wait() else { continue };
            for (index, body) in bodies.into_iter().enumerate() {
                let offset = result.queue_offset + i64::try_from(index).unwrap();
                let before = self.model.acked.insert((queue, offset), body);
                assert_eq!(before, None, "{queue:?} {offset} was acknowledged twice");
            }
        }
        for topic in TOPICS {
            for queue_id in 0..2 {
                let max = self.store.max_offset(topic, queue_id);
                self.model.see(&self.store, (topic, queue_id), max);
            }
        }
    }
}

impl Model {
    /// Notes the newest message that consumers can see, if it can be read.
    fn see(&mut self, store: &MessageStore, queue: Queue, max: i64) {
        let request = store::GetRequest {
            topic: queue.0,
            queue_id: queue.1,
            offset: max - 1,
            max_messages: 1,
            max_bytes: 1,
        };
        let Ok(result) = store.get(&request, &store::AllMessages) else { return };
        if let Some(record) = result.records().next() {
            let view = message_codec::decode_record(&record).unwrap();
            self.seen.insert((queue, max - 1), view.body.to_vec());
            let found = find(store, queue.0, view.body);
            // The index may be late when the disk refuses, but never says anything twice.
            assert!(found.is_none_or(|found| found <= 1), "{queue:?} {}", max - 1);
        }
    }

    /// Checks a store that was just opened.
    fn check(&mut self, store: &MessageStore, is_sync: bool) {
        for topic in TOPICS {
            for queue_id in 0..2 {
                let queue = (topic, queue_id);
                let stored = bodies(store, topic, queue_id);
                for body in &stored {
                    assert_eq!(find(store, topic, body), Some(1), "{queue:?} by key");
                }
                let sent = self.sent.entry(queue).or_default();
                // Nothing that was not sent, nothing twice, all in the order of sending.
                let mut rest = sent.iter();
                for body in &stored {
                    assert!(rest.any(|sent| sent == body), "{queue:?}: strange or doubled body");
                }
                if is_sync {
                    for promise in [&self.acked, &self.seen] {
                        let range = (queue, i64::MIN)..=(queue, i64::MAX);
                        for ((_, offset), body) in promise.range(range) {
                            let found = stored.get(usize::try_from(*offset).unwrap());
                            assert_eq!(
                                found.map(|found| &found[..]),
                                Some(&body[..]),
                                "{queue:?} {offset}"
                            );
                        }
                    }
                }
                if is_sync {
                    // Consumers may see all of it from now on.
                    for (offset, body) in (0..).zip(&stored) {
                        self.seen.insert((queue, offset), body.to_vec());
                    }
                }
                // What is gone will not come back: its sender was never told otherwise.
                let stored: BTreeSet<&[u8]> = stored.iter().map(|body| &body[..]).collect();
                sent.retain(|body| stored.contains(&body[..]));
            }
        }
        if !is_sync {
            self.acked.clear();
            self.seen.clear();
        }
    }
}

/// How often a message is found by its key; `None` when the disk refuses.
fn find(store: &MessageStore, topic: &str, body: &[u8]) -> Option<usize> {
    let request = QueryRequest {
        topic,
        key: &key(body),
        is_unique_key: false,
        begin: 0,
        end: i64::MAX,
        max_messages: 10,
        max_bytes: usize::MAX,
    };
    let found = store.query(&request).ok()?;
    let is_found = |record: &&bytes::Bytes| {
        let view = message_codec::decode_record(record).unwrap();
        view.body == body
    };
    Some(found.records.iter().filter(is_found).count())
}

/// The end of the log is followed by zeros.
fn check_zeros(disk: &SimDisk, report: &RecoveryReport) {
    for (path, content) in disk.image() {
        if path.starts_with("/store/commitlog") {
            let start: i64 = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
            let end = usize::try_from((report.log_end - start).clamp(0, 8 << 10)).unwrap();
            assert!(content[end..].iter().all(|byte| *byte == 0), "{}", path.display());
        }
    }
}

fn run(seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let flush =
        if seed.is_multiple_of(3) { FlushDiskType::AsyncFlush } else { FlushDiskType::SyncFlush };
    let is_sync = flush == FlushDiskType::SyncFlush;
    let mut disk = SimDisk::new(seed);
    let mut model = Model::default();
    for _life in 0..6 {
        let (store, report) = open(&disk, flush);
        model.check(&store, is_sync);
        check_zeros(&disk, &report);
        let fault = if random.below(5) == 0 { Fault::IoError } else { Fault::Crash };
        disk.order_fault(random.below(120), fault);
        let mut life = Life { store, model: &mut model, random: &mut random, waiting: Vec::new() };
        for _ in 0..life.random.below(60) {
            match life.random.below(12) {
                0 => drop(life.store.flush()),
                1..4 => life.step(),
                _ => life.put(),
            }
        }
        life.step();
        if random_clean_stop(&mut life) {
            model.check_reopened(&disk, flush);
        }
        let is_killed = !disk.is_crashed() && random.below(3) == 0;
        disk = if is_killed { disk.kill() } else { disk.crash() };
        // A crash during recovery changes nothing.
        if random.below(2) == 0 {
            disk.order_fault(random.below(40), Fault::Crash);
            let clock = Arc::new(TestClock::new(1_700_000_000_000));
            let half = Arc::new(disk.clone());
            let opened = MessageStore::open_on(sim_config(flush), half, clock, Threads::Stepped);
            drop(opened);
            disk = disk.crash();
        }
    }
}

fn random_clean_stop(life: &mut Life<'_>) -> bool {
    life.random.below(3) == 0 && life.store.shutdown().is_ok()
}

impl Model {
    /// After a clean stop, and after recovering twice, everything is as it was.
    fn check_reopened(&mut self, disk: &SimDisk, flush: FlushDiskType) {
        if disk.is_crashed() {
            return;
        }
        disk.clear_faults();
        let mut ends = Vec::new();
        for _ in 0..2 {
            let (store, report) = open(disk, flush);
            assert_eq!(report.cut_records, 0, "{report:?}");
            self.check(&store, flush == FlushDiskType::SyncFlush);
            ends.push(report.log_end);
            store.shutdown().unwrap();
        }
        assert_eq!(ends[0], ends[1]);
    }
}

#[test]
fn no_acknowledged_message_is_lost_at_any_crash() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("CRASH_SEED") {
        run(seed);
        return;
    }
    for seed in 0..number("CRASH_SEEDS").unwrap_or(400) {
        if std::panic::catch_unwind(|| run(seed)).is_err() {
            panic!("failed with CRASH_SEED={seed}");
        }
    }
}
