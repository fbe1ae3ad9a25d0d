//! Who may be master, who is best, and the record after it.

use std::collections::BTreeSet;

use super::session::{Session, Sessions};
use crate::group_record::{Election, ElectionReason, GroupRecord, Phase};
use crate::identity::ReplicaIdentity;
use crate::rules::{Rule, Rules};
use crate::{Epoch, ReplicaId};

/// An election that has been decided.
#[derive(Debug)]
pub(super) struct Ballot {
    pub(super) master: ReplicaId,
    pub(super) reason: ElectionReason,
    /// Who is known to be alive.
    pub(super) alive: BTreeSet<ReplicaId>,
    pub(super) min_in_sync: usize,
}

/// Whether the record allows `id` to be master: in the set, with its log whole.
pub(super) fn is_electable(record: &GroupRecord, id: ReplicaId, rules: Rules) -> bool {
    let is_member = record.sync_state_set.contains(&id) || !rules.keep(Rule::ElectFromSet);
    let is_whole = record.replicas.get(&id).is_some_and(|replica| !replica.tail_in_doubt)
        || !rules.keep(Rule::CheckTail);
    is_member && is_whole
}

/// The best of `candidates` by what they last said of themselves.
pub(super) fn best(
    sessions: &Sessions,
    candidates: impl Iterator<Item = ReplicaId>,
) -> Option<ReplicaId> {
    candidates.max_by_key(|id| sessions.get(*id).map(Session::rank))
}

impl Ballot {
    /// The record after it.
    pub(super) fn cast(&self, record: &GroupRecord) -> GroupRecord {
        let former = record.master;
        let is_kept = |id: &ReplicaId| {
            let is_whole = record.replicas.get(id).is_some_and(|replica| !replica.tail_in_doubt);
            // A master that handed over has everything; one that was deposed is gone.
            let is_deposed = former == Some(*id) && self.reason != ElectionReason::HandOver;
            is_whole && !is_deposed
        };
        let old = || record.sync_state_set.iter().copied().filter(is_kept);
        let mut set: BTreeSet<_> = old().filter(|id| self.alive.contains(id)).collect();
        set.insert(self.master);
        // Too few to acknowledge anything: then the others miss nothing, and stay electable.
        let missing = self.min_in_sync.saturating_sub(set.len());
        let rest: Vec<_> = old().filter(|id| !set.contains(id)).take(missing).collect();
        set.extend(rest);
        begin(record, self.master, set, self.reason)
    }
}

/// The record with a new epoch.
fn begin(
    record: &GroupRecord,
    master: ReplicaId,
    set: BTreeSet<ReplicaId>,
    reason: ElectionReason,
) -> GroupRecord {
    let mut next = record.clone();
    let former = record.master;
    next.master_epoch += 1;
    next.master = Some(master);
    next.sync_state_set = set;
    next.sync_state_set_epoch += 1;
    next.phase = Phase::Serving;
    next.remember(Election { epoch: next.master_epoch, master, former, reason });
    next
}

/// The record after `master` was elected although something may be missing in its log.
pub(super) fn with_loss(
    record: &GroupRecord,
    sessions: &Sessions,
    master: ReplicaId,
    reason: ElectionReason,
) -> GroupRecord {
    let mut base = record.clone();
    base.master_epoch = base.master_epoch.max(sessions.highest_promise());
    let mut next = begin(&base, master, BTreeSet::from([master]), reason);
    next.loss_epoch = next.master_epoch;
    if let Some(session) = sessions.get(master) {
        next.replicas.insert(master, session.identity());
    }
    if let Some(replica) = next.replicas.get_mut(&master) {
        replica.tail_in_doubt = false;
        replica.floor.offset = 0;
    }
    next
}

/// The record made from what all replicas say: the first one, or again after it was lost or put
/// back. `None` until all of `replicas` are there, heard since it was noticed: what a run said that
/// has ended meanwhile does not count.
///
/// A master of the highest epoch goes on. Otherwise it is the log with the highest epoch, the
/// longest of these: whoever was elected had everything, and all logs of an epoch are its master's.
pub(super) fn from_replicas(
    record: &GroupRecord,
    sessions: &Sessions,
    replicas: &BTreeSet<ReplicaId>,
    is_there: impl Fn(ReplicaId) -> bool,
) -> Option<GroupRecord> {
    if replicas.is_empty() || !replicas.iter().all(|id| is_there(*id)) {
        return None;
    }
    let said = || sessions.iter().filter(|(id, _)| replicas.contains(id));
    let highest: Epoch = said().map(|(_, session)| session.log().promised).max()?;
    let sitting = said().find(|(_, s)| s.log().is_master && s.log().promised == highest);
    let master = match sitting {
        Some((id, _)) => id,
        None => best(sessions, replicas.iter().copied())?,
    };
    let is_all_empty = said().all(|(_, s)| s.log().end == 0 && s.log().last_epoch == 0);
    let is_first = highest == 0 && record.master_epoch == 0;
    let set = if is_all_empty { replicas.clone() } else { BTreeSet::from([master]) };
    let mut base = record.clone();
    base.master_epoch = base.master_epoch.max(highest);
    let numbers = said().map(|(_, session)| session.log().sync_state_set_epoch);
    base.sync_state_set_epoch = base.sync_state_set_epoch.max(numbers.max().unwrap_or(0));
    base.replicas = said().map(|(id, s)| (id, s.identity())).collect();
    let reason = if is_first { ElectionReason::First } else { ElectionReason::Rebuilt };
    let mut next = begin(&base, master, set, reason);
    if said().any(|(_, session)| !session.is_whole()) {
        next.loss_epoch = next.master_epoch;
    }
    Some(next)
}

/// The set without those whose tail is in doubt, once somebody else is master.
pub(super) fn without_doubtful(record: &GroupRecord) -> Option<GroupRecord> {
    let master = record.master?;
    let is_doubtful =
        |identity: Option<&ReplicaIdentity>| identity.is_some_and(|i| i.tail_in_doubt);
    let kept = |id: &ReplicaId| *id == master || !is_doubtful(record.replicas.get(id));
    let set: BTreeSet<_> = record.sync_state_set.iter().copied().filter(kept).collect();
    if set == record.sync_state_set {
        return None;
    }
    let mut next = record.clone();
    next.sync_state_set = set;
    next.sync_state_set_epoch += 1;
    Some(next)
}
