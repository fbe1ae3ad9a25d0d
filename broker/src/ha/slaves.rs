//! The slaves that are connected, how much of the log each has, and what that confirms.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use protocol::body::HaConnectionRuntimeInfo;
use protocol::response_code::ResponseCode;
use store::MessageStore;

use crate::config::BrokerConfig;
use crate::ha::ack_rule::{AckRule, Confirmed};
use crate::ha::speed::Speed;
use crate::refusal::Refusal;

/// Slaves at once; more are refused.
const SLAVES_MAX: usize = 16;

#[derive(Debug)]
struct Slave {
    address: SocketAddr,
    /// End of its log; `None` until it has said so.
    ack: Option<i64>,
    /// Where the next bytes for it lie.
    next: i64,
    speed: Arc<Speed>,
}

#[derive(Debug, Default)]
struct State {
    last_id: u64,
    slaves: BTreeMap<u64, Slave>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Slaves {
    rule: AckRule,
    gap_max: i64,
    state: Mutex<State>,
    in_sync: AtomicUsize,
    /// Enough replicas have had all before this offset.
    replicated: AtomicI64,
    waits_for_nobody: AtomicBool,
}

impl Slaves {
    pub(crate) fn new(settings: &BrokerConfig) -> Self {
        Self {
            rule: AckRule::new(settings),
            gap_max: i64::try_from(settings.ha_max_gap_not_in_sync).unwrap_or(i64::MAX),
            state: Mutex::default(),
            in_sync: AtomicUsize::new(0),
            replicated: AtomicI64::new(0),
            waits_for_nobody: AtomicBool::new(!AckRule::new(settings).is_sync()),
        }
    }

    /// A slave has connected; `None` when there are too many.
    pub(crate) fn add(&self, address: SocketAddr) -> Option<(u64, Arc<Speed>)> {
        let mut state = self.state.lock();
        if state.slaves.len() >= SLAVES_MAX {
            return None;
        }
        state.last_id += 1;
        let id = state.last_id;
        let speed = Arc::new(Speed::default());
        state.slaves.insert(id, Slave { address, ack: None, next: 0, speed: Arc::clone(&speed) });
        Some((id, speed))
    }

    /// A slave is gone.
    pub(crate) fn remove(&self, id: u64, store: &MessageStore) {
        self.state.lock().slaves.remove(&id);
        self.review(store);
    }

    /// A slave has all before this offset.
    pub(crate) fn acknowledged(&self, id: u64, offset: i64, store: &MessageStore) {
        if let Some(slave) = self.state.lock().slaves.get_mut(&id) {
            slave.ack = Some(offset);
        }
        self.review(store);
    }

    /// Where the next bytes for a slave lie.
    pub(crate) fn set_next(&self, id: u64, offset: i64) {
        if let Some(slave) = self.state.lock().slaves.get_mut(&id) {
            slave.next = offset;
        }
    }

    /// Confirms what the slaves have, or everything if too few are there to be waited for.
    pub(crate) fn review(&self, store: &MessageStore) {
        let state = self.state.lock();
        let end = store.log_end();
        let acks = state.slaves.values().filter_map(|slave| slave.ack);
        let mut acks: Vec<i64> = acks.filter(|ack| self.is_in_sync(*ack, end)).collect();
        self.in_sync.store(acks.len(), Ordering::Release);
        if !self.rule.is_sync() {
            return;
        }
        let confirmed = self.rule.confirmed(&mut acks);
        let is_everything = confirmed == Confirmed::Everything;
        self.waits_for_nobody.store(is_everything, Ordering::Release);
        // Still under the lock, so that a later look at the slaves is not overtaken.
        if let Confirmed::To(offset) = confirmed {
            self.replicated.fetch_max(offset, Ordering::AcqRel);
            if store.confirm_offset().is_none() {
                store.hold_confirm();
            }
            store.set_confirm(offset);
        } else if store.confirm_offset().is_some() {
            store.release_confirm();
        }
    }

    fn is_in_sync(&self, ack: i64, end: i64) -> bool {
        end - ack < self.gap_max
    }

    /// Slaves that are connected.
    pub(crate) fn connected(&self) -> usize {
        self.state.lock().slaves.len()
    }

    /// Slaves that have nearly everything.
    pub(crate) fn in_sync(&self) -> usize {
        self.in_sync.load(Ordering::Acquire)
    }

    /// Whether senders may have to wait for slaves.
    pub(crate) fn is_sync(&self) -> bool {
        self.rule.is_sync()
    }

    /// Refuses messages while fewer than `minInSyncReplicas` are there.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        if self.rule.refuses(self.in_sync()) {
            return Err(Refusal::error("in-sync replicas not enough"));
        }
        Ok(())
    }

    /// What to say of a message that is stored and ends here in the log.
    pub(crate) fn code(&self, end: i64) -> ResponseCode {
        let is_enough = self.waits_for_nobody.load(Ordering::Acquire)
            || self.replicated.load(Ordering::Acquire) >= end;
        if is_enough { ResponseCode::SUCCESS } else { ResponseCode::SLAVE_NOT_AVAILABLE }
    }

    /// Bytes that each slave lacks, by its address.
    pub(crate) fn lags(&self, end: i64) -> Vec<(SocketAddr, i64)> {
        let state = self.state.lock();
        let lag = |slave: &Slave| (slave.address, end - slave.ack.unwrap_or(0));
        state.slaves.values().map(lag).collect()
    }

    /// For `GET_BROKER_HA_STATUS`.
    pub(crate) fn infos(&self, end: i64) -> Vec<HaConnectionRuntimeInfo> {
        let state = self.state.lock();
        let info = |slave: &Slave| {
            let ack = slave.ack.unwrap_or(-1);
            HaConnectionRuntimeInfo {
                addr: slave.address.to_string(),
                slave_ack_offset: ack,
                diff: end - ack,
                in_sync: slave.ack.is_some_and(|ack| self.is_in_sync(ack, end)),
                transferred_byte_in_second: slave.speed.bytes_in_second(),
                transfer_from_where: slave.next,
            }
        };
        state.slaves.values().map(info).collect()
    }
}
