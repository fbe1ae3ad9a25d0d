//! Brokers that are better left alone for a while.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::RwLock;
use protocol::body::MessageQueue;
use tokio::time::Instant;

/// From this latency on (milliseconds), a broker is avoided for so long. Apache's table.
const AVOID: [(u64, u64); 5] =
    [(15_000, 30_000), (5_000, 10_000), (3_000, 6_000), (1_800, 5_000), (550, 2_000)];
/// A broker that did not answer, or said that it cannot, is avoided for so long.
const AVOID_FAILED: Duration = Duration::from_secs(10);
/// Brokers that are remembered at most; when there are more, those whose time is over go.
const BROKERS_MAX: usize = 1_024;

/// Until when each broker is to be avoided.
#[derive(Debug, Default)]
pub(crate) struct FaultTable {
    until: RwLock<HashMap<String, Instant>>,
}

impl FaultTable {
    /// Takes note of how long a broker took to answer.
    pub(crate) fn answered(&self, broker: &str, latency: Duration) {
        let slow = AVOID.iter().find(|(over, _)| latency >= Duration::from_millis(*over));
        match slow {
            Some((_, millis)) => self.avoid(broker, Duration::from_millis(*millis)),
            None if self.until.read().is_empty() => {}
            None => drop(self.until.write().remove(broker)),
        }
    }

    /// Takes note of a broker that could not do its work.
    pub(crate) fn failed(&self, broker: &str) {
        self.avoid(broker, AVOID_FAILED);
    }

    fn avoid(&self, broker: &str, time: Duration) {
        let now = Instant::now();
        let mut until = self.until.write();
        if until.len() >= BROKERS_MAX {
            until.retain(|_, until| *until > now);
        }
        if until.len() < BROKERS_MAX {
            until.insert(broker.to_owned(), now + time);
        }
    }

    /// The first queue from `start` on, in a circle, at a broker that is fit and is not the one
    /// that has just failed; then one at any other broker; then any.
    pub(crate) fn pick<'a>(
        &self,
        queues: &'a [MessageQueue],
        start: usize,
        failed: Option<&str>,
    ) -> Option<&'a MessageQueue> {
        let (before, from) = queues.split_at_checked(start % queues.len().max(1))?;
        let circle = || from.iter().chain(before);
        let other = |queue: &&MessageQueue| failed != Some(queue.broker_name.as_str());
        let fit = {
            let until = self.until.read();
            let now = Instant::now();
            let fit = |queue: &&MessageQueue| {
                until.get(&queue.broker_name).is_none_or(|until| *until <= now)
            };
            circle().filter(other).find(fit)
        };
        fit.or_else(|| circle().find(other)).or_else(|| circle().next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues() -> Vec<MessageQueue> {
        let queue = |broker: &str, queue_id| MessageQueue {
            topic: "t".into(),
            broker_name: broker.into(),
            queue_id,
        };
        vec![queue("a", 0), queue("a", 1), queue("b", 0), queue("b", 1)]
    }

    fn picked(table: &FaultTable, start: usize, failed: Option<&str>) -> String {
        let queues = queues();
        let queue = table.pick(&queues, start, failed).unwrap();
        format!("{}{}", queue.broker_name, queue.queue_id)
    }

    #[tokio::test(start_paused = true)]
    async fn queues_are_taken_in_turn_and_failed_brokers_avoided() {
        let table = FaultTable::default();
        let turn: Vec<_> = (0..5).map(|start| picked(&table, start, None)).collect();
        assert_eq!(turn, ["a0", "a1", "b0", "b1", "a0"]);
        assert_eq!(picked(&table, 0, Some("a")), "b0");
        table.failed("b");
        assert_eq!(picked(&table, 2, None), "a0");
        // Both are bad: rather the one that has not failed right now.
        assert_eq!(picked(&table, 0, Some("a")), "b0");
        tokio::time::advance(AVOID_FAILED).await;
        assert_eq!(picked(&table, 2, None), "b0");
        assert!(table.pick(&[], 3, None).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn slow_brokers_are_avoided_by_their_latency() {
        for (latency, avoided) in [(549, 0), (550, 2_000), (2_999, 5_000), (60_000, 30_000)] {
            let table = FaultTable::default();
            table.answered("a", Duration::from_millis(latency));
            let expected = if avoided == 0 { "a0" } else { "b0" };
            assert_eq!(picked(&table, 0, None), expected, "{latency}");
            tokio::time::advance(Duration::from_millis(avoided)).await;
            assert_eq!(picked(&table, 0, None), "a0", "{latency}");
        }
        let table = FaultTable::default();
        table.failed("a");
        table.answered("a", Duration::from_millis(5));
        assert_eq!(picked(&table, 0, None), "a0");
    }
}
