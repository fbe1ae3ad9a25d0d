//! A disk in memory that behaves as badly as a real one may: at a crash it forgets or tears what
//! was not synced, and errors can be ordered. For tests and simulations.
//!
//! The model: of each page written since the last successful sync of its file, a crash keeps the
//! old content, the new, or a mixture at a boundary of 512 bytes. A new size is kept or not.
//! Creations, removals and renames in a directory that was not synced are kept up to a random one.
//! A failed sync may have saved any page and will not save the others later. Directories themselves
//! are never lost.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::{DirEntry, Disk, File, Lock, Space};

mod file;

use file::SimFile;

const PAGE_BYTES: usize = 4096;
const SECTOR_BYTES: usize = 512;

type Page = Box<[u8; PAGE_BYTES]>;

/// What happens to an operation that changes the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The machine loses power in the middle of it; every later operation fails.
    Crash,
    /// It fails with an input/output error; the disk goes on working.
    IoError,
}

#[derive(Debug, Clone, Default)]
struct Inode {
    pages: BTreeMap<u64, Page>,
    durable_pages: BTreeMap<u64, Page>,
    dirty: BTreeSet<u64>,
    size: u64,
    durable_size: u64,
    allocated: u64,
    modified_ms: i64,
}

#[derive(Debug, Clone)]
enum NameChange {
    Set(PathBuf, u64),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl NameChange {
    fn dir(&self) -> Option<&Path> {
        match self {
            Self::Set(path, _) | Self::Remove(path) | Self::Rename(_, path) => path.parent(),
        }
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, u64>) {
        match self {
            Self::Set(path, inode) => {
                names.insert(path.clone(), *inode);
            }
            Self::Remove(path) => {
                names.remove(path);
            }
            Self::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
        }
    }
}

#[derive(Debug, Clone, Default)]
struct State {
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    name_changes: Vec<NameChange>,
    dirs: BTreeSet<PathBuf>,
    locks: BTreeSet<PathBuf>,
    next_inode: u64,
    random: u64,
    operations: u64,
    faults: BTreeMap<u64, Fault>,
    is_crashed: bool,
    is_full: bool,
    now_ms: i64,
}

/// See the module. Clones are the same disk.
#[derive(Debug, Clone, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

impl State {
    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        let limit = limit.max(1) as u64;
        usize::try_from(self.random() % limit).unwrap_or(0)
    }

    fn check_alive(&self) -> io::Result<()> {
        if self.is_crashed { Err(io::Error::other("the machine has crashed")) } else { Ok(()) }
    }

    /// Counts an operation and returns the fault that was ordered for it.
    fn operate(&mut self) -> io::Result<Option<Fault>> {
        self.check_alive()?;
        self.operations += 1;
        let fault = self.faults.remove(&self.operations);
        if fault == Some(Fault::Crash) {
            self.is_crashed = true;
        }
        Ok(fault)
    }

    /// As [`State::operate`], for operations that happen as a whole or not at all.
    fn operate_whole(&mut self) -> io::Result<()> {
        match self.operate()? {
            None => Ok(()),
            Some(fault) => Err(error_of(fault)),
        }
    }

    fn inode(&mut self, number: u64) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&number).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn change_name(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.name_changes.push(change);
    }
}

fn error_of(fault: Fault) -> io::Error {
    match fault {
        Fault::Crash => io::Error::other("the machine crashes"),
        Fault::IoError => io::Error::other("input/output error"),
    }
}

