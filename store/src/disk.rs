//! The border to the disk: two traits and their implementation on the real file system.
//!
//! Nothing else in the store touches files, so that crash tests can put [`crate::sim_disk`] in its
//! place, which forgets and tears what was not synced.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;
use rustix::process::FlockType;

use crate::mapped_file::{self, MappedFile};

/// What a directory holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// Name within the directory. Names that are not UTF-8 are left out of listings.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Bytes of a file; 0 for a directory.
    pub size: u64,
}

/// Space of a file system in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes in use.
    pub used: u64,
    /// Bytes that the broker may still use.
    pub available: u64,
}

impl Space {
    /// Per cent in use, rounded up, of what the broker could use (as Apache's broker counts).
    #[must_use]
    pub fn used_percent(&self) -> u8 {
        let total = u128::from(self.used) + u128::from(self.available);
        if total == 0 {
            return 0;
        }
        let percent = (u128::from(self.used) * 100).div_ceil(total);
        u8::try_from(percent).unwrap_or(100)
    }
}

/// Held as long as the store is open.
pub trait Lock: Send + Sync + fmt::Debug {}

/// Files and directories.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Creates a directory and those above it; fine if it is there.
    ///
    /// # Errors
    /// What the file system says.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Lists a directory, sorted by name; empty when it does not exist.
    ///
    /// # Errors
    /// What the file system says.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;
    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// What the file system says; `NotFound` if it does not exist.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>>;
    /// Creates a file, or empties an existing one, with this size; it reads as zeros.
    ///
    /// # Errors
    /// What the file system says.
    fn create(&self, path: &Path, size: u64) -> io::Result<Arc<dyn File>>;
    /// Removes a file.
    ///
    /// # Errors
    /// What the file system says; `NotFound` if it does not exist.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    ///
    /// # Errors
    /// What the file system says.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;
    /// Renames a file in place of another in the same directory.
    ///
    /// # Errors
    /// What the file system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes creations, removals and renames in a directory durable.
    ///
    /// # Errors
    /// What the file system says.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes everything durable that was done before on the file system that holds `dir`. For many
    /// files this is faster than one after the other.
    ///
    /// # Errors
    /// What the file system says.
    fn sync_all(&self, dir: &Path) -> io::Result<()>;
    /// Time of the last change of a file's content, epoch milliseconds.
    ///
    /// # Errors
    /// What the file system says.
    fn modified_ms(&self, path: &Path) -> io::Result<i64>;
    /// Space of the file system that holds `path`.
    ///
    /// # Errors
    /// What the file system says.
    fn space(&self, path: &Path) -> io::Result<Space>;
    /// Locks a file, creating it, or returns `None` when someone else holds the lock.
    ///
    /// # Errors
    /// What the file system says.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>>;
}

