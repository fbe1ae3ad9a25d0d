//! Old files go, full disks block and unblock, failures are for good.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{TestClock, bodies, config, get, message};
use store::sim_disk::{Fault, SimDisk};
use store::{
    FlushDiskType, GetStatus, MessageStore, PutError, PutResult, RecoveryReport, StoreConfig,
    Threads,
};

const HOUR_MS: i64 = 3_600_000;
/// 2023-11-14T22:00:00Z
const START_MS: i64 = 1_699_999_200_000;

struct Bed {
    disk: SimDisk,
    clock: Arc<TestClock>,
    config: StoreConfig,
}

impl Bed {
    fn new() -> Self {
        let mut config = config(Path::new("/store"), FlushDiskType::SyncFlush);
        config.mapped_file_size_commit_log = 8 << 10;
        config.mapped_file_size_consume_queue = 20 * 4;
        config.max_message_size = 4 << 10;
        config.file_reserved_time = Duration::from_secs(2 * 3600);
        config.delete_when = vec![4];
        let bed = Self { disk: SimDisk::new(1), clock: Arc::new(TestClock::new(0)), config };
        bed.set_hour(0);
        bed
    }

    fn set_hour(&self, hour: i64) {
        self.clock.set(START_MS + hour * HOUR_MS);
        self.disk.set_now(START_MS + hour * HOUR_MS);
    }

    fn open(&self) -> (MessageStore, RecoveryReport) {
        let disk = Arc::new(self.disk.clone());
        let clock = Arc::clone(&self.clock) as Arc<dyn store::clock::Clock>;
        MessageStore::open_on(self.config.clone(), disk, clock, Threads::Stepped).unwrap()
    }
}

fn put(store: &MessageStore, topic: &str) -> Result<PutResult, PutError> {
    let future = store.put(&message(topic, 0, &[7; 2000]));
    store.step();
    future.wait()
}

#[test]
fn expired_files_go_at_their_hour_and_queues_follow() {
    let bed = Bed::new();
    let (store, _) = bed.open();
    for _ in 0..3 {
        put(&store, "old").unwrap();
    }
    for _ in 0..20 {
        put(&store, "t").unwrap();
    }
    // Expired from hour 2 on, but deleteWhen is 04:00, which is hour 6.
    bed.set_hour(5);
    store.clean().unwrap();
    assert_eq!(store.stats().log_min_offset, 0);
    bed.set_hour(6);
    store.clean().unwrap();
    let stats = store.stats();
    assert!(stats.log_min_offset > 0 && stats.metrics.deleted_segments > 5, "{stats:?}");
    // The newest file stays.
    assert!(stats.log_min_offset < stats.log_max_offset);
    let min = store.min_offset("t", 0);
    assert!((15..20).contains(&min), "{min}");
    assert_eq!(bodies(&store, "t", 0).len(), usize::try_from(20 - min).unwrap());
    assert_eq!(get(&store, "t", 0, 0, 1).status, GetStatus::OffsetTooSmall);
    // A queue whose messages are all gone keeps its numbers.
    assert_eq!((store.min_offset("old", 0), store.max_offset("old", 0)), (3, 3));
    let files =
        bed.disk.image().keys().filter(|path| path.starts_with("/store/consumequeue/t")).count();
    assert!(files <= 2, "{files}");
    store.shutdown().unwrap();
    drop(store);
    let (store, report) = bed.open();
    assert!(report.rebuilt_queues.is_empty(), "{report:?}");
    assert_eq!((store.min_offset("t", 0), store.max_offset("t", 0)), (min, 20));
    assert_eq!(store.max_offset("old", 0), 3);
    assert_eq!(put(&store, "old").unwrap().queue_offset, 3);
    assert_eq!(bodies(&store, "old", 0).len(), 1);
}

