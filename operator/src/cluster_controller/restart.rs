//! Restarts the pods of a cluster that are not as they should be, one at a time.

use super::apply::Outcome;
use super::fetch::Fetched;
use crate::child;
use crate::context::Context;
use crate::error::Error;
use crate::event::Reason;
use crate::label::{self, Component};
use crate::reconcile::LOOK_AGAIN;
use crate::roll::{self, Decision, Member};
use crds::RocketMQCluster;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

pub(super) async fn restart(
    cluster: &RocketMQCluster,
    fetched: &Fetched,
    outcome: &Outcome,
    context: &Context,
) -> Result<Decision, Error> {
    let Outcome::Applied(applied) = outcome else {
        return Ok(Decision::UpToDate);
    };
    let Some(members) = members(&applied.set, fetched, cluster, Timestamp::now()) else {
        let why = "waiting for Kubernetes to take up a change".to_owned();
        return Ok(Decision::Wait(why, LOOK_AGAIN));
    };
    let decision = roll::next(&members, context.settle);
    if let Decision::Restart(name, reason) = &decision
        && let Some(pod) = child::named(&fetched.pods, name)
    {
        let note = format!("Restarting pod {name}: {}", reason.words());
        tracing::info!(pod = name, reason = reason.as_str(), "restarting");
        child::delete(&context.client, pod).await?;
        context.metrics.restarted(*reason);
        context.events.publish(cluster, Reason::Restarting(*reason), &note).await;
    }
    Ok(decision)
}

/// All pods of a cluster in the order in which they are restarted: name servers, because brokers
/// of a new version may want something of them, then group by group.
fn members(
    name_servers: &StatefulSet,
    fetched: &Fetched,
    cluster: &RocketMQCluster,
    now: Timestamp,
) -> Option<Vec<Member>> {
    let mut all = roll::members(name_servers, &fetched.pods, Component::Namesrv, now)?;
    for index in 0..cluster.spec.brokers.groups {
        let name = label::group_name(&cluster.name_any(), index);
        // A group that has no StatefulSet yet (or while it is made anew) has its pod all the same.
        match child::named(&fetched.sets, &name) {
            Some(set) => all.extend(roll::members(set, &fetched.pods, Component::Broker, now)?),
            None => return None,
        }
    }
    Some(all)
}
