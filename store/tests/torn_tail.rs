//! Every way to damage the tail of a log: exactly the longest valid prefix is recovered.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{TestClock, bodies, config, message};
use store::sim_disk::SimDisk;
use store::{FlushDiskType, MessageStore, RecoveryReport, StoreConfig, StoreError, Threads};

type Image = BTreeMap<PathBuf, Vec<u8>>;

const SEGMENT: usize = 16 << 10;
/// Messages before the tail: they fill more than one file.
const BEFORE: i64 = 40;
const TAIL: i64 = 3;

fn sim_config() -> StoreConfig {
    let mut config = config(Path::new("/store"), FlushDiskType::SyncFlush);
    config.mapped_file_size_commit_log = SEGMENT as u64;
    config.mapped_file_size_consume_queue = 20 * 16;
    config.max_message_size = 4 << 10;
    config
}

fn try_open(disk: &SimDisk) -> Result<(MessageStore, RecoveryReport), StoreError> {
    let clock = Arc::new(TestClock::new(1_700_000_000_000));
    MessageStore::open_on(sim_config(), Arc::new(disk.clone()), clock, Threads::Stepped)
}

fn open(disk: &SimDisk) -> (MessageStore, RecoveryReport) {
    try_open(disk).unwrap()
}

/// A store that was killed: a checkpoint, then three more messages.
struct Killed {
    image: Image,
    /// Where each message of the tail begins, and the end.
    boundaries: Vec<usize>,
}

fn body(number: i64) -> Vec<u8> {
    let mut body = vec![b'x'; 600 + usize::try_from(number).unwrap()];
    body[..8].copy_from_slice(&number.to_be_bytes());
    body
}

fn put(store: &MessageStore, number: i64) -> usize {
    let body = body(number);
    let future = store.put(&message("t", 0, &body));
    store.step();
    let result = future.wait().unwrap();
    assert_eq!(result.queue_offset, number);
    usize::try_from(result.physical_offset).unwrap()
}

fn killed() -> Killed {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk);
    for number in 0..BEFORE {
        put(&store, number);
    }
    store.flush().unwrap();
    let mut boundaries: Vec<usize> =
        (BEFORE..BEFORE + TAIL).map(|number| put(&store, number)).collect();
    boundaries.push(usize::try_from(store.stats().log_max_offset).unwrap());
    let image = disk.image();
    // The tail lies in one file.
    assert_eq!(boundaries[0] / SEGMENT, (boundaries[3] - 1) / SEGMENT);
    assert!(boundaries[0] > SEGMENT);
    let _dead = disk.crash();
    Killed { image, boundaries }
}

impl Killed {
    fn path(&self) -> PathBuf {
        let start = self.boundaries[0] / SEGMENT * SEGMENT;
        PathBuf::from(format!("/store/commitlog/{start:020}"))
    }

    /// The last file, and where the tail lies in it.
    fn parts(&self) -> (Vec<u8>, Vec<usize>) {
        let start = self.boundaries[0] / SEGMENT * SEGMENT;
        let boundaries = self.boundaries.iter().map(|boundary| boundary - start).collect();
        (self.image[&self.path()].clone(), boundaries)
    }

    /// Opens the store with another last file and returns how many messages it has; they are the
    /// first ones, and the next message gets the next offset.
    fn recover(&self, last_file: Vec<u8>) -> i64 {
        let mut image = self.image.clone();
        image.insert(self.path(), last_file);
        check(&SimDisk::from_image(&image))
    }
}

/// Checks a damaged store, recovers it a second time, and goes on with it.
fn check(disk: &SimDisk) -> i64 {
    let (store, report) = open(disk);
    let count = store.max_offset("t", 0);
    let stored = bodies(&store, "t", 0);
    assert_eq!(stored.len(), usize::try_from(count).unwrap());
    for (number, stored) in (0..).zip(stored) {
        assert_eq!(stored, body(number));
    }
    drop(store);
    let (store, again) = open(disk);
    assert_eq!((again.log_end, again.cut_bytes), (report.log_end, 0));
    assert_eq!(store.max_offset("t", 0), count);
    put(&store, count);
    assert_eq!(bodies(&store, "t", 0).len(), usize::try_from(count).unwrap() + 1);
    count
}

#[test]
fn every_cut() {
    let killed = killed();
    let (file, tail) = killed.parts();
    for cut in tail[0]..=tail[3] {
        let expected = BEFORE + tail[1..].iter().filter(|end| **end <= cut).count() as i64;
        let mut zeroed = file.clone();
        zeroed[cut..].fill(0);
        assert_eq!(killed.recover(zeroed), expected, "zeros from {cut}");
        if cut % 64 == 0 {
            assert_eq!(killed.recover(file[..cut].to_vec()), expected, "cut at {cut}");
        }
    }
}

