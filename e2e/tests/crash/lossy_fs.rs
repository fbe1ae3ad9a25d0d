//! A file system in user space over the store's simulated disk, so that the real broker meets what
//! its simulation meets: what was not synced is gone or torn after a loss of power, an operation
//! fails, there is no space. Mounting needs root and `/dev/fuse`, and no library.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request,
    WriteFlags,
};
use parking_lot::Mutex;
use store::disk::{Disk, File};
use store::sim_disk::SimDisk;

/// Where the disk's files begin.
const ROOT: &str = "/store";
/// The kernel is the only one who changes anything, so it may remember.
const REMEMBERED: Duration = Duration::from_secs(60);
const BLOCK_BYTES: u32 = 4096;
const BLOCKS: u64 = (1 << 30) / BLOCK_BYTES as u64;
/// Bits of `fallocate` that make a range read as zeros.
const FALLOC_ZEROES: i32 = 0x02 | 0x10;

/// A mounted simulated disk; unmounted when dropped.
pub(crate) struct LossyFs {
    session: Option<BackgroundSession>,
    disk: SimDisk,
}

impl LossyFs {
    /// Why it cannot be mounted on this machine, if so.
    pub(crate) fn absent() -> Option<&'static str> {
        if !rustix::process::geteuid().is_root() {
            return Some("mounting needs root");
        }
        (!Path::new("/dev/fuse").exists()).then_some("there is no /dev/fuse")
    }

    pub(crate) fn mount(disk: SimDisk, at: &Path) -> Result<Self> {
        disk.create_dir_all(Path::new(ROOT))?;
        let nodes = Nodes { paths: [(1, PathBuf::from(ROOT))].into(), last: 1 };
        let volume = Volume {
            disk: disk.clone(),
            nodes: Mutex::new(nodes),
            handles: Mutex::default(),
            mounted: SystemTime::now(),
        };
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("lossy".to_owned())];
        let session = fuser::spawn_mount(volume, at, &config);
        let session = session.with_context(|| format!("cannot mount {}", at.display()))?;
        Ok(Self { session: Some(session), disk })
    }

    /// The disk below it.
    pub(crate) fn disk(&self) -> &SimDisk {
        &self.disk
    }

    /// Unmounts it; nobody may use it any more. The kernel forgets what it remembered.
    pub(crate) fn unmount(mut self) -> Result<SimDisk> {
        let session = self.session.take().context("it is mounted")?;
        match session.umount_and_join() {
            // The thread that served it was just about to ask the kernel for more.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            ended => ended.context("cannot unmount")?,
        }
        Ok(self.disk.clone())
    }
}

/// Paths of files and directories by the number that the kernel knows them by.
#[derive(Debug)]
struct Nodes {
    paths: BTreeMap<u64, PathBuf>,
    last: u64,
}

impl Nodes {
    fn path(&self, number: INodeNo) -> io::Result<PathBuf> {
        self.paths.get(&number.0).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn number(&mut self, path: &Path) -> INodeNo {
        if let Some((number, _)) = self.paths.iter().find(|(_, known)| *known == path) {
            return INodeNo(*number);
        }
        self.last += 1;
        self.paths.insert(self.last, path.to_owned());
        INodeNo(self.last)
    }

    fn forget(&mut self, path: &Path) {
        self.paths.retain(|_, known| known != path);
    }
}

#[derive(Debug, Default)]
struct Handles {
    files: BTreeMap<u64, Arc<dyn File>>,
    last: u64,
}

struct Volume {
    disk: SimDisk,
    nodes: Mutex<Nodes>,
    handles: Mutex<Handles>,
    mounted: SystemTime,
}

fn errno(error: &io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::NotFound => Errno::ENOENT,
        io::ErrorKind::StorageFull => Errno::ENOSPC,
        io::ErrorKind::DirectoryNotEmpty => Errno::ENOTEMPTY,
        _ => Errno::EIO,
    }
}

impl Volume {
    fn child(&self, parent: INodeNo, name: &OsStr) -> io::Result<PathBuf> {
        Ok(self.nodes.lock().path(parent)?.join(name))
    }

    fn attributes(&self, path: &Path) -> io::Result<FileAttr> {
        let (kind, size) = if path == Path::new(ROOT) {
            (FileType::Directory, 0)
        } else {
            let name = path.file_name().and_then(OsStr::to_str);
            let parent = path.parent().unwrap_or(path);
            let mut entries = self.disk.list(parent)?.into_iter();
            let entry = entries.find(|entry| Some(entry.name.as_str()) == name);
            let entry = entry.ok_or(io::ErrorKind::NotFound)?;
            let kind = if entry.is_dir { FileType::Directory } else { FileType::RegularFile };
            (kind, entry.size)
        };
        let number = self.nodes.lock().number(path);
        Ok(self.attributes_of(number, kind, size))
    }

