//! `RocketMQCluster`: what a person writes.

use crate::pod_settings::{ImagePullPolicy, PodSettings, PullSecret};
use crate::resources::Resources;
use crate::storage::Storage;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Longest name, so that the names of pods and their revision labels fit into 63 characters.
pub const NAME_CHARS_MAX: usize = 40;
/// Most broker groups of a cluster.
pub const GROUPS_MAX: i32 = 64;
/// Most name servers of a cluster.
pub const NAME_SERVERS_MAX: i32 = 9;
/// Most brokers of a group.
pub const REPLICAS_MAX: i32 = 5;
/// Name servers of a cluster that says nothing about them.
pub const NAME_SERVERS_DEFAULT: i32 = 2;

pub(crate) const NAME_LENGTH_MESSAGE: &str =
    "metadata.name must be at most 40 characters, so that the names of its pods fit";
pub(crate) const NAME_FORM_MESSAGE: &str = "metadata.name must start with a lower case letter and \
                                            have only lower case letters, digits and '-'";
pub(crate) const FEWER_REPLICAS_MESSAGE: &str = "replicas must not become fewer in this version: \
                                                 the messages of a removed broker may be needed";
pub(crate) const MIN_IN_SYNC_MESSAGE: &str =
    "config.minInSyncReplicas must not be above replicas: no message would ever be taken";
pub(crate) const FEWER_GROUPS_MESSAGE: &str =
    "groups must not become fewer: the messages of a removed group would be lost";

/// What should run.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "rocketmq.rs",
    version = "v1alpha1",
    kind = "RocketMQCluster",
    plural = "rocketmqclusters",
    namespaced,
    status = "RocketMQClusterStatus",
    shortname = "rmq",
    category = "rocketmq",
    derive = "PartialEq",
    doc = "A RocketMQ cluster: name servers and groups of brokers.",
    validation = ("size(self.metadata.name) <= 40", NAME_LENGTH_MESSAGE),
    validation = ("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')", NAME_FORM_MESSAGE),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Groups", type_ = "string", json_path = ".status.brokers.groups"),
    printcolumn(name = "Masters", type_ = "string", json_path = ".status.brokers.masters"),
    printcolumn(name = "NameServers", type_ = "string", json_path = ".status.nameServers.address"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Message",
        type_ = "string",
        priority = 1,
        json_path = r#".status.conditions[?(@.type=="Ready")].message"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct RocketMQClusterSpec {
    /// Name servers. Absent: two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_server: Option<NameServerSpec>,
    /// Brokers.
    pub brokers: BrokersSpec,
    /// When images are pulled. Absent: Kubernetes' rule (Always for `:latest`, else IfNotPresent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// Secrets of this namespace with registry credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub image_pull_secrets: Option<Vec<PullSecret>>,
}

/// Name servers: they know which broker has which topic. They keep no messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NameServerSpec {
    /// How many name servers. Absent: 2. Changing it restarts no broker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 9))]
    pub replicas: Option<i32>,
    /// Image of the name servers. Absent: the operator's own choice, which may change when the
    /// operator is upgraded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))]
    pub image: Option<String>,
    /// CPU and memory of each name server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Where and how their pods run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodSettings>,
}

/// Brokers: they keep the messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = (
    "!has(self.config) || !('minInSyncReplicas' in self.config) || \
     !self.config['minInSyncReplicas'].matches('^[0-9]{1,9}$') || \
     int(self.config['minInSyncReplicas']) <= (has(self.replicas) ? self.replicas : 1)",
    MIN_IN_SYNC_MESSAGE
))]
pub struct BrokersSpec {
    /// How many broker groups. Each is one BrokerName, `<cluster>-0` and so on. It may only grow.
    #[schemars(range(min = 1, max = 64))]
    #[x_kube(validation = ("self >= oldSelf", FEWER_GROUPS_MESSAGE))]
    pub groups: i32,
    /// Brokers of each group: one master, which is elected, and its slaves. Absent: 1. It may only
    /// grow. A message is acknowledged when all slaves that are in sync have it, and
    /// `config.minInSyncReplicas` (absent: 1) brokers at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 5))]
    #[x_kube(validation = ("self >= oldSelf", FEWER_REPLICAS_MESSAGE))]
    pub replicas: Option<i32>,
    /// When a message counts as stored. Absent: `Async`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush: Option<Flush>,
    /// The volume of each broker.
    pub storage: Storage,
    /// Lines of broker.conf. A change restarts the brokers, one at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::broker_config::schema")]
    pub config: Option<BTreeMap<String, String>>,
    /// Image of the brokers. Absent: the operator's own choice, which may change when the operator
    /// is upgraded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))]
    pub image: Option<String>,
    /// CPU and memory of each broker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Where and how their pods run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodSettings>,
}

/// When a message counts as stored: `Async` once it is in memory (a crash of the machine may lose
/// the last moments), `Sync` once it is on the disk.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub enum Flush {
    #[default]
    Async,
    Sync,
}

impl RocketMQClusterSpec {
    /// Number of name servers.
    pub fn name_servers(&self) -> i32 {
        self.name_server.as_ref().and_then(|n| n.replicas).unwrap_or(NAME_SERVERS_DEFAULT)
    }

    /// Number of brokers of each group.
    pub fn replicas(&self) -> i32 {
        self.brokers.replicas.unwrap_or(1)
    }
}

/// What runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RocketMQClusterStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The name servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_servers: Option<NameServersStatus>,
    /// The brokers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brokers: Option<BrokersStatus>,
    /// `Ready`: everything serves. `Progressing`: what runs is on its way to what the spec says.
    /// `Degraded`: something is wrong, in one sentence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), transform = no_default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// The name servers that run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NameServersStatus {
    /// Where clients connect: one name for all name servers.
    pub address: String,
    /// Every name server by its own name, joined by `;`, as clients' `namesrvAddr` takes it.
    pub addresses: String,
    /// How many are ready of how many, as `2/2`.
    pub ready: String,
    /// Image that they should run.
    pub image: String,
}

/// The brokers that run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BrokersStatus {
    /// How many groups are ready of how many, as `2/2`.
    pub groups: String,
    /// How many groups have a master that serves, as `2/2`.
    pub masters: String,
    /// Image that they should run.
    pub image: String,
}

/// An absent list means the same as an empty one, without a default in the schema.
pub(crate) fn no_default(schema: &mut schemars::Schema) {
    schema.remove("default");
}
