//! Putting a store together: locks, refuses what it cannot read, recovers, and builds the parts.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use parking_lot::{Mutex, RwLock};

use crate::checkpoint::Checkpoint;
use crate::clock::Clock;
use crate::commit_log::CommitLog;
use crate::commit_log::append::Appender;
use crate::commit_log::group_commit::Flusher;
use crate::config::StoreConfig;
use crate::confirm::Confirm;
use crate::consume_queue_table::ConsumeQueueTable;
use crate::deleted_topics::DeletedTopics;
use crate::disk::Disk;
use crate::dispatch::{Dispatch, DispatchParts, Dispatched};
use crate::error::StoreError;
use crate::index::{Index, IndexParts};
use crate::mailbox::Mailbox;
use crate::message_store::Threads;
use crate::metrics::Metrics;
use crate::pending::Pending;
use crate::pipeline::Pipeline;
use crate::recovery::{Recovery, RecoveryReport};
use crate::retention::Retention;
use crate::running_flags::RunningFlags;
use crate::tail::Tail;

/// Recovers the files and builds the parts of the store.
pub(crate) fn recover(
    config: Arc<StoreConfig>,
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    (was_clean, threads): (bool, Threads),
) -> Result<(Pipeline, RecoveryReport), StoreError> {
    let root = &config.store_path_root_dir;
    let segment_bytes = config.mapped_file_size_commit_log;
    let log = CommitLog::open(Arc::clone(&disk), &config.store_path_commit_log, segment_bytes);
    let log = Arc::new(log?);
    let queues = Arc::new(ConsumeQueueTable::new(Arc::clone(&disk), &config));
    let checkpoint = Arc::new(Checkpoint::open(&*disk, root)?);
    let deleted = Arc::new(DeletedTopics::open(Arc::clone(&disk), &config)?);
    let recovery = Recovery {
        config: &config,
        disk: &disk,
        log: &log,
        queues: &queues,
        checkpoint: &checkpoint,
        deleted: &deleted,
        was_clean,
    };
    let report = recovery.run()?;
    let flags = Arc::new(RunningFlags::default());
    let metrics = Arc::new(Metrics::default());
    let dispatched = Arc::new(Dispatched::default());
    let readable_end = report.readable_end;
    dispatched.set(readable_end, report.last_store_timestamp);
    let dispatchers = Arc::new(RwLock::default());
    let files = (Arc::clone(&disk), Arc::clone(&log), Arc::clone(&checkpoint));
    let index = open_index(Arc::clone(&config), files, (&clock, &metrics), readable_end)?;
    let watch = || (Arc::clone(&flags), Arc::clone(&metrics));
    let appender =
        Appender::new(Arc::clone(&log), Arc::clone(&clock), watch(), report.last_store_timestamp);
    flags.set_slave(config.is_slave);
    let (confirm, tail) =
        unconfirmed(&config, (&log, &queues, &deleted), readable_end..report.log_end)?;
    let dispatch = Dispatch::new(DispatchParts {
        tail: Arc::clone(&tail),
        confirm: Arc::clone(&confirm),
        dispatchers: Arc::clone(&dispatchers),
        dispatched: Arc::clone(&dispatched),
        flags: Arc::clone(&flags),
        metrics: Arc::clone(&metrics),
    });
    let pipeline = Pipeline {
        flusher: Flusher::new(Arc::clone(&log), Arc::clone(&checkpoint), watch()),
        retention: retention(&config, (&disk, &log), (&queues, &index), watch()),
        pending: Pending::new(config.put_pending_bytes_max, config.put_pending_messages_max),
        config,
        disk,
        clock,
        log,
        queues,
        index,
        checkpoint,
        deleted,
        confirm,
        tail,
        flags,
        metrics,
        dispatchers,
        dispatched,
        to_writer: Mailbox::new(),
        to_flusher: Mailbox::new(),
        to_dispatcher: Mailbox::new(),
        to_indexer: Mailbox::new(),
        to_keeper: Mailbox::new(),
        threads,
        appender: Mutex::new(appender),
        dispatch: Mutex::new(dispatch),
    };
    Ok((pipeline, report))
}

