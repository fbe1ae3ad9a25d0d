//! Stores that Apache's broker wrote: everything in them is read as Apache's own client read it.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{bodies, get, message};
use protocol::message::MessageExt;
use protocol::message_codec;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use store::disk::{Disk as _, RealDisk};
use store::{MessageStore, QueryRequest, RecoveryReport, StoreConfig};
use tempfile::TempDir;

/// Largest body after decompression.
const BODY_MAX: usize = 8 << 20;

/// Unpacks an archive and returns its directory and the lines of its expectations.
fn unpack(archive: &Path) -> (TempDir, Vec<Value>) {
    let dir = tempfile::tempdir().unwrap();
    let status =
        Command::new("tar").arg("xJSf").arg(archive).arg("-C").arg(dir.path()).status().unwrap();
    assert!(status.success(), "{}", archive.display());
    let expected = dir.path().join("expected.jsonl");
    let lines = std::fs::read_to_string(expected).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (dir, lines)
}

fn archives() -> Vec<PathBuf> {
    let mut dirs = vec![PathBuf::from("tests/fixtures")];
    dirs.extend(std::env::var_os("ROCKETMQ_FIXTURES").map(PathBuf::from));
    let mut archives = Vec::new();
    for dir in dirs {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "xz") {
                archives.push(path);
            }
        }
    }
    archives.sort();
    assert!(archives.len() >= 4);
    archives
}

fn is_of(archive: &Path, version: &str) -> bool {
    archive.to_string_lossy().contains(&format!("java-{version}-"))
}

fn open(dir: &TempDir) -> (MessageStore, RecoveryReport) {
    MessageStore::open(StoreConfig::new(dir.path().join("store"))).unwrap()
}

fn number(line: &Value, name: &str) -> i64 {
    line[name].as_i64().unwrap_or_else(|| panic!("{name} of {line}"))
}

fn text<'a>(line: &'a Value, name: &str) -> &'a str {
    line[name].as_str().unwrap_or_else(|| panic!("{name} of {line}"))
}

fn hex_hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks one line of the expectations.
fn check_line(store: &MessageStore, line: &Value) {
    let topic = text(line, "topic");
    let queue = i32::try_from(number(line, "queue")).unwrap();
    if line["max"].is_number() {
        assert_eq!(store.min_offset(topic, queue), number(line, "min"), "{line}");
        assert_eq!(store.max_offset(topic, queue), number(line, "max"), "{line}");
        return;
    }
    let physical_offset = number(line, "commitLogOffset");
    let record = store.look_up(physical_offset).unwrap().unwrap();
    let result = get(store, topic, queue, number(line, "offset"), 1);
    assert_eq!(result.records().next().unwrap(), record, "{line}");
    let view = message_codec::decode_record(&record).unwrap();
    view.check_body().unwrap();
    assert_eq!(i64::try_from(record.len()).unwrap(), number(line, "storeSize"));
    assert_eq!((view.topic, view.queue_id), (topic, queue));
    assert_eq!(view.queue_offset, number(line, "offset"));
    assert_eq!(i64::from(view.flag), number(line, "flag"));
    assert_eq!(view.born_timestamp, number(line, "bornTimestamp"));
    assert_eq!(view.store_timestamp, number(line, "storeTimestamp"));
    assert_eq!(i64::from(view.reconsume_times), number(line, "reconsumeTimes"));
    let prepared = number(line, "preparedTransactionOffset");
    assert_eq!(view.prepared_transaction_offset, prepared);
    if let Some(hash) = line["storedBodySha256"].as_str() {
        assert_eq!(hex_hash(view.body), hash, "{line}");
        return;
    }
    let message = MessageExt::decode(&record, BODY_MAX).unwrap();
    assert_eq!(message.msg_id(), text(line, "msgId"));
    assert_eq!(message.offset_msg_id(), text(line, "offsetMsgId"));
    assert_eq!(i64::try_from(message.body.len()).unwrap(), number(line, "bodySize"));
    assert_eq!(hex_hash(&message.body), text(line, "bodySha256"), "{line}");
    let expected: BTreeMap<String, String> =
        serde_json::from_value(line["properties"].clone()).unwrap();
    assert_eq!(message.properties, expected);
}

