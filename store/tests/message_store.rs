//! The store as its users see it: put, get, questions, restart.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use common::{bodies, config, get, message};
use protocol::{message_codec, sys_flag, tag};
use store::{
    Boundary, DispatchRequest, Dispatcher, FlushDiskType, GetRequest, GetStatus, IllegalMessage,
    MessageStore, PutError, Records, StoreError, TagFilter,
};

/// Tells a test of each message that can be read.
struct Notice(SyncSender<(String, i32, i64, i64)>);

impl Dispatcher for Notice {
    fn dispatch(&self, requests: &[DispatchRequest], records: &Records) {
        for request in requests {
            let record = records.get(request).unwrap();
            let view = message_codec::decode_record(&record).unwrap();
            assert_eq!(view.queue_offset, request.queue_offset);
            let topic = request.topic().to_owned();
            let place = (topic, request.queue_id(), request.queue_offset, request.tags_code);
            self.0.send(place).unwrap();
        }
    }
}

#[test]
fn messages_are_numbered_told_of_and_read_after_a_restart() {
    for flush in [FlushDiskType::SyncFlush, FlushDiskType::AsyncFlush] {
        let dir = tempfile::tempdir().unwrap();
        let (store, report) = MessageStore::open(config(dir.path(), flush)).unwrap();
        assert_eq!((report.log_min, report.log_end), (0, 0));
        let (sender, notices) = sync_channel(1000);
        store.add_dispatcher(Arc::new(Notice(sender)));
        let texts: Vec<String> = (0..300).map(|number| format!("body {number}")).collect();
        let puts: Vec<_> = texts
            .iter()
            .enumerate()
            .map(|(number, text)| {
                let queue = i32::try_from(number % 3).unwrap();
                store.put(&message("topic", queue, text.as_bytes()))
            })
            .collect();
        for (number, put) in puts.into_iter().enumerate() {
            let result = put.wait().unwrap();
            assert_eq!(result.queue_offset, i64::try_from(number / 3).unwrap());
            let record = store.look_up(result.physical_offset).unwrap().unwrap();
            assert_eq!(record.len(), result.record_bytes);
        }
        for number in 0..300_i32 {
            let notice = notices.recv().unwrap();
            let code = tag::tags_code(Some("TagA"));
            assert_eq!(notice, ("topic".to_owned(), number % 3, i64::from(number / 3), code));
        }
        let check = |store: &MessageStore| {
            for queue in 0..3 {
                assert_eq!(store.max_offset("topic", queue), 100);
                let expected: Vec<&String> =
                    texts.iter().skip(usize::try_from(queue).unwrap()).step_by(3).collect();
                assert_eq!(bodies(store, "topic", queue), expected);
            }
        };
        check(&store);
        store.shutdown().unwrap();
        assert!(matches!(
            store.put(&message("topic", 0, b"late")).wait(),
            Err(PutError::NotWritable(_))
        ));
        drop(store);

        let (store, report) = MessageStore::open(config(dir.path(), flush)).unwrap();
        assert!(report.was_clean);
        assert_eq!((report.cut_bytes, report.checked_records), (0, 0));
        assert!(report.rebuilt_queues.is_empty());
        check(&store);
        assert_eq!(store.put(&message("topic", 0, b"next")).wait().unwrap().queue_offset, 100);
    }
}

#[test]
fn the_answers_of_a_read() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = MessageStore::open(config(dir.path(), FlushDiskType::SyncFlush)).unwrap();
    let (sender, notices) = sync_channel(1000);
    store.add_dispatcher(Arc::new(Notice(sender)));
    for number in 0..60_u8 {
        let tag = if number % 10 == 0 { "TAGS\u{1}ten\u{2}" } else { "" };
        let body = [number; 2000];
        let put =
            store.put(&protocol::message::Message { properties: tag, ..message("t", 0, &body) });
        put.wait().unwrap();
        notices.recv().unwrap();
    }
    let table = [
        (-1, GetStatus::OffsetTooSmall, 0, 0),
        (0, GetStatus::Found, 32, 32),
        (40, GetStatus::Found, 60, 20),
        (60, GetStatus::OffsetOverflowOne, 60, 0),
        (61, GetStatus::OffsetOverflowBadly, 60, 0),
        (i64::MAX, GetStatus::OffsetOverflowBadly, 60, 0),
    ];
    for (offset, status, next, count) in table {
        let result = get(&store, "t", 0, offset, 100);
        let found = (result.status, result.next_begin_offset, result.message_count);
        assert_eq!(found, (status, next, count), "{offset}");
        assert_eq!((result.min_offset, result.max_offset), (0, 60));
    }
    assert_eq!(get(&store, "t", 1, 0, 1).status, GetStatus::NoMatchedLogicQueue);
    assert_eq!(get(&store, "none", 0, 0, 1).status, GetStatus::NoMatchedLogicQueue);

    let request =
        GetRequest { topic: "t", queue_id: 0, offset: 1, max_messages: 3, max_bytes: 1 << 20 };
    let result = store.get(&request, &TagFilter::new([tag::java_hash("ten")])).unwrap();
    assert_eq!((result.status, result.message_count), (GetStatus::Found, 3));
    assert_eq!(result.next_begin_offset, 40);
    let result = store.get(&request, &TagFilter::new([1])).unwrap();
    assert_eq!((result.status, result.next_begin_offset), (GetStatus::NoMatchedMessage, 60));
    // One message is returned however small the limit.
    let result = store.get(&GetRequest { max_bytes: 1, ..request }, &store::AllMessages).unwrap();
    assert_eq!((result.message_count, result.next_begin_offset), (1, 2));
    // Messages that lie side by side are one piece.
    assert!(get(&store, "t", 0, 0, 32).segments.len() <= 2);
}

