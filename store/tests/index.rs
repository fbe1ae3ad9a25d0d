//! Messages are found by their keys: exactly those that have them, each once, whatever happened to
//! the index files.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::{TestClock, config, message};
use protocol::message::Message;
use protocol::message_codec;
use store::sim_disk::{Fault, SimDisk};
use store::{FlushDiskType, MessageStore, QueryRequest, StoreConfig, Threads};

const START_MS: i64 = 1_700_000_000_000;
const INDEX: &str = "/store/index";

/// A store on a simulated disk.
struct Bed {
    disk: SimDisk,
    clock: Arc<TestClock>,
    config: StoreConfig,
}

impl Bed {
    fn new() -> Self {
        let mut config = config(Path::new("/store"), FlushDiskType::SyncFlush);
        config.mapped_file_size_commit_log = 8 << 10;
        config.max_message_size = 4 << 10;
        config.max_hash_slot_num = 97;
        config.max_index_num = 40;
        Self { disk: SimDisk::new(1), clock: Arc::new(TestClock::new(START_MS)), config }
    }

    fn open(&self) -> MessageStore {
        let disk = Arc::new(self.disk.clone());
        let clock = Arc::clone(&self.clock) as Arc<dyn store::clock::Clock>;
        MessageStore::open_on(self.config.clone(), disk, clock, Threads::Stepped).unwrap().0
    }

    fn index_files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let image = self.disk.image().into_iter();
        image.filter(|(path, _)| path.starts_with(INDEX)).collect()
    }

    /// A disk with other index files.
    fn with_index(&self, files: &BTreeMap<PathBuf, Vec<u8>>) -> Self {
        let mut image = self.disk.image();
        image.retain(|path, _| !path.starts_with(INDEX));
        image.extend(files.clone());
        let disk = SimDisk::from_image(&image);
        Self { disk, clock: Arc::clone(&self.clock), config: self.config.clone() }
    }
}

fn put(store: &MessageStore, topic: &str, keys: &str, body: &[u8]) {
    let properties = format!("KEYS\u{1}{keys}\u{2}");
    let future = store.put(&Message { properties: &properties, ..message(topic, 0, body) });
    store.step();
    future.wait().unwrap();
}

fn request<'a>(topic: &'a str, key: &'a str) -> QueryRequest<'a> {
    QueryRequest {
        topic,
        key,
        is_unique_key: false,
        begin: 0,
        end: i64::MAX,
        max_messages: 100,
        max_bytes: usize::MAX,
    }
}

fn find(store: &MessageStore, request: &QueryRequest<'_>) -> Vec<String> {
    let records = store.query(request).unwrap().records;
    let body = |record: &bytes::Bytes| {
        let view = message_codec::decode_record(record).unwrap();
        String::from_utf8(view.body.to_vec()).unwrap()
    };
    records.iter().map(body).collect()
}

/// Stores messages with two keys each; returns their number.
fn fill(bed: &Bed, store: &MessageStore, numbers: std::ops::Range<usize>) -> usize {
    for number in numbers.clone() {
        bed.clock.set(START_MS + i64::try_from(number).unwrap() * 700);
        put(store, "t", &format!("key{number} other{number}"), format!("{number}").as_bytes());
    }
    numbers.end
}

/// Each message is found by each of its keys, once.
fn check(store: &MessageStore, numbers: std::ops::Range<usize>) {
    for number in numbers {
        for key in [format!("key{number}"), format!("other{number}")] {
            assert_eq!(find(store, &request("t", &key)), [number.to_string()], "{key}");
        }
    }
}

#[test]
fn only_messages_that_have_the_key_are_found() {
    let bed = Bed::new();
    let store = bed.open();
    // "Aa" and "BB" have the same hash.
    put(&store, "t", "Aa", b"1");
    put(&store, "t", "BB", b"2");
    put(&store, "t", "Aa x Aa", b"3");
    put(&store, "u", "Aa", b"4");
    assert_eq!(find(&store, &request("t", "Aa")), ["1", "3"]);
    assert_eq!(find(&store, &request("t", "BB")), ["2"]);
    assert_eq!(find(&store, &request("t", "x")), ["3"]);
    assert_eq!(find(&store, &request("t", "A")), [""; 0]);
    assert_eq!(find(&store, &request("u", "Aa")), ["4"]);
    assert_eq!(find(&store, &QueryRequest { is_unique_key: true, ..request("t", "x") }), [""; 0]);
    let properties = "UNIQ_KEY\u{1}id\u{2}KEYS\u{1}k\u{2}";
    let future = store.put(&Message { properties, ..message("t", 0, b"5") });
    store.step();
    future.wait().unwrap();
    let by_id = QueryRequest { is_unique_key: true, ..request("t", "id") };
    assert_eq!(find(&store, &by_id), ["5"]);
    assert_eq!(find(&store, &request("t", "id")), ["5"]);
}

