//! The small files in the root directory: `checkpoint`, `abort` and `lock`.
//!
//! `checkpoint` has 4096 bytes, of which the first 40 are five big-endian i64: the store times up
//! to which commit log, consume queues and index are on the disk, the offset flushed by the master,
//! and the confirmed offset. It says where recovery begins, so each may be late but never early.
//!
//! Bytes 40 to 60 are ours; Apache's broker leaves them alone: the commit log offset below which
//! log and queues are on the disk (i64), a CRC-32 of bytes 0 to 48, and a magic number. The
//! checksum no longer fits when Apache's broker has used the store since, and then only the times
//! count. Bytes 56 to 60 are not zero when a flush failed: the kernel then keeps data in memory
//! that it will never write, so the next start must write again whatever it finds behind that
//! offset.
//!
//! `abort` exists while a broker runs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use bytes::{Buf as _, BufMut as _};
use parking_lot::Mutex;

use crate::disk::{Disk, File, Lock};
use crate::error::StoreError;

const CHECKPOINT_BYTES: u64 = 4096;
/// Bytes in use: they lie in one sector, so a write of them is never torn.
const USED_BYTES: usize = 60;
const FAILURE_AT: usize = 56;
/// Says that the position is ours. Persisted.
const POSITION_MAGIC: u32 = 0x5251_5350;
/// Store times within this of the checkpoint count as not yet flushed (as in Apache's broker).
const MARGIN_MS: i64 = 3_000;

/// Times up to which things are durable. See the module.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    file: Arc<dyn File>,
    path: PathBuf,
    physic: AtomicI64,
    logics: AtomicI64,
    index: AtomicI64,
    master_flushed: i64,
    confirmed: i64,
    /// -1 when unknown.
    position: AtomicI64,
    is_flush_failed: bool,
    /// A flush failed in this run.
    has_failed: AtomicBool,
    /// What the file says, to leave it alone while nothing changes.
    on_disk: Mutex<[u8; USED_BYTES]>,
}

/// What a checkpoint says; times are epoch milliseconds, 0 for never.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointValues {
    /// Store time of the last record known to be on the disk.
    pub physic_timestamp: i64,
    /// Store time of the last record whose queue is known to be on the disk.
    pub logics_timestamp: i64,
    /// Store time up to which the index files are on the disk.
    pub index_timestamp: i64,
    /// Commit log offset below which log and queues are on the disk; only our broker writes it.
    pub position: Option<i64>,
    /// A flush failed in the last run.
    pub is_flush_failed: bool,
}

