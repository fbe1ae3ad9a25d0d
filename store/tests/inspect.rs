//! A look at a store finds what is wrong, says what a start then really does, and changes nothing.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::{config, message};
use protocol::message_codec;
use store::delay_level::DelayLevels;
use store::inspect::{
    ConfigFileState, ConfigFinding, Found, InspectError, Inspection, Place, Reader, Start, Verdict,
    inspect,
};
use store::{FlushDiskType, MessageStore};
use tempfile::TempDir;

const MESSAGES: i32 = 600;
const SEGMENT: u64 = 64 << 10;

fn place(root: &Path) -> Place {
    let config = config(root, FlushDiskType::AsyncFlush);
    Place {
        root: root.to_owned(),
        commit_log: None,
        message_delay_level: DelayLevels::default(),
        max_hash_slot_num: config.max_hash_slot_num,
        max_index_num: config.max_index_num,
    }
}

/// A store of several files in two topics, stopped in good order.
fn filled() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = MessageStore::open(config(dir.path(), FlushDiskType::AsyncFlush)).unwrap();
    for number in 0..MESSAGES {
        let body = [b'a' + (number % 26) as u8; 300];
        let topic = if number % 3 == 0 { "a" } else { "b" };
        store.put(&message(topic, number % 2, &body)).wait().unwrap();
    }
    store.config_file("topics.json").store(b"{\"a\":{0:1}}").unwrap();
    store.config_file("topics.json").store(b"{\"a\":{0:2}}").unwrap();
    store.shutdown().unwrap();
    dir
}

/// Every file and directory below `dir`, with content and time of change.
fn snapshot(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let mut all = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        let modified = std::fs::metadata(&dir).unwrap().modified().unwrap();
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
            if path.is_dir() {
                dirs.push(path);
            } else {
                all.insert(path.clone(), (std::fs::read(&path).unwrap(), modified));
            }
        }
        all.insert(dir, (Vec::new(), modified));
    }
    all
}

fn look(dir: &TempDir) -> Inspection {
    let before = snapshot(dir.path());
    let inspection = inspect(&place(dir.path())).unwrap();
    assert!(snapshot(dir.path()) == before, "looking must not change anything");
    inspection
}

/// Opens the store, and compares what happens with what was foretold.
fn check_start(dir: &TempDir, inspection: &Inspection) {
    let opened = MessageStore::open(config(dir.path(), FlushDiskType::AsyncFlush));
    match (&inspection.start, opened) {
        (Start::Refused(reason), Err(error)) => assert_eq!(*reason, error.to_string()),
        (Start::Succeeds { rebuilt_queues, cut_records, .. }, Ok((store, report))) => {
            assert_eq!(*rebuilt_queues, report.rebuilt_queues);
            assert_eq!(*cut_records, report.cut_records);
            let Start::Succeeds { log_end, cut_bytes, checked_from, .. } = inspection.start else {
                unreachable!("it is one");
            };
            assert_eq!(log_end, report.log_end);
            assert_eq!((cut_bytes, checked_from), (report.cut_bytes, report.checked_from));
            store.shutdown().unwrap();
            drop(store);
            // The store leaves the configuration to the broker, which writes it anew in time.
            let is_good = |file: &ConfigFinding| file.state == ConfigFileState::Good;
            if inspection.verdict != Verdict::Damaged && inspection.config_files.iter().all(is_good)
            {
                assert_eq!(look(dir).verdict, Verdict::Sound);
            }
        }
        (start, opened) => panic!("{start:?}, but {opened:?}"),
    }
}

fn segment(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("commitlog/{:020}", number * SEGMENT))
}

fn edit(path: &Path, work: impl FnOnce(&mut Vec<u8>)) {
    let mut content = std::fs::read(path).unwrap();
    work(&mut content);
    std::fs::write(path, content).unwrap();
}

