//! How far consumer groups are behind.

use store::ReadError;

use crate::broker::Broker;
use crate::clock::now_ms;

/// How far a group is behind in a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lag {
    pub(crate) topic: String,
    pub(crate) group: String,
    /// Messages not yet acknowledged.
    pub(crate) messages: i64,
    /// Of them, those that were handed out.
    pub(crate) inflight: i64,
    /// Age of the oldest of them, in milliseconds.
    pub(crate) latency_ms: i64,
}

/// How far a group is in one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueProgress {
    /// End of the queue.
    pub(crate) broker_offset: i64,
    pub(crate) consumer_offset: i64,
    /// Where it pulls.
    pub(crate) pull_offset: i64,
}

impl Broker {
    /// How far a group is in one queue.
    pub(crate) fn queue_progress(&self, group: &str, topic: &str, queue_id: i32) -> QueueProgress {
        let broker_offset = self.store.max_offset(topic, queue_id).max(0);
        let consumer_offset = self.offsets.get(group, topic, queue_id).unwrap_or_default().max(0);
        let pulled = self.offsets.last_pulled(group, topic, queue_id).unwrap_or_default();
        QueueProgress { broker_offset, consumer_offset, pull_offset: pulled.max(consumer_offset) }
    }

    /// When the last message that a group has consumed of a queue was stored; 0 for none.
    pub(crate) fn consumed_until(
        &self,
        topic: &str,
        queue_id: i32,
        consumer_offset: i64,
    ) -> Result<i64, ReadError> {
        if consumer_offset <= 0 {
            return Ok(0);
        }
        let time = self.store.store_time(topic, queue_id, consumer_offset - 1)?;
        Ok(time.unwrap_or_default())
    }

    /// How far each group is behind in each topic of which it has offsets.
    pub(crate) fn lags(&self) -> Vec<Lag> {
        let now = now_ms();
        let mut lags = Vec::new();
        for (key, queues) in self.offsets.table().offset_table {
            let Some((topic, group)) = key.split_once('@') else { continue };
            let mut lag = Lag {
                topic: topic.to_owned(),
                group: group.to_owned(),
                messages: 0,
                inflight: 0,
                latency_ms: 0,
            };
            for queue_id in queues.into_keys() {
                let progress = self.queue_progress(group, topic, queue_id);
                let behind = progress.broker_offset - progress.consumer_offset;
                if behind <= 0 {
                    continue;
                }
                lag.messages += behind;
                lag.inflight += (progress.pull_offset - progress.consumer_offset).clamp(0, behind);
                let oldest = self.store.store_time(topic, queue_id, progress.consumer_offset);
                if let Ok(Some(oldest)) = oldest {
                    lag.latency_ms = lag.latency_ms.max(now - oldest);
                }
            }
            lags.push(lag);
        }
        lags
    }
}
