//! The objects of a cluster.

use super::validate::ValidCluster;
use crate::build::config_map::ConfigFile;
use crate::build::pod::{self, DATA_FOLDER, PodParts, Port};
use crate::build::pod_disruption_budget::one_at_a_time;
use crate::build::service::headless;
use crate::build::service_account::service_account;
use crate::build::stateful_set::{StatefulSetParts, stateful_set};
use crate::label::{self, Component};
use crate::port;
use crds::{BrokerGroup, BrokerGroupSpec};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use std::collections::BTreeMap;

/// A name server answers what it has begun and goes.
const GRACE_SECONDS: i64 = 30;
const CPU_DEFAULT: &str = "50m";
const MEMORY_DEFAULT: &str = "64Mi";

/// The objects of a cluster.
#[derive(Clone, Debug)]
pub(super) struct ClusterObjects {
    pub(super) service_account: ServiceAccount,
    pub(super) config_map: ConfigMap,
    pub(super) services: Vec<Service>,
    pub(super) budgets: Vec<PodDisruptionBudget>,
    pub(super) set: StatefulSet,
    pub(super) groups: Vec<BrokerGroup>,
}

/// Where clients and brokers find the name servers: one name for all of them, so that a change of
/// their number changes no configuration.
pub(super) fn name_server_address(cluster: &str, namespace: &str) -> String {
    let service = label::component_name(cluster, Component::Namesrv);
    format!("{service}.{namespace}.svc:{}", port::NAMESRV_REMOTING)
}

/// Every name server by its own name, joined by `;`.
pub(super) fn name_server_addresses(cluster: &str, namespace: &str, count: i32) -> String {
    let service = label::component_name(cluster, Component::Namesrv);
    let address = name_server_address(cluster, namespace);
    let each: Vec<_> = (0..count).map(|index| format!("{service}-{index}.{address}")).collect();
    each.join(";")
}

