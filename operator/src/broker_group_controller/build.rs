//! The objects of a group.

use super::validate::ValidGroup;
use crate::build::config_map::ConfigFile;
use crate::build::pod::{self, DATA_FOLDER, PodParts, Port};
use crate::build::service;
use crate::build::stateful_set::{StatefulSetParts, stateful_set};
use crate::label::{self, Component};
use crate::port;
use crds::Flush;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use std::collections::BTreeMap;

/// A broker writes all that is in memory to its disk before it ends.
const GRACE_SECONDS: i64 = 120;
const CPU_DEFAULT: &str = "100m";
const MEMORY_DEFAULT: &str = "256Mi";

/// The objects of a group.
#[derive(Clone, Debug)]
pub(super) struct GroupObjects {
    pub(super) config_map: ConfigMap,
    /// The Service of an elected master.
    pub(super) service: Option<Service>,
    pub(super) set: StatefulSet,
}

/// `controller` is where the brokers find the operator.
pub(super) fn build(group: &ValidGroup, controller: &str) -> GroupObjects {
    let ValidGroup { owner, name, spec, affinity } = group;
    let labels = label::group_labels(&owner.cluster, name);
    let is_elected = spec.replicas() > 1;
    let file = broker_conf(group, controller);
    let host = owner.service_host(Component::Broker);
    let template = pod::template(PodParts {
        component: Component::Broker,
        cluster: owner.cluster.clone(),
        labels: labels.clone(),
        image: spec.image.clone(),
        image_pull_policy: spec.image_pull_policy,
        image_pull_secrets: spec.image_pull_secrets.clone().unwrap_or_default(),
        arguments: vec!["-c".to_owned(), pod::config_path(file.name)],
        // What differs between pods of a group: environment beats file.
        environment: environment(&host, is_elected),
        is_elected,
        ports: port::BROKER.map(|(name, number)| Port { name, number }).to_vec(),
        resources: pod::resources(spec.resources.as_ref(), CPU_DEFAULT, MEMORY_DEFAULT),
        config_map: name.clone(),
        config_hash: file.hash(),
        data_is_claimed: true,
        settings: spec.pod.clone().unwrap_or_default(),
        affinity: affinity.clone(),
        grace_seconds: GRACE_SECONDS,
    });
    let parts = StatefulSetParts {
        name: name.clone(),
        labels: labels.clone(),
        selector: label::group_selector(&owner.cluster, name),
        service: label::component_name(&owner.cluster, Component::Broker),
        replicas: spec.replicas(),
        template,
        storage: Some(spec.storage.clone()),
    };
    GroupObjects {
        config_map: file.config_map(owner, name.clone(), labels),
        service: is_elected.then(|| service::master(owner, name)),
        set: stateful_set(owner, parts),
    }
}

fn environment(host: &str, is_elected: bool) -> Vec<(&'static str, String)> {
    let own = ("BROKER_IP1", format!("$(POD_NAME).{host}"));
    // Brokers find each other by the address that each registers at its start: a name may lead to
    // the pod before for some seconds, which a hand-over has not.
    let peer = is_elected.then(|| ("BROKER_IP2", "$(POD_IP)".to_owned()));
    std::iter::once(own).chain(peer).collect()
}

/// broker.conf: what people say, then what follows from other fields.
fn broker_conf(group: &ValidGroup, controller: &str) -> ConfigFile {
    let spec = &group.spec;
    let flush = match spec.flush {
        Flush::Async => "ASYNC_FLUSH",
        Flush::Sync => "SYNC_FLUSH",
    };
    let mut entries: BTreeMap<String, String> = spec.config.clone().unwrap_or_default();
    for (key, value) in [
        ("brokerClusterName", spec.cluster.clone()),
        ("brokerName", group.name.clone()),
        ("namesrvAddr", spec.name_server_address.clone()),
        ("listenPort", port::BROKER_REMOTING.to_string()),
        ("metricsPromExporterPort", port::BROKER_HEALTH.to_string()),
        ("flushDiskType", flush.to_owned()),
        ("storePathRootDir", format!("{DATA_FOLDER}/store")),
    ] {
        entries.insert(key.to_owned(), value);
    }
    let role = if spec.replicas() > 1 { elected(group, controller) } else { alone() };
    entries.extend(role.into_iter().map(|(key, value)| (key.to_owned(), value)));
    ConfigFile::new("broker.conf", &entries)
}

