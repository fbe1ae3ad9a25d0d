//! The service account of the pods. They never speak to Kubernetes, so it has no token.

use super::Owner;
use crate::label;
use k8s_openapi::api::core::v1::ServiceAccount;

/// The service account of all pods of a cluster.
pub fn service_account(owner: &Owner) -> ServiceAccount {
    let name = label::service_account_name(&owner.cluster);
    ServiceAccount {
        metadata: owner.metadata(name, label::cluster_labels(&owner.cluster)),
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}
