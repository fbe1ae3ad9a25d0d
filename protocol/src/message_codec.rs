//! The record of a message as the commit log stores it and as pull, view and query answers carry
//! it.
//!
//! | field | bytes | at |
//! |---|---|---|
//! | totalSize, magic, bodyCRC, queueId, flag | 4 each | 0 |
//! | queueOffset, physicalOffset | 8 each | 20 |
//! | sysFlag | 4 | 36 |
//! | bornTimestamp | 8 | 40 |
//! | bornHost: address, port as i32 | 8 or 20 | 48 |
//! | storeTimestamp | 8 | 56 or 68 |
//! | storeHost | 8 or 20 | |
//! | reconsumeTimes | 4 | |
//! | preparedTransactionOffset | 8 | |
//! | bodyLength, body | 4 + n | |
//! | topicLength, topic | 1 or 2 (magic v2) + n | |
//! | propertiesLength, properties | 2 + n | |
//!
//! All integers are big-endian and signed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::{Buf, BufMut, BytesMut, TryGetError};

use crate::message::Message;
use crate::{property, sys_flag};

/// Magic of records with a one-byte topic length. Persisted.
pub const MAGIC_V1: i32 = 0xDAA3_20A7_u32.cast_signed();
/// Magic of records with a two-byte topic length. Persisted.
pub const MAGIC_V2: i32 = 0xDAA3_20AB_u32.cast_signed();
/// Magic of the filler at the end of a commit log file. Persisted.
pub const MAGIC_BLANK: i32 = 0xCBD4_3194_u32.cast_signed();
/// Bytes of the smallest record: IPv4 hosts, v1, no body, topic or properties.
pub const FIXED_BYTES: usize = 91;

const QUEUE_OFFSET_AT: usize = 20;
const BORN_HOST_AT: usize = 48;
const HOST_V4_BYTES: usize = 8;
const HOST_V6_BYTES: usize = 20;
/// A topic of more UTF-16 units than this needs the two-byte length (Java `String.length()`).
const V1_TOPIC_UNITS_MAX: usize = 127;

/// Why bytes are no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The bytes end before the record does.
    #[error("record is cut off: {have} bytes of {need}")]
    Truncated {
        /// Bytes that the record claims to have, or that its header needs.
        need: usize,
        /// Bytes there are.
        have: usize,
    },
    /// Not a record.
    #[error("magic {0:#010x} is not that of a message")]
    Magic(u32),
    /// A total size that no record can have.
    #[error("record claims to have {0} bytes")]
    TotalSize(i32),
    /// The lengths of the parts do not add up to the total size.
    #[error("lengths within the record do not add up to its {0} bytes")]
    PartSize(usize),
    /// The topic is not UTF-8.
    #[error("topic is not UTF-8")]
    Topic,
    /// Body and checksum differ.
    #[error("body checksum is {found:#010x}, the record says {expected:#010x}")]
    BodyCrc {
        /// Checksum in the record.
        expected: u32,
        /// Checksum of the body.
        found: u32,
    },
    /// A port outside 0 to 65535.
    #[error("record names port {0}, outside 0 to 65535")]
    Port(u32),
}

/// Why a message cannot be written as a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// More bytes than the length field of the topic holds.
    #[error("topic has {length} bytes, at most {limit} can be stored")]
    TopicTooLong {
        /// Bytes of the topic.
        length: usize,
        /// Limit.
        limit: usize,
    },
    /// More than 32,767 bytes of properties.
    #[error("properties have {length} bytes, at most {limit} can be stored")]
    PropertiesTooLong {
        /// Bytes of the properties.
        length: usize,
        /// Limit.
        limit: usize,
    },
    /// The record would have more than 2 GiB.
    #[error("body has {length} bytes, more than a record can hold")]
    BodyTooLong {
        /// Bytes of the body.
        length: usize,
    },
}

