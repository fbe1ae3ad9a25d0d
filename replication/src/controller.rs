//! Who is master: detection, election, in-sync set and hand-over of one group.
//!
//! Every operator replica has a `Controller` for each group and answers brokers with it. Only the
//! one that leads *begins* elections; that is for calm. Safety is in the record alone: a decision
//! is a write that names the version on which it was made, and fails if there is another.

mod alter;
mod config;
mod detection;
mod effect;
mod election;
mod hand_over;
mod input;
mod record;
mod registration;
mod request;
mod session;

use std::collections::BTreeSet;
use std::sync::Arc;

pub use alter::alter;
pub use config::ControllerConfig;
pub use effect::{Condition, ControllerEffect, Refusal};
pub use input::{AlterRequest, ControllerInput, FreezeFailure, Heartbeat, ProbeAnswer, Token};
pub use registration::register;

use crate::Millis;
use crate::group_record::GroupRecord;
use crate::rules::Rule;
use hand_over::HandOver;
use record::{Knowledge, Purpose};
use request::{Request, Waiting};
use session::Sessions;

type Effects = Vec<ControllerEffect>;

/// See the module.
#[derive(Debug)]
pub struct Controller {
    config: ControllerConfig,
    is_leading: bool,
    has_brake: bool,
    is_unseen_by_name_servers: bool,
    knowledge: Knowledge,
    sessions: Sessions,
    waiting: Waiting,
    hand_over: Option<HandOver>,
    /// A hand-over away from a stalled disk has failed: depose its master.
    is_stall_proved: bool,
    last_input_at: Option<Millis>,
    elected_at: Option<Millis>,
    gather_since: Option<Millis>,
    raised: BTreeSet<Condition>,
}

impl Controller {
    /// A controller that knows nothing yet.
    #[must_use]
    pub fn new(config: ControllerConfig) -> Self {
        Self {
            is_leading: false,
            has_brake: false,
            is_unseen_by_name_servers: false,
            knowledge: Knowledge::default(),
            sessions: Sessions::new(config.heartbeat_timeout),
            waiting: Waiting::default(),
            hand_over: None,
            is_stall_proved: false,
            last_input_at: None,
            elected_at: None,
            gather_since: None,
            raised: BTreeSet::new(),
            config,
        }
    }

    /// Takes an input and says what to do.
    pub fn handle(&mut self, now: Millis, input: ControllerInput) -> Vec<ControllerEffect> {
        let mut out = Vec::new();
        self.notice_gap(now);
        match input {
            ControllerInput::Tick => {}
            ControllerInput::Leading(is_leading) => self.is_leading = is_leading,
            ControllerInput::Config(config) => {
                self.sessions.set_timeout(config.heartbeat_timeout);
                self.config = config;
            }
            ControllerInput::Record { version, record } => {
                self.knowledge.learn(now, version, record, &mut out);
            }
            ControllerInput::Written { version } => self.written(version, &mut out),
            ControllerInput::Conflict => self.conflict(),
            ControllerInput::Unavailable => self.unavailable(now, &mut out),
            ControllerInput::Register { token, registration, replaces } => {
                self.sessions.hear_registration(now, &registration);
                self.wait(token, Request::Register { registration, replaces }, &mut out);
            }
            ControllerInput::Heartbeat(beat) => {
                self.sessions.hear(now, beat, self.knowledge.record());
            }
            ControllerInput::Disconnected { id } => out.push(ControllerEffect::Probe { id }),
            ControllerInput::Probed { id, answer } => {
                if answer == ProbeAnswer::Refused {
                    self.sessions.set_gone(id);
                }
            }
            ControllerInput::Alter { token, request } => {
                self.wait(token, Request::Alter(request), &mut out);
            }
            ControllerInput::Query { token } => self.wait(token, Request::Query, &mut out),
            ControllerInput::Elect { token, target } => {
                self.wait(token, Request::Elect { target }, &mut out);
            }
            ControllerInput::HandOver { token, target } => {
                self.wait(token, Request::HandOver { target }, &mut out);
            }
            ControllerInput::Frozen { epoch, result } => self.frozen(epoch, result, &mut out),
            ControllerInput::AcceptLoss { token, id } => {
                self.wait(token, Request::AcceptLoss { id }, &mut out);
            }
            ControllerInput::Remove { token, id } => {
                self.wait(token, Request::Remove { id }, &mut out);
            }
            ControllerInput::Leaving { id, is_leaving } => {
                self.sessions.set_leaving(id, is_leaving);
            }
            ControllerInput::Brake(is_on) => self.has_brake = is_on,
            ControllerInput::MasterUnseenByNameServers(is_unseen) => {
                self.is_unseen_by_name_servers = is_unseen;
            }
        }
        self.go_on(now, &mut out);
        out
    }

    /// What follows from what is known and the time, whatever the input was.
    fn go_on(&mut self, now: Millis, out: &mut Effects) {
        self.knowledge.go_on(now, self.config.store_timeout, out);
        self.answer_waiting(now, out);
        self.go_on_handing_over(now, out);
        if self.is_leading {
            self.decide(now, out);
        }
        self.tell_conditions(now, out);
    }

    /// A process that stood still must not take its own silence for that of the brokers.
    fn notice_gap(&mut self, now: Millis) {
        let gap = self.last_input_at.map_or(0, |at| now.saturating_sub(at));
        self.last_input_at = Some(now);
        if gap > self.config.gap_max && self.config.rules.keep(Rule::GapRule) {
            self.sessions.reset_ages(now);
        }
    }

    fn tell_conditions(&mut self, now: Millis, out: &mut Effects) {
        let conditions = self.conditions(now);
        let raise = conditions.difference(&self.raised).copied().map(ControllerEffect::Raise);
        let clear = self.raised.difference(&conditions).copied().map(ControllerEffect::Clear);
        out.extend(raise.chain(clear));
        self.raised = conditions;
    }

    /// Writes `next`, unless it says the same as `record`.
    fn write(&mut self, now: Millis, next: GroupRecord, purpose: Purpose, out: &mut Effects) {
        self.knowledge.write(now, next, purpose, out);
    }

    /// Everybody who is in the record hears of it.
    fn notify(record: &Arc<GroupRecord>, out: &mut Effects) {
        let notify = |id: &_| ControllerEffect::Notify { id: *id, record: Arc::clone(record) };
        out.extend(record.replicas.keys().map(notify));
    }

    /// The record as it is known here; it may be older than the store's.
    #[must_use]
    pub fn record(&self) -> Option<&GroupRecord> {
        self.knowledge.record()
    }

    /// Whether it begins elections.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.is_leading
    }

    /// Whether a hand-over is under way.
    #[must_use]
    pub fn is_handing_over(&self) -> bool {
        self.hand_over.is_some()
    }
}
