//! Reading: messages of a queue from an offset on, and the questions about offsets and times.

use bytes::Bytes;
use protocol::message_codec::{self, FIXED_BYTES};

use crate::commit_log::CommitLog;
use crate::config::StoreConfig;
use crate::consume_queue::{ConsumeQueue, UNIT_BYTES, Unit};
use crate::error::ReadError;
use crate::filter::MessageFilter;

/// Units read from the consume queue at once.
const UNITS_PER_READ: usize = 64;

/// What to read.
#[derive(Debug, Clone, Copy)]
pub struct GetRequest<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Queue.
    pub queue_id: i32,
    /// First message.
    pub offset: i64,
    /// Most messages to return; the store's own limits may be lower.
    pub max_messages: usize,
    /// Most bytes to return, except that the first message is returned whatever its size.
    pub max_bytes: usize,
}

/// How a read went (Java `GetMessageStatus`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GetStatus {
    /// There are messages.
    Found,
    /// Messages were looked at, none is wanted.
    NoMatchedMessage,
    /// The commit log no longer has them.
    MessageWasRemoving,
    /// The consume queue has nothing at this offset although it should.
    OffsetFoundNull,
    /// The offset is far beyond the end.
    OffsetOverflowBadly,
    /// The offset is that of the next message to come.
    OffsetOverflowOne,
    /// The offset is before the first message.
    OffsetTooSmall,
    /// There is no such queue.
    NoMatchedLogicQueue,
    /// The queue has never had a message.
    NoMessageInQueue,
}

impl GetStatus {
    /// The name that Apache's broker puts into a response's remark.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Found => "FOUND",
            Self::NoMatchedMessage => "NO_MATCHED_MESSAGE",
            Self::MessageWasRemoving => "MESSAGE_WAS_REMOVING",
            Self::OffsetFoundNull => "OFFSET_FOUND_NULL",
            Self::OffsetOverflowBadly => "OFFSET_OVERFLOW_BADLY",
            Self::OffsetOverflowOne => "OFFSET_OVERFLOW_ONE",
            Self::OffsetTooSmall => "OFFSET_TOO_SMALL",
            Self::NoMatchedLogicQueue => "NO_MATCHED_LOGIC_QUEUE",
            Self::NoMessageInQueue => "NO_MESSAGE_IN_QUEUE",
        }
    }
}

/// What was read.
#[derive(Debug, Clone)]
pub struct GetResult {
    /// How it went.
    pub status: GetStatus,
    /// Where to go on.
    pub next_begin_offset: i64,
    /// First message of the queue.
    pub min_offset: i64,
    /// End of the queue: the offset of the next message to come.
    pub max_offset: i64,
    /// The records; adjacent ones are one piece. Together they are the body of a pull answer.
    pub segments: Vec<Bytes>,
    /// Number of records.
    pub message_count: usize,
    /// Bytes of all records.
    pub total_bytes: usize,
    /// Whether the reader is so far behind that a slave had better serve it.
    pub suggest_slave: bool,
}

impl GetResult {
    fn new(status: GetStatus, next_begin_offset: i64) -> Self {
        Self {
            status,
            next_begin_offset,
            min_offset: 0,
            max_offset: 0,
            segments: Vec::new(),
            message_count: 0,
            total_bytes: 0,
            suggest_slave: false,
        }
    }

    /// The records one by one.
    pub fn records(&self) -> impl Iterator<Item = Bytes> {
        self.segments.iter().flat_map(|segment| {
            let mut rest = segment.clone();
            std::iter::from_fn(move || {
                let (size, _) = message_codec::peek(&rest).ok()?;
                let is_size = |size: &usize| (FIXED_BYTES..=rest.len()).contains(size);
                let size = usize::try_from(size).ok().filter(is_size)?;
                Some(rest.split_to(size))
            })
        })
    }
}

/// Which message of those stored at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boundary {
    /// The first one stored at or after the time.
    Lower,
    /// The last one stored at or before the time.
    Upper,
}

/// Reads from one store. See the module.
#[derive(Debug)]
pub(crate) struct Get<'a> {
    pub(crate) config: &'a StoreConfig,
    pub(crate) log: &'a CommitLog,
}

