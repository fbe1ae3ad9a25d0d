//! Requests of brokers and people, answered one after the other.

use std::collections::VecDeque;
use std::sync::Arc;

use super::hand_over::Wish;
use super::input::Token;
use super::record::Purpose;
use super::{
    AlterRequest, Controller, ControllerEffect, Effects, Refusal, alter, election, register,
};
use crate::group_record::{ElectionReason, GroupRecord};
use crate::identity::{Registration, RunIdentity};
use crate::{Millis, ReplicaId};

/// Requests that may wait; more are sent away.
const WAITING_MAX: usize = 64;

/// See the module.
#[derive(Debug, Clone)]
pub(super) enum Request {
    Register { registration: Registration, replaces: Option<RunIdentity> },
    Alter(AlterRequest),
    Query,
    Elect { target: Option<ReplicaId> },
    HandOver { target: Option<ReplicaId> },
    AcceptLoss { id: ReplicaId },
    Remove { id: ReplicaId },
}

/// Requests in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    queue: VecDeque<(Token, Box<Request>)>,
}

/// How a request goes on.
enum Step {
    Answer(Result<Arc<GroupRecord>, Refusal>),
    Write(Box<GroupRecord>),
    HandOver(Option<ReplicaId>),
}

impl Waiting {
    /// A request whose write was overtaken comes first.
    pub(super) fn put_back(&mut self, token: Token, request: Box<Request>) {
        self.queue.push_front((token, request));
    }
}

impl Controller {
    pub(super) fn wait(&mut self, token: Token, request: Request, out: &mut Effects) {
        if self.waiting.queue.len() < WAITING_MAX {
            self.waiting.queue.push_back((token, Box::new(request)));
        } else {
            out.push(ControllerEffect::Reply { token, outcome: Err(Refusal::NotLeader) });
        }
    }

    pub(super) fn refuse_waiting(&mut self, out: &mut Effects) {
        for (token, _) in self.waiting.queue.drain(..) {
            out.push(ControllerEffect::Reply { token, outcome: Err(Refusal::StoreUnavailable) });
        }
    }

    /// Works on requests until one needs a write.
    pub(super) fn answer_waiting(&mut self, now: Millis, out: &mut Effects) {
        self.give_up_overdue_write(now, out);
        while let Some(record) = self.knowledge.settled() {
            let Some((token, request)) = self.waiting.queue.pop_front() else { return };
            match self.step(now, &record, &request) {
                Step::Answer(outcome) => out.push(ControllerEffect::Reply { token, outcome }),
                Step::Write(next) => {
                    self.write(now, *next, Purpose::Request(token, request), out);
                }
                Step::HandOver(target) => {
                    let wish = Wish { token: Some(token), target };
                    self.begin_hand_over(now, &record, wish, out);
                }
            }
        }
    }

    fn step(&self, now: Millis, record: &Arc<GroupRecord>, request: &Request) -> Step {
        let rules = self.config.rules;
        let written = |result: Result<GroupRecord, Refusal>| match result {
            Err(refusal) => Step::Answer(Err(refusal)),
            Ok(next) if next == **record => Step::Answer(Ok(Arc::clone(record))),
            Ok(next) => Step::Write(Box::new(next)),
        };
        match request {
            Request::Query => Step::Answer(Ok(Arc::clone(record))),
            Request::Register { registration, replaces } => {
                written(register(record, registration, replaces.as_ref(), rules))
            }
            Request::Alter(request) => {
                let is_alive = |id| self.sessions.is_alive(record, id, now);
                written(alter(record, request, is_alive, rules))
            }
            Request::Elect { target } => self.step_of_elect(now, record, *target),
            Request::HandOver { target } => Step::HandOver(*target),
            Request::AcceptLoss { id } => written(self.accept_loss(now, record, *id)),
            Request::Remove { id } => written(Self::remove(record, *id)),
        }
    }

    fn step_of_elect(
        &self,
        now: Millis,
        record: &Arc<GroupRecord>,
        target: Option<ReplicaId>,
    ) -> Step {
        let living = record.master.filter(|id| self.sessions.is_alive(record, *id, now));
        match (living, target) {
            (Some(master), Some(target)) if target != master => Step::HandOver(Some(target)),
            (Some(_), _) => Step::Answer(Err(Refusal::MasterStillExists)),
            (None, _) if !self.is_leading => Step::Answer(Err(Refusal::NotLeader)),
            (None, target) => match self.elected(now, record, target, ElectionReason::NoMaster) {
                Some(next) => Step::Write(Box::new(next)),
                None if target.is_some() => Step::Answer(Err(Refusal::ElectFailed)),
                None => Step::Answer(Err(Refusal::MasterNotAvailable)),
            },
        }
    }

    fn accept_loss(
        &self,
        now: Millis,
        record: &GroupRecord,
        id: ReplicaId,
    ) -> Result<GroupRecord, Refusal> {
        if record.master.is_some_and(|master| self.sessions.is_alive(record, master, now)) {
            return Err(Refusal::MasterStillExists);
        }
        if !self.sessions.is_heard(id, now) {
            return Err(Refusal::BrokerNotAlive);
        }
        let reason = ElectionReason::LossAccepted;
        Ok(election::with_loss(record, &self.sessions, id, reason))
    }

    fn remove(record: &GroupRecord, id: ReplicaId) -> Result<GroupRecord, Refusal> {
        let is_whole =
            |id: &ReplicaId| record.replicas.get(id).is_some_and(|replica| !replica.tail_in_doubt);
        let mut others = record.sync_state_set.iter().filter(|member| **member != id);
        let is_needed = record.sync_state_set.contains(&id) && !others.any(is_whole);
        if record.master == Some(id) || is_needed {
            return Err(Refusal::InvalidRequest);
        }
        let mut next = record.clone();
        if next.replicas.remove(&id).is_some() {
            next.sync_state_set.remove(&id);
            next.sync_state_set_epoch += 1;
        }
        Ok(next)
    }
}
