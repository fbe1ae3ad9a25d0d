//! All consume queues of the store.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::config::StoreConfig;
use crate::consume_queue::{ConsumeQueue, QueueFiles};
use crate::disk::Disk;
use crate::error::StoreError;
use crate::file_cache::FileCache;

/// More files than this are made durable together with all else on their file system.
const SYNCED_ONE_BY_ONE_MAX: usize = 256;

/// Queues of one topic by number.
type Topic = BTreeMap<i32, Arc<ConsumeQueue>>;

/// What has to be flushed: files by queue and first byte, and queues with new files.
#[derive(Debug, Default)]
struct Dirty {
    files: HashMap<(u64, i64), Arc<ConsumeQueue>>,
    names: HashMap<u64, Arc<ConsumeQueue>>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ConsumeQueueTable {
    shared: Arc<QueueFiles>,
    topics: RwLock<HashMap<Arc<str>, Topic>>,
    next_number: AtomicU64,
    dirty: Mutex<Dirty>,
    /// A flush failed: what is on the disk is unknown, so the checkpoint must not move any more and
    /// the next start must rebuild. Sending goes on, since the commit log has everything.
    is_unreliable: AtomicBool,
}

impl ConsumeQueueTable {
    /// An empty table; recovery loads the queues.
    pub(crate) fn new(disk: Arc<dyn Disk>, config: &StoreConfig) -> Self {
        let shared = QueueFiles {
            disk,
            cache: FileCache::new(config.open_files_max),
            root: config.consume_queue_dir(),
            file_bytes: config.mapped_file_size_consume_queue.cast_signed(),
        };
        Self {
            shared: Arc::new(shared),
            topics: RwLock::default(),
            next_number: AtomicU64::new(0),
            dirty: Mutex::default(),
            is_unreliable: AtomicBool::new(false),
        }
    }

    /// Makes an entry for each directory of a queue. Their files are not looked at yet.
    pub(crate) fn load_names(&self) -> Result<(), StoreError> {
        let disk = &self.shared.disk;
        let root = &self.shared.root;
        for topic in disk.list(root).map_err(StoreError::io("list", root))? {
            if !topic.is_dir {
                continue;
            }
            let dir = root.join(&topic.name);
            for queue in disk.list(&dir).map_err(StoreError::io("list", &dir))? {
                let number = queue.name.parse::<i32>().ok().filter(|number| *number >= 0);
                if let Some(number) = number.filter(|_| queue.is_dir) {
                    self.get_or_create(&topic.name, number);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn get(&self, topic: &str, queue_id: i32) -> Option<Arc<ConsumeQueue>> {
        self.topics.read().get(topic)?.get(&queue_id).cloned()
    }

    pub(crate) fn get_or_create(&self, topic: &str, queue_id: i32) -> Arc<ConsumeQueue> {
        if let Some(queue) = self.get(topic, queue_id) {
            return queue;
        }
        let mut topics = self.topics.write();
        let name = topics
            .get_key_value(topic)
            .map_or_else(|| Arc::from(topic), |(name, _)| Arc::clone(name));
        let queues = topics.entry(Arc::clone(&name)).or_default();
        let queue = queues.entry(queue_id).or_insert_with(|| {
            let number = self.next_number.fetch_add(1, Ordering::Relaxed);
            Arc::new(ConsumeQueue::new(name, queue_id, number, Arc::clone(&self.shared)))
        });
        Arc::clone(queue)
    }

    /// All queues there are.
    pub(crate) fn all(&self) -> Vec<Arc<ConsumeQueue>> {
        self.topics.read().values().flat_map(BTreeMap::values).cloned().collect()
    }

    /// Names of all topics that have a queue.
    pub(crate) fn topics(&self) -> Vec<Arc<str>> {
        self.topics.read().keys().cloned().collect()
    }

    /// Numbers of the queues of a topic.
    pub(crate) fn queue_ids(&self, topic: &str) -> Vec<i32> {
        self.topics
            .read()
            .get(topic)
            .map_or_else(Vec::new, |queues| queues.keys().copied().collect())
    }

    /// Removes a topic with all files of its queues; returns how many queues it had.
    pub(crate) fn delete_topic(&self, topic: &str) -> Result<usize, StoreError> {
        let Some(queues) = self.topics.write().remove(topic) else { return Ok(0) };
        for queue in queues.values() {
            queue.delete()?;
        }
        // Directories of queues that we do not know (not a number) keep the topic's directory.
        let dir = self.shared.root.join(topic);
        let _ = self.shared.disk.remove_dir(&dir);
        let root = &self.shared.root;
        self.shared.disk.sync_dir(root).map_err(StoreError::io("sync", root))?;
        Ok(queues.len())
    }

    /// Writes what is staged in a queue and remembers to flush it.
    pub(crate) fn commit(&self, queue: &Arc<ConsumeQueue>) -> Result<(), StoreError> {
        queue.commit(|start, is_new| self.touch(queue, start, is_new))
    }

    /// Forgets the messages of a queue from `offset` on and remembers to flush it.
    pub(crate) fn truncate(
        &self,
        queue: &Arc<ConsumeQueue>,
        offset: i64,
    ) -> Result<(), StoreError> {
        queue.truncate(offset, |start, is_removed| self.touch(queue, start, is_removed))
    }

    /// Removes the files of a queue, to rebuild it, and remembers to flush it.
    pub(crate) fn clear(&self, queue: &Arc<ConsumeQueue>) -> Result<(), StoreError> {
        self.touch(queue, 0, true);
        queue.clear()
    }

    /// Leaves the place of messages that the log lacks, and remembers to flush the queue.
    pub(crate) fn skip_to(
        &self,
        queue: &Arc<ConsumeQueue>,
        queue_offset: i64,
    ) -> Result<(), StoreError> {
        queue.skip_to(queue_offset, |start, is_new| self.touch(queue, start, is_new))
    }

    fn touch(&self, queue: &Arc<ConsumeQueue>, start: i64, is_name_changed: bool) {
        let number = queue.number();
        let mut dirty = self.dirty.lock();
        dirty.files.insert((number, start), Arc::clone(queue));
        if is_name_changed {
            dirty.names.insert(number, Arc::clone(queue));
        }
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.lock().files.is_empty()
    }

    /// Makes durable what was committed before the call. After an error all queues count as
    /// unreliable until they are rebuilt.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        let dirty = std::mem::take(&mut *self.dirty.lock());
        let sync = || {
            if dirty.files.len() + dirty.names.len() > SYNCED_ONE_BY_ONE_MAX {
                let root = &self.shared.root;
                return self.shared.disk.sync_all(root).map_err(StoreError::io("sync", root));
            }
            for ((_, start), queue) in &dirty.files {
                queue.sync_file(*start)?;
            }
            dirty.names.values().try_for_each(|queue| queue.sync_dirs())
        };
        let outcome = sync();
        if outcome.is_err() {
            self.is_unreliable.store(true, Ordering::Release);
        }
        outcome
    }

    /// Whether a flush has failed since the start.
    pub(crate) fn is_unreliable(&self) -> bool {
        self.is_unreliable.load(Ordering::Acquire)
    }
}
