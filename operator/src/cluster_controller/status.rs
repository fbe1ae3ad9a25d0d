//! What a cluster does, from what there is of it.

use super::KIND;
use super::apply::{Applied, Outcome};
use super::build::{name_server_address, name_server_addresses};
use super::fetch::Fetched;
use crate::child;
use crate::context::Context;
use crate::diagnosis::{Finding, of_pod};
use crate::error::Error;
use crate::label::{self, Component};
use crate::reconcile::{LOOK_AGAIN, RESYNC};
use crate::roll::{self, Decision, State};
use crate::status::{self, Trouble, Verdict};
use crds::condition::{self, DEGRADED, PROGRESSING, READY};
use crds::{BrokerGroup, BrokersStatus, NameServersStatus, RocketMQCluster, RocketMQClusterStatus};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::controller::Action;

pub(super) async fn update(
    cluster: &RocketMQCluster,
    fetched: &Fetched,
    outcome: &Outcome,
    decision: &Decision,
    context: &Context,
) -> Result<Action, Error> {
    let now = Timestamp::now();
    let view = View { cluster, fetched, outcome, decision, now };
    let verdict = view.verdict();
    let status = view.status(&verdict, context);
    let old = cluster.status.clone().unwrap_or_default();
    if status::write(context, KIND, cluster, &status).await? {
        for (reason, note) in status::changes(&old.conditions, &status.conditions) {
            context.events.publish(cluster, reason, &note).await;
        }
    }
    Ok(Action::requeue(match decision {
        Decision::Wait(_, again) => *again,
        _ if verdict.is_settled() => RESYNC,
        _ => LOOK_AGAIN,
    }))
}

/// A cluster as it is.
struct View<'a> {
    cluster: &'a RocketMQCluster,
    fetched: &'a Fetched,
    outcome: &'a Outcome,
    decision: &'a Decision,
    now: Timestamp,
}

