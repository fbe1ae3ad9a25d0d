//! Settings of a topic on one broker.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::perm;

/// How many tags a message of the topic may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs)]
pub enum TopicFilterType {
    #[default]
    SingleTag,
    MultiTag,
}

impl TopicFilterType {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::SingleTag => "SINGLE_TAG",
            Self::MultiTag => "MULTI_TAG",
        }
    }

    /// From the name on the wire.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "SINGLE_TAG" => Some(Self::SingleTag),
            "MULTI_TAG" => Some(Self::MultiTag),
            _ => None,
        }
    }
}

/// Settings of a topic on one broker, as in `topics.json` and in registrations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicConfig {
    /// Attributes such as `message.type`; keys without the sign of the change request.
    pub attributes: BTreeMap<String, String>,
    /// Messages of one queue are meant to be consumed in order.
    pub order: bool,
    /// Bits of [`crate::perm`].
    pub perm: i32,
    /// Queues that consumers read.
    pub read_queue_nums: i32,
    /// How many tags a message may have.
    pub topic_filter_type: TopicFilterType,
    /// Name of the topic.
    #[serde(deserialize_with = "null_as_default")]
    pub topic_name: String,
    /// Bit 0: unit, bit 1: has unit subscriptions.
    pub topic_sys_flag: i32,
    /// Queues that producers write.
    pub write_queue_nums: i32,
}

fn null_as_default<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.unwrap_or_default())
}

impl Default for TopicConfig {
    fn default() -> Self {
        Self {
            attributes: BTreeMap::new(),
            order: false,
            perm: perm::READ | perm::WRITE,
            read_queue_nums: 16,
            topic_filter_type: TopicFilterType::SingleTag,
            topic_name: String::new(),
            topic_sys_flag: 0,
            write_queue_nums: 16,
        }
    }
}

impl TopicConfig {
    /// A topic with as many read as write queues.
    pub fn new(topic_name: impl Into<String>, queue_nums: i32, perm: i32) -> Self {
        Self {
            topic_name: topic_name.into(),
            read_queue_nums: queue_nums,
            write_queue_nums: queue_nums,
            perm,
            ..Self::default()
        }
    }
}
