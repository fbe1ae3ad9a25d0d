//! What a broker does as master or slave of its group.
//!
//! The driver owns the log, the connections and the files; a `Replica` tells it what to do. As a
//! master it decides what is confirmed; as a slave it follows, cuts what diverged, and
//! acknowledges.

mod config;
mod effect;
mod freeze;
mod input;
mod master;
mod slave;
mod state;
mod sync_state_set;

use std::collections::BTreeSet;

use crate::identity::{LogPosition, Registration};
use crate::rules::Rule;
use crate::{Epoch, EpochEntry, Member, Millis, ReplicaId, RoleRecord};

pub use config::{FlushMode, Profile, ReplicaConfig};
pub use effect::{HaltReason, ReplicaEffect, Sends, Serving};
use freeze::Freezing;
pub use input::{Ack, Frame, Link, MasterHello, ReplicaInput, SlaveHello};
use master::Leading;
use slave::Following;
pub use state::{ReplicaState, StateError};

/// A controller is asked again after so long although nothing seems wrong: a notice may be lost.
const ROLE_POLL: Millis = 5_000;

type Effects = Vec<ReplicaEffect>;

#[derive(Debug)]
enum Role {
    Fenced,
    Slave(Following),
    Master(Leading),
}

/// See the module.
#[derive(Debug)]
pub struct Replica {
    config: ReplicaConfig,
    state: ReplicaState,
    /// No mastership of an epoch up to this one: it may have been another run's.
    promised_at_start: Epoch,
    /// Epoch, and number of the in-sync set, of the first record that knew this run.
    registered: Option<(Epoch, i32)>,
    role: Role,
    /// What the log has.
    begin: i64,
    end: i64,
    flushed: i64,
    is_log_failed: bool,
    /// What may be read, and the epoch in which that was learned.
    confirm: i64,
    confirm_epoch: Epoch,
    acknowledged: i64,
    /// From the latest record.
    sync_state_set: BTreeSet<ReplicaId>,
    sync_state_set_epoch: i32,
    loss_epoch: Epoch,
    /// End of this replica's own last promise to a master.
    promise_until: Millis,
    next_link: u64,
    role_asked_at: Option<Millis>,
    serving: Serving,
    halted: Option<HaltReason>,
}

impl Replica {
    /// A replica without a role. `state` is what [`ReplicaState::opened`] made and is durable;
    /// `log` is what the commit log has.
    #[must_use]
    pub fn new(
        config: ReplicaConfig,
        state: ReplicaState,
        log: std::ops::Range<i64>,
        now: Millis,
    ) -> Self {
        Self {
            promised_at_start: state.promised,
            state,
            registered: None,
            role: Role::Fenced,
            begin: log.start,
            end: log.end,
            flushed: log.end,
            is_log_failed: false,
            confirm: log.start,
            confirm_epoch: 0,
            acknowledged: log.start,
            sync_state_set: BTreeSet::new(),
            sync_state_set_epoch: 0,
            loss_epoch: 0,
            // The run before may have made a promise.
            promise_until: now + config.promise,
            next_link: 1,
            role_asked_at: None,
            serving: Serving { master_epoch: None, reads: false, sends: Sends::Refuse },
            halted: None,
            config,
        }
    }

    /// Takes an input and says what to do.
    pub fn handle(&mut self, now: Millis, input: ReplicaInput) -> Vec<ReplicaEffect> {
        let mut out = Vec::new();
        if self.halted.is_some() {
            return out;
        }
        match input {
            ReplicaInput::Tick => {}
            ReplicaInput::Role(record) => self.obey(now, &record, &mut out),
            ReplicaInput::Appended { end } => self.appended(end),
            ReplicaInput::Drained { end } => self.drained(end),
            ReplicaInput::Trimmed { begin } => self.trimmed(begin, &mut out),
            ReplicaInput::Flushed { end } => self.flushed(now, end, &mut out),
            ReplicaInput::LogFailed => self.is_log_failed = true,
            ReplicaInput::SlaveHello { link, hello } => {
                self.slave_hello(now, link, &hello, &mut out);
            }
            ReplicaInput::SlaveAck { link, ack } => self.slave_ack(now, link, &ack, &mut out),
            ReplicaInput::SlaveGone { link } => self.slave_gone(now, link),
            ReplicaInput::MasterHello { link, hello } => {
                self.master_hello(now, link, &hello, &mut out);
            }
            ReplicaInput::MasterData { link, frame } => {
                self.master_data(now, link, &frame, &mut out);
            }
            ReplicaInput::MasterGone { link } => self.master_gone(now, link),
            ReplicaInput::AlterRefused { refusal } => self.alter_refused(now, refusal, &mut out),
            ReplicaInput::Freeze { epoch, target, budget } => {
                let freezing = Freezing::new(target, now + budget);
                self.freeze(now, epoch, freezing, &mut out);
            }
            ReplicaInput::Unfreeze { epoch } => self.unfreeze(now, epoch),
        }
        self.go_on(now, &mut out);
        self.assert_sound();
        out
    }

