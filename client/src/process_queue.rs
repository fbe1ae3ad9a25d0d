//! The messages of one queue between being pulled and being done with.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use protocol::body::MessageQueue;
use protocol::message::MessageExt;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What a queue may hold before pulling pauses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueLimits {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
    /// Distance between the first and the last offset that are not done with.
    pub(crate) span: Option<i64>,
}

/// One queue that is assigned to a consumer.
pub(crate) struct ProcessQueue {
    pub(crate) queue: MessageQueue,
    /// Ends pulling and handing out; what listeners have is finished.
    pub(crate) stop: CancellationToken,
    state: Mutex<State>,
    arrived: Notify,
    room: Notify,
    idle: Notify,
}

#[derive(Default)]
struct State {
    /// Messages that no listener has.
    waiting: VecDeque<Arc<MessageExt>>,
    /// Sizes of all messages that are not done with, by offset.
    pending: BTreeMap<i64, usize>,
    bytes: usize,
    running: usize,
    /// Everything before it was pulled.
    pulled_to: i64,
    locked_until: Option<Instant>,
    last_pull_millis: i64,
    last_consume_millis: i64,
}

/// Figures of a queue, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueFigures {
    pub(crate) commit_offset: i64,
    pub(crate) min_offset: i64,
    pub(crate) max_offset: i64,
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
    pub(crate) locked: bool,
    pub(crate) last_pull_millis: i64,
    pub(crate) last_consume_millis: i64,
}

impl ProcessQueue {
    pub(crate) fn new(queue: MessageQueue, start: i64, stop: CancellationToken) -> Self {
        let state = State { pulled_to: start, ..State::default() };
        Self {
            queue,
            stop,
            state: Mutex::new(state),
            arrived: Notify::new(),
            room: Notify::new(),
            idle: Notify::new(),
        }
    }

    /// Adds what a pull brought; everything before `next` is pulled now.
    pub(crate) fn put(&self, messages: Vec<Arc<MessageExt>>, next: i64) {
        let mut state = self.state.lock();
        state.last_pull_millis = crate::epoch_millis();
        state.pulled_to = state.pulled_to.max(next);
        for message in messages {
            let bytes = message.body.len();
            if state.pending.insert(message.queue_offset, bytes).is_none() {
                state.bytes += bytes;
                state.waiting.push_back(message);
            }
        }
        drop(state);
        self.arrived.notify_one();
    }

    /// Waits until a message is there to be taken.
    pub(crate) async fn wait_for_message(&self) {
        while self.state.lock().waiting.is_empty() {
            self.arrived.notified().await;
        }
    }

    /// Takes the next messages for a listener, at most `max`, if there are any.
    pub(crate) fn take_now(&self, max: usize) -> Vec<Arc<MessageExt>> {
        let mut state = self.state.lock();
        let count = max.max(1).min(state.waiting.len());
        state.running += count;
        if count > 0 {
            state.last_consume_millis = crate::epoch_millis();
        }
        state.waiting.drain(..count).collect()
    }

    /// Gives messages back that a listener could not do with; they are the next to be taken.
    pub(crate) fn put_back(&self, messages: Vec<Arc<MessageExt>>) {
        let mut state = self.state.lock();
        state.running = state.running.saturating_sub(messages.len());
        for message in messages.into_iter().rev() {
            state.waiting.push_front(message);
        }
        self.after(&state);
        drop(state);
        self.arrived.notify_one();
    }

    /// Strikes messages off that a listener had.
    pub(crate) fn done(&self, offsets: impl IntoIterator<Item = i64>) {
        let mut state = self.state.lock();
        for offset in offsets {
            state.running = state.running.saturating_sub(1);
            if let Some(bytes) = state.pending.remove(&offset) {
                state.bytes -= bytes;
            }
        }
        self.after(&state);
    }

    fn after(&self, state: &State) {
        self.room.notify_one();
        if state.running == 0 {
            self.idle.notify_waiters();
        }
    }

    /// Everything before this offset is done with.
    pub(crate) fn commit_offset(&self) -> i64 {
        let state = self.state.lock();
        state.pending.keys().next().copied().unwrap_or(state.pulled_to)
    }

    /// Waits until the queue holds less than the limits.
    pub(crate) async fn wait_for_room(&self, limits: QueueLimits) {
        while !self.has_room(limits) {
            self.room.notified().await;
        }
    }

    fn has_room(&self, limits: QueueLimits) -> bool {
        let state = self.state.lock();
        let ends = state.pending.first_key_value().zip(state.pending.last_key_value());
        let span = ends.map_or(0, |((first, _), (last, _))| last.saturating_sub(*first));
        state.pending.len() < limits.messages
            && state.bytes < limits.bytes
            && limits.span.is_none_or(|limit| span <= limit)
    }