/// Flips a bit in the body of the record at or behind half of a file.
fn flip_body(dir: &Path, number: u64) {
    let reader = Reader::open(&place(dir), false).unwrap();
    let half = (number * SEGMENT + SEGMENT / 2).cast_signed();
    let next = match reader.at(half).unwrap() {
        Found::Gap { next } => next,
        Found::Record(_) => half,
        Found::End => panic!("no record behind {half}"),
    };
    let at = usize::try_from(next - (number * SEGMENT).cast_signed()).unwrap() + 100;
    edit(&segment(dir, number), |content| content[at] ^= 1);
}

struct Case {
    name: &'static str,
    damage: fn(&Path),
    verdict: Verdict,
    finds: fn(&Inspection) -> bool,
}

fn abort(dir: &Path) {
    std::fs::write(dir.join("abort"), "1").unwrap();
}

const CASES: [Case; 14] = [
    Case {
        name: "nothing",
        damage: |_| {},
        verdict: Verdict::Sound,
        finds: |found| {
            found.was_clean
                && found.log.as_ref().is_some_and(|log| log.records == 600 && log.files == 4)
                && (found.topics, found.queues) == (2, 4)
                && found.config_files.len() == 1
        },
    },
    Case {
        name: "a crash with nothing left to do",
        damage: abort,
        verdict: Verdict::Sound,
        finds: |found| !found.was_clean,
    },
    Case {
        name: "garbage behind the end, after a crash",
        damage: |dir| {
            abort(dir);
            edit(&segment(dir, 3), |content| content.last_mut().unwrap().clone_from(&1));
        },
        verdict: Verdict::Repairable,
        finds: |found| {
            let Start::Succeeds { cut_bytes, cut_records, .. } = found.start else { return false };
            cut_bytes > 0 && cut_records == 0
        },
    },
    Case {
        name: "a lost queue",
        damage: |dir| std::fs::remove_dir_all(dir.join("consumequeue/b/1")).unwrap(),
        verdict: Verdict::Repairable,
        finds: |found| {
            let [queue] = &found.bad_queues[..] else { return false };
            queue.is_repaired && queue.lacks == 200 && (&*queue.topic, queue.queue) == ("b", 1)
        },
    },
    Case {
        name: "a damaged unit",
        damage: |dir| {
            let path = dir.join("consumequeue/a/0/00000000000000000000");
            edit(&path, |content| content[27] ^= 4);
        },
        verdict: Verdict::Repairable,
        finds: |found| found.bad_queues.len() == 1 && found.bad_queues[0].contradicts == 1,
    },
    Case {
        name: "a queue that is longer than the log",
        damage: |dir| {
            std::fs::remove_file(segment(dir, 3)).unwrap();
        },
        verdict: Verdict::Damaged,
        finds: |found| {
            matches!(&found.start, Start::Refused(reason) if reason.contains("is damaged"))
                && found.bad_queues.iter().any(|queue| queue.surplus > 0)
        },
    },
    Case {
        name: "a damaged configuration file",
        damage: |dir| std::fs::write(dir.join("config/topics.json"), "{").unwrap(),
        verdict: Verdict::Repairable,
        finds: |found| matches!(found.config_files[0].state, ConfigFileState::Backup(_)),
    },
    Case {
        name: "a missing configuration file",
        damage: |dir| std::fs::remove_file(dir.join("config/topics.json")).unwrap(),
        verdict: Verdict::Repairable,
        finds: |found| matches!(found.config_files[0].state, ConfigFileState::Backup(_)),
    },
    Case {
        name: "a configuration file damaged with its backup",
        damage: |dir| {
            for name in ["topics.json", "topics.json.bak"] {
                std::fs::write(dir.join("config").join(name), "").unwrap();
            }
        },
        verdict: Verdict::Damaged,
        finds: |found| matches!(found.config_files[0].state, ConfigFileState::Damaged(_)),
    },
    Case {
        name: "a flipped bit in old data",
        damage: |dir| flip_body(dir, 1),
        verdict: Verdict::Damaged,
        finds: |found| {
            let log = found.log.as_ref().unwrap();
            let [damage] = &log.damages[..] else { return false };
            damage.reason.contains("checksum")
                && log.records == 599
                && matches!(found.start, Start::Succeeds { cut_bytes: 0, .. })
        },
    },
    Case {
        name: "a flipped bit behind what was surely stored",
        damage: |dir| {
            abort(dir);
            std::fs::remove_file(dir.join("checkpoint")).unwrap();
            flip_body(dir, 1);
        },
        verdict: Verdict::Repairable,
        finds: |found| {
            let Start::Succeeds { cut_records, .. } = found.start else { return false };
            cut_records > 300
        },
    },
    Case {
        name: "a missing file",
        damage: |dir| std::fs::remove_file(segment(dir, 2)).unwrap(),
        verdict: Verdict::Damaged,
        finds: |found| {
            found.log.is_none()
                && matches!(&found.start, Start::Refused(reason) if reason.contains("missing"))
        },
    },
    Case {
        name: "RocksDB",
        damage: |dir| std::fs::write(dir.join("consumequeue/CURRENT"), "").unwrap(),
        verdict: Verdict::Damaged,
        finds: |found| matches!(&found.start, Start::Refused(reason) if reason.contains("RocksDB")),
    },
    Case {
        name: "a last file that was not finished",
        damage: |dir| std::fs::write(segment(dir, 4), [0; 10]).unwrap(),
        verdict: Verdict::Repairable,
        finds: |found| !found.changes.is_empty(),
    },
];

