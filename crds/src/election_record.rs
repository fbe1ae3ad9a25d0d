//! The record of a group whose master is elected, as it is kept in the status of a BrokerGroup and
//! in a file of local mode. Elections alone write it, by compare-and-swap.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Who is master, and who could be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ElectionRecord {
    /// Number of the mastership: it rises with each election.
    pub master_epoch: i32,
    /// Number of the master; absent while there is none. A broker's number is one more than that of
    /// its pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<i64>,
    /// Numbers of the brokers that have all that was acknowledged.
    #[schemars(with = "Vec<i64>", length(max = 16))]
    pub sync_state_set: BTreeSet<i64>,
    /// Number of changes of the set.
    pub sync_state_set_epoch: i32,
    /// The brokers that have registered, by their numbers.
    pub replicas: BTreeMap<String, ReplicaJson>,
    /// What the group can do.
    pub phase: String,
    /// Epoch at which the loss of messages was accepted; 0 if it never was.
    #[serde(default)]
    #[schemars(transform = crate::rocketmq_cluster::no_default)]
    pub loss_epoch: i32,
    /// The last elections, oldest first.
    #[schemars(length(max = 64))]
    pub history: Vec<ElectionJson>,
}

/// A broker of the group: where it is, and which disk and process it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaJson {
    /// Where clients reach it.
    pub address: String,
    /// Where slaves get the log.
    pub ha_address: String,
    /// Made with the store: another one is another disk.
    pub store_id: String,
    /// How often the store was opened: less than before is an old copy of the disk.
    #[schemars(with = "i64")]
    pub open_count: u64,
    /// The process.
    pub incarnation: String,
    /// What the disk had at least, by the last look: the epoch of its last message ...
    pub floor_epoch: i32,
    /// ... and the end of its log in bytes.
    pub floor_offset: i64,
    /// Whether the end of its log may lack what was acknowledged, after the machine went down.
    #[serde(default)]
    #[schemars(transform = crate::rocketmq_cluster::no_default)]
    pub tail_in_doubt: bool,
}

/// One election.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ElectionJson {
    /// Its epoch.
    pub epoch: i32,
    /// Who was elected.
    pub master: i64,
    /// Who was master before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<i64>,
    /// Why.
    pub reason: String,
}
