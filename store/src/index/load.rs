//! Finding index files, judging whether they can be trusted, and removing those that cannot.

use std::path::PathBuf;
use std::sync::Arc;

use protocol::message_codec;

use super::{Index, Newest, PAGE_BYTES, Position, State};
use crate::commit_log::Step;
use crate::disk::File;
use crate::error::StoreError;
use crate::index_file::{
    ENTRY_BYTES, Entry, HEADER_BYTES, Header, IndexFile, Layout, SLOT_BYTES, parse_name,
};
use crate::index_key;

/// Bytes of entries or slots read at once.
const CHUNK_BYTES: usize = 1 << 20;

impl Index {
    /// See [`Index::open`]. Only headers are read.
    pub(super) fn find_files(&self, log_end: i64) -> Result<(), StoreError> {
        let disk = &self.parts.disk;
        let list = disk.list(&self.dir).map_err(StoreError::io("list", &self.dir))?;
        let mut files: Vec<Arc<IndexFile>> = Vec::new();
        let mut unusable: Vec<(PathBuf, &str)> = Vec::new();
        for entry in list.into_iter().filter(|entry| !entry.is_dir) {
            let Some(name) = parse_name(&entry.name) else { continue };
            let path = self.dir.join(&entry.name);
            if !unusable.is_empty() {
                unusable.push((path, "it follows one that cannot be used"));
                continue;
            }
            if entry.size != self.layout.file_bytes() {
                unusable.push((path, "maxHashSlotNum and maxIndexNum give another size"));
                continue;
            }
            let Some(header) = self.read_header(&path)? else {
                unusable.push((path, "it is empty or its header is damaged"));
                continue;
            };
            let end = files.last().map_or(0, |file| file.header.end_offset);
            if header.begin_offset < end {
                unusable.push((path, "it begins before the one before it ends"));
            } else if header.end_offset >= log_end {
                unusable.push((path, "it knows messages that the log does not have"));
            } else {
                files.push(Arc::new(IndexFile { name, path, header }));
            }
        }
        for (path, reason) in &unusable {
            let file = path.display();
            tracing::warn!(%file, reason, "index file is removed, its keys will be indexed anew");
            self.remove(path)?;
        }
        if !unusable.is_empty() {
            self.sync_dir()?;
        }
        self.state.lock().older = files;
        Ok(())
    }

    fn read_header(&self, path: &std::path::Path) -> Result<Option<Header>, StoreError> {
        let mut bytes = [0; HEADER_BYTES];
        let file = self.parts.disk.open(path).map_err(StoreError::io("open", path))?;
        file.read_exact_at(&mut bytes, 0).map_err(StoreError::io("read", path))?;
        Ok(Header::decode(&bytes, self.layout))
    }

    /// Makes the state fit for building: removes what is damaged and loads the newest file.
    pub(super) fn prepare(&self, state: &mut State) -> Result<(), StoreError> {
        loop {
            if let Some(from) = state.doomed {
                self.remove_from(state, from)?;
                state.doomed = None;
                state.is_loaded = false;
            }
            if state.is_loaded {
                return Ok(());
            }
            state.doomed = self.load(state)?;
            state.is_loaded = state.doomed.is_none();
        }
    }

    /// Removes a file and all behind it.
    fn remove_from(&self, state: &mut State, from: u64) -> Result<(), StoreError> {
        if let Some(newest) = state.newest.take_if(|newest| newest.name >= from) {
            // Kept in the list until it is gone, in case that it cannot be removed now.
            let Newest { name, path, header, .. } = newest;
            state.older.push(Arc::new(IndexFile { name, path, header }));
        }
        while let Some(file) = state.older.last().filter(|file| file.name >= from) {
            self.remove(&file.path)?;
            state.older.pop();
        }
        self.sync_dir()
    }

