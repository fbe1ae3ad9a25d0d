//! Wakes those who wait for the log to grow or to be flushed.

use store::LogListener;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Growth(Notify);

impl Growth {
    /// Resolves at the next growth after the call; to be enabled before the log is looked at.
    pub(crate) fn next(&self) -> Notified<'_> {
        self.0.notified()
    }
}

impl LogListener for Growth {
    fn log_changed(&self, _: i64, _: i64) {
        // Costs next to nothing while nobody waits.
        self.0.notify_waiters();
    }
}