    /// Waits until no listener has a message of this queue.
    pub(crate) async fn wait_idle(&self) {
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            // Counts from here on, so that nothing is missed between looking and waiting.
            idle.as_mut().enable();
            if self.state.lock().running == 0 {
                return;
            }
            idle.await;
        }
    }

    /// Notes whether the broker has locked the queue for this client, and for how long it counts.
    pub(crate) fn set_locked(&self, life: Option<Duration>) {
        self.state.lock().locked_until = life.map(|life| Instant::now() + life);
        if life.is_some() {
            self.room.notify_one();
            self.arrived.notify_one();
        }
    }

    /// Whether the queue is locked for this client.
    pub(crate) fn is_locked(&self) -> bool {
        self.state.lock().locked_until.is_some_and(|until| until > Instant::now())
    }

    pub(crate) fn figures(&self) -> QueueFigures {
        let commit_offset = self.commit_offset();
        let locked = self.is_locked();
        let state = self.state.lock();
        QueueFigures {
            commit_offset,
            min_offset: state.pending.keys().next().copied().unwrap_or(0),
            max_offset: state.pending.keys().next_back().copied().unwrap_or(0),
            messages: state.pending.len(),
            bytes: state.bytes,
            locked,
            last_pull_millis: state.last_pull_millis,
            last_consume_millis: state.last_consume_millis,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use futures::FutureExt;

    /// A message of 10 bytes at this offset.
    pub(crate) fn message(offset: i64) -> Arc<MessageExt> {
        Arc::new(MessageExt {
            topic: "t".into(),
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            queue_offset: offset,
            commit_log_offset: offset * 100,
            store_size: 100,
            born_timestamp: 1,
            born_host: "127.0.0.1:1".parse().unwrap(),
            store_timestamp: 1,
            store_host: "127.0.0.1:10911".parse().unwrap(),
            body_crc: 0,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: b"0123456789"[..].into(),
            properties: BTreeMap::new(),
        })
    }

    fn queue(start: i64) -> ProcessQueue {
        ProcessQueue::new(MessageQueue::default(), start, CancellationToken::new())
    }

    fn offsets(messages: &[Arc<MessageExt>]) -> Vec<i64> {
        messages.iter().map(|message| message.queue_offset).collect()
    }

    #[tokio::test]
    async fn the_first_message_not_done_is_the_offset() {
        let queue = queue(5);
        assert_eq!(queue.commit_offset(), 5);
        queue.put((5..10).map(message).collect(), 12);
        assert_eq!(queue.commit_offset(), 5);
        let first = queue.take_now(2);
        assert_eq!(offsets(&first), [5, 6]);
        let rest = queue.take_now(10);
        queue.done(offsets(&rest));
        assert_eq!(queue.commit_offset(), 5);
        queue.done([6]);
        assert_eq!(queue.commit_offset(), 5);
        queue.done([5]);
        assert_eq!(queue.commit_offset(), 12, "the last pull went that far");
        queue.put(vec![], 20);
        assert_eq!(queue.commit_offset(), 20, "nothing of it was for us");
    }

    #[tokio::test]
    async fn what_is_given_back_comes_first() {
        let queue = queue(0);
        queue.put((0..4).map(message).collect(), 4);
        let taken = queue.take_now(2);
        queue.put_back(taken);
        assert_eq!(offsets(&queue.take_now(9)), [0, 1, 2, 3]);
        assert!(queue.wait_for_message().now_or_never().is_none());
        queue.put(vec![message(2), message(4)], 5);
        assert_eq!(offsets(&queue.take_now(9)), [4], "pulled twice, taken once");
    }

    #[tokio::test]
    async fn each_limit_stops_pulling_until_there_is_room() {
        let full = |messages, bytes, span| {
            let queue = queue(0);
            queue.put(vec![message(0), message(7)], 8);
            let limits = QueueLimits { messages, bytes, span };
            let waits = queue.wait_for_room(limits).now_or_never().is_none();
            queue.done([0]);
            assert!(queue.wait_for_room(limits).now_or_never().is_some());
            waits
        };
        assert!(!full(3, 21, Some(7)));
        assert!(full(2, 21, Some(7)));
        assert!(full(3, 20, Some(7)));
        assert!(full(3, 21, Some(6)));
        assert!(!full(3, 21, None));
    }

    #[tokio::test(start_paused = true)]
    async fn idle_and_locks() {
        let queue = queue(0);
        assert!(queue.wait_idle().now_or_never().is_some());
        queue.put(vec![message(0)], 1);
        queue.take_now(1);
        assert!(queue.wait_idle().now_or_never().is_none());
        let wait = queue.wait_idle();
        let done = async { queue.done([0]) };
        tokio::join!(wait, done);
        assert!(!queue.is_locked());
        queue.set_locked(Some(Duration::from_secs(30)));
        assert!(queue.is_locked());
        tokio::time::advance(Duration::from_secs(30)).await;
        assert!(!queue.is_locked());
    }
}
