//! What keeps a pod from serving, in one sentence. Pure: objects in, words out.

use k8s_openapi::api::core::v1::{ContainerStatus, PersistentVolumeClaim, Pod, PodCondition};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

/// Longest part of a sentence that others wrote, in characters.
const QUOTE_CHARS_MAX: usize = 300;
/// A pod that is still there so long after its grace period sits on a node that does not answer.
const REMOVAL_PATIENCE: SignedDuration = SignedDuration::from_secs(15);
/// Waiting reasons that mend themselves.
const PASSING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// What a pod does that does not serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It is on its way.
    Starting(String),
    /// A person has to look at it.
    Trouble {
        /// One CamelCase word.
        reason: String,
        /// One sentence.
        sentence: String,
    },
}

impl Finding {
    fn trouble(reason: impl Into<String>, sentence: String) -> Self {
        Self::Trouble { reason: reason.into(), sentence }
    }
}

/// What a pod does that is not ready (or is going). `claims` are those of its set.
pub fn of_pod(pod: &Pod, claims: &[PersistentVolumeClaim], now: Timestamp) -> Finding {
    let name = pod.name_any();
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    if let Some(deleted) = &pod.metadata.deletion_timestamp {
        return match node {
            Some(node) if now.duration_since(deleted.0) > REMOVAL_PATIENCE => Finding::trouble(
                "NodeUnreachable",
                format!("Pod {name} cannot be removed: its node {node} does not answer"),
            ),
            _ => Finding::Starting(format!("Pod {name} is stopping")),
        };
    }
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
    let container = containers.and_then(<[ContainerStatus]>::first);
    if let Some(finding) = container.and_then(|container| of_container(&name, container)) {
        return finding;
    }
    if let Some(condition) = unschedulable(pod) {
        return of_scheduling(&name, condition, claims);
    }
    match (node, container.and_then(|container| container.state.as_ref())) {
        (None, _) => Finding::Starting(format!("Pod {name} waits for a node")),
        // The kubelet said ready and the pod is not: the node controller took it back.
        (Some(node), Some(_)) if container.is_some_and(|container| container.ready) => {
            Finding::trouble(
                "NodeUnreachable",
                format!("Pod {name} does not serve: its node {node} does not answer"),
            )
        }
        (Some(_), Some(state)) if state.running.is_some() => {
            Finding::Starting(format!("Pod {name} runs and is not ready yet"))
        }
        _ => Finding::Starting(format!("Pod {name} is starting")),
    }
}

fn unschedulable(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions
        .iter()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
        .filter(|condition| condition.reason.as_deref() == Some("Unschedulable"))
}

fn of_scheduling(
    name: &str,
    condition: &PodCondition,
    claims: &[PersistentVolumeClaim],
) -> Finding {
    let said = quote(condition.message.as_deref().unwrap_or("the scheduler does not say why"));
    let ours = |claim: &&PersistentVolumeClaim| claim.name_any().ends_with(&format!("-{name}"));
    let unbound = claims.iter().filter(ours).find(|claim| {
        claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending")
    });
    match unbound {
        Some(claim) => {
            let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
            let class = class.map_or("no default storage class".to_owned(), |class| {
                format!("storage class {class}")
            });
            let claim = claim.name_any();
            Finding::trouble(
                "VolumePending",
                format!("Pod {name} waits for PersistentVolumeClaim {claim} ({class}): {said}"),
            )
        }
        None => Finding::trouble("Unschedulable", format!("Pod {name} has no node: {said}")),
    }
}

fn of_container(pod: &str, container: &ContainerStatus) -> Option<Finding> {
    let state = container.state.as_ref();
    let waiting = state.and_then(|state| state.waiting.as_ref());
    let reason = waiting.and_then(|waiting| waiting.reason.as_deref()).unwrap_or_default();
    let said = waiting.and_then(|waiting| waiting.message.as_deref()).map(quote);
    let colon = said.map(|said| format!(": {said}")).unwrap_or_default();
    let image = &container.image;
    match reason {
        "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "RegistryUnavailable" => {
            // One reason for all, because kubelet alternates between them.
            let sentence = format!("Pod {pod} cannot pull image {image}");
            return Some(Finding::trouble("ImageCannotBePulled", sentence));
        }
        "" | "CrashLoopBackOff" => {}
        passing if PASSING.contains(&passing) => {}
        other => return Some(Finding::trouble(other, format!("Pod {pod} cannot start{colon}"))),
    }
    // Sticky over the running moments of a crash loop: only readiness ends it.
    let current = state.and_then(|state| state.terminated.as_ref());
    let last = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let ended = current.or(last)?;
    let words = ended.message.as_deref().and_then(last_line);
    let words = words.map(|line| format!(": {}", quote(line))).unwrap_or_default();
    if ended.reason.as_deref() == Some("OOMKilled") {
        let sentence = format!("Pod {pod} was killed for using more memory than its limit");
        return Some(Finding::trouble("OutOfMemory", sentence));
    }
    let code = ended.exit_code;
    if code == 0 && reason != "CrashLoopBackOff" {
        return None;
    }
    let sentence = format!("Pod {pod} keeps stopping with exit code {code}{words}");
    Some(Finding::trouble("Crashing", sentence))
}

