//! Every record of the log, and every queue compared with it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use protocol::message_codec::RecordView;
use serde::Serialize;

use crate::commit_log::CommitLog;
use crate::commit_log::scan::Scan;
use crate::config::StoreConfig;
use crate::consume_queue_table::ConsumeQueueTable;
use crate::deleted_topics::DeletedTopics;
use crate::dry_run::DryRunDisk;
use crate::error::{ReadError, StoreError};
use crate::recovery::entries::{Entries, QueueEntry};
use crate::recovery::rebuild::UnitsAhead;
use crate::recovery::{check_record, progress};

/// Damages that are listed one by one; a log with more is beyond a list.
const DAMAGES_MAX: usize = 1_000;

/// The commit log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogFinding {
    /// Number of files.
    pub files: usize,
    /// Bytes of each.
    pub file_bytes: i64,
    /// First byte.
    pub min_offset: i64,
    /// Behind the last good record.
    pub end_offset: i64,
    /// Good records.
    pub records: u64,
    /// Store time of the last one, epoch milliseconds.
    pub last_store_timestamp: i64,
    /// What is damaged before the last good record.
    pub damages: Vec<Damage>,
    /// There are more damages than are listed, and nothing behind them was looked at.
    pub has_more_damages: bool,
}

/// A stretch of the log that holds no good record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Damage {
    /// Where it begins.
    pub offset: i64,
    /// Where the next good record, or the next file, begins.
    pub end: i64,
    /// What is wrong.
    pub reason: String,
}

/// A queue that does not agree with the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueFinding {
    /// Topic.
    pub topic: String,
    /// Queue.
    pub queue: i32,
    /// Messages of the log that it does not have.
    pub lacks: u64,
    /// Messages for which it has another place, size or tag than the log.
    pub contradicts: u64,
    /// Messages that it has and the log has not.
    pub surplus: u64,
    /// A start repairs it.
    pub is_repaired: bool,
}

#[derive(Debug, Default)]
struct Tally {
    lacks: u64,
    contradicts: u64,
    /// Messages that stay wrong after a start.
    left: u64,
    /// Behind the last message that the log has.
    end: i64,
}

/// The store as it is, opened on a disk on which nothing really happens.
pub(super) struct LogInspection<'a> {
    config: &'a StoreConfig,
    log: CommitLog,
    queues: ConsumeQueueTable,
    deleted: DeletedTopics,
}

impl<'a> LogInspection<'a> {
    pub(super) fn open(config: &'a StoreConfig) -> Result<Self, StoreError> {
        let disk = Arc::new(DryRunDisk::default());
        let segment_bytes = config.mapped_file_size_commit_log;
        let dir = &config.store_path_commit_log;
        let log = CommitLog::open(Arc::clone(&disk) as _, dir, segment_bytes)?;
        let queues = ConsumeQueueTable::new(Arc::clone(&disk) as _, config);
        let deleted = DeletedTopics::open(disk, config)?;
        queues.load_names()?;
        for queue in queues.all() {
            queue.load_files()?;
            queue.set_bounds(0, queue.find_end_before(i64::MAX)?);
        }
        Ok(Self { config, log, queues, deleted })
    }

