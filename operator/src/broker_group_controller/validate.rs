//! From what was read to what may be built.

use super::fetch::Fetched;
use crate::affinity;
use crate::build::Owner;
use crate::build::stateful_set::claim_size;
use crds::quantity::Quantity;
use crds::{BrokerGroup, BrokerGroupSpec, Problem};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Affinity;
use kube::{Resource, ResourceExt};

/// A group that may be built.
#[derive(Clone, Debug)]
pub(super) struct ValidGroup {
    pub(super) owner: Owner,
    /// Its name, which is the BrokerName.
    pub(super) name: String,
    pub(super) spec: BrokerGroupSpec,
    pub(super) affinity: Option<Affinity>,
}

pub(super) fn validate(group: &BrokerGroup, fetched: &Fetched) -> Result<ValidGroup, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut problem = |field: &str, message: String| {
        problems.push(Problem { field: field.to_owned(), message });
    };
    let spec = &group.spec;
    let name = group.name_any();
    if !belongs_to_cluster(group) {
        let cluster = &spec.cluster;
        problem(
            "metadata.ownerReferences",
            format!(
                "it was not made by RocketMQCluster {cluster}: a BrokerGroup is made by the \
                 operator, make a RocketMQCluster instead"
            ),
        );
    }
    if let Some(set) = fetched.set(&name) {
        let (wanted, has) = (Quantity::parse(&spec.storage.size), claim_size(set));
        if wanted < has.as_deref().and_then(Quantity::parse) {
            let has = has.unwrap_or_default();
            problem(
                "spec.storage.size",
                format!("size may only grow: the volume has {has} already"),
            );
        }
        if class(set) != spec.storage.storage_class_name
            && spec.storage.storage_class_name.is_some()
        {
            let has = class(set).unwrap_or_else(|| "the default class".to_owned());
            problem(
                "spec.storage.storageClassName",
                format!("storageClassName cannot be changed: the volume is of {has}"),
            );
        }
    }
    let raw = spec.pod.as_ref().and_then(|pod| pod.affinity.as_ref());
    let affinity = raw.map(affinity::parse).transpose().unwrap_or_else(|message| {
        problem("spec.pod.affinity", message);
        None
    });
    let owner = group.controller_owner_ref(&()).zip(group.namespace());
    match owner {
        Some((reference, namespace)) if problems.is_empty() => Ok(ValidGroup {
            owner: Owner { namespace, cluster: spec.cluster.clone(), reference },
            name,
            spec: spec.clone(),
            affinity,
        }),
        _ => Err(problems),
    }
}

fn belongs_to_cluster(group: &BrokerGroup) -> bool {
    group.owner_references().iter().any(|owner| {
        owner.kind == "RocketMQCluster"
            && owner.name == group.spec.cluster
            && owner.controller == Some(true)
    })
}

/// Storage class of the claim template.
fn class(set: &StatefulSet) -> Option<String> {
    let claims = set.spec.as_ref()?.volume_claim_templates.as_ref()?;
    claims.first()?.spec.as_ref()?.storage_class_name.clone()
}
