//! A replica that is master: what its slaves have, and what is confirmed by that.

use std::collections::BTreeMap;

use super::effect::{ReplicaEffect, Sends};
use super::freeze::Freezing;
use super::input::{Ack, Frame, Link, MasterHello, SlaveHello};
use super::sync_state_set::SyncStateSet;
use super::{Effects, Profile, Replica, Role};
use crate::rules::Rule;
use crate::{Epoch, Millis, ReplicaId, RunIdentity};

/// State of a master.
#[derive(Debug)]
pub(super) struct Leading {
    pub(super) epoch: Epoch,
    /// End of the log when the epoch began. Nothing new is accepted before all members of the
    /// in-sync set have so much and so are known to follow.
    pub(super) start: i64,
    is_begun: bool,
    /// All members of the in-sync set have acknowledged the start, in this epoch.
    is_followed: bool,
    /// Not before this time: a promise to the former master runs until then.
    serve_at: Millis,
    pub(super) slaves: BTreeMap<ReplicaId, Progress>,
    pub(super) set: SyncStateSet,
    pub(super) freezing: Option<Freezing>,
    /// Promises for frames sent before this time were given back.
    pub(super) promises_void_before: Millis,
}

/// What a master knows about a slave.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) run: RunIdentity,
    link: Option<Link>,
    is_streaming: bool,
    pub(super) heard_at: Millis,
    /// What this run has, acknowledged in this epoch.
    pub(super) acked: Option<i64>,
    /// When it last had everything that there was at that time.
    pub(super) caught_up_at: Millis,
    /// Where the log ended at an earlier time: when the slave has that, it was caught up then.
    mark: (i64, Millis),
    promised_until: Millis,
    /// Its latest acknowledgement carried no promise.
    pub(super) is_promise_returned: bool,
}

impl Leading {
    pub(super) fn new(now: Millis, epoch: Epoch, start: i64, replica: &Replica) -> Self {
        let waits = replica.config.wait_out_promise
            && replica.config.rules.keep(Rule::WaitOutPromise)
            && replica.promise_until > now;
        Self {
            epoch,
            start,
            is_begun: false,
            is_followed: false,
            serve_at: if waits { replica.promise_until } else { now },
            slaves: BTreeMap::new(),
            set: SyncStateSet::new(
                now,
                replica.sync_state_set.clone(),
                replica.sync_state_set_epoch,
            ),
            freezing: None,
            promises_void_before: 0,
        }
    }

    pub(super) fn links(&self) -> impl Iterator<Item = Link> {
        self.slaves.values().filter_map(|progress| progress.link)
    }

    pub(super) fn is_begun(&self) -> bool {
        self.is_begun
    }

    fn slave_at(&mut self, link: Link) -> Option<&mut Progress> {
        self.slaves.values_mut().find(|progress| progress.link == Some(link))
    }

    pub(super) fn is_connected(&self, id: ReplicaId) -> bool {
        self.slaves.get(&id).is_some_and(|slave| slave.link.is_some() && slave.acked.is_some())
    }
}

impl Progress {
    pub(super) fn return_promise(&mut self) {
        self.promised_until = 0;
        self.is_promise_returned = false;
    }

    fn acknowledge(&mut self, now: Millis, end: i64, log_end: i64) {
        self.heard_at = now;
        self.acked = self.acked.max(Some(end));
        let acked = self.acked.unwrap_or(end);
        if acked >= log_end {
            self.caught_up_at = now;
            self.mark = (log_end, now);
        } else if acked >= self.mark.0 {
            self.caught_up_at = self.mark.1;
            self.mark = (log_end, now);
        }
    }
}

impl Replica {
    pub(super) fn leading(&mut self) -> Option<&mut Leading> {
        match &mut self.role {
            Role::Master(leading) => Some(leading),
            Role::Fenced | Role::Slave(_) => None,
        }
    }