#[test]
fn the_newest_come_first_and_limits_hold() {
    let bed = Bed::new();
    let store = bed.open();
    for number in 0..100 {
        bed.clock.set(START_MS + number * 700);
        put(&store, "t", "same", number.to_string().as_bytes());
    }
    let some = QueryRequest { max_messages: 3, ..request("t", "same") };
    assert_eq!(find(&store, &some), ["97", "98", "99"]);
    let record = store.query(&some).unwrap().records[0].len();
    let few = QueryRequest { max_bytes: record * 2 + 1, ..request("t", "same") };
    assert_eq!(find(&store, &few), ["98", "99"]);
    assert_eq!(find(&store, &QueryRequest { max_bytes: 0, ..few }), ["99"]);
    assert_eq!(find(&store, &QueryRequest { max_messages: 0, ..few }), [""; 0]);
    let between = |begin: i64, end: i64| {
        let at = |number: i64| START_MS + number * 700;
        find(&store, &QueryRequest { begin: at(begin), end: at(end), ..request("t", "same") })
    };
    // Exact to the millisecond, although files count seconds.
    for (begin, end) in [(0, 0), (1, 1), (37, 42), (99, 99), (50, 49)] {
        let expected: Vec<_> = (begin..=end).map(|number| number.to_string()).collect();
        assert_eq!(between(begin, end), expected, "{begin} {end}");
    }
    let result = store.query(&request("t", "same")).unwrap();
    assert_eq!(result.last_timestamp, START_MS + 99 * 700);
    let last = message_codec::decode_record(result.records.last().unwrap()).unwrap();
    assert_eq!(result.last_offset, last.physical_offset);
}

#[test]
fn keys_are_found_over_many_files_and_restarts() {
    let bed = Bed::new();
    let mut end = 0;
    for round in 0..4 {
        let store = bed.open();
        check(&store, 0..end);
        end = fill(&bed, &store, end..end + 30 + round);
        check(&store, 0..end);
        store.shutdown().unwrap();
    }
    // 39 entries a file.
    assert_eq!(bed.index_files().len(), (2 * end).div_ceil(39));
    // A message with more keys than a file has entries.
    let store = bed.open();
    let words: Vec<_> = (0..100).map(|word| format!("word{word}")).collect();
    put(&store, "t", &words.join(" "), b"many");
    for word in &words {
        assert_eq!(find(&store, &request("t", word)), ["many"], "{word}");
    }
}

#[test]
fn a_crash_between_the_keys_of_a_message_loses_and_doubles_none() {
    for keys in 1..6 {
        let bed = Bed::new();
        let store = bed.open();
        // The second message begins in one file and ends in the next.
        let first: Vec<_> = (0..39 - keys).map(|word| format!("a{word}")).collect();
        put(&store, "t", &first.join(" "), b"first");
        put(&store, "t", "b0 b1 b2 b3 b4 b5", b"second");
        let bed = Bed { disk: bed.disk.kill(), ..bed };
        let store = bed.open();
        for word in 0..6 {
            assert_eq!(find(&store, &request("t", &format!("b{word}"))), ["second"]);
        }
        assert_eq!(store.stats().metrics.index_entries, 6 - keys);
    }
}

