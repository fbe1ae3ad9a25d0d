//! Topics.

use std::collections::{BTreeMap, BTreeSet};

use super::body;
use crate::data_version::DataVersion;
use crate::topic_config::TopicConfig;

body! {
    /// Names of topics, with the address of a broker for system topics.
    pub struct TopicList {
        #[serde(skip_serializing_if = "Option::is_none")]
        broker_addr: Option<String>,
        topic_list: BTreeSet<String>,
    }

    /// `topics.json`, the answer to `GET_ALL_TOPIC_CONFIG`, and a part of registrations.
    pub struct TopicConfigTable {
        data_version: DataVersion,
        topic_config_table: BTreeMap<String, TopicConfig>,
    }

    /// Body of `UPDATE_AND_CREATE_TOPIC_LIST`.
    pub struct CreateTopicList {
        topic_config_list: Vec<TopicConfig>,
    }

    /// One unit of a consume queue in the answer to `QUERY_CONSUME_QUEUE`.
    pub struct ConsumeQueueData {
        eval: bool,
        physic_offset: i64,
        physic_size: i32,
        tags_code: i64,
    }

    /// Answer to `QUERY_CONSUME_QUEUE`.
    pub struct QueryConsumeQueueResponse {
        max_queue_index: i64,
        min_queue_index: i64,
        queue_data: Vec<ConsumeQueueData>,
    }
}
