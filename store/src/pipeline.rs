//! The way of a message through the store, and the threads that carry it.
//!
//! ```text
//! put (sender's thread: check, encode)
//!   -> appender    numbers, one write for all that wait
//!   -> flusher     one fdatasync for all that wait      (SYNC_FLUSH)
//!   -> dispatcher  consume queue units, then answers the senders and tells those who wait for
//!                  messages
//! ```
//! Appender and dispatcher belong to whichever thread comes first, a sender's or the flusher; the
//! others leave their work to it, and a thread of the store takes over from one that has served
//! others long enough, or after an error. So a message under ASYNC_FLUSH changes no thread, and
//! under load one write serves many.
//!
//! Nothing is dispatched beyond the confirm offset. What a master placed, and what the last life of
//! this broker left unconfirmed, is read from the log when its turn comes (see [`crate::tail`]).
//!
//! Under ASYNC_FLUSH the flusher follows after `flushIntervalCommitLog`. Beside this way, the
//! keeper flushes consume queues and index and deletes what is old, the watcher looks at the disk,
//! and the indexer follows the log.

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
use crate::confirm::Confirm;
use crate::consume_queue_table::ConsumeQueueTable;
use crate::deleted_topics::DeletedTopics;
use crate::disk::Disk;
use crate::dispatch::{Dispatch, Dispatched, Dispatchers};
use crate::error::{PutError, ReadError, StoreError};
use crate::get::Get;
use crate::index::{Built, Index, QueryRequest, QueryResult};
use crate::mailbox::Mailbox;
use crate::message_store::Threads;
use crate::metrics::Metrics;
use crate::pending::Pending;
use crate::put::Put;
use crate::retention::Retention;
use crate::running_flags::RunningFlags;
use crate::tail::Tail;

/// What was read of the log is taken out of this process's memory this often. Without that a broker
/// would seem to need as much memory as the log that it has read.
const RELEASE_INTERVAL: Duration = Duration::from_secs(1);
/// Turns that a thread takes one after the other, its own and those of others who came meanwhile.
const TURNS_IN_A_ROW: usize = 8;
/// Pause before a consume queue that could not be written is tried again.
const DISPATCH_RETRY: Duration = Duration::from_secs(1);
/// Pause before an index that could not be written is tried again.
const INDEX_RETRY: Duration = Duration::from_secs(1);
/// Messages come together for so long before they are indexed, so that each does not wake a thread;
/// a query does not wait for it.
const INDEX_WAIT: Duration = Duration::from_millis(50);
/// Bytes of the log that are indexed before something else is looked at, and that a query indexes
/// itself before it looks.
const INDEX_BYTES: i64 = 64 << 20;

/// See the module.
pub(crate) struct Pipeline {
    pub(crate) config: Arc<StoreConfig>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) log: Arc<CommitLog>,
    pub(crate) queues: Arc<ConsumeQueueTable>,
    pub(crate) index: Arc<Index>,
    pub(crate) checkpoint: Arc<Checkpoint>,
    pub(crate) deleted: Arc<DeletedTopics>,
    pub(crate) confirm: Arc<Confirm>,
    pub(crate) tail: Arc<Tail>,
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
    /// Something was dispatched.
    pub(crate) to_indexer: Mailbox<()>,
    /// Closed to end the keeper and the watcher.
    pub(crate) to_keeper: Mailbox<()>,
    pub(crate) threads: Threads,
    pub(crate) appender: Mutex<Appender>,
    pub(crate) dispatch: Mutex<Dispatch>,
}

