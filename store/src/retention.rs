//! Deleting what is old, and watching how full the disk is.
//!
//! Files go one at a time with a pause after each, because removing a large file keeps a disk busy;
//! oldest first, never the newest, and never because someone has or has not read them. The disk is
//! looked at by a thread of its own, so that a slow deletion does not hide that it fills up.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::commit_log::CommitLog;
use crate::config::StoreConfig;
use crate::consume_queue_table::ConsumeQueueTable;
use crate::disk::Disk;
use crate::error::StoreError;
use crate::index::Index;
use crate::metrics::Metrics;
use crate::running_flags::RunningFlags;

const HOUR_MS: i64 = 3_600_000;

/// See the module.
pub(crate) struct Retention {
    pub(crate) config: Arc<StoreConfig>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) log: Arc<CommitLog>,
    pub(crate) queues: Arc<ConsumeQueueTable>,
    pub(crate) index: Arc<Index>,
    pub(crate) flags: Arc<RunningFlags>,
    pub(crate) metrics: Arc<Metrics>,
    /// First byte of the log when the queues were cleaned.
    pub(crate) cleaned_to: AtomicI64,
}

/// Why files are deleted in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// Those that are expired, if it is the hour or the disk is rather full.
    Expired,
    /// The oldest, expired or not.
    Space,
}

impl Retention {
    /// One round: looks at the disk, then deletes what may go. Calls `pause` after each file, which
    /// says whether to stop.
    pub(crate) fn run(
        &self,
        now_ms: i64,
        mut pause: impl FnMut() -> bool,
    ) -> Result<(), StoreError> {
        for _ in 0..self.config.delete_file_batch_max {
            let used = self.watch_disk()?;
            let Some(reason) = self.reason(used, now_ms) else { break };
            if !self.delete_oldest(reason, now_ms)? || pause() {
                break;
            }
        }
        self.clean_queues()
    }

    /// Blocks or unblocks writing by how full the disk is; returns per cent in use.
    pub(crate) fn watch_disk(&self) -> Result<u8, StoreError> {
        let dir = self.log.dir();
        let space = self.disk.space(dir).map_err(StoreError::io("look at the space of", dir))?;
        let used = space.used_percent();
        let limit = self.config.disk_space_warning_level_ratio;
        let text = format!(
            "the disk of {} is {used} % full, diskSpaceWarningLevelRatio is {limit}",
            dir.display()
        );
        self.flags.set_disk_full((used > limit).then_some(text));
        Ok(used)
    }

    fn reason(&self, used: u8, now_ms: i64) -> Option<Reason> {
        if used > self.config.disk_space_clean_forcibly_ratio
            && self.config.clean_file_forcibly_enable
        {
            return Some(Reason::Space);
        }
        let local_ms = now_ms + i64::from(self.config.utc_offset_seconds) * 1000;
        let hour = local_ms.div_euclid(HOUR_MS).rem_euclid(24);
        let is_hour = self.config.delete_when.iter().any(|when| i64::from(*when) == hour);
        (is_hour || used > self.config.disk_max_used_space_ratio).then_some(Reason::Expired)
    }

    fn delete_oldest(&self, reason: Reason, now_ms: i64) -> Result<bool, StoreError> {
        let segments = self.log.segments();
        let [oldest, _, ..] = &segments[..] else { return Ok(false) };
        // A file that the writer has not left, or the flusher not flushed, stays.
        if oldest.start + self.log.segment_bytes() > self.log.flushed() {
            return Ok(false);
        }
        let modified = self.disk.modified_ms(&oldest.path);
        let modified = modified.map_err(StoreError::io("look at", &oldest.path))?;
        let reserved = i64::try_from(self.config.file_reserved_time.as_millis());
        let expires = modified.saturating_add(reserved.unwrap_or(i64::MAX));
        if reason == Reason::Expired && now_ms < expires {
            return Ok(false);
        }
        if now_ms < expires {
            let path = oldest.path.display();
            tracing::warn!(%path, "deleting messages before their time: the disk is too full");
        }
        let is_removed = self.log.remove_oldest()?;
        if is_removed {
            self.metrics.deleted_segments.fetch_add(1, Ordering::Relaxed);
        }
        Ok(is_removed)
    }

    /// Moves the beginning of each queue up to that of the log and deletes files of queues and
    /// index that it has left.
    fn clean_queues(&self) -> Result<(), StoreError> {
        let log_min = self.log.min_offset();
        if self.cleaned_to.swap(log_min, Ordering::AcqRel) == log_min {
            return Ok(());
        }
        for queue in self.queues.all() {
            queue.correct_min(log_min)?;
            while queue.remove_expired_file()? {}
        }
        self.index.clean(log_min)
    }
}
