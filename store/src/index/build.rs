//! Adding the keys of new messages, and making files durable.

use std::sync::Arc;

use super::{Index, Newest, PAGE_BYTES, Position, State, TAIL_BYTES_MAX};
use crate::commit_log::Step;
use crate::error::StoreError;
use crate::index_file::{
    ENTRY_BYTES, Entry, Header, IndexFile, Layout, SLOT_BYTES, name_text, next_name, seconds_since,
};
use crate::index_key;

/// Records indexed before the lock is given back.
const RECORDS_PER_CALL: usize = 4_096;
/// Bytes of slots written at once.
const SLOT_BYTES_PER_WRITE: usize = 1 << 20;

/// How far a call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Built {
    /// Everything is indexed.
    All,
    /// There is more to do.
    More,
    /// The newest file is full: [`Index::roll`] has to make room.
    Full,
}

/// The keys of one record.
struct Keyed {
    offset: i64,
    end: i64,
    timestamp: i64,
}

impl Index {
    /// Indexes some of the messages before `end`. After an error it may be called again and goes on
    /// where it stopped.
    pub(crate) fn build(&self, end: i64) -> Result<Built, StoreError> {
        let mut state = self.state.lock();
        self.prepare(&mut state)?;
        let log_min = self.parts.log.min_offset();
        if state.next.offset < log_min {
            self.set_next(&mut state, Position { offset: log_min, keys_done: 0 });
        }
        let mut hashes = Vec::new();
        let mut walk = self.parts.log.walk(state.next.offset, end);
        for _ in 0..RECORDS_PER_CALL {
            let step = walk.step(|view| {
                index_key::hashes(view, &mut hashes);
                let (offset, timestamp) = (view.physical_offset, view.store_timestamp);
                let end = offset + i64::try_from(view.bytes.len()).unwrap_or(0);
                Ok(Keyed { offset, end, timestamp })
            })?;
            match step {
                Step::Record(record) => {
                    if !self.add(&mut state, &record, &hashes)? {
                        return Ok(Built::Full);
                    }
                }
                Step::End => {
                    let offset = walk.offset().max(state.next.offset);
                    self.set_next(&mut state, Position { offset, keys_done: 0 });
                    return Ok(Built::All);
                }
                Step::Invalid(reason) => {
                    self.skip(&mut state, (walk.offset(), end), &reason);
                    return Ok(Built::More);
                }
            }
        }
        Ok(Built::More)
    }

    /// Passes over a file of the log from where it is damaged; what retention has just deleted is
    /// no damage.
    fn skip(&self, state: &mut State, (offset, end): (i64, i64), reason: &str) {
        let log = &self.parts.log;
        let log_min = log.min_offset();
        let to = if offset < log_min {
            log_min
        } else {
            let next_file = offset - offset.rem_euclid(log.segment_bytes()) + log.segment_bytes();
            self.parts.metrics.index_failures.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            tracing::error!(offset, reason, "no record here; the rest of the file has no keys");
            next_file.min(end)
        };
        self.set_next(state, Position { offset: to, keys_done: 0 });
    }