/// The message is found by its unique id and by each of its keys, once.
fn check_keys(store: &MessageStore, line: &Value) {
    let Some(offset) = line["commitLogOffset"].as_i64() else { return };
    let property = |name: &str| line["properties"][name].as_str().unwrap_or_default();
    let words = property("KEYS").split(' ').map(|word| (word, false));
    for (key, is_unique_key) in words.chain([(property("UNIQ_KEY"), true)]) {
        let request = QueryRequest {
            topic: text(line, "topic"),
            key,
            is_unique_key,
            begin: number(line, "storeTimestamp"),
            end: number(line, "storeTimestamp"),
            max_messages: 1_000,
            max_bytes: usize::MAX,
        };
        let found = store.query(&request).unwrap().records;
        let is_found = |record: &&bytes::Bytes| {
            message_codec::decode_record(record).unwrap().physical_offset == offset
        };
        let count = found.iter().filter(is_found).count();
        assert_eq!(count, usize::from(!key.is_empty()), "{key} {line}");
    }
}

fn wait_until_indexed(store: &MessageStore) {
    let begin = std::time::Instant::now();
    while store.stats().log_indexed_offset < store.stats().log_max_offset {
        assert!(begin.elapsed() < std::time::Duration::from_secs(60), "{:?}", store.stats());
        std::thread::yield_now();
    }
}

fn index_files(dir: &TempDir) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir.path().join("store/index")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The pages of a large file that are not all zeros, by number.
fn pages(path: &Path) -> BTreeMap<u64, Vec<u8>> {
    const PAGE_BYTES: u64 = 4096;
    let file = RealDisk.open(path).unwrap();
    let size = file.size().unwrap();
    let mut pages = BTreeMap::new();
    let mut next = file.next_data(0).unwrap();
    while let Some(at) = next {
        let start = at - at % PAGE_BYTES;
        let mut page = vec![0; usize::try_from(PAGE_BYTES.min(size - start)).unwrap()];
        file.read_exact_at(&mut page, start).unwrap();
        if page.iter().any(|byte| *byte != 0) {
            pages.insert(start / PAGE_BYTES, page);
        }
        let end = start + PAGE_BYTES;
        next = if end < size { file.next_data(end).unwrap() } else { None };
    }
    pages
}

/// Hashes of what the store must not touch, by path.
fn untouched(dir: &TempDir) -> BTreeMap<PathBuf, String> {
    let root = dir.path().join("store");
    let mut hashes = BTreeMap::new();
    let mut files = Vec::from_iter(Some(root.join("timerwheel")).filter(|path| path.exists()));
    for part in ["config", "timerlog", "compaction"] {
        files.extend(
            std::fs::read_dir(root.join(part))
                .into_iter()
                .flatten()
                .map(|entry| entry.unwrap().path()),
        );
    }
    for file in files {
        let content = std::fs::read(&file).unwrap();
        hashes.insert(file, hex_hash(&content));
    }
    hashes
}

/// The units of all consume queues, by path below `consumequeue`.
fn units(dir: &TempDir) -> BTreeMap<PathBuf, Vec<u8>> {
    let root = dir.path().join("store/consumequeue");
    let mut units = BTreeMap::new();
    for topic in std::fs::read_dir(&root).unwrap() {
        for queue in std::fs::read_dir(topic.unwrap().path()).unwrap() {
            for file in std::fs::read_dir(queue.unwrap().path()).unwrap() {
                let path = file.unwrap().path();
                let content = std::fs::read(&path).unwrap();
                units.insert(path.strip_prefix(&root).unwrap().to_owned(), content);
            }
        }
    }
    units
}

