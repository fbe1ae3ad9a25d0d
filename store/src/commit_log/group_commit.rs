//! The flusher: one `fdatasync` for everything that was written since the last one.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::{RwLock, RwLockWriteGuard};

use super::CommitLog;
use super::append::WrittenGroup;
use crate::checkpoint::Checkpoint;
use crate::metrics::Metrics;
use crate::running_flags::RunningFlags;

/// See the module.
pub(crate) struct Flusher {
    log: Arc<CommitLog>,
    checkpoint: Arc<Checkpoint>,
    flags: Arc<RunningFlags>,
    metrics: Arc<Metrics>,
    /// Shared by those who flush; a cut of the log excludes them.
    cut: RwLock<()>,
}

impl Flusher {
    pub(crate) fn new(
        log: Arc<CommitLog>,
        checkpoint: Arc<Checkpoint>,
        (flags, metrics): (Arc<RunningFlags>, Arc<Metrics>),
    ) -> Self {
        Self { log, checkpoint, flags, metrics, cut: RwLock::default() }
    }

    /// Keeps everybody from flushing while the log is cut.
    pub(crate) fn exclude(&self) -> RwLockWriteGuard<'_, ()> {
        self.cut.write()
    }

    /// Flushes all these groups at once, and passes them on: they may now be read.
    pub(crate) fn flush(
        &self,
        groups: &mut Vec<WrittenGroup>,
        mut flushed: impl FnMut(WrittenGroup),
    ) {
        let Some(last) = groups.last() else { return };
        let is_flushed = self.flush_to(last.end, last.timestamp);
        for group in groups.drain(..) {
            if !is_flushed {
                group.fail(&self.flags);
                continue;
            }
            flushed(group);
        }
    }

    /// Makes everything below `end` durable; `timestamp` is the store time of its last record.
    /// Returns false, now and ever after, once a flush has failed.
    pub(crate) fn flush_to(&self, end: i64, timestamp: i64) -> bool {
        if self.flags.failure().is_some() {
            return false;
        }
        let _not_cut = self.cut.read();
        // What was to be flushed may have been cut meanwhile.
        let end = end.min(self.log.written());
        let from = self.log.flushed();
        if end <= from {
            return true;
        }
        let begin = Instant::now();
        for segment in self.log.segments_between(from, end) {
            if let Err(error) = segment.file.sync_data() {
                self.checkpoint.note_flush_failure();
                let path = segment.path.display();
                self.flags.fail(&format!("flushing {path} failed: {error}"));
                return false;
            }
        }
        self.metrics.flush_micros.record_micros(begin.elapsed());
        self.log.raise_flushed(end);
        self.checkpoint.set_physic(timestamp);
        true
    }
}
