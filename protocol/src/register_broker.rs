//! Body of `REGISTER_BROKER`, plain JSON or compressed.
//!
//! The compressed form is a zlib stream of length-prefixed (i32) texts: data version, number of
//! topics, each topic as six words, filter servers, and from 5.0 on the queue mappings.

use std::io::Read;

use flate2::read::ZlibDecoder;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::body::TopicConfigTable;
use crate::data_version::DataVersion;
use crate::json::{self, JsonError};
use crate::topic_config::{TopicConfig, TopicFilterType};

/// Inflated size that is read at most: 64 MiB, some 500,000 topics.
pub const MAX_INFLATED_BYTES: usize = 64 * 1024 * 1024;

/// Version of the first Java broker that sends a table inside a body (`V3_0_11`); older ones send
/// the table alone.
pub const FIRST_VERSION_WITH_BODY: i32 = 37;

/// First byte of a zlib stream. Java 5 compresses and still says `compressed=false`.
const ZLIB_MAGIC: u8 = 0x78;

/// What a broker says of itself beyond the header.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct RegisterBrokerBody {
    pub filter_server_list: Vec<String>,
    pub topic_config_serialize_wrapper: TopicConfigTable,
}

/// Why a registration cannot be read.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum RegisterBrokerError {
    #[error("crc32 not match: the header says {header}, the body has {body}")]
    Crc { header: i32, body: i32 },
    #[error(transparent)]
    Json(#[from] JsonError),
    #[error("the compressed body is damaged: {0}")]
    Inflate(std::io::Error),
    #[error("the compressed body inflates to more than {MAX_INFLATED_BYTES} bytes")]
    TooLarge,
    #[error("the compressed body ends inside {0}")]
    Truncated(&'static str),
    #[error("the compressed body has the topic {0:?}, which is not six words")]
    Topic(String),
}

impl RegisterBrokerBody {
    /// Reads the body of a registration that a broker of `version` sent.
    ///
    /// # Errors
    /// When the checksum does not match or the body is damaged.
    pub fn decode(body: &[u8], version: i32, crc32: i32) -> Result<Self, RegisterBrokerError> {
        let found = checksum(body);
        if crc32 != 0 && crc32 != found {
            return Err(RegisterBrokerError::Crc { header: crc32, body: found });
        }
        match body.first() {
            None => Ok(Self::default()),
            Some(&ZLIB_MAGIC) => decode_compressed(body),
            Some(_) if version < FIRST_VERSION_WITH_BODY => Ok(Self {
                topic_config_serialize_wrapper: json::from_slice(body)?,
                ..Self::default()
            }),
            Some(_) => Ok(json::from_slice(body)?),
        }
    }
}

/// CRC-32 as registrations carry it, without the top bit.
pub fn checksum(body: &[u8]) -> i32 {
    i32::try_from(crc32fast::hash(body) & 0x7FFF_FFFF).unwrap_or(i32::MAX)
}

fn decode_compressed(body: &[u8]) -> Result<RegisterBrokerBody, RegisterBrokerError> {
    let mut inflated = Vec::new();
    ZlibDecoder::new(body)
        .take(MAX_INFLATED_BYTES as u64 + 1)
        .read_to_end(&mut inflated)
        .map_err(RegisterBrokerError::Inflate)?;
    if inflated.len() > MAX_INFLATED_BYTES {
        return Err(RegisterBrokerError::TooLarge);
    }
    let mut input = inflated.as_slice();
    let data_version: DataVersion = json::from_slice(block(&mut input, "the data version")?)?;
    let mut table = TopicConfigTable { data_version, ..TopicConfigTable::default() };
    for _ in 0..int(&mut input, "the number of topics")? {
        let topic = topic_config(block(&mut input, "a topic")?)?;
        table.topic_config_table.insert(topic.topic_name.clone(), topic);
    }
    let filter_server_list = json::from_slice(block(&mut input, "the filter servers")?)?;
    Ok(RegisterBrokerBody { filter_server_list, topic_config_serialize_wrapper: table })
}

fn int(input: &mut &[u8], what: &'static str) -> Result<i32, RegisterBrokerError> {
    let (head, rest) =
        input.split_first_chunk::<4>().ok_or(RegisterBrokerError::Truncated(what))?;
    *input = rest;
    Ok(i32::from_be_bytes(*head))
}

fn block<'a>(input: &mut &'a [u8], what: &'static str) -> Result<&'a [u8], RegisterBrokerError> {
    let length = usize::try_from(int(input, what)?);
    let length = length.map_err(|_| RegisterBrokerError::Truncated(what))?;
    let (head, rest) =
        input.split_at_checked(length).ok_or(RegisterBrokerError::Truncated(what))?;
    *input = rest;
    Ok(head)
}

/// `name readQueues writeQueues perm filterType [attributes]`.
fn topic_config(text: &[u8]) -> Result<TopicConfig, RegisterBrokerError> {
    let text = String::from_utf8_lossy(text);
    let wrong = || RegisterBrokerError::Topic(text.chars().take(80).collect());
    let mut words = text.splitn(6, ' ');
    let mut word = || words.next().ok_or_else(wrong);
    let topic_name = word()?.to_owned();
    let read_queue_nums = word()?.parse().map_err(|_| wrong())?;
    let write_queue_nums = word()?.parse().map_err(|_| wrong())?;
    let perm = word()?.parse().map_err(|_| wrong())?;
    let topic_filter_type = TopicFilterType::from_name(word()?).ok_or_else(wrong)?;
    let attributes = match words.next() {
        Some(attributes) if !attributes.is_empty() => json::from_slice(attributes.as_bytes())?,
        _ => Default::default(),
    };
    Ok(TopicConfig {
        topic_name,
        read_queue_nums,
        write_queue_nums,
        perm,
        topic_filter_type,
        attributes,
        ..TopicConfig::default()
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;

    use super::*;

    fn compressed(parts: &[&str], topics: i32) -> Vec<u8> {
        let mut plain = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            if at == 1 {
                plain.extend(topics.to_be_bytes());
            }
            plain.extend(i32::try_from(part.len()).unwrap().to_be_bytes());
            plain.extend(part.bytes());
        }
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&plain).unwrap();
        encoder.finish().unwrap()
    }

    const VERSION: &str = r#"{"counter":2,"stateVersion":0,"timestamp":3}"#;

    #[test]
    fn reads_the_compressed_form() {
        let parts = [VERSION, "T 4 8 6 SINGLE_TAG {\"a\":\"b\"}", "U 1 1 2 MULTI_TAG", "[]"];
        let body = compressed(&parts, 2);
        let read = RegisterBrokerBody::decode(&body, 479, checksum(&body)).unwrap();
        let table = read.topic_config_serialize_wrapper;
        assert_eq!((table.data_version.counter, table.topic_config_table.len()), (2, 2));
        let topic = &table.topic_config_table["T"];
        assert_eq!((topic.read_queue_nums, topic.write_queue_nums, topic.perm), (4, 8, 6));
        assert_eq!(topic.attributes["a"], "b");
    }

    #[test]
    fn reads_plain_json_of_new_and_old_brokers() {
        let table =
            r#"{"dataVersion":{"counter":1},"topicConfigTable":{"T":{"topicName":"T","perm":6}}}"#;
        let body = format!(r#"{{"filterServerList":[],"topicConfigSerializeWrapper":{table}}}"#);
        let read = RegisterBrokerBody::decode(body.as_bytes(), 479, 0).unwrap();
        let old = RegisterBrokerBody::decode(table.as_bytes(), 30, 0).unwrap();
        assert_eq!(read, old);
        assert_eq!(read.topic_config_serialize_wrapper.topic_config_table["T"].perm, 6);
        assert_eq!(RegisterBrokerBody::decode(b"", 479, 0).unwrap(), Default::default());
    }

    #[test]
    fn damage_is_named() {
        let check = |body: &[u8], crc: i32, part: &str| {
            let error = RegisterBrokerBody::decode(body, 479, crc).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        check(b"{}", 1, "crc32 not match");
        check(&compressed(&[VERSION, "T 4 8"], 1), 0, "not six words");
        check(&compressed(&[VERSION, "T 4 8 6 SINGLE_TAG"], 9), 0, "ends inside");
        check(&compressed(&[VERSION], 1)[..9], 0, "damaged");
        check(b"{", 0, "not valid JSON");
    }
}
