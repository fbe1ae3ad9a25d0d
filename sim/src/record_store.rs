//! Where the group's record is kept: compare-and-swap, with outages and stale reads.

use std::sync::Arc;

use replication::group_record::Version;
use replication::{GroupRecord, Millis};

/// See the module.
#[derive(Debug)]
pub(crate) struct RecordStore {
    /// Every record that there was.
    history: Vec<Arc<GroupRecord>>,
    /// Rises with each write, and when the record is put back.
    version: u64,
    pub(crate) down_until: Millis,
    pub(crate) slow_until: Millis,
    /// Planted bug: believes any version.
    pub(crate) is_blind: bool,
}

impl RecordStore {
    pub(crate) fn new() -> Self {
        Self {
            history: vec![Arc::default()],
            version: 1,
            down_until: 0,
            slow_until: 0,
            is_blind: false,
        }
    }

    pub(crate) fn record(&self) -> &Arc<GroupRecord> {
        self.history.last().expect("there is always one")
    }

    pub(crate) fn version(&self) -> Version {
        Version(self.version.to_string())
    }

    /// What a cache may have: one of the last few records, with a version that is not current.
    pub(crate) fn stale(&self, back: usize) -> (Version, GroupRecord) {
        let index = self.history.len().saturating_sub(1 + back);
        let version = if back == 0 { self.version() } else { Version(format!("old{index}")) };
        (version, GroupRecord::clone(&self.history[index]))
    }

    /// Writes if the version is the current one.
    pub(crate) fn write(&mut self, expected: &Version, record: &Arc<GroupRecord>) -> bool {
        let fits = *expected == self.version() || self.is_blind;
        if fits {
            self.history.push(Arc::clone(record));
            self.version += 1;
        }
        fits
    }

    /// Somebody restores a backup, or deletes the object, which is then made anew.
    pub(crate) fn restore(&mut self, is_gone: bool) {
        let back = if is_gone { 0 } else { self.history.len().saturating_sub(3) };
        let record = Arc::clone(&self.history[back]);
        self.history.push(record);
        self.version += 1;
    }
}