    /// What follows from the state and the time, whatever the input was.
    fn go_on(&mut self, now: Millis, out: &mut Effects) {
        if self.halted.is_some() {
            return;
        }
        match self.role {
            Role::Fenced => {}
            Role::Slave(_) => self.go_on_as_slave(now, out),
            Role::Master(_) => self.go_on_as_master(now, out),
        }
        self.poll_role(now, out);
        self.serve(now, out);
    }

    /// Acts on what a controller says, unless it is old.
    fn obey(&mut self, now: Millis, record: &RoleRecord, out: &mut Effects) {
        if record.own_run.as_ref() != Some(&self.config.run) {
            self.register(now, record, out);
            return;
        }
        if self.registered.is_none() {
            self.registered = Some((record.epoch, record.sync_state_set_epoch));
            self.state.known_runs = [self.state.open_count; 2];
            self.persist(out);
        }
        if self.state.is_in_doubt && !record.is_tail_in_doubt {
            // The record knew of it; since then this replica has caught up, or a loss was accepted.
            self.state.is_in_doubt = false;
            self.persist(out);
        }
        if record.epoch < self.state.promised && self.config.rules.keep(Rule::RefuseLowerEpoch) {
            return;
        }
        let is_news = record.epoch != self.state.promised
            || record.sync_state_set_epoch >= self.sync_state_set_epoch;
        if !is_news {
            return;
        }
        self.role_asked_at = Some(now);
        let is_set_new = record.sync_state_set_epoch > self.sync_state_set_epoch;
        self.sync_state_set.clone_from(&record.sync_state_set);
        self.sync_state_set_epoch = record.sync_state_set_epoch;
        self.loss_epoch = self.loss_epoch.max(record.loss_epoch);
        match &record.master {
            None => self.become_fenced(record.epoch, out),
            Some(master) if master.id == self.config.id => {
                if self.master_epoch() == Some(record.epoch) {
                    self.set_confirmed(now, is_set_new);
                } else if record.epoch > self.state.promised {
                    self.become_master(now, record.epoch, out);
                }
            }
            Some(master) => self.follow(now, record.epoch, master, out),
        }
    }

    /// The record knows another run of this replica: an earlier one, which this one replaces, or a
    /// later one.
    fn register(&mut self, now: Millis, record: &RoleRecord, out: &mut Effects) {
        let recorded = record.own_run.as_ref();
        let own = &self.config.run;
        let on_this_disk = recorded.filter(|run| run.store_id == own.store_id);
        if let Some(registered) = self.registered {
            let number = (record.epoch, record.sync_state_set_epoch);
            let is_old = number < (self.state.promised, self.sync_state_set_epoch);
            let is_outdated = match on_this_disk {
                Some(run) => run.open_count > own.open_count && number > registered,
                None => record.epoch > registered.0 && !is_old,
            };
            if is_outdated {
                self.halt(HaltReason::Outdated, out);
                return;
            }
            // An earlier run although this one was registered: the record was put back, or this
            // is an old copy of it, and then the registration is refused.
            let is_known_less = match on_this_disk {
                Some(run) => run.open_count < own.open_count,
                None => recorded.is_none() && is_old,
            };
            if !is_known_less {
                return;
            }
        }
        let known = on_this_disk.map(|run| run.open_count);
        let [surely_known, registering] = self.state.known_runs;
        let is_put_back = known > Some(surely_known.max(registering));
        self.state.is_in_doubt |= is_put_back && self.config.rules.keep(Rule::CheckOpenCount);
        // The record may have been read late: an earlier run than the disk knows says nothing.
        let known = known.unwrap_or(0).max(surely_known);
        self.state.known_runs = [known, self.state.open_count];
        self.persist(out);
        self.role_asked_at = Some(now);
        out.push(ReplicaEffect::Register { replaces: record.own_run.clone() });
    }

