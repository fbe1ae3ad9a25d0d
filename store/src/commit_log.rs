//! The commit log: files of one size, named by the offset at which they begin, which together hold
//! every record in the order of writing.
//!
//! A record never spans two files: when it does not fit, a filler of 8 bytes (size of the rest,
//! blank magic) ends the file. Bytes above the written offset are zeros.

pub(crate) mod append;
pub(crate) mod cut;
pub(crate) mod group_commit;
pub(crate) mod replicate;
pub(crate) mod scan;

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use parking_lot::RwLock;
use protocol::message_codec::{self, FIXED_BYTES, MAGIC_BLANK, RecordView};

use crate::disk::{Disk, File};
use crate::error::{ReadError, StoreError};

/// Bytes that a filler needs at the end of a file.
pub(crate) const BLANK_BYTES: i64 = 8;

/// One file of the commit log.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) start: i64,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
}

impl Segment {
    /// Bytes of the file at a log offset, without a copy where the file is mapped.
    pub(crate) fn bytes(&self, offset: i64, bytes: usize) -> Result<Bytes, ReadError> {
        let outcome = self.file.bytes(offset.abs_diff(self.start), bytes);
        outcome.map_err(|source| self.read_error(offset, bytes, source))
    }

    /// Fills `buffer` from a log offset on.
    pub(crate) fn read(&self, offset: i64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let bytes = buffer.len();
        let outcome = self.file.read_exact_at(buffer, offset.abs_diff(self.start));
        outcome.map_err(|source| self.read_error(offset, bytes, source))
    }