    /// Adds the keys of a record that are not yet done. Returns false when the file is full.
    fn add(&self, state: &mut State, record: &Keyed, hashes: &[u32]) -> Result<bool, StoreError> {
        let is_resumed = state.next.offset == record.offset;
        let mut done = if is_resumed { state.next.keys_done } else { 0 };
        while let Some(hash) = hashes.get(done) {
            self.set_next(state, Position { offset: record.offset, keys_done: done });
            if state.newest.is_none() {
                state.newest = Some(self.create(state)?);
            }
            let Some(newest) = &mut state.newest else { return Ok(false) };
            if newest.header.count >= self.layout.entries {
                return Ok(false);
            }
            if newest.tail.len() >= TAIL_BYTES_MAX {
                newest.write_tail(self.layout)?;
            }
            newest.add(self.layout, *hash, record);
            done += 1;
            self.parts.metrics.index_entries.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        self.set_next(state, Position { offset: record.end, keys_done: 0 });
        Ok(true)
    }

    fn create(&self, state: &State) -> Result<Newest, StoreError> {
        let last = state.older.last().map(|file| file.name);
        let now_ms = self.parts.clock.now_ms();
        let name = next_name(now_ms, self.parts.config.utc_offset_seconds, last);
        let path = self.dir.join(name_text(name));
        let create = || {
            let file = self.parts.disk.create(&path, self.layout.file_bytes())?;
            file.sync_data()?;
            self.parts.disk.sync_dir(&self.dir)?;
            Ok(file)
        };
        let file = create().map_err(StoreError::io("create", &path))?;
        Ok(Newest::new(name, path, file, self.layout))
    }

    /// Makes everything indexed so far durable, unless its records are not yet: an index that knows
    /// more than the log would be wrong after a crash. Returns whether it is durable.
    pub(crate) fn flush(&self) -> Result<bool, StoreError> {
        let mut state = self.state.lock();
        let is_doomed = state.doomed.is_some();
        let Some(newest) = state.newest.as_mut().filter(|newest| newest.is_dirty()) else {
            return Ok(!is_doomed);
        };
        if is_doomed || self.parts.log.flushed() < newest.record_end {
            return Ok(false);
        }
        newest.write_tail(self.layout)?;
        newest.write_slots()?;
        let synced = newest.file.sync_data();
        if synced.is_ok() {
            // First, because Apache's broker throws away files that are newer than the checkpoint.
            self.parts.checkpoint.set_index(newest.header.end_timestamp);
            self.parts.checkpoint.flush()?;
            let written = newest.file.write_all_at(&newest.header.encode(), 0);
            written.map_err(StoreError::io("write", &newest.path))?;
        }
        let synced = synced.and_then(|()| newest.file.sync_data());
        if let Err(error) = synced {
            // What is on the disk is unknown from now on: the file has to go.
            let error = StoreError::io("flush", &newest.path)(error);
            state.doomed = Some(newest.name);
            return Err(error);
        }
        newest.durable = newest.header;
        Ok(true)
    }

    /// Ends the newest file when it is full and flushed; the next one is made with the next key.
    pub(crate) fn roll(&self) -> Result<(), StoreError> {
        if !self.flush()? {
            return Ok(());
        }
        let mut state = self.state.lock();
        let is_full =
            |newest: &mut Newest| newest.header.count >= self.layout.entries && !newest.is_dirty();
        if let Some(Newest { name, path, header, .. }) = state.newest.take_if(is_full) {
            state.older.push(Arc::new(IndexFile { name, path, header }));
        }
        Ok(())
    }
}

impl Newest {
    fn add(&mut self, layout: Layout, hash: u32, record: &Keyed) {
        let Header { count, begin_timestamp, .. } = self.header;
        if count == 1 {
            self.header.begin_timestamp = record.timestamp;
            self.header.begin_offset = record.offset;
        }
        let begin = if count == 1 { record.timestamp } else { begin_timestamp };
        let slot = layout.slot(hash);
        let previous = std::mem::replace(&mut self.slots[slot], count);
        let seconds = seconds_since(begin, record.timestamp);
        Entry { hash, offset: record.offset, seconds, previous }.encode(&mut self.tail);
        self.dirty[slot * SLOT_BYTES / PAGE_BYTES] = true;
        self.header.used_slots += u32::from(previous == 0);
        self.header.end_timestamp = record.timestamp;
        self.header.end_offset = record.offset;
        self.header.count += 1;
        self.record_end = record.end;
    }

    /// Number of the first entry that is not yet written.
    pub(super) fn tail_from(&self) -> u32 {
        let entries = u32::try_from(self.tail.len() / ENTRY_BYTES).unwrap_or(u32::MAX);
        self.header.count - entries
    }

    fn write_tail(&mut self, layout: Layout) -> Result<(), StoreError> {
        let at = layout.entry_at(self.tail_from());
        self.file.write_all_at(&self.tail, at).map_err(StoreError::io("write", &self.path))?;
        self.tail.clear();
        Ok(())
    }

    /// Writes the slots that have changed, in their order; adjacent pages together.
    fn write_slots(&mut self) -> Result<(), StoreError> {
        const SLOTS_PER_PAGE: usize = PAGE_BYTES / SLOT_BYTES;
        let mut page = 0;
        while page < self.dirty.len() {
            let run = self.dirty[page..].iter().take_while(|is_dirty| **is_dirty).count();
            let run = run.min(SLOT_BYTES_PER_WRITE / PAGE_BYTES);
            if run > 0 {
                let end = ((page + run) * SLOTS_PER_PAGE).min(self.slots.len());
                let slots = &self.slots[page * SLOTS_PER_PAGE..end];
                let bytes: Vec<u8> = slots.iter().flat_map(|slot| slot.to_be_bytes()).collect();
                let written =
                    self.file.write_all_at(&bytes, Layout::slot_at(page * SLOTS_PER_PAGE));
                written.map_err(StoreError::io("write", &self.path))?;
                self.dirty[page..page + run].fill(false);
            }
            page += run.max(1);
        }
        Ok(())
    }
}
