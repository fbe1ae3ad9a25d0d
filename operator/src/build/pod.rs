//! Pods that keep within the restricted security profile.

use crate::election::AUDIENCE;
use crate::label::{self, Component};
use crds::{ImagePullPolicy, PodSettings, PullSecret, Resources, quantity};
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource,
    EnvVar, EnvVarSource, HTTPGetAction, LocalObjectReference, ObjectFieldSelector,
    PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ProjectedVolumeSource,
    ResourceRequirements, SeccompProfile, SecurityContext, ServiceAccountTokenProjection,
    TopologySpreadConstraint, Volume, VolumeMount, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;

/// The user of the images.
const USER_ID: i64 = 65532;
/// Where configuration files are.
const CONFIG_FOLDER: &str = "/etc/rocketmq";
/// Where data is.
pub const DATA_FOLDER: &str = "/var/lib/rocketmq";
/// Name of the data volume, and so of its claim template.
pub const DATA_VOLUME: &str = "data";
/// Number of the pod in its StatefulSet.
const POD_INDEX: &str = "metadata.labels['apps.kubernetes.io/pod-index']";
/// The token with which a broker speaks to the operator.
const TOKEN_VOLUME: &str = "token";
const TOKEN_FOLDER: &str = "/var/run/secrets/rocketmq.rs";
const TOKEN_FILE: &str = "token";
/// The kubelet makes it anew after four fifths of this.
const TOKEN_SECONDS: i64 = 3600;
/// A server may take this long to recover its store before it is restarted: an hour.
const STARTUP_TRIES: i32 = 3600;

/// A TCP port of a container.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// Its name in containers and Services.
    pub name: &'static str,
    /// Its number.
    pub number: i32,
}

/// Name of the port with `/healthz`, `/readyz` and `/metrics`.
const HEALTH_PORT: &str = "health";

/// What the pods of a StatefulSet have that others have not.
#[derive(Clone, Debug)]
pub struct PodParts {
    /// What they are.
    pub component: Component,
    /// The RocketMQCluster that they belong to.
    pub cluster: String,
    /// Labels of the pods.
    pub labels: BTreeMap<String, String>,
    /// Image of the container.
    pub image: String,
    /// When it is pulled.
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// Credentials for it.
    pub image_pull_secrets: Vec<PullSecret>,
    /// Arguments of the container.
    pub arguments: Vec<String>,
    /// Environment beside the pod's name.
    pub environment: Vec<(&'static str, String)>,
    /// Whether it takes part in elections: it knows its position, and has a token for the operator.
    pub is_elected: bool,
    /// Ports of the container.
    pub ports: Vec<Port>,
    /// CPU and memory.
    pub resources: ResourceRequirements,
    /// ConfigMap with the configuration file.
    pub config_map: String,
    /// Hash of the configuration file: a change restarts the pod.
    pub config_hash: String,
    /// Whether the data folder is a claim (else it lives as long as the pod).
    pub data_is_claimed: bool,
    /// What people say about the pods.
    pub settings: PodSettings,
    /// `settings.affinity`, read.
    pub affinity: Option<Affinity>,
    /// How long a pod may take to stop, in seconds.
    pub grace_seconds: i64,
}

/// The pod template with these parts.
pub fn template(parts: PodParts) -> PodTemplateSpec {
    let mut labels = parts.settings.labels.clone().unwrap_or_default();
    labels.extend(parts.labels.clone());
    let mut annotations = parts.settings.annotations.clone().unwrap_or_default();
    annotations.insert(label::CONFIG_HASH.to_owned(), parts.config_hash.clone());
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        }),
        spec: Some(spec(parts)),
    }
}