#[test]
fn offsets_by_time() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(common::TestClock::new(1_000_000));
    let open = store::Threads::Stepped;
    let (store, _) = MessageStore::open_on(
        config(dir.path(), FlushDiskType::SyncFlush),
        Arc::new(store::disk::RealDisk),
        Arc::clone(&clock) as Arc<dyn store::clock::Clock>,
        open,
    )
    .unwrap();
    assert_eq!(store.search_offset("t", 0, 5, Boundary::Lower).unwrap(), 0);
    assert_eq!(store.earliest_store_time("t", 0).unwrap(), None);
    for time in [1_000_000, 1_000_010, 1_000_010, 1_000_010, 1_000_020] {
        clock.set(time);
        let put = store.put(&message("t", 0, b"x"));
        store.step();
        assert_eq!(put.wait().unwrap().store_timestamp, time);
    }
    let table = [
        (0, 0, 0),
        (1_000_000, 0, 0),
        (1_000_005, 1, 0),
        (1_000_010, 1, 3),
        (1_000_015, 4, 3),
        (1_000_020, 4, 4),
        (1_000_021, 5, 4),
    ];
    for (time, lower, upper) in table {
        assert_eq!(store.search_offset("t", 0, time, Boundary::Lower).unwrap(), lower, "{time}");
        assert_eq!(store.search_offset("t", 0, time, Boundary::Upper).unwrap(), upper, "{time}");
    }
    assert_eq!(store.earliest_store_time("t", 0).unwrap(), Some(1_000_000));
    assert_eq!(store.store_time("t", 0, 4).unwrap(), Some(1_000_020));
    assert_eq!(store.store_time("t", 0, 5).unwrap(), None);
    // A clock that is set back a little does not make store times go back.
    clock.set(1_000_000);
    let put = store.put(&message("t", 0, b"x"));
    store.step();
    assert_eq!(put.wait().unwrap().store_timestamp, 1_000_020);
}

#[test]
fn a_batch_stays_together() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = MessageStore::open(config(dir.path(), FlushDiskType::SyncFlush)).unwrap();
    store.put(&message("t", 0, &[1; 20_000])).wait().unwrap();
    let texts: Vec<[u8; 5000]> = (0..6).map(|number| [number; 5000]).collect();
    let batch: Vec<_> = texts.iter().map(|text| message("t", 0, text)).collect();
    let first = store.put_batch(&batch).wait().unwrap();
    let second = store.put_batch(&batch).wait().unwrap();
    assert_eq!((first.queue_offset, second.queue_offset), (1, 7));
    // The second batch does not fit the first file and begins the next.
    assert_eq!(second.physical_offset, 64 << 10);
    let offsets: Vec<i64> = second.physical_offsets().collect();
    assert_eq!(offsets.len(), 6);
    for (index, offset) in offsets.into_iter().enumerate() {
        let record = store.look_up(offset).unwrap().unwrap();
        let view = message_codec::decode_record(&record).unwrap();
        assert_eq!(view.body, texts[index]);
        assert_eq!(view.queue_offset, 7 + i64::try_from(index).unwrap());
    }
    let mixed = [message("t", 0, b"a"), message("t", 1, b"b")];
    let error = store.put_batch(&mixed).wait().unwrap_err();
    assert_eq!(error, PutError::Illegal(IllegalMessage::MixedBatch));
    let error = store.put_batch(&[]).wait().unwrap_err();
    assert_eq!(error, PutError::Illegal(IllegalMessage::EmptyBatch));
}

