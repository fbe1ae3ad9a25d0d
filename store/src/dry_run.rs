//! A disk on which everything seems to happen and nothing does: what is written stays in memory.
//!
//! The real recovery runs on it, so that a look at a store says exactly what a start would do.
//! Files are opened for reading only.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::disk::{DirEntry, Disk, File, Lock, RealDisk, Space};

const PAGE_BYTES: usize = 4096;
const PAGE: u64 = PAGE_BYTES as u64;
/// Most pages that are kept, 1 GiB: enough for the queues of 50 million messages.
const PAGES_MAX: usize = (1 << 30) / PAGE_BYTES;

/// What has become of a file.
#[derive(Debug)]
struct Change {
    /// What was there before counts up to here.
    kept: u64,
    size: u64,
    pages: BTreeMap<u64, Box<[u8; PAGE_BYTES]>>,
    /// Ranges of whole pages that were made zeros, by their first page: the page behind them.
    zeros: BTreeMap<u64, u64>,
}

#[derive(Debug, Default)]
struct State {
    changes: BTreeMap<PathBuf, Change>,
    removed: BTreeSet<PathBuf>,
    dirs: BTreeSet<PathBuf>,
    pages: usize,
}

/// See the module.
#[derive(Debug, Default, Clone)]
pub(crate) struct DryRunDisk {
    state: Arc<Mutex<State>>,
}

/// What would become of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Fate {
    /// It is made.
    Made,
    /// Its content or size changes.
    Changed,
    /// It is removed.
    Removed,
}

#[derive(Debug)]
struct DryRunFile {
    path: PathBuf,
    before: Option<fs::File>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct NoLock;

impl Lock for NoLock {}

impl DryRunDisk {
    /// What would have become of files, by path.
    pub(crate) fn fates(&self) -> BTreeMap<PathBuf, Fate> {
        let state = self.state.lock();
        let is_there = |path: &PathBuf| path.symlink_metadata().is_ok();
        let removed = state.removed.iter().filter(|path| is_there(path));
        let mut fates: BTreeMap<_, _> = removed.map(|path| (path.clone(), Fate::Removed)).collect();
        for path in state.changes.keys() {
            let fate = if is_there(path) { Fate::Changed } else { Fate::Made };
            fates.insert(path.clone(), fate);
        }
        fates
    }

    fn size(&self, path: &Path) -> Option<u64> {
        self.state.lock().changes.get(path).map(|change| change.size)
    }
}

impl Disk for DryRunDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.state.lock().dirs.extend(dir.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries: BTreeMap<String, DirEntry> =
            RealDisk.list(dir)?.into_iter().map(|entry| (entry.name.clone(), entry)).collect();
        let state = self.state.lock();
        let name = |path: &Path| {
            let is_inside = path.parent() == Some(dir);
            path.file_name().filter(|_| is_inside)?.to_str().map(str::to_owned)
        };
        for name in state.removed.iter().filter_map(|path| name(path)) {
            entries.remove(&name);
        }
        for name in state.dirs.iter().filter_map(|path| name(path)) {
            entries.insert(name.clone(), DirEntry { name, is_dir: true, size: 0 });
        }
        for (path, change) in &state.changes {
            if let Some(name) = name(path) {
                let entry = DirEntry { name: name.clone(), is_dir: false, size: change.size };
                entries.insert(name, entry);
            }
        }
        Ok(entries.into_values().collect())
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let (is_removed, is_changed) = {
            let state = self.state.lock();
            (state.removed.contains(path), state.changes.contains_key(path))
        };
        let before = match fs::File::open(path) {
            Ok(file) if !is_removed => Some(file),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ if is_changed => None,
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Arc::new(DryRunFile { path: path.to_owned(), before, state: Arc::clone(&self.state) }))
    }

