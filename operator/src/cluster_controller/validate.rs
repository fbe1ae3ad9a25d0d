//! From what was read to what may be built.

use super::fetch::Fetched;
use crate::affinity;
use crate::build::Owner;
use crate::context::Images;
use crate::label;
use crds::quantity::Quantity;
use crds::{BrokersSpec, PodSettings, Problem, PullSecret, Resources, RocketMQCluster, problems};
use k8s_openapi::api::core::v1::Affinity;
use kube::{Resource, ResourceExt};

/// A cluster that may be built.
#[derive(Clone, Debug)]
pub(super) struct ValidCluster {
    pub(super) owner: Owner,
    pub(super) name_servers: i32,
    pub(super) namesrv_image: String,
    pub(super) namesrv_resources: Option<Resources>,
    pub(super) namesrv_pod: PodSettings,
    pub(super) namesrv_affinity: Option<Affinity>,
    pub(super) broker_image: String,
    pub(super) brokers: BrokersSpec,
    pub(super) image_pull_policy: Option<crds::ImagePullPolicy>,
    pub(super) image_pull_secrets: Option<Vec<PullSecret>>,
}

pub(super) fn validate(
    cluster: &RocketMQCluster,
    fetched: &Fetched,
    images: &Images,
) -> Result<ValidCluster, Vec<Problem>> {
    let mut found = problems(cluster);
    found.extend(against_what_is(cluster, fetched));
    let spec = &cluster.spec;
    let name_server = spec.name_server.clone().unwrap_or_default();
    let namesrv_pod = name_server.pod.unwrap_or_default();
    let namesrv_affinity = read_affinity(&namesrv_pod, "spec.nameServer", &mut found);
    let broker_pod = spec.brokers.pod.clone().unwrap_or_default();
    read_affinity(&broker_pod, "spec.brokers", &mut found);
    let owner = cluster.controller_owner_ref(&()).zip(cluster.namespace());
    match owner {
        Some((reference, namespace)) if found.is_empty() => Ok(ValidCluster {
            owner: Owner { namespace, cluster: cluster.name_any(), reference },
            name_servers: spec.name_servers(),
            namesrv_image: name_server.image.unwrap_or_else(|| images.namesrv.clone()),
            namesrv_resources: name_server.resources,
            namesrv_pod,
            namesrv_affinity,
            broker_image: spec.brokers.image.clone().unwrap_or_else(|| images.broker.clone()),
            brokers: spec.brokers.clone(),
            image_pull_policy: spec.image_pull_policy,
            image_pull_secrets: spec.image_pull_secrets.clone(),
        }),
        _ => Err(found),
    }
}

fn read_affinity(pod: &PodSettings, at: &str, found: &mut Vec<Problem>) -> Option<Affinity> {
    match pod.affinity.as_ref().map(affinity::parse)? {
        Ok(affinity) => Some(affinity),
        Err(message) => {
            found.push(Problem { field: format!("{at}.pod.affinity"), message });
            None
        }
    }
}

/// What the CRD refuses too, unless it is older than the operator or the resource was made anew
/// while objects of the old one were still there.
fn against_what_is(cluster: &RocketMQCluster, fetched: &Fetched) -> Vec<Problem> {
    let mut found = Vec::new();
    let brokers = &cluster.spec.brokers;
    let wanted: Vec<_> =
        (0..brokers.groups).map(|index| label::group_name(&cluster.name_any(), index)).collect();
    let surplus = fetched.groups.iter().map(ResourceExt::name_any).filter(|n| !wanted.contains(n));
    let surplus: Vec<_> = surplus.collect();
    if !surplus.is_empty() {
        found.push(Problem {
            field: "spec.brokers.groups".to_owned(),
            message: format!(
                "groups must not become fewer: {} would be lost, with its messages",
                surplus.join(", ")
            ),
        });
    }
    let replicas = brokers.replicas.unwrap_or(1);
    if let Some(group) = fetched.groups.iter().find(|g| g.spec.replicas() > replicas) {
        let (name, has) = (group.name_any(), group.spec.replicas());
        found.push(Problem {
            field: "spec.brokers.replicas".to_owned(),
            message: format!("replicas must not become fewer in this version: {name} has {has}"),
        });
    }
    let size = Quantity::parse(&brokers.storage.size);
    let larger = fetched.groups.iter().find(|g| Quantity::parse(&g.spec.storage.size) > size);
    if let Some(group) = larger {
        let (name, has) = (group.name_any(), &group.spec.storage.size);
        found.push(Problem {
            field: "spec.brokers.storage.size".to_owned(),
            message: format!("size may only grow: {name} has {has} already"),
        });
    }
    found
}
