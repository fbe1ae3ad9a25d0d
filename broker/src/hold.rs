//! Pulls that found nothing and wait for a message (long polling).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use protocol::subscription::SubscriptionData;
use tokio::sync::Notify;

/// One pull that waits.
struct Waiter {
    id: u64,
    /// Offset of the first message that it wants.
    offset: i64,
    subscription: Arc<SubscriptionData>,
    notify: Arc<Notify>,
}

#[derive(Default)]
struct State {
    /// Pulls by topic and queue.
    topics: HashMap<String, HashMap<i32, Vec<Waiter>>>,
    next_id: u64,
}

/// See the module.
pub(crate) struct PullHold {
    state: Mutex<State>,
    held: AtomicUsize,
    held_max: usize,
    is_closed: AtomicBool,
}

/// Too many pulls are held (`pullThreadPoolQueueCapacity`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HoldFull;

impl PullHold {
    pub(crate) fn new(held_max: usize) -> Self {
        let (held, is_closed) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { state: Mutex::default(), held, held_max, is_closed }
    }

    /// Number of pulls that wait.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Begins to wait for messages from `offset` on. Look whether there are any only after this,
    /// or one that comes in between is missed.
    pub(crate) fn hold(
        &self,
        topic: &str,
        queue_id: i32,
        offset: i64,
        subscription: Arc<SubscriptionData>,
    ) -> Result<Held<'_>, HoldFull> {
        let notify = Arc::new(Notify::new());
        let mut state = self.state.lock();
        if self.held.load(Ordering::Relaxed) >= self.held_max {
            return Err(HoldFull);
        }
        state.next_id += 1;
        let id = state.next_id;
        let waiter = Waiter { id, offset, subscription, notify: Arc::clone(&notify) };
        let queues = state.topics.entry(topic.to_owned()).or_default();
        queues.entry(queue_id).or_default().push(waiter);
        self.held.fetch_add(1, Ordering::Relaxed);
        if self.is_closed.load(Ordering::Relaxed) {
            notify.notify_one();
        }
        Ok(Held { hold: self, topic: topic.to_owned(), queue_id, id, notify })
    }

    /// A message has become readable.
    pub(crate) fn arrived(&self, topic: &str, queue_id: i32, offset: i64, tags_code: i64) {
        if self.held() == 0 {
            return;
        }
        let state = self.state.lock();
        let Some(waiters) = state.topics.get(topic).and_then(|queues| queues.get(&queue_id)) else {
            return;
        };
        for waiter in waiters {
            if offset >= waiter.offset && waiter.subscription.matches_tags_code(tags_code) {
                waiter.notify.notify_one();
            }
        }
    }

    /// Wakes the pulls of a queue whatever there is for them.
    pub(crate) fn wake(&self, topic: &str, queue_id: i32) {
        let state = self.state.lock();
        let queue = state.topics.get(topic).and_then(|queues| queues.get(&queue_id));
        for waiter in queue.into_iter().flatten() {
            waiter.notify.notify_one();
        }
    }

    /// Wakes all pulls, and from now on each at once.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.wake_all();
    }

    /// Wakes all pulls, whatever there is for them.
    pub(crate) fn wake_all(&self) {
        let state = self.state.lock();
        let queues = state.topics.values().flat_map(HashMap::values);
        for waiter in queues.flatten() {
            waiter.notify.notify_one();
        }
    }
}

/// The place of a pull among those that wait; dropped, it waits no longer.
pub(crate) struct Held<'a> {
    hold: &'a PullHold,
    topic: String,
    queue_id: i32,
    id: u64,
    notify: Arc<Notify>,
}

impl Held<'_> {
    /// Returns when there is a message, or the broker stops.
    pub(crate) async fn woken(&self) {
        self.notify.notified().await;
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut state = self.hold.state.lock();
        self.hold.held.fetch_sub(1, Ordering::Relaxed);
        let Some(queues) = state.topics.get_mut(&self.topic) else { return };
        let Some(waiters) = queues.get_mut(&self.queue_id) else { return };
        waiters.retain(|waiter| waiter.id != self.id);
        if waiters.is_empty() {
            queues.remove(&self.queue_id);
        }
        if queues.is_empty() {
            state.topics.remove(&self.topic);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn tags(expression: &str) -> Arc<SubscriptionData> {
        Arc::new(SubscriptionData::by_tags("t", expression, 1))
    }

    async fn is_woken(held: &Held<'_>) -> bool {
        tokio::time::timeout(Duration::from_secs(1), held.woken()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_wanted_message_wakes() {
        let hold = PullHold::new(9);
        let held = hold.hold("t", 0, 5, tags("TagA")).unwrap();
        let code = i64::from(protocol::tag::java_hash("TagA"));
        for (topic, queue_id, offset, code, wakes) in [
            ("u", 0, 5, code, false),
            ("t", 1, 5, code, false),
            ("t", 0, 4, code, false),
            ("t", 0, 5, 0, false),
            ("t", 0, 6, code, true),
        ] {
            hold.arrived(topic, queue_id, offset, code);
            assert_eq!(is_woken(&held).await, wakes, "{topic} {queue_id} {offset} {code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn places_are_limited_and_given_back() {
        let hold = PullHold::new(1);
        let held = hold.hold("t", 0, 0, tags("*")).unwrap();
        assert_eq!(hold.hold("t", 0, 0, tags("*")).err(), Some(HoldFull));
        drop(held);
        assert_eq!(hold.held(), 0);
        assert!(hold.state.lock().topics.is_empty());
        let held = hold.hold("t", 0, 0, tags("*")).unwrap();
        hold.close();
        assert!(is_woken(&held).await);
        drop(held);
        assert!(is_woken(&hold.hold("t", 0, 0, tags("*")).unwrap()).await, "closed");
    }
}
