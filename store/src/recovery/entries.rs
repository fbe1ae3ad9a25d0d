//! What the queues have to know of a piece of the log.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::message_codec::RecordView;
use protocol::sys_flag;

use crate::config::StoreConfig;
use crate::consume_queue::{ConsumeQueue, Unit};
use crate::consume_queue_table::ConsumeQueueTable;
use crate::deleted_topics::DeletedTopics;
use crate::put;

/// A message with a higher number has a damaged one.
const QUEUE_OFFSET_MAX: i64 = 1 << 50;

/// See the module. Made on many threads; the queues are looked up by the one that accepts it, since
/// a piece that is not accepted must leave no trace.
#[derive(Default)]
pub(crate) struct Entries {
    /// Records that were read.
    pub(crate) records: u64,
    /// Store time of the last one.
    pub(crate) last_timestamp: i64,
    /// Queues by topic and number.
    numbers: HashMap<Box<str>, HashMap<i32, u32>>,
    queues: Vec<(Box<str>, i32)>,
    messages: Vec<Entry>,
}

struct Entry {
    queue: u32,
    queue_offset: i64,
    unit: Unit,
}

/// A message and the queue it belongs to.
#[derive(Clone)]
pub(crate) struct QueueEntry {
    pub(crate) queue: Arc<ConsumeQueue>,
    pub(crate) queue_offset: i64,
    pub(crate) unit: Unit,
}

impl Entries {
    /// Adds a record.
    pub(crate) fn push(&mut self, view: &RecordView<'_>, config: &StoreConfig) {
        self.records += 1;
        self.last_timestamp = view.store_timestamp;
        let Some(unit) = unit(view, config) else { return };
        let queue = self.queue(view.topic, view.queue_id);
        self.messages.push(Entry { queue, queue_offset: view.queue_offset, unit });
    }

    /// Notes a record that must not be readable yet.
    pub(crate) fn pass(&mut self, view: &RecordView<'_>) {
        self.records += 1;
        self.last_timestamp = view.store_timestamp;
    }

    fn queue(&mut self, topic: &str, queue_id: i32) -> u32 {
        // Messages of one queue often follow each other.
        if let Some(last) = self.messages.last()
            && let Some((name, id)) = self.queues.get(last.queue as usize)
            && (&**name, *id) == (topic, queue_id)
        {
            return last.queue;
        }
        if !self.numbers.contains_key(topic) {
            self.numbers.insert(topic.into(), HashMap::new());
        }
        let numbers = self.numbers.get_mut(topic).expect("it was just inserted");
        *numbers.entry(queue_id).or_insert_with(|| {
            self.queues.push((topic.into(), queue_id));
            u32::try_from(self.queues.len() - 1).expect("a piece has fewer records")
        })
    }

    /// The messages, each with its queue, which is made if there is none; without those of deleted
    /// topics.
    pub(crate) fn resolve(
        self,
        table: &ConsumeQueueTable,
        deleted: &DeletedTopics,
    ) -> impl Iterator<Item = QueueEntry> {
        let deleted_to: Vec<i64> =
            self.queues.iter().map(|(topic, _)| deleted.end_of(topic)).collect();
        let mut queues: Vec<Option<Arc<ConsumeQueue>>> = vec![None; self.queues.len()];
        let names = self.queues;
        let messages = self.messages.into_iter();
        let resolve = move |entry: Entry| {
            let number = entry.queue as usize;
            if entry.unit.physical_offset < *deleted_to.get(number)? {
                return None;
            }
            let (topic, queue_id) = names.get(number)?;
            let queue = queues.get_mut(number)?;
            let queue = queue.get_or_insert_with(|| table.get_or_create(topic, *queue_id));
            let Entry { queue_offset, unit, .. } = entry;
            Some(QueueEntry { queue: Arc::clone(queue), queue_offset, unit })
        };
        messages.filter_map(resolve)
    }
}

/// What a record means for its queue; nothing for a half message.
pub(crate) fn unit(view: &RecordView<'_>, config: &StoreConfig) -> Option<Unit> {
    let transaction = sys_flag::transaction(view.sys_flag);
    let in_queue = transaction == 0 || transaction == sys_flag::TRANSACTION_COMMIT;
    if !in_queue
        || view.queue_id < 0
        || !(0..=QUEUE_OFFSET_MAX).contains(&view.queue_offset)
        || !put::is_directory_name(view.topic)
    {
        return None;
    }
    Some(Unit {
        physical_offset: view.physical_offset,
        size: i32::try_from(view.bytes.len()).ok()?,
        tags_code: put::tags_code_of_record(view, config),
    })
}