    /// Checks that the files have the keys of all messages and loads the newest. Returns the first
    /// file that is damaged.
    fn load(&self, state: &mut State) -> Result<Option<u64>, StoreError> {
        if let Some(newest) = state.newest.take() {
            // The files before it are as they were; this one is loaded anew.
            let Newest { name, path, header, .. } = newest;
            state.older.push(Arc::new(IndexFile { name, path, header }));
        }
        if let Some(name) = self.first_behind_hole(&state.older)? {
            return Ok(Some(name));
        }
        let Some((newest, older)) = state.older.split_last() else {
            let offset = self.parts.log.min_offset();
            self.set_next(state, Position { offset, keys_done: 0 });
            return Ok(None);
        };
        for file in older {
            if !self.has_its_ends(file)? {
                return Ok(damaged(file, "its first or last entry is another one"));
            }
        }
        if !self.has_its_times(&newest.header)? {
            return Ok(damaged(newest, "its times are those of other messages"));
        }
        let loaded = match self.load_newest(newest)? {
            Ok(loaded) => loaded,
            Err(reason) => return Ok(damaged(newest, reason)),
        };
        let Some((next, record_end)) = self.resume(older, &loaded)? else {
            return Ok(damaged(newest, "its last entry is that of no message"));
        };
        state.newest = Some(Newest { record_end, ..loaded });
        state.older.pop();
        self.set_next(state, next);
        Ok(None)
    }

    /// The first file before which the log has a message with a key that is in no file: Apache's
    /// broker loses some after a crash.
    fn first_behind_hole(&self, files: &[Arc<IndexFile>]) -> Result<Option<u64>, StoreError> {
        let log = &self.parts.log;
        let mut hashes = Vec::new();
        let mut from = log.min_offset();
        for file in files {
            let mut walk = log.walk(from, file.header.begin_offset);
            loop {
                let step = walk.step(|view| {
                    index_key::hashes(view, &mut hashes);
                    Ok(hashes.is_empty())
                })?;
                match step {
                    Step::Record(true) => {}
                    Step::Record(false) => {
                        tracing::warn!(before = file.name, "the index of keys has a hole");
                        return Ok(Some(file.name));
                    }
                    Step::End | Step::Invalid(_) => break,
                }
            }
            let end = file.header.end_offset;
            let last = if end < from { None } else { log.look_up(end)? };
            let last_bytes = last.map_or(0, |record| record.len());
            from = from.max(end.saturating_add(i64::try_from(last_bytes).unwrap_or(0)));
        }
        Ok(None)
    }

    fn has_its_ends(&self, file: &IndexFile) -> Result<bool, StoreError> {
        let read = || {
            let open = self.parts.disk.open(&file.path)?;
            let first = Entry::read(&*open, self.layout, 1)?;
            let last = Entry::read(&*open, self.layout, file.header.count - 1)?;
            Ok((first.offset, last.offset))
        };
        let ends = read().map_err(StoreError::io("read", &file.path))?;
        let header = &file.header;
        Ok(ends == (header.begin_offset, header.end_offset) && self.has_its_times(header)?)
    }