/// The last line with words in it.
fn last_line(text: &str) -> Option<&str> {
    text.lines().map(str::trim).rfind(|line| !line.is_empty())
}

/// What others wrote, on one line and not too long.
pub fn quote(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(QUOTE_CHARS_MAX) {
        None => line,
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: &str, expected: &str) {
        let pod: Pod = serde_yaml::from_str(&format!(
            "metadata: {{name: o-0-0}}\nspec: {{containers: []}}\nstatus: {status}"
        ))
        .unwrap();
        let claim: PersistentVolumeClaim = serde_yaml::from_str(
            "metadata: {name: data-o-0-0}\nspec: {storageClassName: fast}\n\
             status: {phase: Pending}",
        )
        .unwrap();
        let found = match of_pod(&pod, &[claim], Timestamp::UNIX_EPOCH) {
            Finding::Starting(sentence) => sentence,
            Finding::Trouble { reason, sentence } => format!("{reason}! {sentence}"),
        };
        assert_eq!(found, expected, "{status}");
    }

    fn container(fields: &str) -> String {
        format!(
            "{{containerStatuses: [{{name: broker, image: i:1, imageID: x, ready: false, \
             restartCount: 1, {fields}}}]}}"
        )
    }

    #[test]
    fn containers() {
        for (fields, expected) in [
            ("state: {running: {}}", "Pod o-0-0 waits for a node"),
            ("state: {waiting: {reason: ContainerCreating}}", "Pod o-0-0 waits for a node"),
            (
                "state: {waiting: {reason: ImagePullBackOff, message: Back-off pulling}}",
                "ImageCannotBePulled! Pod o-0-0 cannot pull image i:1",
            ),
            (
                "state: {waiting: {reason: CreateContainerConfigError, message: no  such\n  key}}",
                "CreateContainerConfigError! Pod o-0-0 cannot start: no such key",
            ),
            (
                "state: {waiting: {reason: CrashLoopBackOff, message: back-off}}, \
                 lastState: {terminated: {exitCode: 64, message: \"a\\nfileReservedTime=x: must be \
                 a number\\n\"}}",
                "Crashing! Pod o-0-0 keeps stopping with exit code 64: fileReservedTime=x: must \
                 be a number",
            ),
            (
                "state: {running: {}}, lastState: {terminated: {exitCode: 1}}",
                "Crashing! Pod o-0-0 keeps stopping with exit code 1",
            ),
            (
                "state: {running: {}}, lastState: {terminated: {exitCode: 137, reason: OOMKilled}}",
                "OutOfMemory! Pod o-0-0 was killed for using more memory than its limit",
            ),
            (
                "state: {running: {}}, lastState: {terminated: {exitCode: 0}}",
                "Pod o-0-0 waits for a node",
            ),
        ] {
            check(&container(fields), expected);
        }
    }

    #[test]
    fn scheduling() {
        check(
            "{conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable, \
             message: 0/3 nodes are available}]}",
            "VolumePending! Pod o-0-0 waits for PersistentVolumeClaim data-o-0-0 (storage class \
             fast): 0/3 nodes are available",
        );
        check("{}", "Pod o-0-0 waits for a node");
    }

    #[test]
    fn a_pod_that_cannot_go() {
        let pod: Pod = serde_yaml::from_str(
            "metadata: {name: o-0-0, deletionTimestamp: 1970-01-01T00:00:00Z}\n\
             spec: {containers: [], nodeName: n1}",
        )
        .unwrap();
        let at = |second| of_pod(&pod, &[], Timestamp::from_second(second).unwrap());
        assert_eq!(at(5), Finding::Starting("Pod o-0-0 is stopping".to_owned()));
        assert!(matches!(at(60), Finding::Trouble { reason, .. } if reason == "NodeUnreachable"));
    }

    #[test]
    fn a_pod_on_a_lost_node() {
        let pod: Pod = serde_yaml::from_str(
            "metadata: {name: o-0-0}\nspec: {containers: [], nodeName: n1}\n\
             status:\n  conditions: [{type: Ready, status: 'False'}]\n\
             \x20 containerStatuses: [{name: broker, image: i, imageID: x, ready: true, \
             restartCount: 0, state: {running: {}}}]",
        )
        .unwrap();
        let Finding::Trouble { sentence, .. } = of_pod(&pod, &[], Timestamp::UNIX_EPOCH) else {
            panic!("a lost node is trouble");
        };
        assert_eq!(sentence, "Pod o-0-0 does not serve: its node n1 does not answer");
    }

    #[test]
    fn quotes_are_short() {
        assert_eq!(quote("a\n b"), "a b");
        assert_eq!(quote(&"日".repeat(400)).chars().count(), 301);
    }
}