impl SimDisk {
    /// An empty disk; `seed` decides what a crash keeps.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let disk = Self::default();
        disk.state.lock().random = seed;
        disk
    }

    /// A disk that holds these files, durably.
    #[must_use]
    pub fn from_image(image: &BTreeMap<PathBuf, Vec<u8>>) -> Self {
        let disk = Self::new(0);
        let mut state = disk.state.lock();
        for (path, content) in image {
            let number = state.next_inode;
            state.next_inode += 1;
            let mut inode = Inode { size: content.len() as u64, ..Inode::default() };
            inode.write(content, 0);
            inode.sync();
            state.inodes.insert(number, inode);
            state.names.insert(path.clone(), number);
            state.durable_names.insert(path.clone(), number);
            state.dirs.extend(path.ancestors().skip(1).map(Path::to_owned));
        }
        drop(state);
        disk
    }

    /// All files as programs see them.
    #[must_use]
    pub fn image(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let state = self.state.lock();
        let content = |number: &u64| {
            let inode = &state.inodes[number];
            let mut content = vec![0; usize::try_from(inode.size).unwrap_or(0)];
            inode.read(&mut content, 0);
            content
        };
        state.names.iter().map(|(path, number)| (path.clone(), content(number))).collect()
    }

    /// Operations so far that changed something.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// Orders a fault for the operation that comes `after` more have gone well.
    pub fn order_fault(&self, after: u64, fault: Fault) {
        let mut state = self.state.lock();
        let operation = state.operations + 1 + after;
        state.faults.insert(operation, fault);
    }

    /// Takes back all orders.
    pub fn clear_faults(&self) {
        self.state.lock().faults.clear();
    }

    /// Lets the disk be full: nothing can be allocated, and what is not allocated cannot be
    /// written.
    pub fn set_full(&self, is_full: bool) {
        self.state.lock().is_full = is_full;
    }

    /// Time that files get which are changed from now on.
    pub fn set_now(&self, now_ms: i64) {
        self.state.lock().now_ms = now_ms;
    }

    /// Whether a crash has been reached.
    #[must_use]
    pub fn is_crashed(&self) -> bool {
        self.state.lock().is_crashed
    }

    /// Ends the process that uses the disk, but not the machine: the next one finds everything that
    /// was written, synced or not. This disk is dead from now on.
    #[must_use]
    pub fn kill(&self) -> Self {
        let mut state = self.state.lock();
        let mut next = state.clone();
        state.is_crashed = true;
        next.is_crashed = false;
        next.locks.clear();
        next.faults.clear();
        Self { state: Arc::new(Mutex::new(next)) }
    }

    /// Cuts the power, if an ordered crash has not, and returns the disk as the next start finds
    /// it. This one is dead from now on.
    #[must_use]
    pub fn crash(&self) -> Self {
        let mut state = self.state.lock();
        state.is_crashed = true;
        let mut names = state.durable_names.clone();
        let changes = std::mem::take(&mut state.name_changes);
        let dirs: BTreeSet<&Path> = changes.iter().filter_map(NameChange::dir).collect();
        for dir in dirs {
            let of_dir: Vec<_> =
                changes.iter().filter(|change| change.dir() == Some(dir)).collect();
            let kept = state.below(of_dir.len() + 1);
            of_dir.iter().take(kept).for_each(|change| change.apply(&mut names));
        }
        let numbers: Vec<u64> = state.inodes.keys().copied().collect();
        let mut inodes = BTreeMap::new();
        for number in numbers {
            if let Some(inode) = state.inodes.get(&number).cloned() {
                inodes.insert(number, inode.crash(&mut state));
            }
        }
        let next = State {
            inodes,
            durable_names: names.clone(),
            names,
            dirs: state.dirs.clone(),
            next_inode: state.next_inode,
            random: state.random(),
            now_ms: state.now_ms,
            ..State::default()
        };
        Self { state: Arc::new(Mutex::new(next)) }
    }
}

impl Inode {
    fn read(&self, buffer: &mut [u8], offset: u64) {
        let mut done = 0;
        while done < buffer.len() {
            let (number, start) = place(offset + done as u64);
            let length = (PAGE_BYTES - start).min(buffer.len() - done);
            let target = &mut buffer[done..done + length];
            match self.pages.get(&number) {
                Some(page) => target.copy_from_slice(&page[start..start + length]),
                None => target.fill(0),
            }
            done += length;
        }
    }

    fn write(&mut self, bytes: &[u8], offset: u64) {
        let mut done = 0;
        while done < bytes.len() {
            let (number, start) = place(offset + done as u64);
            let length = (PAGE_BYTES - start).min(bytes.len() - done);
            let page = self.pages.entry(number).or_insert_with(|| Box::new([0; PAGE_BYTES]));
            page[start..start + length].copy_from_slice(&bytes[done..done + length]);
            self.dirty.insert(number);
            done += length;
        }
        self.size = self.size.max(offset + bytes.len() as u64);
    }

    fn save_page(&mut self, number: u64) {
        match self.pages.get(&number) {
            Some(page) => self.durable_pages.insert(number, page.clone()),
            None => self.durable_pages.remove(&number),
        };
    }

    fn sync(&mut self) {
        for number in std::mem::take(&mut self.dirty) {
            self.save_page(number);
        }
        self.durable_size = self.size;
    }

