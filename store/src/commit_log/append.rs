//! The writer: takes all waiting records, gives each its place and writes them in one go.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bytes::{BufMut as _, BytesMut};
use protocol::message_codec::{self, MAGIC_BLANK};
use protocol::sys_flag;

use super::{BLANK_BYTES, CommitLog, Segment};
use crate::clock::Clock;
use crate::completion::{Completion, PutResult};
use crate::consume_queue::ConsumeQueue;
use crate::dispatch::DispatchRequest;
use crate::error::PutError;
use crate::metrics::Metrics;
use crate::pending::Permit;
use crate::running_flags::RunningFlags;

/// Space is reserved this far ahead of the records, so that a full disk is met before anything is
/// written, and small volumes are not filled by empty files.
const ALLOCATE_STEP_BYTES: i64 = 32 << 20;
/// One write takes about this much; a larger record is written alone.
const GROUP_BYTES_MAX: usize = 4 << 20;

/// A clock that goes back by more than this was wrong before.
const CLOCK_STEP_MS_MAX: i64 = 10_000;

/// What goes into the tagsCode field of the consume queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TagsCode {
    /// The hash of the tags.
    Hash(i64),
    /// The time of delivery: the store time plus this many milliseconds.
    Delay(i64),
}

/// One encoded record of a put.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordMeta {
    pub(crate) bytes: usize,
    pub(crate) tags: TagsCode,
}

/// A message, or a batch that stays together, on its way into the log.
#[derive(Debug)]
pub(crate) struct AppendRequest {
    /// Encoded records, complete but for their place.
    pub(crate) records: BytesMut,
    pub(crate) first: RecordMeta,
    pub(crate) others: Vec<RecordMeta>,
    pub(crate) queue: Arc<ConsumeQueue>,
    pub(crate) sys_flag: i32,
    /// Whether the sender waits for all that is to be done; else only for the write.
    pub(crate) is_waiting: bool,
    pub(crate) completion: Completion,
    pub(crate) permit: Permit,
}

/// What was written and waits for its flush.
#[derive(Debug, Default)]
pub(crate) struct WrittenGroup {
    /// Where its first record lies.
    pub(crate) begin: i64,
    /// The log is written up to here.
    pub(crate) end: i64,
    /// Store time of the last record.
    pub(crate) timestamp: i64,
    /// Messages to make readable.
    pub(crate) dispatches: Vec<DispatchRequest>,
    /// Senders to answer when their messages can be read.
    done: Vec<(Completion, PutResult)>,
    /// Senders to answer as soon as it is written.
    early: Vec<(Completion, PutResult)>,
    /// Given back when the messages are readable.
    pub(crate) permits: Vec<Permit>,
    /// In which of the times that this broker was master it was written.
    pub(crate) term: u32,
}

/// See the module.
pub(crate) struct Appender {
    pub(super) log: Arc<CommitLog>,
    clock: Arc<dyn Clock>,
    pub(super) flags: Arc<RunningFlags>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) segment: Option<Arc<Segment>>,
    /// Where the next record goes; beyond `log.written` by what is in `buffer`.
    pub(super) offset: i64,
    allocated: i64,
    pub(super) last_timestamp: i64,
    /// Counts the times that this broker stopped being master.
    pub(super) term: u32,
    buffer: BytesMut,
    /// Kept between calls of [`Appender::append`] for its memory.
    pub(crate) requests: Vec<AppendRequest>,
}

impl Appender {
    /// Continues at the end of the recovered log.
    pub(crate) fn new(
        log: Arc<CommitLog>,
        clock: Arc<dyn Clock>,
        (flags, metrics): (Arc<RunningFlags>, Arc<Metrics>),
        last_timestamp: i64,
    ) -> Self {
        let offset = log.written();
        let segment = log.segment_at(offset);
        let buffer = BytesMut::new();
        Self {
            log,
            clock,
            flags,
            metrics,
            segment,
            offset,
            allocated: offset,
            last_timestamp,
            term: 0,
            buffer,
            requests: Vec::new(),
        }
    }

    /// Groups that are written from now on belong to another term, which is returned.
    pub(crate) fn end_term(&mut self) -> u32 {
        self.term += 1;
        self.term
    }

