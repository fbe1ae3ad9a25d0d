//! Where the record of a group is kept.

use std::sync::Arc;

use futures::future::BoxFuture;
use replication::GroupRecord;
use replication::group_record::Version;

/// Why a store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreFailure {
    /// Another write came first.
    #[error("the record was changed by another")]
    Conflict,
    /// No answer. A write may have been carried out nevertheless.
    #[error("{0}")]
    Unavailable(String),
}

/// The record of one group, behind compare-and-swap.
pub trait GroupStore: Send + Sync + 'static {
    /// The record as it is now, never from a cache; the default if there was never one.
    fn read(&self) -> BoxFuture<'_, Result<(Version, GroupRecord), StoreFailure>>;

    /// Replaces the record of version `expected`, durably, and returns its new version.
    fn write(
        &self,
        expected: Version,
        record: Arc<GroupRecord>,
    ) -> BoxFuture<'_, Result<Version, StoreFailure>>;
}
