//! The properties string of a message: `name 0x01 value 0x02`, repeated.
//!
//! The broker reads a few properties of each message and passes the rest through untouched, so the
//! reader is an iterator over the string and nothing is copied. Java's rules hold: the last 0x02
//! may be missing, an entry without name or value is skipped, the last of two equal names wins.

use std::collections::BTreeMap;

/// Index keys, separated by spaces.
pub const KEYS: &str = "KEYS";
/// The tag.
pub const TAGS: &str = "TAGS";
/// `false`: the sender does not wait for flush and replication.
pub const WAIT: &str = "WAIT";
/// Delay level, 1 to 18.
pub const DELAY: &str = "DELAY";
/// Original topic of a retried message.
pub const RETRY_TOPIC: &str = "RETRY_TOPIC";
/// Real topic of a delayed, timed or half message.
pub const REAL_TOPIC: &str = "REAL_TOPIC";
/// Real queue of a delayed, timed or half message.
pub const REAL_QUEUE_ID: &str = "REAL_QID";
/// `true`: half message.
pub const TRANSACTION_PREPARED: &str = "TRAN_MSG";
/// Producer group, needed to check a transaction.
pub const PRODUCER_GROUP: &str = "PGROUP";
/// Set by the client on receipt.
pub const MIN_OFFSET: &str = "MIN_OFFSET";
/// Set by the client on receipt.
pub const MAX_OFFSET: &str = "MAX_OFFSET";
/// offsetMsgId of the first delivery of a retried message.
pub const ORIGIN_MESSAGE_ID: &str = "ORIGIN_MESSAGE_ID";
/// Tries so far, moved into the request header by the client.
pub const RECONSUME_TIME: &str = "RECONSUME_TIME";
/// Limit of tries, moved into the request header by the client.
pub const MAX_RECONSUME_TIMES: &str = "MAX_RECONSUME_TIMES";
/// Region of the broker.
pub const MSG_REGION: &str = "MSG_REGION";
/// Trace switch.
pub const TRACE_ON: &str = "TRACE_ON";
/// Client message id, the id that users see.
pub const UNIQUE_KEY: &str = "UNIQ_KEY";
/// Set by the consumer.
pub const CONSUME_START_TIME: &str = "CONSUME_START_TIME";
/// Number of messages in an inner batch.
pub const INNER_NUM: &str = "INNER_NUM";
/// Base offset of an inner batch.
pub const INNER_BASE: &str = "INNER_BASE";
/// Seconds before the first check of a half message.
pub const CHECK_IMMUNITY_TIME_IN_SECONDS: &str = "CHECK_IMMUNITY_TIME_IN_SECONDS";
/// Queue offset of the half message that was put back.
pub const TRANSACTION_PREPARED_QUEUE_OFFSET: &str = "TRAN_PREPARED_QUEUE_OFFSET";
/// Checks done.
pub const TRANSACTION_CHECK_TIMES: &str = "TRANSACTION_CHECK_TIMES";
/// Transaction id (equals the unique key).
pub const TRANSACTION_ID: &str = "__transactionId__";
/// Request-reply correlation.
pub const CORRELATION_ID: &str = "CORRELATION_ID";
/// Client id that waits for the reply.
pub const REPLY_TO_CLIENT: &str = "REPLY_TO_CLIENT";
/// Request-reply time-out in milliseconds.
pub const TTL: &str = "TTL";
/// `reply` on replies.
pub const MSG_TYPE: &str = "MSG_TYPE";
/// Cluster name, set by the broker.
pub const CLUSTER: &str = "CLUSTER";
/// Pop receipt; the broker removes it from incoming messages.
pub const POP_CK: &str = "POP_CK";
/// Time of the first pop.
pub const FIRST_POP_TIME: &str = "1ST_POP_TIME";
/// Message group of ordered topics.
pub const SHARDING_KEY: &str = "__SHARDINGKEY";
/// Delay in seconds.
pub const TIMER_DELAY_SEC: &str = "TIMER_DELAY_SEC";
/// Delay in milliseconds.
pub const TIMER_DELAY_MS: &str = "TIMER_DELAY_MS";
/// Time of delivery, epoch milliseconds.
pub const TIMER_DELIVER_MS: &str = "TIMER_DELIVER_MS";
/// Time of delivery as the timer stores it, epoch milliseconds.
pub const TIMER_OUT_MS: &str = "TIMER_OUT_MS";
/// Light queues to which the message also goes, separated by commas.
pub const INNER_MULTI_DISPATCH: &str = "INNER_MULTI_DISPATCH";
/// Offsets in those light queues.
pub const INNER_MULTI_QUEUE_OFFSET: &str = "INNER_MULTI_QUEUE_OFFSET";
/// Original topic of a dead letter.
pub const DLQ_ORIGIN_TOPIC: &str = "DLQ_ORIGIN_TOPIC";
/// Original message id of a dead letter.
pub const DLQ_ORIGIN_MESSAGE_ID: &str = "DLQ_ORIGIN_MESSAGE_ID";
/// Checksum of the record.
pub const CRC32: &str = "__CRC32#";
/// Properties with this prefix are not stored.
pub const TRANSIENT_PREFIX: &str = "__RMQ.TRANSIENT.";

