//! Which pod of a cluster is restarted next, if any.
//!
//! StatefulSets of the operator restart nothing themselves (`OnDelete`). This decides for all pods
//! of a cluster together, name servers first, one at a time, with readiness and a while for
//! clients to notice in between. Pure: pods in, a decision out.

use crate::drift;
use crate::label::{self, Component};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodTemplateSpec};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use std::time::Duration;

const REVISION_LABEL: &str = "controller-revision-hash";

/// Why a pod is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its image changed.
    Image,
    /// Its configuration file changed.
    Config,
    /// Its CPU or memory changed.
    Resources,
    /// Something else of its template changed.
    Template,
}

impl Reason {
    /// Its name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Config => "config",
            Self::Resources => "resources",
            Self::Template => "template",
        }
    }

    /// Its name in sentences.
    pub fn words(self) -> &'static str {
        match self {
            Self::Image => "its image changed",
            Self::Config => "its configuration changed",
            Self::Resources => "its CPU or memory changed",
            Self::Template => "its pod template changed",
        }
    }
}

impl Member {
    /// What elections know of it: a broker that is not in sync has to catch up before another one
    /// may go, and one that is needs no time for clients to find it.
    fn in_group(mut self, in_sync: bool) -> Self {
        self.state = match self.state {
            State::Ready(_) if in_sync => State::Ready(Duration::MAX),
            State::Ready(_) => State::Behind,
            state => state,
        };
        self
    }
}

/// Puts the members of a group in the order in which they are restarted: slaves, then the master.
pub fn elected(
    members: Vec<Member>,
    master: Option<&str>,
    in_sync: impl Fn(&str) -> bool,
) -> Vec<Member> {
    let all = members.into_iter().map(|member| {
        let in_sync = in_sync(&member.pod);
        member.in_group(in_sync)
    });
    let (last, mut ordered): (Vec<_>, Vec<_>) =
        all.partition(|member| Some(member.pod.as_str()) == master);
    ordered.extend(last);
    ordered
}

/// A pod, or the place of one, as the roller sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Name of the pod.
    pub pod: String,
    /// What it is.
    pub component: Component,
    /// What of it.
    pub state: State,
    /// Why it has to be restarted, if it has to.
    pub outdated: Option<Reason>,
}

/// What a pod does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is not there.
    Missing,
    /// It is going.
    Terminating,
    /// It is there and not ready.
    NotReady,
    /// It is ready, but has not all that its master has.
    Behind,
    /// It is ready, for so long.
    Ready(Duration),
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Every pod is as it should be.
    UpToDate,
    /// Nothing now, because of what the sentence says; look again after that long.
    Wait(String, Duration),
    /// Delete this pod; its StatefulSet makes it anew.
    Restart(String, Reason),
}

/// How soon to look again when an event will tell anyway.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

/// Decides. `members` come in the order in which they should be restarted; a pod that has become
/// ready serves its clients only after `settle` (they poll the name servers every 30 s).
pub fn next(members: &[Member], settle: Duration) -> Decision {
    let outdated = || members.iter().filter_map(|m| m.outdated.map(|reason| (m, reason)));
    // A pod that serves nobody cannot be harmed, and the change may be what mends it.
    if let Some((member, reason)) = outdated().find(|(m, _)| m.state == State::NotReady) {
        return Decision::Restart(member.pod.clone(), reason);
    }
    let Some((first, reason)) = outdated().find(|(m, _)| matches!(m.state, State::Ready(_))) else {
        return Decision::UpToDate;
    };
    let wait =
        |why: String, again| Decision::Wait(format!("{why} before {} restarts", first.pod), again);
    if let Some(absent) = members.iter().find(|m| !matches!(m.state, State::Ready(_))) {
        let what = if absent.state == State::Behind { "in sync" } else { "ready" };
        return wait(format!("waiting for {} to be {what}", absent.pod), LOOK_AGAIN);
    }
    let others = members.iter().filter(|m| m.pod != first.pod);
    let youngest = others
        .filter_map(|m| match m.state {
            State::Ready(age) => Some((age, &m.pod)),
            _ => None,
        })
        .min();
    match youngest {
        Some((age, pod)) if age < settle => {
            wait(format!("waiting for clients to find {pod}"), settle.saturating_sub(age))
        }
        _ => Decision::Restart(first.pod.clone(), reason),
    }
}