#[test]
fn damaged_short_and_missing_files_are_built_anew() {
    let bed = Bed::new();
    let store = bed.open();
    let end = fill(&bed, &store, 0..50);
    store.shutdown().unwrap();
    drop(store);
    let whole = bed.index_files();
    assert_eq!(whole.len(), 3);
    let names: Vec<_> = whole.keys().cloned().collect();
    let mut cases = vec![("no file", BTreeMap::new())];
    for name in &names {
        let mut files = whole.clone();
        files.remove(name);
        cases.push(("a file is missing", files));
        let mut files = whole.clone();
        files.get_mut(name).unwrap().truncate(100);
        cases.push(("a file is short", files));
        let mut files = whole.clone();
        files.get_mut(name).unwrap().fill(0);
        cases.push(("a file is empty", files));
        let mut files = whole.clone();
        let content = files.remove(name).unwrap();
        files.insert(Path::new(INDEX).join("20990101000000000"), content);
        cases.push(("files are in another order", files));
    }
    let older: BTreeMap<_, _> = whole.clone().into_iter().take(1).collect();
    cases.push(("the index is behind", older));
    for (what, files) in cases {
        println!("{what}");
        let bed = bed.with_index(&files);
        let store = bed.open();
        check(&store, 0..end);
        store.shutdown().unwrap();
        drop(store);
        assert_eq!(
            bed.index_files().into_values().collect::<Vec<_>>(),
            whole.clone().into_values().collect::<Vec<_>>(),
            "{what}"
        );
    }
}

#[test]
fn whatever_byte_is_wrong_all_keys_are_found_again() {
    let bed = Bed::new();
    let store = bed.open();
    let end = fill(&bed, &store, 0..30);
    store.shutdown().unwrap();
    drop(store);
    let whole = bed.index_files();
    assert_eq!(whole.len(), 2);
    for (name, content) in &whole {
        for at in 0..content.len() {
            let mut files = whole.clone();
            files.get_mut(name).unwrap()[at] ^= 0x41;
            let bed = bed.with_index(&files);
            let store = bed.open();
            // A wrong offset is noticed by the first query that meets it.
            for number in 0..end {
                find(&store, &request("t", &format!("key{number}")));
                find(&store, &request("t", &format!("other{number}")));
            }
            check(&store, 0..end);
        }
    }
}

#[test]
fn files_of_deleted_messages_go_with_them() {
    let mut bed = Bed::new();
    bed.config.file_reserved_time = Duration::from_secs(3600);
    bed.config.delete_when = (0..24).collect();
    let store = bed.open();
    bed.disk.set_now(START_MS);
    let end = fill(&bed, &store, 0..200);
    let files = bed.index_files().len();
    bed.clock.set(START_MS + 2 * 3_600_000);
    for _ in 0..10 {
        store.clean().unwrap();
    }
    let min = usize::try_from(store.min_offset("t", 0)).unwrap();
    assert!(min > 100, "{min}");
    assert!(bed.index_files().len() < files / 2);
    check(&store, min..end);
    for number in 0..min {
        assert_eq!(find(&store, &request("t", &format!("key{number}"))), [""; 0]);
    }
    assert_eq!(store.stats().metrics.index_failures, 0);
    store.shutdown().unwrap();
    drop(store);
    let store = bed.open();
    check(&store, min..end);
    assert_eq!(store.stats().metrics.index_entries, 0, "nothing was indexed twice");
}

#[test]
fn an_index_that_cannot_be_written_only_falls_behind() {
    let bed = Bed::new();
    let store = bed.open();
    fill(&bed, &store, 0..10);
    // Every operation on the index fails in turn: creation, writes, flushes.
    let mut end = 10;
    for after in 0..60 {
        bed.disk.order_fault(after, Fault::IoError);
        let future = store.put(&Message {
            properties: &format!("KEYS\u{1}key{end} other{end}\u{2}"),
            ..message("t", 0, end.to_string().as_bytes())
        });
        store.step();
        let is_stored = future.wait().is_ok();
        let _ = store.flush();
        bed.disk.clear_faults();
        if !is_stored || store.check_writable().is_err() {
            break;
        }
        end += 1;
        store.step();
        check(&store, 0..end);
    }
    // The log has failed, or never did: either way all that is stored is found after a restart.
    drop(store);
    let store = bed.open();
    check(&store, 0..end);
}

#[test]
fn what_was_stored_without_an_index_is_indexed_later() {
    let mut bed = Bed::new();
    bed.config.message_index_enable = false;
    let store = bed.open();
    let end = fill(&bed, &store, 0..20);
    assert_eq!(find(&store, &request("t", "key1")), [""; 0]);
    store.shutdown().unwrap();
    drop(store);
    assert_eq!(bed.index_files(), BTreeMap::new());
    bed.config.message_index_enable = true;
    let store = bed.open();
    check(&store, 0..end);
}
