//! Brings the objects of a cluster to what they should be.

use super::build::ClusterObjects;
use super::fetch::Fetched;
use crate::child::{self, Child, named, orphans};
use crate::error::Error;
use crds::{BrokerGroup, Problem};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::{Client, ResourceExt};
use std::slice::from_ref;

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
#[derive(Debug)]
pub(super) struct Applied {
    /// The name servers.
    pub(super) set: StatefulSet,
    pub(super) groups: Vec<BrokerGroup>,
}

pub(super) async fn apply(
    objects: ClusterObjects,
    fetched: &Fetched,
    client: &Client,
) -> Result<Outcome, Error> {
    match all(objects, fetched, client).await {
        Ok(applied) => Ok(Outcome::Applied(Box::new(applied))),
        Err(error) if error.is_refusal() => Ok(Outcome::Refused(error.sentence())),
        Err(error) => Err(error),
    }
}

/// What pods need before the pods; what is no longer wanted last. Groups never are unwanted:
/// validation refuses to have fewer of them.
async fn all(objects: ClusterObjects, has: &Fetched, client: &Client) -> Result<Applied, Error> {
    let ClusterObjects { service_account, config_map, services, budgets, set, groups } = objects;
    let owners = set.owner_references();
    let uid = owners.first().map(|owner| owner.uid.clone()).unwrap_or_default();

    each(client, from_ref(&service_account), &has.service_accounts).await?;
    each(client, from_ref(&config_map), &has.config_maps).await?;
    each(client, &services, &has.services).await?;
    each(client, &budgets, &has.budgets).await?;
    let name = set.name_any();
    let applied_set = child::apply(client, &set, named(&has.sets, &name)).await?;
    let applied_groups = each(client, &groups, &has.groups).await?;

    remove(client, &uid, &[service_account], &has.service_accounts).await?;
    remove(client, &uid, &[config_map], &has.config_maps).await?;
    remove(client, &uid, &services, &has.services).await?;
    remove(client, &uid, &budgets, &has.budgets).await?;
    remove(client, &uid, &[set], &has.sets).await?;
    Ok(Applied { set: applied_set, groups: applied_groups })
}

async fn each<K: Child>(client: &Client, wanted: &[K], has: &[K]) -> Result<Vec<K>, Error> {
    let mut applied = Vec::with_capacity(wanted.len());
    for object in wanted {
        applied.push(child::apply(client, object, named(has, &object.name_any())).await?);
    }
    Ok(applied)
}

/// Deletes what this cluster controls and no longer wants, as an older operator may have made it.
async fn remove<K: Child>(
    client: &Client,
    uid: &str,
    wanted: &[K],
    has: &[K],
) -> Result<(), Error> {
    let names: Vec<_> = wanted.iter().map(ResourceExt::name_any).collect();
    for orphan in orphans(has, uid, &names) {
        tracing::info!(object = child::describe(orphan), "no longer wanted");
        child::delete(client, orphan).await?;
    }
    Ok(())
}
