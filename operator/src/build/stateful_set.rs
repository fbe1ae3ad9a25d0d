//! StatefulSets. They make pods and claims; our own roller restarts pods (`roll.rs`), because it
//! knows all pods of a cluster and a StatefulSet knows only its own.

use super::Owner;
use super::pod::DATA_VOLUME;
use crds::{Reclaim, Storage};
use k8s_openapi::api::apps::v1::{
    StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec,
    StatefulSetUpdateStrategy,
};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, PodTemplateSpec, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use std::collections::BTreeMap;

/// Old pod templates that are kept; rollbacks are changes of the RocketMQCluster.
const REVISIONS_KEPT: i32 = 3;

/// What a StatefulSet is made of.
#[derive(Clone, Debug)]
pub struct StatefulSetParts {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What selects its pods.
    pub selector: BTreeMap<String, String>,
    /// The headless Service that names its pods.
    pub service: String,
    /// Number of pods.
    pub replicas: i32,
    /// Its pods.
    pub template: PodTemplateSpec,
    /// The claim of each pod.
    pub storage: Option<Storage>,
}

/// The StatefulSet with these parts.
pub fn stateful_set(owner: &Owner, parts: StatefulSetParts) -> StatefulSet {
    let reclaim = parts.storage.as_ref().and_then(|s| s.reclaim).unwrap_or_default();
    let claims = parts.storage.map(|storage| vec![claim(storage, parts.labels.clone())]);
    let retention = claims.is_some().then(|| StatefulSetPersistentVolumeClaimRetentionPolicy {
        when_deleted: Some(
            match reclaim {
                Reclaim::Retain => "Retain",
                Reclaim::Delete => "Delete",
            }
            .to_owned(),
        ),
        when_scaled: Some("Retain".to_owned()),
    });
    StatefulSet {
        metadata: owner.metadata(parts.name, parts.labels),
        spec: Some(StatefulSetSpec {
            service_name: Some(parts.service),
            replicas: Some(parts.replicas),
            selector: LabelSelector {
                match_labels: Some(parts.selector),
                ..LabelSelector::default()
            },
            template: parts.template,
            // One pod that cannot start must not keep others from starting.
            pod_management_policy: Some("Parallel".to_owned()),
            update_strategy: Some(StatefulSetUpdateStrategy {
                type_: Some("OnDelete".to_owned()),
                ..StatefulSetUpdateStrategy::default()
            }),
            revision_history_limit: Some(REVISIONS_KEPT),
            volume_claim_templates: claims,
            persistent_volume_claim_retention_policy: retention,
            ..StatefulSetSpec::default()
        }),
        ..StatefulSet::default()
    }
}

fn claim(storage: Storage, labels: BTreeMap<String, String>) -> PersistentVolumeClaim {
    let size = BTreeMap::from([("storage".to_owned(), Quantity(storage.size))]);
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(DATA_VOLUME.to_owned()),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: storage.storage_class_name,
            resources: Some(VolumeResourceRequirements {
                requests: Some(size),
                ..VolumeResourceRequirements::default()
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    }
}

/// Size that the claim template of a StatefulSet asks for.
pub fn claim_size(set: &StatefulSet) -> Option<String> {
    let claims = set.spec.as_ref()?.volume_claim_templates.as_ref()?;
    requested(claims.first()?)
}

/// Size that a claim asks for.
pub fn requested(claim: &PersistentVolumeClaim) -> Option<String> {
    let requests = claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?;
    requests.get("storage").map(|size| size.0.clone())
}

/// Sets the size that the claim template asks for.
pub fn set_claim_size(set: &mut StatefulSet, size: &str) {
    let claims = set.spec.as_mut().and_then(|spec| spec.volume_claim_templates.as_mut());
    for claim in claims.into_iter().flatten() {
        if let Some(resources) = claim.spec.as_mut().and_then(|spec| spec.resources.as_mut()) {
            let requests = resources.requests.get_or_insert_default();
            requests.insert("storage".to_owned(), Quantity(size.to_owned()));
        }
    }
}
