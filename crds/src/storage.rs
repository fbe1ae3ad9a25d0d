//! The data volume of a broker.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

pub(crate) const SIZE_MESSAGE: &str =
    "size must be a quantity of at least 64Mi, as 20Gi (note that m means thousandths)";
pub(crate) const SHRINK_MESSAGE: &str = "size may only grow: a volume cannot be made smaller";
const CLASS_MESSAGE: &str = "storageClassName cannot be changed: a volume cannot move to another \
                             class (make a new cluster and move the clients)";

/// Smallest volume that is no typing mistake, in bytes.
pub const SIZE_BYTES_MIN: u64 = 64 << 20;

/// The volume of each broker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = (
    "has(self.storageClassName) == has(oldSelf.storageClassName) && \
     (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",
    CLASS_MESSAGE
))]
pub struct Storage {
    /// Size of the volume, as `20Gi`. It may grow when the storage class can expand volumes.
    #[schemars(length(min = 1, max = 20))]
    #[x_kube(
        validation = (
            "isQuantity(self) && quantity(self).compareTo(quantity('64Mi')) >= 0",
            SIZE_MESSAGE
        ),
        validation = (
            "!isQuantity(self) || !isQuantity(oldSelf) || \
             quantity(self).compareTo(quantity(oldSelf)) >= 0",
            SHRINK_MESSAGE
        )
    )]
    pub size: String,
    /// Storage class of the volume. Absent: the default class of the Kubernetes cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub storage_class_name: Option<String>,
    /// What becomes of the volume claims when the resource is deleted. Absent: `Retain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<Reclaim>,
}

/// What becomes of volume claims when their resource is deleted: `Retain` keeps them (a resource
/// of the same name finds its messages again), `Delete` removes them and the messages.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub enum Reclaim {
    #[default]
    Retain,
    Delete,
}
