//! A consume queue: for each message of one queue where its record lies, in files of 20-byte units.
//!
//! A unit is physicalOffset i64, size i32, tagsCode i64, big-endian. Unit `n` lies at byte `20 * n`
//! of the queue's space, which is cut into files of one size named by the byte at which they begin.
//! Everything here can be rebuilt from the commit log.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use bytes::{Buf as _, BufMut as _};
use parking_lot::{Mutex, RwLock};

use crate::commit_log::{parse_segment_name, segment_name};
use crate::disk::{Disk, File, zero_data};
use crate::error::{ReadError, StoreError};
use crate::file_cache::FileCache;

/// Bytes of a unit.
pub(crate) const UNIT_BYTES: usize = 20;
const UNIT: i64 = UNIT_BYTES as i64;
/// Size in the units that stand before the first message of a queue that does not begin at 0.
const BLANK_SIZE: i32 = i32::MAX;
/// Memory that a queue keeps for units to come; of 100,000 queues most are idle.
const STAGED_BYTES_KEPT: usize = 1 << 10;
/// Units read first where the end is looked for: most queues are short.
const UNITS_PER_BLOCK: usize = 204;
/// Units written at once when a file is filled up with blanks.
const BLANKS_PER_WRITE: i64 = 3_000;

/// Where one message lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unit {
    /// Commit log offset.
    pub(crate) physical_offset: i64,
    /// Bytes of the record.
    pub(crate) size: i32,
    /// Hash of the tags, or time of delivery for a delayed message.
    pub(crate) tags_code: i64,
}

impl Unit {
    fn decode(mut bytes: &[u8]) -> Self {
        Self { physical_offset: bytes.get_i64(), size: bytes.get_i32(), tags_code: bytes.get_i64() }
    }

    /// Whether something has been written here. The rest of a file is zeros.
    pub(crate) fn is_written(&self) -> bool {
        self.physical_offset >= 0 && self.size > 0
    }

    /// Whether it only fills the place before the first message.
    pub(crate) fn is_blank(&self) -> bool {
        self.size == BLANK_SIZE
    }

    /// Commit log offset behind the record.
    pub(crate) fn physical_end(&self) -> i64 {
        self.physical_offset.saturating_add(i64::from(self.size))
    }
}

/// What all queues of a store share.
#[derive(Debug)]
pub(crate) struct QueueFiles {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) cache: FileCache,
    pub(crate) root: PathBuf,
    pub(crate) file_bytes: i64,
}

/// Units that wait for [`ConsumeQueue::commit`]. Only the dispatcher adds to them.
#[derive(Debug, Default)]
struct Staged {
    units: Vec<u8>,
    count: i64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ConsumeQueue {
    pub(crate) topic: Arc<str>,
    pub(crate) queue_id: i32,
    /// Names the queue in the file cache; never used again within a process.
    number: u64,
    shared: Arc<QueueFiles>,
    /// First byte of each file, ascending.
    files: RwLock<VecDeque<i64>>,
    /// The offset that the writer gives to the next message.
    next: AtomicI64,
    /// Messages below may be read.
    max: AtomicI64,
    min: AtomicI64,
    staged: Mutex<Staged>,
    is_deleted: AtomicBool,
}

impl ConsumeQueue {
    /// A queue without files.
    pub(crate) fn new(
        topic: Arc<str>,
        queue_id: i32,
        number: u64,
        shared: Arc<QueueFiles>,
    ) -> Self {
        Self {
            topic,
            queue_id,
            number,
            shared,
            files: RwLock::default(),
            next: AtomicI64::new(0),
            max: AtomicI64::new(0),
            min: AtomicI64::new(0),
            staged: Mutex::default(),
            is_deleted: AtomicBool::new(false),
        }
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.shared.root.join(&*self.topic).join(self.queue_id.to_string())
    }

