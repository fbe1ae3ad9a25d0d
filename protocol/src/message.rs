//! A message before it is stored, and as a client receives it.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::SocketAddr;

use bytes::Bytes;

use crate::message_codec::{RecordError, RecordView, decode_record};
use crate::{message_id, property, sys_flag};

/// Everything that a record says about a message except its place in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Queue.
    pub queue_id: i32,
    /// User flag.
    pub flag: i32,
    /// Bits of [`crate::sys_flag`].
    pub sys_flag: i32,
    /// When the client made it, epoch milliseconds by the client's clock.
    pub born_timestamp: i64,
    /// Address of the client.
    pub born_host: SocketAddr,
    /// Address of the broker.
    pub store_host: SocketAddr,
    /// Times it has been consumed in vain.
    pub reconsume_times: i32,
    /// Commit log offset of the half message, for a committed one; else 0.
    pub prepared_transaction_offset: i64,
    /// Body as it is to be stored, perhaps compressed.
    pub body: &'a [u8],
    /// Properties string of [`crate::property`].
    pub properties: &'a str,
}

/// A message as a consumer sees it: decompressed, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageExt {
    /// Topic.
    pub topic: String,
    /// Queue.
    pub queue_id: i32,
    /// User flag.
    pub flag: i32,
    /// Bits of [`crate::sys_flag`]; the compression bit is cleared when the body was decompressed.
    pub sys_flag: i32,
    /// Offset in its queue.
    pub queue_offset: i64,
    /// Offset in the commit log of its broker.
    pub commit_log_offset: i64,
    /// Bytes of its record.
    pub store_size: usize,
    /// When the client made it, epoch milliseconds.
    pub born_timestamp: i64,
    /// Address of the client that sent it.
    pub born_host: SocketAddr,
    /// When the broker stored it, epoch milliseconds.
    pub store_timestamp: i64,
    /// Address of the broker that stored it.
    pub store_host: SocketAddr,
    /// CRC-32 of the stored body.
    pub body_crc: u32,
    /// Times it has been consumed in vain.
    pub reconsume_times: i32,
    /// Commit log offset of the half message, for a committed one.
    pub prepared_transaction_offset: i64,
    /// Body, decompressed.
    pub body: Bytes,
    /// Properties by name.
    pub properties: BTreeMap<String, String>,
}

/// Why a record could not be made into a message.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// The record itself is damaged.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The compressed body is damaged.
    #[error("message at {topic}:{queue_id} offset {queue_offset} cannot be decompressed")]
    Decompress {
        /// Topic.
        topic: String,
        /// Queue.
        queue_id: i32,
        /// Offset in the queue.
        queue_offset: i64,
        /// What zlib says.
        source: std::io::Error,
    },
    /// The body would be larger than the receiver allows.
    #[error("message body decompresses to more than {limit} bytes")]
    BodyTooLarge {
        /// The limit.
        limit: usize,
    },
    /// LZ4 or Zstandard, which this build does not have.
    #[error("message body is compressed with type {kind}, only zlib (0 or 3) can be read")]
    Compression {
        /// Value of the compression bits.
        kind: i32,
    },
}

impl MessageExt {
    /// Reads one record; a compressed body may grow to at most `body_bytes_max`.
    ///
    /// # Errors
    /// The record or its compressed body is damaged, too large, or of an unknown compression.
    pub fn decode(record: &[u8], body_bytes_max: usize) -> Result<Self, MessageError> {
        let view = decode_record(record)?;
        let (body, sys_flag) = plain_body(&view, body_bytes_max)?;
        Ok(Self {
            topic: view.topic.to_owned(),
            queue_id: view.queue_id,
            flag: view.flag,
            sys_flag,
            queue_offset: view.queue_offset,
            commit_log_offset: view.physical_offset,
            store_size: view.bytes.len(),
            born_timestamp: view.born_timestamp,
            born_host: view.born_host()?,
            store_timestamp: view.store_timestamp,
            store_host: view.store_host()?,
            body_crc: view.body_crc,
            reconsume_times: view.reconsume_times,
            prepared_transaction_offset: view.prepared_transaction_offset,
            body,
            properties: property::parse(view.properties()),
        })
    }

    /// Reads the records of a pull answer, which lie back to back.
    ///
    /// # Errors
    /// As [`MessageExt::decode`], at the first damaged record.
    pub fn decode_all(mut body: &[u8], body_bytes_max: usize) -> Result<Vec<Self>, MessageError> {
        let mut messages = Vec::new();
        while !body.is_empty() {
            let message = Self::decode(body, body_bytes_max)?;
            body = body.split_at(message.store_size).1;
            messages.push(message);
        }
        Ok(messages)
    }

    /// The id that users see: the sender's unique key, or the offset id of a message without one.
    #[must_use]
    pub fn msg_id(&self) -> String {
        let unique_key = self.properties.get(property::UNIQUE_KEY);
        unique_key.cloned().unwrap_or_else(|| self.offset_msg_id())
    }