    /// What a sync saves that does not end well.
    fn sync_some(&mut self, state: &mut State) {
        for number in std::mem::take(&mut self.dirty) {
            if state.below(2) == 0 {
                self.save_page(number);
            }
        }
    }

    fn crash(mut self, state: &mut State) -> Self {
        for number in std::mem::take(&mut self.dirty) {
            match state.below(4) {
                0 => {}
                1 | 2 => self.save_page(number),
                _ => {
                    let boundary = state.below(PAGE_BYTES / SECTOR_BYTES + 1) * SECTOR_BYTES;
                    let zero = || Box::new([0; PAGE_BYTES]);
                    let new = self.pages.get(&number).cloned().unwrap_or_else(zero);
                    let old = self.durable_pages.entry(number).or_insert_with(zero);
                    if state.below(2) == 0 {
                        old[..boundary].copy_from_slice(&new[..boundary]);
                    } else {
                        old[boundary..].copy_from_slice(&new[boundary..]);
                    }
                }
            }
        }
        if state.below(2) == 0 {
            self.durable_size = self.size;
        }
        self.size = self.durable_size;
        self.pages = self.durable_pages.clone();
        self.allocated = 0;
        self.forget_beyond_end();
        self
    }

    fn forget_beyond_end(&mut self) {
        let (last, start) = place(self.size);
        self.pages.split_off(&(last + 1));
        if let Some(page) = self.pages.get_mut(&last) {
            page[start..].fill(0);
        }
        self.dirty.insert(last);
    }
}

/// Page and position in it.
fn place(offset: u64) -> (u64, usize) {
    let page = PAGE_BYTES as u64;
    (offset / page, usize::try_from(offset % page).unwrap_or(0))
}

