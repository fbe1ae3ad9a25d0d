//! Opening a store: finds the end of the log, cuts off what is no record, and brings the consume
//! queues into step with it.
//!
//! The valid log is the longest prefix of whole records. Behind it everything becomes zeros,
//! durably, before anything is written: a stale record there could otherwise come back to life
//! after a later crash. Records behind the first damage were perhaps acknowledged, so they are
//! copied to
//! `truncated/` first.

mod cut;
mod ends;
pub(crate) mod entries;
pub(crate) mod rebuild;

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::message_codec::RecordView;

use crate::checkpoint::Checkpoint;
use crate::commit_log::scan::Scan;
use crate::commit_log::{CommitLog, Segment};
use crate::config::StoreConfig;
use crate::consume_queue::ConsumeQueue;
use crate::consume_queue_table::ConsumeQueueTable;
use crate::deleted_topics::DeletedTopics;
use crate::disk::Disk;
use crate::error::{ReadError, StoreError};

use ends::Looked;
use entries::{Entries, QueueEntry};

/// A log of at most this many bytes is compared with all its queues, so that the loss of a whole
/// queue is found. In a longer log a lost queue is found when its next message comes.
const FULL_CHECK_BYTES: i64 = 256 << 20;
/// Messages staged, whatever their queues, before they are written: about 20 MB.
const STAGED_MAX: usize = 1_000_000;
/// How often a long recovery says how far it is.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
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
    /// What lies below can be read. Beyond are records that still have to be confirmed.
    pub readable_end: i64,
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

/// Queues with messages that are not written yet.
#[derive(Default)]
struct Staged {
    queues: Vec<Arc<ConsumeQueue>>,
    messages: usize,
}

impl From<ReadError> for StoreError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io { path, source, .. } => Self::Io { action: "read", path, source },
        }
    }
}

impl Staged {
    fn add(&mut self, queue: Arc<ConsumeQueue>, is_first: bool) {
        self.messages += 1;
        if is_first {
            self.queues.push(queue);
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
        let start = if self.was_clean { None } else { Some(self.start()?) };
        let Looked { mut broken, messages_end, units_end } = self.look_at_queues(start)?;
        let from = start.unwrap_or(messages_end);
        report.checked_from = from;
        let expected = if self.was_clean { from.max(units_end) } else { from };
        let limit = if self.config.is_confirm_held { from.max(units_end) } else { i64::MAX };
        self.check_log((from..expected, limit), &mut broken, &mut report)?;
        report.readable_end = report.log_end.min(limit);
        if units_end > report.log_end {
            self.cut_queues(report.log_end, &mut broken)?;
        }
        if report.log_end - report.log_min <= FULL_CHECK_BYTES {
            self.find_missing(&report, &mut broken)?;
        }
        self.rebuild(&broken, &mut report)?;
        self.queues.flush()?;
        self.checkpoint.set_physic(report.last_store_timestamp);
        if report.readable_end == report.log_end {
            self.checkpoint.set_logics(report.last_store_timestamp, report.log_end);
        } else {
            // The time there is not at hand; an earlier one is never wrong.
            self.checkpoint.set_position(report.readable_end);
        }
        self.checkpoint.flush()?;
        report.elapsed = begin.elapsed();
        Ok(report)
    }

    /// Where to check records from after a crash: the checkpoint.
    fn start(&self) -> Result<i64, StoreError> {
        let (min, end) = (self.log.min_offset(), self.log.written());
        let is_inside = |offset: &i64| (min..=end).contains(offset);
        if let Some(position) = self.checkpoint.position().filter(is_inside) {
            return Ok(position);
        }
        self.start_by_time()
    }

    /// Apache's rule: the newest file that begins with a record that was certainly on the disk.
    fn start_by_time(&self) -> Result<i64, StoreError> {
        let durable_until = self.checkpoint.durable_until();
        for segment in self.log.segments().iter().rev() {
            let timestamp = self.log.store_timestamp(segment.start)?.unwrap_or(0);
            if timestamp > 0 && timestamp <= durable_until {
                return Ok(segment.start);
            }
        }
        Ok(self.log.min_offset())
    }

    /// Checks all records from the start of a stretch that should be there at least, adds those
    /// before the limit to their queues, and makes the rest of the log zeros.
    fn check_log(
        &self,
        (Range { start: from, end: expected }, limit): (Range<i64>, i64),
        broken: &mut BTreeSet<u64>,
        report: &mut RecoveryReport,
    ) -> Result<(), StoreError> {
        let mut staged = Staged::default();
        report.last_store_timestamp = self.checkpoint.physic_timestamp();
        let stretch = self.walk_start(from)..self.log.written();
        let check = |entries: &mut Entries, view: &RecordView<'_>| {
            if view.physical_offset < from {
                return Ok(());
            }
            check_record(view, self.log.segment_bytes())?;
            if view.physical_offset < limit {
                entries.push(view, self.config);
            } else {
                entries.pass(view);
            }
            Ok(())
        };
        let mut progress = progress("checking the commit log", &stretch);
        let end = Scan::new(self.log).run(stretch, &check, |entries, offset| {
            progress(offset);
            if entries.records > 0 {
                report.last_store_timestamp = entries.last_timestamp;
                report.checked_records += entries.records;
            }
            let mut entries = entries.resolve(self.queues, self.deleted);
            entries.try_for_each(|entry| self.stage(entry, broken, &mut staged))
        })?;
        report.log_end = end.offset;
        let reason = end.invalid.unwrap_or_else(|| "there is no file behind it".to_owned());
        self.refuse_loss(expected, &reason, report)?;
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
        expected: i64,
        reason: &str,
        report: &RecoveryReport,
    ) -> Result<(), StoreError> {
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

    fn stage(
        &self,
        entry: QueueEntry,
        broken: &mut BTreeSet<u64>,
        staged: &mut Staged,
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
            Ok(is_first) => staged.add(queue, is_first),
        }
        self.commit_many(staged)
    }

