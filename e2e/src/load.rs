//! Messages that are sent all the time, at a rate that does not wait for the broker: half of them
//! in streams, each message of which follows when the one before is stored, half of them on their
//! own. Whatever is unanswered or refused is sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use client::{
    ClientInstance, Message, Producer, ProducerConfig, SendError, SendResult, SendStatus,
};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::task::TaskTracker;

use crate::ledger::{Ledger, Sent, UNORDERED};

/// How often the messages on their own are sent.
const TICK: Duration = Duration::from_millis(5);
/// Pause before a message of a stream is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Sends of messages on their own at once; beyond them the rate drops.
const UNORDERED_MAX: usize = 700;
/// A stream that fell behind makes up for this much.
const BACKLOG_MAX: Duration = Duration::from_millis(500);
/// Time for all sends to end when nothing new is sent.
const QUIET: Duration = Duration::from_secs(30);

/// What is sent, and how fast.
#[derive(Clone, Debug)]
pub struct LoadConfig {
    /// Where to.
    pub topic: String,
    /// Messages per second, all together.
    pub rate: u32,
    /// Streams.
    pub streams: u32,
    /// Time for one attempt.
    pub send_timeout: Duration,
}

/// Whether messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    Closed,
    Ended,
}

/// Figures of a load.
#[derive(Debug, Default)]
pub struct Counts {
    /// Answers that said that a message is stored.
    pub acked: AtomicUsize,
    /// Attempts without such an answer.
    pub failed: AtomicUsize,
}

struct Shared {
    config: LoadConfig,
    producer: Producer,
    ledger: Mutex<Ledger>,
    gate: watch::Sender<Gate>,
    /// Sends under way.
    busy: AtomicUsize,
    counts: Counts,
    /// How the last attempt failed, if one did.
    last_error: Mutex<Option<String>>,
}

/// See the module.
pub struct Load {
    shared: Arc<Shared>,
    tasks: TaskTracker,
}

/// A send under way.
struct Busy<'a>(&'a Shared);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Load {
    /// A load that sends nothing yet.
    pub fn start(instance: &ClientInstance, config: LoadConfig) -> Result<Self> {
        let producer = ProducerConfig {
            send_timeout: config.send_timeout,
            attempt_timeout: config.send_timeout,
            compress_over_bytes: usize::MAX,
            ..ProducerConfig::new("load")
        };
        let shared = Arc::new(Shared {
            producer: Producer::start(instance, producer)?,
            config,
            ledger: Mutex::default(),
            gate: watch::Sender::new(Gate::Closed),
            busy: AtomicUsize::new(0),
            counts: Counts::default(),
            last_error: Mutex::default(),
        });
        let tasks = TaskTracker::new();
        for stream in 0..shared.config.streams {
            tasks.spawn(send_stream(Arc::clone(&shared), stream));
        }
        tasks.spawn(send_unordered(Arc::clone(&shared), tasks.clone()));
        Ok(Self { shared, tasks })
    }

    /// Sends from now on.
    pub fn open(&self) {
        self.shared.gate.send_replace(Gate::Open);
    }

    /// Sends nothing new.
    pub fn pause(&self) {
        self.shared.gate.send_replace(Gate::Closed);
    }

    /// Sends nothing new, and waits until every send under way has ended somehow.
    pub async fn close(&self) -> Result<()> {
        self.pause();
        let began = Instant::now();
        while self.shared.busy.load(Ordering::Acquire) > 0 {
            ensure!(began.elapsed() < QUIET, "sends do not end within {QUIET:?}");
            tokio::time::sleep(TICK).await;
        }
        Ok(())
    }

    /// Ends the load.
    pub async fn end(self) -> Result<()> {
        self.shared.gate.send_replace(Gate::Ended);
        self.tasks.close();
        let ended = tokio::time::timeout(QUIET, self.tasks.wait()).await;
        ended.context("the load does not end")?;
        self.shared.producer.shutdown().await;
        Ok(())
    }