    /// Finds the files of the queue. Files that cannot belong to it (wrong size, not adjacent to
    /// the newest) are removed and named in the result: the queue has to be rebuilt.
    pub(crate) fn load_files(&self) -> Result<Vec<PathBuf>, StoreError> {
        let dir = self.dir();
        let list = self.shared.disk.list(&dir).map_err(StoreError::io("list", &dir))?;
        let mut starts = VecDeque::new();
        let mut wrong = Vec::new();
        for entry in list.into_iter().rev() {
            let Some(start) = parse_segment_name(&entry.name) else { continue };
            let is_adjacent = starts
                .front()
                .is_none_or(|next: &i64| Some(start) == next.checked_sub(self.shared.file_bytes));
            let is_whole = entry.size.cast_signed() == self.shared.file_bytes;
            if is_whole && is_adjacent && start % self.shared.file_bytes == 0 {
                starts.push_front(start);
            } else {
                wrong.push(dir.join(entry.name));
            }
        }
        for path in &wrong {
            self.shared.disk.remove(path).map_err(StoreError::io("remove", path))?;
        }
        *self.files.write() = starts;
        Ok(wrong)
    }

    /// Messages below this offset may be read; the next one gets it, if nothing is on its way.
    pub(crate) fn max_offset(&self) -> i64 {
        self.max.load(Ordering::Acquire)
    }

    /// The oldest message there is.
    pub(crate) fn min_offset(&self) -> i64 {
        self.min.load(Ordering::Acquire)
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Acquire)
    }

    /// Gives `count` consecutive offsets to new messages and returns the first. Only the writer of
    /// the commit log calls this.
    pub(crate) fn assign(&self, count: usize) -> i64 {
        let count = i64::try_from(count).expect("a batch has fewer than 2^63 messages");
        self.next.fetch_add(count, Ordering::AcqRel)
    }

    /// Continues the numbers behind the last message that can be read.
    pub(crate) fn restart_numbers(&self) {
        self.next.store(self.max_offset(), Ordering::Release);
    }

    /// The next message gets this number or a higher one.
    pub(crate) fn raise_next(&self, queue_offset: i64) {
        self.next.fetch_max(queue_offset, Ordering::AcqRel);
    }

    /// Continues the numbers at `max` after recovery.
    pub(crate) fn set_bounds(&self, min: i64, max: i64) {
        self.min.store(min, Ordering::Release);
        self.max.store(max, Ordering::Release);
        self.next.store(max, Ordering::Release);
    }

    /// Adds the unit of the message at `queue_offset`, to be written by [`ConsumeQueue::commit`].
    /// Returns whether it is the first since the last commit.
    ///
    /// A message that is already there, or comes to a deleted queue, is passed over. One that
    /// leaves a gap is refused: the queue has to be rebuilt.
    pub(crate) fn stage(&self, queue_offset: i64, unit: Unit) -> Result<bool, QueueGap> {
        let mut staged = self.staged.lock();
        let expected = self.max_offset() + staged.count;
        if queue_offset < expected || self.is_deleted() {
            return Ok(false);
        }
        if queue_offset > expected {
            if expected > 0 {
                return Err(QueueGap { expected, found: queue_offset });
            }
            // A queue whose older messages are gone begins in the middle.
            self.min.store(queue_offset, Ordering::Release);
            self.max.store(queue_offset, Ordering::Release);
        }
        staged.units.put_i64(unit.physical_offset);
        staged.units.put_i32(unit.size);
        staged.units.put_i64(unit.tags_code);
        staged.count += 1;
        Ok(staged.count == 1)
    }

    /// Writes what is staged and makes it readable. After an error it stays staged, and the call
    /// may be repeated. Calls `touch` with the first byte of each file before it is written, and
    /// whether it is new.
    pub(crate) fn commit(&self, mut touch: impl FnMut(i64, bool)) -> Result<(), StoreError> {
        let mut staged = self.staged.lock();
        if !self.is_deleted() {
            let mut offset = self.max_offset();
            let mut rest = &staged.units[..];
            while !rest.is_empty() {
                let start = self.file_start(offset);
                let room = start + self.shared.file_bytes - offset * UNIT;
                let length = rest.len().min(usize::try_from(room).expect("a file is not full"));
                let (now, later) = rest.split_at(length);
                self.write(offset, now, &mut touch)?;
                offset += i64::try_from(length / UNIT_BYTES).expect("units of one file");
                rest = later;
            }
            self.max.store(offset, Ordering::Release);
            // Recovery adds messages without the writer having assigned their offsets.
            self.next.fetch_max(offset, Ordering::AcqRel);
        }
        staged.units.clear();
        staged.units.shrink_to(STAGED_BYTES_KEPT);
        staged.count = 0;
        Ok(())
    }

