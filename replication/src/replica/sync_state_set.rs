//! The in-sync set as its master sees it: what is confirmed, and what is being proposed.

use std::collections::BTreeSet;

use super::effect::ReplicaEffect;
use super::master::Leading;
use super::{Effects, Replica, Role};
use crate::controller::{AlterRequest, Refusal};
use crate::rules::{Rule, Rules};
use crate::{Millis, ReplicaId};

/// Sets that may be proposed on the same base; more wait until the base has changed.
const PROPOSALS_MAX: usize = 8;

type Set = BTreeSet<ReplicaId>;

/// See the module.
#[derive(Debug)]
pub(super) struct SyncStateSet {
    confirmed: Set,
    epoch: i32,
    /// Sets that were proposed on this base. A request may be carried out long after its answer was
    /// given up or was a refusal by another controller, so a proposal counts until the base has
    /// changed: then it cannot be carried out any more.
    proposals: BTreeSet<Set>,
    asked_at: Option<Millis>,
    /// When this mastership began: members have some time to connect.
    since: Millis,
}

impl SyncStateSet {
    pub(super) fn new(now: Millis, confirmed: Set, epoch: i32) -> Self {
        Self { confirmed, epoch, proposals: BTreeSet::new(), asked_at: None, since: now }
    }

    pub(super) fn confirmed(&self) -> &Set {
        &self.confirmed
    }

    /// All that may be elected, now or after any proposal.
    pub(super) fn effective(&self, rules: Rules) -> Set {
        let mut effective = self.confirmed.clone();
        if rules.keep(Rule::CountProposals) {
            effective.extend(self.proposals.iter().flatten());
        }
        effective
    }
}

impl Replica {
    /// The record has another set, or the same.
    pub(super) fn set_confirmed(&mut self, now: Millis, is_new: bool) {
        let (set, epoch) = (self.sync_state_set.clone(), self.sync_state_set_epoch);
        let Some(leading) = self.leading() else { return };
        if is_new {
            let since = leading.set.since;
            leading.set = SyncStateSet { since, ..SyncStateSet::new(now, set, epoch) };
        }
    }

    pub(super) fn alter_refused(&mut self, now: Millis, _refusal: Refusal, out: &mut Effects) {
        // Whatever the reason, the record knows better.
        self.ask_role(now, out);
    }

    /// Who should be in the in-sync set.
    fn wanted_set(&self, leading: &Leading, now: Millis) -> Set {
        let own = self.config.id;
        let confirmed = &leading.set.confirmed;
        let mut wanted = Set::from([own]);
        for id in confirmed.iter().filter(|id| self.stays(leading, **id, now)) {
            wanted.insert(*id);
        }
        for (id, slave) in &leading.slaves {
            let needed = self.confirm.max(leading.start);
            let has_caught_up = slave.acked.is_some_and(|acked| acked >= needed)
                || !self.config.rules.keep(Rule::JoinCaughtUp);
            if leading.is_connected(*id) && has_caught_up && !confirmed.contains(id) {
                wanted.insert(*id);
            }
        }
        // With fewer members than are needed nothing is acknowledged anyway, so whoever leaves has
        // all that was: it stays electable for nothing.
        let mut rest: Vec<ReplicaId> = confirmed.difference(&wanted).copied().collect();
        let acked = |id: &ReplicaId| leading.slaves.get(id).and_then(|slave| slave.acked);
        rest.sort_by_key(|id| std::cmp::Reverse(acked(id)));
        let missing = self.config.min_in_sync.saturating_sub(wanted.len());
        wanted.extend(rest.into_iter().take(missing));
        wanted
    }

    /// Whether a member keeps up.
    fn stays(&self, leading: &Leading, id: ReplicaId, now: Millis) -> bool {
        if id == self.config.id {
            return true;
        }
        let Some(slave) = leading.slaves.get(&id) else {
            return now < leading.set.since + self.config.gone_max;
        };
        let since = leading.set.since;
        if leading.is_connected(id) {
            let has_all = slave.acked.is_some_and(|acked| acked >= self.end);
            has_all || now < slave.caught_up_at.max(since) + self.config.lag_max
        } else {
            now < slave.heard_at.max(since) + self.config.gone_max
        }
    }

    /// Asks for another in-sync set when one is wanted.
    pub(super) fn propose(&mut self, now: Millis, out: &mut Effects) {
        let Role::Master(leading) = &self.role else { return };
        let set = &leading.set;
        let mut wanted = self.wanted_set(leading, now);
        if set.proposals.len() >= PROPOSALS_MAX {
            wanted.clone_from(&set.confirmed);
        }
        if wanted == set.confirmed && set.proposals.is_empty() {
            return;
        }
        let is_asked = set.asked_at.is_some_and(|asked_at| now < asked_at + self.config.retry);
        if is_asked && (set.proposals.contains(&wanted) || wanted == set.confirmed) {
            return;
        }
        let (own, own_run) = (self.config.id, self.config.run.clone());
        let confirm = self.confirm;
        let Some(leading) = self.leading() else { return };
        let run = |id: &ReplicaId| {
            if *id == own {
                return Some((*id, own_run.clone()));
            }
            Some((*id, leading.slaves.get(id)?.run.clone()))
        };
        let request = AlterRequest {
            master: own,
            master_epoch: leading.epoch,
            sync_state_set_epoch: leading.set.epoch,
            set: wanted.clone(),
            runs: wanted.iter().filter_map(run).collect(),
            confirm,
        };
        leading.set.asked_at = Some(now);
        // The same set again changes the base and so ends proposals that are wanted no more.
        leading.set.proposals.insert(wanted);
        out.push(ReplicaEffect::AskAlter(request));
    }
}
