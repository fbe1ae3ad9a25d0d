//! What people may say about where and how pods run. Not a pod template: the rest is the
//! operator's, so that every pod stays within the restricted security profile.

use k8s_openapi::api::core::v1::Toleration;
use kube::KubeSchema;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(crate) const LABEL_MESSAGE: &str =
    "labels that start with rocketmq.rs/ or app.kubernetes.io/ are set by the operator";
pub(crate) const ANNOTATION_MESSAGE: &str =
    "annotations that start with rocketmq.rs/ are set by the operator";

/// Where and how pods run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSettings {
    /// Labels added to the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "labels_schema")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations added to the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "annotations_schema")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "node_selector_schema")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Node taints that the pods bear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub tolerations: Option<Vec<Toleration>>,
    /// Affinity as in a pod. Besides it, pods of one kind are spread over zones and nodes where
    /// that is possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object_schema")]
    pub affinity: Option<Value>,
    /// Priority class of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,
}

/// When images are pulled, as in a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub enum ImagePullPolicy {
    Always,
    IfNotPresent,
    Never,
}

impl ImagePullPolicy {
    /// The word that a container spec has.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

/// A Secret of the same namespace with registry credentials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
pub struct PullSecret {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

fn string_map(entries_max: u64, value_chars_max: u64) -> Schema {
    json_schema!({
        "type": "object",
        "nullable": true,
        "maxProperties": entries_max,
        "additionalProperties": {"type": "string", "maxLength": value_chars_max},
    })
}

fn with_rule(mut schema: Schema, rule: &str, message: &str) -> Schema {
    let rules = json!([{"rule": rule, "message": message}]);
    schema.insert("x-kubernetes-validations".to_owned(), rules);
    schema
}

fn labels_schema(_: &mut SchemaGenerator) -> Schema {
    let rule = "self.all(k, !k.startsWith('rocketmq.rs/') && !k.startsWith('app.kubernetes.io/'))";
    with_rule(string_map(64, 63), rule, LABEL_MESSAGE)
}

fn annotations_schema(_: &mut SchemaGenerator) -> Schema {
    with_rule(
        string_map(64, 4096),
        "self.all(k, !k.startsWith('rocketmq.rs/'))",
        ANNOTATION_MESSAGE,
    )
}

fn node_selector_schema(_: &mut SchemaGenerator) -> Schema {
    string_map(32, 63)
}

fn any_object_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "nullable": true,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}