/// An open file.
pub trait File: Send + Sync + fmt::Debug {
    /// Bytes in the file.
    ///
    /// # Errors
    /// What the file system says.
    fn size(&self) -> io::Result<u64>;
    /// Changes the size; new bytes are zeros.
    ///
    /// # Errors
    /// What the file system says.
    fn set_size(&self, size: u64) -> io::Result<()>;
    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` at the end of the file, or what the file system says.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// What the file system says; a part may have been written.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Reserves space so that a later write there does not find the disk full. Content stays.
    ///
    /// # Errors
    /// `StorageFull`, or what the file system says.
    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()>;
    /// Makes a range read as zeros.
    ///
    /// # Errors
    /// What the file system says.
    fn zero(&self, offset: u64, bytes: u64) -> io::Result<()>;
    /// A position at or after `offset` before which all is zeros, or `None` if the rest is.
    ///
    /// # Errors
    /// What the file system says.
    fn next_data(&self, offset: u64) -> io::Result<Option<u64>>;
    /// Makes content and size durable. After an error nothing may be concluded about either.
    ///
    /// # Errors
    /// What the file system says.
    fn sync_data(&self) -> io::Result<()>;
    /// `bytes` from `offset`, without a copy where the file is mapped.
    ///
    /// # Errors
    /// `UnexpectedEof` at the end of the file, or what the file system says.
    fn bytes(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        let mut buffer = vec![0; bytes];
        self.read_exact_at(&mut buffer, offset)?;
        Ok(buffer.into())
    }
    /// Takes what was read by `bytes` out of this process's memory, where the file is mapped.
    ///
    /// # Errors
    /// What the system says.
    fn release_memory(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes read at once where a file is searched.
const BLOCK_BYTES: u64 = 4_096;
/// Blocks that are zeroed one by one before the rest is zeroed as a whole.
const BLOCKS_WRITTEN_MAX: usize = 16;

/// Makes the rest of a file zeros; returns whether it was not. A few blocks are written over, which
/// is faster than to take them from the file and to add them again.
pub(crate) fn zero_data(file: &dyn File, position: u64, rest: u64) -> io::Result<bool> {
    let end = position + rest;
    let mut block = [0; BLOCK_BYTES as usize];
    let mut from = position;
    let mut written = 0;
    while let Some(data) = file.next_data(from)?.filter(|data| *data < end) {
        let length = (BLOCK_BYTES - data % BLOCK_BYTES).min(end - data);
        let block = &mut block[..usize::try_from(length).map_err(io::Error::other)?];
        file.read_exact_at(block, data)?;
        if block.iter().any(|byte| *byte != 0) {
            if written == BLOCKS_WRITTEN_MAX {
                return file.zero(position, rest).map(|()| true);
            }
            block.fill(0);
            file.write_all_at(block, data)?;
            written += 1;
        }
        from = data + length;
    }
    Ok(written > 0)
}

/// The file system of this machine.
#[derive(Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        std::fs::create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let entries = match std::fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut list = Vec::new();
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            // A directory needs no further question; of links what they point to counts.
            let mut is_dir = entry.file_type()?.is_dir();
            let mut size = 0;
            if !is_dir {
                let metadata = std::fs::metadata(entry.path())?;
                is_dir = metadata.is_dir();
                size = if is_dir { 0 } else { metadata.len() };
            }
            list.push(DirEntry { name, is_dir, size });
        }
        list.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(list)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Arc::new(RealFile::new(file)))
    }

    fn create(&self, path: &Path, size: u64) -> io::Result<Arc<dyn File>> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(path)?;
        file.set_len(size)?;
        Ok(Arc::new(RealFile::new(file)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        std::fs::remove_dir(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        std::fs::File::open(dir)?.sync_all()
    }

    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        Ok(rustix::fs::syncfs(std::fs::File::open(dir)?)?)
    }

    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        let modified = std::fs::metadata(path)?.modified()?;
        let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let stat = rustix::fs::statvfs(path)?;
        let blocks = |count: u64| count.saturating_mul(stat.f_frsize);
        let used = blocks(stat.f_blocks.saturating_sub(stat.f_bfree));
        Ok(Space { used, available: blocks(stat.f_bavail) })
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let mut options = OpenOptions::new();
        // The content stays: Apache's broker reads nothing from it but writes it likewise.
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        let path = path.canonicalize()?;
        // A record lock does not exclude this very process, and is lost when any descriptor of the
        // file is closed: so a second store of this process must not get as far as that.
        if !LOCKED.lock().insert(path.clone()) {
            return Ok(None);
        }
        let lock = RealLock { file, path };
        match rustix::fs::fcntl_lock(&lock.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::AGAIN | Errno::ACCESS) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        lock.file.write_all_at(b"lock", 0)?;
        Ok(Some(Box::new(lock)))
    }
}

/// Whether some process, this one included, holds the lock that [`Disk::lock`] takes on this file.
/// Takes none and makes no file.
pub(crate) fn is_locked(path: &Path) -> io::Result<bool> {
    let path = match path.canonicalize() {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    // First: of its own locks a process is not told, and would lose them by what follows.
    if LOCKED.lock().contains(&path) {
        return Ok(true);
    }
    let file = std::fs::File::open(path)?;
    Ok(rustix::process::fcntl_getlk(&file, &FlockType::WriteLock.into())?.is_some())
}

static LOCKED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

#[derive(Debug)]
struct RealLock {
    file: std::fs::File,
    path: PathBuf,
}

impl Lock for RealLock {}

impl Drop for RealLock {
    fn drop(&mut self) {
        LOCKED.lock().remove(&self.path);
    }
}

#[derive(Debug)]
struct RealFile {
    file: std::fs::File,
    /// Made at the first call of `bytes`, of the size that the file then has.
    mapping: OnceLock<MappedFile>,
    /// Whether `bytes` was called since memory was released.
    is_touched: AtomicBool,
}

impl RealFile {
    fn new(file: std::fs::File) -> Self {
        Self { file, mapping: OnceLock::new(), is_touched: AtomicBool::new(false) }
    }

    fn mapping(&self) -> io::Result<&MappedFile> {
        if let Some(mapping) = self.mapping.get() {
            return Ok(mapping);
        }
        let size = usize::try_from(self.size()?).map_err(io::Error::other)?;
        let mapping = mapped_file::map(&self.file, size)?;
        Ok(self.mapping.get_or_init(|| mapping))
    }
}

impl File for RealFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.file.set_len(size)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset, bytes) {
            // A file system that cannot reserve reports a full disk when it is written to.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn zero(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // A hole first: it does not take the space of the whole range.
        for flags in [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE] {
            let flags = flags | FallocateFlags::KEEP_SIZE;
            match rustix::fs::fallocate(&self.file, flags, offset, bytes) {
                Ok(()) => return Ok(()),
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let zeros = vec![0; 1 << 20];
        let end = offset + bytes;
        let mut at = offset;
        while at < end {
            let length = usize::try_from(end - at).unwrap_or(usize::MAX).min(zeros.len());
            self.file.write_all_at(&zeros[..length], at)?;
            at += length as u64;
        }
        Ok(())
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(offset)) {
            Ok(position) => Ok(Some(position)),
            Err(Errno::NXIO) => Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(offset)),
            Err(error) => Err(error.into()),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn bytes(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        let mapping = self.mapping()?.bytes();
        self.is_touched.store(true, Ordering::Relaxed);
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let end = start.checked_add(bytes).filter(|end| *end <= mapping.len());
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(mapping.slice(start..end))
    }

    fn release_memory(&self) -> io::Result<()> {
        match self.mapping.get() {
            Some(mapping) if self.is_touched.swap(false, Ordering::Relaxed) => mapping.release(),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_keep_their_size_and_read_as_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let file = RealDisk.create(&path, 10_000).unwrap();
        file.allocate(0, 10_000).unwrap();
        file.write_all_at(b"data", 9_000).unwrap();
        assert_eq!(file.bytes(8_999, 6).unwrap(), &b"\0data\0"[..]);
        file.zero(0, 10_000).unwrap();
        assert_eq!(file.size().unwrap(), 10_000);
        assert_eq!(file.bytes(9_000, 4).unwrap(), &[0; 4][..]);
        assert!(file.bytes(9_999, 2).is_err());
        file.sync_data().unwrap();
        RealDisk.sync_dir(dir.path()).unwrap();
        let list = RealDisk.list(dir.path()).unwrap();
        assert_eq!(list, [DirEntry { name: "a".into(), is_dir: false, size: 10_000 }]);
        assert!(RealDisk.list(&dir.path().join("none")).unwrap().is_empty());
        assert!(RealDisk.modified_ms(&path).unwrap() > 1_600_000_000_000);
    }

    #[test]
    fn next_data_skips_holes() {
        let dir = tempfile::tempdir().unwrap();
        let file = RealDisk.create(&dir.path().join("a"), 1 << 20).unwrap();
        file.write_all_at(b"x", 700_000).unwrap();
        assert!(file.next_data(0).unwrap().unwrap() <= 700_000);
        // A file system without holes may say that everything is data.
        assert!(file.next_data(900_000).unwrap().is_none_or(|at| at >= 900_000));
        assert_eq!(file.next_data(1 << 20).unwrap(), None);
    }

    #[test]
    fn one_store_holds_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = RealDisk.lock(&path).unwrap().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"lock");
        assert!(RealDisk.lock(&path).unwrap().is_none());
        assert!(is_locked(&path).unwrap());
        assert!(RealDisk.lock(&path).unwrap().is_none());
        drop(lock);
        assert!(!is_locked(&path).unwrap());
        assert!(!is_locked(&dir.path().join("none")).unwrap());
        assert!(RealDisk.lock(&path).unwrap().is_some());
    }

    #[test]
    fn used_percent_rounds_up() {
        assert_eq!(Space { used: 1, available: 999 }.used_percent(), 1);
        assert_eq!(Space { used: 901, available: 99 }.used_percent(), 91);
        assert_eq!(Space { used: 0, available: 0 }.used_percent(), 0);
        assert_eq!(Space { used: u64::MAX, available: 0 }.used_percent(), 100);
        assert!(RealDisk.space(Path::new("/tmp")).unwrap().available > 0);
    }
}