/// Ends a name.
pub const NAME_VALUE_SEPARATOR: char = '\u{1}';
/// Ends a value.
pub const PROPERTY_SEPARATOR: char = '\u{2}';

/// Longest properties string that a record can hold, in bytes (Java `Short.MAX_VALUE`).
pub const LENGTH_MAX: usize = 32_767;

/// Separates the keys of one KEYS value.
pub const KEY_SEPARATOR: char = ' ';

/// Names that a user may not set (Java `MessageConst.STRING_HASH_SET`).
const RESERVED: &[&str] = &[
    TRACE_ON,
    MSG_REGION,
    KEYS,
    TAGS,
    WAIT,
    DELAY,
    RETRY_TOPIC,
    REAL_TOPIC,
    REAL_QUEUE_ID,
    TRANSACTION_PREPARED,
    PRODUCER_GROUP,
    MIN_OFFSET,
    MAX_OFFSET,
    "BUYER_ID",
    ORIGIN_MESSAGE_ID,
    "TRANSFER_FLAG",
    "CORRECTION_FLAG",
    "MQ2_FLAG",
    RECONSUME_TIME,
    UNIQUE_KEY,
    "EXTEND_UNIQ_INFO",
    MAX_RECONSUME_TIMES,
    CONSUME_START_TIME,
    POP_CK,
    "POP_CK_OFFSET",
    FIRST_POP_TIME,
    TRANSACTION_PREPARED_QUEUE_OFFSET,
    "DUP_INFO",
    "INSTANCE_ID",
    CORRELATION_ID,
    REPLY_TO_CLIENT,
    TTL,
    "ARRIVE_TIME",
    "PUSH_REPLY_TIME",
    CLUSTER,
    MSG_TYPE,
    INNER_MULTI_QUEUE_OFFSET,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    "TIMER_ENQUEUE_MS",
    "TIMER_DEQUEUE_MS",
    "TIMER_ROLL_TIMES",
    TIMER_OUT_MS,
    "TIMER_DEL_UNIQKEY",
    "TIMER_DELAY_LEVEL",
    "__BORNHOST",
    "BORN_TIMESTAMP",
    DLQ_ORIGIN_TOPIC,
    DLQ_ORIGIN_MESSAGE_ID,
    CRC32,
];

/// Whether the system owns this property name, so that a user must not set it.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// The entries of a properties string in the order in which they are written.
pub fn entries(properties: &str) -> impl Iterator<Item = (&str, &str)> {
    properties.split(PROPERTY_SEPARATOR).filter_map(|entry| {
        let (name, value) = entry.split_once(NAME_VALUE_SEPARATOR)?;
        (!name.is_empty() && !value.is_empty()).then_some((name, value))
    })
}

/// The value of `name`; the last one when it is there twice.
#[must_use]
pub fn get<'a>(properties: &'a str, name: &str) -> Option<&'a str> {
    entries(properties).filter(|(entry, _)| *entry == name).last().map(|(_, value)| value)
}