    /// Whether the times of a file are those of its first and last message, as far as the log still
    /// has them.
    fn has_its_times(&self, header: &Header) -> Result<bool, StoreError> {
        for (offset, timestamp) in [
            (header.begin_offset, header.begin_timestamp),
            (header.end_offset, header.end_timestamp),
        ] {
            let stored = self.parts.log.store_timestamp(offset)?;
            if stored.is_some_and(|stored| stored != timestamp) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads all entries of a file, builds its slots from them and compares them with those on the
    /// disk: together they tell nearly every damage. Says what is wrong if something is.
    fn load_newest(&self, file: &IndexFile) -> Result<Result<Newest, &'static str>, StoreError> {
        let io = |error| StoreError::io("read", &file.path)(error);
        let open = self.parts.disk.open(&file.path).map_err(io)?;
        let mut newest = Newest::new(file.name, file.path.clone(), open, self.layout);
        let (mut number, mut offset, mut used_slots) = (1, file.header.begin_offset, 0);
        let mut chunk = vec![0; CHUNK_BYTES / ENTRY_BYTES * ENTRY_BYTES];
        while number < file.header.count {
            let left = (file.header.count - number) as usize * ENTRY_BYTES;
            let length = chunk.len().min(left);
            let bytes = &mut chunk[..length];
            newest.file.read_exact_at(bytes, self.layout.entry_at(number)).map_err(io)?;
            for entry in bytes.as_chunks::<ENTRY_BYTES>().0.iter().map(Entry::decode) {
                let slot = &mut newest.slots[self.layout.slot(entry.hash)];
                let is_first = number > 1 || entry.offset == file.header.begin_offset;
                if entry.previous != *slot || entry.offset < offset || !is_first {
                    return Ok(Err("its entries do not follow each other"));
                }
                used_slots += u32::from(*slot == 0);
                *slot = number;
                offset = entry.offset;
                number += 1;
            }
        }
        if offset != file.header.end_offset {
            return Ok(Err("its last entry is not the one that its header names"));
        }
        if !self.compare_slots(&mut newest, file.header.count).map_err(io)? {
            return Ok(Err("a slot names another entry than the last of its keys"));
        }
        // What was read may be in memory only.
        newest.file.sync_data().map_err(StoreError::io("flush", &file.path))?;
        newest.durable = file.header;
        newest.header = Header { used_slots, ..file.header };
        Ok(Ok(newest))
    }

    /// Whether the slots on the disk are those of the entries. A slot that names an entry behind
    /// the last was written by a flush that did not end.
    fn compare_slots(&self, newest: &mut Newest, count: u32) -> std::io::Result<bool> {
        let mut page = vec![0; PAGE_BYTES];
        for (number, slots) in newest.slots.chunks(PAGE_BYTES / SLOT_BYTES).enumerate() {
            let length = slots.len() * SLOT_BYTES;
            let bytes = &mut page[..length];
            let at = Layout::slot_at(number * PAGE_BYTES / SLOT_BYTES);
            newest.file.read_exact_at(bytes, at)?;
            for (bytes, slot) in bytes.as_chunks::<SLOT_BYTES>().0.iter().zip(slots) {
                let found = u32::from_be_bytes(*bytes);
                if found == *slot {
                    continue;
                }
                if found < count {
                    return Ok(false);
                }
                newest.dirty[number] = true;
            }
        }
        Ok(true)
    }

    /// Where to go on behind the last entry, and where its record ends. `None` when the log has no
    /// such record although it should.
    fn resume(
        &self,
        older: &[Arc<IndexFile>],
        newest: &Newest,
    ) -> Result<Option<(Position, i64)>, StoreError> {
        let log = &self.parts.log;
        let offset = newest.header.end_offset;
        let Some(record) = log.look_up(offset)? else {
            let offset_min = log.min_offset();
            let is_deleted = offset < offset_min;
            let next = Position { offset: offset_min, keys_done: 0 };
            return Ok(is_deleted.then_some((next, offset)));
        };
        let end = offset + i64::try_from(record.len()).unwrap_or(0);
        let mut hashes = Vec::new();
        if let Ok(view) = message_codec::decode_record(&record) {
            index_key::hashes(&view, &mut hashes);
        }
        let header = &newest.header;
        let mut done = self.count_last(&newest.path, &*newest.file, header, hashes.len())?;
        let mut before = header;
        for file in older.iter().rev() {
            let is_shared = done == before.count as usize - 1 && file.header.end_offset == offset;
            if !is_shared || done >= hashes.len() {
                break;
            }
            let open = self.parts.disk.open(&file.path);
            let open = open.map_err(StoreError::io("open", &file.path))?;
            done += self.count_last(&file.path, &*open, &file.header, hashes.len() - done)?;
            before = &file.header;
        }
        let next = if done < hashes.len() {
            Position { offset, keys_done: done }
        } else {
            Position { offset: end, keys_done: 0 }
        };
        Ok(Some((next, end)))
    }

    /// Entries at the end of a file that are of its last message, at most `count_max`.
    fn count_last(
        &self,
        path: &std::path::Path,
        file: &dyn File,
        header: &Header,
        count_max: usize,
    ) -> Result<usize, StoreError> {
        let mut count = 0;
        for number in (1..header.count).rev().take(count_max) {
            let entry = Entry::read(file, self.layout, number);
            if entry.map_err(StoreError::io("read", path))?.offset != header.end_offset {
                break;
            }
            count += 1;
        }
        Ok(count)
    }
}

fn damaged(file: &IndexFile, reason: &str) -> Option<u64> {
    let path = file.path.display();
    tracing::warn!(%path, reason, "index file is damaged, its keys will be indexed anew");
    Some(file.name)
}
