//! One store's log in another: shipping, the confirm offset, cutting, and changes of who numbers.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use common::{TestClock, bodies, config, message, sim_config};
use store::sim_disk::{Fault, SimDisk};
use store::{
    FlushDiskType, LogListener, MessageStore, PutError, PutFuture, ReplicationError, StoreConfig,
    Threads,
};

const FLUSHES: [FlushDiskType; 2] = [FlushDiskType::AsyncFlush, FlushDiskType::SyncFlush];

fn open_with(disk: &SimDisk, config: StoreConfig) -> MessageStore {
    let clock = Arc::new(TestClock::new(1_700_000_000_000));
    MessageStore::open_on(config, Arc::new(disk.clone()), clock, Threads::Stepped).unwrap().0
}

fn open_master(disk: &SimDisk) -> MessageStore {
    open_with(disk, sim_config(FlushDiskType::AsyncFlush))
}

fn open_slave(disk: &SimDisk, flush: FlushDiskType, is_held: bool) -> MessageStore {
    let slave = StoreConfig { is_slave: true, is_confirm_held: is_held, ..sim_config(flush) };
    open_with(disk, slave)
}

/// Puts messages of many sizes, each with its number in front.
fn put_some(store: &MessageStore, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let length = [8, 60, 700, 3_000][usize::try_from(number * 7 % 4).unwrap()];
        let mut body = vec![b'.'; length];
        body[..8].copy_from_slice(&number.to_be_bytes());
        let topic = ["a", "b"][usize::try_from(number % 2).unwrap()];
        let _later = store.put(&message(topic, i32::try_from(number % 3).unwrap(), &body));
    }
    store.step();
}

/// Ships what the slave lacks, in pieces of this size, up to an offset of the master's log.
fn ship(
    master: &MessageStore,
    slave: &MessageStore,
    piece: usize,
    to: i64,
) -> Result<(), ReplicationError> {
    let mut rest = Vec::new();
    let mut at = slave.log_end();
    loop {
        let next = at + i64::try_from(rest.len()).unwrap();
        let bytes = master.read_log(next, piece.min(usize::try_from(to - next).unwrap()))?;
        if bytes.is_empty() {
            return Ok(());
        }
        rest.extend_from_slice(&bytes);
        let done = slave.append_replicated(at, &rest)?;
        rest.drain(..done);
        at += i64::try_from(done).unwrap();
        assert_eq!(slave.log_end(), at);
    }
}

fn log_files(disk: &SimDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut image = disk.image();
    image.retain(|path, _| path.starts_with("/store/commitlog"));
    image
}

fn all_bodies(store: &MessageStore) -> Vec<Vec<bytes::Bytes>> {
    let queues = ["a", "b"].into_iter().flat_map(|topic| (0..3).map(move |id| (topic, id)));
    queues.map(|(topic, id)| bodies(store, topic, id)).collect()
}

/// The whole log.
fn log_bytes(store: &MessageStore) -> Vec<u8> {
    let mut all = Vec::new();
    let mut at = store.log_min_offset();
    while at < store.log_end() {
        let bytes = store.read_log(at, usize::MAX).unwrap();
        at += i64::try_from(bytes.len()).unwrap();
        all.extend_from_slice(&bytes);
    }
    all
}

#[test]
fn a_replicated_log_is_the_same_byte_for_byte() {
    for (piece, flush) in [(1, 0), (13, 1), (1_000, 0), (32 << 10, 1)] {
        let (ours, theirs) = (SimDisk::new(1), SimDisk::new(2));
        let master = open_master(&ours);
        let slave = open_slave(&theirs, FLUSHES[flush], false);
        put_some(&master, 0..60);
        assert!(master.log_end() > 5 * (8 << 10), "several files");
        ship(&master, &slave, piece, master.log_end()).unwrap();
        slave.step();
        assert_eq!(slave.log_end(), master.log_end());
        assert_eq!(slave.stats().log_dispatched_offset, master.log_end());
        assert_eq!(log_files(&ours), log_files(&theirs));
        assert_eq!(all_bodies(&slave), all_bodies(&master));
        let put = slave.put(&message("a", 0, b"x"));
        assert!(matches!(put.wait(), Err(PutError::NotWritable(_))));
        slave.shutdown().unwrap();
        drop(slave);
        let slave = open_slave(&theirs, FLUSHES[flush], false);
        put_some(&master, 60..80);
        ship(&master, &slave, piece, master.log_end()).unwrap();
        slave.step();
        assert_eq!(log_files(&ours), log_files(&theirs));
        assert_eq!(all_bodies(&slave), all_bodies(&master));
    }
}