#[test]
fn a_full_disk_is_refused_and_taken_again_without_a_restart() {
    let mut bed = Bed::new();
    bed.config.clean_file_forcibly_enable = false;
    let (store, _) = bed.open();
    put(&store, "t").unwrap();
    bed.disk.set_full(true);
    // Within the space that is reserved messages are still taken; then the writer notices.
    let mut refused = 0;
    for _ in 0..10 {
        match put(&store, "t") {
            Ok(_) => assert_eq!(refused, 0),
            Err(PutError::NotWritable(reason)) => {
                assert!(reason.contains("space"), "{reason}");
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 0);
    assert!(store.check_writable().is_err());
    store.clean().unwrap();
    let reason = store.check_writable().unwrap_err();
    assert!(reason.contains("99 %"), "{reason}");
    let stored = store.max_offset("t", 0);
    bed.disk.set_full(false);
    store.clean().unwrap();
    store.check_writable().unwrap();
    store.step();
    assert_eq!(put(&store, "t").unwrap().queue_offset, stored);
    assert_eq!(bodies(&store, "t", 0).len(), usize::try_from(stored).unwrap() + 1);
    store.shutdown().unwrap();
    drop(store);
    let (store, report) = bed.open();
    assert_eq!((report.was_clean, report.cut_bytes), (true, 0));
    assert_eq!(store.max_offset("t", 0), stored + 1);
}

#[test]
fn a_full_disk_loses_its_oldest_files_before_their_time() {
    let bed = Bed::new();
    let (store, _) = bed.open();
    for _ in 0..20 {
        put(&store, "t").unwrap();
    }
    bed.disk.set_full(true);
    store.clean().unwrap();
    assert!(store.stats().metrics.deleted_segments > 3);
    assert!(store.min_offset("t", 0) > 8);
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(30), "still not: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn the_disk_is_watched_while_files_go_one_at_a_time() {
    let mut bed = Bed::new();
    bed.config.delete_when = (0..24).collect();
    bed.config.clean_resource_interval = Duration::from_millis(1);
    bed.config.delete_commit_log_files_interval = Duration::from_secs(3600);
    let disk = Arc::new(bed.disk.clone());
    let clock = Arc::clone(&bed.clock) as Arc<dyn store::clock::Clock>;
    let opened = MessageStore::open_on(bed.config.clone(), disk, clock, Threads::Own);
    let (store, _) = opened.unwrap();
    for _ in 0..20 {
        store.put(&message("t", 0, &[7; 2000])).wait().unwrap();
    }
    bed.set_hour(6);
    let deleted = || store.stats().metrics.deleted_segments;
    wait_until("the first file is deleted", || deleted() == 1);
    // The next one would go in an hour.
    bed.disk.set_full(true);
    wait_until("the full disk is noticed", || store.check_writable().is_err());
    bed.disk.set_full(false);
    wait_until("the space is noticed", || store.check_writable().is_ok());
    store.put(&message("t", 0, b"x")).wait().unwrap();
    assert_eq!(deleted(), 1);
    store.shutdown().unwrap();
}

#[test]
fn after_a_failed_flush_nothing_is_acknowledged_any_more() {
    let bed = Bed::new();
    let (store, _) = bed.open();
    put(&store, "t").unwrap();
    let mut failed = false;
    for after in 0..4 {
        bed.disk.order_fault(after, Fault::IoError);
        if let Err(error) = put(&store, "t") {
            assert!(matches!(error, PutError::Failed(_)), "{error}");
            failed = true;
            break;
        }
    }
    assert!(failed);
    bed.disk.clear_faults();
    let error = put(&store, "t").unwrap_err();
    assert!(
        matches!(&error, PutError::NotWritable(reason) if reason.contains("failed")),
        "{error}"
    );
    store.shutdown().unwrap();
    // The next start does not take the stop for a clean one.
    drop(store);
    let (store, report) = bed.open();
    assert!(!report.was_clean);
    put(&store, "t").unwrap();
}
