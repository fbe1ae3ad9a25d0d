//! Finding queues that lack messages, and building them anew from the log.

use std::collections::{BTreeSet, HashMap};

use protocol::message_codec::RecordView;

use super::{Entries, QueueEntry, Recovery, RecoveryReport, Staged, progress};
use crate::commit_log::scan::Scan;
use crate::consume_queue::{ConsumeQueue, Unit};
use crate::error::{ReadError, StoreError};

/// Units of one queue read at once to be compared with the log.
const UNITS_AHEAD: usize = 32;

/// More messages than this are never missing between two others.
const GAP_MAX: i64 = 1_000_000;

/// Messages that came out of order, by queue: see [`Recovery::rebuild_message`].
type Suspects = HashMap<u64, QueueEntry>;

/// Units of queues, read some at a time in step with the log.
#[derive(Default)]
pub(crate) struct UnitsAhead(HashMap<u64, (i64, Vec<Unit>)>);

impl UnitsAhead {
    /// The unit of a message.
    pub(crate) fn get(
        &mut self,
        queue: &ConsumeQueue,
        queue_offset: i64,
    ) -> Result<Option<Unit>, ReadError> {
        let (first, units) = self.0.entry(queue.number()).or_default();
        if !(*first..*first + units.len() as i64).contains(&queue_offset) {
            *first = queue_offset;
            *units = queue.units(queue_offset, UNITS_AHEAD)?;
        }
        let index = usize::try_from(queue_offset - *first).unwrap_or(usize::MAX);
        Ok(units.get(index).copied())
    }
}

impl Recovery<'_> {
    /// Compares every message in the log with its queue.
    pub(super) fn find_missing(
        &self,
        report: &RecoveryReport,
        broken: &mut BTreeSet<u64>,
    ) -> Result<(), StoreError> {
        let mut units = UnitsAhead::default();
        let stretch = report.log_min..report.readable_end;
        Scan::new(self.log).run(stretch, &self.collect(), |entries, _| {
            for QueueEntry { queue, queue_offset, unit } in
                entries.resolve(self.queues, self.deleted)
            {
                if broken.contains(&queue.number()) {
                    continue;
                }
                if units.get(&queue, queue_offset)? != Some(unit) {
                    broken.insert(queue.number());
                }
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Collects records that have been checked before.
    fn collect(&self) -> impl Fn(&mut Entries, &RecordView<'_>) -> Result<(), String> + Sync {
        |entries, view| {
            entries.push(view, self.config);
            Ok(())
        }
    }

    /// Builds queues anew from the log.
    pub(super) fn rebuild(
        &self,
        broken: &BTreeSet<u64>,
        report: &mut RecoveryReport,
    ) -> Result<(), StoreError> {
        if broken.is_empty() {
            return Ok(());
        }
        for queue in self.queues.all() {
            if broken.contains(&queue.number()) {
                self.queues.clear(&queue)?;
                report.rebuilt_queues.push(format!("{}/{}", queue.topic, queue.queue_id));
            }
        }
        report.rebuilt_queues.sort();
        let mut staged = Staged::default();
        let mut suspects = Suspects::new();
        let stretch = report.log_min..report.readable_end;
        let mut progress = progress("building consume queues", &stretch);
        Scan::new(self.log).run(stretch, &self.collect(), |entries, offset| {
            progress(offset);
            for entry in entries.resolve(self.queues, self.deleted) {
                if broken.contains(&entry.queue.number()) {
                    self.rebuild_message(entry, &mut suspects, &mut staged)?;
                    self.commit_many(&mut staged)?;
                }
            }
            Ok(())
        })?;
        self.commit(&mut staged)?;
        for suspect in suspects.into_values() {
            self.leave_out(&suspect)?;
        }
        for queue in self.queues.all() {
            if broken.contains(&queue.number()) {
                queue.correct_min(report.log_min)?;
            }
        }
        Ok(())
    }

    /// Adds one message to its queue. Numbers in the log are consecutive, so a message that leaves
    /// a gap has a damaged number (no checksum covers it), unless the next one follows it: then
    /// those between are lost.
    fn rebuild_message(
        &self,
        entry: QueueEntry,
        suspects: &mut Suspects,
        staged: &mut Staged,
    ) -> Result<(), StoreError> {
        let number = entry.queue.number();
        if let Some(suspect) = suspects.remove(&number) {
            let gap = suspect.queue_offset - suspect.queue.max_offset();
            if entry.queue_offset == suspect.queue_offset + 1 && gap <= GAP_MAX {
                tracing::error!(
                    topic = &*entry.queue.topic,
                    queue = entry.queue.queue_id,
                    next = suspect.queue_offset,
                    "the log lacks messages of this queue"
                );
                self.queues.skip_to(&suspect.queue, suspect.queue_offset)?;
                self.rebuild_message(suspect, suspects, staged)?;
            } else {
                self.leave_out(&suspect)?;
            }
        }
        match entry.queue.stage(entry.queue_offset, entry.unit) {
            Ok(is_first) => staged.add(entry.queue, is_first),
            Err(_) => {
                self.queues.commit(&entry.queue)?;
                suspects.insert(number, entry);
            }
        }
        Ok(())
    }

    /// Leaves the place of a message with a damaged number empty.
    fn leave_out(&self, entry: &QueueEntry) -> Result<(), StoreError> {
        let QueueEntry { queue, queue_offset, unit } = entry;
        let offset = queue.max_offset();
        tracing::error!(
            topic = &*queue.topic,
            queue = queue.queue_id,
            queue_offset,
            physical_offset = unit.physical_offset,
            "the record that should have number {offset} has another one and is left out"
        );
        self.queues.skip_to(queue, offset + 1)
    }
}
