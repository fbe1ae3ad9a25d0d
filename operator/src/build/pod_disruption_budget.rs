//! Disruption budgets: node drains take one pod of a component at a time.

use super::Owner;
use crate::label::{self, Component};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The budget of a component: one for all its pods, over all broker groups.
///
/// A group has one replica, so a budget per group would either block every drain or allow them
/// all; this one lets clients keep all other groups while one moves. Pods that are not ready may
/// always be evicted: they serve nobody, and holding them would block the drain for ever.
pub fn one_at_a_time(owner: &Owner, component: Component) -> PodDisruptionBudget {
    let name = label::component_name(&owner.cluster, component);
    let labels = label::component_labels(&owner.cluster, component);
    PodDisruptionBudget {
        metadata: owner.metadata(name, labels),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(LabelSelector {
                match_labels: Some(label::component_selector(&owner.cluster, component)),
                ..LabelSelector::default()
            }),
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    }
}
