//! The way of a message through the store, and the threads that carry it.
//!
//! ```text
//! put (sender's thread: check, encode)
//!   -> writer      numbers, one write for all that wait
//!   -> flusher     one fdatasync for all that wait      (SYNC_FLUSH: then answers the senders)
//!   -> dispatcher  consume queue units, then tells those who wait for messages
//! ```
//! Under ASYNC_FLUSH the senders are answered and the dispatcher is fed by the writer, and the
//! flusher follows after `flushIntervalCommitLog`. A fourth thread, the keeper, flushes consume
//! queues and deletes what is old.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use protocol::message::Message;

use crate::checkpoint::Checkpoint;
use crate::clock::Clock;
use crate::commit_log::CommitLog;
use crate::commit_log::append::{AppendRequest, Appender, WrittenGroup};
use crate::commit_log::group_commit::Flusher;
use crate::completion::PutFuture;
use crate::config::{FlushDiskType, StoreConfig};
use crate::consume_queue_table::ConsumeQueueTable;
use crate::deleted_topics::DeletedTopics;
use crate::disk::Disk;
use crate::dispatch::{Dispatch, Dispatched, Dispatchers};
use crate::error::{PutError, StoreError};
use crate::get::Get;
use crate::mailbox::Mailbox;
use crate::metrics::Metrics;
use crate::pending::Pending;
use crate::put::Put;
use crate::retention::Retention;
use crate::running_flags::RunningFlags;

/// Pause before a consume queue that could not be written is tried again.
const DISPATCH_RETRY: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct Pipeline {
    pub(crate) config: Arc<StoreConfig>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) log: Arc<CommitLog>,
    pub(crate) queues: Arc<ConsumeQueueTable>,
    pub(crate) checkpoint: Arc<Checkpoint>,
    pub(crate) deleted: DeletedTopics,
    pub(crate) flags: Arc<RunningFlags>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) pending: Arc<Pending>,
    pub(crate) dispatchers: Arc<Dispatchers>,
    pub(crate) dispatched: Arc<Dispatched>,
    pub(crate) flusher: Flusher,
    pub(crate) retention: Retention,
    pub(crate) to_writer: Mailbox<AppendRequest>,
    pub(crate) to_flusher: Mailbox<WrittenGroup>,
    pub(crate) to_dispatcher: Mailbox<WrittenGroup>,
    /// Closed to end the keeper.
    pub(crate) to_keeper: Mailbox<()>,
    /// The work of the threads, when the caller does it.
    pub(crate) stepped: Mutex<Option<(Appender, Dispatch)>>,
}