#[test]
fn all_that_apache_stored_is_read_and_kept() {
    for archive in archives() {
        let (dir, lines) = unpack(&archive);
        let before = untouched(&dir);
        let queues = units(&dir);
        let was_killed = dir.path().join("store/abort").exists();
        let (store, report) = open(&dir);
        assert_eq!(report.was_clean, !was_killed);
        assert_eq!((report.cut_bytes, report.cut_records), (0, 0), "{report:?}");
        assert_eq!(report.rebuilt_queues, Vec::<String>::new());
        let messages = lines.iter().filter(|line| line["commitLogOffset"].is_number()).count();
        assert!(messages > 80);
        for line in &lines {
            check_line(&store, line);
            check_keys(&store, line);
        }
        let built = store.stats().metrics.index_entries;
        assert_eq!(built, 0, "Apache's index is used as it is");
        // Messages that wait for their time or their transaction's end.
        assert_eq!(store.max_offset("SCHEDULE_TOPIC_XXXX", 17), 1);
        if is_of(&archive, "5.3.3") {
            assert_eq!(store.max_offset("SCHEDULE_TOPIC_XXXX", 4), 1);
            assert_eq!(store.max_offset("rmq_sys_wheel_timer", 0), 3);
            assert_eq!(store.max_offset("RMQ_SYS_TRANS_HALF_TOPIC", 0), 9);
        }
        store.shutdown().unwrap();
        drop(store);
        assert_eq!(untouched(&dir), before);
        assert_eq!(units(&dir), queues);
        assert!(!dir.path().join("store/abort").exists());
    }
}

#[test]
fn queues_built_from_the_log_equal_those_of_apache_byte_for_byte() {
    for archive in archives() {
        let (dir, lines) = unpack(&archive);
        let queues = units(&dir);
        let queue_dir = dir.path().join("store/consumequeue");
        let damages: [&dyn Fn(); 4] = [
            &|| std::fs::remove_dir_all(&queue_dir).unwrap(),
            &|| std::fs::remove_dir_all(queue_dir.join("GoldenOrder/1")).unwrap(),
            &|| {
                let file = queue_dir.join("GoldenNormal/2/00000000000000000000");
                std::fs::File::options().write(true).open(file).unwrap().set_len(100).unwrap();
            },
            &|| {
                let file = queue_dir.join("GoldenNormal/3/00000000000000000000");
                let mut content = std::fs::read(&file).unwrap();
                content[40..70].fill(0xA5);
                std::fs::write(file, content).unwrap();
            },
        ];
        for damage in damages {
            damage();
            let (store, report) = open(&dir);
            assert!(!report.rebuilt_queues.is_empty() || report.checked_from == 0, "{report:?}");
            for line in &lines {
                check_line(&store, line);
            }
            store.shutdown().unwrap();
            drop(store);
            assert_eq!(units(&dir), queues);
        }
    }
}

#[test]
fn an_index_built_from_the_log_equals_that_of_apache_byte_for_byte() {
    for archive in archives() {
        let (dir, lines) = unpack(&archive);
        let [path] = &index_files(&dir)[..] else { panic!("one index file") };
        let of_apache = pages(path);
        assert!(of_apache.len() > 10, "{}", archive.display());
        std::fs::remove_file(path).unwrap();
        let (store, _) = open(&dir);
        wait_until_indexed(&store);
        for line in &lines {
            check_keys(&store, line);
        }
        store.shutdown().unwrap();
        drop(store);
        let [path] = &index_files(&dir)[..] else { panic!("one index file") };
        assert!(pages(path) == of_apache, "{}", archive.display());
    }
}

#[test]
fn what_is_sent_afterwards_follows_what_is_there() {
    let archive = archives().remove(0);
    let (dir, _) = unpack(&archive);
    let (store, _) = open(&dir);
    let next = store.max_offset("GoldenNormal", 0);
    let put = store.put(&message("GoldenNormal", 0, b"ours")).wait().unwrap();
    assert_eq!(put.queue_offset, next);
    store.shutdown().unwrap();
    drop(store);
    let (store, report) = open(&dir);
    assert!(report.was_clean);
    assert_eq!(bodies(&store, "GoldenNormal", 0).last().unwrap(), "ours");
}