/// The members of a StatefulSet, highest number first. `None` while its controller has not seen
/// its latest template, because then nobody knows which pods are outdated.
pub fn members(
    set: &StatefulSet,
    pods: &[Pod],
    component: Component,
    now: Timestamp,
) -> Option<Vec<Member>> {
    let (spec, status) = (set.spec.as_ref()?, set.status.as_ref()?);
    if status.observed_generation < set.metadata.generation {
        return None;
    }
    let revision = status.update_revision.as_deref()?;
    let name = set.name_any();
    let members = (0..spec.replicas.unwrap_or(1)).rev().map(|ordinal| {
        let pod_name = format!("{name}-{ordinal}");
        let pod = pods.iter().find(|pod| pod.name_any() == pod_name);
        let outdated = pod
            .filter(|pod| pod.labels().get(REVISION_LABEL).is_some_and(|r| r != revision))
            .map(|pod| reason(pod, &spec.template));
        let state = pod.map_or(State::Missing, |pod| state(pod, now));
        Member { pod: pod_name, component, state, outdated }
    });
    Some(members.collect())
}

/// What a pod does at `now`.
pub fn state(pod: &Pod, now: Timestamp) -> State {
    if pod.metadata.deletion_timestamp.is_some() {
        return State::Terminating;
    }
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.and_then(|conditions| {
        conditions.iter().find(|c| c.type_ == "Ready" && c.status == "True")
    });
    match ready {
        None => State::NotReady,
        Some(condition) => {
            let since = condition.last_transition_time.as_ref().map_or(now, |time| time.0);
            State::Ready(Duration::try_from(now.duration_since(since)).unwrap_or_default())
        }
    }
}