    /// Topics and queues.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.queues.topics().len(), self.queues.all().len())
    }

    /// Compares everything; `after` are the queues as a start would leave them.
    pub(super) fn run(
        &self,
        after: Option<&ConsumeQueueTable>,
    ) -> Result<(LogFinding, Vec<QueueFinding>), StoreError> {
        let mut comparison = Comparison {
            queues: &self.queues,
            deleted: &self.deleted,
            log_min: self.log.min_offset(),
            after,
            ahead: UnitsAhead::default(),
            ahead_after: UnitsAhead::default(),
            tallies: BTreeMap::new(),
        };
        let mut finding = LogFinding {
            files: self.log.segments().len(),
            file_bytes: self.log.segment_bytes(),
            min_offset: self.log.min_offset(),
            ..LogFinding::default()
        };
        finding.end_offset = finding.min_offset;
        let whole = finding.min_offset..self.log.written();
        let mut said = progress("checking every record", &whole);
        let mut from = finding.min_offset;
        loop {
            let reason = self.walk(from..whole.end, (&mut finding, &mut comparison), &mut said)?;
            let Some(reason) = reason else { break };
            let offset = finding.end_offset;
            // The end of a log is no damage, unless there is more behind it.
            let Some(next) = self.next_record(offset + 1..whole.end)? else { break };
            if finding.damages.len() >= DAMAGES_MAX {
                finding.has_more_damages = true;
                break;
            }
            finding.damages.push(Damage { offset, end: next, reason });
            from = next;
        }
        let bad_queues = comparison.finish()?;
        Ok((finding, bad_queues))
    }

    /// Checks records up to the first that is none, and says why it is not.
    fn walk(
        &self,
        stretch: Range<i64>,
        (finding, comparison): (&mut LogFinding, &mut Comparison<'_>),
        said: &mut impl FnMut(i64),
    ) -> Result<Option<String>, StoreError> {
        let segment_bytes = self.log.segment_bytes();
        let check = |entries: &mut Entries, view: &RecordView<'_>| {
            check_record(view, segment_bytes)?;
            entries.push(view, self.config);
            Ok(())
        };
        let end = Scan::new(&self.log).run(stretch, &check, |entries, offset| {
            said(offset);
            if entries.records > 0 {
                finding.records += entries.records;
                finding.last_store_timestamp = entries.last_timestamp;
            }
            comparison.compare(entries)
        })?;
        finding.end_offset = end.offset;
        Ok(end.invalid)
    }

    /// The next place from which on there are records.
    fn next_record(&self, stretch: Range<i64>) -> Result<Option<i64>, ReadError> {
        let scan = Scan::new(&self.log);
        let mut from = stretch.start;
        while let Some(found) = scan.find(from..stretch.end)? {
            // Not a filler that nothing follows.
            if self.log.look_up(found)?.is_some() {
                return Ok(Some(found));
            }
            from = self.log.next_segment(found);
        }
        Ok(None)
    }
}

struct Comparison<'a> {
    queues: &'a ConsumeQueueTable,
    deleted: &'a DeletedTopics,
    log_min: i64,
    after: Option<&'a ConsumeQueueTable>,
    ahead: UnitsAhead,
    ahead_after: UnitsAhead,
    tallies: BTreeMap<u64, Tally>,
}

impl Comparison<'_> {
    fn compare(&mut self, entries: Entries) -> Result<(), StoreError> {
        for QueueEntry { queue, queue_offset, unit } in entries.resolve(self.queues, self.deleted) {
            let tally = self.tallies.entry(queue.number()).or_default();
            tally.end = tally.end.max(queue_offset + 1);
            match self.ahead.get(&queue, queue_offset)? {
                Some(found) if found == unit => continue,
                None => tally.lacks += 1,
                Some(found) if !found.is_written() || found.is_blank() => tally.lacks += 1,
                Some(_) => tally.contradicts += 1,
            }
            let after = self.after.and_then(|table| table.get(&queue.topic, queue.queue_id));
            let is_repaired = match after {
                Some(after) => self.ahead_after.get(&after, queue_offset)? == Some(unit),
                None => false,
            };
            tally.left += u64::from(!is_repaired);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<QueueFinding>, StoreError> {
        let mut findings = Vec::new();
        for queue in self.queues.all() {
            let tally = self.tallies.remove(&queue.number()).unwrap_or_default();
            let mut surplus = queue.max_offset() - tally.end;
            if tally.end == 0 {
                // All that it has had may be gone from the log; then its last message is, too.
                surplus = queue.max_offset() - queue.correct_min(self.log_min)?;
            }
            let surplus = surplus.max(0).cast_unsigned();
            if tally.lacks + tally.contradicts + surplus == 0 {
                continue;
            }
            let after = self.after.and_then(|table| table.get(&queue.topic, queue.queue_id));
            let is_cut = surplus == 0
                || self.after.is_some()
                    && after.is_none_or(|after| after.max_offset() <= tally.end);
            findings.push(QueueFinding {
                topic: queue.topic.to_string(),
                queue: queue.queue_id,
                lacks: tally.lacks,
                contradicts: tally.contradicts,
                surplus,
                is_repaired: tally.left == 0 && is_cut,
            });
        }
        findings.sort_by(|left, right| (&left.topic, left.queue).cmp(&(&right.topic, right.queue)));
        Ok(findings)
    }
}