#[test]
fn illegal_messages_are_refused_with_the_rule() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = MessageStore::open(config(dir.path(), FlushDiskType::AsyncFlush)).unwrap();
    let refuse = |message: &protocol::message::Message<'_>| match store.put(message).wait() {
        Err(PutError::Illegal(error)) => error,
        other => panic!("{other:?}"),
    };
    let long = "t".repeat(128);
    let body = vec![0; (32 << 10) + 1];
    let properties = "p".repeat(32_768);
    assert_eq!(
        refuse(&message(&long, 0, b"x")),
        IllegalMessage::TopicLength { bytes: 128, limit: 127 }
    );
    assert_eq!(
        refuse(&message("t", 0, &body)),
        IllegalMessage::BodyTooLarge { bytes: 32_769, limit: 32_768 }
    );
    assert!(matches!(
        refuse(&protocol::message::Message { properties: &properties, ..message("t", 0, b"x") }),
        IllegalMessage::Encode(_)
    ));
    assert_eq!(refuse(&message("../t", 0, b"x")), IllegalMessage::TopicName("../t".to_owned()));
    assert_eq!(refuse(&message("t", -1, b"x")), IllegalMessage::QueueId(-1));
    store.put(&message("t", 0, &body[1..])).wait().unwrap();
    assert_eq!(store.stats().metrics.put_refused, 5);
    let retry = format!("%RETRY%{}", "g".repeat(200));
    store.put(&message(&retry, 0, b"x")).wait().unwrap();
}

#[test]
fn half_messages_are_in_no_queue_and_delayed_ones_carry_their_time() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = MessageStore::open(config(dir.path(), FlushDiskType::SyncFlush)).unwrap();
    let (sender, notices) = sync_channel(10);
    store.add_dispatcher(Arc::new(Notice(sender)));
    let half = protocol::message::Message {
        sys_flag: sys_flag::TRANSACTION_PREPARED,
        ..message("t", 0, b"half")
    };
    assert_eq!(store.put(&half).wait().unwrap().queue_offset, 0);
    notices.recv().unwrap();
    assert_eq!(store.max_offset("t", 0), 0);
    let delayed = protocol::message::Message {
        properties: "DELAY\u{1}3\u{2}TAGS\u{1}x\u{2}",
        ..message("SCHEDULE_TOPIC_XXXX", 2, b"later")
    };
    let put = store.put(&delayed).wait().unwrap();
    let (_, _, _, code) = notices.recv().unwrap();
    assert_eq!(code, put.store_timestamp + 10_000);
}

#[test]
fn a_deleted_topic_stays_deleted_and_its_name_begins_anew() {
    let dir = tempfile::tempdir().unwrap();
    let open = || MessageStore::open(config(dir.path(), FlushDiskType::SyncFlush)).unwrap().0;
    let store = open();
    for topic in ["old", "kept"] {
        for _ in 0..120 {
            store.put(&message(topic, 0, b"x")).wait().unwrap();
        }
    }
    store.shutdown().unwrap();
    let store = open();
    assert_eq!(store.delete_topic("old").unwrap(), 1);
    assert_eq!(store.delete_topic("old").unwrap(), 0);
    assert!(!dir.path().join("consumequeue/old").exists());
    assert_eq!(store.max_offset("old", 0), 0);
    store.shutdown().unwrap();
    drop(store);
    let store = open();
    assert_eq!(store.topics(), [Arc::from("kept")]);
    assert_eq!(store.put(&message("old", 0, b"new")).wait().unwrap().queue_offset, 0);
    store.shutdown().unwrap();
    drop(store);
    let store = open();
    assert_eq!(bodies(&store, "old", 0), [&b"new"[..]]);
    assert_eq!(store.max_offset("kept", 0), 120);
}

#[test]
fn stores_that_cannot_be_read_are_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let open = |size: u64| {
        let mut config = config(dir.path(), FlushDiskType::SyncFlush);
        config.mapped_file_size_commit_log = size;
        MessageStore::open(config)
    };
    let (store, _) = open(64 << 10).unwrap();
    store.put(&message("t", 0, b"x")).wait().unwrap();
    assert!(matches!(open(64 << 10), Err(StoreError::Locked { .. })));
    store.shutdown().unwrap();
    let error = open(32 << 10).unwrap_err().to_string();
    assert!(error.contains("mappedFileSizeCommitLog") && error.contains("65536"), "{error}");
    std::fs::write(dir.path().join("consumequeue/CURRENT"), "x").unwrap();
    let error = open(64 << 10).unwrap_err().to_string();
    assert!(error.contains("RocksDB"), "{error}");
}

/// Whoever finds another one writing leaves its messages to that one: none may stay behind, and who
/// is answered reads what it sent.
#[test]
fn senders_that_write_for_each_other_leave_nothing_behind() {
    const SENDERS: i32 = 8;
    const MESSAGES: i64 = 400;
    for flush in [FlushDiskType::AsyncFlush, FlushDiskType::SyncFlush] {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = MessageStore::open(config(dir.path(), flush)).unwrap();
        std::thread::scope(|scope| {
            for queue in 0..SENDERS {
                let store = &store;
                scope.spawn(move || {
                    for number in 0..MESSAGES {
                        let message = message("t", queue, b"body");
                        let put = store.enqueue(std::slice::from_ref(&message));
                        store.write_enqueued();
                        assert_eq!(put.wait().unwrap().queue_offset, number);
                        assert_eq!(store.max_offset("t", queue), number + 1);
                    }
                });
            }
        });
        store.shutdown().unwrap();
        assert!(!dir.path().join("abort").exists());
    }
}