/// A record's fields, borrowed from its bytes. Everything in it has been checked to be inside the
/// record; hosts, properties and the body's checksum are checked when they are asked for.
#[derive(Debug, Clone, Copy)]
pub struct RecordView<'a> {
    /// The whole record.
    pub bytes: &'a [u8],
    /// CRC-32 of the stored body, without its highest bit.
    pub body_crc: u32,
    /// Queue.
    pub queue_id: i32,
    /// User flag.
    pub flag: i32,
    /// Offset in its queue.
    pub queue_offset: i64,
    /// Offset in the commit log.
    pub physical_offset: i64,
    /// Bits of [`crate::sys_flag`].
    pub sys_flag: i32,
    /// When the client made it, epoch milliseconds by the client's clock.
    pub born_timestamp: i64,
    /// When the broker stored it, epoch milliseconds by the broker's clock.
    pub store_timestamp: i64,
    /// Times it has been consumed in vain.
    pub reconsume_times: i32,
    /// Commit log offset of the half message, for a committed one.
    pub prepared_transaction_offset: i64,
    /// Body as stored, perhaps compressed.
    pub body: &'a [u8],
    /// Topic.
    pub topic: &'a str,
    /// Properties string; it ought to be UTF-8.
    pub properties_bytes: &'a [u8],
    born_host: &'a [u8],
    store_host: &'a [u8],
}

impl<'a> RecordView<'a> {
    /// Address of the client.
    ///
    /// # Errors
    /// The port is outside 0 to 65535.
    pub fn born_host(&self) -> Result<SocketAddr, RecordError> {
        host(self.born_host)
    }

    /// Address of the broker that stored the record first.
    ///
    /// # Errors
    /// The port is outside 0 to 65535.
    pub fn store_host(&self) -> Result<SocketAddr, RecordError> {
        host(self.store_host)
    }

    /// The properties string up to its first byte that is not UTF-8.
    #[must_use]
    pub fn properties(&self) -> &'a str {
        let chunk = self.properties_bytes.utf8_chunks().next();
        chunk.map_or("", |chunk| chunk.valid())
    }

    /// The value of one property.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&'a str> {
        property::get(self.properties(), name)
    }

    /// Compares the body with its checksum. As in Apache's broker an empty body has none.
    ///
    /// # Errors
    /// They differ.
    pub fn check_body(&self) -> Result<(), RecordError> {
        let found = body_crc(self.body);
        if self.body.is_empty() || found == self.body_crc {
            Ok(())
        } else {
            Err(RecordError::BodyCrc { expected: self.body_crc, found })
        }
    }
}

/// CRC-32 of a body as records hold it: without the highest bit, so that Java's int is positive.
#[must_use]
pub fn body_crc(body: &[u8]) -> u32 {
    crc32fast::hash(body) & 0x7FFF_FFFF
}

/// The first two fields of a record or filler: total size and magic.
///
/// # Errors
/// Fewer than 8 bytes.
pub fn peek(mut bytes: &[u8]) -> Result<(i32, i32), RecordError> {
    let have = bytes.len();
    let truncated = |_| RecordError::Truncated { need: 8, have };
    let size = bytes.try_get_i32().map_err(truncated)?;
    let magic = bytes.try_get_i32().map_err(truncated)?;
    Ok((size, magic))
}

/// Reads the record at the start of `bytes`; what follows it is not looked at.
///
/// # Errors
/// There is no whole, well-formed record. The body's checksum is not compared here.
pub fn decode_record(bytes: &[u8]) -> Result<RecordView<'_>, RecordError> {
    let (claimed, magic) = peek(bytes)?;
    if magic != MAGIC_V1 && magic != MAGIC_V2 {
        return Err(RecordError::Magic(magic.cast_unsigned()));
    }
    let size = usize::try_from(claimed)
        .ok()
        .filter(|size| *size >= FIXED_BYTES)
        .ok_or(RecordError::TotalSize(claimed))?;
    let have = bytes.len();
    let record = bytes.get(..size).ok_or(RecordError::Truncated { need: size, have })?;
    let (mut view, topic) = read_fields(record, magic).map_err(|_| RecordError::PartSize(size))?;
    view.topic = std::str::from_utf8(topic).map_err(|_| RecordError::Topic)?;
    Ok(view)
}

