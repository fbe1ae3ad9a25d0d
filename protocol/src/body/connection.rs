//! Who is connected.

use std::collections::BTreeMap;

use super::body;
use crate::heartbeat::{ConsumeFromWhere, ConsumeType, MessageModel};
use crate::subscription::SubscriptionData;

body! {
    /// One client of a group.
    pub struct Connection {
        client_addr: String,
        client_id: String,
        /// Name as in [`crate::command::LanguageCode::name`].
        language: String,
        version: i32,
    }

    /// Answer to `GET_CONSUMER_CONNECTION_LIST`.
    pub struct ConsumerConnection {
        connection_set: Vec<Connection>,
        consume_from_where: ConsumeFromWhere,
        consume_type: ConsumeType,
        message_model: MessageModel,
        subscription_table: BTreeMap<String, SubscriptionData>,
    }

    /// Answer to `GET_PRODUCER_CONNECTION_LIST`.
    pub struct ProducerConnection {
        connection_set: Vec<Connection>,
    }

    /// Answer to `GET_CONSUMER_LIST_BY_GROUP`.
    pub struct ConsumerList {
        consumer_id_list: Vec<String>,
    }

    /// One producer in the answer to `GET_ALL_PRODUCER_INFO`.
    pub struct ProducerInfo {
        client_id: String,
        language: String,
        last_update_timestamp: i64,
        #[serde(rename = "remoteIP")]
        remote_ip: String,
        version: i32,
    }

    /// Answer to `GET_ALL_PRODUCER_INFO`: producers by group.
    pub struct ProducerTableInfo {
        data: BTreeMap<String, Vec<ProducerInfo>>,
    }

    /// Body of `CHECK_CLIENT_CONFIG`.
    pub struct CheckClientRequest {
        client_id: String,
        group: String,
        namespace: Option<String>,
        subscription_data: SubscriptionData,
    }
}
