//! The front of the store: open, put, get, ask, shut down.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::message::Message;

use crate::checkpoint;
use crate::clock::{Clock, SystemClock};
use crate::completion::PutFuture;
use crate::config::StoreConfig;
use crate::config_file::ConfigFile;
use crate::disk::{Disk, Lock, RealDisk, Space};
use crate::dispatch::Dispatcher;
use crate::error::{PutError, ReadError, StoreError};
use crate::filter::MessageFilter;
use crate::get::{Boundary, GetRequest, GetResult};
use crate::index::{QueryRequest, QueryResult};
use crate::metrics::{Metrics, MetricsSnapshot};
use crate::open;
use crate::pipeline::Pipeline;
use crate::recovery::RecoveryReport;

/// Who runs the store's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// The store, on six threads of its own.
    Own,
    /// The caller, by [`MessageStore::step`]: nothing happens in between (tests and simulations).
    Stepped,
}

/// A store of messages in a directory. All methods may be called from any thread; only
/// [`MessageStore::open`], [`MessageStore::shutdown`] and [`MessageStore::delete_topic`] block for
/// long.
pub struct MessageStore {
    pub(crate) pipeline: Arc<Pipeline>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    lock: Mutex<Option<Box<dyn Lock>>>,
}

impl fmt::Debug for MessageStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let root = &self.pipeline.config.store_path_root_dir;
        formatter.debug_struct("MessageStore").field("root", root).finish_non_exhaustive()
    }
}

/// The store at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreStats {
    /// First byte of the commit log.
    pub log_min_offset: i64,
    /// End of the commit log.
    pub log_max_offset: i64,
    /// Everything below is on the disk.
    pub log_flushed_offset: i64,
    /// Everything below can be read by consumers.
    pub log_dispatched_offset: i64,
    /// Everything below may be read and acknowledged; the highest number when nobody is waited for.
    pub log_confirm_offset: i64,
    /// Everything below can be found by its keys.
    pub log_indexed_offset: i64,
    /// Why the index of keys does not go on, if it does not.
    pub index_error: Option<String>,
    /// Bytes accepted but not yet readable.
    pub pending_bytes: usize,
    /// Messages accepted but not yet readable.
    pub pending_messages: usize,
    /// Counters since the store was opened.
    pub metrics: MetricsSnapshot,
}

impl MessageStore {
    /// Opens the store in `config.store_path_root_dir`, creating it if there is none, and recovers
    /// it.
    ///
    /// # Errors
    /// The configuration is wrong, another process has the store open, it is of a kind that cannot
    /// be read, it is damaged, or the disk refuses.
    pub fn open(config: StoreConfig) -> Result<(Self, RecoveryReport), StoreError> {
        Self::open_on(config, Arc::new(RealDisk), Arc::new(SystemClock), Threads::Own)
    }

    /// As [`MessageStore::open`], on a given disk and clock.
    ///
    /// # Errors
    /// As [`MessageStore::open`].
    pub fn open_on(
        config: StoreConfig,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        threads: Threads,
    ) -> Result<(Self, RecoveryReport), StoreError> {
        config.validate()?;
        let root = &config.store_path_root_dir;
        for dir in
            [root, &config.store_path_commit_log, &config.consume_queue_dir(), &config.index_dir()]
        {
            open::create_durable_dir(&*disk, dir)?;
        }
        open::refuse_other_kinds(&*disk, &config)?;
        let lock = checkpoint::lock(&*disk, root)?;
        let was_clean = !checkpoint::is_aborted(&*disk, root)?;
        checkpoint::set_abort(&*disk, root)?;
        let config = Arc::new(config);
        let (pipeline, report) = open::recover(config, disk, clock, (was_clean, threads))?;
        let store = Self {
            pipeline: Arc::new(pipeline),
            threads: Mutex::default(),
            lock: Mutex::new(Some(lock)),
        };
        store.pipeline.retention.watch_disk()?;
        if threads == Threads::Own {
            store.spawn()?;
        }
        Ok((store, report))
    }