/// The lines of a broker that is the only one of its group.
fn alone() -> Vec<(&'static str, String)> {
    vec![("brokerId", "0".to_owned()), ("brokerRole", "ASYNC_MASTER".to_owned())]
}

/// The lines of a broker whose role is decided by elections.
fn elected(group: &ValidGroup, controller: &str) -> Vec<(&'static str, String)> {
    let (service, namespace) = (service::master_name(&group.name), &group.owner.namespace);
    let port = port::BROKER_REMOTING;
    vec![
        ("enableControllerMode", "true".to_owned()),
        ("controllerAddr", controller.to_owned()),
        ("controllerTokenFile", pod::token_path()),
        ("masterAddress", format!("{service}.{namespace}.svc:{port}")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker_group_controller::fetch::Fetched;
    use crate::broker_group_controller::validate::validate;
    use crds::BrokerGroup;

    fn objects(spec: &str) -> GroupObjects {
        let group: BrokerGroup = serde_yaml::from_str(&format!(
            "apiVersion: rocketmq.rs/v1alpha1
kind: BrokerGroup
metadata:
  name: orders-0
  namespace: mq
  uid: '2'
  ownerReferences:
  - {{apiVersion: v1, kind: RocketMQCluster, name: orders, uid: '1', controller: true}}
spec:
  cluster: orders
  nameServerAddress: orders-namesrv.mq.svc:9876
  image: broker:1
{spec}"
        ))
        .unwrap();
        build(&validate(&group, &Fetched::default()).unwrap(), "operator.system.svc:9878")
    }

    #[test]
    fn the_least_group() {
        let GroupObjects { config_map, set, .. } =
            objects("  flush: Async\n  storage: {size: 1Gi}\n");
        insta::assert_yaml_snapshot!("config_map", config_map);
        insta::assert_yaml_snapshot!("set", set);
    }

    #[test]
    fn every_field_takes_effect() {
        let GroupObjects { config_map, set, .. } = objects(
            r#"
  imagePullPolicy: Never
  imagePullSecrets: [{name: registry}]
  flush: Sync
  storage: {size: 2Gi, storageClassName: fast, reclaim: Delete}
  config: {fileReservedTime: "48", brokerName: "cannot win"}
  resources: {requests: {cpu: 1}, limits: {memory: 128Mi}}
  pod:
    labels: {team: b}
    annotations: {note: b}
    nodeSelector: {disk: ssd}
    tolerations: [{key: dedicated, operator: Exists}]
    affinity: {nodeAffinity: {}}
    priorityClassName: high
"#,
        );
        insta::assert_yaml_snapshot!("config_map_full", config_map);
        insta::assert_yaml_snapshot!("set_full", set);
    }

    #[test]
    fn several_replicas_are_elected() {
        let GroupObjects { config_map, service, set } =
            objects("  flush: Async\n  replicas: 3\n  storage: {size: 1Gi}\n");
        insta::assert_yaml_snapshot!("config_map_elected", config_map);
        insta::assert_yaml_snapshot!("service_elected", service);
        insta::assert_yaml_snapshot!("set_elected", set);
    }

    #[test]
    fn only_a_changed_configuration_changes_its_hash() {
        let hash = |spec: &str| {
            let template = objects(spec).set.spec.unwrap().template;
            template.metadata.unwrap().annotations.unwrap()[label::CONFIG_HASH].clone()
        };
        let least = hash("  flush: Async\n  storage: {size: 1Gi}\n");
        assert_eq!(least, hash("  flush: Async\n  storage: {size: 2Gi}\n"));
        assert_ne!(least, hash("  flush: Sync\n  storage: {size: 1Gi}\n"));
    }
}
