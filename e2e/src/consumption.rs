//! What a consumer group has been given, to be compared with the offsets that a broker keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use client::{
    ClientInstance, ConcurrentStatus, ConsumeFrom, ConsumerConfig, Delivery, Listener, PushConsumer,
};
use parking_lot::Mutex;

use crate::ledger::{Findings, Sent};

#[derive(Debug, Default)]
struct Progress {
    /// Everything below was delivered.
    next: i64,
    /// Delivered above it.
    beyond: BTreeSet<i64>,
}

#[derive(Debug, Default)]
struct State {
    queues: BTreeMap<i32, Progress>,
    deliveries: u64,
    wrong: Findings,
}

/// See the module. Clones share the record.
#[derive(Clone, Debug, Default)]
pub struct Consumption {
    state: Arc<Mutex<State>>,
}

impl Consumption {
    /// Starts a consumer whose deliveries are noted, and which stores its offsets every 300 ms.
    pub async fn start(
        &self,
        instance: &ClientInstance,
        group: &str,
        topic: &str,
    ) -> Result<PushConsumer> {
        let config = ConsumerConfig {
            consume_from: ConsumeFrom::First,
            concurrency: 8,
            batch_max: 32,
            pull_batch: 64,
            pull_pause: Duration::from_millis(100),
            pull_timeout: Duration::from_secs(5),
            pull_suspend: Duration::from_secs(2),
            persist_interval: Duration::from_millis(300),
            rebalance_interval: Duration::from_secs(1),
            ..ConsumerConfig::new(group, topic, "*")
        };
        let noted = self.clone();
        let listener = Listener::concurrent(move |delivery| {
            noted.delivered(&delivery);
            std::future::ready(ConcurrentStatus::Success)
        });
        Ok(PushConsumer::start(instance, config, listener).await?)
    }

    fn delivered(&self, delivery: &Delivery) {
        let mut state = self.state.lock();
        for message in &delivery.messages {
            state.deliveries += 1;
            if let Err(error) = Sent::read(&message.body) {
                let place = format!("{}/{}", message.queue_id, message.queue_offset);
                state.wrong.note(format!("{place} was delivered: {error}"));
            }
            let progress = state.queues.entry(message.queue_id).or_default();
            if message.queue_offset >= progress.next {
                progress.beyond.insert(message.queue_offset);
            }
            while progress.beyond.remove(&progress.next) {
                progress.next += 1;
            }
        }
    }

    /// Everything below this offset of a queue was delivered.
    pub fn delivered_to(&self, queue: i32) -> i64 {
        self.state.lock().queues.get(&queue).map_or(0, |progress| progress.next)
    }

    /// Deliveries so far, repeated ones included.
    pub fn deliveries(&self) -> u64 {
        self.state.lock().deliveries
    }

    /// Deliveries that were not what was sent.
    pub fn wrong(&self) -> Findings {
        self.state.lock().wrong.clone()
    }
}