    fn spawn(&self) -> Result<(), StoreError> {
        let mut threads = self.threads.lock();
        let mut start = |name: &'static str, work: Box<dyn FnOnce(&Pipeline) + Send>| {
            let pipeline = Arc::clone(&self.pipeline);
            let builder = std::thread::Builder::new().name(name.to_owned());
            let handle = builder.spawn(move || {
                let _guard = pipeline.end_if_panicking(name);
                work(&pipeline);
            });
            threads.push(handle.map_err(StoreError::io("start a thread for", &self.root()))?);
            Ok(())
        };
        start("store-writer", Box::new(Pipeline::run_writer))?;
        start("store-flusher", Box::new(Pipeline::run_flusher))?;
        start("store-dispatch", Box::new(Pipeline::run_dispatcher))?;
        start("store-indexer", Box::new(Pipeline::run_indexer))?;
        start("store-watcher", Box::new(Pipeline::run_watcher))?;
        start("store-keeper", Box::new(Pipeline::run_keeper))
    }

    fn root(&self) -> PathBuf {
        self.pipeline.config.store_path_root_dir.clone()
    }

    /// Stores a message. The future resolves when it is stored as `flushDiskType` says; a message
    /// with the property `WAIT=false` does not wait for the flush.
    ///
    /// The message's properties are stored as they are; adding to them is the broker's matter.
    pub fn put(&self, message: &Message<'_>) -> PutFuture {
        self.put_batch(std::slice::from_ref(message))
    }

    /// Stores messages with consecutive offsets in one queue, all or none of them. All must have
    /// the same topic, queue and sysFlag.
    pub fn put_batch(&self, messages: &[Message<'_>]) -> PutFuture {
        let future = self.enqueue(messages);
        self.write_enqueued();
        future
    }

    /// As [`MessageStore::put_batch`], but the messages are only written by the next
    /// [`MessageStore::write_enqueued`] or put of anybody, so that one write can serve many.
    pub fn enqueue(&self, messages: &[Message<'_>]) -> PutFuture {
        let outcome = self.pipeline.enqueue(messages);
        outcome.unwrap_or_else(|error| {
            Metrics::add(&self.pipeline.metrics.put_refused, messages.len().max(1));
            PutFuture::ready(Err(error))
        })
    }

    /// Writes what was enqueued, unless another thread is just writing: then that one does it.
    pub fn write_enqueued(&self) {
        self.pipeline.write_enqueued();
    }

    /// Reads messages of a queue.
    ///
    /// # Errors
    /// The disk refuses. All other outcomes are a [`GetStatus`](crate::get::GetStatus).
    pub fn get(
        &self,
        request: &GetRequest<'_>,
        filter: &dyn MessageFilter,
    ) -> Result<GetResult, ReadError> {
        let queue = self.pipeline.queues.get(request.topic, request.queue_id);
        let result = self.pipeline.get().messages(queue.as_deref(), request, filter)?;
        Metrics::add(&self.pipeline.metrics.get_messages, result.message_count);
        Metrics::add(&self.pipeline.metrics.get_bytes, result.total_bytes);
        Ok(result)
    }

    /// Offset of the first message of a queue; 0 for a queue that does not exist.
    #[must_use]
    pub fn min_offset(&self, topic: &str, queue_id: i32) -> i64 {
        self.pipeline.queues.get(topic, queue_id).map_or(0, |queue| queue.min_offset())
    }

    /// Offset of the next message of a queue to become readable; 0 for a queue that does not exist.
    #[must_use]
    pub fn max_offset(&self, topic: &str, queue_id: i32) -> i64 {
        self.pipeline.queues.get(topic, queue_id).map_or(0, |queue| queue.max_offset())
    }

    /// The offset for a time (epoch milliseconds); the end of the queue when it has no message from
    /// then on, 0 when it does not exist.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn search_offset(
        &self,
        topic: &str,
        queue_id: i32,
        timestamp: i64,
        boundary: Boundary,
    ) -> Result<i64, ReadError> {
        match self.pipeline.queues.get(topic, queue_id) {
            Some(queue) => self.pipeline.get().search_offset(&queue, timestamp, boundary),
            None => Ok(0),
        }
    }

    /// The record at a commit log offset, without a copy; `None` when there is none, or none that
    /// may be read yet.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn look_up(&self, physical_offset: i64) -> Result<Option<Bytes>, ReadError> {
        if physical_offset >= self.pipeline.dispatched.get().0 {
            return Ok(None);
        }
        self.pipeline.log.look_up(physical_offset)
    }

    /// The newest messages that have a key. Nothing is found that was stored while
    /// `messageIndexEnable` is off.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn query(&self, request: &QueryRequest<'_>) -> Result<QueryResult, ReadError> {
        self.pipeline.query(request)
    }

    /// When the first message of a queue was stored; `None` when it has none.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn earliest_store_time(
        &self,
        topic: &str,
        queue_id: i32,
    ) -> Result<Option<i64>, ReadError> {
        self.store_time(topic, queue_id, self.min_offset(topic, queue_id))
    }

    /// When a message of a queue was stored; `None` when there is no such message.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn store_time(
        &self,
        topic: &str,
        queue_id: i32,
        offset: i64,
    ) -> Result<Option<i64>, ReadError> {
        match self.pipeline.queues.get(topic, queue_id) {
            Some(queue) => self.pipeline.get().store_time(&queue, offset),
            None => Ok(None),
        }
    }

    /// Names of all topics that have a queue here, also those the broker does not know.
    #[must_use]
    pub fn topics(&self) -> Vec<Arc<str>> {
        self.pipeline.queues.topics()
    }

    /// Numbers of the queues that a topic has here.
    #[must_use]
    pub fn queue_ids(&self, topic: &str) -> Vec<i32> {
        self.pipeline.queues.queue_ids(topic)
    }

    /// Deletes the queues of a topic; returns how many there were. Messages stay in the commit log
    /// until their time, but no later recovery brings the queues back.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn delete_topic(&self, topic: &str) -> Result<usize, StoreError> {
        let pipeline = &self.pipeline;
        if pipeline.queues.queue_ids(topic).is_empty() {
            return Ok(0);
        }
        pipeline.deleted.insert(topic, pipeline.log.min_offset(), pipeline.log.written())?;
        pipeline.queues.delete_topic(topic)
    }

    /// Registers someone who is told of each message when it can be read (long polling).
    pub fn add_dispatcher(&self, dispatcher: Arc<dyn Dispatcher>) {
        self.pipeline.dispatchers.write().push(dispatcher);
    }

    /// Whether messages are taken at present.
    ///
    /// # Errors
    /// The reason why not, in words for the sender.
    pub fn check_writable(&self) -> Result<(), String> {
        self.pipeline.flags.blocked().map_or(Ok(()), Err)
    }

    /// Space of the file system that holds the commit log.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn disk_space(&self) -> Result<Space, StoreError> {
        let dir = self.pipeline.log.dir();
        self.pipeline.disk.space(dir).map_err(StoreError::io("look at the space of", dir))
    }

    /// Offsets and counters.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let pipeline = &self.pipeline;
        let (pending_bytes, pending_messages) = pipeline.pending.waiting();
        StoreStats {
            log_min_offset: pipeline.log.min_offset(),
            log_max_offset: pipeline.log.written(),
            log_flushed_offset: pipeline.log.flushed(),
            log_dispatched_offset: pipeline.dispatched.get().0,
            log_confirm_offset: pipeline.confirm.offset(),
            log_indexed_offset: pipeline.index.position(),
            index_error: pipeline.index.error(),
            pending_bytes,
            pending_messages,
            metrics: pipeline.metrics.snapshot(),
        }
    }

    /// A file below `config/` of this store, replaced as a whole.
    #[must_use]
    pub fn config_file(&self, name: &str) -> ConfigFile {
        let path = self.root().join("config").join(name);
        ConfigFile::new(Arc::clone(&self.pipeline.disk), path)
    }

    /// Looks at the disk and deletes what is expired, as the store does by itself every
    /// `cleanResourceInterval`, but without a pause between files.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn clean(&self) -> Result<(), StoreError> {
        self.pipeline.retention.run(self.pipeline.clock.now_ms(), || false)
    }

    /// Makes log and queues durable up to here and writes the checkpoint.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn flush(&self) -> Result<(), StoreError> {
        self.pipeline.flush_all()
    }

    /// Does what the threads would do with all that is waiting; for a store opened with
    /// [`Threads::Stepped`].
    pub fn step(&self) {
        self.pipeline.step();
    }

    /// Writes and flushes everything that was accepted and closes the store; later puts are
    /// refused. Calling it again does nothing.
    ///
    /// # Errors
    /// The disk refuses. The next start then recovers as after a crash.
    pub fn shutdown(&self) -> Result<(), StoreError> {
        let Some(lock) = self.lock.lock().take() else { return Ok(()) };
        let pipeline = &self.pipeline;
        pipeline.flags.shut_down();
        pipeline.to_writer.close();
        pipeline.to_keeper.close();
        pipeline.step();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                pipeline.flags.fail("a thread of the store ended by a panic");
            }
        }
        pipeline.to_dispatcher.close();
        pipeline.dispatch.lock().refuse_waiting(&PutError::Shutdown);
        let outcome = pipeline.flush_all();
        let (dispatched, _) = pipeline.dispatched.get();
        let is_complete = dispatched >= pipeline.log.written() && !pipeline.queues.is_unreliable();
        if outcome.is_ok() && is_complete && pipeline.flags.failure().is_none() {
            checkpoint::clear_abort(&*pipeline.disk, &self.root())?;
        }
        drop(lock);
        outcome
    }
}

impl Drop for MessageStore {
    fn drop(&mut self) {
        if let Err(error) = self.shutdown() {
            tracing::error!(%error, "the store could not be shut down in good order");
        }
    }
}