#[test]
fn an_empty_log_begins_where_the_masters_last_file_does() {
    let (ours, theirs) = (SimDisk::new(1), SimDisk::new(2));
    let (master, slave) = (open_master(&ours), open_slave(&theirs, FLUSHES[0], false));
    put_some(&master, 0..60);
    let begin = master.log_file_start(master.log_end());
    let bytes = master.read_log(begin, usize::MAX).unwrap();
    let wrong = slave.append_replicated(begin + 8, &bytes).unwrap_err();
    assert!(matches!(wrong, ReplicationError::NotAtEnd { end: 0, .. }), "{wrong}");
    assert_eq!(slave.append_replicated(begin, &bytes).unwrap(), bytes.len());
    slave.step();
    assert_eq!((slave.log_min_offset(), slave.log_end()), (begin, master.log_end()));
    let queues = ["a", "b"].into_iter().flat_map(|topic| (0..3).map(move |id| (topic, id)));
    let begun = queues.filter(|(topic, id)| slave.max_offset(topic, *id) > 0);
    let begun: Vec<_> = begun.collect();
    assert!(!begun.is_empty());
    for (topic, id) in begun {
        assert_eq!(slave.max_offset(topic, id), master.max_offset(topic, id));
        assert!(slave.min_offset(topic, id) > 0);
    }
    let wrong = slave.append_replicated(0, &bytes).unwrap_err();
    assert!(matches!(wrong, ReplicationError::NotAtEnd { .. }), "{wrong}");
    drop(slave);
    let slave = open_slave(&theirs.kill(), FLUSHES[0], false);
    assert_eq!((slave.log_min_offset(), slave.log_end()), (begin, master.log_end()));
    put_some(&master, 60..61);
    ship(&master, &slave, 100, master.log_end()).unwrap();
    slave.step();
    assert_eq!(slave.max_offset("a", 0), master.max_offset("a", 0));
}

#[test]
fn a_topic_that_is_made_anew_begins_anew_on_the_slave() {
    let (ours, theirs) = (SimDisk::new(1), SimDisk::new(2));
    let (master, slave) = (open_master(&ours), open_slave(&theirs, FLUSHES[0], false));
    put_some(&master, 0..30);
    ship(&master, &slave, 1_000, master.log_end()).unwrap();
    slave.step();
    master.delete_topic("a").unwrap();
    put_some(&master, 30..42);
    ship(&master, &slave, 1_000, master.log_end()).unwrap();
    slave.step();
    assert_eq!(all_bodies(&slave), all_bodies(&master));
    assert!(slave.max_offset("a", 0) < 10);
    slave.flush().unwrap();
    drop(slave);
    let slave = open_slave(&theirs.kill(), FLUSHES[0], false);
    assert_eq!(all_bodies(&slave), all_bodies(&master));
}

#[test]
fn bytes_that_are_no_records_are_refused() {
    let (ours, theirs) = (SimDisk::new(1), SimDisk::new(2));
    let (master, slave) = (open_master(&ours), open_slave(&theirs, FLUSHES[0], false));
    put_some(&master, 0..3);
    let good = master.read_log(0, usize::MAX).unwrap();
    let end = master.log_end();
    for at in 0..good.len() {
        let mut bad = good.to_vec();
        bad[at] ^= 0x40;
        // Whatever is appended is a part of the log that the slave can read again.
        let outcome = slave.append_replicated(slave.log_end(), &bad);
        if let Err(error) = outcome {
            let is_known = matches!(error, ReplicationError::Malformed { .. });
            assert!(is_known || matches!(error, ReplicationError::NotAtEnd { .. }), "{error}");
        }
        assert!(slave.log_end() <= end);
        if slave.log_end() > 0 {
            break;
        }
    }
    let zeros = slave.append_replicated(slave.log_end(), &[0; 100]).unwrap_err();
    assert!(matches!(zeros, ReplicationError::Malformed { .. }), "{zeros}");
    let refused = master.append_replicated(end, &good).unwrap_err();
    assert!(matches!(refused, ReplicationError::NotSlave));
    let beyond = master.read_log(end + 1, 10).unwrap_err();
    assert!(matches!(beyond, ReplicationError::OutOfRange { .. }), "{beyond}");
    assert!(master.read_log(end, 10).unwrap().is_empty());
}

