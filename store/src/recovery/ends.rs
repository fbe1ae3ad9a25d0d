//! Finding the end of each queue, and cutting off what the log no longer has.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use protocol::message_codec;

use super::{Recovery, progress};
use crate::consume_queue::{ConsumeQueue, Unit};
use crate::error::StoreError;

/// Fewer queues than this are looked at by one thread.
const QUEUES_PER_THREAD_MIN: usize = 500;
/// Threads that look at queues.
const THREADS_MAX: usize = 4;

/// What a look at queues found.
#[derive(Debug)]
pub(super) struct Looked {
    /// Queues that have to be rebuilt.
    pub(super) broken: BTreeSet<u64>,
    /// Behind the last record of which a queue knows and which the log has.
    pub(super) messages_end: i64,
    /// Behind the last record of which a queue knows.
    pub(super) units_end: i64,
}

/// The end of one queue.
pub(super) struct QueueEnd {
    /// Its files fit together and its last message is the one that the log has there.
    pub(super) is_whole: bool,
    /// Behind the last record that it knows; 0 for none.
    units_end: i64,
    /// The same, if the log has that record.
    messages_end: i64,
}

impl Recovery<'_> {
    /// Finds files and end of each queue: after a crash the end before the offset from which on
    /// records are checked.
    pub(super) fn look_at_queues(&self, before: Option<i64>) -> Result<Looked, StoreError> {
        let queues = self.queues.all();
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = threads.min(THREADS_MAX).min(queues.len() / QUEUES_PER_THREAD_MIN).max(1);
        let next = AtomicUsize::new(0);
        let work = || {
            let mut looked = self.looked_at_nothing();
            let count = i64::try_from(queues.len()).unwrap_or(i64::MAX);
            let mut said = progress("reading consume queues", &(0..count));
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(queue) = queues.get(index) else { return Ok(looked) };
                said(i64::try_from(index).unwrap_or(i64::MAX));
                let QueueEnd { is_whole, units_end, messages_end } = self.look_at(queue, before)?;
                looked.units_end = looked.units_end.max(units_end);
                looked.messages_end = looked.messages_end.max(messages_end);
                if !is_whole {
                    looked.broken.insert(queue.number());
                }
            }
        };
        if threads == 1 {
            return work();
        }
        let parts: Vec<Result<Looked, StoreError>> = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let join = |handle: std::thread::ScopedJoinHandle<'_, _>| {
                handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            handles.into_iter().map(join).collect()
        });
        let mut all = self.looked_at_nothing();
        for part in parts {
            let part = part?;
            all.broken.extend(part.broken);
            all.messages_end = all.messages_end.max(part.messages_end);
            all.units_end = all.units_end.max(part.units_end);
        }
        Ok(all)
    }

    fn looked_at_nothing(&self) -> Looked {
        let min = self.log.min_offset();
        Looked { broken: BTreeSet::new(), messages_end: min, units_end: min }
    }

    fn look_at(
        &self,
        queue: &Arc<ConsumeQueue>,
        before: Option<i64>,
    ) -> Result<QueueEnd, StoreError> {
        let wrong = queue.load_files()?;
        for path in &wrong {
            let path = path.display();
            tracing::warn!(%path, "consume queue file has a wrong size or place");
        }
        let mut end = self.find_end(queue, before)?;
        end.is_whole &= wrong.is_empty();
        Ok(end)
    }

    fn find_end(
        &self,
        queue: &Arc<ConsumeQueue>,
        before: Option<i64>,
    ) -> Result<QueueEnd, StoreError> {
        let end = match before {
            None => queue.find_end()?,
            Some(before) => queue.find_end_before(before)?,
        };
        self.queues.truncate(queue, end)?;
        queue.set_bounds(0, end);
        let mut found = QueueEnd { is_whole: true, units_end: 0, messages_end: 0 };
        let Some(last) = queue.unit(end - 1)?.filter(|last| !last.is_blank()) else {
            queue.correct_min(self.log.min_offset())?;
            return Ok(found);
        };
        found.units_end = last.physical_end();
        if last.physical_offset >= self.log.min_offset() {
            found.is_whole = self.is_message(queue, end - 1, last)?;
            found.messages_end = if found.is_whole { last.physical_end() } else { 0 };
        }
        queue.correct_min(self.log.min_offset())?;
        Ok(found)
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

    /// Drops units of messages that are no longer in the log.
    pub(super) fn cut_queues(
        &self,
        log_end: i64,
        broken: &mut BTreeSet<u64>,
    ) -> Result<(), StoreError> {
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
            if !self.find_end(&queue, Some(log_end))?.is_whole {
                broken.insert(queue.number());
            }
        }
        Ok(())
    }
}
