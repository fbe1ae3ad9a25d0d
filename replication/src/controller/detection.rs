//! What a leading controller decides by itself: whether the master is dead, and what then.

use std::collections::BTreeSet;

use super::election::{self, Ballot};
use super::hand_over::Wish;
use super::record::{Purpose, number};
use super::registration::is_every_tail_in_doubt;
use super::{Condition, Controller, Effects};
use crate::group_record::{ElectionReason, GroupRecord, Phase};
use crate::rules::Rule;
use crate::{Millis, ReplicaId};

impl Controller {
    pub(super) fn decide(&mut self, now: Millis, out: &mut Effects) {
        let Some(record) = self.knowledge.settled() else { return };
        if let Some(next) = self.decision(now, &record, out) {
            if next.master_epoch > record.master_epoch {
                self.elected_at = Some(now);
                self.gather_since = None;
                self.is_stall_proved = false;
            }
            self.write(now, next, Purpose::Decision, out);
        }
    }

    fn decision(
        &mut self,
        now: Millis,
        record: &GroupRecord,
        out: &mut Effects,
    ) -> Option<GroupRecord> {
        if record.phase != Phase::RecordRegression && self.is_regressed(record) {
            return self.confirm_regression(now, record, out);
        }
        match record.phase {
            Phase::New | Phase::RecordRegression => {
                let since = *self.gather_since.get_or_insert(now);
                let (replicas, sessions) = (&self.config.replicas, &self.sessions);
                let is_there = |id| {
                    sessions.is_heard(id, now) && sessions.silence(id, now) <= Some(now - since)
                };
                let mut base = record.clone();
                let (epoch, set_epoch) = self.knowledge.highest();
                base.master_epoch = base.master_epoch.max(epoch);
                base.sync_state_set_epoch = base.sync_state_set_epoch.max(set_epoch);
                election::from_replicas(&base, sessions, replicas, is_there)
            }
            Phase::DataLost => None,
            Phase::TailInDoubt => self.elected_in_doubt(now, record),
            Phase::NoMaster => self.elected(now, record, None, ElectionReason::NoMaster),
            Phase::Serving => self.decision_on_master(now, record, out),
        }
    }

    /// Whether a replica or this controller has seen more than the record says: it was put back, or
    /// made anew.
    fn is_regressed(&self, record: &GroupRecord) -> bool {
        let number = number(record);
        let has_seen_more = self.sessions.iter().any(|(id, session)| {
            let log = session.log();
            let is_ours = self.config.replicas.contains(&id) || record.replicas.contains_key(&id);
            is_ours && (log.promised, log.sync_state_set_epoch) > number
        });
        let is_regressed = has_seen_more || self.knowledge.highest() > number;
        is_regressed && self.config.rules.keep(Rule::DetectRegression)
    }

    /// What is known here may just be old: only what was read since counts.
    fn confirm_regression(
        &mut self,
        now: Millis,
        record: &GroupRecord,
        out: &mut Effects,
    ) -> Option<GroupRecord> {
        if !self.knowledge.is_fresh() {
            self.knowledge.doubt(now, out);
            return None;
        }
        let mut next = record.clone();
        next.phase = Phase::RecordRegression;
        self.gather_since = None;
        Some(next)
    }

    fn decision_on_master(
        &mut self,
        now: Millis,
        record: &GroupRecord,
        out: &mut Effects,
    ) -> Option<GroupRecord> {
        let Some(reason) = self.reason_against_master(now, record) else {
            self.leave_if_unfit(now, record, out);
            return self.knowledge.settled().and_then(|_| election::without_doubtful(record));
        };
        let pause = if reason == ElectionReason::Silent {
            self.config.election_pause
        } else {
            self.config.election_pause_proved
        };
        if self.elected_at.is_some_and(|at| now < at + pause) {
            return None;
        }
        self.elected(now, record, None, reason)
    }

    /// Why the master is to be deposed, if it is.
    fn reason_against_master(&self, now: Millis, record: &GroupRecord) -> Option<ElectionReason> {
        let master = record.master?;
        if self.is_stall_proved {
            return Some(ElectionReason::DiskStalled);
        }
        if self.sessions.is_alive(record, master, now) {
            return None;
        }
        if self.sessions.is_gone(master) {
            return Some(ElectionReason::ProcessGone);
        }
        let silence = self.sessions.silence(master, now).unwrap_or(now);
        let is_veto_over = self.is_unseen_by_name_servers && silence >= self.config.veto_max;
        if self.is_vetoed(now, record) && !is_veto_over {
            return None;
        }
        let missed_by_all =
            self.sessions.is_master_missed_by_all(record, now, self.config.heartbeat_timeout);
        if self.has_brake && !missed_by_all {
            return None;
        }
        Some(ElectionReason::Silent)
    }