impl Checkpoint {
    /// Reads the file, or makes an empty one. A short file counts as empty: recovery then begins at
    /// the start of the log.
    pub(crate) fn open(disk: &dyn Disk, root: &Path) -> Result<Self, StoreError> {
        let path = root.join("checkpoint");
        let file = match disk.open(&path) {
            Ok(file)
                if file.size().map_err(StoreError::io("read", &path))? >= USED_BYTES as u64 =>
            {
                file
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::io("open", &path)(error));
            }
            _ => disk.create(&path, CHECKPOINT_BYTES).map_err(StoreError::io("create", &path))?,
        };
        let mut on_disk = [0; USED_BYTES];
        file.read_exact_at(&mut on_disk, 0).map_err(StoreError::io("read", &path))?;
        let mut fields = &on_disk[..];
        let mut next = || fields.get_i64();
        let (physic, logics, index) = (next(), next(), next());
        let (master_flushed, confirmed, position) = (next(), next(), next());
        let (crc, magic) = (fields.get_u32(), fields.get_u32());
        let is_ours = magic == POSITION_MAGIC && crc == crc32fast::hash(&on_disk[..48]);
        let position = if is_ours && position >= 0 { position } else { -1 };
        Ok(Self {
            file,
            path,
            physic: AtomicI64::new(physic),
            logics: AtomicI64::new(logics),
            index: AtomicI64::new(index),
            master_flushed,
            confirmed,
            position: AtomicI64::new(position),
            has_failed: AtomicBool::new(false),
            is_flush_failed: on_disk[FAILURE_AT..] != [0; 4],
            on_disk: Mutex::new(on_disk),
        })
    }

    /// What it says, for people.
    pub(crate) fn values(&self) -> CheckpointValues {
        CheckpointValues {
            physic_timestamp: self.physic_timestamp(),
            logics_timestamp: self.logics.load(Ordering::Acquire),
            index_timestamp: self.index.load(Ordering::Acquire),
            position: self.position(),
            is_flush_failed: self.is_flush_failed,
        }
    }

    /// Everything stored before this time is in a durable commit log and in durable queues.
    pub(crate) fn durable_until(&self) -> i64 {
        let physic = self.physic.load(Ordering::Acquire);
        physic.min(self.logics.load(Ordering::Acquire)).saturating_sub(MARGIN_MS).max(0)
    }

    /// Store time of the last record that was flushed.
    pub(crate) fn physic_timestamp(&self) -> i64 {
        self.physic.load(Ordering::Acquire)
    }

    /// The commit log offset below which log and queues are on the disk, if it is known.
    pub(crate) fn position(&self) -> Option<i64> {
        Some(self.position.load(Ordering::Acquire)).filter(|position| *position >= 0)
    }

    /// Whether a flush failed in an earlier run, since when no recovery has succeeded.
    pub(crate) fn is_flush_failed(&self) -> bool {
        self.is_flush_failed
    }

    /// Notes for the next start that a flush failed. The note need not be durable: after a loss of
    /// power the memory that it warns of is gone as well.
    pub(crate) fn note_flush_failure(&self) {
        let note = self.file.write_all_at(&[1; 4], FAILURE_AT as u64);
        if let Err(error) = note {
            tracing::error!(%error, "the failed flush could not be noted in the checkpoint");
        }
        self.on_disk.lock()[FAILURE_AT..].fill(1);
        self.has_failed.store(true, Ordering::Release);
    }

    /// The log is on the disk up to a record stored at this time.
    pub(crate) fn set_physic(&self, timestamp: i64) {
        self.physic.store(timestamp, Ordering::Release);
    }

    /// The queues are on the disk up to a record stored at this time, and log and queues are below
    /// this offset.
    pub(crate) fn set_logics(&self, timestamp: i64, position: i64) {
        self.logics.store(timestamp, Ordering::Release);
        self.position.store(position, Ordering::Release);
    }

    /// Log and queues are on the disk below this offset.
    pub(crate) fn set_position(&self, position: i64) {
        self.position.store(position, Ordering::Release);
    }

    /// The index is on the disk up to a record stored at this time.
    pub(crate) fn set_index(&self, timestamp: i64) {
        self.index.store(timestamp, Ordering::Release);
    }

    /// Writes the file durably if it has changed.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        let mut bytes = [0; USED_BYTES];
        let mut fields = &mut bytes[..];
        fields.put_i64(self.physic.load(Ordering::Acquire));
        fields.put_i64(self.logics.load(Ordering::Acquire));
        fields.put_i64(self.index.load(Ordering::Acquire));
        fields.put_i64(self.master_flushed);
        fields.put_i64(self.confirmed);
        fields.put_i64(self.position.load(Ordering::Acquire));
        let crc = crc32fast::hash(&bytes[..48]);
        let mut fields = &mut bytes[48..];
        fields.put_u32(crc);
        fields.put_u32(POSITION_MAGIC);
        fields.put_slice(&[u8::from(self.has_failed.load(Ordering::Acquire)); 4]);
        let mut on_disk = self.on_disk.lock();
        if *on_disk != bytes {
            self.file.write_all_at(&bytes, 0).map_err(StoreError::io("write", &self.path))?;
            self.file.sync_data().map_err(StoreError::io("flush", &self.path))?;
            *on_disk = bytes;
        }
        Ok(())
    }
}

/// Whether the last broker ended without a clean stop.
pub(crate) fn is_aborted(disk: &dyn Disk, root: &Path) -> Result<bool, StoreError> {
    let list = disk.list(root).map_err(StoreError::io("list", root))?;
    Ok(list.iter().any(|entry| entry.name == "abort"))
}

