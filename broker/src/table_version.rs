//! The version of a table that the replicas of an elected group share, and where its changes go.

use std::sync::Arc;

use protocol::data_version::DataVersion;

use crate::clock::now_ms;
use crate::metadata_log::{MetadataLog, TableChange};

/// See the module.
#[derive(Default)]
pub(crate) struct TableVersion {
    current: DataVersion,
    log: Arc<MetadataLog>,
}

impl TableVersion {
    /// That of a table which was read from a file.
    pub(crate) fn new(current: DataVersion) -> Self {
        Self { current, log: Arc::default() }
    }

    pub(crate) fn current(&self) -> DataVersion {
        self.current
    }

    /// Changes from now on go to this log.
    pub(crate) fn set_log(&mut self, log: &Arc<MetadataLog>) {
        self.log = Arc::clone(log);
    }

    /// The table has changed here. Called before anybody else sees the change.
    pub(crate) fn changed(&mut self, change: TableChange) {
        self.renew();
        self.log.write(self.current, change);
    }

    /// A new version of the unchanged table. A slave's stays, so that what the master says is
    /// always newer.
    pub(crate) fn renew(&mut self) {
        if !self.log.is_slave() {
            self.current = self.current.next(now_ms());
        }
    }

    /// Versions from now on are those of the master of this epoch.
    pub(crate) fn begin_epoch(&mut self, epoch: i64) {
        self.current = self.current.begin_epoch(epoch, now_ms());
    }

    /// Whether a change in the log is newer than the table, which then has its version.
    pub(crate) fn take(&mut self, of_change: DataVersion) -> bool {
        let is_newer = of_change > self.current;
        self.current = self.current.max(of_change);
        is_newer
    }

    /// Whether the whole table of another broker may replace this one, which then has its version.
    /// In an elected group changes may have come in the log since it was asked for, or this broker
    /// may have become master.
    pub(crate) fn replace(&mut self, of_table: DataVersion) -> bool {
        if self.log.is_started() && of_table < self.current {
            return false;
        }
        self.current = of_table;
        true
    }
}
