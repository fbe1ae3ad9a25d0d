//! What a group does, from what there is of it.

use super::KIND;
use super::apply::{Applied, Outcome};
use super::fetch::Fetched;
use crate::build::service;
use crate::context::Context;
use crate::diagnosis::{Finding, of_pod};
use crate::error::Error;
use crate::label::{self, Component};
use crate::port;
use crate::reconcile::{LOOK_AGAIN, RESYNC};
use crate::roll::{self, State};
use crate::status::{self, Trouble, Verdict};
use crds::quantity::Quantity;
use crds::{BrokerGroup, BrokerGroupStatus, ElectionRecord, Phase};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::controller::Action;

pub(super) async fn update(
    group: &BrokerGroup,
    fetched: &Fetched,
    outcome: &Outcome,
    context: &Context,
) -> Result<Action, Error> {
    let now = Timestamp::now();
    let verdict = verdict(group, fetched, outcome, now);
    let status = status(group, fetched, &verdict, now);
    let old = group.status.clone().unwrap_or_default();
    if status::write(context, KIND, group, &status).await? {
        for (reason, note) in status::changes(&old.conditions, &status.conditions) {
            context.events.publish(group, reason, &note).await;
        }
    }
    Ok(Action::requeue(if verdict.is_settled() { RESYNC } else { LOOK_AGAIN }))
}

/// Names of the pods that there should be.
fn pod_names(group: &BrokerGroup) -> impl Iterator<Item = String> {
    let name = group.name_any();
    (0..group.spec.replicas()).map(move |ordinal| format!("{name}-{ordinal}"))
}

fn record(group: &BrokerGroup) -> Option<&ElectionRecord> {
    group.status.as_ref()?.election.as_ref().filter(|_| group.spec.replicas() > 1)
}

/// Name of the pod that is master: the only one, or the one that was elected.
fn master_name(group: &BrokerGroup) -> Option<String> {
    if group.spec.replicas() == 1 {
        return pod_names(group).next();
    }
    Some(format!("{}-{}", group.name_any(), record(group)?.master? - 1))
}

fn verdict(group: &BrokerGroup, fetched: &Fetched, outcome: &Outcome, now: Timestamp) -> Verdict {
    let pod = |name: &str| fetched.pods.iter().find(|pod| pod.name_any() == name);
    let is_ready =
        |name: &str| pod(name).is_some_and(|p| matches!(roll::state(p, now), State::Ready(_)));
    let master = master_name(group);
    let serves = master.as_deref().is_some_and(is_ready);
    let (findings, change) = match outcome {
        Outcome::Invalid(problems) => (Vec::new(), Err(invalid(problems))),
        Outcome::Refused(sentence) => (Vec::new(), Err(trouble("Refused", sentence.clone()))),
        Outcome::Applied(applied) => {
            let absent = pod_names(group).filter(|name| !is_ready(name));
            let findings: Vec<_> =
                absent.map(|name| absence(&name, pod(&name), fetched, now)).collect();
            (findings, change(applied, fetched, now))
        }
    };
    let mut verdict =
        Verdict { serves, summary: summary(group, serves), progress: None, trouble: None };
    match change {
        Ok(progress) => verdict.progress = progress,
        Err(trouble) => verdict.trouble = Some(trouble),
    }
    for finding in findings.into_iter().rev() {
        match finding {
            Finding::Starting(sentence) => verdict.progress = Some(sentence),
            Finding::Trouble { reason, sentence } => {
                verdict.trouble = Some(Trouble { reason, sentence });
            }
        }
    }
    if !serves && master.is_none() && verdict.trouble.is_none() {
        let waiting = || "All brokers are there, the first master is elected".to_owned();
        verdict.progress.get_or_insert_with(waiting);
    }
    verdict
}

fn summary(group: &BrokerGroup, serves: bool) -> String {
    let does = if serves { "serves" } else { "does not serve" };
    match (master_name(group), record(group)) {
        (None, _) => "There is no master".to_owned(),
        (Some(name), None) => format!("Broker {name} {does}"),
        (Some(name), Some(record)) => format!(
            "Broker {name} {does} as master of epoch {}, {} of {} brokers are in sync",
            record.master_epoch,
            record.sync_state_set.len(),
            group.spec.replicas()
        ),
    }
}

fn trouble(reason: &str, sentence: String) -> Trouble {
    Trouble { reason: reason.to_owned(), sentence }
}

