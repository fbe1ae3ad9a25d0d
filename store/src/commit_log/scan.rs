//! Reading all records of a stretch of the log in order, on several threads.
//!
//! The stretch is cut into pieces, which are read and checked side by side. Where the first record
//! of a piece begins is known only when all before it have been read, so a thread looks for it: a
//! record says itself where it lies. A piece counts only if that is exactly where the records
//! before it end, else it is read again from there; so the outcome is that of reading one record
//! after the other. Memory is bounded: a few pieces are worked on at a time, whatever the log's
//! size.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use protocol::message_codec::{self, FIXED_BYTES, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RecordView};

use super::{CommitLog, Segment};
use crate::error::{ReadError, StoreError};

/// Bytes of a piece, unless a file ends before.
const PIECE_BYTES: i64 = 16 << 20;
/// A larger record, or what claims to be one, is not copied.
const RECORD_BYTES_COPIED_MAX: usize = 16 << 20;
/// Threads that read; more would wait for memory and disk.
const THREADS_MAX: usize = 4;
/// Pieces for each thread that may be read ahead of the last one that was accepted.
const PIECES_AHEAD: usize = 2;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scan<'a> {
    pub(crate) log: &'a CommitLog,
    pub(crate) piece_bytes: i64,
    pub(crate) threads: usize,
}

/// Where a scan ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScanEnd {
    /// Behind the last record.
    pub(crate) offset: i64,
    /// Why it is the last; `None` at the end of the stretch.
    pub(crate) invalid: Option<String>,
}

/// What was found in one piece.
struct Piece<P> {
    /// Where its first record or filler begins.
    begin: Option<i64>,
    found: P,
    end: i64,
    invalid: Option<String>,
}

/// Pieces on their way from the threads to the one that accepts them.
struct Turn<P> {
    state: Mutex<TurnState<P>>,
    changed: Condvar,
}

struct TurnState<P> {
    /// The next piece to read.
    next: usize,
    /// Pieces accepted so far.
    accepted: usize,
    read: BTreeMap<usize, Result<Piece<P>, ReadError>>,
    is_over: bool,
}

impl<'a> Scan<'a> {
    /// A scan with as many threads as the machine can run.
    pub(crate) fn new(log: &'a CommitLog) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { log, piece_bytes: PIECE_BYTES, threads: threads.min(THREADS_MAX) }
    }

