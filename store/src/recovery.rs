//! Opening a store: finds the end of the log, cuts off what is no record, and brings the consume
//! queues into step with it.
//!
//! The valid log is the longest prefix of whole records. Behind it everything becomes zeros,
//! durably, before anything is written: a stale record there could otherwise come back to life
//! after a later crash. Records behind the first damage were perhaps acknowledged, so they are
//! copied to
//! `truncated/` first.

mod cut;
mod rebuild;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::message_codec::{self, RecordView};
use protocol::sys_flag;

use crate::checkpoint::Checkpoint;
use crate::commit_log::{CommitLog, Segment, Step};
use crate::config::StoreConfig;
use crate::consume_queue::{ConsumeQueue, Unit};
use crate::consume_queue_table::ConsumeQueueTable;
use crate::deleted_topics::DeletedTopics;
use crate::disk::Disk;
use crate::error::{ReadError, StoreError};
use crate::put;

/// A log of at most this many bytes is compared with all its queues, so that the loss of a whole
/// queue is found. In a longer log a lost queue is found when its next message comes.
const FULL_CHECK_BYTES: i64 = 256 << 20;
/// A message with a higher number has a damaged one.
const QUEUE_OFFSET_MAX: i64 = 1 << 50;
/// Units staged before they are written.
const STAGED_MAX: usize = 10_000;
/// What a disk writes as a whole.
const SECTOR_BYTES: usize = 512;
/// Bytes read at once where something is searched or copied.
const CHUNK_BYTES: i64 = 1 << 20;

/// What recovery found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The last broker stopped in good order.
    pub was_clean: bool,
    /// First byte of the log.
    pub log_min: i64,
    /// End of the valid log.
    pub log_end: i64,
    /// Where records were checked from; all before was known to be on the disk.
    pub checked_from: i64,
    /// Records checked.
    pub checked_records: u64,
    /// Bytes behind the end that were not zeros and are now.
    pub cut_bytes: i64,
    /// Why the log ends where it ends, if bytes were cut.
    pub cut_reason: Option<String>,
    /// Whole records behind the damage, which are no longer in the log.
    pub cut_records: u64,
    /// Where the bytes that held whole records were copied to.
    pub cut_saved_to: Option<PathBuf>,
    /// Queues that were built anew from the log, as `topic/queue`.
    pub rebuilt_queues: Vec<String>,
    /// Store time of the last record, 0 for an empty log.
    pub last_store_timestamp: i64,
    /// How long it took.
    pub elapsed: Duration,
}

/// Everything that recovery works on.
pub(crate) struct Recovery<'a> {
    pub(crate) config: &'a StoreConfig,
    pub(crate) disk: &'a Arc<dyn Disk>,
    pub(crate) log: &'a CommitLog,
    pub(crate) queues: &'a ConsumeQueueTable,
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) deleted: &'a DeletedTopics,
    pub(crate) was_clean: bool,
}

/// What a record says that a queue has to know.
struct QueueEntry {
    queue: Arc<ConsumeQueue>,
    queue_offset: i64,
    unit: Unit,
}

impl From<ReadError> for StoreError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io { path, source, .. } => Self::Io { action: "read", path, source },
        }
    }
}