fn spec(parts: PodParts) -> PodSpec {
    let secrets: Vec<_> = parts
        .image_pull_secrets
        .iter()
        .map(|secret| LocalObjectReference { name: secret.name.clone() })
        .collect();
    PodSpec {
        service_account_name: Some(label::service_account_name(&parts.cluster)),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        image_pull_secrets: (!secrets.is_empty()).then_some(secrets),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER_ID),
            run_as_group: Some(USER_ID),
            fs_group: Some(USER_ID),
            // Walking a large store at each start to set its owner would take minutes.
            fs_group_change_policy: Some("OnRootMismatch".to_owned()),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            }),
            ..PodSecurityContext::default()
        }),
        termination_grace_period_seconds: Some(parts.grace_seconds),
        node_selector: parts.settings.node_selector.clone(),
        tolerations: parts.settings.tolerations.clone(),
        affinity: parts.affinity.clone(),
        priority_class_name: parts.settings.priority_class_name.clone(),
        topology_spread_constraints: Some(spread(&parts.cluster, parts.component)),
        volumes: Some(volumes(&parts)),
        containers: vec![container(parts)],
        ..PodSpec::default()
    }
}

/// Pods of a component go to different zones and nodes where that is possible.
fn spread(cluster: &str, component: Component) -> Vec<TopologySpreadConstraint> {
    ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
        .into_iter()
        .map(|key| TopologySpreadConstraint {
            max_skew: 1,
            topology_key: key.to_owned(),
            when_unsatisfiable: "ScheduleAnyway".to_owned(),
            label_selector: Some(LabelSelector {
                match_labels: Some(label::component_selector(cluster, component)),
                ..LabelSelector::default()
            }),
            ..TopologySpreadConstraint::default()
        })
        .collect()
}

fn volumes(parts: &PodParts) -> Vec<Volume> {
    let config = Volume {
        name: "config".to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: parts.config_map.clone(),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    };
    let data = Volume {
        name: DATA_VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    };
    let mut volumes = vec![config];
    if !parts.data_is_claimed {
        volumes.push(data);
    }
    if parts.is_elected {
        volumes.push(token_volume());
    }
    volumes
}

/// A token of the pod that proves to the operator, and to nobody else, which pod it is.
fn token_volume() -> Volume {
    let token = ServiceAccountTokenProjection {
        audience: Some(AUDIENCE.to_owned()),
        expiration_seconds: Some(TOKEN_SECONDS),
        path: TOKEN_FILE.to_owned(),
    };
    Volume {
        name: TOKEN_VOLUME.to_owned(),
        projected: Some(ProjectedVolumeSource {
            sources: Some(vec![VolumeProjection {
                service_account_token: Some(token),
                ..VolumeProjection::default()
            }]),
            ..ProjectedVolumeSource::default()
        }),
        ..Volume::default()
    }
}

/// Path of the token in the container.
pub fn token_path() -> String {
    format!("{TOKEN_FOLDER}/{TOKEN_FILE}")
}

fn container(parts: PodParts) -> Container {
    let mount = |name: &str, path: &str, read_only: bool| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    };
    let ports = parts
        .ports
        .iter()
        .map(|port| ContainerPort {
            name: Some(port.name.to_owned()),
            container_port: port.number,
            protocol: Some("TCP".to_owned()),
            ..ContainerPort::default()
        })
        .collect();
    Container {
        name: parts.component.as_str().to_owned(),
        image_pull_policy: Some(pull_policy(&parts.image, parts.image_pull_policy).to_owned()),
        image: Some(parts.image),
        args: Some(parts.arguments),
        env: Some(environment(parts.environment, parts.is_elected)),
        ports: Some(ports),
        resources: Some(parts.resources),
        startup_probe: Some(probe("/healthz", 1, STARTUP_TRIES)),
        liveness_probe: Some(probe("/healthz", 10, 6)),
        readiness_probe: Some(probe("/readyz", 2, 3)),
        // The last words of a server that cannot start are shown in the status.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                ..Capabilities::default()
            }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(
            [mount("config", CONFIG_FOLDER, true), mount(DATA_VOLUME, DATA_FOLDER, false)]
                .into_iter()
                .chain(parts.is_elected.then(|| mount(TOKEN_VOLUME, TOKEN_FOLDER, true)))
                .collect(),
        ),
        ..Container::default()
    }
}

