//! What is wrong with a spec, told without an API server: the CEL rules again, for local mode and
//! for clusters whose CRD is older than the operator.

use crate::quantity::{self, Quantity};
use crate::rocketmq_cluster::{
    BrokersSpec, GROUPS_MAX, MIN_IN_SYNC_MESSAGE, NAME_CHARS_MAX, NAME_FORM_MESSAGE,
    NAME_LENGTH_MESSAGE, NAME_SERVERS_MAX, REPLICAS_MAX, RocketMQCluster,
};
use crate::storage::{SIZE_BYTES_MIN, SIZE_MESSAGE};
use crate::{PodSettings, Resources, broker_config, pod_settings, resources};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::fmt;

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the field, as `spec.brokers.groups`.
    pub field: String,
    /// What is wrong, for people.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// Everything that is wrong with a cluster, in the order of its fields.
pub fn problems(cluster: &RocketMQCluster) -> Vec<Problem> {
    let mut found = Found::default();
    name(&mut found, cluster.metadata.name.as_deref().unwrap_or_default());
    if let Some(name_server) = &cluster.spec.name_server {
        let at = "spec.nameServer";
        let replicas = name_server.replicas.unwrap_or(1);
        found.unless((1..=NAME_SERVERS_MAX).contains(&replicas), &format!("{at}.replicas"), || {
            format!("must be between 1 and {NAME_SERVERS_MAX}")
        });
        image(&mut found, at, name_server.image.as_deref());
        container(&mut found, at, name_server.resources.as_ref());
        pod(&mut found, at, name_server.pod.as_ref());
    }
    brokers(&mut found, &cluster.spec.brokers);
    found.0
}

#[derive(Default)]
struct Found(Vec<Problem>);

impl Found {
    fn unless(&mut self, good: bool, field: &str, message: impl FnOnce() -> String) {
        if !good {
            self.0.push(Problem { field: field.to_owned(), message: message() });
        }
    }
}

fn name(found: &mut Found, name: &str) {
    let field = "metadata.name";
    found.unless(name.len() <= NAME_CHARS_MAX, field, || NAME_LENGTH_MESSAGE.to_owned());
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    found.unless(plain, field, || NAME_FORM_MESSAGE.to_owned());
}

fn brokers(found: &mut Found, brokers: &BrokersSpec) {
    let at = "spec.brokers";
    found.unless((1..=GROUPS_MAX).contains(&brokers.groups), &format!("{at}.groups"), || {
        format!("must be between 1 and {GROUPS_MAX}")
    });
    let replicas = brokers.replicas.unwrap_or(1);
    found.unless((1..=REPLICAS_MAX).contains(&replicas), &format!("{at}.replicas"), || {
        format!("must be between 1 and {REPLICAS_MAX}")
    });
    let min_in_sync = brokers.config.as_ref().and_then(|config| config.get("minInSyncReplicas"));
    let min_in_sync = min_in_sync.and_then(|value| value.trim().parse::<i32>().ok());
    found.unless(
        min_in_sync.is_none_or(|min| min <= replicas),
        &format!("{at}.config.minInSyncReplicas"),
        || MIN_IN_SYNC_MESSAGE.to_owned(),
    );
    let size = Quantity::parse(&brokers.storage.size).and_then(Quantity::units);
    let enough = size.is_some_and(|bytes| bytes >= SIZE_BYTES_MIN);
    found.unless(enough, &format!("{at}.storage.size"), || SIZE_MESSAGE.to_owned());
    for (key, value) in brokers.config.iter().flatten() {
        if let Some(message) = broker_config::problem(key, value) {
            found.0.push(Problem { field: format!("{at}.config.{key}"), message });
        }
    }
    image(found, at, brokers.image.as_deref());
    container(found, at, brokers.resources.as_ref());
    pod(found, at, brokers.pod.as_ref());
}

fn image(found: &mut Found, at: &str, image: Option<&str>) {
    let good = image.is_none_or(|i| !i.is_empty() && !i.contains(char::is_whitespace));
    found.unless(good, &format!("{at}.image"), || "must be an image name without spaces".into());
}

fn container(found: &mut Found, at: &str, resources: Option<&Resources>) {
    let Some(Resources { requests, limits }) = resources else { return };
    let requests = requests.clone().unwrap_or_default();
    let limits = limits.clone().unwrap_or_default();
    let mut amount = |field: &str, value: &Option<IntOrString>| {
        let parsed = value.as_ref().map(|value| Quantity::parse(&quantity::text(value)));
        found.unless(parsed != Some(None), &format!("{at}.resources.{field}"), || {
            "must be a quantity, as 500m or 2 or 512Mi".to_owned()
        });
        parsed.flatten()
    };
    let cpu = (amount("requests.cpu", &requests.cpu), amount("limits.cpu", &limits.cpu));
    let memory =
        (amount("requests.memory", &requests.memory), amount("limits.memory", &limits.memory));
    for ((request, limit), message) in
        [(cpu, resources::CPU_MESSAGE), (memory, resources::MEMORY_MESSAGE)]
    {
        let fits = request.zip(limit).is_none_or(|(request, limit)| request <= limit);
        found.unless(fits, &format!("{at}.resources"), || message.to_owned());
    }
}

fn pod(found: &mut Found, at: &str, pod: Option<&PodSettings>) {
    let Some(pod) = pod else { return };
    let mut keys = pod.labels.iter().flatten().map(|(key, _)| key);
    let owned =
        |key: &String| key.starts_with("rocketmq.rs/") || key.starts_with("app.kubernetes.io/");
    found.unless(!keys.any(owned), &format!("{at}.pod.labels"), || {
        pod_settings::LABEL_MESSAGE.to_owned()
    });
    let mut keys = pod.annotations.iter().flatten().map(|(key, _)| key);
    found.unless(
        !keys.any(|key| key.starts_with("rocketmq.rs/")),
        &format!("{at}.pod.annotations"),
        || pod_settings::ANNOTATION_MESSAGE.to_owned(),
    );
}