/// What a slave has after a crash is a prefix of the master's log, and it can go on from there.
fn check_prefix(master: &MessageStore, slave: &MessageStore) {
    let (all, some) = (log_bytes(master), log_bytes(slave));
    assert!(all.starts_with(&some), "{} of {}", some.len(), all.len());
}

#[test]
fn a_crash_at_any_point_of_an_append_leaves_a_prefix() {
    let ours = SimDisk::new(1);
    let master = open_master(&ours);
    put_some(&master, 0..40);
    let mut ends = std::collections::BTreeSet::new();
    for seed in 0..200_u64 {
        let flush = FLUSHES[usize::try_from(seed % 2).unwrap()];
        let disk = SimDisk::new(seed);
        let slave = open_slave(&disk, flush, seed % 3 == 0);
        disk.order_fault(seed % 60, Fault::Crash);
        let mut durable = 0;
        while let Ok(()) = ship(&master, &slave, 997, master.log_end().min(slave.log_end() + 4_000))
        {
            slave.set_confirm(slave.log_end());
            slave.step();
            durable = durable.max(slave.log_flushed());
            if slave.log_end() == master.log_end() {
                break;
            }
        }
        drop(slave);
        let disk = disk.crash();
        let slave = open_slave(&disk, flush, seed % 3 == 0);
        check_prefix(&master, &slave);
        assert!(slave.log_end() >= durable, "seed {seed}: {} {durable}", slave.log_end());
        ends.insert(slave.log_end());
        ship(&master, &slave, 5_000, master.log_end()).unwrap();
        slave.set_confirm(master.log_end());
        slave.step();
        assert_eq!(log_files(&ours), log_files(&disk), "seed {seed}");
        assert_eq!(all_bodies(&slave), all_bodies(&master), "seed {seed}");
    }
    assert!(ends.len() > 10, "{ends:?}");
}

#[test]
fn a_crash_at_any_point_of_a_cut_leaves_a_prefix_and_nothing_comes_back() {
    let ours = SimDisk::new(1);
    let master = open_master(&ours);
    put_some(&master, 0..40);
    let end = master.log_end();
    let (mut cut, mut broken) = (0, 0);
    for seed in 0..300_u64 {
        let flush = FLUSHES[usize::try_from(seed % 2).unwrap()];
        let disk = SimDisk::new(seed);
        let slave = open_slave(&disk, flush, true);
        ship(&master, &slave, 3_000, end).unwrap();
        // A few records are confirmed; the rest stays unread.
        slave.set_confirm(2_000);
        slave.step();
        if seed % 5 > 0 {
            slave.flush().unwrap();
        }
        let confirmed = slave.stats().log_dispatched_offset;
        assert!(confirmed <= 2_000);
        let to = boundaries(&master, 2_000)[usize::try_from(seed % 20).unwrap()];
        assert!(slave.truncate(to + 1).is_err());
        let error = slave.truncate(0).unwrap_err();
        assert!(matches!(error, ReplicationError::Confirmed { .. }), "{error}");
        disk.order_fault(seed % 12, Fault::Crash);
        let is_cut = slave.truncate(to).is_ok();
        drop(slave);
        let disk = disk.crash();
        let slave = open_slave(&disk, flush, true);
        check_prefix(&master, &slave);
        if is_cut {
            cut += 1;
            assert!(slave.log_end() <= to, "seed {seed}");
        } else {
            broken += 1;
        }
        // Another history from there on; nothing of the old one is ever found again.
        slave.set_confirm(slave.log_end());
        slave.step();
        slave.become_master().unwrap();
        let begin = slave.log_end();
        put_some(&slave, 1_000..1_003);
        slave.set_confirm(slave.log_end());
        slave.step();
        let (files, texts, log_end) = (log_files(&disk), all_bodies(&slave), slave.log_end());
        assert!(log_end > begin);
        slave.flush().unwrap();
        drop(slave);
        let disk = disk.crash();
        let slave = open_slave(&disk, flush, false);
        assert_eq!(slave.log_end(), log_end, "seed {seed}");
        assert_eq!(log_files(&disk), files, "seed {seed}");
        assert_eq!(all_bodies(&slave), texts, "seed {seed}");
    }
    assert!(cut > 50 && broken > 50, "{cut} {broken}");
}

