//! Many queues: what they take of open files, mappings and memory is bounded. The same at full size
//! is `make start-time`.
#![allow(clippy::unwrap_used)]

mod common;

use common::{bodies, config, message};
use store::{FlushDiskType, MessageStore, PutFuture};

const TOPICS: usize = 120;
const QUEUES: i32 = 10;
const ROUNDS: usize = 3;
const OPEN_FILES_MAX: usize = 64;
/// Commit log files, the small files, threads' and the test's own.
const OTHER_FILES_MAX: usize = 60;
/// A stack and its guard for each thread, and the commit log.
const MAPPINGS_MAX: usize = 120;
/// For each queue, beside 32 MiB for all.
const QUEUE_BYTES_MAX: usize = 4 << 10;

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

fn anonymous_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

struct Before {
    files: usize,
    mappings: usize,
    bytes: usize,
}

impl Before {
    fn check(&self, what: &str) {
        let files = open_files().saturating_sub(self.files);
        assert!(files <= OPEN_FILES_MAX + OTHER_FILES_MAX, "{what}: {files} open files");
        let mappings = mappings().saturating_sub(self.mappings);
        assert!(mappings <= MAPPINGS_MAX, "{what}: {mappings} mappings");
        let bytes = anonymous_bytes().saturating_sub(self.bytes);
        let limit = (32 << 20) + TOPICS * usize::try_from(QUEUES).unwrap() * QUEUE_BYTES_MAX;
        assert!(bytes <= limit, "{what}: {bytes} bytes");
    }
}

#[test]
fn many_queues_take_few_files_mappings_and_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), FlushDiskType::AsyncFlush);
    config.mapped_file_size_commit_log = 1 << 20;
    config.open_files_max = OPEN_FILES_MAX;
    let open = || MessageStore::open(config.clone()).unwrap();
    let before = Before { files: open_files(), mappings: mappings(), bytes: anonymous_bytes() };
    let (store, _) = open();
    for _ in 0..ROUNDS {
        let mut sent: Vec<PutFuture> = Vec::new();
        for topic in 0..TOPICS {
            let topic = format!("topic-{topic}");
            sent.extend((0..QUEUES).map(|queue| store.put(&message(&topic, queue, b"body"))));
        }
        sent.into_iter().for_each(|future| drop(future.wait().unwrap()));
    }
    before.check("after writing");
    store.shutdown().unwrap();
    drop(store);
    // Cleanly, as after a crash, and with all queues to be built.
    for damage in ["none", "abort", "consumequeue"] {
        match damage {
            "abort" => {
                std::fs::write(dir.path().join("abort"), "1").unwrap();
                std::fs::remove_file(dir.path().join("checkpoint")).unwrap();
            }
            "consumequeue" => std::fs::remove_dir_all(dir.path().join(damage)).unwrap(),
            _ => {}
        }
        let (store, report) = open();
        assert_eq!(report.was_clean, damage != "abort");
        before.check(damage);
        for topic in [0, TOPICS / 2, TOPICS - 1] {
            let topic = format!("topic-{topic}");
            assert_eq!(store.queue_ids(&topic).len(), usize::try_from(QUEUES).unwrap());
            assert_eq!(bodies(&store, &topic, QUEUES - 1).len(), ROUNDS);
        }
        store.shutdown().unwrap();
    }
}
