//! Everything that there is of a group.

use crate::error::Error;
use crate::{fetch, label};
use crds::BrokerGroup;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use kube::{Client, ResourceExt};

/// Everything that there is of a group.
#[derive(Debug, Default)]
pub(super) struct Fetched {
    pub(super) config_maps: Vec<ConfigMap>,
    pub(super) services: Vec<Service>,
    pub(super) sets: Vec<StatefulSet>,
    pub(super) claims: Vec<PersistentVolumeClaim>,
    pub(super) pods: Vec<Pod>,
    /// Why its pods are not made.
    pub(super) refused: Option<String>,
}

impl Fetched {
    /// Its StatefulSet.
    pub(super) fn set(&self, name: &str) -> Option<&StatefulSet> {
        self.sets.iter().find(|set| set.name_any() == name)
    }
}

pub(super) async fn fetch(group: &BrokerGroup, client: &Client) -> Result<Fetched, Error> {
    let name = group.name_any();
    let namespace = group.namespace().ok_or(Error::Anonymous("a BrokerGroup"))?;
    let labels = label::in_group(&group.spec.cluster, &name);
    let mut fetched = Fetched {
        config_maps: fetch::list(client, &namespace, &labels).await?,
        services: match group.spec.replicas() {
            1 => Vec::new(),
            _ => fetch::list(client, &namespace, &labels).await?,
        },
        sets: fetch::list(client, &namespace, &labels).await?,
        claims: fetch::list(client, &namespace, &labels).await?,
        pods: fetch::list(client, &namespace, &labels).await?,
        refused: None,
    };
    if let Some(set) = fetched.set(&name) {
        fetched.refused = fetch::pods_refused(client, set).await?;
    }
    Ok(fetched)
}
