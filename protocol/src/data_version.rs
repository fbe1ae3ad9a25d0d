//! Version stamp of a table that a broker reports.

use serde::{Deserialize, Serialize};

/// Orders two states of one table: by `state_version`, then `counter`, then `timestamp`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVersion {
    /// Epoch of the master that wrote the table; 0 without a controller.
    pub state_version: i64,
    /// Number of changes.
    pub counter: i64,
    /// When the last change was made, milliseconds since the epoch.
    pub timestamp: i64,
}

impl DataVersion {
    /// The version after one more change.
    #[must_use]
    pub fn next(self, now_millis: i64) -> Self {
        Self { counter: self.counter.saturating_add(1), timestamp: now_millis, ..self }
    }

    /// The version of the unchanged table of a master whose epoch begins.
    #[must_use]
    pub fn begin_epoch(self, epoch: i64, now_millis: i64) -> Self {
        Self { state_version: epoch, ..self.next(now_millis) }
    }
}
