//! Cutting off the end of a log while it is open.

use std::sync::atomic::Ordering;

use super::CommitLog;
use crate::disk::zero_data;
use crate::error::StoreError;

impl CommitLog {
    /// Makes everything from `to` on durably zeros; the caller keeps all others from writing and
    /// flushing. A crash meanwhile leaves a log that ends at `to`, at its old end, or between.
    pub(crate) fn cut(&self, to: i64) -> Result<(), StoreError> {
        // First, so that nobody reads what is about to go.
        self.written.store(to, Ordering::Release);
        self.flushed.fetch_min(to, Ordering::AcqRel);
        // The first file stays even when it becomes empty: it keeps the offsets.
        self.remove_from(to.max(self.min_offset() + 1))?;
        let Some(segment) = self.segment_at(to) else { return Ok(()) };
        let position = to.abs_diff(segment.start);
        let rest = self.segment_bytes.cast_unsigned() - position;
        let zeroed = zero_data(&*segment.file, position, rest);
        let zeroed = zeroed.and_then(|_| segment.file.sync_data());
        zeroed.map_err(StoreError::io("truncate", &segment.path))
    }

    /// Begins an empty log at another offset, at which a file begins.
    pub(super) fn begin_at(&self, offset: i64) -> Result<(), StoreError> {
        self.remove_from(i64::MIN)?;
        self.set_end(offset);
        Ok(())
    }
}
