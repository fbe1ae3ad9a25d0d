//! The receiving side of a benchmark.

use std::sync::Arc;
use std::time::Duration;

use client::{
    ClientInstance, ConcurrentStatus, ConsumeFrom, ConsumerConfig, ConsumerError, Delivery,
    Listener, PushConsumer,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::ledger::Ledger;
use super::recorder::Recorder;
use super::stamp::Clock;

/// Messages that a listener gets at once at most.
const DELIVERY_MAX: usize = 32;
/// How often it is looked at whether there is more to wait for.
const POLL: Duration = Duration::from_millis(20);
/// The last deliveries end at once.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// What receives, and what came.
pub(crate) struct Receiver {
    consumer: PushConsumer,
    inner: Arc<Inner>,
}

struct Inner {
    ledger: Mutex<Ledger>,
    recorder: Arc<Recorder>,
    clock: Clock,
    /// When the first and the last message came.
    times: Mutex<Option<(Instant, Instant)>>,
}

/// What is received.
pub(crate) struct Wanted {
    pub(crate) topics: Vec<String>,
    pub(crate) group: String,
    pub(crate) from: ConsumeFrom,
    pub(crate) pull_batch: i32,
    /// Messages of this run, or of all.
    pub(crate) run: Option<u64>,
}

impl Receiver {
    pub(crate) async fn start(
        instance: &ClientInstance,
        wanted: Wanted,
        recorder: Arc<Recorder>,
        clock: Clock,
    ) -> Result<Self, ConsumerError> {
        let mut config = ConsumerConfig::new(&wanted.group, "", "*");
        config.subscriptions =
            wanted.topics.iter().map(|topic| (topic.clone(), "*".to_owned())).collect();
        config.consume_from = wanted.from;
        config.batch_max = DELIVERY_MAX;
        config.pull_batch = wanted.pull_batch;
        config.shutdown_timeout = SHUTDOWN_TIMEOUT;
        let inner = Arc::new(Inner {
            ledger: Mutex::new(Ledger::new(wanted.run)),
            recorder,
            clock,
            times: Mutex::default(),
        });
        let taking = Arc::clone(&inner);
        let listener = Listener::concurrent(move |delivery| {
            taking.take(&delivery);
            std::future::ready(ConcurrentStatus::Success)
        });
        let consumer = PushConsumer::start(instance, config, listener).await?;
        Ok(Self { consumer, inner })
    }

    /// Waits until so many queues are being read.
    pub(crate) async fn wait_for_queues(&self, queues: usize, limit: Duration) -> bool {
        let all = async {
            while self.consumer.queues().len() < queues {
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(limit, all).await.is_ok()
    }

    /// Waits until so many different messages have come, or none came for `idle`.
    pub(crate) async fn wait_for(&self, count: u64, idle: Duration) {
        let began = Instant::now();
        while self.inner.ledger.lock().distinct() < count && self.idle_since(began) < idle {
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until nothing is missing that was acknowledged, or none came for `idle`.
    pub(crate) async fn settle(&self, idle: Duration) {
        let began = Instant::now();
        while self.inner.ledger.lock().missing() > 0 && self.idle_since(began) < idle {
            tokio::time::sleep(POLL).await;
        }
    }

    fn idle_since(&self, began: Instant) -> Duration {
        let last = self.inner.times.lock().map_or(began, |(_, last)| last);
        last.max(began).elapsed()
    }

    /// From the first message to the last.
    pub(crate) fn seconds(&self) -> f64 {
        self.inner.times.lock().map_or(0.0, |(first, last)| (last - first).as_secs_f64())
    }

    /// Size of a body, on average.
    pub(crate) fn body_bytes(&self) -> usize {
        let ledger = self.inner.ledger.lock();
        usize::try_from(ledger.bytes / ledger.received.max(1)).unwrap_or(0)
    }

    pub(crate) fn ledger(&self) -> parking_lot::MutexGuard<'_, Ledger> {
        self.inner.ledger.lock()
    }

    pub(crate) async fn shutdown(&self) {
        self.consumer.shutdown().await;
    }
}

impl Inner {
    fn take(&self, delivery: &Delivery) {
        let now = Instant::now();
        let nanos = self.clock.nanos(now);
        let mut ledger = self.ledger.lock();
        for message in &delivery.messages {
            if let Some(stamp) = ledger.receive(&delivery.queue.broker_name, message) {
                let age = u64::try_from(nanos.saturating_sub(stamp.due)).unwrap_or(0);
                self.recorder.succeeded(stamp.stream as usize, 1, Duration::from_nanos(age));
            }
        }
        drop(ledger);
        let mut times = self.times.lock();
        *times = Some((times.map_or(now, |(first, _)| first), now));
    }
}
