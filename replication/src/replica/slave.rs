//! A replica that follows a master.

use super::effect::{HaltReason, ReplicaEffect, Sends};
use super::input::{Ack, Frame, Link, MasterHello, SlaveHello};
use super::{Effects, FlushMode, Replica, Role};
use crate::rules::Rule;
use crate::{Epoch, EpochEntry, EpochTable, Member, Millis};

/// State of a slave.
#[derive(Debug)]
pub(super) struct Following {
    pub(super) epoch: Epoch,
    pub(super) master: Member,
    connection: Connection,
    pub(super) heard_at: Option<Millis>,
    /// Stamp of the latest frame.
    stamp: Option<Millis>,
    /// Late sends are forwarded until then.
    forward_until: Millis,
}

#[derive(Debug)]
enum Connection {
    /// None; the next is made at this time.
    Closed { retry_at: Millis },
    /// The master has not yet answered the hello.
    Greeting { link: Link, since: Millis },
    /// The logs are the same up to this one's end, and more is coming.
    Streaming { link: Link },
}

/// What has to happen to a slave's log before it can follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// Nothing.
    Whole,
    /// It is cut here.
    Cut(i64),
    /// It begins anew here.
    Refill(i64),
}

impl Following {
    pub(super) fn new(epoch: Epoch, master: Member, forward_until: Millis) -> Self {
        let connection = Connection::Closed { retry_at: 0 };
        Self { epoch, master, connection, heard_at: None, stamp: None, forward_until }
    }

    pub(super) fn link(&self) -> Option<Link> {
        match self.connection {
            Connection::Closed { .. } => None,
            Connection::Greeting { link, .. } | Connection::Streaming { link } => Some(link),
        }
    }

    pub(super) fn is_streaming(&self) -> bool {
        matches!(self.connection, Connection::Streaming { .. })
    }

    pub(super) fn sends(&self, now: Millis) -> Sends {
        if now < self.forward_until { Sends::Forward(self.master.clone()) } else { Sends::Refuse }
    }
}

impl Replica {
    fn following(&mut self) -> Option<&mut Following> {
        match &mut self.role {
            Role::Slave(following) => Some(following),
            Role::Fenced | Role::Master(_) => None,
        }
    }

    /// Connects when it is time, and gives up connections on which nothing comes.
    pub(super) fn go_on_as_slave(&mut self, now: Millis, out: &mut Effects) {
        let silence_max = self.config.silence_max;
        let is_log_failed = self.is_log_failed;
        let Some(following) = self.following() else { return };
        let heard_at = following.heard_at.unwrap_or(0);
        match following.connection {
            Connection::Closed { retry_at } if now >= retry_at && !is_log_failed => {
                self.connect(now, out);
            }
            Connection::Greeting { link, since } if now >= since + silence_max => {
                self.hang_up(now, link, out);
            }
            Connection::Streaming { link } if now >= heard_at + silence_max || is_log_failed => {
                self.hang_up(now, link, out);
            }
            Connection::Closed { .. }
            | Connection::Greeting { .. }
            | Connection::Streaming { .. } => {}
        }
    }

    fn connect(&mut self, now: Millis, out: &mut Effects) {
        let link = self.new_link();
        let hello = SlaveHello {
            id: self.config.id,
            run: self.config.run.clone(),
            epoch: self.state.promised,
            end: self.end,
        };
        let Some(following) = self.following() else { return };
        following.connection = Connection::Greeting { link, since: now };
        out.push(ReplicaEffect::ConnectTo { link, master: following.master.clone() });
        out.push(ReplicaEffect::SendHello { link, hello });
    }

    fn hang_up(&mut self, now: Millis, link: Link, out: &mut Effects) {
        out.push(ReplicaEffect::Close { link });
        self.master_gone(now, link);
    }

    pub(super) fn master_gone(&mut self, now: Millis, link: Link) {
        let retry_at = now + self.config.retry;
        let Some(following) = self.following() else { return };
        if following.link() == Some(link) {
            following.connection = Connection::Closed { retry_at };
        }
    }

    /// Compares the logs, cuts what the master does not have, and asks for the rest.
    pub(super) fn master_hello(
        &mut self,
        now: Millis,
        link: Link,
        hello: &MasterHello,
        out: &mut Effects,
    ) {
        let Some(following) = self.following() else { return };
        let is_expected =
            matches!(following.connection, Connection::Greeting { link: own, .. } if own == link);
        if !is_expected {
            return;
        }
        let is_own_epoch = hello.epoch == following.epoch;
        if !is_own_epoch && self.config.rules.keep(Rule::CountOwnEpochOnly) {
            self.hang_up(now, link, out);
            self.ask_role(now, out);
            return;
        }
        let fit = self.fit(hello);
        if let Some(common) = self.lost_if(fit, hello) {
            let reason = HaltReason::WouldCutConfirmed { common, confirm: self.confirm };
            self.halt(reason, out);
            return;
        }
        match fit {
            Fit::Whole => self.forget_epochs(self.end, out),
            Fit::Cut(to) => self.cut(to, out),
            Fit::Refill(from) => self.refill(from, out),
        }
        let Some(following) = self.following() else { return };
        following.connection = Connection::Streaming { link };
        following.heard_at = Some(now);
        following.stamp = None;
        self.send_ack(now, out);
    }

    fn fit(&self, hello: &MasterHello) -> Fit {
        let is_empty = self.begin == self.end;
        let epochs = &self.state.epochs;
        let common = if self.config.rules.keep(Rule::CutAtCommonPoint) {
            epochs.common_end(self.end, &hello.epochs, hello.end)
        } else {
            Some(self.end.min(hello.end))
        };
        match common {
            Some(common) if common < hello.begin || common < self.begin => Fit::Refill(hello.begin),
            Some(common) if common < self.end => Fit::Cut(common),
            Some(_) => Fit::Whole,
            None if is_empty && self.end == hello.begin && epochs.last().is_none() => Fit::Whole,
            None => Fit::Refill(hello.begin),
        }
    }