    /// Writes all requests, in groups, and passes each written group on.
    pub(crate) fn append(
        &mut self,
        requests: &mut Vec<AppendRequest>,
        mut written: impl FnMut(WrittenGroup),
    ) {
        let mut group = WrittenGroup::default();
        for request in requests.drain(..) {
            if self.buffer.len() + request.records.len() > GROUP_BYTES_MAX {
                self.finish(&mut group, &mut written);
            }
            if let Some(reason) = self.flags.failure() {
                request.completion.complete(Err(PutError::Failed(reason)));
                continue;
            }
            if let Err(error) = self.make_room(request.records.len(), &mut group, &mut written) {
                let reason = format!("no space for the commit log: {error}");
                if is_full(&error) {
                    self.flags.set_disk_full(Some(reason.clone()));
                    request.completion.complete(Err(PutError::NotWritable(reason)));
                } else {
                    self.flags.fail(&reason);
                    request.completion.complete(Err(PutError::Failed(reason)));
                }
                continue;
            }
            self.place(request, &mut group);
        }
        self.finish(&mut group, &mut written);
    }

    /// Ends the file at hand if the record does not fit, and reserves space for it.
    fn make_room(
        &mut self,
        bytes: usize,
        group: &mut WrittenGroup,
        written: &mut impl FnMut(WrittenGroup),
    ) -> io::Result<()> {
        let bytes = i64::try_from(bytes).map_err(io::Error::other)?;
        let end = |segment: &Arc<Segment>| segment.start + self.log.segment_bytes();
        let fits = self
            .segment
            .as_ref()
            .is_some_and(|segment| self.offset + bytes + BLANK_BYTES <= end(segment));
        if !fits {
            self.finish(group, written);
            self.roll()?;
        }
        self.allocate(self.offset + bytes + BLANK_BYTES)
    }

    /// Reserves space in the file at hand up to `need`, and some more.
    pub(super) fn allocate(&mut self, need: i64) -> io::Result<()> {
        let Some(segment) = &self.segment else { return Err(io::ErrorKind::NotFound.into()) };
        if need > self.allocated {
            let from = self.allocated.max(segment.start);
            let to = (need + ALLOCATE_STEP_BYTES).min(segment.start + self.log.segment_bytes());
            segment.file.allocate(from.abs_diff(segment.start), to.abs_diff(from))?;
            self.allocated = to;
        }
        Ok(())
    }

    /// Fills the rest of the file and begins the next. A full disk leaves everything as it was.
    fn roll(&mut self) -> io::Result<()> {
        if let Some(failure) = self.flags.failure() {
            return Err(io::Error::other(failure));
        }
        let start = self.segment.as_ref().map(|segment| segment.start + self.log.segment_bytes());
        let start = start.unwrap_or(self.offset);
        let next = match self.log.segment_at(start) {
            Some(next) => next,
            None => self.log.add_segment(start)?,
        };
        if let Some(segment) = self.segment.as_ref().filter(|_| self.offset < start) {
            let rest = i32::try_from(start - self.offset).map_err(io::Error::other)?;
            let mut blank = [0; 8];
            let mut fields = &mut blank[..];
            fields.put_i32(rest);
            fields.put_i32(MAGIC_BLANK);
            let position = self.offset.abs_diff(segment.start);
            if let Err(error) = segment.file.write_all_at(&blank, position) {
                self.flags.fail(&format!("writing the commit log failed: {error}"));
                return Err(error);
            }
        }
        self.offset = start;
        self.allocated = start;
        self.log.set_written(start);
        self.segment = Some(next);
        Ok(())
    }

    /// Goes on at another end of the log.
    pub(crate) fn go_to(&mut self, offset: i64) {
        self.segment = self.log.segment_at(offset);
        self.offset = offset;
        self.allocated = offset;
    }

    /// Searches by time rely on store times that do not go back, so a clock that is set back a
    /// little stands still instead. One that was far ahead is followed: the delays of delayed
    /// messages count from the store time.
    fn timestamp(&mut self) -> i64 {
        let now_ms = self.clock.now_ms();
        if now_ms + CLOCK_STEP_MS_MAX >= self.last_timestamp {
            self.last_timestamp = self.last_timestamp.max(now_ms);
        } else {
            self.last_timestamp = now_ms;
        }
        self.last_timestamp
    }