    /// Passes each record of a stretch that begins at a record boundary to `check`, which collects
    /// what it finds in a `P` for each piece, or says why the record ends the valid log. Each `P`
    /// is passed to `visit` in the order of the log, with the offset behind it.
    pub(crate) fn run<P: Default + Send>(
        &self,
        stretch: Range<i64>,
        check: &(impl Fn(&mut P, &RecordView<'_>) -> Result<(), String> + Sync),
        mut visit: impl FnMut(P, i64) -> Result<(), StoreError>,
    ) -> Result<ScanEnd, StoreError> {
        let pieces = self.pieces(stretch.clone());
        let mut at = ScanEnd { offset: stretch.start, invalid: None };
        let Some((first, rest)) = pieces.split_first() else { return Ok(at) };
        let mut buffer = Vec::new();
        let piece = self.read(first.clone(), true, &mut buffer, check)?;
        self.accept(&mut at, piece, &mut visit)?;
        if rest.len() < 2 || self.threads < 2 {
            for piece in rest {
                if at.invalid.is_some() {
                    break;
                }
                if at.offset < piece.end {
                    let piece = self.read(at.offset..piece.end, true, &mut buffer, check)?;
                    self.accept(&mut at, piece, &mut visit)?;
                }
            }
            return Ok(at);
        }
        if at.invalid.is_none() {
            self.run_parallel(rest, &mut at, check, &mut visit)?;
        }
        Ok(at)
    }

    fn run_parallel<P: Default + Send>(
        &self,
        pieces: &[Range<i64>],
        at: &mut ScanEnd,
        check: &(impl Fn(&mut P, &RecordView<'_>) -> Result<(), String> + Sync),
        visit: &mut impl FnMut(P, i64) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let turn = Turn::new();
        std::thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(|| self.work(&turn, pieces, check));
            }
            // The threads end when this does, however that is.
            let _over = OnDrop(|| turn.stop());
            let mut buffer = Vec::new();
            for (number, range) in pieces.iter().enumerate() {
                let Some(piece) = turn.accept(number) else { break };
                let mut piece = piece?;
                if at.offset >= range.end {
                    continue;
                }
                if piece.begin != Some(at.offset) {
                    piece = self.read(at.offset..range.end, true, &mut buffer, check)?;
                }
                self.accept(at, piece, visit)?;
                if at.invalid.is_some() {
                    break;
                }
            }
            Ok(())
        })
    }

    fn accept<P>(
        &self,
        at: &mut ScanEnd,
        piece: Piece<P>,
        visit: &mut impl FnMut(P, i64) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        visit(piece.found, piece.end)?;
        *at = ScanEnd { offset: piece.end, invalid: piece.invalid };
        Ok(())
    }

    fn work<P: Default + Send>(
        &self,
        turn: &Turn<P>,
        pieces: &[Range<i64>],
        check: &(impl Fn(&mut P, &RecordView<'_>) -> Result<(), String> + Sync),
    ) {
        // Nobody waits for the piece of a thread that panics.
        let _over = OnDrop(|| {
            if std::thread::panicking() {
                turn.stop();
            }
        });
        let mut buffer = Vec::new();
        while let Some(number) = turn.next(pieces.len(), self.threads * PIECES_AHEAD) {
            let piece = self.read(pieces[number].clone(), false, &mut buffer, check);
            turn.put(number, piece);
        }
    }

    fn pieces(&self, stretch: Range<i64>) -> Vec<Range<i64>> {
        let mut pieces = Vec::new();
        let mut from = stretch.start;
        while from < stretch.end {
            let file_end = self.log.next_segment(from);
            let next = from - from.rem_euclid(self.piece_bytes) + self.piece_bytes;
            let to = next.min(file_end).min(stretch.end);
            pieces.push(from..to);
            from = to;
        }
        pieces
    }

    /// The first record, or filler, at or behind `from` that says that it lies there; for going on
    /// behind damage.
    pub(crate) fn find(&self, stretch: Range<i64>) -> Result<Option<i64>, ReadError> {
        let mut buffer = Vec::new();
        for range in self.pieces(stretch) {
            let Some(segment) = self.log.segment_at(range.start) else { continue };
            let next = segment.file.next_data(range.start.abs_diff(segment.start));
            let next = next.map_err(|source| segment.read_error(range.start, 0, source))?;
            if next.is_none_or(|next| segment.start + next.cast_signed() >= range.end) {
                continue;
            }
            let piece = self.read(range, false, &mut buffer, &|(), _: &RecordView<'_>| Ok(()))?;
            if piece.begin.is_some() {
                return Ok(piece.begin);
            }
        }
        Ok(None)
    }

    /// Reads the records that begin in a range, which lies in one file.
    fn read<P: Default>(
        &self,
        range: Range<i64>,
        is_boundary: bool,
        buffer: &mut Vec<u8>,
        check: &impl Fn(&mut P, &RecordView<'_>) -> Result<(), String>,
    ) -> Result<Piece<P>, ReadError> {
        let mut piece = Piece { begin: None, found: P::default(), end: range.start, invalid: None };
        let Some(segment) = self.log.segment_at(range.start) else {
            piece.invalid = Some("there is no file at this offset".to_owned());
            return Ok(piece);
        };
        let file_end = segment.start + self.log.segment_bytes();
        // The fixed fields of the last record may lie behind the range.
        let read_end = file_end.min(range.end + FIXED_BYTES as i64);
        buffer.resize(usize::try_from(read_end - range.start).unwrap_or(0), 0);
        segment.read(range.start, buffer)?;
        let begin = if is_boundary { Some(0) } else { find_first(buffer, range.clone(), file_end) };
        let Some(begin) = begin else { return Ok(piece) };
        let mut position = begin;
        piece.begin = Some(range.start + begin as i64);
        piece.end = range.start + begin as i64;
        while piece.end < range.end {
            let rest = &buffer[position..];
            let file_rest = usize::try_from(file_end - piece.end).unwrap_or(0);
            let size = match message_codec::peek(rest) {
                Ok((size, magic)) => {
                    let size = usize::try_from(size).unwrap_or(0);
                    if magic == MAGIC_BLANK && size == file_rest {
                        piece.end = file_end;
                        break;
                    }
                    size
                }
                Err(_) => 0,
            };
            let has_magic = is_record_magic(rest);
            let outcome = if has_magic && size > rest.len() && size <= file_rest {
                let record = last_record(&segment, piece.end, size)?;
                take(&record, piece.end, &mut piece.found, check)
            } else {
                take(rest, piece.end, &mut piece.found, check)
            };
            match outcome {
                Ok(bytes) => {
                    position += bytes;
                    piece.end += i64::try_from(bytes).expect("a record is below 2 GiB");
                }
                Err(reason) => {
                    piece.invalid = Some(reason);
                    break;
                }
            }
        }
        Ok(piece)
    }
}

/// The record that begins in a piece and ends behind it. Copied like the rest: what is mapped would
/// count as this process's memory.
fn last_record(segment: &Segment, offset: i64, size: usize) -> Result<Bytes, ReadError> {
    if size > RECORD_BYTES_COPIED_MAX {
        return segment.bytes(offset, size);
    }
    let mut record = vec![0; size];
    segment.read(offset, &mut record)?;
    Ok(record.into())
}

/// Checks the record at the start of `bytes`, which lies at `offset`; returns its size.
fn take<P>(
    bytes: &[u8],
    offset: i64,
    found: &mut P,
    check: &impl Fn(&mut P, &RecordView<'_>) -> Result<(), String>,
) -> Result<usize, String> {
    let view = message_codec::decode_record(bytes).map_err(|error| error.to_string())?;
    if view.physical_offset != offset {
        return Err(format!("record says it lies at {}", view.physical_offset));
    }
    check(found, &view)?;
    Ok(view.bytes.len())
}

fn is_record_magic(bytes: &[u8]) -> bool {
    matches!(message_codec::peek(bytes), Ok((_, MAGIC_V1 | MAGIC_V2)))
}

/// Position of the first record in the bytes of a range that says that it lies there, or of the
/// filler that ends the file.
fn find_first(bytes: &[u8], range: Range<i64>, file_end: i64) -> Option<usize> {
    let length = usize::try_from(range.end - range.start).ok()?;
    (0..length).find(|position| {
        let rest = bytes.get(*position..).unwrap_or_default();
        let offset = range.start + *position as i64;
        match message_codec::peek(rest) {
            Ok((_, MAGIC_V1 | MAGIC_V2)) => physical_offset(rest) == Some(offset),
            Ok((size, MAGIC_BLANK)) => i64::from(size) == file_end - offset,
            _ => false,
        }
    })
}

/// The field of a record that says where it lies.
fn physical_offset(record: &[u8]) -> Option<i64> {
    record.get(28..)?.first_chunk().map(|bytes| i64::from_be_bytes(*bytes))
}

impl<P> Turn<P> {
    fn new() -> Self {
        let state = TurnState { next: 0, accepted: 0, read: BTreeMap::new(), is_over: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The next piece to read, when there is one and room for it.
    fn next(&self, count: usize, ahead_max: usize) -> Option<usize> {
        let mut state = self.state.lock();
        while !state.is_over && state.next < count && state.next >= state.accepted + ahead_max {
            self.changed.wait(&mut state);
        }
        if state.is_over || state.next >= count {
            return None;
        }
        state.next += 1;
        Some(state.next - 1)
    }

    fn put(&self, number: usize, piece: Result<Piece<P>, ReadError>) {
        self.state.lock().read.insert(number, piece);
        self.changed.notify_all();
    }

    /// The piece with this number, when it has been read; nothing when a thread panicked.
    fn accept(&self, number: usize) -> Option<Result<Piece<P>, ReadError>> {
        let mut state = self.state.lock();
        loop {
            if let Some(piece) = state.read.remove(&number) {
                state.accepted = number + 1;
                self.changed.notify_all();
                return Some(piece);
            }
            if state.is_over {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    fn stop(&self) {
        self.state.lock().is_over = true;
        self.changed.notify_all();
    }
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use bytes::{BufMut as _, BytesMut};
    use proptest::prelude::*;
    use protocol::message::Message;

    use super::*;
    use crate::disk::RealDisk;

    const SEGMENT: usize = 64 << 10;
    const BLANK: usize = 8;

    fn record(body: &[u8], offset: usize) -> BytesMut {
        let message = Message {
            topic: "t",
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_timestamp: 1,
            born_host: "10.0.0.1:50000".parse().unwrap(),
            store_host: "10.0.0.2:10911".parse().unwrap(),
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body,
            properties: "",
        };
        let mut record = BytesMut::new();
        message_codec::encode_record(&message, &mut record).unwrap();
        message_codec::set_position(&mut record, 0, offset as i64, 1);
        record
    }

    /// The files of a log with bodies of these sizes, and where each record begins. In each body is
    /// a record that says where it lies, as in the log itself.
    fn files(sizes: &[usize]) -> (Vec<Vec<u8>>, Vec<usize>) {
        let body_at = 88;
        let mut files = vec![Vec::new()];
        let mut begins = Vec::new();
        for size in sizes {
            let bytes = record(&vec![0; *size], 0).len();
            let mut start = (files.len() - 1) * SEGMENT;
            let file = files.last_mut().unwrap();
            if file.len() + bytes + BLANK > SEGMENT {
                let rest = SEGMENT - file.len();
                file.put_i32(i32::try_from(rest).unwrap());
                file.put_i32(MAGIC_BLANK);
                file.resize(SEGMENT, 0);
                start += SEGMENT;
                files.push(Vec::new());
            }
            let file = files.last_mut().unwrap();
            let offset = start + file.len();
            let mut body = vec![7; *size];
            let inner = record(b"inner", offset + body_at + 10);
            if let Some(place) = body.get_mut(10..10 + inner.len()) {
                place.copy_from_slice(&inner);
            }
            begins.push(offset);
            file.extend_from_slice(&record(&body, offset));
        }
        files.last_mut().unwrap().resize(SEGMENT, 0);
        (files, begins)
    }

    fn open(dir: &Path, files: &[Vec<u8>]) -> CommitLog {
        for (index, file) in files.iter().enumerate() {
            let name = super::super::segment_name((index * SEGMENT) as i64);
            std::fs::write(dir.join(name), file).unwrap();
        }
        CommitLog::open(Arc::new(RealDisk), dir, SEGMENT as u64).unwrap()
    }

    /// Where all records begin, and how the scan ends.
    fn scan(log: &CommitLog, threads: usize, piece_bytes: i64) -> (Vec<usize>, ScanEnd) {
        let scan = Scan { log, piece_bytes, threads };
        let mut all = Vec::new();
        let check = |found: &mut Vec<usize>, view: &RecordView<'_>| {
            view.check_body().map_err(|error| error.to_string())?;
            found.push(usize::try_from(view.physical_offset).unwrap());
            Ok(())
        };
        let visit = |found: Vec<usize>, _| {
            all.extend(found);
            Ok(())
        };
        let end = scan.run(0..log.written(), &check, visit).unwrap();
        (all, end)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// However the log is cut into pieces, and whatever is damaged: the same as one after the
        /// other.
        #[test]
        fn many_threads_find_what_one_finds(
            sizes in prop::collection::vec(
                prop_oneof![4 => 0..2_000_usize, 1 => 0..30_000_usize], 1..120),
            piece in 10..14_u32,
            damage in prop::option::of((any::<prop::sample::Index>(), 1..255_u8)),
        ) {
            let (mut files, begins) = files(&sizes);
            if let Some((index, bits)) = damage {
                let at = index.index(files.len() * SEGMENT);
                files[at / SEGMENT][at % SEGMENT] ^= bits;
            }
            let dir = tempfile::tempdir().unwrap();
            let log = open(dir.path(), &files);
            let one = scan(&log, 1, 1 << 40);
            if damage.is_none() {
                prop_assert_eq!(&one.0, &begins);
            }
            prop_assert_eq!(&scan(&log, 3, 1 << piece), &one);
            prop_assert_eq!(&scan(&log, 1, 1 << piece), &one);
        }
    }

    #[test]
    fn behind_damage_the_next_record_is_found() {
        let (mut files, begins) = files(&[500; 300]);
        for byte in &mut files[0][begins[3]..begins[5] + 100] {
            *byte = 0;
        }
        let dir = tempfile::tempdir().unwrap();
        let log = open(dir.path(), &files);
        let (found, end) = scan(&log, 3, 4096);
        assert_eq!((found, end.offset), (begins[..3].to_vec(), begins[3] as i64));
        let scan = Scan { log: &log, piece_bytes: 4096, threads: 1 };
        // The one in the damaged record's body is whole.
        let next = scan.find(end.offset + 1..log.written()).unwrap().unwrap();
        assert!(next > begins[5] as i64 && next <= begins[6] as i64, "{next}");
        let last = *begins.last().unwrap() as i64;
        assert_eq!(scan.find(last..log.written()).unwrap(), Some(last));
        assert_eq!(scan.find(last + 700..log.written()).unwrap(), None);
    }

    #[test]
    fn an_error_of_the_visitor_ends_the_scan() {
        let (files, _) = files(&[500; 300]);
        let dir = tempfile::tempdir().unwrap();
        let log = open(dir.path(), &files);
        let scan = Scan { log: &log, piece_bytes: 4096, threads: 2 };
        let error = || StoreError::Locked { path: "here".into() };
        let mut visits = 0;
        let outcome = scan.run(0..log.written(), &|(), _| Ok(()), |(), _| {
            visits += 1;
            if visits < 5 { Ok(()) } else { Err(error()) }
        });
        assert!(matches!(outcome, Err(StoreError::Locked { .. })), "{outcome:?}");
        assert_eq!(visits, 5);
    }
}