pub(super) fn build(cluster: &ValidCluster) -> ClusterObjects {
    let owner = &cluster.owner;
    let ports = |ports: &[(&'static str, i32)]| -> Vec<Port> {
        ports.iter().map(|&(name, number)| Port { name, number }).collect()
    };
    let file = namesrv_conf();
    ClusterObjects {
        service_account: service_account(owner),
        services: vec![
            headless(owner, Component::Namesrv, &ports(&port::NAMESRV)),
            headless(owner, Component::Broker, &ports(&port::BROKER)),
        ],
        budgets: vec![
            one_at_a_time(owner, Component::Namesrv),
            one_at_a_time(owner, Component::Broker),
        ],
        config_map: file.config_map(
            owner,
            label::component_name(&owner.cluster, Component::Namesrv),
            label::component_labels(&owner.cluster, Component::Namesrv),
        ),
        set: name_servers(cluster, &file, ports(&port::NAMESRV)),
        groups: (0..cluster.brokers.groups).map(|index| group(cluster, index)).collect(),
    }
}

fn namesrv_conf() -> ConfigFile {
    let entries = [
        ("listenPort", port::NAMESRV_REMOTING.to_string()),
        ("healthPort", port::NAMESRV_HEALTH.to_string()),
        ("kvConfigPath", format!("{DATA_FOLDER}/kvConfig.json")),
    ];
    let entries: BTreeMap<_, _> =
        entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    ConfigFile::new("namesrv.conf", &entries)
}

/// Name servers keep nothing that brokers do not tell them again, but for the KV configuration
/// that old clients may have put there. It outlives a container, not a pod: a claim per name
/// server would pin each to a disk for data that almost nobody has.
fn name_servers(cluster: &ValidCluster, file: &ConfigFile, ports: Vec<Port>) -> StatefulSet {
    let owner = &cluster.owner;
    let name = label::component_name(&owner.cluster, Component::Namesrv);
    let labels = label::component_labels(&owner.cluster, Component::Namesrv);
    let template = pod::template(PodParts {
        component: Component::Namesrv,
        cluster: owner.cluster.clone(),
        labels: labels.clone(),
        image: cluster.namesrv_image.clone(),
        image_pull_policy: cluster.image_pull_policy,
        image_pull_secrets: cluster.image_pull_secrets.clone().unwrap_or_default(),
        arguments: vec!["-c".to_owned(), pod::config_path(file.name)],
        environment: Vec::new(),
        is_elected: false,
        ports,
        resources: pod::resources(cluster.namesrv_resources.as_ref(), CPU_DEFAULT, MEMORY_DEFAULT),
        config_map: name.clone(),
        config_hash: file.hash(),
        data_is_claimed: false,
        settings: cluster.namesrv_pod.clone(),
        affinity: cluster.namesrv_affinity.clone(),
        grace_seconds: GRACE_SECONDS,
    });
    let parts = StatefulSetParts {
        name: name.clone(),
        labels,
        selector: label::component_selector(&owner.cluster, Component::Namesrv),
        service: name,
        replicas: cluster.name_servers,
        template,
        storage: None,
    };
    stateful_set(owner, parts)
}

fn group(cluster: &ValidCluster, index: i32) -> BrokerGroup {
    let owner = &cluster.owner;
    let name = label::group_name(&owner.cluster, index);
    let brokers = &cluster.brokers;
    let spec = BrokerGroupSpec {
        cluster: owner.cluster.clone(),
        name_server_address: name_server_address(&owner.cluster, &owner.namespace),
        image: cluster.broker_image.clone(),
        image_pull_policy: cluster.image_pull_policy,
        image_pull_secrets: cluster.image_pull_secrets.clone(),
        flush: brokers.flush.unwrap_or_default(),
        replicas: brokers.replicas,
        storage: brokers.storage.clone(),
        config: brokers.config.clone(),
        resources: brokers.resources.clone(),
        pod: brokers.pod.clone(),
    };
    let mut group = BrokerGroup::new(&name, spec);
    group.metadata = owner.metadata(name.clone(), label::group_labels(&owner.cluster, &name));
    group
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster_controller::fetch::Fetched;
    use crate::cluster_controller::validate::validate;
    use crate::context::Images;
    use crds::RocketMQCluster;

    fn objects(spec: &str) -> ClusterObjects {
        let cluster: RocketMQCluster = serde_yaml::from_str(&format!(
            "apiVersion: rocketmq.rs/v1alpha1\nkind: RocketMQCluster\n\
             metadata: {{name: orders, namespace: mq, uid: '1'}}\nspec: {spec}"
        ))
        .unwrap();
        let images = Images { namesrv: "namesrv:1".to_owned(), broker: "broker:1".to_owned() };
        build(&validate(&cluster, &Fetched::default(), &images).unwrap())
    }

    #[test]
    fn the_least_cluster() {
        let ClusterObjects { service_account, config_map, services, budgets, set, groups } =
            objects("{brokers: {groups: 1, storage: {size: 1Gi}}}");
        insta::assert_yaml_snapshot!("service_account", service_account);
        insta::assert_yaml_snapshot!("config_map", config_map);
        insta::assert_yaml_snapshot!("services", services);
        insta::assert_yaml_snapshot!("budgets", budgets);
        insta::assert_yaml_snapshot!("name_servers", set);
        insta::assert_yaml_snapshot!("groups", groups);
    }

    #[test]
    fn every_field_takes_effect() {
        let objects = objects(
            r#"
  imagePullPolicy: Never
  imagePullSecrets: [{name: registry}]
  nameServer:
    replicas: 3
    image: mine/namesrv:2
    resources: {requests: {cpu: 1, memory: 1Gi}, limits: {memory: 2Gi}}
    pod:
      labels: {team: a}
      annotations: {note: b}
      nodeSelector: {disk: ssd}
      tolerations: [{key: dedicated, operator: Exists}]
      affinity: {nodeAffinity: {}}
      priorityClassName: high
  brokers:
    groups: 2
    flush: Sync
    image: mine/broker:2
    storage: {size: 1Gi, storageClassName: fast, reclaim: Delete}
    config: {fileReservedTime: "48"}
    resources: {limits: {cpu: 2}}
    pod: {labels: {team: b}}
"#,
        );
        insta::assert_yaml_snapshot!("name_servers_full", objects.set);
        insta::assert_yaml_snapshot!("groups_full", objects.groups);
    }

    #[test]
    fn addresses() {
        assert_eq!(name_server_address("o", "mq"), "o-namesrv.mq.svc:9876");
        assert_eq!(
            name_server_addresses("o", "mq", 2),
            "o-namesrv-0.o-namesrv.mq.svc:9876;o-namesrv-1.o-namesrv.mq.svc:9876"
        );
    }
}
