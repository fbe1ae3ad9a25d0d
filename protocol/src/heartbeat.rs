//! Heartbeats of clients.

use serde::{Deserialize, Serialize};

use crate::subscription::SubscriptionData;

/// Who asks for messages: the client or, for it, the library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum ConsumeType {
    #[serde(rename = "CONSUME_ACTIVELY")]
    Actively,
    #[default]
    #[serde(rename = "CONSUME_PASSIVELY")]
    Passively,
    #[serde(rename = "CONSUME_POP")]
    Pop,
}

/// Whether the members of a group share the messages or each get all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs)]
pub enum MessageModel {
    Broadcasting,
    #[default]
    Clustering,
}

/// Where a group starts that has no offset yet. The names of old clients map to the last offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum ConsumeFromWhere {
    #[default]
    #[serde(
        rename = "CONSUME_FROM_LAST_OFFSET",
        alias = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        alias = "CONSUME_FROM_MIN_OFFSET",
        alias = "CONSUME_FROM_MAX_OFFSET"
    )]
    LastOffset,
    #[serde(rename = "CONSUME_FROM_FIRST_OFFSET")]
    FirstOffset,
    #[serde(rename = "CONSUME_FROM_TIMESTAMP")]
    Timestamp,
}

/// A producer group of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct ProducerData {
    pub group_name: String,
}

/// A consumer group of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct ConsumerData {
    pub consume_from_where: ConsumeFromWhere,
    pub consume_type: ConsumeType,
    pub group_name: String,
    pub message_model: MessageModel,
    pub subscription_data_set: Vec<SubscriptionData>,
    pub unit_mode: bool,
}

/// Body of `HEART_BEAT`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct HeartbeatData {
    #[serde(rename = "clientID")]
    pub client_id: String,
    pub consumer_data_set: Vec<ConsumerData>,
    /// Hash of the content, the same while the subscriptions do not change.
    pub heartbeat_fingerprint: i32,
    pub producer_data_set: Vec<ProducerData>,
    /// The subscriptions were left out since the broker knows them by the fingerprint.
    pub without_sub: bool,
}
