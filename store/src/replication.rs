//! What replication needs of a store: its log as bytes, the confirm offset, and who numbers the
//! messages. Protocols and roles in a group are the broker's matter.

use std::sync::Arc;

use bytes::Bytes;

use crate::commit_log::LogListener;
use crate::commit_log::append::{AppendRequest, WrittenGroup};
use crate::confirm::UNBOUNDED;
use crate::error::{ReplicationError, StoreError};
use crate::message_store::{MessageStore, Threads};
use crate::pipeline::Pipeline;

impl MessageStore {
    /// Registers someone who is told when the log has grown or was flushed.
    pub fn add_log_listener(&self, listener: Arc<dyn LogListener>) {
        self.pipeline.log.add_listener(listener);
    }

    /// Waits until nothing that was enqueued before is still to be written; the end of the log.
    pub fn drain_appends(&self) -> i64 {
        self.pipeline.write_enqueued();
        let _appender = self.pipeline.appender.lock();
        self.pipeline.log.written()
    }

    /// The failure of the disk that has ended writing for good, if there was one.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.pipeline.flags.failure()
    }

    /// First byte of the log.
    #[must_use]
    pub fn log_min_offset(&self) -> i64 {
        self.pipeline.log.min_offset()
    }

    /// End of the log.
    #[must_use]
    pub fn log_end(&self) -> i64 {
        self.pipeline.log.written()
    }

    /// Everything below is on the disk.
    #[must_use]
    pub fn log_flushed(&self) -> i64 {
        self.pipeline.log.flushed()
    }

    /// Where the file that holds an offset begins.
    #[must_use]
    pub fn log_file_start(&self, offset: i64) -> i64 {
        offset - offset.rem_euclid(self.pipeline.log.segment_bytes())
    }

    /// At most `bytes_max` bytes of the log from an offset on, all of one file, as they are:
    /// records and the filler at the end of a file. Nothing at the end of the log. What is readable
    /// by consumers is not copied.
    ///
    /// # Errors
    /// The log has no such offset, or the disk refuses.
    pub fn read_log(&self, offset: i64, bytes_max: usize) -> Result<Bytes, ReplicationError> {
        let log = &self.pipeline.log;
        let end = log.written();
        let out_of_range = || ReplicationError::OutOfRange { offset, min: log.min_offset(), end };
        if offset == end {
            return Ok(Bytes::new());
        }
        let segment = log.segment_at(offset).filter(|_| offset < end).ok_or_else(out_of_range)?;
        let stop = end.min(segment.start + log.segment_bytes());
        let stop = stop.min(offset.saturating_add(i64::try_from(bytes_max).unwrap_or(i64::MAX)));
        let length = usize::try_from(stop - offset).unwrap_or(0);
        // Only what can never be cut is handed out as it is mapped.
        if stop <= self.pipeline.dispatched.get().0 {
            return Ok(segment.bytes(offset, length)?);
        }
        let mut buffer = vec![0; length];
        segment.read(offset, &mut buffer)?;
        Ok(buffer.into())
    }

    /// Appends records and fillers that lie at `offset` in the master's log, which must be the end
    /// of this one; an empty log takes the start of any file. Returns how many bytes were appended:
    /// what is left at the end is the beginning of a record, to be given again with what follows
    /// (a record has at most [`REPLICATED_RECORD_BYTES_MAX`](crate::REPLICATED_RECORD_BYTES_MAX)).
    ///
    /// # Errors
    /// The broker is master, the bytes are wrong (those before the wrong ones may have been
    /// appended), or the store takes nothing at present.
    pub fn append_replicated(&self, offset: i64, bytes: &[u8]) -> Result<usize, ReplicationError> {
        self.pipeline.append_replicated(offset, bytes)
    }

    /// Cuts the log of a slave at `to`, durably: what lies behind never comes back. A crash
    /// meanwhile leaves a log that ends at `to`, at its old end, or between.
    ///
    /// # Errors
    /// The broker is master, records from there on are confirmed or readable, no record ends there,
    /// or the disk refuses; then the store takes nothing more.
    pub fn truncate(&self, to: i64) -> Result<(), ReplicationError> {
        self.pipeline.truncate(to)
    }

    /// Everything below may be read and acknowledged; `None` when nobody is waited for.
    #[must_use]
    pub fn confirm_offset(&self) -> Option<i64> {
        Some(self.pipeline.confirm.offset()).filter(|offset| *offset != UNBOUNDED)
    }

    /// From now on nothing becomes readable, and nobody is answered, beyond the confirm offset,
    /// which begins at the end of what is readable. Returns it.
    pub fn hold_confirm(&self) -> i64 {
        let dispatch = self.pipeline.dispatch.lock();
        self.pipeline.confirm.hold(dispatch.end());
        self.pipeline.confirm.offset()
    }

    /// Raises the confirm offset; a lower one, or any when nobody is waited for, changes nothing.
    /// It may lie beyond the end of the log.
    pub fn set_confirm(&self, offset: i64) {
        if self.pipeline.confirm.raise(offset) {
            self.pipeline.notice_dispatch();
            self.pipeline.dispatch_written();
        }
    }

    /// Nobody is waited for any more.
    pub fn release_confirm(&self) {
        self.set_confirm(UNBOUNDED);
    }

    /// Whether only the master's records are taken.
    #[must_use]
    pub fn is_slave(&self) -> bool {
        self.pipeline.confirm.is_slave()
    }

    /// Gives no message its place any more. Those who wait for an answer get
    /// [`PutError::Demoted`](crate::PutError::Demoted), or a refusal if nothing was written.
    pub fn become_slave(&self) {
        self.pipeline.become_slave();
    }

    /// Takes messages; their numbers follow those in the log, readable or not.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn become_master(&self) -> Result<(), StoreError> {
        self.pipeline.become_master()
    }
}