/// Writes the process id into `abort`, durably: from here on an end without [`clear_abort`] is
/// known to be none in good order.
pub(crate) fn set_abort(disk: &dyn Disk, root: &Path) -> Result<(), StoreError> {
    let path = root.join("abort");
    let write = || {
        let text = std::process::id().to_string();
        let file = disk.create(&path, 0)?;
        file.write_all_at(text.as_bytes(), 0)?;
        file.sync_data()?;
        disk.sync_dir(root)
    };
    write().map_err(StoreError::io("write", &path))
}

/// Removes `abort`: all is durable and consistent.
pub(crate) fn clear_abort(disk: &dyn Disk, root: &Path) -> Result<(), StoreError> {
    let path = root.join("abort");
    disk.remove(&path).map_err(StoreError::io("remove", &path))?;
    disk.sync_dir(root).map_err(StoreError::io("sync", root))
}

/// Takes the lock of a store directory.
pub(crate) fn lock(disk: &dyn Disk, root: &Path) -> Result<Box<dyn Lock>, StoreError> {
    let path = root.join("lock");
    let lock = disk.lock(&path).map_err(StoreError::io("lock", &path))?;
    lock.ok_or(StoreError::Locked { path })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;

    #[test]
    fn the_file_is_that_of_apache() {
        let dir = tempfile::tempdir().unwrap();
        // The first bytes of the golden store.
        let mut golden = vec![0; 4096];
        golden[..16].copy_from_slice(&[
            0x00, 0x00, 0x01, 0xa2, 0x2b, 0xf8, 0x1f, 0x86, 0x00, 0x00, 0x01, 0xa2, 0x2b, 0xf8,
            0x1f, 0x86,
        ]);
        let path = dir.path().join("checkpoint");
        std::fs::write(&path, &golden).unwrap();
        let checkpoint = Checkpoint::open(&RealDisk, dir.path()).unwrap();
        assert_eq!(checkpoint.durable_until(), 0x1a2_2bf8_1f86 - 3000);
        assert_eq!(checkpoint.position(), None);
        checkpoint.set_physic(0x1a2_2bf8_1f90);
        checkpoint.set_logics(0x1a2_2bf8_1f86, 573);
        checkpoint.flush().unwrap();
        let mut written = std::fs::read(&path).unwrap();
        golden[7] = 0x90;
        assert_eq!(written[..40], golden[..40]);
        assert_eq!(written.len(), 4096);
        let position = || Checkpoint::open(&RealDisk, dir.path()).unwrap().position();
        assert_eq!(position(), Some(573));
        assert!(!Checkpoint::open(&RealDisk, dir.path()).unwrap().is_flush_failed());
        checkpoint.note_flush_failure();
        checkpoint.flush().unwrap();
        let checkpoint = Checkpoint::open(&RealDisk, dir.path()).unwrap();
        assert!(checkpoint.is_flush_failed());
        checkpoint.flush().unwrap();
        assert!(!Checkpoint::open(&RealDisk, dir.path()).unwrap().is_flush_failed());
        // Apache's broker writes another time.
        written[7] = 0x91;
        std::fs::write(&path, &written).unwrap();
        assert_eq!(position(), None);
    }

    #[test]
    fn a_missing_or_short_file_is_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Checkpoint::open(&RealDisk, dir.path()).unwrap().durable_until(), 0);
        std::fs::write(dir.path().join("checkpoint"), [0xFF; 39]).unwrap();
        assert_eq!(Checkpoint::open(&RealDisk, dir.path()).unwrap().durable_until(), 0);
        assert_eq!(std::fs::metadata(dir.path().join("checkpoint")).unwrap().len(), 4096);
    }

    #[test]
    fn abort_exists_while_a_broker_runs() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_aborted(&RealDisk, dir.path()).unwrap());
        set_abort(&RealDisk, dir.path()).unwrap();
        assert!(is_aborted(&RealDisk, dir.path()).unwrap());
        let text = std::fs::read_to_string(dir.path().join("abort")).unwrap();
        assert_eq!(text, std::process::id().to_string());
        clear_abort(&RealDisk, dir.path()).unwrap();
        assert!(!is_aborted(&RealDisk, dir.path()).unwrap());
        let lock_file = lock(&RealDisk, dir.path()).unwrap();
        assert!(matches!(lock(&RealDisk, dir.path()), Err(StoreError::Locked { .. })));
        drop(lock_file);
    }
}
