//! Makes messages readable: writes their consume queue units, then tells those who wait.
//!
//! Fed by the flusher (SYNC_FLUSH) or the writer (ASYNC_FLUSH), so nobody polls the commit log and
//! nobody reads what a crash could still take away under SYNC_FLUSH. Nothing passes that is not
//! confirmed.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use parking_lot::RwLock;
use protocol::sys_flag;

use crate::commit_log::CommitLog;
use crate::commit_log::append::WrittenGroup;
use crate::confirm::Confirm;
use crate::consume_queue::{ConsumeQueue, QueueGap, Unit};
use crate::error::{PutError, StoreError};
use crate::metrics::Metrics;
use crate::running_flags::RunningFlags;
use crate::tail::Tail;

/// More messages than this are never missing between two others.
const GAP_MAX: i64 = 1_000_000;

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
    parts: DispatchParts,
    records: Records,
    /// Written, but perhaps not confirmed.
    waiting: VecDeque<WrittenGroup>,
    /// Confirmed but not yet readable: more than nothing only after an error.
    groups: Vec<WrittenGroup>,
    /// Whether the groups were read from the log.
    is_tail: bool,
    is_staged: bool,
    /// Groups of another term come too late.
    term: u32,
}

/// What dispatching works with.
pub(crate) struct DispatchParts {
    pub(crate) tail: Arc<Tail>,
    pub(crate) confirm: Arc<Confirm>,
    pub(crate) dispatchers: Arc<Dispatchers>,
    pub(crate) dispatched: Arc<Dispatched>,
    pub(crate) flags: Arc<RunningFlags>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Dispatch {
    pub(crate) fn new(parts: DispatchParts) -> Self {
        Self {
            records: Records(Arc::clone(&parts.tail.log)),
            parts,
            waiting: VecDeque::new(),
            groups: Vec::new(),
            is_tail: false,
            is_staged: false,
            term: 0,
        }
    }

    /// Takes groups over; [`Dispatch::run`] makes them readable when they are confirmed.
    pub(crate) fn take(&mut self, groups: &mut Vec<WrittenGroup>) {
        for group in groups.drain(..) {
            if group.is_marker() {
                continue;
            }
            if group.term == self.term {
                self.waiting.push_back(group);
            } else {
                group.refuse(&PutError::Demoted);
            }
        }
    }

    /// Answers all who wait: what they sent will be read from the log, if it stays there.
    pub(crate) fn end_term(&mut self, term: u32) {
        self.term = term;
        self.refuse_waiting(&PutError::Demoted);
    }

    /// Gives up on what is not confirmed.
    pub(crate) fn refuse_waiting(&mut self, error: &PutError) {
        self.waiting.drain(..).for_each(|group| group.refuse(error));
    }

    /// Commit log offset below which all is readable, or is about to be.
    pub(crate) fn end(&self) -> i64 {
        self.groups.last().map_or_else(|| self.parts.dispatched.get().0, |group| group.end)
    }

    /// Whether another turn may find something, although nothing new has come.
    pub(crate) fn has_more(&self) -> bool {
        let confirmed = self.parts.confirm.offset();
        self.waiting.front().is_some_and(|group| group.end <= confirmed)
            || self.end() < self.parts.confirm.tail_end().min(confirmed)
    }

    /// Finds what is confirmed. Returns whether there is something to make readable.
    fn admit(&mut self, readable: i64) -> Result<bool, StoreError> {
        if !self.groups.is_empty() {
            return Ok(true);
        }
        self.is_staged = false;
        let end = self.end();
        let confirmed = self.parts.confirm.offset();
        let first = self.waiting.front().map_or(i64::MAX, |group| group.begin);
        let tail_end = self.parts.confirm.tail_end().min(first);
        self.is_tail = end < tail_end;
        if self.is_tail {
            let stop = tail_end.min(confirmed).min(readable);
            if end < stop {
                self.groups.extend(self.parts.tail.read(end..stop)?);
            }
        } else {
            while self.waiting.front().is_some_and(|group| group.end <= confirmed) {
                self.groups.extend(self.waiting.pop_front());
            }
        }
        Ok(!self.groups.is_empty())
    }

    /// Makes confirmed messages readable; `readable` is where the log may be read to. Returns
    /// whether there was something. After an error it may be called again and goes on where it
    /// stopped.
    pub(crate) fn run(&mut self, readable: i64) -> Result<bool, StoreError> {
        if !self.admit(readable)? {
            return Ok(false);
        }
        let Some(last) = self.groups.last() else { return Ok(false) };
        let (end, timestamp) = (last.end, last.timestamp);
        if self.is_tail && self.drop_restarted()? {
            return Ok(true);
        }
        let touched = self.stage()?;
        let queues = &self.parts.tail.queues;
        let committed = touched.iter().try_for_each(|queue| queues.commit(queue));
        if committed.is_ok() {
            self.parts.dispatched.set(end, timestamp);
        }
        // Those who are answered can read what they sent. If that takes long, it is stored anyway.
        self.groups.iter_mut().for_each(WrittenGroup::answer);
        committed?;
        let dispatchers = self.parts.dispatchers.read().clone();
        for group in self.groups.drain(..) {
            Metrics::add(&self.parts.metrics.dispatched_messages, group.dispatches.len());
            for dispatcher in &dispatchers {
                dispatcher.dispatch(&group.dispatches, &self.records);
            }
        }
        Ok(true)
    }

    /// A topic that the master deleted and made anew begins at 0 again: what is there of the old
    /// one goes, and the groups are to be read again. Returns whether there was one.
    fn drop_restarted(&mut self) -> Result<bool, StoreError> {
        let Tail { log, queues, deleted, .. } = &*self.parts.tail;
        let requests = self.groups.iter().flat_map(|group| &group.dispatches);
        for request in requests.filter(|request| request.is_in_queue()) {
            let DispatchRequest { queue, queue_offset, physical_offset, .. } = request;
            if *queue_offset >= queue.max_offset() || queue.is_deleted() {
                continue;
            }
            let known = queue.unit(*queue_offset)?;
            if known.is_none_or(|unit| unit.physical_offset == *physical_offset) {
                continue;
            }
            tracing::info!(topic = request.topic(), "the master has made this topic anew");
            deleted.insert(request.topic(), log.min_offset(), *physical_offset)?;
            queues.delete_topic(request.topic())?;
            self.groups.clear();
            return Ok(true);
        }
        Ok(false)
    }

    /// Stages the units of all groups, once; returns their queues.
    fn stage(&mut self) -> Result<Vec<Arc<ConsumeQueue>>, StoreError> {
        let mut seen = HashSet::new();
        let mut touched = Vec::new();
        let requests = self.groups.iter().flat_map(|group| &group.dispatches);
        for request in requests.filter(|request| request.is_in_queue()) {
            if !self.is_staged {
                let staged = request.queue.stage(request.queue_offset, request.unit());
                if let Err(gap) = staged {
                    self.pass_gap(request, gap)?;
                }
            }
            if seen.insert(request.queue.number()) {
                touched.push(Arc::clone(&request.queue));
            }
        }
        self.is_staged = true;
        Ok(touched)
    }

    /// A message that does not follow the last one of its queue. One that this broker numbered is
    /// wrong; a master's log may lack messages, whose places stay empty.
    fn pass_gap(&self, request: &DispatchRequest, gap: QueueGap) -> Result<(), StoreError> {
        let QueueGap { expected, found } = gap;
        let (topic, queue) = (request.topic(), request.queue_id());
        let reason =
            format!("queue {topic}/{queue} has a gap: message {found} follows {expected} - 1");
        if !self.is_tail || found - expected > GAP_MAX {
            self.parts.flags.fail(&reason);
            return Ok(());
        }
        tracing::error!(reason, "the master's log lacks messages of this queue");
        let queues = &self.parts.tail.queues;
        queues.commit(&request.queue)?;
        queues.skip_to(&request.queue, found)?;
        let _ = request.queue.stage(request.queue_offset, request.unit());
        Ok(())
    }
}
