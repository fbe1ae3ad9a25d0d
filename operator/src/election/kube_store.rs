//! The record in the status of a BrokerGroup.

use std::sync::Arc;

use crds::BrokerGroup;
use futures::future::BoxFuture;
use kube::api::PostParams;
use kube::{Api, Client};
use replication::GroupRecord;
use replication::group_record::Version;

use super::authority::GroupId;
use super::group_store::{GroupStore, StoreFailure};
use super::record_json;

/// Owner of the record's fields, whom no other write of the status touches.
const FIELD_MANAGER: &str = "rocketmq-election";

/// `.status.election` of a BrokerGroup; its version is the object's resourceVersion, so that a
/// write fails whenever anything of the object has changed since it was read.
pub struct KubeStore {
    api: Api<BrokerGroup>,
    name: String,
}

impl KubeStore {
    /// The record of this group.
    pub fn new(client: Client, group: &GroupId) -> Self {
        Self { api: Api::namespaced(client, &group.namespace), name: group.name.clone() }
    }
}

impl GroupStore for KubeStore {
    fn read(&self) -> BoxFuture<'_, Result<(Version, GroupRecord), StoreFailure>> {
        Box::pin(async {
            // Without a resourceVersion the API server answers from etcd, not from its cache.
            let group = self.api.get(&self.name).await.map_err(|error| failure(&error))?;
            let version = Version(group.metadata.resource_version.clone().unwrap_or_default());
            let kept = group.status.and_then(|status| status.election);
            let record = kept.map(record_json::record).transpose().map_err(|error| {
                StoreFailure::Unavailable(format!("BrokerGroup {}: {error}", self.name))
            })?;
            Ok((version, record.unwrap_or_default()))
        })
    }

    fn write(
        &self,
        expected: Version,
        record: Arc<GroupRecord>,
    ) -> BoxFuture<'_, Result<Version, StoreFailure>> {
        Box::pin(async move {
            let mut group = self.api.get(&self.name).await.map_err(|error| failure(&error))?;
            if group.metadata.resource_version.as_ref() != Some(&expected.0) {
                return Err(StoreFailure::Conflict);
            }
            let status = group.status.get_or_insert_default();
            status.election = Some(record_json::kept(&record));
            let params =
                PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..Default::default() };
            // With the resourceVersion that was read: another write in between is a conflict.
            let written = self.api.replace_status(&self.name, &params, &group).await;
            let written = written.map_err(|error| failure(&error))?;
            Ok(Version(written.metadata.resource_version.unwrap_or_default()))
        })
    }
}

fn failure(error: &kube::Error) -> StoreFailure {
    match error {
        kube::Error::Api(status) if status.code == 409 => StoreFailure::Conflict,
        error => StoreFailure::Unavailable(error.to_string()),
    }
}