    /// The offset from which confirmed messages would be lost, if any would be and nobody has
    /// accepted that.
    fn lost_if(&self, fit: Fit, hello: &MasterHello) -> Option<i64> {
        let kept = match fit {
            Fit::Whole => self.end,
            Fit::Cut(to) => to,
            Fit::Refill(_) => {
                let epochs = &self.state.epochs;
                epochs.common_end(self.end, &hello.epochs, hello.end).unwrap_or(self.begin)
            }
        };
        // What the master's retention has deleted is not lost.
        let kept = kept.max(hello.begin);
        let is_accepted = self.loss_epoch > self.confirm_epoch;
        (kept < self.confirm && !is_accepted).then_some(kept)
    }

    fn cut(&mut self, to: i64, out: &mut Effects) {
        let epoch = self.state.epochs.at(to).map_or(0, |entry| entry.epoch);
        out.push(ReplicaEffect::SaveDiverged { epoch, from: to, to: self.end });
        out.push(ReplicaEffect::Truncate { to });
        self.set_log(self.begin, to);
        self.forget_epochs(to, out);
    }

    /// Epochs that begin where the logs part have no bytes that are the master's; the same epoch
    /// comes again with the first of them.
    fn forget_epochs(&mut self, end: i64, out: &mut Effects) {
        let before = self.state.epochs.entries().len();
        self.state.epochs.cut(end);
        if self.state.epochs.entries().len() != before {
            self.persist(out);
        }
    }

    fn refill(&mut self, from: i64, out: &mut Effects) {
        if self.begin < self.end {
            let epoch = self.state.epochs.at(self.begin).map_or(0, |entry| entry.epoch);
            out.push(ReplicaEffect::SaveDiverged { epoch, from: self.begin, to: self.end });
        }
        out.push(ReplicaEffect::Refill { from });
        self.set_log(from, from);
        self.state.epochs = EpochTable::default();
        self.persist(out);
    }

    fn set_log(&mut self, begin: i64, end: i64) {
        (self.begin, self.end) = (begin, end);
        self.flushed = self.flushed.min(end).max(begin);
        self.confirm = self.confirm.min(end).max(begin);
        self.acknowledged = self.acknowledged.min(end).max(begin);
    }

    pub(super) fn master_data(
        &mut self,
        now: Millis,
        link: Link,
        frame: &Frame,
        out: &mut Effects,
    ) {
        let checks_epoch = self.config.rules.keep(Rule::CountOwnEpochOnly);
        let Some(following) = self.following() else { return };
        let is_expected =
            matches!(following.connection, Connection::Streaming { link: own } if own == link);
        if !is_expected {
            return;
        }
        if frame.epoch != following.epoch && checks_epoch {
            self.hang_up(now, link, out);
            return;
        }
        following.heard_at = Some(now);
        following.stamp = frame.stamp;
        if frame.stamp.is_none() {
            self.promise_until = 0;
        }
        if frame.length > 0 && !self.append(frame, out) {
            self.hang_up(now, link, out);
            return;
        }
        if self.config.flush == FlushMode::Async || frame.length == 0 {
            self.send_ack(now, out);
        }
        self.learn_confirm(frame, out);
    }

    /// Takes the bytes of a frame. `false` if they do not fit.
    fn append(&mut self, frame: &Frame, out: &mut Effects) -> bool {
        let frame_end = frame.offset.saturating_add(frame.length);
        if frame.offset > self.end || frame.offset < 0 {
            return false;
        }
        if frame_end <= self.end {
            return true;
        }
        let last = self.state.epochs.last();
        if last.is_none_or(|last| last.epoch < frame.data_epoch) {
            let entry = EpochEntry { epoch: frame.data_epoch, start: frame.data_epoch_start };
            let fits = last.is_none() || entry.start == self.end;
            if !fits || !self.state.epochs.begin(entry) {
                return false;
            }
            if self.config.rules.keep(Rule::PersistEpochStart) {
                self.persist(out);
            }
        } else if last.is_some_and(|last| last.epoch > frame.data_epoch) {
            return false;
        }
        out.push(ReplicaEffect::Append { offset: self.end, length: frame_end - self.end });
        self.end = frame_end;
        true
    }

    fn learn_confirm(&mut self, frame: &Frame, out: &mut Effects) {
        let wanted = if self.config.rules.keep(Rule::ReadConfirmedOnly) {
            frame.confirm.min(self.stored())
        } else {
            self.stored()
        };
        if wanted > self.confirm {
            self.confirm = wanted;
            self.acknowledged = self.acknowledged.max(wanted);
            out.push(ReplicaEffect::Confirm { offset: wanted, acknowledged: self.acknowledged });
        }
        self.confirm_epoch = self.confirm_epoch.max(frame.epoch);
    }

    pub(super) fn acknowledge_flushed(&mut self, now: Millis, out: &mut Effects) {
        if self.following().is_some_and(|following| following.is_streaming()) {
            self.send_ack(now, out);
        }
    }

    fn send_ack(&mut self, now: Millis, out: &mut Effects) {
        let end = self.stored();
        let epoch = self.state.promised;
        let Some(following) = self.following() else { return };
        let Some(link) = following.link() else { return };
        let stamp = following.stamp;
        if stamp.is_some() {
            self.promise_until = self.promise_until.max(now + self.config.promise);
        }
        out.push(ReplicaEffect::SendAck { link, ack: Ack { epoch, end, stamp } });
    }
}
