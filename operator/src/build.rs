//! Kubernetes objects from values: pure, so that each can be read in a snapshot.

pub mod config_map;
pub mod pod;
pub mod pod_disruption_budget;
pub mod service;
pub mod service_account;
pub mod stateful_set;

use crate::label;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::BTreeMap;

/// To whom an object belongs.
#[derive(Clone, Debug)]
pub struct Owner {
    /// Namespace of the owner and of what it owns.
    pub namespace: String,
    /// Name of the RocketMQCluster.
    pub cluster: String,
    /// The resource that controls the object.
    pub reference: OwnerReference,
}

impl Owner {
    /// Metadata of an object of this owner.
    pub fn metadata(&self, name: String, labels: BTreeMap<String, String>) -> ObjectMeta {
        ObjectMeta {
            name: Some(name),
            namespace: Some(self.namespace.clone()),
            labels: Some(labels),
            owner_references: Some(vec![self.reference.clone()]),
            ..ObjectMeta::default()
        }
    }

    /// DNS name of a headless Service of this namespace.
    pub fn service_host(&self, component: label::Component) -> String {
        let service = label::component_name(&self.cluster, component);
        format!("{service}.{}.svc", self.namespace)
    }
}