    fn write(
        &self,
        offset: i64,
        units: &[u8],
        touch: &mut impl FnMut(i64, bool),
    ) -> Result<(), StoreError> {
        let start = self.file_start(offset);
        let is_new = !self.files.read().contains(&start);
        let file = if is_new {
            self.create(start, offset)?
        } else {
            self.file(start).map_err(|error| StoreError::io("open", &self.path(start))(error))?
        };
        touch(start, is_new);
        let written = file.write_all_at(units, (offset * UNIT).abs_diff(start));
        written.map_err(|error| StoreError::io("write", &self.path(start))(error))
    }

    /// Makes a new file. When the queue begins in its middle the place before is filled, so that
    /// a reader who looks for the end finds no gap.
    fn create(&self, start: i64, offset: i64) -> Result<Arc<dyn File>, StoreError> {
        let path = self.path(start);
        let size = self.shared.file_bytes.cast_unsigned();
        let create = || {
            self.shared.disk.create_dir_all(&self.dir())?;
            self.shared.cache.remove((self.number, start));
            let open = || self.shared.disk.create(&path, size);
            let file = self.shared.cache.get((self.number, start), open)?;
            if self.files.read().is_empty() {
                fill_with_blanks(&*file, offset - start / UNIT)?;
            }
            Ok(file)
        };
        let file = create().map_err(StoreError::io("create", &path))?;
        self.files.write().push_back(start);
        Ok(file)
    }

    fn path(&self, start: i64) -> PathBuf {
        self.dir().join(segment_name(start))
    }

    fn file_start(&self, offset: i64) -> i64 {
        let byte = offset * UNIT;
        byte - byte % self.shared.file_bytes
    }

    /// The first offset of the file behind the one that has this offset, or the end of the queue.
    pub(crate) fn next_file(&self, offset: i64) -> i64 {
        ((self.file_start(offset) + self.shared.file_bytes) / UNIT).min(self.max_offset())
    }

    fn file(&self, start: i64) -> io::Result<Arc<dyn File>> {
        let open = || self.shared.disk.open(&self.path(start));
        self.shared.cache.get((self.number, start), open)
    }

    /// Makes one file durable.
    pub(crate) fn sync_file(&self, start: i64) -> Result<(), StoreError> {
        if self.is_deleted() || !self.files.read().contains(&start) {
            return Ok(());
        }
        let path = self.path(start);
        let file = self.file(start).map_err(StoreError::io("open", &path))?;
        file.sync_data().map_err(StoreError::io("flush", &path))
    }

    /// Makes the names of all files durable.
    pub(crate) fn sync_dirs(&self) -> Result<(), StoreError> {
        if self.is_deleted() {
            return Ok(());
        }
        let queue = self.dir();
        for dir in [queue.as_path(), &self.shared.root.join(&*self.topic), &self.shared.root] {
            match self.shared.disk.sync_dir(dir) {
                // A queue without messages has no directory.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                outcome => outcome.map_err(StoreError::io("sync", dir))?,
            }
        }
        Ok(())
    }

    /// At most `count` units from `offset` on, all of one file; fewer at the end of the file or of
    /// the queue.
    pub(crate) fn units(&self, offset: i64, count: usize) -> Result<Vec<Unit>, ReadError> {
        let available = self.max_offset() - offset;
        if offset < 0 || available <= 0 {
            return Ok(Vec::new());
        }
        self.raw_units(offset, count.min(usize::try_from(available).unwrap_or(usize::MAX)))
    }

    /// As [`ConsumeQueue::units`], also beyond the end: recovery looks for it.
    fn raw_units(&self, offset: i64, count: usize) -> Result<Vec<Unit>, ReadError> {
        let start = self.file_start(offset);
        if !self.files.read().contains(&start) {
            return Ok(Vec::new());
        }
        let position = (offset * UNIT).abs_diff(start);
        let room = self.shared.file_bytes.cast_unsigned().saturating_sub(position);
        let room = usize::try_from(room).unwrap_or(usize::MAX) / UNIT_BYTES;
        let mut bytes = vec![0; count.min(room) * UNIT_BYTES];
        let length = bytes.len();
        let read = |bytes: &mut [u8]| self.file(start)?.read_exact_at(bytes, position);
        read(&mut bytes).map_err(|source| ReadError::Io {
            path: self.path(start),
            offset: position,
            bytes: length,
            source,
        })?;
        let (units, _) = bytes.as_chunks::<UNIT_BYTES>();
        Ok(units.iter().map(|unit| Unit::decode(unit)).collect())
    }

