//! Restarts the pods of a cluster that are not as they should be, one at a time.

use super::apply::Outcome;
use super::fetch::Fetched;
use crate::child;
use crate::context::Context;
use crate::election::Group;
use crate::error::Error;
use crate::event::Reason;
use crate::label::{self, Component};
use crate::reconcile::LOOK_AGAIN;
use crate::roll::{self, Decision, Member, State};
use crds::RocketMQCluster;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use replication::ReplicaId;
use std::sync::Arc;
use std::time::Duration;

/// Before a hand-over that was refused is tried again.
const HAND_OVER_AGAIN: Duration = Duration::from_secs(2);

pub(super) async fn restart(
    cluster: &RocketMQCluster,
    fetched: &Fetched,
    outcome: &Outcome,
    context: &Context,
) -> Result<Decision, Error> {
    let Outcome::Applied(applied) = outcome else {
        return Ok(Decision::UpToDate);
    };
    let Some(members) = members(&applied.set, fetched, cluster, context).await else {
        let why = "waiting for Kubernetes to take up a change".to_owned();
        return Ok(Decision::Wait(why, LOOK_AGAIN));
    };
    let mut decision = roll::next(&members, context.settle);
    if let Decision::Restart(pod, _) = &decision
        && let Some(wait) = hand_over(cluster, fetched, pod, context).await
    {
        decision = wait;
    }
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
async fn members(
    name_servers: &StatefulSet,
    fetched: &Fetched,
    cluster: &RocketMQCluster,
    context: &Context,
) -> Option<Vec<Member>> {
    let now = Timestamp::now();
    let namespace = cluster.namespace().unwrap_or_default();
    let mut all = roll::members(name_servers, &fetched.pods, Component::Namesrv, now)?;
    for index in 0..cluster.spec.brokers.groups {
        let name = label::group_name(&cluster.name_any(), index);
        // A group that has no StatefulSet yet (or while it is made anew) has its pod all the same.
        match child::named(&fetched.sets, &name) {
            Some(set) => {
                let members = roll::members(set, &fetched.pods, Component::Broker, now)?;
                match context.group(&namespace, &name) {
                    Some(group) => all.extend(elected(&group, &name, members).await),
                    None => all.extend(members),
                }
            }
            None => return None,
        }
    }
    Some(all)
}

/// The members of a group in their order, and tells elections which of them are about to go.
async fn elected(group: &Group, name: &str, members: Vec<Member>) -> Vec<Member> {
    for member in &members {
        if let Some(id) = number(&member.pod) {
            group.leaving(id, member.state == State::Terminating).await;
        }
    }
    let record = Arc::clone(&group.view().borrow().record);
    if record.master_epoch == 0 {
        // Before the first election every broker has to register, and some may have to be restarted
        // for that.
        return members;
    }
    let master = record.master.map(|id| format!("{name}-{}", id - 1));
    roll::elected(members, master.as_deref(), |pod| {
        number(pod).is_some_and(|id| record.sync_state_set.contains(&id))
    })
}

/// Number of a broker from the name of its pod.
fn number(pod: &str) -> Option<ReplicaId> {
    let (_, ordinal) = pod.rsplit_once('-')?;
    ordinal.parse::<ReplicaId>().ok().map(|ordinal| ordinal + 1)
}

/// Moves the mastership away from a pod that is to be restarted; what to wait for if it has it
/// still.
async fn hand_over(
    cluster: &RocketMQCluster,
    fetched: &Fetched,
    name: &str,
    context: &Context,
) -> Option<Decision> {
    let pod = child::named(&fetched.pods, name)?;
    let namespace = cluster.namespace().unwrap_or_default();
    let group = context.group(&namespace, pod.labels().get(label::BROKER_GROUP)?)?;
    let id = number(name)?;
    group.leaving(id, true).await;
    if group.view().borrow().record.master != Some(id) {
        return None;
    }
    match group.hand_over(None).await {
        Ok(record) if record.master != Some(id) => None,
        outcome => {
            tracing::info!(pod = name, ?outcome, "no hand-over yet");
            let why = format!("waiting for another broker to take over from {name}");
            Some(Decision::Wait(why, HAND_OVER_AGAIN))
        }
    }
}
