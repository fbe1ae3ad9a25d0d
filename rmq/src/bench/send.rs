//! The sending side of a benchmark.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use client::{Message, Producer, SendError};
use parking_lot::Mutex;
use protocol::response_code::ResponseCode;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::ledger::Acknowledged;
use super::pace::Pace;
use super::recorder::Recorder;
use super::stamp::{Clock, Stamp};

/// Pause of a caller whose request failed at once, so that a broker that refuses is not flooded.
const FAILURE_PAUSE: Duration = Duration::from_millis(10);

/// How messages are sent.
pub(crate) struct Plan {
    pub(crate) topics: Vec<String>,
    /// Bytes of all bodies; the first and the last are overwritten.
    pub(crate) filling: Bytes,
    pub(crate) batch: usize,
    /// Messages are spread over so many keys, and those of one key are sent one after the other.
    pub(crate) keys: Option<u32>,
    pub(crate) oneway: bool,
    /// Keep track of what was acknowledged.
    pub(crate) verify: bool,
}

/// The callers, and what they share.
pub(crate) struct Senders {
    pub(crate) plan: Plan,
    pub(crate) producers: Vec<Producer>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) clock: Clock,
    pub(crate) run: u64,
    /// `None`: each caller sends as soon as its last request was answered.
    pub(crate) pace: Option<Pace>,
    /// Messages that may still be sent.
    pub(crate) left: AtomicU64,
    pub(crate) stop: AtomicBool,
    /// The first error that every other message would have, too.
    pub(crate) hopeless: Mutex<Option<SendError>>,
    pub(crate) gave_up: Notify,
}

/// Where a caller is in its streams.
struct Course {
    caller: usize,
    /// Number of the next message of each of its streams.
    numbers: Vec<(u32, u64)>,
    at: usize,
    topic: usize,
}

impl Senders {
    /// The course of one of so many callers. A caller without keys is a stream itself.
    fn course(&self, caller: usize, callers: usize) -> Course {
        let first = u32::try_from(caller).unwrap_or(u32::MAX);
        let numbers = match self.plan.keys {
            None => vec![(first, 0)],
            Some(keys) => (first..keys).step_by(callers).map(|key| (key, 0)).collect(),
        };
        Course { caller, numbers, at: 0, topic: caller }
    }

    /// Sends until it is told to stop or there are enough.
    pub(crate) async fn send(self: Arc<Self>, caller: usize, callers: usize) -> Acknowledged {
        let mut course = self.course(caller, callers);
        let mut acknowledged = Acknowledged::default();
        let batch = self.plan.batch as u64;
        while !self.stop.load(Ordering::Relaxed) {
            let claimed = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                (left > 0).then(|| left.saturating_sub(batch))
            });
            let Ok(left) = claimed else { break };
            let due = match &self.pace {
                Some(pace) => pace.next().await,
                None => Some(Instant::now()),
            };
            let Some(due) = due else { break };
            let count = batch.min(left);
            let Some((stream, number)) = course.next(count) else { break };
            let began = Instant::now();
            match self.request(&mut course, (stream, number), count, due).await {
                Ok(()) => {
                    self.recorder.succeeded(caller, count, due.elapsed());
                    if self.plan.verify && !self.plan.oneway {
                        (number..number + count).for_each(|n| acknowledged.insert(stream, n));
                    }
                }
                Err(error) => {
                    self.failed(caller, count, error);
                    if began.elapsed() < FAILURE_PAUSE {
                        tokio::time::sleep(FAILURE_PAUSE).await;
                    }
                }
            }
        }
        acknowledged
    }

    async fn request(
        &self,
        course: &mut Course,
        (stream, number): (u32, u64),
        count: u64,
        due: Instant,
    ) -> Result<(), SendError> {
        let producer = &self.producers[course.caller % self.producers.len()];
        let topic = &self.plan.topics[course.topic % self.plan.topics.len()];
        course.topic += 1;
        let stamp = Stamp { run: self.run, stream, number, due: self.clock.nanos(due) };
        if count > 1 {
            let message =
                |number| Message::new(topic, Stamp { number, ..stamp }.body(&self.plan.filling));
            let messages: Vec<_> = (number..number + count).map(message).collect();
            return producer.send_batch(&messages).await.map(drop);
        }
        let message = Message::new(topic, stamp.body(&self.plan.filling));
        match self.plan.keys {
            Some(_) => producer.send_by_key(&message, &stream.to_string()).await.map(drop),
            None if self.plan.oneway => producer.send_oneway(&message).await,
            None => producer.send(&message).await.map(drop),
        }
    }

    fn failed(&self, caller: usize, count: u64, error: SendError) {
        let busy = [ResponseCode::SYSTEM_BUSY, ResponseCode::FLOW_CONTROL];
        let is_busy = code(&error).is_some_and(|code| busy.contains(&code));
        self.recorder.failed(caller, count, is_busy, &error.to_string());
        if crate::send::is_hopeless(&error) {
            self.hopeless.lock().get_or_insert(error);
            self.stop.store(true, Ordering::Relaxed);
            self.gave_up.notify_one();
        }
    }
}

impl Course {
    /// Stream and number of the next messages.
    fn next(&mut self, count: u64) -> Option<(u32, u64)> {
        let at = self.at % self.numbers.len().max(1);
        self.at += 1;
        let (stream, number) = self.numbers.get_mut(at)?;
        *number += count;
        Some((*stream, *number - count))
    }
}

fn code(error: &SendError) -> Option<ResponseCode> {
    match error {
        SendError::Failed { last, .. } => last.code(),
        SendError::Client(error) => error.code(),
        _ => None,
    }
}