impl Get<'_> {
    /// Reads messages of a queue.
    pub(crate) fn messages(
        &self,
        queue: Option<&ConsumeQueue>,
        request: &GetRequest<'_>,
        filter: &dyn MessageFilter,
    ) -> Result<GetResult, ReadError> {
        let Some(queue) = queue else {
            return Ok(GetResult::new(GetStatus::NoMatchedLogicQueue, 0));
        };
        let (min, max) = (queue.min_offset(), queue.max_offset());
        let offset = request.offset;
        let outside = if max == 0 {
            Some((GetStatus::NoMessageInQueue, 0))
        } else if offset < min {
            Some((GetStatus::OffsetTooSmall, min))
        } else if offset == max {
            Some((GetStatus::OffsetOverflowOne, offset))
        } else if offset > max {
            Some((GetStatus::OffsetOverflowBadly, max))
        } else {
            None
        };
        let mut result = match outside {
            Some((status, next)) => GetResult::new(status, next),
            None => self.collect(queue, request, filter)?,
        };
        result.min_offset = min;
        result.max_offset = max;
        Ok(result)
    }

    fn collect(
        &self,
        queue: &ConsumeQueue,
        request: &GetRequest<'_>,
        filter: &dyn MessageFilter,
    ) -> Result<GetResult, ReadError> {
        let scan_max = (self.config.max_filter_message_size / UNIT_BYTES).max(request.max_messages);
        let mut result = GetResult::new(GetStatus::NoMatchedMessage, request.offset);
        let mut run = None;
        let mut scanned = 0;
        while scanned < scan_max {
            let wanted = UNITS_PER_READ.min(scan_max - scanned);
            let units = queue.units(result.next_begin_offset, wanted)?;
            if units.is_empty() {
                if scanned == 0 {
                    result.next_begin_offset = queue.next_file(request.offset);
                }
                break;
            }
            for unit in &units {
                if !self.take(*unit, (request, filter), &mut run, &mut result)? {
                    return Ok(finish(result, scanned));
                }
                result.next_begin_offset += 1;
                scanned += 1;
            }
        }
        Ok(finish(result, scanned))
    }

    /// Adds the message of one unit if it is wanted. Returns false when the result is full before.
    fn take(
        &self,
        unit: Unit,
        (request, filter): (&GetRequest<'_>, &dyn MessageFilter),
        run: &mut Option<i64>,
        result: &mut GetResult,
    ) -> Result<bool, ReadError> {
        let Ok(bytes) = usize::try_from(unit.size) else { return Ok(true) };
        if !filter.matches_tags_code(unit.tags_code) {
            return Ok(true);
        }
        if result.message_count > 0 && self.is_full(unit, bytes, request, result) {
            return Ok(false);
        }
        if result.message_count >= request.max_messages {
            return Ok(false);
        }
        let Some(record) = self.log.read(unit.physical_offset, bytes)? else {
            if result.message_count == 0 {
                result.status = GetStatus::MessageWasRemoving;
            }
            return Ok(true);
        };
        if !filter.matches_record(&record) {
            return Ok(true);
        }
        result.suggest_slave = self.is_behind(unit.physical_offset);
        result.message_count += 1;
        result.total_bytes += bytes;
        self.push(unit.physical_offset, record, run, &mut result.segments)?;
        Ok(true)
    }

    /// Appends a record, as one piece with those before when they are adjacent in the log: fewer
    /// pieces make a shorter `writev`. `run` is where the last piece begins in the log.
    fn push(
        &self,
        offset: i64,
        record: Bytes,
        run: &mut Option<i64>,
        segments: &mut Vec<Bytes>,
    ) -> Result<(), ReadError> {
        if let (Some(start), Some(last)) = (*run, segments.last_mut())
            && offset - start == i64::try_from(last.len()).unwrap_or(i64::MAX)
            && let Some(joined) = self.log.read(start, last.len() + record.len())?
        {
            *last = joined;
        } else {
            *run = Some(offset);
            segments.push(record);
        }
        Ok(())
    }

    fn is_full(
        &self,
        unit: Unit,
        bytes: usize,
        request: &GetRequest<'_>,
        result: &GetResult,
    ) -> bool {
        let config = self.config;
        let (count, limit) = if self.is_behind(unit.physical_offset) {
            (
                config.max_transfer_count_on_message_in_disk,
                config.max_transfer_bytes_on_message_in_disk,
            )
        } else {
            (
                config.max_transfer_count_on_message_in_memory,
                config.max_transfer_bytes_on_message_in_memory,
            )
        };
        result.message_count >= count
            || result.total_bytes + bytes > limit
            || result.total_bytes + bytes > request.max_bytes
    }

    /// Whether a record is so old that it is probably not in memory.
    fn is_behind(&self, physical_offset: i64) -> bool {
        let ratio = u64::from(self.config.access_message_in_memory_max_ratio);
        let cached = self.config.memory_bytes / 100 * ratio;
        self.log.written().saturating_sub(physical_offset)
            > i64::try_from(cached).unwrap_or(i64::MAX)
    }

    /// When a message of a queue was stored.
    pub(crate) fn store_time(
        &self,
        queue: &ConsumeQueue,
        offset: i64,
    ) -> Result<Option<i64>, ReadError> {
        if offset < queue.min_offset() {
            return Ok(None);
        }
        match queue.unit(offset)? {
            Some(unit) => self.log.store_timestamp(unit.physical_offset),
            None => Ok(None),
        }
    }

    /// The offset for a time; the end of the queue when it holds nothing.
    pub(crate) fn search_offset(
        &self,
        queue: &ConsumeQueue,
        timestamp: i64,
        boundary: Boundary,
    ) -> Result<i64, ReadError> {
        let (min, max) = (queue.min_offset(), queue.max_offset());
        let is_after = |unit: Unit| {
            let stored = self.log.store_timestamp(unit.physical_offset)?;
            // What retention has deleted meanwhile was stored before all the rest.
            Ok(stored.is_some_and(|stored| match boundary {
                Boundary::Lower => stored >= timestamp,
                Boundary::Upper => stored > timestamp,
            }))
        };
        let offset = queue.partition_point(min..max, is_after)?;
        match boundary {
            Boundary::Upper if offset > min => Ok(offset - 1),
            _ => Ok(offset),
        }
    }
}

fn finish(mut result: GetResult, scanned: usize) -> GetResult {
    if result.message_count > 0 {
        result.status = GetStatus::Found;
    } else if scanned == 0 {
        result.status = GetStatus::OffsetFoundNull;
    }
    result
}
