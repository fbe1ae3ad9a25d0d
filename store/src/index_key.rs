//! The keys under which a message is found, and their hashes as index files store them.
//!
//! A message has a key for its unique id and one for each word of its KEYS; the index knows
//! `topic#key`. As in Apache's broker a rolled back message has none.

use protocol::message_codec::RecordView;
use protocol::{property, sys_flag};

/// Stands between topic and key.
const SEPARATOR: char = '#';

/// What a record says about its keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Keys<'a> {
    unique: Option<&'a str>,
    words: &'a str,
}

impl<'a> Keys<'a> {
    fn of(view: &RecordView<'a>) -> Self {
        let mut keys = Self::default();
        if sys_flag::transaction(view.sys_flag) == sys_flag::TRANSACTION_ROLLBACK {
            return keys;
        }
        for (name, value) in property::entries(view.properties()) {
            match name {
                property::UNIQUE_KEY => keys.unique = Some(value),
                property::KEYS => keys.words = value,
                _ => {}
            }
        }
        keys
    }

    fn words(&self) -> impl Iterator<Item = &'a str> {
        self.words.split(property::KEY_SEPARATOR).filter(|word| !word.is_empty())
    }
}

/// Puts the hashes of all keys of a record into `hashes`, in the order in which they are indexed. A
/// key that is there twice is indexed twice.
pub(crate) fn hashes(view: &RecordView<'_>, hashes: &mut Vec<u32>) {
    hashes.clear();
    let keys = Keys::of(view);
    let topic = Hash::default().add(view.topic).add_char(SEPARATOR);
    hashes.extend(keys.unique.into_iter().chain(keys.words()).map(|key| topic.add(key).finish()));
}

/// Whether a record has this key; with `is_unique`, whether its unique id is the key.
pub(crate) fn matches(view: &RecordView<'_>, topic: &str, key: &str, is_unique: bool) -> bool {
    if view.topic != topic {
        return false;
    }
    let keys = Keys::of(view);
    keys.unique == Some(key) || (!is_unique && keys.words().any(|word| word == key))
}

/// The hash of one key of a topic.
pub(crate) fn hash(topic: &str, key: &str) -> u32 {
    Hash::default().add(topic).add_char(SEPARATOR).add(key).finish()
}

/// Java's `String.hashCode` of a text that comes in pieces.
#[derive(Debug, Clone, Copy, Default)]
struct Hash(i32);

impl Hash {
    fn add(self, text: &str) -> Self {
        Self(text.encode_utf16().fold(self.0, step))
    }

    fn add_char(self, character: char) -> Self {
        let mut units = [0; 2];
        Self(character.encode_utf16(&mut units).iter().copied().fold(self.0, step))
    }

    /// As Java's `Math.abs`, of which the one negative result becomes 0.
    fn finish(self) -> u32 {
        self.0.checked_abs().map_or(0, i32::unsigned_abs)
    }
}

fn step(hash: i32, unit: u16) -> i32 {
    hash.wrapping_mul(31).wrapping_add(i32::from(unit))
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use protocol::message::Message;
    use protocol::{message_codec, tag};

    use super::*;

    fn record(sys_flag: i32, properties: &str) -> BytesMut {
        let mut record = BytesMut::new();
        let message = Message {
            topic: "t",
            queue_id: 0,
            flag: 0,
            sys_flag,
            born_timestamp: 1,
            born_host: "10.0.0.1:1".parse().unwrap(),
            store_host: "10.0.0.2:1".parse().unwrap(),
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: b"x",
            properties,
        };
        message_codec::encode_record(&message, &mut record).unwrap();
        record
    }

    #[test]
    fn hashes_are_those_of_java() {
        for (topic, key) in [("t", "k"), ("订单", "é#1"), ("", "\u{1F600}")] {
            let whole = tag::java_hash(&format!("{topic}#{key}"));
            assert_eq!(hash(topic, key), whole.unsigned_abs(), "{topic} {key}");
        }
        assert_eq!(Hash(-5).finish(), 5);
        assert_eq!(Hash(i32::MIN).finish(), 0);
    }

    #[test]
    fn a_record_has_the_keys_that_apache_indexes() {
        let found = |sys_flag, properties: &str| {
            let record = record(sys_flag, properties);
            let mut found = vec![99];
            hashes(&message_codec::decode_record(&record).unwrap(), &mut found);
            found
        };
        let all = "KEYS\u{1} a  b a\u{2}UNIQ_KEY\u{1}id\u{2}";
        let expected = ["id", "a", "b", "a"].map(|key| hash("t", key));
        assert_eq!(found(0, all), expected);
        assert_eq!(found(sys_flag::TRANSACTION_PREPARED, all), expected);
        assert_eq!(found(sys_flag::TRANSACTION_COMMIT, all), expected);
        assert_eq!(found(sys_flag::TRANSACTION_ROLLBACK, all), [0; 0]);
        assert_eq!(found(0, "TAGS\u{1}a\u{2}"), [0; 0]);
        assert_eq!(found(0, "KEYS\u{1} \u{2}"), [0; 0]);
    }

    #[test]
    fn a_key_is_a_word_and_not_a_part_of_one() {
        let record = record(0, "KEYS\u{1}ab c\u{2}UNIQ_KEY\u{1}id\u{2}");
        let view = message_codec::decode_record(&record).unwrap();
        let table = [
            ("t", "ab", false, true),
            ("t", "c", false, true),
            ("t", "id", false, true),
            ("t", "id", true, true),
            ("t", "ab", true, false),
            ("t", "a", false, false),
            ("t", "ab c", false, false),
            ("u", "ab", false, false),
        ];
        for (topic, key, is_unique, expected) in table {
            assert_eq!(matches(&view, topic, key, is_unique), expected, "{topic} {key}");
        }
    }
}
