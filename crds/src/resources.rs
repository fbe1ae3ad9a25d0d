//! CPU and memory of a container.

use crate::quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

pub(crate) const CPU_MESSAGE: &str = "requests.cpu must not be above limits.cpu";
pub(crate) const MEMORY_MESSAGE: &str = "requests.memory must not be above limits.memory";

/// CPU and memory that a container asks for and may use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = (
        "!has(self.requests) || !has(self.requests.cpu) || !has(self.limits) || \
         !has(self.limits.cpu) || \
         quantity(string(self.requests.cpu)).compareTo(quantity(string(self.limits.cpu))) <= 0",
        CPU_MESSAGE
    ),
    validation = (
        "!has(self.requests) || !has(self.requests.memory) || !has(self.limits) || \
         !has(self.limits.memory) || \
         quantity(string(self.requests.memory)).compareTo(quantity(string(self.limits.memory))) \
         <= 0",
        MEMORY_MESSAGE
    )
)]
pub struct Resources {
    /// What the container is sure to get. Absent: a small default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<ResourceList>,
    /// What the container may use at most. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ResourceList>,
}

/// Amounts of CPU and memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceList {
    /// CPU cores, as `2` or `500m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quantity::schema")]
    pub cpu: Option<IntOrString>,
    /// Memory in bytes, as `512Mi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quantity::schema")]
    pub memory: Option<IntOrString>,
}
