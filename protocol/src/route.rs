//! Routes: which brokers serve a topic, and where they are.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Broker id of a master.
pub const MASTER_ID: i64 = 0;

/// The queues of a topic on one broker name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct QueueData {
    pub broker_name: String,
    pub perm: i32,
    pub read_queue_nums: i32,
    pub topic_sys_flag: i32,
    pub write_queue_nums: i32,
}

/// The addresses of one broker name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerData {
    /// Broker id to `host:port`; id 0 is the master.
    pub broker_addrs: BTreeMap<i64, String>,
    /// The name.
    pub broker_name: String,
    /// Its cluster.
    pub cluster: String,
    /// A slave may act for a lost master.
    pub enable_acting_master: bool,
    /// Zone of the broker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone_name: Option<String>,
}

impl BrokerData {
    /// Address of the master, or of any member when there is none.
    pub fn address(&self) -> Option<&str> {
        self.broker_addrs
            .get(&MASTER_ID)
            .or_else(|| self.broker_addrs.values().next())
            .map(String::as_str)
    }
}

/// Body of the answer to `GET_ROUTEINFO_BY_TOPIC`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct TopicRouteData {
    pub broker_datas: Vec<BrokerData>,
    pub filter_server_table: BTreeMap<String, Vec<String>>,
    /// `broker:queues` joined by semicolons, when the topic is ordered across brokers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order_topic_conf: Option<String>,
    pub queue_datas: Vec<QueueData>,
    /// Static topics' mappings, as registered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic_queue_mapping_by_broker: Option<serde_json::Value>,
}

/// Body of the answer to `GET_BROKER_CLUSTER_INFO`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct ClusterInfo {
    pub broker_addr_table: BTreeMap<String, BrokerData>,
    pub cluster_addr_table: BTreeMap<String, BTreeSet<String>>,
}