/// All properties by name.
#[must_use]
pub fn parse(properties: &str) -> BTreeMap<String, String> {
    entries(properties).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The properties string of these entries, in their order, with a 0x02 at the end.
pub fn encode<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut properties = String::new();
    for (name, value) in entries {
        append(&mut properties, name, value);
    }
    properties
}

/// Adds one property at the end. A 0x02 that an old client left out is added first.
pub fn append(properties: &mut String, name: &str, value: &str) {
    if !properties.is_empty() && !properties.ends_with(PROPERTY_SEPARATOR) {
        properties.push(PROPERTY_SEPARATOR);
    }
    properties.reserve(name.len() + value.len() + 2);
    properties.push_str(name);
    properties.push(NAME_VALUE_SEPARATOR);
    properties.push_str(value);
    properties.push(PROPERTY_SEPARATOR);
}

/// `first` followed by `second`; names of `second` win. This is how a broker adds the properties of
/// a batch to each message of it.
#[must_use]
pub fn join(first: &str, second: &str) -> String {
    let mut joined = String::with_capacity(first.len() + second.len() + 1);
    joined.push_str(first);
    if !first.is_empty() && !second.is_empty() && !first.ends_with(PROPERTY_SEPARATOR) {
        joined.push(PROPERTY_SEPARATOR);
    }
    joined.push_str(second);
    joined
}

/// `properties` without any entry of this name.
#[must_use]
pub fn without(properties: &str, name: &str) -> String {
    encode(entries(properties).filter(|(entry, _)| *entry != name))
}

/// Whether a name or value can be written: not empty and free of the two separators.
#[must_use]
pub fn is_writable(text: &str) -> bool {
    !text.is_empty() && !text.contains([NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_java_reads() {
        let table: [(&str, &[(&str, &str)]); 7] = [
            ("", &[]),
            ("a\u{1}1\u{2}b\u{1}2\u{2}", &[("a", "1"), ("b", "2")]),
            ("a\u{1}1\u{2}b\u{1}2", &[("a", "1"), ("b", "2")]),
            ("a\u{1}\u{2}\u{1}x\u{2}b\u{1}2", &[("b", "2")]),
            ("a\u{2}\u{2}b\u{1}2", &[("b", "2")]),
            ("a\u{1}1\u{1}2\u{2}", &[("a", "1\u{1}2")]),
            ("unicode\u{1}订单-é\u{2}", &[("unicode", "订单-é")]),
        ];
        for (text, expected) in table {
            assert_eq!(entries(text).collect::<Vec<_>>(), expected, "{text:?}");
        }
    }

    #[test]
    fn last_value_wins() {
        let text = "a\u{1}1\u{2}a\u{1}2\u{2}";
        assert_eq!(get(text, "a"), Some("2"));
        assert_eq!(parse(text)["a"], "2");
        assert_eq!(get(text, "b"), None);
    }

    #[test]
    fn append_completes_an_open_string() {
        let mut text = "a\u{1}1".to_owned();
        append(&mut text, "b", "2");
        assert_eq!(text, "a\u{1}1\u{2}b\u{1}2\u{2}");
        assert_eq!(without(&text, "a"), "b\u{1}2\u{2}");
        assert_eq!(join("a\u{1}1", "b\u{1}2\u{2}"), text);
        assert_eq!(join("", "b\u{1}2"), "b\u{1}2");
        assert_eq!(join("a\u{1}1", ""), "a\u{1}1");
    }

    #[test]
    fn users_cannot_set_system_names() {
        assert!(is_reserved("UNIQ_KEY"));
        assert!(!is_reserved("color"));
        assert!(!is_writable(""));
        assert!(!is_writable("a\u{2}"));
    }

    proptest! {
        #[test]
        fn round_trip(map in proptest::collection::btree_map("[^\u{1}\u{2}]{1,8}", "[^\u{1}\u{2}]{1,8}", 0..8)) {
            let text = encode(map.iter().map(|(name, value)| (name.as_str(), value.as_str())));
            prop_assert_eq!(parse(&text), map);
        }

        #[test]
        fn any_text_is_read_without_panic(text in "[a\u{1}\u{2}é]{0,20}") {
            for (name, value) in entries(&text) {
                prop_assert!(!name.is_empty() && !value.is_empty());
            }
        }
    }
}
