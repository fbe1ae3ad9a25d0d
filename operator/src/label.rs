//! Names and labels of the objects that belong to a cluster.
//!
//! Selectors of StatefulSets cannot be changed, so neither can what is here.

use std::collections::BTreeMap;

/// Field manager of every server-side apply.
pub const FIELD_MANAGER: &str = "rocketmq-operator";
/// The RocketMQCluster that an object belongs to.
pub const CLUSTER: &str = "rocketmq.rs/cluster";
/// The BrokerGroup that an object belongs to.
pub const BROKER_GROUP: &str = "rocketmq.rs/broker-group";
/// Hash of the configuration that a pod was started with.
pub const CONFIG_HASH: &str = "rocketmq.rs/config-hash";
/// Hash of an object as it was last applied.
pub const APPLIED_HASH: &str = "rocketmq.rs/applied-hash";
/// `master` or `slave`, at the pods of a group whose master is elected.
pub const ROLE: &str = "rocketmq.rs/role";
/// The pod that a person wants to be master, at a BrokerGroup.
pub const PROMOTE: &str = "rocketmq.rs/promote";
/// `namesrv` or `broker`.
pub const COMPONENT: &str = "app.kubernetes.io/component";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// What a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    /// A name server.
    Namesrv,
    /// A broker.
    Broker,
}

impl Component {
    /// Its name in labels and object names.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Namesrv => "namesrv",
            Self::Broker => "broker",
        }
    }
}

/// Name of the objects of a component: `orders-namesrv`, `orders-broker`.
pub fn component_name(cluster: &str, component: Component) -> String {
    format!("{cluster}-{}", component.as_str())
}

/// Name of a broker group, which is its BrokerName.
pub fn group_name(cluster: &str, index: i32) -> String {
    format!("{cluster}-{index}")
}

/// Name of the service account of all pods of a cluster.
pub fn service_account_name(cluster: &str) -> String {
    format!("{cluster}-rocketmq")
}

/// Labels of every object of a cluster.
pub fn cluster_labels(cluster: &str) -> BTreeMap<String, String> {
    [
        ("app.kubernetes.io/name", "rocketmq"),
        ("app.kubernetes.io/instance", cluster),
        (MANAGED_BY, FIELD_MANAGER),
        (CLUSTER, cluster),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect()
}

/// Labels of the objects of a component.
pub fn component_labels(cluster: &str, component: Component) -> BTreeMap<String, String> {
    let mut labels = cluster_labels(cluster);
    labels.insert(COMPONENT.to_owned(), component.as_str().to_owned());
    labels
}

/// Labels of the objects of a broker group.
pub fn group_labels(cluster: &str, group: &str) -> BTreeMap<String, String> {
    let mut labels = component_labels(cluster, Component::Broker);
    labels.insert(BROKER_GROUP.to_owned(), group.to_owned());
    labels
}

/// What selects the pods of a component.
pub fn component_selector(cluster: &str, component: Component) -> BTreeMap<String, String> {
    [(CLUSTER, cluster), (COMPONENT, component.as_str())]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// What selects the pods of a broker group.
pub fn group_selector(cluster: &str, group: &str) -> BTreeMap<String, String> {
    let mut selector = component_selector(cluster, Component::Broker);
    selector.insert(BROKER_GROUP.to_owned(), group.to_owned());
    selector
}

/// Watch selector of everything that the operator made.
pub fn managed_selector() -> String {
    format!("{MANAGED_BY}={FIELD_MANAGER}")
}

/// List selector of everything of a cluster.
pub fn in_cluster(cluster: &str) -> String {
    format!("{MANAGED_BY}={FIELD_MANAGER},{CLUSTER}={cluster}")
}

/// List selector of everything of a broker group.
pub fn in_group(cluster: &str, group: &str) -> String {
    format!("{},{BROKER_GROUP}={group}", in_cluster(cluster))
}