impl Pipeline {
    pub(crate) fn get(&self) -> Get<'_> {
        Get { config: &self.config, log: &self.log }
    }

    /// Checks and encodes messages and leaves them to the next who writes.
    pub(crate) fn enqueue(&self, messages: &[Message<'_>]) -> Result<PutFuture, PutError> {
        if let Some(reason) = self.flags.blocked() {
            return Err(PutError::NotWritable(reason));
        }
        let put = Put {
            config: &self.config,
            queues: &self.queues,
            pending: &self.pending,
            is_confirmed_later: self.confirm.is_bounded(),
        };
        let (request, future) = put.request(messages)?;
        // A closed mailbox gives the request back, whose completion then says so.
        let _ = self.to_writer.push_quietly(request);
        Ok(future)
    }

    /// Writes what waits, unless someone is just writing and will do it.
    pub(crate) fn write_enqueued(&self) {
        if self.threads == Threads::Stepped {
            return;
        }
        let _guard = self.end_if_panicking("of a sender");
        self.take_turns(&self.to_writer, || {
            // Whoever has it looks again after giving it back.
            self.append(&mut *self.appender.try_lock()?);
            Some(true)
        });
        self.dispatch_written();
    }

    /// Makes readable what waits for it, unless someone is just doing so.
    pub(crate) fn dispatch_written(&self) {
        if self.threads == Threads::Stepped {
            return;
        }
        self.take_turns(&self.to_dispatcher, || {
            let mut dispatch = self.dispatch.try_lock()?;
            Some(self.dispatch_some(&mut dispatch))
        });
    }

    /// Does `turn` until nothing waits in the mailbox, the work is someone else's (`None`), or it
    /// is time for the reader of the mailbox to take over: after an error (`false`) or many turns.
    fn take_turns<T>(&self, mailbox: &Mailbox<T>, turn: impl Fn() -> Option<bool>) {
        for _ in 0..TURNS_IN_A_ROW {
            if mailbox.is_empty() {
                return;
            }
            match turn() {
                None => return,
                Some(true) => {}
                Some(false) => break,
            }
        }
        mailbox.wake();
    }

    /// The order of the mailbox is that of the log, so it is emptied by the holder of the appender.
    /// Returns whether there was anything.
    fn append(&self, appender: &mut Appender) -> bool {
        let mut requests = std::mem::take(&mut appender.requests);
        let has_some = self.to_writer.try_take(&mut requests);
        if self.confirm.is_slave() {
            requests.drain(..).for_each(AppendRequest::refuse_as_slave);
        }
        appender.append(&mut requests, |group| self.after_write(group));
        appender.requests = requests;
        has_some
    }

    /// Returns false when consume queues cannot be written; it may be called again.
    fn dispatch_some(&self, dispatch: &mut Dispatch) -> bool {
        let mut groups = Vec::new();
        self.to_dispatcher.try_take(&mut groups);
        dispatch.take(&mut groups);
        // Of a log that is not flushed, what a master placed is no more readable than the rest.
        let readable = if self.is_sync() { self.log.flushed() } else { self.log.written() };
        match dispatch.run(readable) {
            Ok(false) => true,
            Ok(true) => {
                self.flags.set_dispatch_error(None);
                let _ = self.to_indexer.replace((), |()| true);
                if dispatch.has_more() {
                    self.notice_dispatch();
                }
                true
            }
            Err(error) => {
                let reason = format!("a consume queue cannot be written: {error}");
                tracing::error!(reason, "trying again until it can");
                self.flags.set_dispatch_error(Some(reason));
                false
            }
        }
    }

    /// Leaves a notice that there may be something to dispatch.
    pub(crate) fn notice_dispatch(&self) {
        let _ =
            self.to_dispatcher.replace_quietly(WrittenGroup::default(), WrittenGroup::is_marker);
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
        let _ = self.to_dispatcher.push_quietly(group);
        let _ = self.to_flusher.replace(marker, WrittenGroup::is_marker);
    }

    pub(crate) fn after_flush(&self, group: WrittenGroup) {
        if !self.is_sync() {
            return;
        }
        if group.is_marker() {
            self.notice_dispatch();
        } else {
            let _ = self.to_dispatcher.push_quietly(group);
        }
    }

    /// Takes over from those who would write for too long.
    pub(crate) fn run_writer(&self) {
        while self.to_writer.wait() {
            self.write_enqueued();
        }
        // A sender may still be writing.
        while self.append(&mut self.appender.lock()) {}
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
            self.dispatch_written();
        }
        self.to_dispatcher.close();
    }

    /// Takes over from those who would dispatch for too long, or cannot.
    pub(crate) fn run_dispatcher(&self) {
        while self.to_dispatcher.wait() {
            while !self.dispatch_some(&mut self.dispatch.lock()) {
                if self.to_dispatcher.wait_closed(DISPATCH_RETRY) {
                    // The next start builds the queues from the log.
                    return self.to_indexer.close();
                }
            }
            self.dispatch_written();
        }
        // Another thread may still be dispatching.
        let mut dispatch = self.dispatch.lock();
        let mut end = None;
        while end != Some(dispatch.end()) {
            end = Some(dispatch.end());
            if !self.dispatch_some(&mut dispatch) {
                break;
            }
        }
        self.to_indexer.close();
    }

    pub(crate) fn run_indexer(&self) {
        let mut notices = Vec::new();
        loop {
            while !self.index_some() {
                let has_failed = self.index.error().is_some();
                let pause = if has_failed { INDEX_RETRY } else { Duration::ZERO };
                if self.to_indexer.wait_closed(pause) {
                    // The next start goes on here.
                    break;
                }
            }
            if !self.to_indexer.take(&mut notices) {
                return;
            }
            notices.clear();
            self.to_indexer.wait_closed(INDEX_WAIT);
        }
    }

    /// Indexes some of what was dispatched; returns whether that was all.
    fn index_some(&self) -> bool {
        if !self.index.is_enabled() {
            return true;
        }
        let mut is_all = false;
        let outcome = self.build_index().map(|all| is_all = all);
        self.index.note(outcome) && is_all
    }

    fn build_index(&self) -> Result<bool, StoreError> {
        let (end, timestamp) = self.dispatched.get();
        let stop = self.index.position().saturating_add(INDEX_BYTES);
        loop {
            match self.index.build(end)? {
                Built::All => return Ok(true),
                Built::More => {}
                Built::Full if self.flusher.flush_to(end, timestamp) => self.index.roll()?,
                // A log that failed takes no more messages.
                Built::Full => return Ok(true),
            }
            if self.index.position() >= stop {
                return Ok(false);
            }
        }
    }

    /// Looks messages up by key, also those that were dispatched a moment ago.
    pub(crate) fn query(&self, request: &QueryRequest<'_>) -> Result<QueryResult, ReadError> {
        self.index_some();
        self.index.query(request)
    }

    /// Looks at the disk, also while the keeper deletes files.
    pub(crate) fn run_watcher(&self) {
        let tick = self.config.clean_resource_interval.min(RELEASE_INTERVAL);
        let mut since_look = Duration::ZERO;
        while !self.to_keeper.wait_closed(tick) {
            self.log.release_memory();
            since_look += tick;
            if since_look < self.config.clean_resource_interval {
                continue;
            }
            since_look = Duration::ZERO;
            if let Err(error) = self.retention.watch_disk() {
                tracing::error!(%error, "the space of the disk is unknown");
            }
        }
    }

    pub(crate) fn run_keeper(&self) {
        let flush_interval = self.config.flush_consume_queue_thorough_interval;
        let tick = self.config.clean_resource_interval.min(flush_interval);
        let mut since_flush = Duration::ZERO;
        while !self.to_keeper.wait_closed(tick) {
            since_flush += tick;
            let pause = || self.to_keeper.wait_closed(self.config.delete_commit_log_files_interval);
            if let Err(error) = self.retention.run(self.clock.now_ms(), pause) {
                tracing::error!(%error, "old files could not be deleted");
            }
            let is_due = since_flush >= flush_interval;
            if is_due && (self.queues.is_dirty() || self.index.is_dirty()) {
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

    /// Makes the index durable, behind the log; what fails is tried again.
    fn flush_index(&self) {
        let (end, timestamp) = self.dispatched.get();
        if self.index.is_dirty() && self.flusher.flush_to(end, timestamp) {
            self.index.note(self.index.flush().map(drop));
        }
    }

    /// Makes index and queues durable and moves the checkpoint.
    pub(crate) fn flush_queues(&self) -> Result<(), StoreError> {
        self.flush_index();
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
        if self.threads == Threads::Own {
            return;
        }
        while self.append(&mut self.appender.lock()) {}
        let mut groups = Vec::new();
        if self.to_flusher.try_take(&mut groups) {
            self.flusher.flush(&mut groups, |group| self.after_flush(group));
        }
        let mut dispatch = self.dispatch.lock();
        while self.dispatch_some(&mut dispatch) && !self.to_dispatcher.is_empty() {}
        drop(dispatch);
        while !self.index_some() && self.index.error().is_none() {}
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
        self.pipeline.to_indexer.close();
        flags.fail(&format!("thread {} ended by a panic", self.thread));
        to_keeper.close();
        to_writer.close();
        to_writer.try_take(&mut Vec::new());
        for mailbox in [to_flusher, to_dispatcher] {
            mailbox.close();
            mailbox.try_take(&mut Vec::new());
        }
        if let Some(mut dispatch) = self.pipeline.dispatch.try_lock() {
            dispatch.refuse_waiting(&PutError::Failed(flags.failure().unwrap_or_default()));
        }
    }
}