    /// What was sent and acknowledged.
    pub fn ledger(&self) -> parking_lot::MutexGuard<'_, Ledger> {
        self.shared.ledger.lock()
    }

    /// Figures so far.
    pub fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    /// Messages acknowledged so far.
    pub fn acked(&self) -> usize {
        self.shared.counts.acked.load(Ordering::Relaxed)
    }

    /// How the last attempt failed since this was last asked.
    pub fn take_error(&self) -> Option<String> {
        self.shared.last_error.lock().take()
    }
}

impl Shared {
    /// Begins a send if messages are to be sent now.
    fn begin(&self) -> Option<Busy<'_>> {
        self.busy.fetch_add(1, Ordering::AcqRel);
        let busy = Busy(self);
        (*self.gate.borrow() == Gate::Open).then_some(busy)
    }

    fn message(&self, sent: Sent) -> Message {
        Message::new(&self.config.topic, sent.body()).with_key(sent.number.to_string())
    }

    /// Notes how a send ended; whether the message is surely stored.
    fn note(&self, sent: Sent, outcome: Result<SendResult, SendError>) -> bool {
        let error = match outcome {
            Ok(result) if result.status == SendStatus::SendOk => {
                let (queue, offset) = (result.queue.queue_id, result.queue_offset);
                self.ledger.lock().acked(queue, offset, sent);
                self.counts.acked.fetch_add(1, Ordering::Relaxed);
                return true;
            }
            Ok(result) => result.status.name().to_owned(),
            Err(error) => error.to_string(),
        };
        self.counts.failed.fetch_add(1, Ordering::Relaxed);
        *self.last_error.lock() = Some(error);
        false
    }
}

async fn send_stream(shared: Arc<Shared>, stream: u32) {
    let half = f64::from(shared.config.rate.max(2)) / 2.0;
    let period = Duration::from_secs_f64(f64::from(shared.config.streams) / half);
    let mut gate = shared.gate.subscribe();
    let key = format!("stream-{stream}");
    let mut due = Instant::now();
    let mut sent = Sent { stream, number: 0 };
    loop {
        match gate.wait_for(|gate| *gate != Gate::Closed).await.map(|gate| *gate) {
            Ok(Gate::Open) => {}
            _ => return,
        }
        tokio::time::sleep_until(due).await;
        let Some(busy) = shared.begin() else { continue };
        shared.ledger.lock().begin(sent, 1);
        let outcome = shared.producer.send_by_key(&shared.message(sent), &key).await;
        let is_stored = shared.note(sent, outcome);
        drop(busy);
        let now = Instant::now();
        if is_stored {
            sent.number += 1;
            due = (due + period).max(now.checked_sub(BACKLOG_MAX).unwrap_or(now));
        } else {
            due = now + RETRY_PAUSE;
        }
    }
}

async fn send_unordered(shared: Arc<Shared>, tasks: TaskTracker) {
    let mut gate = shared.gate.subscribe();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let per_tick = f64::from(shared.config.rate) / 2.0 * TICK.as_secs_f64();
    let under_way = Arc::new(AtomicUsize::new(0));
    let mut owed = 0.0;
    let mut number = 0;
    loop {
        match gate.wait_for(|gate| *gate != Gate::Closed).await.map(|gate| *gate) {
            Ok(Gate::Open) => {}
            _ => return,
        }
        ticks.tick().await;
        owed += per_tick;
        while owed >= 1.0 {
            owed -= 1.0;
            if under_way.load(Ordering::Relaxed) >= UNORDERED_MAX {
                continue;
            }
            let (shared, under_way) = (Arc::clone(&shared), Arc::clone(&under_way));
            let sent = Sent { stream: UNORDERED, number };
            number += 1;
            under_way.fetch_add(1, Ordering::Relaxed);
            tasks.spawn(async move {
                if let Some(_busy) = shared.begin() {
                    // The producer tries twice more by itself.
                    shared.ledger.lock().begin(sent, 3);
                    let outcome = shared.producer.send(&shared.message(sent)).await;
                    shared.note(sent, outcome);
                }
                under_way.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }
}