/// Path of a configuration file in the container.
pub fn config_path(file: &str) -> String {
    format!("{CONFIG_FOLDER}/{file}")
}

/// Kubernetes' own rule, said aloud: what it fills in stays when the image changes.
fn pull_policy(image: &str, wanted: Option<ImagePullPolicy>) -> &'static str {
    let name = image.rsplit('/').next().unwrap_or(image);
    let moves = !name.contains('@') && (name.ends_with(":latest") || !name.contains(':'));
    match wanted {
        Some(policy) => policy.as_str(),
        None if moves => "Always",
        None => "IfNotPresent",
    }
}

/// The pod's name first, because other values refer to it.
fn environment(others: Vec<(&'static str, String)>, is_elected: bool) -> Vec<EnvVar> {
    let field = |name: &str, path: &str| EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: Some("v1".to_owned()),
                field_path: path.to_owned(),
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    };
    let name = field("POD_NAME", "metadata.name");
    let of_elected = [field("REPLICA_INDEX", POD_INDEX), field("POD_IP", "status.podIP")];
    let of_elected = of_elected.into_iter().filter(|_| is_elected);
    let others = others.into_iter().map(|(name, value)| EnvVar {
        name: name.to_owned(),
        value: Some(value),
        ..EnvVar::default()
    });
    std::iter::once(name).chain(of_elected).chain(others).collect()
}

fn probe(path: &str, period_seconds: i32, failures: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String(HEALTH_PORT.to_owned()),
            scheme: Some("HTTP".to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period_seconds),
        timeout_seconds: Some(2),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

/// What a container gets: what people say, else a small default request and no limit.
pub fn resources(
    wanted: Option<&Resources>,
    cpu_default: &str,
    memory_default: &str,
) -> ResourceRequirements {
    let limits = wanted.and_then(|wanted| wanted.limits.clone()).unwrap_or_default();
    let requests = wanted.and_then(|wanted| wanted.requests.clone()).unwrap_or_default();
    let limit = |value: &Option<IntOrString>| value.as_ref().map(quantity::text);
    let (cpu_limit, memory_limit) = (limit(&limits.cpu), limit(&limits.memory));
    let cpu = limit(&requests.cpu).unwrap_or_else(|| at_most(cpu_default, cpu_limit.as_deref()));
    let memory =
        limit(&requests.memory).unwrap_or_else(|| at_most(memory_default, memory_limit.as_deref()));
    let limits: BTreeMap<_, _> = [("cpu", cpu_limit), ("memory", memory_limit)]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), Quantity(value?))))
        .collect();
    ResourceRequirements {
        requests: Some(BTreeMap::from([
            ("cpu".to_owned(), Quantity(cpu)),
            ("memory".to_owned(), Quantity(memory)),
        ])),
        limits: (!limits.is_empty()).then_some(limits),
        ..ResourceRequirements::default()
    }
}

/// A default request must not be above the limit that people set.
fn at_most(default: &str, limit: Option<&str>) -> String {
    match limit {
        Some(limit) if quantity::Quantity::parse(limit) < quantity::Quantity::parse(default) => {
            limit.to_owned()
        }
        _ => default.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_policies() {
        for (image, wanted, expected) in [
            ("broker:1", None, "IfNotPresent"),
            ("registry:5000/broker", None, "Always"),
            ("registry:5000/broker:latest", None, "Always"),
            ("registry/broker@sha256:abc", None, "IfNotPresent"),
            ("broker", Some(ImagePullPolicy::Never), "Never"),
        ] {
            assert_eq!(pull_policy(image, wanted), expected, "{image}");
        }
    }

    #[test]
    fn default_requests_stay_below_limits() {
        let wanted: Resources =
            serde_json::from_value(serde_json::json!({"limits": {"memory": "32Mi"}}))
                .expect("resources");
        let requests = resources(Some(&wanted), "50m", "64Mi").requests.expect("requests");
        assert_eq!(requests["memory"].0, "32Mi");
        assert_eq!(requests["cpu"].0, "50m");
    }
}