    /// Writes what is staged when it is a lot.
    fn commit_many(&self, staged: &mut Staged) -> Result<(), StoreError> {
        if staged.messages >= STAGED_MAX { self.commit(staged) } else { Ok(()) }
    }

    fn commit(&self, staged: &mut Staged) -> Result<(), StoreError> {
        staged.messages = 0;
        staged.queues.drain(..).try_for_each(|queue| self.queues.commit(&queue))
    }
}

/// What a record must be beside well-formed to be part of the valid log.
pub(crate) fn check_record(view: &RecordView<'_>, segment_bytes: i64) -> Result<(), String> {
    view.check_body().map_err(|error| error.to_string())?;
    check_torn(view, segment_bytes)
}

/// The checksum covers the body alone. Of what follows it, a sector that never reached the disk
/// is known by its zeros: neither a topic nor properties are made of them, nor do they end so.
fn check_torn(view: &RecordView<'_>, segment_bytes: i64) -> Result<(), String> {
    let properties = match view.properties_bytes.len() {
        0 => 0,
        length => length + 2,
    };
    let length = view.topic.len() + properties;
    let end = view.bytes.len() - if properties == 0 { 2 } else { 0 };
    let tail = view.bytes.get(end - length..end).unwrap_or_default();
    let begin =
        view.physical_offset.rem_euclid(segment_bytes) + i64::try_from(end - length).unwrap_or(0);
    let first_sector = SECTOR_BYTES - usize::try_from(begin).unwrap_or(0) % SECTOR_BYTES;
    let (first, others) = tail.split_at(first_sector.min(tail.len()));
    let is_zero = |sector: &[u8]| sector.iter().all(|byte| *byte == 0);
    let is_torn = others.chunks(SECTOR_BYTES).any(is_zero) || (first.len() > 2 && is_zero(first));
    if is_torn || tail.last() == Some(&0) {
        return Err("a part of topic or properties never reached the disk".to_owned());
    }
    Ok(())
}

/// Says about once a second how far a long work on a stretch of the log is.
pub(crate) fn progress(what: &'static str, stretch: &Range<i64>) -> impl FnMut(i64) + use<> {
    let Range { start, end } = *stretch;
    let mut said = Instant::now();
    move |offset| {
        if said.elapsed() >= PROGRESS_INTERVAL {
            said = Instant::now();
            let percent = (offset - start).max(0) * 100 / (end - start).max(1);
            tracing::info!(percent, offset, end, "{what}");
        }
    }
}
