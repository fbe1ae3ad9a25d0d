//! A store's directory that was changed at will: it opens or says why not, it can be read, opening
//! it twice is as good as once, and it takes messages.
#![no_main]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use protocol::message::Message;
use store::clock::Clock;
use store::sim_disk::SimDisk;
use store::{AllMessages, FlushDiskType, GetRequest, MessageStore, RecoveryReport, StoreConfig};
use store::{StoreError, Threads};

type Image = BTreeMap<PathBuf, Vec<u8>>;

const TOPICS: [&str; 2] = ["TopicA", "%RETRY%group"];
const QUEUES: i32 = 2;
/// Bytes that a file may grow to.
const FILE_MAX: usize = 32 << 10;
/// Changes at most.
const EDITS_MAX: usize = 32;

#[derive(Debug)]
struct StandingClock;

impl Clock for StandingClock {
    fn now_ms(&self) -> i64 {
        1_700_000_000_000
    }
}

fn config(cut_damaged_log: bool) -> StoreConfig {
    let mut config = StoreConfig::new("/store");
    config.mapped_file_size_commit_log = 4 << 10;
    config.mapped_file_size_consume_queue = 20 * 8;
    (config.max_hash_slot_num, config.max_index_num) = (16, 64);
    config.max_message_size = 2 << 10;
    config.flush_disk_type = FlushDiskType::SyncFlush;
    config.cut_damaged_log = cut_damaged_log;
    config
}

fn open(disk: &SimDisk, cut: bool) -> Result<(MessageStore, RecoveryReport), StoreError> {
    let disk = Arc::new(disk.clone());
    MessageStore::open_on(config(cut), disk, Arc::new(StandingClock), Threads::Stepped)
}

fn put(store: &MessageStore, topic: &str, queue_id: i32, body: &[u8]) -> Result<i64, String> {
    let message = Message {
        topic,
        queue_id,
        flag: 0,
        sys_flag: 0,
        born_timestamp: 1,
        born_host: "10.0.0.1:50000".parse().expect("an address"),
        store_host: "10.0.0.2:10911".parse().expect("an address"),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        properties: "TAGS\u{1}TagA\u{2}KEYS\u{1}k\u{2}",
    };
    let future = store.put(&message);
    store.step();
    future.wait().map(|result| result.queue_offset).map_err(|error| error.to_string())
}

/// The directory of a store with some files of each kind, after a clean stop and after a kill.
fn images() -> &'static [Image; 2] {
    static IMAGES: OnceLock<[Image; 2]> = OnceLock::new();
    IMAGES.get_or_init(|| {
        let disk = SimDisk::new(1);
        let (store, _) = open(&disk, false).expect("an empty disk can be opened");
        for number in 0..40_u8 {
            let body = vec![number; 20 + usize::from(number % 5) * 60];
            let topic = TOPICS[usize::from(number % 2)];
            put(&store, topic, i32::from(number / 2 % 2), &body).expect("there is room");
        }
        store.flush().expect("it can be flushed");
        put(&store, TOPICS[0], 0, b"not in the checkpoint").expect("there is room");
        let killed = disk.image();
        store.shutdown().expect("it can be closed");
        [disk.image(), killed]
    })
}

/// Takes bytes from the front.
fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = input.split_first_chunk::<N>()?;
    *input = rest;
    Some(*taken)
}

/// One change: which file, what, where, how much.
fn edit(image: &mut Image, input: &mut &[u8]) -> Option<()> {
    let [file, kind, length] = take(input)?;
    let place = usize::from(u16::from_be_bytes(take(input)?));
    let length = usize::from(length);
    let path = image.keys().nth(usize::from(file) % image.len().max(1))?.clone();
    let content = image.get_mut(&path)?;
    let place = place % content.len().max(1);
    let end = (place + length).min(content.len());
    match kind % 8 {
        0 => {
            let (bytes, rest) = input.split_at_checked(length)?;
            *input = rest;
            content.resize(content.len().max(place + length).min(FILE_MAX), 0);
            content.iter_mut().skip(place).zip(bytes).for_each(|(old, new)| *old = *new);
        }
        1 => content.truncate(place),
        2 => content.resize((content.len() + length * 16).min(FILE_MAX), 0),
        3 => content[place..end].fill(0),
        4 => content.iter_mut().skip(place).take(1).for_each(|byte| *byte ^= 1 << (length % 8)),
        5 => drop(image.remove(&path)),
        6 => {
            let tail = content.split_off(place);
            content.extend_from_slice(tail.get(length..).unwrap_or_default());
        }
        _ => {
            let copied = content[place..].to_vec();
            let other = image.keys().nth(length % image.len())?.clone();
            image.insert(other, copied);
        }
    }
    Some(())
}

/// Reads everything; returns the bounds of each queue.
fn read(store: &MessageStore) -> Vec<(i64, i64)> {
    let mut bounds = Vec::new();
    for topic in TOPICS {
        for queue_id in 0..QUEUES {
            let (min, max) = (store.min_offset(topic, queue_id), store.max_offset(topic, queue_id));
            let mut offset = min;
            while offset < max {
                let request =
                    GetRequest { topic, queue_id, offset, max_messages: 8, max_bytes: 1 << 20 };
                let result = store.get(&request, &AllMessages).expect("the disk is well");
                // What was damaged below the checkpoint is handed out as it is.
                let records = result.records().map(|record| record.len()).sum::<usize>();
                assert!(records <= result.total_bytes, "{records} bytes");
                if result.next_begin_offset <= offset {
                    break;
                }
                offset = result.next_begin_offset;
            }
            bounds.push((min, max));
        }
    }
    bounds
}

fuzz_target!(|input: &[u8]| {
    let mut input = input;
    let Some([options]) = take(&mut input) else { return };
    let mut image = images()[usize::from(options & 1)].clone();
    for _ in 0..EDITS_MAX {
        if image.is_empty() || edit(&mut image, &mut input).is_none() {
            break;
        }
    }
    let disk = SimDisk::from_image(&image);
    let cut = options & 2 != 0;
    let (store, report) = match open(&disk, cut) {
        Ok(opened) => opened,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let mut found = (report, read(&store));
    let (mut disk, mut store) = (disk, store);
    for _ in 0..2 {
        // As after a kill: the start before has done all that was to be done.
        let next = disk.kill();
        drop(store);
        disk = next;
        let (opened, again) = match open(&disk, cut) {
            Ok(opened) => opened,
            // A clean start trusts what lies below the end; only the next one looks at it.
            Err(StoreError::Damaged { .. }) if found.0.was_clean => return,
            Err(error) => panic!("what was recovered cannot be opened: {error}"),
        };
        store = opened;
        let bounds = read(&store);
        if !found.0.was_clean {
            let ends = |report: &RecoveryReport| (report.log_min, report.log_end);
            assert_eq!((ends(&again), &bounds), (ends(&found.0), &found.1));
            assert_eq!((again.cut_bytes, again.cut_records), (0, 0), "{again:?}");
        }
        found = (again, bounds);
    }
    let before = store.max_offset(TOPICS[0], 0);
    if let Ok(offset) = put(&store, TOPICS[0], 0, b"one more") {
        assert_eq!(offset, before);
        assert_eq!(store.max_offset(TOPICS[0], 0), offset + 1);
    }
    let _ = store.shutdown();
});
