//! Which client of an orderly group may consume a queue.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use protocol::body::MessageQueue;
use tokio::time::Instant;

/// A lock that its owner does not renew ends after this long.
pub(crate) const LOCK_LIFETIME: Duration = Duration::from_secs(60);

struct Lock {
    client_id: String,
    renewed: Instant,
}

impl Lock {
    fn is_expired(&self) -> bool {
        self.renewed.elapsed() > LOCK_LIFETIME
    }
}

/// Locks by group and queue.
#[derive(Default)]
pub(crate) struct RebalanceLocks {
    groups: Mutex<HashMap<String, HashMap<MessageQueue, Lock>>>,
}

impl RebalanceLocks {
    /// Locks what is free or already the client's and returns what it holds now.
    pub(crate) fn lock(
        &self,
        group: &str,
        client_id: &str,
        queues: Vec<MessageQueue>,
    ) -> Vec<MessageQueue> {
        let mut groups = self.groups.lock();
        let locks = groups.entry(group.to_owned()).or_default();
        let mut held = Vec::with_capacity(queues.len());
        for queue in queues {
            let is_free = locks
                .get(&queue)
                .is_none_or(|lock| lock.client_id == client_id || lock.is_expired());
            if is_free {
                let lock = Lock { client_id: client_id.to_owned(), renewed: Instant::now() };
                locks.insert(queue.clone(), lock);
                held.push(queue);
            }
        }
        held
    }

    /// Unlocks what the client holds.
    pub(crate) fn unlock(&self, group: &str, client_id: &str, queues: &[MessageQueue]) {
        let mut groups = self.groups.lock();
        let Some(locks) = groups.get_mut(group) else { return };
        for queue in queues {
            if locks.get(queue).is_some_and(|lock| lock.client_id == client_id) {
                locks.remove(queue);
            }
        }
    }

    /// Whether the group consumes in order at present: a lock of it has not expired.
    pub(crate) fn is_any_held(&self, group: &str) -> bool {
        let groups = self.groups.lock();
        groups.get(group).is_some_and(|locks| locks.values().any(|lock| !lock.is_expired()))
    }

    /// Forgets expired locks.
    pub(crate) fn expire(&self) {
        self.groups.lock().retain(|_, locks| {
            locks.retain(|_, lock| !lock.is_expired());
            !locks.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(queue_id: i32) -> MessageQueue {
        MessageQueue { topic: "t".into(), broker_name: "b".into(), queue_id }
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_has_one_owner_until_it_lets_go_or_falls_silent() {
        let locks = RebalanceLocks::default();
        assert_eq!(locks.lock("g", "a", vec![queue(0), queue(1)]).len(), 2);
        assert_eq!(locks.lock("g", "b", vec![queue(0), queue(2)]), [queue(2)]);
        assert_eq!(locks.lock("h", "b", vec![queue(0)]), [queue(0)], "groups do not meet");
        locks.unlock("g", "b", &[queue(1)]);
        locks.unlock("g", "a", &[queue(0)]);
        assert_eq!(locks.lock("g", "b", vec![queue(0), queue(1)]), [queue(0)]);
        tokio::time::advance(LOCK_LIFETIME / 2).await;
        assert_eq!(locks.lock("g", "a", vec![queue(1)]), [queue(1)], "renewed");
        tokio::time::advance(LOCK_LIFETIME / 2 + Duration::from_secs(1)).await;
        assert!(locks.is_any_held("g") && !locks.is_any_held("h"));
        assert_eq!(locks.lock("g", "c", vec![queue(0), queue(1)]), [queue(0)]);
        tokio::time::advance(LOCK_LIFETIME * 2).await;
        locks.expire();
        assert!(!locks.is_any_held("g") && locks.groups.lock().is_empty());
    }
}
