//! The index of message keys: finds messages of a topic by unique id or key.
//!
//! Files of one size in Apache's format (see `index_file.rs`), of which only the newest grows. Its
//! slots are kept in memory, because they change at random places; its entries are appended. Slots
//! and header are written when it is flushed, the header last, so whatever a crash leaves
//! behind the header's count does not count.
//!
//! The index follows the log with a position of its own. What is missing at the start (no file,
//! damage, a crash, entries that Apache's broker has lost) is built in the background, the same way
//! as everything else, and an error only makes it late: senders and consumers never notice.

mod build;
mod load;
mod query;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::{Mutex, RwLock};

pub(crate) use self::build::Built;
pub use self::query::{QueryRequest, QueryResult};

use crate::checkpoint::Checkpoint;
use crate::clock::Clock;
use crate::commit_log::CommitLog;
use crate::config::StoreConfig;
use crate::disk::{Disk, File};
use crate::error::StoreError;
use crate::index_file::{Header, IndexFile, Layout, SLOT_BYTES};
use crate::metrics::Metrics;

/// Bytes of entries that wait for their write.
const TAIL_BYTES_MAX: usize = 64 << 10;
/// Slots are written by pages of this size.
const PAGE_BYTES: usize = 4 << 10;

/// What the index is made of.
pub(crate) struct IndexParts {
    pub(crate) config: Arc<StoreConfig>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) log: Arc<CommitLog>,
    pub(crate) checkpoint: Arc<Checkpoint>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Arc<Metrics>,
}

/// See the module.
pub(crate) struct Index {
    parts: IndexParts,
    dir: PathBuf,
    layout: Layout,
    state: Mutex<State>,
    /// For those who do not wait for the lock: where the index has come to.
    position: AtomicI64,
    /// What keeps it from going on.
    error: RwLock<Option<String>>,
}

#[derive(Default)]
struct State {
    /// Ascending; all of them until `newest` is loaded.
    older: Vec<Arc<IndexFile>>,
    newest: Option<Newest>,
    is_loaded: bool,
    next: Position,
    /// This file and all behind it are damaged and have to go before anything else happens.
    doomed: Option<u64>,
}

/// What is indexed next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Position {
    /// Offset of a record.
    offset: i64,
    /// Keys of it that are done.
    keys_done: usize,
}

/// The file that grows.
struct Newest {
    name: u64,
    path: PathBuf,
    file: Arc<dyn File>,
    header: Header,
    /// The header on the disk.
    durable: Header,
    slots: Vec<u32>,
    /// Pages of slots that differ from the disk.
    dirty: Vec<bool>,
    /// The last entries, which are not yet written.
    tail: Vec<u8>,
    /// Offset behind the last record that has an entry.
    record_end: i64,
}

impl Newest {
    fn new(name: u64, path: PathBuf, file: Arc<dyn File>, layout: Layout) -> Self {
        let slots = layout.slots as usize;
        Self {
            name,
            path,
            file,
            header: Header::EMPTY,
            durable: Header::EMPTY,
            slots: vec![0; slots],
            dirty: vec![false; (slots * SLOT_BYTES).div_ceil(PAGE_BYTES)],
            tail: Vec::new(),
            record_end: 0,
        }
    }

    fn is_dirty(&self) -> bool {
        self.header != self.durable
    }
}

impl Index {
    /// Finds the files. Those that cannot be used, and all behind them, are removed durably; so are
    /// those that know more than the log, which ends at `log_end`: other records will get the
    /// offsets that they name.
    pub(crate) fn open(parts: IndexParts, log_end: i64) -> Result<Self, StoreError> {
        let dir = parts.config.index_dir();
        let layout =
            Layout { slots: parts.config.max_hash_slot_num, entries: parts.config.max_index_num };
        let index = Self {
            parts,
            dir,
            layout,
            state: Mutex::default(),
            position: AtomicI64::new(0),
            error: RwLock::default(),
        };
        index.find_files(log_end)?;
        Ok(index)
    }

    /// Whether new messages are indexed (`messageIndexEnable`).
    pub(crate) fn is_enabled(&self) -> bool {
        self.parts.config.message_index_enable
    }

    /// Commit log offset below which all messages are indexed.
    pub(crate) fn position(&self) -> i64 {
        self.position.load(Ordering::Acquire)
    }

    /// What keeps the index from going on, if anything does.
    pub(crate) fn error(&self) -> Option<String> {
        self.error.read().clone()
    }

    /// Notes how the last work on the index went.
    pub(crate) fn note(&self, outcome: Result<(), StoreError>) -> bool {
        let Err(error) = outcome else {
            if self.error.write().take().is_some() {
                tracing::info!("the index of keys can be written again");
            }
            return true;
        };
        self.parts.metrics.index_failures.fetch_add(1, Ordering::Relaxed);
        let text = error.to_string();
        let mut noted = self.error.write();
        if noted.as_ref() != Some(&text) {
            tracing::error!(%error, "the index of keys falls behind; it will be tried again");
        }
        *noted = Some(text);
        false
    }

    /// Deletes files of which the log, which begins at `log_min`, has no message left. The newest
    /// stays.
    pub(crate) fn clean(&self, log_min: i64) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let last = if state.newest.is_some() { 0 } else { 1 };
        let mut is_removed = false;
        while state.older.len() > last
            && state.older.first().is_some_and(|file| file.header.end_offset < log_min)
        {
            let oldest = state.older.remove(0);
            self.remove(&oldest.path)?;
            is_removed = true;
        }
        if is_removed { self.sync_dir() } else { Ok(()) }
    }

    /// Whether a flush would write something.
    pub(crate) fn is_dirty(&self) -> bool {
        self.state.lock().newest.as_ref().is_some_and(Newest::is_dirty)
    }

    fn set_next(&self, state: &mut State, next: Position) {
        state.next = next;
        self.position.store(next.offset, Ordering::Release);
    }

    fn remove(&self, path: &std::path::Path) -> Result<(), StoreError> {
        match self.parts.disk.remove(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StoreError::io("remove", path)(error))
            }
            _ => Ok(()),
        }
    }

    fn sync_dir(&self) -> Result<(), StoreError> {
        self.parts.disk.sync_dir(&self.dir).map_err(StoreError::io("sync", &self.dir))
    }
}
