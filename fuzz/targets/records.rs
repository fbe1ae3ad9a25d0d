//! Message records, of both versions: one that can be read is the same after it was written again,
//! and a compressed body grows no larger than the reader allows.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use protocol::message::{Message, MessageExt};
use protocol::message_codec::{self, RecordView};
use protocol::{message_id, property, tag};

/// Bytes that a body may have when it is decompressed.
const BODY_MAX: usize = 1 << 20;

/// Writes the message that a record holds; `None` when it could not have been stored.
fn written(view: &RecordView<'_>) -> Option<BytesMut> {
    let properties = std::str::from_utf8(view.properties_bytes).ok()?;
    let message = Message {
        topic: view.topic,
        queue_id: view.queue_id,
        flag: view.flag,
        sys_flag: view.sys_flag,
        born_timestamp: view.born_timestamp,
        born_host: view.born_host().ok()?,
        store_host: view.store_host().ok()?,
        reconsume_times: view.reconsume_times,
        prepared_transaction_offset: view.prepared_transaction_offset,
        body: view.body,
        properties,
    };
    let mut record = BytesMut::new();
    let size = message_codec::encode_record(&message, &mut record).ok()?;
    assert_eq!((size, size), (record.len(), message_codec::record_bytes(&message)));
    let (queue_offset, offset) = (view.queue_offset, view.physical_offset);
    message_codec::set_position(&mut record, queue_offset, offset, view.store_timestamp);
    Some(record)
}

fn same(view: &RecordView<'_>, record: &[u8]) {
    let again = message_codec::decode_record(record).expect("what was written can be read");
    again.check_body().expect("it has the right checksum");
    let parts = |view: &RecordView<'_>| {
        (
            (view.queue_id, view.flag, view.queue_offset, view.physical_offset),
            (view.born_timestamp, view.store_timestamp, view.reconsume_times),
            view.prepared_transaction_offset,
            (view.born_host().ok(), view.store_host().ok()),
            view.topic.to_owned(),
            (view.body.to_vec(), view.properties_bytes.to_vec()),
        )
    };
    // An address of version 4 in the form of version 6 is written as what it is.
    let canonical =
        |parts: ((i32, i32, i64, i64), _, _, (Option<std::net::SocketAddr>, _), _, _)| {
            let (numbers, times, prepared, (born, stored), topic, rest) = parts;
            let plain = |host: Option<std::net::SocketAddr>| {
                host.map(|host| std::net::SocketAddr::new(host.ip().to_canonical(), host.port()))
            };
            (numbers, times, prepared, (plain(born), plain(stored)), topic, rest)
        };
    assert_eq!(canonical(parts(&again)), canonical(parts(view)));
}

fn message(message: &MessageExt) {
    assert!(message.body.len() <= BODY_MAX);
    let _ = (message.tags().map(|tags| tag::tags_code(Some(tags))), message.keys().count());
    assert!(!message.msg_id().is_empty() || message.properties.contains_key(property::UNIQUE_KEY));
    if let Ok((host, offset)) = message_id::parse_offset_message_id(&message.offset_msg_id()) {
        assert_eq!(offset, message.commit_log_offset);
        assert_eq!(host.port(), message.store_host.port());
    }
}

fuzz_target!(|input: &[u8]| {
    if let Ok(view) = message_codec::decode_record(input) {
        assert!(view.bytes.len() <= input.len());
        let _ = (view.check_body(), view.property(property::TAGS));
        if let Some(record) = written(&view) {
            same(&view, &record);
        }
    }
    if let Ok(messages) = MessageExt::decode_all(input, BODY_MAX) {
        messages.iter().for_each(message);
    }
    let text = String::from_utf8_lossy(input);
    let parsed = property::parse(&text);
    let entries = parsed.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    assert_eq!(property::parse(&property::encode(entries)), parsed);
    let _ = message_id::parse_offset_message_id(&text);
});