    fn become_fenced(&mut self, epoch: Epoch, out: &mut Effects) {
        self.promise(epoch, out);
        if matches!(self.role, Role::Fenced) {
            return;
        }
        self.leave_role(out);
        out.push(ReplicaEffect::BecomeFenced);
    }

    fn become_master(&mut self, now: Millis, epoch: Epoch, out: &mut Effects) {
        self.leave_role(out);
        self.state.promised = epoch;
        // What was there before any election belongs to the first.
        let is_first = self.state.epochs.last().is_none();
        let start = if is_first { self.begin } else { self.end };
        let is_begun = self.state.epochs.begin(EpochEntry { epoch, start });
        debug_assert!(is_begun, "a promise is at least as high as the log's last epoch");
        self.persist(out);
        out.push(ReplicaEffect::BecomeMaster { epoch, start: self.end });
        self.role = Role::Master(Leading::new(now, epoch, self.end, self));
    }

    fn follow(&mut self, now: Millis, epoch: Epoch, master: &Member, out: &mut Effects) {
        if let Role::Slave(following) = &self.role
            && following.epoch == epoch
            && following.master == *master
        {
            return;
        }
        let was_master = self.master_epoch().is_some();
        self.leave_role(out);
        self.promise(epoch, out);
        out.push(ReplicaEffect::BecomeSlave { epoch, master: master.clone() });
        let forward_until = if was_master { now + self.config.forward } else { 0 };
        self.role = Role::Slave(Following::new(epoch, master.clone(), forward_until));
    }

    fn leave_role(&mut self, out: &mut Effects) {
        let close = |link| ReplicaEffect::Close { link };
        match std::mem::replace(&mut self.role, Role::Fenced) {
            Role::Fenced => {}
            Role::Slave(following) => out.extend(following.link().map(close)),
            Role::Master(leading) => out.extend(leading.links().map(close)),
        }
    }

    fn promise(&mut self, epoch: Epoch, out: &mut Effects) {
        if epoch > self.state.promised {
            self.state.promised = epoch;
            self.persist(out);
        }
    }

    fn persist(&self, out: &mut Effects) {
        if self.config.rules.keep(Rule::PersistPromise) {
            out.push(ReplicaEffect::Persist(self.state.clone()));
        }
    }

    fn appended(&mut self, end: i64) {
        let is_following = match &self.role {
            Role::Fenced | Role::Master(_) => false,
            Role::Slave(following) => following.is_streaming(),
        };
        if !is_following {
            self.end = self.end.max(end);
        }
    }

    fn trimmed(&mut self, begin: i64, out: &mut Effects) {
        if begin <= self.begin || begin > self.end {
            return;
        }
        self.begin = begin;
        self.confirm = self.confirm.max(begin);
        self.acknowledged = self.acknowledged.max(begin);
        let before = self.state.epochs.entries().len();
        self.state.epochs.forget_below(begin);
        if self.state.epochs.entries().len() != before {
            self.persist(out);
        }
    }

    fn flushed(&mut self, now: Millis, end: i64, out: &mut Effects) {
        self.flushed = self.flushed.max(end.min(self.end));
        if self.config.flush == FlushMode::Sync {
            self.acknowledge_flushed(now, out);
        }
    }

    /// End of what this replica may say it has.
    fn stored(&self) -> i64 {
        match self.config.flush {
            FlushMode::Async => self.end,
            FlushMode::Sync => self.flushed,
        }
    }

    fn halt(&mut self, reason: HaltReason, out: &mut Effects) {
        self.leave_role(out);
        self.halted = Some(reason);
        self.serving = Serving { master_epoch: None, reads: false, sends: Sends::Refuse };
        out.push(ReplicaEffect::Serve(self.serving.clone()));
        out.push(ReplicaEffect::Halt(reason));
    }

    fn new_link(&mut self) -> Link {
        let link = Link(self.next_link);
        self.next_link += 1;
        link
    }