    fn read_error(&self, offset: i64, bytes: usize, source: io::Error) -> ReadError {
        let path = self.path.clone();
        ReadError::Io { path, offset: offset.abs_diff(self.start), bytes, source }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct CommitLog {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    segment_bytes: i64,
    segments: RwLock<VecDeque<Arc<Segment>>>,
    /// Everything below is written and never changes again.
    written: AtomicI64,
    /// Everything below is on the disk. It only grows, and only after a flush that succeeded,
    /// unless a slave cuts its log.
    flushed: AtomicI64,
    listeners: RwLock<Vec<Arc<dyn LogListener>>>,
}

/// Is told when the log has grown or was flushed, so that nobody has to poll. Called on the thread
/// that writes or flushes: it must not block, nor call the store.
pub trait LogListener: Send + Sync + std::fmt::Debug {
    /// The log ends at `written` and is on the disk up to `flushed`.
    fn log_changed(&self, written: i64, flushed: i64);
}

/// The name of a file that begins at this offset: 20 digits.
pub(crate) fn segment_name(start: i64) -> String {
    format!("{start:020}")
}

/// The offset that a file's name says, or `None` for another file.
pub(crate) fn parse_segment_name(name: &str) -> Option<i64> {
    let is_number = name.len() == 20 && name.bytes().all(|digit| digit.is_ascii_digit());
    if is_number { name.parse().ok() } else { None }
}

impl CommitLog {
    /// Opens the files in `dir`. The written offset is the end of the last file until recovery
    /// says better.
    ///
    /// A last file that is shorter than it should be (a crash while it was made) is lengthened;
    /// empty last files are removed, as Apache's broker does.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        segment_bytes: u64,
    ) -> Result<Self, StoreError> {
        disk.create_dir_all(dir).map_err(StoreError::io("create", dir))?;
        let mut names: Vec<(i64, u64, PathBuf)> = Vec::new();
        for entry in disk.list(dir).map_err(StoreError::io("list", dir))? {
            let Some(start) = parse_segment_name(&entry.name).filter(|_| !entry.is_dir) else {
                continue;
            };
            names.push((start, entry.size, dir.join(entry.name)));
        }
        while let Some((_, 0, path)) = names.last() {
            disk.remove(path).map_err(StoreError::io("remove", path))?;
            names.pop();
        }
        let segment_length = segment_bytes.cast_signed();
        let mut segments: VecDeque<Arc<Segment>> = VecDeque::new();
        let last = names.len().saturating_sub(1);
        for (index, (start, size, path)) in names.into_iter().enumerate() {
            let expected = segments.back().map(|previous| previous.start + segment_length);
            if let Some(expected) = expected.filter(|expected| *expected != start) {
                return Err(StoreError::SegmentGap { path, expected });
            }
            let file = disk.open(&path).map_err(StoreError::io("open", &path))?;
            if size < segment_bytes && index == last {
                file.set_size(segment_bytes).map_err(StoreError::io("lengthen", &path))?;
            } else if size != segment_bytes {
                let key = "mappedFileSizeCommitLog";
                let expected = segment_bytes;
                return Err(StoreError::SegmentSize { path, found: size, expected, key });
            }
            segments.push_back(Arc::new(Segment { start, path, file }));
        }
        let end = segments.back().map_or(0, |segment| segment.start + segment_length);
        Ok(Self {
            disk,
            dir: dir.to_owned(),
            segment_bytes: segment_length,
            segments: RwLock::new(segments),
            written: AtomicI64::new(end),
            flushed: AtomicI64::new(0),
            listeners: RwLock::default(),
        })
    }

    pub(crate) fn add_listener(&self, listener: Arc<dyn LogListener>) {
        self.listeners.write().push(listener);
    }

    pub(crate) fn segment_bytes(&self) -> i64 {
        self.segment_bytes
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Offset of the oldest byte.
    pub(crate) fn min_offset(&self) -> i64 {
        self.segments.read().front().map_or(0, |segment| segment.start)
    }

    /// Offset at which the next record is written.
    pub(crate) fn written(&self) -> i64 {
        self.written.load(Ordering::Acquire)
    }

    /// Everything below is on the disk.
    pub(crate) fn flushed(&self) -> i64 {
        self.flushed.load(Ordering::Acquire)
    }

    /// Sets both offsets after recovery.
    pub(crate) fn set_end(&self, end: i64) {
        self.written.store(end, Ordering::Release);
        self.flushed.store(end, Ordering::Release);
    }

    /// Takes what was read out of this process's memory; the system keeps it at hand.
    pub(crate) fn release_memory(&self) {
        for segment in self.segments() {
            if let Err(error) = segment.file.release_memory() {
                tracing::debug!(path = %segment.path.display(), %error, "memory is not released");
            }
        }
    }

    /// The log has grown to this end; only the appender calls this.
    fn set_written(&self, end: i64) {
        self.written.store(end, Ordering::Release);
        self.tell_listeners();
    }

    /// Everything below this offset is on the disk.
    fn raise_flushed(&self, end: i64) {
        self.flushed.fetch_max(end, Ordering::AcqRel);
        self.tell_listeners();
    }

    fn tell_listeners(&self) {
        for listener in &*self.listeners.read() {
            listener.log_changed(self.written(), self.flushed());
        }
    }

    pub(crate) fn segments(&self) -> Vec<Arc<Segment>> {
        self.segments.read().iter().cloned().collect()
    }

    /// The files that hold a byte at or after `from` and before `end`.
    pub(crate) fn segments_between(&self, from: i64, end: i64) -> Vec<Arc<Segment>> {
        let segments = self.segments.read();
        let newest_first = segments.iter().rev().skip_while(|segment| segment.start >= end);
        let overlap = newest_first.take_while(|segment| segment.start + self.segment_bytes > from);
        let mut list: Vec<_> = overlap.cloned().collect();
        list.reverse();
        list
    }

    /// The file that holds this offset.
    pub(crate) fn segment_at(&self, offset: i64) -> Option<Arc<Segment>> {
        let segments = self.segments.read();
        let first = segments.front()?.start;
        let index = usize::try_from(offset.checked_sub(first)? / self.segment_bytes).ok()?;
        segments.get(index).filter(|segment| segment.start <= offset).cloned()
    }

    /// Where the file behind the one that holds this offset begins.
    pub(crate) fn next_segment(&self, offset: i64) -> i64 {
        offset - offset.rem_euclid(self.segment_bytes) + self.segment_bytes
    }

    /// Adds the file that begins at `start`, durable in its directory.
    pub(crate) fn add_segment(&self, start: i64) -> io::Result<Arc<Segment>> {
        let path = self.dir.join(segment_name(start));
        let file = self.disk.create(&path, self.segment_bytes.cast_unsigned())?;
        // Its size too, so that only the last file can ever be found short.
        file.sync_data()?;
        self.disk.sync_dir(&self.dir)?;
        let segment = Arc::new(Segment { start, path, file });
        let mut segments = self.segments.write();
        if let Some(last) = segments.back() {
            assert_eq!(last.start + self.segment_bytes, start, "commit log files must be adjacent");
        }
        segments.push_back(Arc::clone(&segment));
        Ok(segment)
    }

    /// Deletes the oldest file unless it is the last. Readers that hold bytes of it keep them.
    pub(crate) fn remove_oldest(&self) -> Result<bool, StoreError> {
        let oldest = {
            let mut segments = self.segments.write();
            if segments.len() < 2 {
                return Ok(false);
            }
            segments.pop_front()
        };
        let Some(oldest) = oldest else { return Ok(false) };
        self.disk.remove(&oldest.path).map_err(StoreError::io("remove", &oldest.path))?;
        self.disk.sync_dir(&self.dir).map_err(StoreError::io("sync", &self.dir))?;
        Ok(true)
    }

    /// Deletes the files that begin at or after `end`, newest first.
    pub(crate) fn remove_from(&self, end: i64) -> Result<usize, StoreError> {
        let mut removed = 0;
        loop {
            let newest = {
                let mut segments = self.segments.write();
                match segments.back() {
                    Some(segment) if segment.start >= end => segments.pop_back(),
                    _ => None,
                }
            };
            let Some(newest) = newest else { break };
            self.disk.remove(&newest.path).map_err(StoreError::io("remove", &newest.path))?;
            removed += 1;
        }
        if removed > 0 {
            self.disk.sync_dir(&self.dir).map_err(StoreError::io("sync", &self.dir))?;
        }
        Ok(removed)
    }

    /// `bytes` at `offset`, or `None` when they are not all within one file and written.
    pub(crate) fn read(&self, offset: i64, bytes: usize) -> Result<Option<Bytes>, ReadError> {
        let end = i64::try_from(bytes).ok().and_then(|bytes| offset.checked_add(bytes));
        let Some(end) = end.filter(|end| offset >= 0 && *end <= self.written()) else {
            return Ok(None);
        };
        match self.segment_at(offset) {
            Some(segment) if end <= segment.start + self.segment_bytes => {
                segment.bytes(offset, bytes).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The record at this offset, or `None` when there is none: each field has been checked and the
    /// record says that it lies here, but its body has not been compared with the checksum.
    pub(crate) fn look_up(&self, offset: i64) -> Result<Option<Bytes>, ReadError> {
        let Some(header) = self.read(offset, FIXED_BYTES)? else { return Ok(None) };
        let Ok((size, _)) = message_codec::peek(&header) else { return Ok(None) };
        let Some(size) = usize::try_from(size).ok().filter(|size| *size >= FIXED_BYTES) else {
            return Ok(None);
        };
        let Some(record) = self.read(offset, size)? else { return Ok(None) };
        let is_record =
            message_codec::decode_record(&record).is_ok_and(|view| view.physical_offset == offset);
        Ok(is_record.then_some(record))
    }

    /// When the record at this offset was stored.
    pub(crate) fn store_timestamp(&self, offset: i64) -> Result<Option<i64>, ReadError> {
        let record = self.look_up(offset)?;
        Ok(record.and_then(|record| {
            message_codec::decode_record(&record).ok().map(|view| view.store_timestamp)
        }))
    }

    /// Walks the log from a record boundary to `end`.
    pub(crate) fn walk(&self, from: i64, end: i64) -> Walk<'_> {
        Walk { log: self, segment: None, offset: from, end }
    }
}

/// What a walk finds at an offset.
pub(crate) enum Step<T> {
    /// A record.
    Record(T),
    /// The walk has come to its end.
    End,
    /// Neither record nor filler: the valid part of the log ends here.
    Invalid(String),
}

/// A walk over records in order, see [`CommitLog::walk`].
pub(crate) struct Walk<'a> {
    log: &'a CommitLog,
    /// The file at hand, all of it.
    segment: Option<(i64, Bytes)>,
    offset: i64,
    end: i64,
}

impl Walk<'_> {
    /// Offset of the next record.
    pub(crate) fn offset(&self) -> i64 {
        self.offset
    }

    /// Passes the next record to `visit` and moves behind it.
    pub(crate) fn step<T>(
        &mut self,
        visit: impl FnOnce(&RecordView<'_>) -> Result<T, String>,
    ) -> Result<Step<T>, ReadError> {
        loop {
            if self.offset >= self.end {
                return Ok(Step::End);
            }
            let Some((start, bytes)) = self.segment()? else {
                return Ok(Step::Invalid("there is no file at this offset".to_owned()));
            };
            let position = usize::try_from(self.offset - start).expect("offset is in its file");
            let rest = bytes.slice(position..);
            match message_codec::peek(&rest) {
                Ok((size, MAGIC_BLANK)) if usize::try_from(size) == Ok(rest.len()) => {
                    self.offset = start + self.log.segment_bytes;
                }
                _ => return Ok(self.record(&rest, visit)),
            }
        }
    }

    fn record<T>(
        &mut self,
        rest: &[u8],
        visit: impl FnOnce(&RecordView<'_>) -> Result<T, String>,
    ) -> Step<T> {
        let view = match message_codec::decode_record(rest) {
            Ok(view) => view,
            Err(error) => return Step::Invalid(error.to_string()),
        };
        if view.physical_offset != self.offset {
            let text = format!("record says it lies at {}", view.physical_offset);
            return Step::Invalid(text);
        }
        match visit(&view) {
            Ok(value) => {
                self.offset += i64::try_from(view.bytes.len()).expect("a record is below 2 GiB");
                Step::Record(value)
            }
            Err(reason) => Step::Invalid(reason),
        }
    }

    fn segment(&mut self) -> Result<Option<(i64, Bytes)>, ReadError> {
        let inside = |start: i64| (start..start + self.log.segment_bytes).contains(&self.offset);
        if let Some((start, bytes)) = &self.segment
            && inside(*start)
        {
            return Ok(Some((*start, bytes.clone())));
        }
        let Some(segment) = self.log.segment_at(self.offset) else { return Ok(None) };
        let length = usize::try_from(self.log.segment_bytes).expect("a file is below 2 GiB");
        let bytes = segment.bytes(segment.start, length)?;
        self.segment = Some((segment.start, bytes.clone()));
        Ok(Some((segment.start, bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;

    fn open(dir: &Path, bytes: u64) -> Result<CommitLog, StoreError> {
        CommitLog::open(Arc::new(RealDisk), dir, bytes)
    }

    #[test]
    fn names() {
        assert_eq!(segment_name(1 << 30), "00000000001073741824");
        assert_eq!(parse_segment_name("00000000001073741824"), Some(1 << 30));
        for name in
            ["", "1", "0000000000107374182x", "+0000000000000000001", "99999999999999999999"]
        {
            assert_eq!(parse_segment_name(name), None, "{name}");
        }
    }

    #[test]
    fn files_are_adjacent_and_of_one_size() {
        let dir = tempfile::tempdir().unwrap();
        let log = open(dir.path(), 4096).unwrap();
        for start in [0, 4096, 8192] {
            log.add_segment(start).unwrap();
        }
        log.set_end(12_288);
        assert_eq!(log.segment_at(4096).unwrap().start, 4096);
        assert_eq!(log.segment_at(12_287).unwrap().start, 8192);
        assert!(log.segment_at(12_288).is_none());
        let between = |from, end| -> Vec<i64> {
            log.segments_between(from, end).iter().map(|segment| segment.start).collect()
        };
        assert_eq!(between(0, 12_288), [0, 4096, 8192]);
        assert_eq!(between(4095, 4097), [0, 4096]);
        assert_eq!(between(4096, 8192), [4096]);
        assert!(log.segment_at(-1).is_none());
        assert!(log.read(4090, 10).unwrap().is_none());
        assert_eq!(log.read(4090, 6).unwrap().unwrap(), &[0; 6][..]);
        assert!(log.look_up(0).unwrap().is_none());
        assert!(log.remove_oldest().unwrap());
        assert_eq!(log.min_offset(), 4096);
        assert!(log.segment_at(0).is_none());
        drop(log);

        let error = open(dir.path(), 8192).unwrap_err();
        assert!(matches!(error, StoreError::SegmentSize { found: 4096, .. }), "{error}");
        std::fs::remove_file(dir.path().join(segment_name(4096))).unwrap();
        std::fs::write(dir.path().join(segment_name(16_384)), [0; 4096]).unwrap();
        let error = open(dir.path(), 4096).unwrap_err();
        assert!(matches!(error, StoreError::SegmentGap { expected: 12_288, .. }), "{error}");
    }

    #[test]
    fn a_last_file_that_was_never_finished_is_finished_or_removed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(segment_name(0)), [0; 4096]).unwrap();
        std::fs::write(dir.path().join(segment_name(4096)), [0; 100]).unwrap();
        std::fs::write(dir.path().join(segment_name(8192)), []).unwrap();
        std::fs::write(dir.path().join("notes"), []).unwrap();
        let log = open(dir.path(), 4096).unwrap();
        assert_eq!(log.written(), 8192);
        assert_eq!(log.segment_at(4096).unwrap().file.size().unwrap(), 4096);
        assert_eq!(log.remove_from(4096).unwrap(), 1);
        assert!(!log.remove_oldest().unwrap());
    }
}