/// All fields, the topic apart as bytes; an error unless they fill the record exactly.
fn read_fields(record: &[u8], magic: i32) -> Result<(RecordView<'_>, &[u8]), TryGetError> {
    let mut rest = record;
    let _size_and_magic = (rest.try_get_i32()?, rest.try_get_i32()?);
    let body_crc = rest.try_get_u32()?;
    let queue_id = rest.try_get_i32()?;
    let flag = rest.try_get_i32()?;
    let queue_offset = rest.try_get_i64()?;
    let physical_offset = rest.try_get_i64()?;
    let sys_flag = rest.try_get_i32()?;
    let born_timestamp = rest.try_get_i64()?;
    let born_host = take(&mut rest, host_bytes(sys_flag & sys_flag::BORN_HOST_V6 != 0))?;
    let store_timestamp = rest.try_get_i64()?;
    let store_host = take(&mut rest, host_bytes(sys_flag & sys_flag::STORE_HOST_V6 != 0))?;
    let reconsume_times = rest.try_get_i32()?;
    let prepared_transaction_offset = rest.try_get_i64()?;
    let length = i64::from(rest.try_get_i32()?);
    let body = take_signed(&mut rest, length)?;
    let length = match magic {
        MAGIC_V1 => i64::from(rest.try_get_i8()?),
        _ => i64::from(rest.try_get_i16()?),
    };
    let topic = take_signed(&mut rest, length)?;
    let length = i64::from(rest.try_get_i16()?);
    let properties_bytes = take_signed(&mut rest, length)?;
    if !rest.is_empty() {
        return Err(TryGetError { requested: 0, available: rest.len() });
    }
    let view = RecordView {
        bytes: record,
        body_crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        store_timestamp,
        reconsume_times,
        prepared_transaction_offset,
        body,
        topic: "",
        properties_bytes,
        born_host,
        store_host,
    };
    Ok((view, topic))
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], TryGetError> {
    let error = TryGetError { requested: length, available: rest.len() };
    let (taken, left) = rest.split_at_checked(length).ok_or(error)?;
    *rest = left;
    Ok(taken)
}

fn take_signed<'a>(rest: &mut &'a [u8], length: i64) -> Result<&'a [u8], TryGetError> {
    // A negative length asks for more than any slice has.
    take(rest, usize::try_from(length).unwrap_or(usize::MAX))
}

const fn host_bytes(is_v6: bool) -> usize {
    if is_v6 { HOST_V6_BYTES } else { HOST_V4_BYTES }
}

fn host(bytes: &[u8]) -> Result<SocketAddr, RecordError> {
    let (address, port) = bytes.split_last_chunk::<4>().expect("hosts have 8 or 20 bytes");
    let address: IpAddr = match <[u8; 4]>::try_from(address) {
        Ok(octets) => Ipv4Addr::from(octets).into(),
        Err(_) => {
            Ipv6Addr::from(<[u8; 16]>::try_from(address).expect("hosts have 8 or 20 bytes")).into()
        }
    };
    let port = u32::from_be_bytes(*port);
    let port = u16::try_from(port).map_err(|_| RecordError::Port(port))?;
    Ok(SocketAddr::new(address, port))
}

/// Bytes that the record of this message will have.
#[must_use]
pub fn record_bytes(message: &Message<'_>) -> usize {
    let hosts = |host: SocketAddr| host_bytes(host.ip().to_canonical().is_ipv6());
    let topic_length = if needs_v2(message.topic) { 1 } else { 0 };
    FIXED_BYTES - 2 * HOST_V4_BYTES
        + hosts(message.born_host)
        + hosts(message.store_host)
        + message.body.len()
        + topic_length
        + message.topic.len()
        + message.properties.len()
}

fn needs_v2(topic: &str) -> bool {
    topic.len() > V1_TOPIC_UNITS_MAX && topic.encode_utf16().count() > V1_TOPIC_UNITS_MAX
}

