//! The part of the log that no sender of this broker waits for: records that a master placed, or
//! that were there at the start but not yet confirmed. They are read from the log when they may
//! become readable, so that a slave keeps nothing in memory for them.

use std::ops::Range;
use std::sync::Arc;

use protocol::message_codec::RecordView;

use crate::commit_log::append::WrittenGroup;
use crate::commit_log::scan::Scan;
use crate::commit_log::{CommitLog, Step};
use crate::config::StoreConfig;
use crate::consume_queue_table::ConsumeQueueTable;
use crate::deleted_topics::DeletedTopics;
use crate::dispatch::DispatchRequest;
use crate::error::StoreError;
use crate::recovery::entries::{self, Entries};

/// Records that become readable in one go.
const RECORDS_PER_GROUP: usize = 4_096;

/// See the module.
pub(crate) struct Tail {
    pub(crate) config: Arc<StoreConfig>,
    pub(crate) log: Arc<CommitLog>,
    pub(crate) queues: Arc<ConsumeQueueTable>,
    pub(crate) deleted: Arc<DeletedTopics>,
}

impl Tail {
    /// Some of the records of a stretch, from its start on; nothing when none is whole.
    pub(crate) fn read(&self, stretch: Range<i64>) -> Result<Option<WrittenGroup>, StoreError> {
        // Retention may have come first.
        let begin = stretch.start.max(self.log.min_offset());
        let mut group = WrittenGroup::unsent(begin..begin, 0);
        let mut walk = self.log.walk(begin, stretch.end);
        for _ in 0..RECORDS_PER_GROUP {
            let step = walk.step(|view| {
                let end = view.physical_offset + i64::try_from(view.bytes.len()).unwrap_or(0);
                Ok((end <= stretch.end, view.store_timestamp, self.request(view)))
            });
            match step? {
                Step::Record((true, timestamp, request)) => {
                    group.timestamp = timestamp;
                    group.dispatches.extend(request);
                    group.end = walk.offset();
                }
                // Confirmed in the middle.
                Step::Record((false, ..)) => break,
                // Behind a filler too, if all of it is confirmed.
                Step::End => {
                    if walk.offset() <= stretch.end {
                        group.end = walk.offset();
                    }
                    break;
                }
                Step::Invalid(reason) => {
                    let path = self.log.dir().to_owned();
                    let (offset, expected) = (walk.offset(), stretch.end);
                    return Err(StoreError::Damaged { path, offset, expected, reason });
                }
            }
        }
        Ok((group.end > stretch.start).then_some(group))
    }

    fn request(&self, view: &RecordView<'_>) -> Option<DispatchRequest> {
        let unit = entries::unit(view, &self.config)?;
        if view.physical_offset < self.deleted.end_of(view.topic) {
            return None;
        }
        Some(DispatchRequest {
            queue: self.queues.get_or_create(view.topic, view.queue_id),
            physical_offset: view.physical_offset,
            record_bytes: view.bytes.len(),
            queue_offset: view.queue_offset,
            tags_code: unit.tags_code,
            store_timestamp: view.store_timestamp,
            sys_flag: view.sys_flag,
        })
    }

    /// Lets the numbers of all queues go on behind the records of this stretch, which are all that
    /// cannot be read yet. Nobody may append or dispatch meanwhile.
    pub(crate) fn number_queues(&self, stretch: Range<i64>) -> Result<(), StoreError> {
        self.queues.all().iter().for_each(|queue| queue.restart_numbers());
        let begin = stretch.start.max(self.log.min_offset());
        let check = |entries: &mut Entries, view: &RecordView<'_>| {
            entries.push(view, &self.config);
            Ok(())
        };
        let expected = stretch.end;
        let end = Scan::new(&self.log).run(begin..expected, &check, |entries, _| {
            for entry in entries.resolve(&self.queues, &self.deleted) {
                entry.queue.raise_next(entry.queue_offset + 1);
            }
            Ok(())
        })?;
        let Some(reason) = end.invalid else { return Ok(()) };
        let path = self.log.dir().to_owned();
        Err(StoreError::Damaged { path, offset: end.offset, expected, reason })
    }

    /// Whether a record or filler ends at `to`, walking from a boundary before.
    pub(crate) fn is_boundary(&self, from: i64, to: i64) -> Result<bool, StoreError> {
        let mut walk = self.log.walk(from.max(self.log.min_offset()), to);
        loop {
            match walk.step(|_| Ok(()))? {
                Step::Record(()) => {}
                Step::End => return Ok(walk.offset() == to),
                Step::Invalid(_) => return Ok(false),
            }
        }
    }
}
