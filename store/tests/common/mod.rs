//! What the tests of the store share.
// Each test file uses some of this; an unwrap that fails is a failed test.
#![allow(dead_code, clippy::unwrap_used)]

use std::path::Path;

use bytes::Bytes;
use protocol::message::Message;
use protocol::message_codec;
use store::{AllMessages, FlushDiskType, GetRequest, GetResult, MessageStore, StoreConfig};

/// A configuration with small files.
pub(crate) fn config(root: &Path, flush: FlushDiskType) -> StoreConfig {
    let mut config = StoreConfig::new(root);
    config.mapped_file_size_commit_log = 64 << 10;
    config.mapped_file_size_consume_queue = 20 * 50;
    config.max_message_size = 32 << 10;
    config.max_hash_slot_num = 100;
    config.max_index_num = 1_000;
    config.flush_disk_type = flush;
    config
}

/// A configuration with tiny files, for a simulated disk.
pub(crate) fn sim_config(flush: FlushDiskType) -> StoreConfig {
    let mut config = config(Path::new("/store"), flush);
    config.mapped_file_size_commit_log = 8 << 10;
    config.mapped_file_size_consume_queue = 20 * 8;
    config.max_message_size = 6 << 10;
    config.max_hash_slot_num = 11;
    config.max_index_num = 30;
    config
}

/// A message with this body.
pub(crate) fn message<'a>(topic: &'a str, queue_id: i32, body: &'a [u8]) -> Message<'a> {
    Message {
        topic,
        queue_id,
        flag: 0,
        sys_flag: 0,
        born_timestamp: 1,
        born_host: "10.0.0.1:50000".parse().unwrap(),
        store_host: "10.0.0.2:10911".parse().unwrap(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        properties: "TAGS\u{1}TagA\u{2}KEYS\u{1}k\u{2}",
    }
}

/// Up to `max_messages` messages of a queue.
pub(crate) fn get(
    store: &MessageStore,
    topic: &str,
    queue: i32,
    offset: i64,
    max: usize,
) -> GetResult {
    let request =
        GetRequest { topic, queue_id: queue, offset, max_messages: max, max_bytes: usize::MAX };
    store.get(&request, &AllMessages).unwrap()
}

/// All bodies of a queue, with a check that offsets are consecutive and records are whole.
pub(crate) fn bodies(store: &MessageStore, topic: &str, queue: i32) -> Vec<Bytes> {
    let mut bodies = Vec::new();
    let mut offset = store.min_offset(topic, queue);
    while offset < store.max_offset(topic, queue) {
        let result = get(store, topic, queue, offset, 32);
        assert_eq!(result.records().count(), result.message_count);
        assert!(result.message_count > 0, "{topic}/{queue} {offset}: {:?}", result.status);
        for record in result.records() {
            let view = message_codec::decode_record(&record).unwrap();
            view.check_body().unwrap();
            assert_eq!((view.topic, view.queue_id, view.queue_offset), (topic, queue, offset));
            let body = record.slice_ref(view.body);
            bodies.push(body);
            offset += 1;
        }
        assert_eq!(result.next_begin_offset, offset);
    }
    bodies
}

/// A clock that stands still until it is set.
#[derive(Debug)]
pub(crate) struct TestClock(std::sync::atomic::AtomicI64);

impl TestClock {
    pub(crate) fn new(now_ms: i64) -> Self {
        Self(now_ms.into())
    }

    pub(crate) fn set(&self, now_ms: i64) {
        self.0.store(now_ms, std::sync::atomic::Ordering::Release);
    }
}

impl store::clock::Clock for TestClock {
    fn now_ms(&self) -> i64 {
        self.0.load(std::sync::atomic::Ordering::Acquire)
    }
}