/// What waits to be confirmed at the start.
fn unconfirmed(
    config: &Arc<StoreConfig>,
    (log, queues, deleted): (&Arc<CommitLog>, &Arc<ConsumeQueueTable>, &Arc<DeletedTopics>),
    part: Range<i64>,
) -> Result<(Arc<Confirm>, Arc<Tail>), StoreError> {
    let held_at = config.is_confirm_held.then_some(part.start);
    let confirm = Confirm::new(held_at, part.end, config.is_slave);
    let tail = Tail {
        config: Arc::clone(config),
        log: Arc::clone(log),
        queues: Arc::clone(queues),
        deleted: Arc::clone(deleted),
    };
    tail.number_queues(part)?;
    Ok((Arc::new(confirm), Arc::new(tail)))
}

fn retention(
    config: &Arc<StoreConfig>,
    (disk, log): (&Arc<dyn Disk>, &Arc<CommitLog>),
    (queues, index): (&Arc<ConsumeQueueTable>, &Arc<Index>),
    (flags, metrics): (Arc<RunningFlags>, Arc<Metrics>),
) -> Retention {
    Retention {
        config: Arc::clone(config),
        disk: Arc::clone(disk),
        log: Arc::clone(log),
        queues: Arc::clone(queues),
        index: Arc::clone(index),
        flags,
        metrics,
        cleaned_to: AtomicI64::new(log.min_offset()),
    }
}

fn open_index(
    config: Arc<StoreConfig>,
    (disk, log, checkpoint): (Arc<dyn Disk>, Arc<CommitLog>, Arc<Checkpoint>),
    (clock, metrics): (&Arc<dyn Clock>, &Arc<Metrics>),
    log_end: i64,
) -> Result<Arc<Index>, StoreError> {
    let (clock, metrics) = (Arc::clone(clock), Arc::clone(metrics));
    let parts = IndexParts { config, disk, log, checkpoint, clock, metrics };
    Index::open(parts, log_end).map(Arc::new)
}

/// Refuses stores that would be read wrong.
pub(crate) fn refuse_other_kinds(disk: &dyn Disk, config: &StoreConfig) -> Result<(), StoreError> {
    let root = &config.store_path_root_dir;
    let queues = config.consume_queue_dir();
    let batch_queues = root.join("batchconsumequeue");
    let list = |dir: &PathBuf| disk.list(dir).map_err(StoreError::io("list", dir));
    if list(&queues)?.iter().any(|entry| entry.name == "CURRENT") {
        let reason = "its consume queues are a RocksDB (storeType=defaultRocksDB); only \
                      storeType=default can be read";
        return Err(StoreError::Unsupported { path: queues, reason });
    }
    if !list(&batch_queues)?.is_empty() {
        let reason = "it has topics of the kind queue.type=BatchCQ, which cannot be read";
        return Err(StoreError::Unsupported { path: batch_queues, reason });
    }
    if list(root)?.iter().any(|entry| entry.name.starts_with("dledger-")) {
        let reason =
            "its commit log is a DLedger (enableDLegerCommitLog=true), which cannot be read";
        return Err(StoreError::Unsupported { path: root.clone(), reason });
    }
    Ok(())
}

/// Creates a directory so that it is still there after a loss of power.
pub(crate) fn create_durable_dir(disk: &dyn Disk, dir: &Path) -> Result<(), StoreError> {
    disk.create_dir_all(dir).map_err(StoreError::io("create", dir))?;
    for parent in dir.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
        match disk.sync_dir(parent) {
            // A directory that we may not read or write, or that cannot be synced at all (`/proc`),
            // is not one in which we made something.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::PermissionDenied
                        | ErrorKind::ReadOnlyFilesystem
                        | ErrorKind::InvalidInput
                        | ErrorKind::Unsupported
                ) => {}
            outcome => outcome.map_err(StoreError::io("sync", parent))?,
        }
    }
    Ok(())
}