    /// Gives the records of a request their place and puts them into the buffer.
    fn place(&mut self, request: AppendRequest, group: &mut WrittenGroup) {
        let AppendRequest {
            records,
            first,
            others,
            queue,
            sys_flag,
            is_waiting,
            completion,
            permit,
        } = request;
        let timestamp = self.timestamp();
        let transaction = sys_flag::transaction(sys_flag);
        let in_queue = transaction == 0 || transaction == sys_flag::TRANSACTION_COMMIT;
        let count = if in_queue { others.len() + 1 } else { 0 };
        let first_queue_offset = if in_queue { queue.assign(count) } else { 0 };
        let mut result = PutResult {
            physical_offset: self.offset,
            queue_offset: first_queue_offset,
            store_timestamp: timestamp,
            record_bytes: records.len(),
            other_physical_offsets: Vec::with_capacity(others.len()),
        };
        let mut queue_offset = first_queue_offset;
        let mut start = self.buffer.len();
        self.buffer.extend_from_slice(&records);
        for (index, meta) in std::iter::once(first).chain(others).enumerate() {
            let record = &mut self.buffer[start..start + meta.bytes];
            message_codec::set_position(record, queue_offset, self.offset, timestamp);
            if index > 0 {
                result.other_physical_offsets.push(self.offset);
            }
            group.dispatches.push(DispatchRequest {
                queue: Arc::clone(&queue),
                physical_offset: self.offset,
                record_bytes: meta.bytes,
                queue_offset,
                tags_code: match meta.tags {
                    TagsCode::Hash(code) => code,
                    TagsCode::Delay(delay_ms) => timestamp.saturating_add(delay_ms),
                },
                store_timestamp: timestamp,
                sys_flag,
            });
            start += meta.bytes;
            self.offset += i64::try_from(meta.bytes).expect("a record is below 2 GiB");
            queue_offset += i64::from(in_queue);
        }
        assert_eq!(start, self.buffer.len(), "sizes of the records must add up");
        group.timestamp = timestamp;
        group.permits.push(permit);
        if is_waiting {
            group.done.push((completion, result));
        } else {
            group.early.push((completion, result));
        }
    }

    /// Writes the buffer and passes the group on.
    fn finish(&mut self, group: &mut WrittenGroup, written: &mut impl FnMut(WrittenGroup)) {
        if self.buffer.is_empty() {
            return;
        }
        let mut group = std::mem::take(group);
        let segment = self.segment.as_ref().expect("records were placed in a file");
        let from = self.log.written();
        assert_eq!(
            from + i64::try_from(self.buffer.len()).expect("a group is below 2 GiB"),
            self.offset,
            "a group begins where the log ends"
        );
        let begin = Instant::now();
        let outcome = segment.file.write_all_at(&self.buffer, from.abs_diff(segment.start));
        self.metrics.write_micros.record_micros(begin.elapsed());
        self.metrics.group_messages.record(group.dispatches.len() as u64);
        if let Err(error) = outcome {
            // A part may be there, so the end of the log is no longer known.
            self.flags.fail(&format!("writing the commit log failed: {error}"));
            group.fail(&self.flags);
            self.buffer.clear();
            return;
        }
        Metrics::add(&self.metrics.put_messages, group.dispatches.len());
        Metrics::add(&self.metrics.put_bytes, self.buffer.len());
        self.buffer.clear();
        self.log.set_written(self.offset);
        group.begin = from;
        group.end = self.offset;
        group.term = self.term;
        group.answer_those_who_do_not_wait();
        written(group);
    }
}

impl AppendRequest {
    /// Tells the sender that it came too late.
    pub(crate) fn refuse_as_slave(self) {
        let reason = "the broker has just become a slave".to_owned();
        self.completion.complete(Err(PutError::NotWritable(reason)));
    }
}

impl WrittenGroup {
    /// A part of the log that no sender waits for.
    pub(crate) fn unsent(part: Range<i64>, timestamp: i64) -> Self {
        Self { begin: part.start, end: part.end, timestamp, ..Self::default() }
    }

    /// What tells the flusher how far to flush when nobody waits for it.
    pub(crate) fn marker(&self) -> Self {
        Self::unsent(self.end..self.end, self.timestamp)
    }

    fn answer_those_who_do_not_wait(&mut self) {
        for (completion, result) in &self.done {
            completion.appended(result);
        }
        for (completion, result) in self.early.drain(..) {
            completion.complete(Ok(result));
        }
    }

    /// Tells the senders that their messages are stored.
    pub(crate) fn answer(&mut self) {
        for (completion, result) in self.done.drain(..) {
            completion.complete(Ok(result));
        }
    }

    /// Tells all senders that the store failed; nothing becomes readable.
    pub(crate) fn fail(self, flags: &RunningFlags) {
        self.refuse(&PutError::Failed(flags.failure().unwrap_or_default()));
    }

    /// Gives all senders the same answer.
    pub(crate) fn refuse(self, error: &PutError) {
        for (completion, _) in self.done.into_iter().chain(self.early) {
            completion.complete(Err(error.clone()));
        }
    }

    /// Whether it has nothing to make readable and nobody to answer.
    pub(crate) fn is_marker(&self) -> bool {
        self.dispatches.is_empty() && self.done.is_empty() && self.early.is_empty()
    }
}

pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
