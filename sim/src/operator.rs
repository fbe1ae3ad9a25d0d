//! An operator replica: a controller, its requests to the record's store, and the lease.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use replication::controller::ProbeAnswer;
use replication::group_record::Version;
use replication::invariant;
use replication::{
    Controller, ControllerConfig, ControllerEffect, ControllerInput, ElectionReason, GroupRecord,
    Millis, RoleRecord,
};

use crate::event::{Event, StoreAnswer, StoreRequest, ToBroker, ToOperator};
use crate::fault::Endpoint;
use crate::random::Random;
use crate::world::World;

const TICK: Millis = 200;

/// What a token is for.
#[derive(Debug, Clone, Copy)]
enum Asked {
    Record(usize),
    Alter(usize),
    Nobody,
}

/// See the module.
pub(crate) struct Operator {
    pub(crate) controller: Option<Controller>,
    pub(crate) run: u64,
    pub(crate) paused_until: Millis,
    clock_offset: Millis,
    tokens: BTreeMap<u64, Asked>,
    next_token: u64,
    /// Number of the request to the store whose answer counts.
    store_number: u64,
}

impl Operator {
    pub(crate) fn new(random: &mut Random) -> Self {
        Self {
            controller: None,
            run: 0,
            paused_until: 0,
            clock_offset: random.below(1 << 40),
            tokens: BTreeMap::new(),
            next_token: 1,
            store_number: 0,
        }
    }

    fn token(&mut self, asked: Asked) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        self.tokens.insert(token, asked);
        token
    }
}

impl World {
    pub(crate) fn controller_config(&self) -> ControllerConfig {
        let present = self.brokers.iter().filter(|b| !b.is_unwanted);
        let replicas: BTreeSet<_> = present.map(|b| b.id).collect();
        let min_in_sync = self.scenario.min_in_sync;
        ControllerConfig {
            gather: 10_000,
            rules: self.scenario.rules,
            ..ControllerConfig::new(replicas, min_in_sync)
        }
    }

    pub(crate) fn start_operator(&mut self, index: usize) {
        let config = self.controller_config();
        let operator = &mut self.operators[index];
        if operator.controller.is_some() {
            return;
        }
        operator.controller = Some(Controller::new(config));
        operator.tokens.clear();
        operator.run += 1;
        let run = operator.run;
        self.schedule(self.now + 1, Event::OperatorTick(index, run));
    }

    pub(crate) fn operator_tick(&mut self, index: usize, run: u64) {
        let operator = &self.operators[index];
        if operator.run != run || operator.controller.is_none() {
            return;
        }
        if self.now < operator.paused_until {
            let until = operator.paused_until;
            self.schedule(until, Event::OperatorTick(index, run));
            return;
        }
        self.schedule(self.now + TICK, Event::OperatorTick(index, run));
        self.control(index, ControllerInput::Tick);
        self.watch(index);
    }

    /// Now and then the store tells what has changed.
    fn watch(&mut self, index: usize) {
        let own = Endpoint::Operator(index);
        let is_cut = self.network.is_blocked(self.now, Endpoint::Store, own)
            || self.now < self.store.down_until;
        if is_cut || !self.network.random().chance(100) {
            return;
        }
        let (version, record) = self.read_record();
        let message = ToOperator::Watched(version, record);
        self.send(Endpoint::Store, own, Event::ToOperator(index, message));
    }

