//! What a controller hears from the replicas. None of it is remembered: another controller hears
//! it too.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::input::Heartbeat;
use crate::group_record::GroupRecord;
use crate::identity::{Floor, LogPosition, Registration, ReplicaIdentity};
use crate::{Epoch, Millis, ReplicaId};

/// A replica that has been heard.
#[derive(Debug)]
pub(super) struct Session {
    beat: Heartbeat,
    heard_at: Millis,
    /// Its port was dialled and nothing listened.
    is_gone: bool,
}

/// All that have been heard.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    by_id: BTreeMap<ReplicaId, Session>,
    timeout: Millis,
    /// Pods that are being deleted, and nodes that are drained.
    leaving: BTreeSet<ReplicaId>,
}

impl Session {
    pub(super) fn log(&self) -> LogPosition {
        self.beat.registration.log
    }

    pub(super) fn is_whole(&self) -> bool {
        self.beat.registration.is_whole
    }

    pub(super) fn disk_stall(&self) -> Millis {
        self.beat.disk_stall
    }

    /// Age of what it last heard from the master of the epoch that it obeys.
    fn heard_master(&self, now: Millis) -> Option<Millis> {
        self.beat.heard_master.map(|age| age + now.saturating_sub(self.heard_at))
    }

    /// The better a candidate, the greater.
    pub(super) fn rank(&self) -> impl Ord + use<> {
        let log = self.log();
        let beat = &self.beat;
        let id = beat.registration.id;
        (log.last_epoch, log.end, beat.is_target_version, Reverse(beat.priority), Reverse(id))
    }

    pub(super) fn identity(&self) -> ReplicaIdentity {
        let Registration { id: _, address, ha_address, run, is_whole: _, log } =
            &self.beat.registration;
        ReplicaIdentity {
            address: address.clone(),
            ha_address: ha_address.clone(),
            run: run.clone(),
            floor: Floor { epoch: log.promised, offset: log.confirm },
            tail_in_doubt: false,
        }
    }
}

impl Sessions {
    pub(super) fn new(timeout: Millis) -> Self {
        Self { timeout, ..Self::default() }
    }

    pub(super) fn set_timeout(&mut self, timeout: Millis) {
        self.timeout = timeout;
    }

    pub(super) fn get(&self, id: ReplicaId) -> Option<&Session> {
        self.by_id.get(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ReplicaId, &Session)> {
        self.by_id.iter().map(|(id, session)| (*id, session))
    }

    /// Takes a heartbeat, unless it is of another run than the one that is recorded and heard.
    pub(super) fn hear(&mut self, now: Millis, beat: Heartbeat, record: Option<&GroupRecord>) {
        let id = beat.registration.id;
        let recorded = record.and_then(|record| record.replicas.get(&id)).map(|known| &known.run);
        let current = self.by_id.get(&id).map(|session| &session.beat.registration.run);
        let is_intruder = recorded.is_some()
            && current == recorded
            && recorded != Some(&beat.registration.run)
            && self.is_heard(id, now);
        if !is_intruder {
            self.by_id.insert(id, Session { beat, heard_at: now, is_gone: false });
        }
    }

    /// A registration says as much as a heartbeat.
    pub(super) fn hear_registration(&mut self, now: Millis, registration: &Registration) {
        let former = self.by_id.get(&registration.id);
        let beat = Heartbeat {
            registration: registration.clone(),
            heard_master: None,
            disk_stall: 0,
            priority: former.map_or(i32::MAX, |session| session.beat.priority),
            is_target_version: former.is_some_and(|session| session.beat.is_target_version),
        };
        self.by_id.insert(registration.id, Session { beat, heard_at: now, is_gone: false });
    }

    pub(super) fn set_gone(&mut self, id: ReplicaId) {
        if let Some(session) = self.by_id.get_mut(&id) {
            session.is_gone = true;
        }
    }

    pub(super) fn set_leaving(&mut self, id: ReplicaId, is_leaving: bool) {
        if is_leaving {
            self.leaving.insert(id);
        } else {
            self.leaving.remove(&id);
        }
    }

    pub(super) fn is_leaving(&self, id: ReplicaId) -> bool {
        self.leaving.contains(&id)
    }

    /// This process stood still: how old its news is says nothing.
    pub(super) fn reset_ages(&mut self, now: Millis) {
        for session in self.by_id.values_mut() {
            session.heard_at = now;
            session.beat.heard_master = session.beat.heard_master.map(|_| 0);
        }
    }

    /// Whether it was heard lately.
    pub(super) fn is_heard(&self, id: ReplicaId, now: Millis) -> bool {
        self.by_id
            .get(&id)
            .is_some_and(|session| !session.is_gone && now < session.heard_at + self.timeout)
    }

    pub(super) fn silence(&self, id: ReplicaId, now: Millis) -> Option<Millis> {
        self.by_id.get(&id).map(|session| now.saturating_sub(session.heard_at))
    }

    /// Whether nothing listened at its port since it was last heard.
    pub(super) fn is_gone(&self, id: ReplicaId) -> bool {
        self.by_id.get(&id).is_some_and(|session| session.is_gone)
    }

    /// Whether the recorded run was heard lately.
    pub(super) fn is_alive(&self, record: &GroupRecord, id: ReplicaId, now: Millis) -> bool {
        let recorded = record.replicas.get(&id).map(|known| &known.run);
        let heard = self.by_id.get(&id).map(|session| &session.beat.registration.run);
        recorded.is_some() && heard == recorded && self.is_heard(id, now)
    }

    pub(super) fn alive(&self, record: &GroupRecord, now: Millis) -> BTreeSet<ReplicaId> {
        self.by_id.keys().copied().filter(|id| self.is_alive(record, *id, now)).collect()
    }

    /// Whether a slave in sync hears the master: then it is this controller that does not.
    pub(super) fn is_master_heard(
        &self,
        record: &GroupRecord,
        now: Millis,
        age_max: Millis,
    ) -> bool {
        record.sync_state_set.iter().any(|id| {
            let Some(session) = self.get(*id) else { return false };
            Some(*id) != record.master
                && self.is_alive(record, *id, now)
                && session.log().promised == record.master_epoch
                && session.heard_master(now).is_some_and(|age| age < age_max)
        })
    }

    /// Whether every other member of the in-sync set is alive and says that it does not hear the
    /// master.
    pub(super) fn is_master_missed_by_all(
        &self,
        record: &GroupRecord,
        now: Millis,
        age_max: Millis,
    ) -> bool {
        let mut others = record.sync_state_set.iter().filter(|id| Some(**id) != record.master);
        others.all(|id| self.is_alive(record, *id, now))
            && !self.is_master_heard(record, now, age_max)
    }

    pub(super) fn highest_promise(&self) -> Epoch {
        self.by_id.values().map(|session| session.log().promised).max().unwrap_or(0)
    }
}