/// Appends the record of a message to `out` and returns its size in bytes. queueOffset,
/// physicalOffset and storeTimestamp stay 0 until [`set_position`]; the address bits of sysFlag
/// follow the addresses.
///
/// # Errors
/// A part is longer than its length field can say. Nothing has been written then.
pub fn encode_record(message: &Message<'_>, out: &mut BytesMut) -> Result<usize, EncodeError> {
    let Message { topic, body, properties, .. } = *message;
    let v2 = needs_v2(topic);
    let limit = if v2 { usize::from(i16::MAX.cast_unsigned()) } else { V1_TOPIC_UNITS_MAX };
    let topic_too_long = EncodeError::TopicTooLong { length: topic.len(), limit };
    let topic_length =
        i16::try_from(topic.len()).ok().filter(|_| topic.len() <= limit).ok_or(topic_too_long)?;
    let limit = property::LENGTH_MAX;
    let properties_length = i16::try_from(properties.len())
        .map_err(|_| EncodeError::PropertiesTooLong { length: properties.len(), limit })?;
    let body_too_long = |_| EncodeError::BodyTooLong { length: body.len() };
    let body_length = i32::try_from(body.len()).map_err(body_too_long)?;
    let size = record_bytes(message);
    let total = i32::try_from(size).map_err(body_too_long)?;

    out.reserve(size);
    let before = out.len();
    put_header(message, total, v2, out);
    out.put_i32(body_length);
    out.put_slice(body);
    if v2 {
        out.put_i16(topic_length);
    } else {
        out.put_i8(i8::try_from(topic_length).expect("a v1 topic has at most 127 bytes"));
    }
    out.put_slice(topic.as_bytes());
    out.put_i16(properties_length);
    out.put_slice(properties.as_bytes());
    assert_eq!(out.len() - before, size, "record size was computed wrong");
    Ok(size)
}

fn put_header(message: &Message<'_>, total: i32, v2: bool, out: &mut BytesMut) {
    let born_host = canonical(message.born_host);
    let store_host = canonical(message.store_host);
    let bit = |host: SocketAddr, bit: i32| if host.is_ipv6() { bit } else { 0 };
    let sys_flag = message.sys_flag & !(sys_flag::BORN_HOST_V6 | sys_flag::STORE_HOST_V6)
        | bit(born_host, sys_flag::BORN_HOST_V6)
        | bit(store_host, sys_flag::STORE_HOST_V6);
    out.put_i32(total);
    out.put_i32(if v2 { MAGIC_V2 } else { MAGIC_V1 });
    out.put_u32(body_crc(message.body));
    out.put_i32(message.queue_id);
    out.put_i32(message.flag);
    out.put_i64(0);
    out.put_i64(0);
    out.put_i32(sys_flag);
    out.put_i64(message.born_timestamp);
    put_host(born_host, out);
    out.put_i64(0);
    put_host(store_host, out);
    out.put_i32(message.reconsume_times);
    out.put_i64(message.prepared_transaction_offset);
}

fn canonical(host: SocketAddr) -> SocketAddr {
    SocketAddr::new(host.ip().to_canonical(), host.port())
}

fn put_host(host: SocketAddr, out: &mut BytesMut) {
    match host.ip() {
        IpAddr::V4(address) => out.put_slice(&address.octets()),
        IpAddr::V6(address) => out.put_slice(&address.octets()),
    }
    out.put_u32(u32::from(host.port()));
}