    pub(crate) fn operator_hears(&mut self, index: usize, message: ToOperator) {
        let operator = &mut self.operators[index];
        if operator.controller.is_none() {
            return;
        }
        if self.now < operator.paused_until {
            let until = operator.paused_until;
            self.schedule(until, Event::ToOperator(index, message));
            return;
        }
        let input = match message {
            ToOperator::Heartbeat(beat) => ControllerInput::Heartbeat(beat),
            ToOperator::Register { broker, registration, replaces } => {
                let token = operator.token(Asked::Record(broker));
                ControllerInput::Register { token, registration, replaces }
            }
            ToOperator::Query { broker } => {
                ControllerInput::Query { token: operator.token(Asked::Record(broker)) }
            }
            ToOperator::Alter { broker, request } => {
                let token = operator.token(Asked::Alter(broker));
                ControllerInput::Alter { token, request }
            }
            ToOperator::Frozen { epoch, result } => ControllerInput::Frozen { epoch, result },
            ToOperator::Disconnected { id } => ControllerInput::Disconnected { id },
            ToOperator::Probed { id, answer } => ControllerInput::Probed { id, answer },
            ToOperator::Leading(is_leading) => ControllerInput::Leading(is_leading),
            ToOperator::HandOver { target } => {
                let token = operator.token(Asked::Nobody);
                ControllerInput::HandOver { token, target }
            }
            ToOperator::Leaving { id, is_leaving } => ControllerInput::Leaving { id, is_leaving },
            ToOperator::Remove { id } => {
                ControllerInput::Remove { token: operator.token(Asked::Nobody), id }
            }
            ToOperator::Watched(version, record) => ControllerInput::Record { version, record },
            ToOperator::Config => ControllerInput::Config(self.controller_config()),
            ToOperator::Answer { number, .. } if number != operator.store_number => return,
            ToOperator::Answer { answer, .. } => match answer {
                StoreAnswer::Record(version, record) => ControllerInput::Record { version, record },
                StoreAnswer::Written(version) => ControllerInput::Written { version },
                StoreAnswer::Conflict => {
                    self.coverage.conflicts += 1;
                    ControllerInput::Conflict
                }
                StoreAnswer::Unavailable => ControllerInput::Unavailable,
            },
        };
        self.control(index, input);
    }

    fn control(&mut self, index: usize, input: ControllerInput) {
        let operator = &mut self.operators[index];
        let now = self.now + operator.clock_offset;
        let Some(controller) = &mut operator.controller else { return };
        let effects = controller.handle(now, input);
        for effect in effects {
            if self.is_verbose {
                println!("        operator {index}: {effect:?}");
            }
            self.carry_out_control(index, effect);
        }
    }

    fn carry_out_control(&mut self, index: usize, effect: ControllerEffect) {
        let own = Endpoint::Operator(index);
        match effect {
            ControllerEffect::Read => self.ask_store(index, StoreRequest::Read),
            ControllerEffect::Write { expected, record } => {
                self.ask_store(index, StoreRequest::Write(expected, record));
            }
            ControllerEffect::Reply { token, outcome } => {
                let asked = self.operators[index].tokens.remove(&token).unwrap_or(Asked::Nobody);
                let (Asked::Record(broker) | Asked::Alter(broker)) = asked else { return };
                let id = self.brokers[broker].id;
                let message = match (outcome, asked) {
                    (Ok(record), _) => ToBroker::Role(RoleRecord::of(&record, id)),
                    (Err(refusal), Asked::Alter(_)) => ToBroker::AlterRefused(refusal),
                    (Err(_), Asked::Record(_) | Asked::Nobody) => return,
                };
                self.send(own, Endpoint::Broker(broker), Event::ToBroker(broker, message));
            }
            ControllerEffect::Notify { id, record } => {
                let message = ToBroker::Role(RoleRecord::of(&record, id));
                self.tell_broker(own, id, message);
            }
            ControllerEffect::Freeze { master, epoch, target, budget } => {
                self.tell_broker(own, master, ToBroker::Freeze { epoch, target, budget });
            }
            ControllerEffect::Unfreeze { master, epoch } => {
                self.tell_broker(own, master, ToBroker::Unfreeze { epoch });
            }
            ControllerEffect::Probe { id } => self.probe(index, id),
            ControllerEffect::Raise(_) | ControllerEffect::Clear(_) => {}
        }
    }

    fn tell_broker(&mut self, from: Endpoint, id: i64, message: ToBroker) {
        let Some(broker) = self.brokers.iter().position(|b| b.id == id) else { return };
        self.send(from, Endpoint::Broker(broker), Event::ToBroker(broker, message));
    }

    fn probe(&mut self, index: usize, id: i64) {
        let Some(broker) = self.brokers.iter().position(|b| b.id == id) else { return };
        let (own, other) = (Endpoint::Operator(index), Endpoint::Broker(broker));
        let is_cut = self.network.is_blocked(self.now, own, other)
            || self.network.is_blocked(self.now, other, own);
        let target = &self.brokers[broker];
        let (answer, delay) = match (is_cut, target.is_running(), target.is_machine_up) {
            (true, ..) | (_, false, false) => (ProbeAnswer::Silent, 1_000),
            (false, true, _) => (ProbeAnswer::Connected, 2),
            (false, false, true) => (ProbeAnswer::Refused, 2),
        };
        let message = ToOperator::Probed { id, answer };
        self.schedule(self.now + delay, Event::ToOperator(index, message));
    }