impl Pipeline {
    fn append_replicated(&self, offset: i64, bytes: &[u8]) -> Result<usize, ReplicationError> {
        let _guard = self.end_if_panicking("of replication");
        let mut appender = self.appender.lock();
        if !self.confirm.is_slave() {
            return Err(ReplicationError::NotSlave);
        }
        let outcome = appender.append_replicated(offset, bytes);
        // Also after an error: a part may have been appended.
        self.confirm.set_tail_end(self.log.written());
        let marker = appender.marker();
        drop(appender);
        let _ = self.to_flusher.replace(marker, WrittenGroup::is_marker);
        if !self.is_sync() {
            self.notice_dispatch();
            self.dispatch_written();
        }
        outcome
    }

    fn truncate(&self, to: i64) -> Result<(), ReplicationError> {
        let mut appender = self.appender.lock();
        if !self.confirm.is_slave() {
            return Err(ReplicationError::NotSlave);
        }
        if let Some(reason) = self.flags.failure() {
            return Err(ReplicationError::NotWritable(reason));
        }
        let dispatch = self.dispatch.lock();
        let end = self.log.written();
        let confirmed = dispatch.end().max(self.confirm.offset().min(end));
        if to < confirmed {
            return Err(ReplicationError::Confirmed { to, confirmed });
        }
        if to > end {
            let min = self.log.min_offset();
            return Err(ReplicationError::OutOfRange { offset: to, min, end });
        }
        if !self.tail.is_boundary(dispatch.end(), to)? {
            return Err(ReplicationError::NotBoundary { to });
        }
        let _not_flushed = self.flusher.exclude();
        self.confirm.set_tail_end(to);
        let cut = self.log.cut(to).and_then(|()| self.deleted.cut(to));
        appender.go_to(to);
        if let Err(error) = cut {
            // What is on the disk is unknown.
            self.flags.fail(&format!("cutting the commit log failed: {error}"));
            return Err(error.into());
        }
        Ok(())
    }

    fn become_slave(&self) {
        let mut appender = self.appender.lock();
        self.flags.set_slave(true);
        self.confirm.set_slave(true);
        let mut requests = Vec::new();
        self.to_writer.try_take(&mut requests);
        requests.into_iter().for_each(AppendRequest::refuse_as_slave);
        let term = appender.end_term();
        let mut dispatch = self.dispatch.lock();
        dispatch.end_term(term);
        // What was written and not dispatched is read from the log from now on.
        self.confirm.set_tail_end(self.log.written());
        drop((appender, dispatch));
        self.notice_dispatch();
        self.dispatch_written();
    }

    fn become_master(&self) -> Result<(), StoreError> {
        let appender = self.appender.lock();
        let dispatch = self.dispatch.lock();
        if self.confirm.is_slave() {
            self.tail.number_queues(dispatch.end()..self.log.written())?;
            self.confirm.set_slave(false);
            self.flags.set_slave(false);
        }
        drop((dispatch, appender));
        if self.threads == Threads::Own {
            self.write_enqueued();
        }
        Ok(())
    }
}