impl View<'_> {
    fn applied(&self) -> Option<&Applied> {
        match self.outcome {
            Outcome::Applied(applied) => Some(applied),
            Outcome::Invalid(_) | Outcome::Refused(_) => None,
        }
    }

    /// The groups as they are now.
    fn groups(&self) -> &[BrokerGroup] {
        self.applied().map_or(&self.fetched.groups, |applied| &applied.groups)
    }

    /// Names of the name server pods, and what of them does not serve.
    fn name_servers(&self) -> (i32, Vec<Finding>) {
        let service = label::component_name(&self.cluster.name_any(), Component::Namesrv);
        let mut ready = 0;
        let mut findings = Vec::new();
        for index in 0..self.cluster.spec.name_servers() {
            let name = format!("{service}-{index}");
            let pod = child::named(&self.fetched.pods, &name);
            match (pod, &self.fetched.refused) {
                (Some(pod), _) if matches!(roll::state(pod, self.now), State::Ready(_)) => {
                    ready += 1;
                }
                (Some(pod), _) => findings.push(of_pod(pod, &[], self.now)),
                (None, Some(sentence)) => findings.push(Finding::Trouble {
                    reason: "PodsRefused".to_owned(),
                    sentence: sentence.clone(),
                }),
                (None, None) => {
                    findings.push(Finding::Starting(format!("Pod {name} is being made")));
                }
            }
        }
        (ready, findings)
    }

    fn verdict(&self) -> Verdict {
        let (ready, mut findings) = self.name_servers();
        let groups = self.groups();
        let serving = groups.iter().filter(|group| group_holds(group, READY)).count();
        let all_groups = usize::try_from(self.cluster.spec.brokers.groups).unwrap_or_default();
        findings.extend(groups.iter().flat_map(group_findings));
        let mut progress = match self.decision {
            Decision::UpToDate => None,
            Decision::Wait(sentence, _) => Some(capitalized(sentence)),
            Decision::Restart(pod, reason) => {
                Some(format!("Pod {pod} restarts: {}", reason.words()))
            }
        };
        let mut trouble = match self.outcome {
            Outcome::Invalid(problems) => {
                let sentences: Vec<_> = problems.iter().map(ToString::to_string).collect();
                Some(("InvalidSpec".to_owned(), sentences.join("; ")))
            }
            Outcome::Refused(sentence) => Some(("Refused".to_owned(), sentence.clone())),
            Outcome::Applied(_) => None,
        };
        for finding in findings {
            match finding {
                Finding::Starting(sentence) => progress = progress.or(Some(sentence)),
                Finding::Trouble { reason, sentence } => {
                    trouble = trouble.or(Some((reason, sentence)));
                }
            }
        }
        let name_servers = self.cluster.spec.name_servers();
        Verdict {
            serves: ready == name_servers && serving >= all_groups,
            summary: format!(
                "{ready} of {name_servers} name servers and {serving} of {all_groups} broker \
                 groups serve"
            ),
            progress,
            trouble: trouble.map(|(reason, sentence)| Trouble { reason, sentence }),
        }
    }

    fn status(&self, verdict: &Verdict, context: &Context) -> RocketMQClusterStatus {
        let spec = &self.cluster.spec;
        let name = self.cluster.name_any();
        let namespace = self.cluster.namespace().unwrap_or_default();
        let groups = self.groups();
        let count = |holds: &dyn Fn(&&BrokerGroup) -> bool| {
            format!("{}/{}", groups.iter().filter(holds).count(), spec.brokers.groups)
        };
        let image = |image: Option<&String>, default: &String| image.unwrap_or(default).clone();
        let own = spec.name_server.as_ref().and_then(|name_server| name_server.image.as_ref());
        let old = self.cluster.status.as_ref().map(|status| status.conditions.as_slice());
        let generation = self.cluster.metadata.generation;
        RocketMQClusterStatus {
            observed_generation: generation,
            name_servers: Some(NameServersStatus {
                address: name_server_address(&name, &namespace),
                addresses: name_server_addresses(&name, &namespace, spec.name_servers()),
                ready: format!("{}/{}", self.name_servers().0, spec.name_servers()),
                image: image(own, &context.images.namesrv),
            }),
            brokers: Some(BrokersStatus {
                groups: count(&|group| group_holds(group, READY)),
                masters: count(&|group| {
                    group.status.as_ref().is_some_and(|status| status.master.is_some())
                }),
                image: image(spec.brokers.image.as_ref(), &context.images.broker),
            }),
            conditions: verdict.conditions(old.unwrap_or_default(), generation, self.now),
        }
    }
}

/// Whether the status of a group is about its present spec.
fn group_is_seen(group: &BrokerGroup) -> bool {
    group.status.as_ref().and_then(|s| s.observed_generation) == group.metadata.generation
}

fn group_holds(group: &BrokerGroup, type_: &str) -> bool {
    group.status.as_ref().is_some_and(|status| condition::holds(&status.conditions, type_))
}

/// What a group says of itself that is not that all is well.
fn group_findings(group: &BrokerGroup) -> Vec<Finding> {
    let name = group.name_any();
    let conditions = group.status.as_ref().map(|status| status.conditions.as_slice());
    let conditions = conditions.unwrap_or_default();
    let said =
        |type_| condition::find(conditions, type_).filter(|condition| condition.status == "True");
    let mut findings = Vec::new();
    if !group_is_seen(group) {
        findings.push(Finding::Starting(format!("Broker group {name} takes up a change")));
    }
    // Trouble with the spec before stays trouble until the group has taken up the change.
    if let Some(condition) = said(DEGRADED) {
        findings.push(Finding::Trouble {
            reason: condition.reason.clone(),
            sentence: format!("{name}: {}", condition.message),
        });
    }
    if let Some(condition) = said(PROGRESSING) {
        findings.push(Finding::Starting(condition.message.clone()));
    }
    findings
}

fn capitalized(sentence: &str) -> String {
    let mut characters = sentence.chars();
    characters.next().map(|c| c.to_uppercase().chain(characters).collect()).unwrap_or_default()
}