/// Fills in what is known only when a record gets its place in the log.
///
/// # Panics
/// `record` is not one that [`encode_record`] wrote: this is a mistake of the program.
pub fn set_position(
    record: &mut [u8],
    queue_offset: i64,
    physical_offset: i64,
    store_timestamp: i64,
) {
    let (_, mut offsets) = record.split_at_mut(QUEUE_OFFSET_AT);
    offsets.put_i64(queue_offset);
    offsets.put_i64(physical_offset);
    let sys_flag = i32::from_be_bytes(*offsets.first_chunk().expect("record has a sysFlag"));
    let born_host = host_bytes(sys_flag & sys_flag::BORN_HOST_V6 != 0);
    let (_, mut timestamp) = record.split_at_mut(BORN_HOST_AT + born_host);
    timestamp.put_i64(store_timestamp);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Five records of a commit log that Apache's broker 5.3.3 wrote.
    const JAVA: &[u8] = include_bytes!("../tests/golden/java-5.3.3-records.bin");

    fn java_records() -> Vec<RecordView<'static>> {
        let mut rest = JAVA;
        let mut records = Vec::new();
        while !rest.is_empty() {
            let record = decode_record(rest).unwrap();
            rest = &rest[record.bytes.len()..];
            records.push(record);
        }
        records
    }

    fn message_of<'a>(record: &RecordView<'a>) -> Message<'a> {
        Message {
            topic: record.topic,
            queue_id: record.queue_id,
            flag: record.flag,
            sys_flag: record.sys_flag,
            born_timestamp: record.born_timestamp,
            born_host: record.born_host().unwrap(),
            store_host: record.store_host().unwrap(),
            reconsume_times: record.reconsume_times,
            prepared_transaction_offset: record.prepared_transaction_offset,
            body: record.body,
            properties: record.properties(),
        }
    }

    fn encode_at(message: &Message<'_>, position: (i64, i64, i64)) -> BytesMut {
        let mut out = BytesMut::new();
        let size = encode_record(message, &mut out).unwrap();
        assert_eq!(size, out.len());
        set_position(&mut out, position.0, position.1, position.2);
        out
    }

    #[test]
    fn records_of_apache_are_read() {
        let records = java_records();
        assert_eq!(records.len(), 5);
        let first = &records[0];
        assert_eq!((first.topic, first.queue_id, first.flag), ("GoldenNormal", 3, 1));
        assert_eq!((first.queue_offset, first.physical_offset), (0, 0));
        assert_eq!(first.property("unicode"), Some("订单-é-1"));
        assert_eq!(first.property("TAGS"), Some("TagB"));
        assert_eq!(first.store_host().unwrap().to_string(), "127.0.0.1:20911");
        assert_eq!(records[1].sys_flag, sys_flag::COMPRESSED | sys_flag::COMPRESSION_ZLIB);
        assert_eq!(records[4].sys_flag, sys_flag::TRANSACTION_COMMIT);
        assert_eq!(records[4].prepared_transaction_offset, 6_703_287);
        for record in records {
            assert_eq!(record.check_body(), Ok(()));
        }
    }

    #[test]
    fn records_of_apache_are_written_byte_for_byte() {
        for record in java_records() {
            let position = (record.queue_offset, record.physical_offset, record.store_timestamp);
            assert_eq!(encode_at(&message_of(&record), position), record.bytes);
        }
    }

    #[test]
    fn long_topics_take_the_second_version() {
        let records = java_records();
        for (length, magic) in [(127, MAGIC_V1), (128, MAGIC_V2), (255, MAGIC_V2)] {
            let topic = "t".repeat(length);
            let message = Message { topic: &topic, ..message_of(&records[0]) };
            let bytes = encode_at(&message, (1, 2, 3));
            assert_eq!(peek(&bytes).unwrap().1, magic);
            assert_eq!(decode_record(&bytes).unwrap().topic, topic);
        }
        // 64 characters of two UTF-16 units need v2; 100 of three bytes do not, and do not fit v1.
        let wide = "\u{1F600}".repeat(64);
        let message = Message { topic: &wide, ..message_of(&records[0]) };
        assert_eq!(peek(&encode_at(&message, (1, 2, 3))).unwrap().1, MAGIC_V2);
        let wide = "订".repeat(100);
        let message = Message { topic: &wide, ..message_of(&records[0]) };
        let error = encode_record(&message, &mut BytesMut::new());
        assert_eq!(error, Err(EncodeError::TopicTooLong { length: 300, limit: 127 }));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let records = java_records();
        let properties = "p".repeat(32_768);
        let message = Message { properties: &properties, ..message_of(&records[0]) };
        let mut out = BytesMut::new();
        assert_eq!(
            encode_record(&message, &mut out),
            Err(EncodeError::PropertiesTooLong { length: 32_768, limit: 32_767 })
        );
        assert!(out.is_empty());
    }

    #[test]
    fn every_cut_is_an_error_and_every_flipped_byte_no_panic() {
        let record = java_records()[0].bytes;
        for cut in 0..record.len() {
            assert!(
                matches!(decode_record(&record[..cut]), Err(RecordError::Truncated { .. })),
                "{cut}"
            );
        }
        for position in 0..record.len() {
            let mut damaged = record.to_vec();
            damaged[position] ^= 0xFF;
            if let Ok(view) = decode_record(&damaged) {
                let _ = (view.born_host(), view.store_host(), view.property("TAGS"));
                let in_body = view.check_body().is_err();
                let body_start = 8 + 84 - 8 + 4;
                assert_eq!(
                    in_body,
                    (8..12).contains(&position) || (body_start..body_start + 2).contains(&position)
                );
            }
        }
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let record = java_records()[0].bytes;
        let with = |at: usize, bytes: &[u8]| {
            let mut damaged = record.to_vec();
            damaged[at..at + bytes.len()].copy_from_slice(bytes);
            decode_record(&damaged).map(|_| ())
        };
        let blank = MAGIC_BLANK.to_be_bytes();
        assert_eq!(with(4, &blank), Err(RecordError::Magic(0xCBD4_3194)));
        assert_eq!(with(0, &(-1_i32).to_be_bytes()), Err(RecordError::TotalSize(-1)));
        assert_eq!(with(0, &90_i32.to_be_bytes()), Err(RecordError::TotalSize(90)));
        assert_eq!(with(84, &(-1_i32).to_be_bytes()), Err(RecordError::PartSize(298)));
        assert_eq!(with(91, &[0xFF]), Err(RecordError::Topic));
        assert_eq!(with(90, &[0x80]), Err(RecordError::PartSize(298)));
    }

    proptest! {
        #[test]
        fn round_trip(
            topic in "[a-z]{1,200}", body in proptest::collection::vec(any::<u8>(), 0..64),
            properties in ".{0,40}", v6: (bool, bool), numbers: (i32, i32, i64, i64, i64)
        ) {
            let host = |v6: bool| -> SocketAddr {
                if v6 { "[fd00::1]:9" } else { "10.0.0.1:65535" }.parse().unwrap()
            };
            let message = Message {
                topic: &topic, queue_id: numbers.0, flag: numbers.1,
                sys_flag: sys_flag::COMPRESSED, born_timestamp: numbers.2,
                born_host: host(v6.0), store_host: host(v6.1), reconsume_times: numbers.1,
                prepared_transaction_offset: numbers.3, body: &body, properties: &properties,
            };
            let bytes = encode_at(&message, (numbers.2, numbers.3, numbers.4));
            let view = decode_record(&bytes).unwrap();
            view.check_body().unwrap();
            let place = (view.queue_offset, view.physical_offset, view.store_timestamp);
            prop_assert_eq!(place, (numbers.2, numbers.3, numbers.4));
            prop_assert_eq!(view.sys_flag & sys_flag::BORN_HOST_V6 != 0, v6.0);
            let again = message_of(&view);
            prop_assert_eq!(encode_at(&again, (numbers.2, numbers.3, numbers.4)), bytes.clone());
        }

        #[test]
        fn any_bytes_are_read_without_panic(
            tail in proptest::collection::vec(any::<u8>(), 0..120),
            size in 80..130_i32,
            v2: bool,
        ) {
            let mut bytes = size.to_be_bytes().to_vec();
            bytes.extend(if v2 { MAGIC_V2 } else { MAGIC_V1 }.to_be_bytes());
            bytes.extend(tail);
            let _ = decode_record(&bytes).map(|view| (view.check_body(), view.property("a")));
        }
    }
}
