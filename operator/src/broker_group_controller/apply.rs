//! Brings a group's objects to what they should be.

use super::build::GroupObjects;
use super::fetch::Fetched;
use crate::build::stateful_set::{claim_size, requested, set_claim_size};
use crate::child;
use crate::context::Context;
use crate::error::Error;
use crate::event::Reason;
use crds::quantity::Quantity;
use crds::{BrokerGroup, Problem};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

/// What came of it.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The spec is wrong, so nothing was touched.
    Invalid(Vec<Problem>),
    /// The API server refused an object, for this reason.
    Refused(String),
    /// Everything is as it should be, or on its way.
    Applied(Box<Applied>),
}

/// What there is now.
#[derive(Debug, Default)]
pub(super) struct Applied {
    /// The StatefulSet; none while it is made anew with another claim template.
    pub(super) set: Option<StatefulSet>,
    /// Why a volume claim cannot grow.
    pub(super) cannot_grow: Option<String>,
}

pub(super) async fn apply(
    group: &BrokerGroup,
    objects: GroupObjects,
    fetched: &Fetched,
    context: &Context,
) -> Result<Outcome, Error> {
    match all(group, objects, fetched, context).await {
        Ok(applied) => Ok(Outcome::Applied(Box::new(applied))),
        Err(error) if error.is_refusal() => Ok(Outcome::Refused(error.sentence())),
        Err(error) => Err(error),
    }
}

/// Configuration before the pods that read it, claims before the StatefulSet that asks for them.
async fn all(
    group: &BrokerGroup,
    objects: GroupObjects,
    fetched: &Fetched,
    context: &Context,
) -> Result<Applied, Error> {
    let GroupObjects { config_map, service, mut set } = objects;
    let client = &context.client;
    let name = config_map.name_any();
    let live = fetched.config_maps.iter().find(|live| live.name_any() == name);
    child::apply(client, &config_map, live).await?;
    if let Some(service) = &service {
        let live = child::named(&fetched.services, &service.name_any());
        child::apply(client, service, live).await?;
    }

    let cannot_grow = grow(group, &set, &fetched.claims, context).await?;
    let live = fetched.set(&set.name_any());
    if let Some(live) = live {
        if live.metadata.deletion_timestamp.is_some() {
            return Ok(Applied { set: None, cannot_grow });
        }
        match claim_size(live) {
            Some(has) if !same(Some(&has), claim_size(&set).as_deref()) => {
                if cannot_grow.is_none() {
                    // A claim template cannot be changed. The pods stay; the StatefulSet that the
                    // next reconcile makes takes them over.
                    child::delete_alone(client, live).await?;
                    return Ok(Applied { set: None, cannot_grow });
                }
                set_claim_size(&mut set, &has);
            }
            _ => {}
        }
    }
    let set = child::apply(client, &set, live).await?;
    Ok(Applied { set: Some(set), cannot_grow })
}

/// Asks for more where a claim has less than it should. `Some` is why that is refused.
async fn grow(
    group: &BrokerGroup,
    set: &StatefulSet,
    claims: &[PersistentVolumeClaim],
    context: &Context,
) -> Result<Option<String>, Error> {
    let Some(wanted) = claim_size(set) else { return Ok(None) };
    // A claim without a volume cannot be changed; it grows as soon as it has one.
    for claim in claims.iter().filter(|claim| is_bound(claim)) {
        let has = requested(claim).unwrap_or_default();
        if Quantity::parse(&has) >= Quantity::parse(&wanted) {
            continue;
        }
        let namespace = claim.namespace().unwrap_or_default();
        let api: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), &namespace);
        let patch = json!({"spec": {"resources": {"requests": {"storage": wanted}}}});
        let name = claim.name_any();
        let patched = api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        match patched.map_err(Error::api("grow", child::describe(claim))) {
            Ok(_) => {
                let note = format!("PersistentVolumeClaim {name} grows from {has} to {wanted}");
                context.events.publish(group, Reason::GrowingVolume, &note).await;
            }
            Err(error) if error.is_refusal() => return Ok(Some(error.sentence())),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Bound")
}

fn same(left: Option<&str>, right: Option<&str>) -> bool {
    left.map(Quantity::parse) == right.map(Quantity::parse)
}