/// Where records of a log begin behind an offset.
fn boundaries(store: &MessageStore, from: i64) -> Vec<i64> {
    let mut list = Vec::new();
    let mut at = 0;
    while at < store.log_end() {
        let record = store.read_log(at, 8).unwrap();
        let size = i32::from_be_bytes(record[..4].try_into().unwrap());
        if at >= from {
            list.push(at);
        }
        at += i64::from(size);
    }
    list
}

/// Whether a put has been answered.
fn is_answered(put: &mut PutFuture) -> bool {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    std::pin::Pin::new(put).poll(&mut context).is_ready()
}

#[test]
fn nothing_is_readable_or_acknowledged_before_it_is_confirmed() {
    for flush in FLUSHES {
        let disk = SimDisk::new(1);
        let store = open_with(&disk, sim_config(flush));
        put_some(&store, 0..4);
        let begin = store.hold_confirm();
        assert_eq!((begin, store.confirm_offset()), (store.log_end(), Some(begin)));
        let mut puts: Vec<PutFuture> = Vec::new();
        let mut ends = Vec::new();
        for number in 0..3_u8 {
            puts.push(store.put(&message("t", 0, &[number])));
            store.step();
            ends.push(store.log_end());
        }
        let unconfirmed = message("t", 0, b"quick");
        let properties = "WAIT\u{1}false\u{2}";
        let mut quick = store.put(&protocol::message::Message { properties, ..unconfirmed });
        store.step();
        assert!(is_answered(&mut quick), "WAIT=false does not wait for others");
        assert!(puts.iter_mut().all(|put| !is_answered(put) && put.appended().is_some()));
        assert_eq!((store.max_offset("t", 0), store.stats().log_dispatched_offset), (0, begin));
        assert!(store.look_up(begin).unwrap().is_none());
        for (index, end) in ends.iter().enumerate() {
            store.set_confirm(end - 1);
            store.step();
            assert!(!is_answered(&mut puts[index]));
            store.set_confirm(*end);
            // It does not go back.
            store.set_confirm(begin);
            store.step();
            assert!(is_answered(&mut puts[index]));
            assert_eq!(store.max_offset("t", 0), i64::try_from(index).unwrap() + 1);
            assert!(store.look_up(end - 1).unwrap().is_none());
        }
        store.release_confirm();
        store.step();
        assert_eq!((store.max_offset("t", 0), store.confirm_offset()), (4, None));
        assert_eq!(store.put(&message("t", 0, b"x")).appended(), None);
    }
}

#[test]
fn a_new_master_numbers_behind_what_is_not_yet_readable() {
    for flush in FLUSHES {
        let (ours, theirs) = (SimDisk::new(1), SimDisk::new(2));
        let master = open_master(&ours);
        let slave = open_slave(&theirs, flush, true);
        put_some(&master, 0..20);
        ship(&master, &slave, 4_000, master.log_end()).unwrap();
        slave.set_confirm(3_000);
        slave.step();
        assert!(slave.stats().log_dispatched_offset < slave.log_end());
        slave.become_master().unwrap();
        put_some(&slave, 20..40);
        slave.set_confirm(slave.log_end());
        slave.step();
        put_some(&master, 20..40);
        assert_eq!(all_bodies(&slave), all_bodies(&master));
        assert_eq!(log_files(&ours), log_files(&theirs));
        slave.release_confirm();

        // The old master follows: what it has not confirmed is answered with an error.
        master.hold_confirm();
        let lost = master.put(&message("a", 0, b"unconfirmed"));
        master.step();
        let late = master.put(&message("a", 0, b"never written"));
        master.become_slave();
        assert!(matches!(late.wait(), Err(PutError::NotWritable(_))));
        assert_eq!(lost.wait(), Err(PutError::Demoted));
        let common = slave.log_end();
        assert!(master.log_end() > common);
        master.truncate(common).unwrap();
        put_some(&slave, 40..60);
        ship(&slave, &master, 999, slave.log_end()).unwrap();
        master.release_confirm();
        master.step();
        assert_eq!(all_bodies(&slave), all_bodies(&master));
        assert_eq!(log_files(&ours), log_files(&theirs));
        master.become_master().unwrap();
        put_some(&master, 60..62);
        put_some(&slave, 60..62);
        assert_eq!(all_bodies(&slave), all_bodies(&master));
    }
}

