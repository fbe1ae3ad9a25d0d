//! `BrokerGroup`: one BrokerName of a cluster. The operator writes it; people read it.

use crate::election_record::ElectionRecord;
use crate::pod_settings::{ImagePullPolicy, PodSettings, PullSecret};
use crate::resources::Resources;
use crate::rocketmq_cluster::{Flush, no_default};
use crate::storage::Storage;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What should run of the group.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "rocketmq.rs",
    version = "v1alpha1",
    kind = "BrokerGroup",
    plural = "brokergroups",
    namespaced,
    status = "BrokerGroupStatus",
    shortname = "rmqbg",
    category = "rocketmq",
    derive = "PartialEq",
    doc = "One BrokerName of a RocketMQCluster; its name is the BrokerName. Made by the operator: \
           change the RocketMQCluster instead.",
    validation = (
        "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && \
         size(self.metadata.name) <= 52",
        "a BrokerGroup is made by the operator: make a RocketMQCluster"
    ),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster"),
    printcolumn(name = "Master", type_ = "string", json_path = ".status.master"),
    printcolumn(name = "Epoch", type_ = "integer", json_path = ".status.election.masterEpoch"),
    printcolumn(name = "In-Sync", type_ = "string", json_path = ".status.election.syncStateSet"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Message",
        type_ = "string",
        priority = 1,
        json_path = r#".status.conditions[?(@.type=="Ready")].message"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct BrokerGroupSpec {
    /// The RocketMQCluster that it belongs to.
    #[schemars(length(min = 1, max = 40))]
    #[x_kube(validation = ("self == oldSelf", "cluster cannot be changed"))]
    pub cluster: String,
    /// Where the brokers find the name servers, as `namesrvAddr` in broker.conf.
    #[schemars(length(min = 1, max = 2048))]
    pub name_server_address: String,
    /// Image of the brokers.
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))]
    pub image: String,
    /// When images are pulled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// Secrets of this namespace with registry credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub image_pull_secrets: Option<Vec<PullSecret>>,
    /// When a message counts as stored.
    pub flush: Flush,
    /// Brokers of the group. The master of several is elected. Absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 5))]
    pub replicas: Option<i32>,
    /// The volume of each broker.
    pub storage: Storage,
    /// Lines of broker.conf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::broker_config::schema")]
    pub config: Option<BTreeMap<String, String>>,
    /// CPU and memory of each broker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Where and how the pods run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodSettings>,
}

/// What runs of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BrokerGroupStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What the group is doing, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Pod of the master, when it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<String>,
    /// Address that the master tells clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Size of the volume that there is, which follows `spec.storage.size` once it has grown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The record of elections, for a group of several brokers. The operator lives by it: never
    /// change it by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub election: Option<ElectionRecord>,
    /// `Ready`, `Progressing` and `Degraded`, as in the RocketMQCluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), transform = no_default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

impl BrokerGroupSpec {
    /// Brokers of the group.
    pub fn replicas(&self) -> i32 {
        self.replicas.unwrap_or(1)
    }

    /// Brokers that must have a message before it is acknowledged.
    pub fn min_in_sync(&self) -> usize {
        let value = self.config.as_ref().and_then(|config| config.get("minInSyncReplicas"));
        value.and_then(|value| value.trim().parse().ok()).unwrap_or(1)
    }
}

/// What a group is doing: `Starting` its broker is not ready yet, `Serving` it serves as the spec
/// says, `Degraded` it serves but not all its brokers are there, `Outdated` it serves but waits for
/// a restart to take up a change, `Failed` it cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub enum Phase {
    Starting,
    Serving,
    Degraded,
    Outdated,
    Failed,
}