    fn ask_store(&mut self, index: usize, request: StoreRequest) {
        let operator = &mut self.operators[index];
        operator.store_number += 1;
        let number = operator.store_number;
        let arrivals = self.network.arrivals(self.now, Endpoint::Operator(index), Endpoint::Store);
        // A request and its answer belong together, so nothing comes twice.
        if let Some(at) = arrivals.first() {
            let slow = if self.now < self.store.slow_until {
                self.network.some_time(0, 3_000)
            } else {
                self.network.some_time(2, 20)
            };
            self.schedule(at + slow, Event::ToStore { operator: index, number, request });
        }
    }

    pub(crate) fn store_hears(&mut self, index: usize, number: u64, request: StoreRequest) {
        let answer = if self.now < self.store.down_until {
            StoreAnswer::Unavailable
        } else {
            match request {
                StoreRequest::Read => {
                    let (version, record) = self.read_record();
                    StoreAnswer::Record(version, record)
                }
                StoreRequest::Write(expected, record) => self.write_record(&expected, &record),
            }
        };
        let message = ToOperator::Answer { number, answer };
        let arrivals = self.network.arrivals(self.now, Endpoint::Store, Endpoint::Operator(index));
        if let Some(at) = arrivals.first() {
            self.schedule(*at, Event::ToOperator(index, message));
        }
    }

    fn read_record(&mut self) -> (Version, GroupRecord) {
        let is_slow = self.now < self.store.slow_until;
        let back = if is_slow { self.network.random().index(3) } else { 0 };
        self.store.stale(back)
    }

    fn write_record(&mut self, expected: &Version, record: &Arc<GroupRecord>) -> StoreAnswer {
        let before = Arc::clone(self.store.record());
        if !self.store.write(expected, record) {
            return StoreAnswer::Conflict;
        }
        self.oracle.check(invariant::record_step(&before, record));
        let views = self.brokers.iter().map(|broker| (broker.id, broker.view())).collect();
        self.oracle.check(invariant::not_begun_anew(&before, record, &views));
        self.count(&before, record);
        if record.loss_epoch > before.loss_epoch {
            if !self.has_lost_bytes && !self.has_lost_disk {
                self.oracle.fail("a loss was accepted although no disk lost anything".to_owned());
            }
            let master = record.master.unwrap_or(0);
            if let Some(broker) = self.brokers.iter().find(|broker| broker.id == master) {
                self.oracle.accept_loss(&broker.disk.log);
            }
        }
        StoreAnswer::Written(self.store.version())
    }

    fn count(&mut self, before: &GroupRecord, after: &GroupRecord) {
        if after.master_epoch == before.master_epoch {
            self.coverage.alters += 1;
            return;
        }
        self.coverage.elections += 1;
        match after.last_election().map(|election| election.reason) {
            Some(ElectionReason::HandOver) => self.coverage.hand_overs += 1,
            Some(ElectionReason::Rebuilt) => self.coverage.rebuilds += 1,
            Some(
                ElectionReason::First
                | ElectionReason::ProcessGone
                | ElectionReason::Silent
                | ElectionReason::Restarted
                | ElectionReason::DiskStalled
                | ElectionReason::NoMaster
                | ElectionReason::TailInDoubt
                | ElectionReason::LossAccepted,
            )
            | None => {}
        }
    }

    /// Who leads: one after the other, and for a while two.
    pub(crate) fn lease(&mut self) {
        const LEASE: Millis = 3_000;
        self.schedule(self.now + 500, Event::Lease);
        let leader = &self.operators[self.leader];
        let is_there = leader.controller.is_some() && self.now >= leader.paused_until;
        if is_there {
            self.leader_gone_since = None;
        } else {
            let since = *self.leader_gone_since.get_or_insert(self.now);
            if self.now >= since + LEASE {
                self.leader = (self.leader + 1) % self.operators.len();
                self.leader_gone_since = None;
            }
        }
        for operator in 0..self.operators.len() {
            let leads = operator == self.leader || self.now < self.all_lead_until;
            let message = ToOperator::Leading(leads);
            self.schedule(self.now, Event::ToOperator(operator, message));
        }
    }
}