impl Recovery<'_> {
    /// Recovers log and queues and makes the result durable.
    pub(crate) fn run(&self) -> Result<RecoveryReport, StoreError> {
        let begin = Instant::now();
        let mut report = RecoveryReport {
            was_clean: self.was_clean,
            log_min: self.log.min_offset(),
            ..RecoveryReport::default()
        };
        self.queues.load_names()?;
        let mut broken = self.load_queues()?;
        let from = self.start()?;
        report.checked_from = from;
        for queue in self.queues.all() {
            if !broken.contains(&queue.number()) && !self.find_end(&queue, from)? {
                broken.insert(queue.number());
            }
        }
        self.check_log(from, &mut broken, &mut report)?;
        self.cut_queues(report.log_end, &mut broken)?;
        if report.log_end - report.log_min <= FULL_CHECK_BYTES {
            self.find_missing(&report, &mut broken)?;
        }
        self.rebuild(&broken, &mut report)?;
        for queue in self.queues.all() {
            queue.correct_min(report.log_min)?;
        }
        self.queues.flush()?;
        self.checkpoint.set_physic(report.last_store_timestamp);
        self.checkpoint.set_logics(report.last_store_timestamp, report.log_end);
        self.checkpoint.flush()?;
        report.elapsed = begin.elapsed();
        Ok(report)
    }

    /// Finds the files of all queues; returns those whose files do not fit together.
    fn load_queues(&self) -> Result<BTreeSet<u64>, StoreError> {
        let mut broken = BTreeSet::new();
        for queue in self.queues.all() {
            for path in queue.load_files()? {
                let path = path.display();
                tracing::warn!(%path, "consume queue file has a wrong size or place");
                broken.insert(queue.number());
            }
        }
        Ok(broken)
    }

    /// Where to check records from: after a clean stop the end of what the queues know, else the
    /// checkpoint.
    fn start(&self) -> Result<i64, StoreError> {
        let (min, end) = (self.log.min_offset(), self.log.written());
        let is_inside = |offset: &i64| (min..=end).contains(offset);
        if self.was_clean {
            let mut known = min;
            for queue in self.queues.all() {
                let end = queue.find_end()?;
                queue.set_bounds(0, end);
                let last = queue.unit(end - 1)?.filter(|unit| unit.physical_end() > known);
                if let Some(unit) = last
                    && self.is_message(&queue, end - 1, unit)?
                {
                    known = unit.physical_end();
                }
            }
            return Ok(known);
        }
        if let Some(position) = self.checkpoint.position().filter(is_inside) {
            return Ok(position);
        }
        self.start_by_time()
    }

    /// Apache's rule: the newest file that begins with a record that was certainly on the disk.
    fn start_by_time(&self) -> Result<i64, StoreError> {
        let durable_until = self.checkpoint.durable_until();
        for segment in self.log.segments().iter().rev() {
            let mut walk = self.log.walk(segment.start, segment.start + self.log.segment_bytes());
            let first = walk.step(|view| Ok(view.store_timestamp))?;
            if let Step::Record(timestamp) = first
                && timestamp > 0
                && timestamp <= durable_until
            {
                return Ok(segment.start);
            }
        }
        Ok(self.log.min_offset())
    }

    /// Finds the end of one queue below `from`. Returns false when its last message is not the one
    /// that the log has there: the queue has to be rebuilt.
    fn find_end(&self, queue: &Arc<ConsumeQueue>, from: i64) -> Result<bool, StoreError> {
        let end = if self.was_clean { queue.find_end()? } else { queue.find_end_before(from)? };
        self.queues.truncate(queue, end)?;
        queue.set_bounds(0, end);
        let Some(last) = queue.unit(end - 1)? else { return Ok(true) };
        if last.is_blank() || last.physical_offset < self.log.min_offset() {
            return Ok(true);
        }
        self.is_message(queue, end - 1, last)
    }

    /// Whether the log has this message of a queue where its unit says.
    fn is_message(
        &self,
        queue: &ConsumeQueue,
        queue_offset: i64,
        unit: Unit,
    ) -> Result<bool, StoreError> {
        let Some(record) = self.log.look_up(unit.physical_offset)? else { return Ok(false) };
        let Ok(view) = message_codec::decode_record(&record) else { return Ok(false) };
        let place = (view.topic, view.queue_id, view.queue_offset);
        let has_size = usize::try_from(unit.size) == Ok(record.len());
        Ok(has_size && place == (&*queue.topic, queue.queue_id, queue_offset))
    }

    /// Checks all records from `from` on, adds them to their queues, and makes the rest of the log
    /// zeros.
    fn check_log(
        &self,
        from: i64,
        broken: &mut BTreeSet<u64>,
        report: &mut RecoveryReport,
    ) -> Result<(), StoreError> {
        let mut walk = self.log.walk(self.walk_start(from), self.log.written());
        let mut staged = Vec::new();
        report.last_store_timestamp = self.checkpoint.physic_timestamp();
        let reason = loop {
            let step = walk.step(|view| {
                if view.physical_offset < from {
                    return Ok(None);
                }
                view.check_body().map_err(|error| error.to_string())?;
                self.check_torn(view)?;
                Ok(Some((view.store_timestamp, self.entry(view))))
            })?;
            match step {
                Step::Record(None) => {}
                Step::Record(Some((timestamp, entry))) => {
                    report.last_store_timestamp = timestamp;
                    report.checked_records += 1;
                    if let Some(entry) = entry {
                        self.stage(entry, broken, &mut staged)?;
                    }
                }
                Step::End => break "there is no file behind it".to_owned(),
                Step::Invalid(reason) => break reason,
            }
        };
        report.log_end = walk.offset();
        self.refuse_loss(from, &reason, report)?;
        self.commit(&mut staged)?;
        self.cut_log(reason, report)?;
        self.make_durable(from, report.log_end)
    }

    /// Flushes the records that were checked: what was read may be in memory only. After a failed
    /// flush they are written anew, because the kernel takes the pages in memory for saved.
    fn make_durable(&self, from: i64, end: i64) -> Result<(), StoreError> {
        for segment in self.log.segments_between(from, end) {
            if self.checkpoint.is_flush_failed() {
                let mut offset = from.max(segment.start);
                let end = end.min(segment.start + self.log.segment_bytes());
                while offset < end {
                    let length = CHUNK_BYTES.min(end - offset);
                    // Copied first, as the pages read are the pages written.
                    let bytes = segment.bytes(offset, usize::try_from(length).unwrap_or(0))?;
                    let bytes = Vec::from(bytes);
                    let written = segment.file.write_all_at(&bytes, offset.abs_diff(segment.start));
                    written.map_err(StoreError::io("write", &segment.path))?;
                    offset += length;
                }
            }
            self.sync(&segment)?;
        }
        Ok(())
    }

    fn sync(&self, segment: &Segment) -> Result<(), StoreError> {
        segment.file.sync_data().map_err(|error| {
            self.checkpoint.note_flush_failure();
            StoreError::io("flush", &segment.path)(error)
        })
    }

    /// The checksum covers the body alone. Of what follows it, a sector that never reached the disk
    /// is known by its zeros: neither a topic nor properties are made of them, nor do they end so.
    fn check_torn(&self, view: &RecordView<'_>) -> Result<(), String> {
        let properties = match view.properties_bytes.len() {
            0 => 0,
            length => length + 2,
        };
        let length = view.topic.len() + properties;
        let end = view.bytes.len() - if properties == 0 { 2 } else { 0 };
        let tail = view.bytes.get(end - length..end).unwrap_or_default();
        let begin = view.physical_offset.rem_euclid(self.log.segment_bytes())
            + i64::try_from(end - length).unwrap_or(0);
        let first_sector = SECTOR_BYTES - usize::try_from(begin).unwrap_or(0) % SECTOR_BYTES;
        let (first, others) = tail.split_at(first_sector.min(tail.len()));
        let is_zero = |sector: &[u8]| sector.iter().all(|byte| *byte == 0);
        let is_torn =
            others.chunks(SECTOR_BYTES).any(is_zero) || (first.len() > 2 && is_zero(first));
        if is_torn || tail.last() == Some(&0) {
            return Err("a part of topic or properties never reached the disk".to_owned());
        }
        Ok(())
    }

    /// A position that the checkpoint names is where a record begins unless files were exchanged,
    /// so the records before it are walked over. What the queues name has been looked up.
    fn walk_start(&self, from: i64) -> i64 {
        match self.log.segment_at(from) {
            Some(segment) if !self.was_clean => segment.start,
            _ => from,
        }
    }

    /// A log that ends before what was certainly on the disk has lost messages that were
    /// acknowledged. That is for a person to decide.
    fn refuse_loss(
        &self,
        from: i64,
        reason: &str,
        report: &RecoveryReport,
    ) -> Result<(), StoreError> {
        let mut expected = from;
        if self.was_clean {
            for queue in self.queues.all() {
                let last = queue.unit(queue.max_offset() - 1)?.filter(|unit| !unit.is_blank());
                expected = expected.max(last.map_or(0, |unit| unit.physical_end()));
            }
        }
        if report.log_end >= expected || self.config.cut_damaged_log {
            return Ok(());
        }
        Err(StoreError::Damaged {
            path: self.config.store_path_commit_log.clone(),
            offset: report.log_end,
            expected,
            reason: reason.to_owned(),
        })
    }

    /// What a record means for its queue; nothing for a half message or a deleted topic.
    fn entry(&self, view: &RecordView<'_>) -> Option<QueueEntry> {
        let transaction = sys_flag::transaction(view.sys_flag);
        let in_queue = transaction == 0 || transaction == sys_flag::TRANSACTION_COMMIT;
        if !in_queue
            || view.queue_id < 0
            || !(0..=QUEUE_OFFSET_MAX).contains(&view.queue_offset)
            || !put::is_directory_name(view.topic)
            || self.deleted.contains(view.topic, view.physical_offset)
        {
            return None;
        }
        Some(QueueEntry {
            queue: self.queues.get_or_create(view.topic, view.queue_id),
            queue_offset: view.queue_offset,
            unit: Unit {
                physical_offset: view.physical_offset,
                size: i32::try_from(view.bytes.len()).ok()?,
                tags_code: put::tags_code_of_record(view, self.config),
            },
        })
    }

    fn stage(
        &self,
        entry: QueueEntry,
        broken: &mut BTreeSet<u64>,
        staged: &mut Vec<Arc<ConsumeQueue>>,
    ) -> Result<(), StoreError> {
        let QueueEntry { queue, queue_offset, unit } = entry;
        if broken.contains(&queue.number()) {
            return Ok(());
        }
        // A queue that begins in the middle is one whose files are lost, unless the log does too.
        let begins_late = queue.max_offset() == 0 && queue_offset > 0;
        match queue.stage(queue_offset, unit) {
            Err(_) => {
                broken.insert(queue.number());
            }
            Ok(true) if begins_late => {
                broken.insert(queue.number());
            }
            Ok(is_first) => {
                if is_first {
                    staged.push(queue);
                }
                if staged.len() >= STAGED_MAX {
                    self.commit(staged)?;
                }
            }
        }
        Ok(())
    }

    fn commit(&self, staged: &mut Vec<Arc<ConsumeQueue>>) -> Result<(), StoreError> {
        staged.drain(..).try_for_each(|queue| self.queues.commit(&queue))
    }

    /// Drops units of messages that are no longer in the log.
    fn cut_queues(&self, log_end: i64, broken: &mut BTreeSet<u64>) -> Result<(), StoreError> {
        for queue in self.queues.all() {
            let max = queue.max_offset();
            let is_cut = |unit: Unit| Ok(!unit.is_blank() && unit.physical_end() > log_end);
            let last = queue.unit(max - 1)?;
            if last.is_none_or(|unit| unit.is_blank() || unit.physical_end() <= log_end) {
                continue;
            }
            let end = queue.partition_point(0..max, is_cut)?;
            self.queues.truncate(&queue, end)?;
            queue.set_bounds(0, end);
            if !self.find_end(&queue, log_end)? {
                broken.insert(queue.number());
            }
        }
        Ok(())
    }
}
