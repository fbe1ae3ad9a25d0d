//! What a group does, from what there is of it.

use super::KIND;
use super::apply::{Applied, Outcome};
use super::build::REPLICAS;
use super::fetch::Fetched;
use crate::context::Context;
use crate::diagnosis::{Finding, of_pod};
use crate::error::Error;
use crate::label::{self, Component};
use crate::port;
use crate::reconcile::{LOOK_AGAIN, RESYNC};
use crate::roll::{self, State};
use crate::status::{self, Trouble, Verdict};
use crds::quantity::Quantity;
use crds::{BrokerGroup, BrokerGroupStatus, Phase};
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

/// Name of the pod that would be master: the only one.
fn master_name(group: &BrokerGroup) -> String {
    format!("{}-0", group.name_any())
}

fn verdict(group: &BrokerGroup, fetched: &Fetched, outcome: &Outcome, now: Timestamp) -> Verdict {
    let name = master_name(group);
    let pod = fetched.pods.iter().find(|pod| pod.name_any() == name);
    let serves = pod.is_some_and(|pod| matches!(roll::state(pod, now), State::Ready(_)));
    let (finding, change) = match outcome {
        Outcome::Invalid(problems) => (None, Err(invalid(problems))),
        Outcome::Refused(sentence) => (None, Err(trouble("Refused", sentence.clone()))),
        Outcome::Applied(applied) => {
            ((!serves).then(|| absence(&name, pod, fetched, now)), change(applied, fetched, now))
        }
    };
    let mut verdict = Verdict {
        serves,
        summary: match serves {
            true => format!("Broker {name} serves"),
            false => format!("Broker {name} does not serve"),
        },
        progress: None,
        trouble: None,
    };
    match change {
        Ok(progress) => verdict.progress = progress,
        Err(trouble) => verdict.trouble = Some(trouble),
    }
    match finding {
        Some(Finding::Starting(sentence)) => verdict.progress = Some(sentence),
        Some(Finding::Trouble { reason, sentence }) => {
            verdict.trouble = Some(Trouble { reason, sentence });
        }
        None => {}
    }
    verdict
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
    const { assert!(REPLICAS == 1, "who is master must then be elected") };
    let master = master_name(group);
    let service = label::component_name(&group.spec.cluster, Component::Broker);
    let namespace = group.namespace().unwrap_or_default();
    let old = group.status.as_ref().map(|status| status.conditions.as_slice());
    let generation = group.metadata.generation;
    BrokerGroupStatus {
        observed_generation: generation,
        phase: Some(match verdict {
            Verdict { serves: true, progress: None, .. } => Phase::Serving,
            Verdict { serves: true, .. } => Phase::Outdated,
            Verdict { trouble: Some(_), .. } => Phase::Failed,
            Verdict { .. } => Phase::Starting,
        }),
        master: verdict.serves.then(|| master.clone()),
        address: Some(format!("{master}.{service}.{namespace}.svc:{}", port::BROKER_REMOTING)),
        volume: fetched.claims.iter().find_map(capacity),
        conditions: verdict.conditions(old.unwrap_or_default(), generation, now),
    }
}