#[test]
fn what_is_wrong_is_found_and_a_start_does_what_was_said() {
    for Case { name, damage, verdict, finds } in CASES {
        let dir = filled();
        damage(dir.path());
        let inspection = look(&dir);
        assert_eq!(inspection.verdict, verdict, "{name}: {inspection:#?}");
        assert!(finds(&inspection), "{name}: {inspection:#?}");
        check_start(&dir, &inspection);
    }
}

#[test]
fn a_store_in_use_and_no_store_are_refused() {
    let dir = filled();
    let (store, _) = MessageStore::open(config(dir.path(), FlushDiskType::AsyncFlush)).unwrap();
    let error = inspect(&place(dir.path())).unwrap_err();
    assert!(matches!(error, InspectError::InUse { .. }), "{error}");
    assert!(matches!(Reader::open(&place(dir.path()), false), Err(InspectError::InUse { .. })));
    assert!(Reader::open(&place(dir.path()), true).is_ok());
    // The store still has its lock.
    assert!(MessageStore::open(config(dir.path(), FlushDiskType::AsyncFlush)).is_err());
    drop(store);
    let error = inspect(&place(&dir.path().join("commitlog"))).unwrap_err();
    assert!(matches!(error, InspectError::NoStore { .. }), "{error}");
}

#[test]
fn records_are_read_one_by_one() {
    let dir = filled();
    let reader = Reader::open(&place(dir.path()), false).unwrap();
    let mut offset = reader.min_offset();
    let mut count = 0;
    while let Found::Record(record) = reader.at(offset).unwrap() {
        let view = message_codec::decode_record(&record).unwrap();
        offset = view.physical_offset + i64::try_from(record.len()).unwrap();
        count += 1;
    }
    assert_eq!((count, reader.at(offset).unwrap()), (MESSAGES, Found::End));
    assert!(matches!(reader.at(1).unwrap(), Found::Gap { next } if next > 1));
    assert_eq!(reader.queue_range("b", 1).unwrap(), Some((0, 200)));
    assert_eq!(reader.queue_range("b", 7).unwrap(), None);
    for queue_offset in [0, 199] {
        let place = reader.physical_offset("b", 1, queue_offset).unwrap().unwrap();
        let Found::Record(record) = reader.at(place).unwrap() else { panic!("no record") };
        let view = message_codec::decode_record(&record).unwrap();
        assert_eq!((view.topic, view.queue_id, view.queue_offset), ("b", 1, queue_offset));
    }
    assert_eq!(reader.physical_offset("b", 1, 200).unwrap(), None);
}
