//! Records to which another broker gave their place.

use protocol::message_codec::{self, FIXED_BYTES, MAGIC_BLANK};

use super::append::{Appender, WrittenGroup, is_full};
use crate::error::ReplicationError;
use crate::metrics::Metrics;

/// A record that claims to have more bytes than this is taken for garbage: whoever receives it has
/// to collect it before it can be appended.
pub const REPLICATED_RECORD_BYTES_MAX: usize = 64 << 20;

/// Whole records at the start of some bytes, all in one file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Frames {
    bytes: usize,
    records: usize,
    /// Store time of the last record; 0 for none.
    timestamp: i64,
}

impl Appender {
    /// Appends whole records, and fillers, that lie at `offset` in the log of another broker;
    /// returns how many bytes that were. What is left at the end is the beginning of a record.
    pub(crate) fn append_replicated(
        &mut self,
        offset: i64,
        bytes: &[u8],
    ) -> Result<usize, ReplicationError> {
        if let Some(reason) = self.flags.failure() {
            return Err(ReplicationError::NotWritable(reason));
        }
        if offset != self.offset {
            self.begin_at(offset)?;
        }
        let mut done = 0;
        loop {
            let rest = bytes.get(done..).unwrap_or_default();
            let frames = frames(rest, self.offset, self.log.next_segment(self.offset))?;
            if frames.bytes == 0 {
                return Ok(done);
            }
            self.write_frames(&rest[..frames.bytes])?;
            self.last_timestamp = self.last_timestamp.max(frames.timestamp);
            Metrics::add(&self.metrics.replicated_messages, frames.records);
            Metrics::add(&self.metrics.replicated_bytes, frames.bytes);
            done += frames.bytes;
        }
    }

    /// What tells the flusher how far to flush.
    pub(crate) fn marker(&self) -> WrittenGroup {
        let end = self.log.written();
        WrittenGroup::unsent(end..end, self.last_timestamp)
    }

    /// A log without a record may begin where the other one does.
    fn begin_at(&mut self, offset: i64) -> Result<(), ReplicationError> {
        let is_empty = self.log.min_offset() == self.offset;
        let is_file_start = offset % self.log.segment_bytes() == 0;
        if !is_empty || !is_file_start || offset < self.offset {
            return Err(ReplicationError::NotAtEnd { offset, end: self.offset });
        }
        self.log.begin_at(offset)?;
        self.go_to(offset);
        Ok(())
    }

    /// Writes bytes that lie in one file.
    fn write_frames(&mut self, bytes: &[u8]) -> Result<(), ReplicationError> {
        let length = i64::try_from(bytes.len()).expect("a file is below 2 GiB");
        if self.segment.as_ref().is_none_or(|segment| {
            !(segment.start..segment.start + self.log.segment_bytes()).contains(&self.offset)
        }) {
            let there = self.log.segment_at(self.offset);
            let segment = there.map_or_else(|| self.log.add_segment(self.offset), Ok);
            self.segment = Some(segment.map_err(|error| self.no_space(&error))?);
        }
        self.allocate(self.offset + length).map_err(|error| self.no_space(&error))?;
        let segment = self.segment.as_ref().expect("it was made above");
        let written = segment.file.write_all_at(bytes, self.offset.abs_diff(segment.start));
        if let Err(error) = written {
            // A part may be there, so the end of the log is no longer known.
            let reason = format!("writing the commit log failed: {error}");
            self.flags.fail(&reason);
            return Err(ReplicationError::NotWritable(reason));
        }
        self.offset += length;
        self.log.set_written(self.offset);
        Ok(())
    }

    fn no_space(&self, error: &std::io::Error) -> ReplicationError {
        let reason = format!("no space for the commit log: {error}");
        if is_full(error) {
            self.flags.set_disk_full(Some(reason.clone()));
        } else {
            self.flags.fail(&reason);
        }
        ReplicationError::NotWritable(reason)
    }
}

/// The whole records at the start of `bytes`, which lie at `offset` in a file that ends at
/// `file_end`, up to the filler that ends the file.
fn frames(bytes: &[u8], offset: i64, file_end: i64) -> Result<Frames, ReplicationError> {
    let mut frames = Frames::default();
    loop {
        let at = offset + i64::try_from(frames.bytes).expect("bytes of one file");
        let malformed = |reason: String| ReplicationError::Malformed { offset: at, reason };
        let rest = bytes.get(frames.bytes..).unwrap_or_default();
        let file_rest = usize::try_from(file_end - at).unwrap_or(0);
        if file_rest == 0 {
            return Ok(frames);
        }
        let Ok((size, magic)) = message_codec::peek(rest) else { return Ok(frames) };
        let size = usize::try_from(size).unwrap_or(0);
        let is_filler = magic == MAGIC_BLANK;
        let limit = REPLICATED_RECORD_BYTES_MAX.min(file_rest);
        let has_size = if is_filler {
            size == file_rest && size <= REPLICATED_RECORD_BYTES_MAX
        } else {
            (FIXED_BYTES..=limit).contains(&size)
        };
        if !has_size {
            let text = format!("{size} bytes, magic {magic:#x}, {file_rest} to the file's end");
            return Err(malformed(text));
        }
        if rest.len() < size {
            return Ok(frames);
        }
        frames.bytes += size;
        if is_filler {
            return Ok(frames);
        }
        let view = message_codec::decode_record(rest).map_err(|error| malformed(error.to_string()));
        let view = view?;
        view.check_body().map_err(|error| malformed(error.to_string()))?;
        if view.physical_offset != at {
            return Err(malformed(format!("record says it lies at {}", view.physical_offset)));
        }
        frames.records += 1;
        frames.timestamp = view.store_timestamp;
    }
}