#[test]
fn what_was_not_confirmed_is_not_readable_after_a_restart() {
    for is_clean in [true, false] {
        let disk = SimDisk::new(1);
        let store = open_master(&disk);
        put_some(&store, 0..10);
        store.flush().unwrap();
        let confirmed = store.hold_confirm();
        put_some(&store, 10..30);
        let end = store.log_end();
        let disk = if is_clean {
            store.shutdown().unwrap();
            disk
        } else {
            disk.kill()
        };
        drop(store);
        let held = StoreConfig { is_confirm_held: true, ..sim_config(FlushDiskType::AsyncFlush) };
        let store = open_with(&disk, held.clone());
        assert_eq!((store.confirm_offset(), store.log_end()), (Some(confirmed), end));
        assert_eq!(all_bodies(&store).iter().map(Vec::len).sum::<usize>(), 10);
        let store = if is_clean {
            // Again, with nothing changed meanwhile.
            store.shutdown().unwrap();
            drop(store);
            open_with(&disk, held)
        } else {
            store
        };
        put_some(&store, 30..32);
        store.set_confirm(end);
        store.step();
        assert_eq!(all_bodies(&store).iter().map(Vec::len).sum::<usize>(), 30);
        store.release_confirm();
        store.step();
        assert_eq!(all_bodies(&store).iter().map(Vec::len).sum::<usize>(), 32);
    }
}

/// Notes how far the log is.
#[derive(Debug, Default)]
struct Ends {
    written: AtomicI64,
    flushed: AtomicI64,
}

impl LogListener for Ends {
    fn log_changed(&self, written: i64, flushed: i64) {
        self.written.store(written, Ordering::Release);
        self.flushed.store(flushed, Ordering::Release);
    }
}

#[test]
fn listeners_are_told_of_growth_and_flushes() {
    let (ours, theirs) = (SimDisk::new(1), SimDisk::new(2));
    let (master, slave) = (open_master(&ours), open_slave(&theirs, FLUSHES[1], false));
    for (store, work) in [(&master, true), (&slave, false)] {
        let ends = Arc::new(Ends::default());
        store.add_log_listener(Arc::<Ends>::clone(&ends));
        if work {
            put_some(store, 0..5);
        } else {
            ship(&master, store, 100, master.log_end()).unwrap();
        }
        assert_eq!(ends.written.load(Ordering::Acquire), store.log_end());
        store.step();
        assert_eq!(ends.flushed.load(Ordering::Acquire), store.log_end());
    }
}

#[test]
fn threads_of_their_own_ship_confirm_and_answer() {
    for flush in FLUSHES {
        let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let master = MessageStore::open(config(ours.path(), flush)).unwrap().0;
        let slave = StoreConfig { is_slave: true, ..config(theirs.path(), flush) };
        let slave = MessageStore::open(slave).unwrap().0;
        master.hold_confirm();
        std::thread::scope(|scope| {
            let senders: Vec<_> = (0..4)
                .map(|queue| {
                    let master = &master;
                    scope.spawn(move || {
                        for number in 0..200_u32 {
                            let body = number.to_be_bytes();
                            let put = master.put(&message("t", queue, &body)).wait().unwrap();
                            assert_eq!(put.queue_offset, i64::from(number));
                        }
                    })
                })
                .collect();
            while senders.iter().any(|sender| !sender.is_finished()) {
                ship(&master, &slave, 10_000, master.log_end()).unwrap();
                master.set_confirm(slave.log_end());
                std::thread::yield_now();
            }
        });
        for queue in 0..4 {
            while slave.max_offset("t", queue) < 200 {
                std::thread::yield_now();
            }
            assert_eq!(bodies(&slave, "t", queue), bodies(&master, "t", queue));
        }
        slave.become_master().unwrap();
        assert_eq!(slave.put(&message("t", 0, b"x")).wait().unwrap().queue_offset, 200);
        slave.shutdown().unwrap();
        master.shutdown().unwrap();
    }
}