impl Pipeline {
    pub(crate) fn get(&self) -> Get<'_> {
        Get { config: &self.config, log: &self.log }
    }

    pub(crate) fn put(&self, messages: &[Message<'_>]) -> Result<PutFuture, PutError> {
        if let Some(reason) = self.flags.blocked() {
            return Err(PutError::NotWritable(reason));
        }
        let put = Put { config: &self.config, queues: &self.queues, pending: &self.pending };
        let (request, future) = put.request(messages)?;
        // A closed mailbox gives the request back, whose completion then says so.
        let _ = self.to_writer.push(request);
        Ok(future)
    }

    pub(crate) fn is_sync(&self) -> bool {
        self.config.flush_disk_type == FlushDiskType::SyncFlush
    }

    /// What becomes of a group that is written.
    pub(crate) fn after_write(&self, group: WrittenGroup) {
        if self.is_sync() {
            let _ = self.to_flusher.push(group);
            return;
        }
        let marker = group.marker();
        let _ = self.to_dispatcher.push(group);
        let _ = self.to_flusher.push(marker);
    }

    pub(crate) fn after_flush(&self, group: WrittenGroup) {
        if self.is_sync() {
            let _ = self.to_dispatcher.push(group);
        }
    }

    pub(crate) fn run_writer(&self, mut appender: Appender) {
        let mut requests = Vec::new();
        while self.to_writer.take(&mut requests) {
            appender.append(&mut requests, |group| self.after_write(group));
        }
        self.to_flusher.close();
    }

    pub(crate) fn run_flusher(&self) {
        let mut groups = Vec::new();
        while self.to_flusher.take(&mut groups) {
            if !self.is_sync() {
                // Let more come, to flush it with one call.
                self.to_flusher.wait_closed(self.config.flush_interval_commit_log);
                let mut more = Vec::new();
                self.to_flusher.try_take(&mut more);
                groups.append(&mut more);
            }
            self.flusher.flush(&mut groups, |group| self.after_flush(group));
        }
        self.to_dispatcher.close();
    }

    pub(crate) fn run_dispatcher(&self, mut dispatch: Dispatch) {
        let mut groups = Vec::new();
        while self.to_dispatcher.take(&mut groups) {
            dispatch.take(&mut groups);
            while let Err(error) = dispatch.run() {
                let reason = format!("a consume queue cannot be written: {error}");
                tracing::error!(reason, "trying again until it can");
                self.flags.set_dispatch_error(Some(reason));
                if self.to_dispatcher.wait_closed(DISPATCH_RETRY) {
                    // The next start builds the queues from the log.
                    return;
                }
            }
            self.flags.set_dispatch_error(None);
        }
    }

    pub(crate) fn run_keeper(&self) {
        let flush_interval = self.config.flush_consume_queue_thorough_interval;
        let tick = self.config.clean_resource_interval.min(flush_interval);
        let mut since_flush = Duration::ZERO;
        while !self.to_keeper.wait_closed(tick) {
            since_flush += tick;
            if let Err(error) = self.retention.run(self.clock.now_ms()) {
                tracing::error!(%error, "old files could not be deleted");
            }
            if since_flush >= flush_interval && self.queues.is_dirty() {
                since_flush = Duration::ZERO;
                if let Err(error) = self.flush_queues() {
                    tracing::error!(%error, "consume queues could not be flushed");
                }
            }
        }
    }

    /// A thread that panics takes the store with it: nobody must wait for an answer forever.
    pub(crate) fn end_if_panicking(&self, thread: &'static str) -> PanicGuard<'_> {
        PanicGuard { pipeline: self, thread }
    }

    /// Makes the queues durable and moves the checkpoint.
    pub(crate) fn flush_queues(&self) -> Result<(), StoreError> {
        let (end, timestamp) = self.dispatched.get();
        self.queues.flush()?;
        if !self.queues.is_unreliable() {
            self.checkpoint.set_logics(timestamp, end.min(self.log.flushed()));
        }
        self.checkpoint.flush()
    }

    pub(crate) fn flush_all(&self) -> Result<(), StoreError> {
        let (end, timestamp) = self.dispatched.get();
        self.flusher.flush_to(end, timestamp);
        self.flush_queues()
    }

    pub(crate) fn step(&self) {
        let mut stepped = self.stepped.lock();
        let Some((appender, dispatch)) = stepped.as_mut() else { return };
        let mut requests = Vec::new();
        while self.to_writer.try_take(&mut requests) {
            appender.append(&mut requests, |group| self.after_write(group));
        }
        let mut groups = Vec::new();
        if self.to_flusher.try_take(&mut groups) {
            self.flusher.flush(&mut groups, |group| self.after_flush(group));
        }
        if dispatch.is_idle() && self.to_dispatcher.try_take(&mut groups) {
            dispatch.take(&mut groups);
        }
        match dispatch.run() {
            Ok(()) => self.flags.set_dispatch_error(None),
            Err(error) => {
                let reason = format!("a consume queue cannot be written: {error}");
                self.flags.set_dispatch_error(Some(reason));
            }
        }
    }
}

/// See [`Pipeline::end_if_panicking`].
pub(crate) struct PanicGuard<'a> {
    pipeline: &'a Pipeline,
    thread: &'static str,
}

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let Pipeline { flags, to_writer, to_flusher, to_dispatcher, to_keeper, .. } = self.pipeline;
        flags.fail(&format!("thread {} ended by a panic", self.thread));
        to_keeper.close();
        to_writer.close();
        to_writer.try_take(&mut Vec::new());
        for mailbox in [to_flusher, to_dispatcher] {
            mailbox.close();
            mailbox.try_take(&mut Vec::new());
        }
    }
}