    /// The id that names broker and commit log offset.
    #[must_use]
    pub fn offset_msg_id(&self) -> String {
        message_id::offset_message_id(self.store_host, self.commit_log_offset)
    }

    /// The tag.
    #[must_use]
    pub fn tags(&self) -> Option<&str> {
        self.properties.get(property::TAGS).map(String::as_str)
    }

    /// The index keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let keys = self.properties.get(property::KEYS).map_or("", String::as_str);
        keys.split(property::KEY_SEPARATOR).filter(|key| !key.is_empty())
    }
}

fn plain_body(view: &RecordView<'_>, limit: usize) -> Result<(Bytes, i32), MessageError> {
    if view.sys_flag & sys_flag::COMPRESSED == 0 {
        if view.body.len() > limit {
            return Err(MessageError::BodyTooLarge { limit });
        }
        return Ok((Bytes::copy_from_slice(view.body), view.sys_flag));
    }
    match view.sys_flag & sys_flag::COMPRESSION_TYPE_MASK {
        0 | sys_flag::COMPRESSION_ZLIB => {}
        kind => return Err(MessageError::Compression { kind: kind >> 8 }),
    }
    let mut body = Vec::new();
    // One byte more than allowed tells "exactly the limit" from "more".
    let bound = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let mut reader = flate2::read::ZlibDecoder::new(view.body).take(bound);
    reader.read_to_end(&mut body).map_err(|source| MessageError::Decompress {
        topic: view.topic.to_owned(),
        queue_id: view.queue_id,
        queue_offset: view.queue_offset,
        source,
    })?;
    if body.len() > limit {
        return Err(MessageError::BodyTooLarge { limit });
    }
    Ok((body.into(), view.sys_flag & !sys_flag::COMPRESSED))
}

/// Compresses a body with zlib as Java's producer does.
///
/// # Errors
/// Memory cannot be had; zlib itself does not fail on input.
pub fn compress(body: &[u8], level: u32) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    flate2::read::ZlibEncoder::new(body, flate2::Compression::new(level)).read_to_end(&mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JAVA: &[u8] = include_bytes!("../tests/golden/java-5.3.3-records.bin");

    #[test]
    fn messages_of_apache_look_as_its_client_shows_them() {
        let messages = MessageExt::decode_all(JAVA, 1 << 20).unwrap();
        assert_eq!(messages.len(), 5);
        let zipped = &messages[1];
        assert_eq!(zipped.body.len(), 30_000);
        assert_eq!(zipped.sys_flag, sys_flag::COMPRESSION_ZLIB);
        assert_eq!(zipped.commit_log_offset, 2_667_272);
        assert_eq!(zipped.store_size, 4337);
        assert_eq!(zipped.msg_id(), "FD0000000000000000000000000000027D5930946E09978FE1E600C8");
        assert_eq!(zipped.offset_msg_id(), "7F000001000051AF000000000028B308");
        assert_eq!(zipped.tags(), Some("Z"));
        assert_eq!(messages[0].keys().collect::<Vec<_>>(), ["key-1", "shared-key"]);
        // A batch carries two unique keys; clients show the last one.
        assert_eq!(
            messages[2].msg_id(),
            "FD0000000000000000000000000000027D5930946E09978FE518010E"
        );
    }

    #[test]
    fn a_bomb_is_refused_at_the_limit() {
        let record = JAVA.split_at(298).1;
        assert_eq!(MessageExt::decode(record, 30_000).unwrap().body.len(), 30_000);
        let error = MessageExt::decode(record, 29_999).unwrap_err();
        assert!(matches!(error, MessageError::BodyTooLarge { limit: 29_999 }), "{error}");
        let error = MessageExt::decode(JAVA, 1).unwrap_err();
        assert!(matches!(error, MessageError::BodyTooLarge { limit: 1 }), "{error}");
    }

    #[test]
    fn damaged_or_unknown_compression_is_an_error() {
        let record = JAVA.split_at(298).1;
        let mut damaged = record[..4337].to_vec();
        damaged[100..120].fill(0xFF);
        let error = MessageExt::decode(&damaged, 1 << 20).unwrap_err();
        assert!(matches!(error, MessageError::Decompress { .. }), "{error}");
        let mut zstd = record[..4337].to_vec();
        zstd[38] = 0x02;
        let error = MessageExt::decode(&zstd, 1 << 20).unwrap_err();
        assert!(matches!(error, MessageError::Compression { kind: 2 }), "{error}");
    }

    #[test]
    fn compressed_bodies_come_back() {
        let body = b"body ".repeat(1000);
        let packed = compress(&body, 5).unwrap();
        assert!(packed.len() < 100);
        let mut plain = Vec::new();
        flate2::read::ZlibDecoder::new(&packed[..]).read_to_end(&mut plain).unwrap();
        assert_eq!(plain, body);
    }
}