    fn create(&self, path: &Path, size: u64) -> io::Result<Arc<dyn File>> {
        let change = Change { kept: 0, size, pages: BTreeMap::new(), zeros: BTreeMap::new() };
        let mut state = self.state.lock();
        // What was there before is gone, also for those who open it again.
        state.removed.insert(path.to_owned());
        state.drop_change(path);
        state.changes.insert(path.to_owned(), change);
        let state = Arc::clone(&self.state);
        Ok(Arc::new(DryRunFile { path: path.to_owned(), before: None, state }))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let was_there = !state.removed.contains(path) && path.symlink_metadata().is_ok();
        state.removed.insert(path.to_owned());
        let was_made = state.drop_change(path);
        if was_there || was_made { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.dirs.remove(dir);
        state.removed.insert(dir.to_owned());
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let file = self.open(from)?;
        let size = self.size(from).map_or_else(|| file.size(), Ok)?;
        let mut content = vec![0; usize::try_from(size).map_err(io::Error::other)?];
        file.read_exact_at(&mut content, 0)?;
        self.create(to, 0)?.write_all_at(&content, 0)?;
        self.remove(from)
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        RealDisk.modified_ms(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        RealDisk.space(path)
    }

    fn lock(&self, _path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        Ok(Some(Box::new(NoLock)))
    }
}

impl State {
    fn drop_change(&mut self, path: &Path) -> bool {
        let Some(change) = self.changes.remove(path) else { return false };
        self.pages -= change.pages.len();
        true
    }
}

impl Change {
    fn add_zeros(&mut self, mut range: Range<u64>) {
        if let Some((start, end)) = self.zeros.range(..=range.start).next_back()
            && *end >= range.start
        {
            range = *start..range.end.max(*end);
        }
        let inside = self.zeros.extract_if(range.start..=range.end, |_, _| true);
        let end = inside.map(|(_, end)| end).max();
        self.zeros.insert(range.start, range.end.max(end.unwrap_or(0)));
    }

    fn is_zero(&self, page: u64) -> bool {
        self.zeros.range(..=page).next_back().is_some_and(|(_, end)| page < *end)
    }
}

impl DryRunFile {
    fn size_before(&self) -> io::Result<u64> {
        self.before.as_ref().map_or(Ok(0), |file| Ok(file.metadata()?.len()))
    }

    /// What the file had before in a page, zeros behind its end.
    fn page_before(&self, page: u64, kept: u64) -> io::Result<Box<[u8; PAGE_BYTES]>> {
        let mut content = Box::new([0; PAGE_BYTES]);
        let end = kept.min(self.size_before()?);
        let at = page * PAGE;
        if let Some(file) = self.before.as_ref().filter(|_| at < end) {
            let length = usize::try_from((end - at).min(PAGE)).map_err(io::Error::other)?;
            file.read_exact_at(&mut content[..length], at)?;
        }
        Ok(content)
    }

    /// Lets `work` change the file.
    fn change(
        &self,
        work: impl FnOnce(&mut Change, &mut usize) -> io::Result<()>,
    ) -> io::Result<()> {
        let size = self.size_before()?;
        let mut state = self.state.lock();
        let State { changes, pages, .. } = &mut *state;
        let change = changes.entry(self.path.clone()).or_insert_with(|| Change {
            kept: size,
            size,
            pages: BTreeMap::new(),
            zeros: BTreeMap::new(),
        });
        work(change, pages)
    }

    /// Changes a range within one page.
    fn change_page(
        &self,
        (change, pages): (&mut Change, &mut usize),
        at: u64,
        work: impl FnOnce(&mut [u8]),
    ) -> io::Result<()> {
        let page = at / PAGE;
        if !change.pages.contains_key(&page) {
            if *pages >= PAGES_MAX {
                return Err(io::Error::other("a start would change more than can be kept in mind"));
            }
            let content = match change.is_zero(page) {
                true => Box::new([0; PAGE_BYTES]),
                false => self.page_before(page, change.kept)?,
            };
            change.pages.insert(page, content);
            *pages += 1;
        }
        let content = change.pages.get_mut(&page).expect("it was just inserted");
        work(&mut content[usize::try_from(at % PAGE).map_err(io::Error::other)?..]);
        Ok(())
    }
}

impl File for DryRunFile {
    fn size(&self) -> io::Result<u64> {
        let size = self.state.lock().changes.get(&self.path).map(|change| change.size);
        size.map_or_else(|| self.size_before(), Ok)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.change(|change, _| {
            if size < change.size {
                return Err(io::Error::other("a store never shortens a file"));
            }
            change.size = size;
            Ok(())
        })
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let state = self.state.lock();
        let Some(change) = state.changes.get(&self.path) else {
            drop(state);
            let file = self.before.as_ref().ok_or(io::ErrorKind::NotFound)?;
            return file.read_exact_at(buffer, offset);
        };
        if offset + buffer.len() as u64 > change.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut at = offset;
        let mut rest = buffer;
        while !rest.is_empty() {
            let page = at / PAGE;
            let skip = usize::try_from(at % PAGE).map_err(io::Error::other)?;
            let length = rest.len().min(PAGE_BYTES - skip);
            let (now, later) = rest.split_at_mut(length);
            match change.pages.get(&page) {
                Some(content) => now.copy_from_slice(&content[skip..skip + length]),
                None if change.is_zero(page) => now.fill(0),
                None => {
                    let content = self.page_before(page, change.kept)?;
                    now.copy_from_slice(&content[skip..skip + length]);
                }
            }
            at += length as u64;
            rest = later;
        }
        Ok(())
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.change(|change, pages| {
            let mut at = offset;
            let mut rest = bytes;
            while !rest.is_empty() {
                let room = usize::try_from(PAGE - at % PAGE).map_err(io::Error::other)?;
                let (now, later) = rest.split_at(rest.len().min(room));
                self.change_page((&mut *change, &mut *pages), at, |page| {
                    page[..now.len()].copy_from_slice(now);
                })?;
                at += now.len() as u64;
                rest = later;
            }
            change.size = change.size.max(at);
            Ok(())
        })
    }

    fn allocate(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    fn zero(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let end = offset + bytes;
        self.change(|change, pages| {
            let mut at = offset;
            while at < end {
                let page_end = (at / PAGE + 1) * PAGE;
                let last_whole = end / PAGE;
                if at.is_multiple_of(PAGE) && last_whole > at / PAGE {
                    let range = at / PAGE..last_whole;
                    let dropped = change.pages.extract_if(range.clone(), |_, _| true).count();
                    *pages -= dropped;
                    change.add_zeros(range);
                    at = last_whole * PAGE;
                    continue;
                }
                let length = usize::try_from(end.min(page_end) - at).map_err(io::Error::other)?;
                let place = (&mut *change, &mut *pages);
                self.change_page(place, at, |page| page[..length].fill(0))?;
                at += length as u64;
            }
            Ok(())
        })
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        let changed = {
            let state = self.state.lock();
            let change = state.changes.get(&self.path);
            let next = change.and_then(|change| change.pages.range(offset / PAGE..).next());
            next.map(|(page, _)| (page * PAGE).max(offset))
        };
        let before = match &self.before {
            None => None,
            Some(file) => match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(offset)) {
                Ok(position) => Some(position),
                Err(Errno::NXIO) => None,
                Err(Errno::INVAL | Errno::OPNOTSUPP) => Some(offset),
                Err(error) => return Err(error.into()),
            },
        };
        Ok(changed.into_iter().chain(before).min())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same operations on a real file and here: the same content, and nothing happened.
    #[test]
    fn a_dry_run_reads_as_if_it_had_happened() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real");
        let dry = dir.path().join("dry");
        let content: Vec<u8> = (0..20_000_u32).map(|byte| (byte % 251) as u8 + 1).collect();
        for path in [&real, &dry] {
            fs::write(path, &content).unwrap();
        }
        let disk = DryRunDisk::default();
        let files = [RealDisk.open(&real).unwrap(), disk.open(&dry).unwrap()];
        type Step = fn(&dyn File) -> io::Result<()>;
        let steps: [Step; 7] = [
            |file| file.write_all_at(&[7; 5_000], 3_000),
            |file| file.zero(6_000, 9_000),
            |file| file.zero(4_096, 4_096),
            |file| file.write_all_at(b"x", 10_000),
            |file| file.write_all_at(b"behind the end", 30_000),
            |file| file.zero(29_990, 12),
            |file| file.set_size(40_000),
        ];
        let read = |file: &dyn File| {
            let mut content = vec![0; usize::try_from(file.size().unwrap()).unwrap()];
            file.read_exact_at(&mut content, 0).unwrap();
            content
        };
        for step in steps {
            for file in &files {
                step(&**file).unwrap();
            }
            assert_eq!(read(&*files[0]), read(&*files[1]));
            let data = files[1].next_data(10_500).unwrap();
            assert!(data.is_none_or(|data| data >= 10_500));
        }
        assert_eq!(read(&*disk.open(&dry).unwrap()), read(&*files[0]));
        assert_eq!(fs::read(&dry).unwrap(), content);
        assert_eq!(disk.fates(), [(dry.clone(), Fate::Changed)].into());
        // Names.
        disk.create(&dir.path().join("new"), 10).unwrap();
        disk.rename(&dry, &dir.path().join("moved")).unwrap();
        disk.remove(&real).unwrap();
        assert!(disk.open(&real).is_err() && disk.open(&dry).is_err());
        assert!(disk.remove(&dry).is_err());
        disk.create_dir_all(&dir.path().join("a/b")).unwrap();
        let names: Vec<_> = disk.list(dir.path()).unwrap().into_iter().map(|e| e.name).collect();
        assert_eq!(names, ["a", "moved", "new"]);
        let fates: Vec<Fate> = disk.fates().into_values().collect();
        assert_eq!(fates, [Fate::Removed, Fate::Made, Fate::Made, Fate::Removed]);
        assert!(real.exists() && !dir.path().join("new").exists());
    }
}