    /// The unit of one message.
    pub(crate) fn unit(&self, offset: i64) -> Result<Option<Unit>, ReadError> {
        Ok(self.units(offset, 1)?.first().copied())
    }

    /// The first message in `from..to` for which `is_after` holds, given that it holds for all
    /// behind it; `to` when there is none.
    pub(crate) fn partition_point(
        &self,
        range: std::ops::Range<i64>,
        mut is_after: impl FnMut(Unit) -> Result<bool, ReadError>,
    ) -> Result<i64, ReadError> {
        let (mut low, mut high) = (range.start, range.end);
        while low < high {
            let middle = low + (high - low) / 2;
            let is_after = match self.raw_units(middle, 1)?.first() {
                Some(unit) => is_after(*unit)?,
                None => false,
            };
            if is_after {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(low)
    }

    /// Finds the end of the queue after a clean stop: the newest file is filled from its start.
    pub(crate) fn find_end(&self) -> Result<i64, ReadError> {
        let Some(last) = self.files.read().back().copied() else { return Ok(0) };
        // Most queues are short, so their end is found by one read.
        let first = last / UNIT;
        let units = self.raw_units(first, UNITS_PER_BLOCK)?;
        let written = units.iter().take_while(|unit| unit.is_written()).count();
        let behind = first + i64::try_from(written).expect("units of one block");
        if written < units.len() {
            return Ok(behind);
        }
        let range = behind..(last + self.shared.file_bytes) / UNIT;
        self.partition_point(range, |unit| Ok(!unit.is_written()))
    }

    /// Finds the first unit that is not written, does not lie behind the one before, or does not
    /// lie before `physical_limit`: after an unclean stop the pages of a file may be lost or torn
    /// one by one, but not those of messages before the checkpoint.
    pub(crate) fn find_end_before(&self, physical_limit: i64) -> Result<i64, ReadError> {
        const UNITS_PER_READ_MAX: usize = 4_096;
        let starts: Vec<i64> = self.files.read().iter().rev().copied().collect();
        for (index, start) in starts.iter().enumerate() {
            let mut offset = start / UNIT;
            let end = (start + self.shared.file_bytes) / UNIT;
            let mut physical_end = 0;
            let mut count = UNITS_PER_BLOCK;
            while offset < end {
                let units = self.raw_units(offset, count)?;
                count = (count * 2).min(UNITS_PER_READ_MAX);
                let mut is_end = |unit: &Unit| {
                    if unit.is_written() && unit.is_blank() {
                        return false;
                    }
                    let is_behind = unit.physical_offset >= physical_end;
                    physical_end = unit.physical_end();
                    !unit.is_written() || !is_behind || unit.physical_offset >= physical_limit
                };
                if let Some(position) = units.iter().position(&mut is_end) {
                    offset += i64::try_from(position).unwrap_or(i64::MAX);
                    break;
                }
                offset += i64::try_from(units.len()).unwrap_or(i64::MAX);
            }
            if offset > start / UNIT || index + 1 == starts.len() {
                return Ok(offset);
            }
        }
        Ok(0)
    }

    /// Forgets all messages from `offset` on: zeroes the rest of their file and removes later ones.
    /// Calls `touch` with the first byte of each file changed, and whether it was removed.
    pub(crate) fn truncate(
        &self,
        offset: i64,
        mut touch: impl FnMut(i64, bool),
    ) -> Result<(), StoreError> {
        let keep = self.file_start(offset);
        let starts: Vec<i64> = self.files.read().iter().copied().collect();
        let oldest = starts.first().copied();
        for start in starts.into_iter().rev() {
            let path = self.path(start);
            // The oldest file stays even when it becomes empty: it keeps the numbers.
            let is_empty = start == keep && offset * UNIT == start && Some(start) != oldest;
            if start > keep || is_empty {
                touch(start, true);
                self.remove_file(start)?;
            } else if start == keep {
                let position = (offset * UNIT).abs_diff(start);
                let rest = self.shared.file_bytes.cast_unsigned() - position;
                let mut zero = || {
                    let file = self.file(start)?;
                    if zero_data(&*file, position, rest)? {
                        touch(start, false);
                    }
                    Ok(())
                };
                zero().map_err(StoreError::io("truncate", &path))?;
            }
        }
        Ok(())
    }

    fn remove_file(&self, start: i64) -> Result<(), StoreError> {
        let path = self.path(start);
        self.files.write().retain(|file| *file != start);
        self.shared.cache.remove((self.number, start));
        match self.shared.disk.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::io("remove", &path)(error))
            }
            _ => Ok(()),
        }
    }

    /// Moves the oldest message up to the first one that the commit log, which now begins at
    /// `log_min`, still has. Returns the new minimum.
    pub(crate) fn correct_min(&self, log_min: i64) -> Result<i64, ReadError> {
        let first_file = self.files.read().front().map_or(0, |start| start / UNIT);
        let from = self.min_offset().max(first_file);
        let is_there = |unit: &Unit| unit.physical_offset >= log_min && !unit.is_blank();
        if self.unit(from)?.as_ref().is_some_and(is_there) {
            self.min.fetch_max(from, Ordering::AcqRel);
            return Ok(from);
        }
        let min = self.partition_point(from..self.max_offset(), |unit| Ok(is_there(&unit)))?;
        self.min.fetch_max(min, Ordering::AcqRel);
        Ok(min)
    }

    /// Deletes one file of which no message is left. The newest file stays: it keeps the numbers.
    pub(crate) fn remove_expired_file(&self) -> Result<bool, StoreError> {
        let oldest = {
            let files = self.files.read();
            files.front().copied().filter(|_| files.len() > 1)
        };
        match oldest {
            Some(start) if (start + self.shared.file_bytes) / UNIT <= self.min_offset() => {
                self.remove_file(start).map(|()| true)
            }
            _ => Ok(false),
        }
    }

    /// Removes all files; what is still on its way to the queue is dropped.
    pub(crate) fn delete(&self) -> Result<(), StoreError> {
        let _staged = self.staged.lock();
        self.is_deleted.store(true, Ordering::Release);
        let starts: Vec<i64> = self.files.read().iter().copied().collect();
        for start in starts {
            self.remove_file(start)?;
        }
        self.shared.cache.remove_queue(self.number);
        let dir = self.dir();
        match self.shared.disk.remove_dir(&dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::io("remove", &dir)(error))
            }
            _ => Ok(()),
        }
    }

    /// Fills the place of messages that the log lacks, so that the next one gets `queue_offset`.
    /// Nothing may be staged. `touch` as for [`ConsumeQueue::commit`].
    pub(crate) fn skip_to(
        &self,
        queue_offset: i64,
        touch: impl FnMut(i64, bool),
    ) -> Result<(), StoreError> {
        for offset in self.max_offset()..queue_offset {
            let blank = Unit { physical_offset: 0, size: BLANK_SIZE, tags_code: 0 };
            // The offsets are consecutive, so this cannot fail.
            let _ = self.stage(offset, blank);
        }
        self.commit(touch)
    }

    /// Number of this queue within the process.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Removes all files but keeps the queue, to rebuild it.
    pub(crate) fn clear(&self) -> Result<(), StoreError> {
        let starts: Vec<i64> = self.files.read().iter().copied().collect();
        for start in starts {
            self.remove_file(start)?;
        }
        let mut staged = self.staged.lock();
        staged.units.clear();
        staged.count = 0;
        self.set_bounds(0, 0);
        Ok(())
    }
}

/// A message came that is not the next one of its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueGap {
    pub(crate) expected: i64,
    pub(crate) found: i64,
}

fn fill_with_blanks(file: &dyn File, count: i64) -> io::Result<()> {
    let mut blanks = Vec::new();
    for _ in 0..count.min(BLANKS_PER_WRITE) {
        blanks.put_i64(0);
        blanks.put_i32(BLANK_SIZE);
        blanks.put_i64(0);
    }
    let mut done = 0;
    while done < count {
        let now = (count - done).min(BLANKS_PER_WRITE);
        let length = usize::try_from(now).expect("at most BLANKS_PER_WRITE") * UNIT_BYTES;
        file.write_all_at(&blanks[..length], (done * UNIT).cast_unsigned())?;
        done += now;
    }
    Ok(())
}