/// What of a pod differs from its template.
fn reason(pod: &Pod, template: &PodTemplateSpec) -> Reason {
    let container = |spec: Option<&PodSpec>| -> Option<Container> {
        spec.and_then(|spec| spec.containers.first()).cloned()
    };
    let has = container(pod.spec.as_ref()).unwrap_or_default();
    let wanted = container(template.spec.as_ref()).unwrap_or_default();
    let annotations = template.metadata.as_ref().and_then(|meta| meta.annotations.as_ref());
    let hash = annotations.and_then(|annotations| annotations.get(label::CONFIG_HASH));
    let json = |value| serde_json::to_value(value).unwrap_or_default();
    if has.image != wanted.image {
        Reason::Image
    } else if pod.annotations().get(label::CONFIG_HASH) != hash {
        Reason::Config
    } else if !drift::contains(&json(&has.resources), &json(&wanted.resources)) {
        Reason::Resources
    } else {
        Reason::Template
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Component::{Broker, Namesrv};
    use State::{Missing, NotReady, Terminating};

    const SETTLE: Duration = Duration::from_secs(35);
    const OLD: State = State::Ready(Duration::from_secs(100));
    const YOUNG: State = State::Ready(Duration::from_secs(5));

    fn check(members: &[(&str, State, bool)], expected: &str) {
        let members: Vec<_> = members
            .iter()
            .map(|&(pod, state, outdated)| Member {
                pod: pod.to_owned(),
                component: if pod.starts_with('n') { Namesrv } else { Broker },
                state,
                outdated: outdated.then_some(Reason::Image),
            })
            .collect();
        let decision = match next(&members, SETTLE) {
            Decision::UpToDate => "up to date".to_owned(),
            Decision::Wait(why, again) => format!("{why}, {}", again.as_secs()),
            Decision::Restart(pod, _) => format!("restart {pod}"),
        };
        assert_eq!(decision, expected, "{members:?}");
    }

    #[test]
    fn one_at_a_time_with_readiness_between() {
        check(&[("n1", OLD, false), ("b0", OLD, false)], "up to date");
        check(&[("n1", OLD, true), ("n0", OLD, true), ("b0", OLD, true)], "restart n1");
        check(
            &[("n1", Terminating, true), ("n0", OLD, true), ("b0", OLD, true)],
            "waiting for n1 to be ready before n0 restarts, 15",
        );
        check(
            &[("n1", Missing, false), ("n0", OLD, true), ("b0", OLD, true)],
            "waiting for n1 to be ready before n0 restarts, 15",
        );
        check(
            &[("n1", NotReady, false), ("n0", OLD, true), ("b0", OLD, true)],
            "waiting for n1 to be ready before n0 restarts, 15",
        );
        check(
            &[("n1", YOUNG, false), ("n0", OLD, true), ("b0", OLD, true)],
            "waiting for clients to find n1 before n0 restarts, 30",
        );
        check(&[("n1", OLD, false), ("n0", OLD, false), ("b0", OLD, true)], "restart b0");
    }

    #[test]
    fn a_broken_pod_goes_first_and_a_lone_pod_waits_for_nobody() {
        check(&[("b0", OLD, true), ("b1", NotReady, true)], "restart b1");
        check(&[("b0", NotReady, false), ("b1", NotReady, true)], "restart b1");
        check(&[("b0", YOUNG, true)], "restart b0");
        check(&[("b0", Terminating, true), ("b1", OLD, false)], "up to date");
        check(&[("b0", NotReady, false), ("b1", OLD, false)], "up to date");
    }

    #[test]
    fn the_master_goes_last_and_slaves_come_back_in_sync_first() {
        let member = |pod: &str, state, outdated: bool| Member {
            pod: pod.to_owned(),
            component: Broker,
            state,
            outdated: outdated.then_some(Reason::Image),
        };
        let decide = |b0, b1, in_sync: &[&str]| {
            let members = vec![b1, b0];
            let ordered = elected(members, Some("b1"), |pod| in_sync.contains(&pod));
            next(&ordered, SETTLE)
        };
        let (old, new) = (|pod| member(pod, YOUNG, true), |pod| member(pod, YOUNG, false));
        let restart = |pod: &str| Decision::Restart(pod.to_owned(), Reason::Image);
        assert_eq!(decide(old("b0"), old("b1"), &["b0", "b1"]), restart("b0"));
        assert_eq!(decide(new("b0"), old("b1"), &["b0", "b1"]), restart("b1"));
        let why = "waiting for b0 to be in sync before b1 restarts".to_owned();
        assert_eq!(decide(new("b0"), old("b1"), &["b1"]), Decision::Wait(why, LOOK_AGAIN));
    }

    fn set(yaml: &str) -> StatefulSet {
        serde_yaml::from_str(yaml).unwrap()
    }

    #[test]
    fn members_of_a_set() {
        let set_yaml = |generation: i32| {
            format!(
                "metadata: {{name: o-0, generation: {generation}}}\n\
                 spec:\n  replicas: 2\n  selector: {{}}\n  template:\n\
                 \x20   metadata: {{annotations: {{rocketmq.rs/config-hash: h2}}}}\n\
                 \x20   spec: {{containers: [{{name: broker, image: i}}]}}\n\
                 status: {{observedGeneration: 2, replicas: 2, updateRevision: r2}}"
            )
        };
        let pod: Pod = serde_yaml::from_str(
            "metadata:\n  name: o-0-1\n  labels: {controller-revision-hash: r1}\n\
             \x20 annotations: {rocketmq.rs/config-hash: h1}\n\
             spec: {containers: [{name: broker, image: i}]}\n\
             status: {conditions: [{type: Ready, status: 'True', \
             lastTransitionTime: 1970-01-01T00:00:10Z}]}",
        )
        .unwrap();
        let now = Timestamp::from_second(15).unwrap();
        let found = members(&set(&set_yaml(2)), std::slice::from_ref(&pod), Broker, now).unwrap();
        assert_eq!(
            found,
            [
                Member {
                    pod: "o-0-1".to_owned(),
                    component: Broker,
                    state: State::Ready(Duration::from_secs(5)),
                    outdated: Some(Reason::Config),
                },
                Member {
                    pod: "o-0-0".to_owned(),
                    component: Broker,
                    state: Missing,
                    outdated: None,
                },
            ]
        );
        assert_eq!(members(&set(&set_yaml(3)), &[pod], Broker, now), None);
    }
}
