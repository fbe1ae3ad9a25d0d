//! The Kubernetes resource types of this project and their generated YAML.
//!
//! `RocketMQCluster` is what a person writes; `BrokerGroup` is one BrokerName of it, written by the
//! operator. Every rule that can be told from the resource alone is said twice: as CEL in the
//! schema, so that the API server refuses a wrong spec at once, and in [`problem`], for local mode
//! and for clusters whose CRD is older than the operator.
//!
//! Deliberately absent: schema defaults (an absent field means the operator's default, which is
//! never written into a spec), embedded pod templates, and fields that have no effect yet.

#![allow(unreachable_pub, reason = "KubeSchema copies each public struct into a function")]

pub mod broker_config;
pub mod broker_group;
pub mod condition;
pub mod election_record;
pub mod pod_settings;
pub mod problem;
pub mod quantity;
pub mod resources;
pub mod rocketmq_cluster;
pub mod storage;

use kube::CustomResourceExt;
use serde_json::Value;

pub use broker_group::{BrokerGroup, BrokerGroupSpec, BrokerGroupStatus, Phase};
pub use election_record::{ElectionJson, ElectionRecord, ReplicaJson};
pub use pod_settings::{ImagePullPolicy, PodSettings, PullSecret};
pub use problem::{Problem, problems};
pub use resources::{ResourceList, Resources};
pub use rocketmq_cluster::{
    BrokersSpec, BrokersStatus, Flush, NameServerSpec, NameServersStatus, RocketMQCluster,
    RocketMQClusterSpec, RocketMQClusterStatus,
};
pub use storage::{Reclaim, Storage};

/// API group of all resources.
pub const GROUP: &str = "rocketmq.rs";

const HEADER: &str =
    "# Generated from the crds crate by `cargo run -p xtask -- crds`. Do not edit.\n";

/// The CRDs as (file name, YAML) pairs, in the order in which they are installed.
pub fn yaml() -> Vec<(String, String)> {
    [RocketMQCluster::crd(), BrokerGroup::crd()]
        .into_iter()
        .map(|crd| {
            let name = format!("{}.yaml", crd.spec.names.plural);
            let mut json = serde_json::to_value(&crd).expect("a CRD is plain data");
            forbid_null(&mut json);
            let body = serde_yaml::to_string(&json).expect("a CRD is plain data");
            (name, format!("{HEADER}{body}"))
        })
        .collect()
}

/// Optional fields are absent, not null: the API server then drops a null, and no message offers
/// "null" as a value.
fn forbid_null(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            map.remove("nullable");
            if let Some(Value::Array(values)) = map.get_mut("enum") {
                values.retain(|value| !value.is_null());
            }
            map.values_mut().for_each(forbid_null);
        }
        Value::Array(list) => list.iter_mut().for_each(forbid_null),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::yaml;

    #[test]
    fn committed_files_are_in_step() {
        // Cargo runs tests in the folder of their crate.
        for (name, text) in yaml() {
            let path = format!("yaml/{name}");
            let committed = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(committed == text, "{path} is stale: run `cargo run -p xtask -- crds`");
        }
    }

    #[test]
    fn schemas_write_no_defaults_into_specs() {
        for (name, text) in yaml() {
            let stray = text.lines().find(|line| line.trim_start().starts_with("default:"));
            assert_eq!(stray, None, "{name}");
        }
    }
}