    fn attributes_of(&self, ino: INodeNo, kind: FileType, size: u64) -> FileAttr {
        FileAttr {
            ino,
            size,
            blocks: size.div_ceil(512),
            atime: self.mounted,
            mtime: self.mounted,
            ctime: self.mounted,
            crtime: self.mounted,
            kind,
            perm: if kind == FileType::Directory { 0o700 } else { 0o600 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        }
    }

    fn hold(&self, file: Arc<dyn File>) -> FileHandle {
        let mut handles = self.handles.lock();
        handles.last += 1;
        let handle = handles.last;
        handles.files.insert(handle, file);
        FileHandle(handle)
    }

    fn file(&self, handle: FileHandle) -> io::Result<Arc<dyn File>> {
        let file = self.handles.lock().files.get(&handle.0).cloned();
        file.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn set_size(&self, ino: INodeNo, handle: Option<FileHandle>, size: u64) -> io::Result<()> {
        let file = match handle {
            Some(handle) => self.file(handle)?,
            None => self.disk.open(&self.nodes.lock().path(ino)?)?,
        };
        file.set_size(size)
    }

    fn read_some(&self, handle: FileHandle, offset: u64, size: u32) -> io::Result<Vec<u8>> {
        let file = self.file(handle)?;
        let left = file.size()?.saturating_sub(offset).min(u64::from(size));
        let mut buffer = vec![0; usize::try_from(left).unwrap_or(0)];
        file.read_exact_at(&mut buffer, offset)?;
        Ok(buffer)
    }

    fn move_name(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)?;
        let mut nodes = self.nodes.lock();
        nodes.forget(to);
        let moved = nodes.paths.values_mut().find(|path| *path == from);
        if let Some(path) = moved {
            *path = to.to_owned();
        }
        Ok(())
    }

    fn empty(outcome: io::Result<()>, reply: ReplyEmpty) {
        match outcome {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn entry(outcome: io::Result<FileAttr>, reply: ReplyEntry) {
        match outcome {
            Ok(attributes) => reply.entry(&REMEMBERED, &attributes, Generation(0)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn attr(outcome: io::Result<FileAttr>, reply: ReplyAttr) {
        match outcome {
            Ok(attributes) => reply.attr(&REMEMBERED, &attributes),
            Err(error) => reply.error(errno(&error)),
        }
    }
}

impl Filesystem for Volume {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        Self::entry(self.child(parent, name).and_then(|path| self.attributes(&path)), reply);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let path = self.nodes.lock().path(ino);
        let outcome = match handle.map(|handle| self.file(handle)) {
            Some(Ok(file)) => {
                file.size().map(|size| self.attributes_of(ino, FileType::RegularFile, size))
            }
            _ => path.and_then(|path| self.attributes(&path)),
        };
        Self::attr(outcome, reply);
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<fuser::TimeOrNow>,
        _mtime: Option<fuser::TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match size.map_or(Ok(()), |size| self.set_size(ino, handle, size)) {
            Ok(()) => self.getattr(request, ino, handle, reply),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let outcome = self.child(parent, name).and_then(|path| {
            self.disk.create_dir_all(&path)?;
            self.attributes(&path)
        });
        Self::entry(outcome, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let outcome = self.child(parent, name).and_then(|path| {
            self.disk.remove(&path)?;
            self.nodes.lock().forget(&path);
            Ok(())
        });
        Self::empty(outcome, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let outcome = self.child(parent, name).and_then(|path| self.disk.remove_dir(&path));
        Self::empty(outcome, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let from = self.child(parent, name);
        let to = self.child(new_parent, new_name);
        Self::empty(from.and_then(|from| self.move_name(&from, &to?)), reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let path = self.nodes.lock().path(ino);
        match path.and_then(|path| self.disk.open(&path)) {
            Ok(file) => reply.opened(self.hold(file), FopenFlags::empty()),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let outcome = self.child(parent, name).and_then(|path| {
            let file = self.disk.create(&path, 0)?;
            Ok((file, self.attributes(&path)?))
        });
        match outcome {
            Ok((file, attributes)) => {
                let handle = self.hold(file);
                let flags = FopenFlags::empty();
                reply.created(&REMEMBERED, &attributes, Generation(0), handle, flags);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.read_some(handle, offset, size) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.file(handle).and_then(|file| file.write_all_at(data, offset)) {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.handles.lock().files.remove(&handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        Self::empty(self.file(handle).and_then(|file| file.sync_data()), reply);
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let path = self.nodes.lock().path(ino);
        Self::empty(path.and_then(|path| self.disk.sync_dir(&path)), reply);
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let path = self.nodes.lock().path(ino);
        let entries = path.and_then(|path| Ok((self.disk.list(&path)?, path)));
        let (entries, path) = match entries {
            Ok(entries) => entries,
            Err(error) => return reply.error(errno(&error)),
        };
        let entries = (1..).zip(entries).skip(usize::try_from(offset).unwrap_or(usize::MAX));
        for (next, entry) in entries {
            let number = self.nodes.lock().number(&path.join(&entry.name));
            let kind = if entry.is_dir { FileType::Directory } else { FileType::RegularFile };
            if reply.add(number, next, kind, &entry.name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let free = BLOCKS / 10 * 9;
        reply.statfs(BLOCKS, free, free, 1 << 20, 1 << 20, BLOCK_BYTES, 255, BLOCK_BYTES);
    }

    fn fallocate(
        &self,
        _: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let outcome = self.file(handle).and_then(|file| {
            if mode & FALLOC_ZEROES == 0 {
                return file.allocate(offset, length);
            }
            // A hole behind the end of the file stays behind it.
            file.zero(offset, length.min(file.size()?.saturating_sub(offset)))
        });
        Self::empty(outcome, reply);
    }
}