impl Disk for SimDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_alive()?;
        state.dirs.extend(dir.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let state = self.state.lock();
        state.check_alive()?;
        let name = |path: &Path| {
            let is_inside = path.parent() == Some(dir);
            path.file_name().filter(|_| is_inside)?.to_str().map(str::to_owned)
        };
        let mut list = Vec::new();
        for path in &state.dirs {
            if let Some(name) = name(path) {
                list.push(DirEntry { name, is_dir: true, size: 0 });
            }
        }
        for (path, number) in &state.names {
            if let Some(name) = name(path) {
                list.push(DirEntry { name, is_dir: false, size: state.inodes[number].size });
            }
        }
        list.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(list)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let state = self.state.lock();
        state.check_alive()?;
        let number = *state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(SimFile { state: Arc::clone(&self.state), number }))
    }

    fn create(&self, path: &Path, size: u64) -> io::Result<Arc<dyn File>> {
        let mut state = self.state.lock();
        state.operate_whole()?;
        if !path.parent().is_some_and(|dir| state.dirs.contains(dir)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let number = match state.names.get(path) {
            Some(number) => *number,
            None => {
                let number = state.next_inode;
                state.next_inode += 1;
                state.inodes.insert(number, Inode::default());
                state.change_name(NameChange::Set(path.to_owned(), number));
                number
            }
        };
        let now_ms = state.now_ms;
        let inode = state.inode(number)?;
        inode.dirty.extend(inode.pages.keys().copied());
        inode.pages.clear();
        inode.size = size;
        inode.modified_ms = now_ms;
        Ok(Arc::new(SimFile { state: Arc::clone(&self.state), number }))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.operate_whole()?;
        if !state.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.change_name(NameChange::Remove(path.to_owned()));
        Ok(())
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.operate_whole()?;
        let is_used = state.names.keys().any(|path| path.starts_with(dir))
            || state.dirs.iter().any(|path| path.parent() == Some(dir));
        if is_used {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        if state.dirs.remove(dir) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.operate_whole()?;
        if !state.names.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.change_name(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.operate_whole()?;
        let changes = std::mem::take(&mut state.name_changes);
        for change in changes {
            if change.dir() == Some(dir) {
                change.apply(&mut state.durable_names);
            } else {
                state.name_changes.push(change);
            }
        }
        Ok(())
    }

    fn sync_all(&self, _dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let fault = state.operate()?;
        let numbers: Vec<u64> = state.inodes.keys().copied().collect();
        for number in numbers {
            let mut inode = std::mem::take(state.inode(number)?);
            match fault {
                None => inode.sync(),
                Some(_) => inode.sync_some(&mut state),
            }
            *state.inode(number)? = inode;
        }
        if let Some(fault) = fault {
            return Err(error_of(fault));
        }
        for change in std::mem::take(&mut state.name_changes) {
            change.apply(&mut state.durable_names);
        }
        Ok(())
    }

    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        let state = self.state.lock();
        state.check_alive()?;
        let number = state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(state.inodes[number].modified_ms)
    }

    fn space(&self, _path: &Path) -> io::Result<Space> {
        let state = self.state.lock();
        state.check_alive()?;
        let used = if state.is_full { 99 } else { 10 };
        Ok(Space { used, available: 100 - used })
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let mut state = self.state.lock();
        state.check_alive()?;
        if !state.locks.insert(path.to_owned()) {
            return Ok(None);
        }
        Ok(Some(Box::new(SimLock { state: Arc::clone(&self.state), path: path.to_owned() })))
    }
}

#[derive(Debug)]
struct SimLock {
    state: Arc<Mutex<State>>,
    path: PathBuf,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.state.lock().locks.remove(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(seed: u64) -> SimDisk {
        let disk = SimDisk::new(seed);
        disk.create_dir_all(Path::new("/d")).unwrap();
        disk
    }

    fn read(disk: &SimDisk, path: &str) -> Option<Vec<u8>> {
        disk.image().remove(Path::new(path))
    }

    #[test]
    fn what_is_synced_survives_and_the_rest_may_not() {
        let (mut lost, mut kept) = (0, 0);
        for seed in 0..100 {
            let disk = disk(seed);
            let file = disk.create(Path::new("/d/a"), 8192).unwrap();
            file.write_all_at(b"synced", 0).unwrap();
            file.sync_data().unwrap();
            disk.sync_dir(Path::new("/d")).unwrap();
            file.write_all_at(b"later", 4096).unwrap();
            disk.create(Path::new("/d/b"), 0).unwrap();
            let disk = disk.crash();
            assert!(file.sync_data().is_err());
            let content = read(&disk, "/d/a").unwrap();
            assert_eq!(&content[..6], b"synced");
            if content[4096] == 0 { lost += 1 } else { kept += 1 }
        }
        assert!(lost > 10 && kept > 10, "{lost} {kept}");
    }

    #[test]
    fn a_failed_sync_never_saves_what_it_forgot() {
        let mut forgotten = 0;
        for seed in 0..50 {
            let disk = disk(seed);
            let path = Path::new("/d/a");
            let file = disk.create(path, 4096).unwrap();
            file.sync_data().unwrap();
            disk.sync_dir(Path::new("/d")).unwrap();
            file.write_all_at(b"x", 0).unwrap();
            disk.order_fault(0, Fault::IoError);
            assert!(file.sync_data().is_err());
            assert!(file.sync_data().is_ok());
            let content = read(&disk.crash(), "/d/a").unwrap();
            forgotten += u32::from(content[0] == 0);
        }
        assert!(forgotten > 10, "{forgotten}");
    }

    #[test]
    fn a_killed_process_loses_nothing_that_it_wrote() {
        let disk = disk(1);
        let file = disk.create(Path::new("/d/a"), 0).unwrap();
        file.write_all_at(b"x", 0).unwrap();
        let next = disk.kill();
        assert!(file.write_all_at(b"y", 0).is_err());
        assert_eq!(read(&next, "/d/a").unwrap(), b"x");
    }

    #[test]
    fn a_renamed_file_is_the_old_or_the_new_one() {
        for seed in 0..50 {
            let disk = disk(seed);
            for (name, content) in [("/d/main", b"old"), ("/d/tmp", b"new")] {
                let file = disk.create(Path::new(name), 0).unwrap();
                file.write_all_at(content, 0).unwrap();
                file.sync_data().unwrap();
            }
            disk.sync_dir(Path::new("/d")).unwrap();
            disk.rename(Path::new("/d/tmp"), Path::new("/d/main")).unwrap();
            let content = read(&disk.crash(), "/d/main").unwrap();
            assert!(content == b"old" || content == b"new");
        }
    }

    #[test]
    fn a_full_disk_takes_only_what_was_allocated() {
        let disk = disk(1);
        let file = disk.create(Path::new("/d/a"), 16_384).unwrap();
        file.allocate(0, 4096).unwrap();
        disk.set_full(true);
        file.write_all_at(b"x", 100).unwrap();
        let error = file.write_all_at(b"x", 8192).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(disk.space(Path::new("/d")).unwrap().used_percent(), 99);
        assert_eq!(file.next_data(1).unwrap(), Some(1));
        assert_eq!(file.next_data(4096).unwrap(), None);
    }
}