    fn is_vetoed(&self, now: Millis, record: &GroupRecord) -> bool {
        self.config.rules.keep(Rule::PeerVeto)
            && self.sessions.is_master_heard(record, now, self.config.veto_age)
    }

    /// A master that is alive but should not be one hands over.
    fn leave_if_unfit(&mut self, now: Millis, record: &GroupRecord, out: &mut Effects) {
        let Some(master) = record.master else { return };
        if self.hand_over.is_some() || !self.sessions.is_alive(record, master, now) {
            return;
        }
        let stall = self.sessions.get(master).map_or(0, super::session::Session::disk_stall);
        let is_stalled = stall >= self.config.disk_stall_max;
        if !is_stalled && !self.sessions.is_leaving(master) {
            return;
        }
        let is_pausing = self.elected_at.is_some_and(|at| now < at + self.config.election_pause);
        if is_pausing {
            return;
        }
        let begins = self.begin_hand_over(now, record, Wish::default(), out);
        if is_stalled && !begins {
            self.is_stall_proved = true;
        } else if !begins {
            // Nobody to hand over to: look again after a while.
            self.elected_at = Some(now);
        }
    }

    /// The record after an election of a whole, living member: the best, or `wanted`.
    pub(super) fn elected(
        &self,
        now: Millis,
        record: &GroupRecord,
        wanted: Option<ReplicaId>,
        reason: ElectionReason,
    ) -> Option<GroupRecord> {
        let rules = self.config.rules;
        let alive = self.sessions.alive(record, now);
        let is_candidate = |id: &ReplicaId| {
            record.master != Some(*id)
                && wanted.is_none_or(|wanted| wanted == *id)
                && election::is_electable(record, *id, rules)
        };
        let candidates = || alive.iter().copied().filter(is_candidate);
        let staying = candidates().filter(|id| !self.sessions.is_leaving(*id));
        let master = election::best(&self.sessions, staying)
            .or_else(|| election::best(&self.sessions, candidates()))?;
        let min_in_sync = self.config.min_in_sync;
        Some(Ballot { master, reason, alive, min_in_sync }.cast(record))
    }

    /// All members may have lost something: wait for all, for a while, and take the best.
    fn elected_in_doubt(&mut self, now: Millis, record: &GroupRecord) -> Option<GroupRecord> {
        let since = *self.gather_since.get_or_insert(now);
        if !is_every_tail_in_doubt(record) {
            return self.elected(now, record, None, ElectionReason::NoMaster);
        }
        let alive = self.sessions.alive(record, now);
        let members: BTreeSet<_> = record.sync_state_set.intersection(&alive).copied().collect();
        if members.len() < record.sync_state_set.len() && now < since + self.config.gather {
            return None;
        }
        let master = election::best(&self.sessions, members.into_iter())?;
        let reason = ElectionReason::TailInDoubt;
        Some(election::with_loss(record, &self.sessions, master, reason))
    }

    pub(super) fn conditions(&self, now: Millis) -> BTreeSet<Condition> {
        let mut conditions = BTreeSet::new();
        let mut check = |holds: bool, condition| {
            if holds {
                conditions.insert(condition);
            }
        };
        check(self.knowledge.is_unavailable, Condition::RecordUnavailable);
        let Some(record) = self.knowledge.record() else { return conditions };
        let is_serving = record.master.is_some();
        let is_new = record.phase == Phase::New;
        let in_sync = record.sync_state_set.len();
        let is_dead = record.master.is_some_and(|id| !self.sessions.is_alive(record, id, now));
        check(!is_serving && !is_new, Condition::NoMaster);
        check(is_serving && in_sync < self.config.min_in_sync, Condition::WritesRefused);
        check(record.phase == Phase::DataLost, Condition::DataLost);
        check(record.phase == Phase::RecordRegression, Condition::RecordRegression);
        let has_lost = record.loss_epoch > 0 && record.loss_epoch == record.master_epoch;
        check(has_lost, Condition::PossibleTailLoss);
        let is_cut_off = is_dead && self.is_vetoed(now, record);
        check(is_cut_off, Condition::MasterUnreachableFromOperator);
        conditions
    }
}