    pub(super) fn slave_hello(
        &mut self,
        now: Millis,
        link: Link,
        hello: &SlaveHello,
        out: &mut Effects,
    ) {
        let answer = MasterHello {
            epoch: self.state.promised,
            epochs: self.state.epochs.clone(),
            begin: self.begin,
            end: self.end,
        };
        let checks_epoch = self.config.rules.keep(Rule::CountOwnEpochOnly);
        let Some(leading) = self.leading() else {
            out.push(ReplicaEffect::Close { link });
            return;
        };
        if hello.epoch != leading.epoch && checks_epoch {
            out.push(ReplicaEffect::Close { link });
            if hello.epoch > leading.epoch {
                self.ask_role(now, out);
            }
            return;
        }
        let progress = Progress {
            run: hello.run.clone(),
            link: Some(link),
            is_streaming: false,
            heard_at: now,
            acked: None,
            caught_up_at: now,
            mark: (answer.end, now),
            promised_until: 0,
            is_promise_returned: false,
        };
        let former = leading.slaves.insert(hello.id, progress);
        let former_link = former.as_ref().and_then(|former| former.link);
        if let (Some(former), Some(progress)) = (&former, leading.slaves.get_mut(&hello.id)) {
            // The same disk does not forget; only the connection is another.
            progress.caught_up_at = former.caught_up_at;
            if former.run == progress.run {
                progress.promised_until = former.promised_until;
            }
        }
        out.extend(former_link.map(|link| ReplicaEffect::Close { link }));
        out.push(ReplicaEffect::AnswerHello { link, hello: answer });
    }

    pub(super) fn slave_ack(&mut self, now: Millis, link: Link, ack: &Ack, out: &mut Effects) {
        let log = self.begin..=self.end;
        let promise = self.config.promise;
        let checks_epoch = self.config.rules.keep(Rule::CountOwnEpochOnly);
        let Some(leading) = self.leading() else { return };
        let (epoch, void_before) = (leading.epoch, leading.promises_void_before);
        let Some(slave) = leading.slave_at(link) else { return };
        if ack.epoch != epoch && checks_epoch {
            return;
        }
        if !slave.is_streaming {
            if !log.contains(&ack.end) {
                out.push(ReplicaEffect::Close { link });
                self.slave_gone(now, link);
                return;
            }
            slave.is_streaming = true;
            out.push(ReplicaEffect::Stream { link, from: ack.end });
        }
        slave.acknowledge(now, ack.end, *log.end());
        slave.is_promise_returned = ack.stamp.is_none();
        if let Some(stamp) = ack.stamp.filter(|stamp| *stamp >= void_before) {
            // Clocks may differ in speed by a little.
            let margin = promise / 100;
            slave.promised_until = slave.promised_until.max(stamp + promise - margin);
        }
    }

    pub(super) fn slave_gone(&mut self, now: Millis, link: Link) {
        let Some(leading) = self.leading() else { return };
        if let Some(slave) = leading.slave_at(link) {
            slave.link = None;
            slave.is_streaming = false;
            slave.heard_at = now;
        }
    }

    pub(super) fn go_on_as_master(&mut self, now: Millis, out: &mut Effects) {
        self.close_silent(now, out);
        self.advance_confirm(now, out);
        let min_in_sync = self.config.min_in_sync;
        if let Some(leading) = self.leading() {
            let has_enough = leading.set.confirmed().len() >= min_in_sync;
            if leading.is_followed && now >= leading.serve_at && has_enough {
                leading.is_begun = true;
            }
        }
        self.propose(now, out);
        self.go_on_freezing(now, out);
    }

    fn close_silent(&mut self, now: Millis, out: &mut Effects) {
        let silence_max = self.config.silence_max;
        let Some(leading) = self.leading() else { return };
        let silent = |slave: &&Progress| now >= slave.heard_at + silence_max;
        let links: Vec<Link> =
            leading.slaves.values().filter(silent).filter_map(|slave| slave.link).collect();
        for link in links {
            out.push(ReplicaEffect::Close { link });
            self.slave_gone(now, link);
        }
    }

