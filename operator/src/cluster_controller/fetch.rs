//! Everything that there is of a cluster.

use crate::error::Error;
use crate::label::{self, Component};
use crate::{child, fetch};
use crds::{BrokerGroup, RocketMQCluster};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Client, ResourceExt};

/// Everything that there is of a cluster, of its groups too.
#[derive(Debug, Default)]
pub(super) struct Fetched {
    pub(super) service_accounts: Vec<ServiceAccount>,
    pub(super) config_maps: Vec<ConfigMap>,
    pub(super) services: Vec<Service>,
    pub(super) budgets: Vec<PodDisruptionBudget>,
    pub(super) sets: Vec<StatefulSet>,
    pub(super) groups: Vec<BrokerGroup>,
    pub(super) pods: Vec<Pod>,
    /// Why name server pods are not made.
    pub(super) refused: Option<String>,
}

pub(super) async fn fetch(cluster: &RocketMQCluster, client: &Client) -> Result<Fetched, Error> {
    let name = cluster.name_any();
    let namespace = cluster.namespace().ok_or(Error::Anonymous("a RocketMQCluster"))?;
    let labels = label::in_cluster(&name);
    let mut fetched = Fetched {
        service_accounts: fetch::list(client, &namespace, &labels).await?,
        config_maps: fetch::list(client, &namespace, &labels).await?,
        services: fetch::list(client, &namespace, &labels).await?,
        budgets: fetch::list(client, &namespace, &labels).await?,
        sets: fetch::list(client, &namespace, &labels).await?,
        groups: fetch::list(client, &namespace, &labels).await?,
        pods: fetch::list(client, &namespace, &labels).await?,
        refused: None,
    };
    let namesrv = label::component_name(&name, Component::Namesrv);
    if let Some(set) = child::named(&fetched.sets, &namesrv) {
        fetched.refused = fetch::pods_refused(client, set).await?;
    }
    Ok(fetched)
}