/// What is wrong with a spec.
fn invalid(problems: &[crds::Problem]) -> Trouble {
    let sentences: Vec<_> = problems.iter().map(ToString::to_string).collect();
    trouble("InvalidSpec", sentences.join("; "))
}

/// Why the broker does not serve.
fn absence(name: &str, pod: Option<&Pod>, fetched: &Fetched, now: Timestamp) -> Finding {
    match (pod, &fetched.refused) {
        (Some(pod), _) => of_pod(pod, &fetched.claims, now),
        (None, Some(sentence)) => {
            Finding::Trouble { reason: "PodsRefused".to_owned(), sentence: sentence.clone() }
        }
        (None, None) => Finding::Starting(format!("Pod {name} is being made")),
    }
}

/// What is on its way besides the broker itself.
fn change(applied: &Applied, fetched: &Fetched, now: Timestamp) -> Result<Option<String>, Trouble> {
    if let Some(sentence) = &applied.cannot_grow {
        return Err(trouble("VolumeCannotGrow", sentence.clone()));
    }
    let Some(set) = &applied.set else {
        return Ok(Some("The StatefulSet is made anew for the new volume size".to_owned()));
    };
    let Some(members) = roll::members(set, &fetched.pods, Component::Broker, now) else {
        return Ok(Some(format!("StatefulSet {} takes up a change", set.name_any())));
    };
    if let Some((pod, reason)) = members.iter().find_map(|m| Some((&m.pod, m.outdated?))) {
        return Ok(Some(format!("Pod {pod} waits for its restart: {}", reason.words())));
    }
    Ok(growing(fetched))
}

/// The claim whose volume is smaller than what it asks for.
fn growing(fetched: &Fetched) -> Option<String> {
    fetched.claims.iter().find_map(|claim| {
        let has = capacity(claim)?;
        let wanted = crate::build::stateful_set::requested(claim)?;
        let smaller = Quantity::parse(&has) < Quantity::parse(&wanted);
        let name = claim.name_any();
        smaller.then(|| format!("The volume of {name} grows from {has} to {wanted}"))
    })
}

fn capacity(claim: &k8s_openapi::api::core::v1::PersistentVolumeClaim) -> Option<String> {
    let capacity = claim.status.as_ref()?.capacity.as_ref()?;
    capacity.get("storage").map(|size| size.0.clone())
}

fn status(
    group: &BrokerGroup,
    fetched: &Fetched,
    verdict: &Verdict,
    now: Timestamp,
) -> BrokerGroupStatus {
    let master = master_name(group);
    let old = group.status.as_ref().map(|status| status.conditions.as_slice());
    let generation = group.metadata.generation;
    BrokerGroupStatus {
        observed_generation: generation,
        phase: Some(match verdict {
            Verdict { serves: true, .. } if !all_ready(group, fetched, now) => Phase::Degraded,
            Verdict { serves: true, progress: None, .. } => Phase::Serving,
            Verdict { serves: true, .. } => Phase::Outdated,
            Verdict { trouble: Some(_), .. } => Phase::Failed,
            Verdict { .. } => Phase::Starting,
        }),
        master: master.filter(|_| verdict.serves),
        address: Some(address(group)),
        // Elections write it, by compare-and-swap: what is not said here is left alone.
        election: None,
        volume: fetched.claims.iter().find_map(capacity),
        conditions: verdict.conditions(old.unwrap_or_default(), generation, now),
    }
}

fn all_ready(group: &BrokerGroup, fetched: &Fetched, now: Timestamp) -> bool {
    let pod = |name: &str| fetched.pods.iter().find(|pod| pod.name_any() == name);
    let is_ready = |pod: &Pod| matches!(roll::state(pod, now), State::Ready(_));
    pod_names(group).all(|name| pod(&name).is_some_and(is_ready))
}

/// Where clients find the master.
fn address(group: &BrokerGroup) -> String {
    let (name, namespace) = (group.name_any(), group.namespace().unwrap_or_default());
    let port = port::BROKER_REMOTING;
    if group.spec.replicas() > 1 {
        return format!("{}.{namespace}.svc:{port}", service::master_name(&name));
    }
    let service = label::component_name(&group.spec.cluster, Component::Broker);
    format!("{name}-0.{service}.{namespace}.svc:{port}")
}
