//! Reading single records of a store that no broker need have open.

use std::sync::Arc;

use bytes::Bytes;
use protocol::message_codec::{self, MAGIC_BLANK};

use super::{InspectError, Place, layout};
use crate::commit_log::CommitLog;
use crate::commit_log::scan::Scan;
use crate::consume_queue_table::ConsumeQueueTable;
use crate::dry_run::DryRunDisk;
use crate::error::{ReadError, StoreError};

/// See the module. Also of use while a broker works on the store: its newest records may then be
/// missing.
#[derive(Debug)]
pub struct Reader {
    log: CommitLog,
    queues: ConsumeQueueTable,
}

/// What there is at or behind an offset of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A record that begins exactly there.
    Record(Bytes),
    /// No record, but the next one begins here. Fillers between files are not mentioned.
    Gap {
        /// Where the next record begins.
        next: i64,
    },
    /// Nothing any more.
    End,
}

impl Reader {
    /// Opens a store for reading.
    ///
    /// # Errors
    /// There is no store, a broker uses it and `is_forced` is false, or the disk refuses.
    pub fn open(place: &Place, is_forced: bool) -> Result<Self, InspectError> {
        place.check()?;
        if !is_forced {
            place.check_unused()?;
        }
        let config = layout::config(place)?;
        let disk = Arc::new(DryRunDisk::default());
        let segment_bytes = config.mapped_file_size_commit_log;
        let dir = &config.store_path_commit_log;
        let log = CommitLog::open(Arc::clone(&disk) as _, dir, segment_bytes)?;
        let queues = ConsumeQueueTable::new(disk, &config);
        queues.load_names()?;
        Ok(Self { log, queues })
    }

    /// First byte of the log.
    #[must_use]
    pub fn min_offset(&self) -> i64 {
        self.log.min_offset()
    }

    /// What is at an offset of the log. The record's body is not compared with its checksum.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn at(&self, offset: i64) -> Result<Found, ReadError> {
        let mut from = offset.max(self.log.min_offset());
        let end = self.log.written();
        while from < end {
            if let Some(record) = self.log.look_up(from)? {
                let is_there = from == offset || self.is_filler(offset, from)?;
                let found = Found::Record(record);
                return Ok(if is_there { found } else { Found::Gap { next: from } });
            }
            let file_end = self.log.next_segment(from);
            if self.is_filler(from, file_end)? {
                from = file_end;
                continue;
            }
            match Scan::new(&self.log).find(from + 1..end)? {
                Some(next) => from = next,
                None => break,
            }
        }
        Ok(Found::End)
    }

    /// Whether there is only a filler between two offsets.
    fn is_filler(&self, from: i64, to: i64) -> Result<bool, ReadError> {
        let Some(bytes) = self.log.read(from, 8)? else { return Ok(false) };
        Ok(match message_codec::peek(&bytes) {
            Ok((size, MAGIC_BLANK)) => i64::from(size) == to - from,
            _ => false,
        })
    }

    /// First offset and end of a queue; `None` when there is no such queue.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn queue_range(
        &self,
        topic: &str,
        queue_id: i32,
    ) -> Result<Option<(i64, i64)>, StoreError> {
        let Some(queue) = self.queues.get(topic, queue_id) else { return Ok(None) };
        if queue.max_offset() == 0 {
            queue.load_files()?;
            let end = queue.find_end_before(self.log.written())?;
            queue.set_bounds(0, end);
            queue.correct_min(self.log.min_offset())?;
        }
        Ok(Some((queue.min_offset(), queue.max_offset())))
    }

    /// Where in the log a message of a queue lies, as its queue says.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn physical_offset(
        &self,
        topic: &str,
        queue_id: i32,
        queue_offset: i64,
    ) -> Result<Option<i64>, StoreError> {
        self.queue_range(topic, queue_id)?;
        let Some(queue) = self.queues.get(topic, queue_id) else { return Ok(None) };
        let unit = queue.unit(queue_offset)?.filter(|unit| !unit.is_blank());
        Ok(unit.map(|unit| unit.physical_offset))
    }
}