#[test]
fn every_flipped_byte() {
    let killed = killed();
    let (file, tail) = killed.parts();
    // Fields without a checksum may change without notice; all bytes of a body are covered.
    let mut caught = 0;
    for position in tail[0]..tail[3] {
        let mut damaged = file.clone();
        damaged[position] ^= 0xA5;
        let mut image = killed.image.clone();
        image.insert(killed.path(), damaged);
        let disk = SimDisk::from_image(&image);
        let (store, report) = open(&disk);
        let before = tail[1..].iter().filter(|end| **end <= position).count() as i64;
        let count = store.max_offset("t", 0);
        if report.cut_bytes > 0 {
            caught += 1;
            assert_eq!(count, BEFORE + before, "{position}");
        }
        assert!((BEFORE + before..=BEFORE + TAIL).contains(&count), "{position}: {count}");
    }
    assert!(caught > 3 * 600, "{caught}");
}

#[test]
fn every_zeroed_sector() {
    let killed = killed();
    let (file, tail) = killed.parts();
    for sector in tail[0] / 512..=(tail[3] - 1) / 512 {
        let range = (sector * 512).max(tail[0])..(sector * 512 + 512).min(tail[3]);
        let mut damaged = file.clone();
        damaged[range.clone()].fill(0);
        let is_same = damaged == file;
        let whole = |end: &&usize| is_same || **end <= range.start;
        let expected = BEFORE + tail[1..].iter().filter(whole).count() as i64;
        assert_eq!(killed.recover(damaged), expected, "{range:?}");
    }
}

#[test]
fn stale_records_behind_the_tail_do_not_come_back() {
    let killed = killed();
    let (file, tail) = killed.parts();
    // The second record is damaged; the third is whole and would fit behind a new second one.
    let mut damaged = file;
    damaged[tail[1] + 200] ^= 1;
    let mut image = killed.image.clone();
    image.insert(killed.path(), damaged);
    let disk = SimDisk::from_image(&image);
    let (store, report) = open(&disk);
    assert_eq!(report.cut_records, 1);
    let saved = report.cut_saved_to.unwrap();
    assert!(disk.image()[&saved].len() > 600);
    assert_eq!(store.max_offset("t", 0), BEFORE + 1);
    // As long as the damaged one was.
    put(&store, BEFORE + 1);
    let disk = disk.crash();
    let (store, report) = open(&disk);
    assert_eq!(report.cut_bytes, 0);
    assert_eq!(store.max_offset("t", 0), BEFORE + 2);
}

#[test]
fn damage_below_the_checkpoint_is_refused_unless_it_is_asked_for() {
    let killed = killed();
    let first = PathBuf::from("/store/commitlog").join(format!("{SEGMENT:020}"));
    let mut image = killed.image.clone();
    image.get_mut(&first).unwrap()[4] ^= 0xFF;
    let disk = SimDisk::from_image(&image);
    let error = try_open(&disk).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("recoveryCutDamagedLog"), "{error}");
    // Nothing has been changed by the attempt.
    let (before, after) = (&image[&first], &disk.image()[&first]);
    assert_eq!(before, after);
    let mut config = sim_config();
    config.cut_damaged_log = true;
    let clock = Arc::new(TestClock::new(1_700_000_000_000));
    let (store, report) =
        MessageStore::open_on(config, Arc::new(disk.clone()), clock, Threads::Stepped).unwrap();
    assert_eq!(report.log_end, SEGMENT as i64);
    assert!(report.cut_records > 10 && report.cut_saved_to.is_some());
    let count = store.max_offset("t", 0);
    assert!((10..BEFORE).contains(&count));
    put(&store, count);
    assert_eq!(bodies(&store, "t", 0).len(), usize::try_from(count).unwrap() + 1);
}

#[test]
fn derived_files_are_built_anew() {
    let killed = killed();
    type Damage = fn(&mut Image);
    let damage: [(&str, Damage); 6] = [
        ("no queues", |image| image.retain(|path, _| !path.starts_with("/store/consumequeue"))),
        ("no checkpoint", |image| drop(image.remove(Path::new("/store/checkpoint")))),
        ("garbage in the checkpoint", |image| {
            image.get_mut(Path::new("/store/checkpoint")).unwrap()[..64].fill(0x5A);
        }),
        ("last queue file lost", |image| {
            let last = image.keys().rfind(|path| path.starts_with("/store/consumequeue")).cloned();
            image.remove(&last.unwrap());
        }),
        ("short queue file", |image| {
            let mut files = image.iter_mut();
            let file = files.find(|(path, _)| path.starts_with("/store/consumequeue"));
            file.unwrap().1.truncate(33);
        }),
        ("garbage in a queue file", |image| {
            let mut files = image.iter_mut();
            let file = files.find(|(path, _)| path.starts_with("/store/consumequeue"));
            file.unwrap().1[60..100].fill(0x5A);
        }),
    ];
    for clean in [false, true] {
        for (name, damage) in &damage {
            let mut image = killed.image.clone();
            if clean {
                let disk = SimDisk::from_image(&image);
                let (store, _) = open(&disk);
                store.shutdown().unwrap();
                image = disk.image();
            }
            damage(&mut image);
            assert_eq!(check(&SimDisk::from_image(&image)), BEFORE + TAIL, "{name} {clean}");
        }
    }
}