    /// What all members of the in-sync set, and of every set that may become it, have.
    fn advance_confirm(&mut self, now: Millis, out: &mut Effects) {
        let stored = self.stored();
        let rules = self.config.rules;
        let Role::Master(leading) = &self.role else { return };
        let own = self.config.id;
        let members = leading.set.effective(rules);
        let others = || members.iter().filter(|id| **id != own);
        let acked = |id: &ReplicaId| leading.slaves.get(id).and_then(|slave| slave.acked);
        let has_enough = leading.set.confirmed().len() >= self.config.min_in_sync
            || !rules.keep(Rule::MinInSync);
        let lowest = if rules.keep(Rule::WaitForAll) {
            others().map(acked).min().unwrap_or(Some(stored))
        } else {
            others().map(acked).max().unwrap_or(Some(stored))
        };
        let is_followed = lowest.is_some_and(|lowest| lowest.min(stored) >= leading.start);
        let mut offset = self.confirm;
        if let Some(lowest) = lowest.filter(|_| has_enough) {
            offset = offset.max(lowest.min(stored));
        }
        let mut acknowledged = self.acknowledged.max(offset);
        let is_promised =
            |id: &ReplicaId| leading.slaves.get(id).is_some_and(|slave| now < slave.promised_until);
        let may_answer_alone = self.config.profile == Profile::Async
            && leading.is_begun
            && leading.freezing.is_none()
            && (others().all(is_promised) || !rules.keep(Rule::NeedPromises));
        if may_answer_alone {
            acknowledged = acknowledged.max(stored);
        }
        if offset > self.confirm || acknowledged > self.acknowledged {
            self.confirm_epoch = leading.epoch;
            (self.confirm, self.acknowledged) = (offset, acknowledged);
            let offset = if rules.keep(Rule::ReadConfirmedOnly) { offset } else { stored };
            out.push(ReplicaEffect::Confirm { offset, acknowledged });
        }
        if let Some(leading) = self.leading() {
            leading.is_followed |= is_followed;
        }
    }

    pub(super) fn sends_as_master(&self, leading: &Leading, now: Millis) -> Sends {
        let own = self.config.id;
        let confirmed = leading.set.confirmed();
        let is_there = |id: &&ReplicaId| **id == own || leading.is_connected(**id);
        let there = confirmed.iter().filter(is_there).count();
        let has_enough = there >= self.config.min_in_sync;
        if self.is_log_failed {
            Sends::Refuse
        } else if leading.freezing.is_some() || now < leading.serve_at {
            Sends::Hold
        } else if leading.is_begun && has_enough {
            Sends::Accept
        } else if leading.is_begun || confirmed.len() < self.config.min_in_sync {
            Sends::Refuse
        } else {
            Sends::Hold
        }
    }

    /// The next frame for a slave that has everything below `from`: at most `length_max` bytes, of
    /// one epoch, none if there is nothing new. The driver may shorten it. `None` if this replica
    /// is not master, or the log has `from` no more.
    #[must_use]
    pub fn frame(&self, now: Millis, from: i64, length_max: i64) -> Option<Frame> {
        let Role::Master(leading) = &self.role else { return None };
        if from < self.begin || from > self.end {
            return None;
        }
        let entry = self.state.epochs.at(from)?;
        let end = self.state.epochs.end_at(from, self.end).min(from.saturating_add(length_max));
        Some(Frame {
            epoch: leading.epoch,
            data_epoch: entry.epoch,
            data_epoch_start: entry.start,
            offset: from,
            length: end - from,
            confirm: self.confirm,
            stamp: leading.freezing.is_none().then_some(now),
        })
    }

    /// Until when this replica is surely the only master that serves: reads that may not be stale
    /// are answered before. 0 if it cannot know.
    #[must_use]
    pub fn sole_until(&self) -> Millis {
        let Role::Master(leading) = &self.role else { return 0 };
        if leading.freezing.is_some() || !leading.is_begun {
            return 0;
        }
        let members = leading.set.effective(self.config.rules);
        let promised = |id: &ReplicaId| leading.slaves.get(id).map_or(0, |s| s.promised_until);
        let others = members.iter().filter(|id| **id != self.config.id);
        others.map(promised).min().unwrap_or(Millis::MAX)
    }
}
