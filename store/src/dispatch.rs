//! Makes messages readable: writes their consume queue units, then tells those who wait.
//!
//! Fed by the flusher (SYNC_FLUSH) or the writer (ASYNC_FLUSH), so nobody polls the commit log and
//! nobody reads what a crash could still take away under SYNC_FLUSH.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use parking_lot::RwLock;
use protocol::sys_flag;

use crate::commit_log::CommitLog;
use crate::commit_log::append::WrittenGroup;
use crate::consume_queue::{ConsumeQueue, QueueGap, Unit};
use crate::consume_queue_table::ConsumeQueueTable;
use crate::error::StoreError;
use crate::metrics::Metrics;
use crate::running_flags::RunningFlags;

/// A message that is in the log.
#[derive(Debug, Clone)]
pub struct DispatchRequest {
    pub(crate) queue: Arc<ConsumeQueue>,
    /// Commit log offset.
    pub physical_offset: i64,
    /// Bytes of the record.
    pub record_bytes: usize,
    /// Offset in its queue.
    pub queue_offset: i64,
    /// Hash of the tags, or time of delivery for a delayed message.
    pub tags_code: i64,
    /// When it was stored, epoch milliseconds.
    pub store_timestamp: i64,
    /// Bits of [`protocol::sys_flag`].
    pub sys_flag: i32,
}

impl DispatchRequest {
    /// Topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.queue.topic
    }

    /// Queue.
    #[must_use]
    pub fn queue_id(&self) -> i32 {
        self.queue.queue_id
    }

    /// Whether it is a message of its queue: half and rolled back messages are not.
    #[must_use]
    pub fn is_in_queue(&self) -> bool {
        let transaction = sys_flag::transaction(self.sys_flag);
        transaction == 0 || transaction == sys_flag::TRANSACTION_COMMIT
    }

    fn unit(&self) -> Unit {
        Unit {
            physical_offset: self.physical_offset,
            size: i32::try_from(self.record_bytes).expect("a record is below 2 GiB"),
            tags_code: self.tags_code,
        }
    }
}

/// Reads records for those who are told of messages.
#[derive(Debug, Clone)]
pub struct Records(pub(crate) Arc<CommitLog>);

impl Records {
    /// The record, without a copy; `None` when it has been deleted meanwhile or cannot be read.
    #[must_use]
    pub fn get(&self, request: &DispatchRequest) -> Option<Bytes> {
        match self.0.read(request.physical_offset, request.record_bytes) {
            Ok(record) => record,
            Err(error) => {
                tracing::error!(%error, "a record that was just written cannot be read");
                None
            }
        }
    }
}

/// Is told of messages when they can be read, in the order of the log. Called on the store's own
/// thread: it must not block.
pub trait Dispatcher: Send + Sync {
    /// These messages can be read now.
    fn dispatch(&self, requests: &[DispatchRequest], records: &Records);
}

/// How far messages have been made readable.
#[derive(Debug, Default)]
pub(crate) struct Dispatched {
    physical_end: AtomicI64,
    timestamp: AtomicI64,
}

impl Dispatched {
    /// Commit log offset below which all is readable, and the store time there.
    pub(crate) fn get(&self) -> (i64, i64) {
        let timestamp = self.timestamp.load(Ordering::Acquire);
        (self.physical_end.load(Ordering::Acquire), timestamp)
    }

    pub(crate) fn set(&self, physical_end: i64, timestamp: i64) {
        // In this order, so that a reader gets a time that is not later than the offset.
        self.physical_end.store(physical_end, Ordering::Release);
        self.timestamp.store(timestamp, Ordering::Release);
    }
}

/// Those who are told.
pub(crate) type Dispatchers = RwLock<Vec<Arc<dyn Dispatcher>>>;

/// See the module.
pub(crate) struct Dispatch {
    records: Records,
    queues: Arc<ConsumeQueueTable>,
    dispatchers: Arc<Dispatchers>,
    dispatched: Arc<Dispatched>,
    flags: Arc<RunningFlags>,
    metrics: Arc<Metrics>,
    /// Taken but not yet readable: more than nothing only after an error.
    groups: Vec<WrittenGroup>,
    is_staged: bool,
}

impl Dispatch {
    pub(crate) fn new(
        records: Records,
        queues: Arc<ConsumeQueueTable>,
        dispatchers: Arc<Dispatchers>,
        dispatched: Arc<Dispatched>,
        (flags, metrics): (Arc<RunningFlags>, Arc<Metrics>),
    ) -> Self {
        let groups = Vec::new();
        let is_staged = false;
        Self { records, queues, dispatchers, dispatched, flags, metrics, groups, is_staged }
    }

    /// Whether all groups taken are readable.
    pub(crate) fn is_idle(&self) -> bool {
        self.groups.is_empty()
    }

    /// Takes groups over; [`Dispatch::run`] makes them readable.
    pub(crate) fn take(&mut self, groups: &mut Vec<WrittenGroup>) {
        assert!(self.groups.is_empty(), "the last groups must be done first");
        std::mem::swap(&mut self.groups, groups);
        self.is_staged = false;
    }

    /// Makes the groups readable that were taken. After an error it may be called again and goes on
    /// where it stopped.
    pub(crate) fn run(&mut self) -> Result<(), StoreError> {
        let requests = || self.groups.iter().flat_map(|group| &group.dispatches);
        let Some(last) = self.groups.last() else { return Ok(()) };
        let (end, timestamp) = (last.end, last.timestamp);
        let mut seen = HashSet::new();
        let mut touched = Vec::new();
        for request in requests().filter(|request| request.is_in_queue()) {
            if !self.is_staged {
                let staged = request.queue.stage(request.queue_offset, request.unit());
                if let Err(QueueGap { expected, found }) = staged {
                    let (topic, queue) = (request.topic(), request.queue_id());
                    let numbers = format!("message {found} follows {expected} - 1");
                    self.flags.fail(&format!("queue {topic}/{queue} has a gap: {numbers}"));
                }
            }
            if seen.insert(request.queue.number()) {
                touched.push(Arc::clone(&request.queue));
            }
        }
        self.is_staged = true;
        let committed = touched.iter().try_for_each(|queue| self.queues.commit(queue));
        if committed.is_ok() {
            self.dispatched.set(end, timestamp);
        }
        // Those who are answered can read what they sent. If that takes long, it is stored anyway.
        self.groups.iter_mut().for_each(WrittenGroup::answer);
        committed?;
        let dispatchers = self.dispatchers.read().clone();
        for group in self.groups.drain(..) {
            Metrics::add(&self.metrics.dispatched_messages, group.dispatches.len());
            for dispatcher in &dispatchers {
                dispatcher.dispatch(&group.dispatches, &self.records);
            }
        }
        Ok(())
    }
}
