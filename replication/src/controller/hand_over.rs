//! Moving the mastership in order: the master stops accepting and waits for the target; then the
//! record is changed. Nothing is unsafe about a hand-over that breaks off anywhere: the master goes
//! on by itself, or finds a higher epoch.

use super::election::{self, Ballot};
use super::input::{FreezeFailure, Token};
use super::record::Purpose;
use super::{Controller, ControllerEffect, Effects, Refusal};
use crate::group_record::{ElectionReason, GroupRecord, Phase};
use crate::{Epoch, Millis, ReplicaId};

/// Who asks for a hand-over, and to whom; nobody in particular, and to the best.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wish {
    pub(super) token: Option<Token>,
    pub(super) target: Option<ReplicaId>,
}

/// A hand-over that is under way.
#[derive(Debug)]
pub(super) struct HandOver {
    token: Option<Token>,
    master: ReplicaId,
    epoch: Epoch,
    target: ReplicaId,
    /// It is given up then.
    until: Millis,
    /// The target has everything, and the master accepts nothing.
    is_frozen: bool,
}

impl Controller {
    /// Begins to hand over. `false` if that cannot be.
    pub(super) fn begin_hand_over(
        &mut self,
        now: Millis,
        record: &GroupRecord,
        wish: Wish,
        out: &mut Effects,
    ) -> bool {
        let Wish { token, target } = wish;
        let Some((master, target)) = self.pair(now, record, target) else {
            let refusal = Err(Refusal::ElectFailed);
            let reply = |token| ControllerEffect::Reply { token, outcome: refusal };
            out.extend(token.map(reply));
            return false;
        };
        let (epoch, budget) = (record.master_epoch, self.config.hand_over_budget);
        let until = now + budget;
        self.hand_over = Some(HandOver { token, master, epoch, target, until, is_frozen: false });
        out.push(ControllerEffect::Freeze { master, epoch, target, budget });
        true
    }

    /// Who hands over to whom.
    fn pair(
        &self,
        now: Millis,
        record: &GroupRecord,
        target: Option<ReplicaId>,
    ) -> Option<(ReplicaId, ReplicaId)> {
        let master = record.master?;
        let is_alive = |id: &ReplicaId| self.sessions.is_alive(record, *id, now);
        if self.hand_over.is_some() || record.phase != Phase::Serving || !is_alive(&master) {
            return None;
        }
        let end = self.sessions.get(master)?.log().end;
        let is_fit = |id: &ReplicaId| {
            let own_end = self.sessions.get(*id).map_or(0, |session| session.log().end);
            *id != master
                && is_alive(id)
                && election::is_electable(record, *id, self.config.rules)
                && end - own_end <= self.config.hand_over_lag_max
                && (target.is_some() || !self.sessions.is_leaving(*id))
        };
        let candidates = record.sync_state_set.iter().copied().filter(is_fit);
        let candidates = candidates.filter(|id| target.is_none_or(|target| target == *id));
        Some((master, election::best(&self.sessions, candidates)?))
    }

    pub(super) fn frozen(
        &mut self,
        epoch: Epoch,
        result: Result<i64, FreezeFailure>,
        out: &mut Effects,
    ) {
        let Some(hand_over) = self.hand_over.as_mut().filter(|h| h.epoch == epoch) else { return };
        match result {
            Ok(_) => hand_over.is_frozen = true,
            Err(_) => self.break_off(out),
        }
    }

    pub(super) fn go_on_handing_over(&mut self, now: Millis, out: &mut Effects) {
        let Some(hand_over) = &self.hand_over else { return };
        if now >= hand_over.until {
            self.break_off(out);
            return;
        }
        if !hand_over.is_frozen {
            return;
        }
        let Some(record) = self.knowledge.settled() else { return };
        let is_current =
            record.master == Some(hand_over.master) && record.master_epoch == hand_over.epoch;
        let target = hand_over.target;
        if !is_current || !election::is_electable(&record, target, self.config.rules) {
            self.break_off(out);
            return;
        }
        let ballot = Ballot {
            master: target,
            reason: ElectionReason::HandOver,
            alive: self.sessions.alive(&record, now),
            min_in_sync: self.config.min_in_sync,
        };
        self.write(now, ballot.cast(&record), Purpose::HandOver, out);
    }

    pub(super) fn handed_over(&mut self, record: &std::sync::Arc<GroupRecord>, out: &mut Effects) {
        let Some(hand_over) = self.hand_over.take() else { return };
        let outcome = Ok(std::sync::Arc::clone(record));
        out.extend(hand_over.token.map(|token| ControllerEffect::Reply { token, outcome }));
    }

    fn break_off(&mut self, out: &mut Effects) {
        let Some(hand_over) = self.hand_over.take() else { return };
        let HandOver { token, master, epoch, .. } = hand_over;
        out.push(ControllerEffect::Unfreeze { master, epoch });
        let outcome = Err(Refusal::ElectFailed);
        out.extend(token.map(|token| ControllerEffect::Reply { token, outcome }));
        let is_stalled = self
            .sessions
            .get(master)
            .is_some_and(|session| session.disk_stall() >= self.config.disk_stall_max);
        self.is_stall_proved |= is_stalled;
    }
}
