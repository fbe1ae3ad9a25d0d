//! What clients' sends meet, as the role of this broker changes while it runs.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use protocol::route::MASTER_ID;
use replication::Member;
use replication::replica::{Sends, Serving};
use store::{PutError, PutFuture};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// How long a send waits while the mastership begins or moves: below the 3 s after which Java's
/// client gives it up.
const HOLD_MAX: Duration = Duration::from_millis(2_500);

/// What to do with a send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Admission {
    Accept,
    Forward(Member),
    Refuse,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct RoleGate {
    /// Id of this replica among its group.
    id: i64,
    /// Read-locked while a message is put, so that whoever has closed the gate knows that nothing
    /// comes through any more.
    sends: RwLock<Sends>,
    /// Whether what is confirmed here may be read.
    reads: AtomicBool,
    /// Id at name servers.
    registered_id: AtomicI64,
    /// Epoch as master, 0 as slave.
    epoch: AtomicI64,
    changes: watch::Sender<u64>,
}

impl RoleGate {
    /// The gate of a broker whose role does not change.
    pub(crate) fn open(id: i64) -> Self {
        Self::new(id, Sends::Accept, true)
    }

    /// The gate of a replica that has no role yet.
    pub(crate) fn closed(id: i64) -> Self {
        Self::new(id, Sends::Hold, false)
    }

    fn new(id: i64, sends: Sends, reads: bool) -> Self {
        Self {
            id,
            sends: RwLock::new(sends),
            reads: AtomicBool::new(reads),
            registered_id: AtomicI64::new(id),
            epoch: AtomicI64::new(0),
            changes: watch::Sender::new(0),
        }
    }

    /// Id to register with at name servers.
    pub(crate) fn registered_id(&self) -> i64 {
        self.registered_id.load(Ordering::Acquire)
    }

    /// Whether this broker is master of its group, or alone.
    pub(crate) fn is_master(&self) -> bool {
        self.registered_id() == MASTER_ID
    }

    /// Whether what is confirmed here may be read: not by a replica that lacks too much.
    pub(crate) fn reads(&self) -> bool {
        self.reads.load(Ordering::Acquire)
    }

    /// Epoch of the mastership; 0 without one.
    pub(crate) fn epoch(&self) -> i64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Tells of every change of the role.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Serves like this from now on; returns whether the registration changes. When this returns,
    /// no put that the gate no longer lets in is under way.
    pub(crate) fn set(&self, serving: &Serving) -> bool {
        *self.sends.write() = serving.sends.clone();
        self.reads.store(serving.reads, Ordering::Release);
        let (id, epoch) = match serving.master_epoch {
            Some(epoch) => (MASTER_ID, i64::from(epoch)),
            None => (self.id, 0),
        };
        let before = (
            self.registered_id.swap(id, Ordering::AcqRel),
            self.epoch.swap(epoch, Ordering::AcqRel),
        );
        self.changes.send_modify(|count| *count += 1);
        before != (id, epoch)
    }

    /// Waits, but not for long, until it is clear what happens to a send.
    pub(crate) async fn admit(&self) -> Admission {
        if let Some(admission) = self.now() {
            return admission;
        }
        let mut changes = self.changes.subscribe();
        let give_up = Instant::now() + HOLD_MAX;
        loop {
            if let Some(admission) = self.now() {
                return admission;
            }
            if !matches!(timeout_at(give_up, changes.changed()).await, Ok(Ok(()))) {
                return Admission::Refuse;
            }
        }
    }

    fn now(&self) -> Option<Admission> {
        match &*self.sends.read() {
            Sends::Accept => Some(Admission::Accept),
            Sends::Hold => None,
            Sends::Forward(master) => Some(Admission::Forward(master.clone())),
            Sends::Refuse => Some(Admission::Refuse),
        }
    }

    /// Puts a message unless the gate has closed since it was admitted.
    pub(crate) fn put(&self, put: impl FnOnce() -> PutFuture) -> PutFuture {
        let sends = self.sends.read();
        match *sends {
            Sends::Accept => put(),
            Sends::Hold | Sends::Forward(_) | Sends::Refuse => {
                PutFuture::refused(PutError::Demoted)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serving(master_epoch: Option<i32>, sends: Sends) -> Serving {
        Serving { master_epoch, reads: true, sends }
    }

    #[tokio::test(start_paused = true)]
    async fn a_send_waits_for_a_decision_but_not_long() {
        let gate = RoleGate::closed(2);
        let begin = Instant::now();
        assert_eq!(gate.admit().await, Admission::Refuse);
        assert_eq!(begin.elapsed(), HOLD_MAX);
        let decide = async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            gate.set(&serving(Some(3), Sends::Accept))
        };
        let (admission, is_new) = tokio::join!(gate.admit(), decide);
        assert_eq!((admission, is_new), (Admission::Accept, true));
        assert_eq!((gate.registered_id(), gate.epoch(), gate.is_master()), (0, 3, true));
        assert!(!gate.set(&serving(Some(3), Sends::Hold)), "it registers as before");
        assert!(gate.set(&serving(None, Sends::Refuse)));
        assert_eq!((gate.registered_id(), gate.epoch()), (2, 0));
        assert_eq!(gate.admit().await, Admission::Refuse);
    }
}