    fn ask_role(&mut self, now: Millis, out: &mut Effects) {
        let pause = self.config.retry;
        if self.role_asked_at.is_none_or(|asked_at| now >= asked_at + pause) {
            self.role_asked_at = Some(now);
            out.push(ReplicaEffect::AskRole);
        }
    }

    fn poll_role(&mut self, now: Millis, out: &mut Effects) {
        let pause = match &self.role {
            Role::Fenced => self.config.retry,
            Role::Slave(following) if !following.is_streaming() => self.config.retry,
            Role::Slave(_) | Role::Master(_) => ROLE_POLL,
        };
        if self.role_asked_at.is_none_or(|asked_at| now >= asked_at + pause) {
            self.ask_role(now, out);
        }
    }

    /// Says how clients are served, when it changes.
    fn serve(&mut self, now: Millis, out: &mut Effects) {
        let is_member = self.sync_state_set.contains(&self.config.id);
        let serving = match &self.role {
            Role::Fenced => Serving { master_epoch: None, reads: is_member, sends: Sends::Refuse },
            Role::Slave(following) => {
                Serving { master_epoch: None, reads: is_member, sends: following.sends(now) }
            }
            Role::Master(leading) => Serving {
                master_epoch: leading.is_begun().then_some(leading.epoch),
                reads: true,
                sends: self.sends_as_master(leading, now),
            },
        };
        if serving != self.serving {
            self.serving = serving.clone();
            out.push(ReplicaEffect::Serve(serving));
        }
    }

    fn assert_sound(&self) {
        debug_assert!(self.begin <= self.confirm, "{self:?}");
        debug_assert!(self.confirm <= self.end, "{self:?}");
        debug_assert!(self.flushed <= self.end, "{self:?}");
        debug_assert!(self.state.promised >= self.promised_at_start, "{self:?}");
    }
}

/// What a driver and its metrics ask.
impl Replica {
    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &ReplicaConfig {
        &self.config
    }

    /// What was last to be persisted.
    #[must_use]
    pub fn state(&self) -> &ReplicaState {
        &self.state
    }

    /// For registrations and heartbeats.
    #[must_use]
    pub fn position(&self) -> LogPosition {
        LogPosition {
            promised: self.state.promised,
            last_epoch: self.state.epochs.last_epoch(),
            end: self.stored(),
            confirm: self.confirm,
            sync_state_set_epoch: self.sync_state_set_epoch,
            is_master: self.master_epoch().is_some(),
        }
    }

    /// What it says of itself, in registrations and heartbeats.
    #[must_use]
    pub fn registration(&self) -> Registration {
        Registration {
            id: self.config.id,
            address: self.config.address.clone(),
            ha_address: self.config.ha_address.clone(),
            run: self.config.run.clone(),
            is_whole: !self.state.is_in_doubt,
            log: self.position(),
        }
    }

    /// The epoch that it is master of.
    #[must_use]
    pub fn master_epoch(&self) -> Option<Epoch> {
        match &self.role {
            Role::Master(leading) => Some(leading.epoch),
            Role::Fenced | Role::Slave(_) => None,
        }
    }

    /// The master that it follows.
    #[must_use]
    pub fn master(&self) -> Option<&Member> {
        match &self.role {
            Role::Slave(following) => Some(&following.master),
            Role::Fenced | Role::Master(_) => None,
        }
    }

    /// How long ago the master of the current epoch was heard.
    #[must_use]
    pub fn heard_master(&self, now: Millis) -> Option<Millis> {
        match &self.role {
            Role::Slave(following) => following.heard_at.map(|at| now.saturating_sub(at)),
            Role::Fenced | Role::Master(_) => None,
        }
    }

    /// The log, as far as it is known here.
    #[must_use]
    pub fn log(&self) -> std::ops::Range<i64> {
        self.begin..self.end
    }

    /// Up to where it may be read.
    #[must_use]
    pub fn confirm(&self) -> i64 {
        self.confirm
    }

    /// How clients are served.
    #[must_use]
    pub fn serving(&self) -> &Serving {
        &self.serving
    }

    /// The confirmed in-sync set and its number.
    #[must_use]
    pub fn sync_state_set(&self) -> (&BTreeSet<ReplicaId>, i32) {
        (&self.sync_state_set, self.sync_state_set_epoch)
    }

    /// Why it cannot go on.
    #[must_use]
    pub fn halted(&self) -> Option<HaltReason> {
        self.halted
    }
}
