//! One simulated cluster: the clock, the queue of events, and everybody in it.

use std::collections::{BTreeMap, BinaryHeap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use replication::invariant::ReplicaView;
use replication::{Millis, Phase, ReplicaId};

use crate::broker::Broker;
use crate::client::{Client, NameServer};
use crate::disk::Log as _;
use crate::event::{Event, Scheduled};
use crate::fault::Endpoint;
use crate::network::Network;
use crate::operator::Operator;
use crate::oracle::{Coverage, Oracle};
use crate::random::Random;
use crate::record_store::RecordStore;
use crate::scenario::{FAULTS_UNTIL, IN_SYNC_WITHIN, SERVING_WITHIN, Scenario};

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// What was wrong, if anything was.
    pub failure: Option<String>,
    /// The same for the same scenario.
    pub trace: u64,
    /// What happened.
    pub coverage: Coverage,
}

/// See the module.
pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) now: Millis,
    queue: BinaryHeap<Scheduled>,
    scheduled: u64,
    pub(crate) brokers: Vec<Broker>,
    pub(crate) operators: Vec<Operator>,
    pub(crate) name_servers: Vec<NameServer>,
    pub(crate) clients: Vec<Client>,
    pub(crate) store: RecordStore,
    pub(crate) network: Network,
    pub(crate) oracle: Oracle,
    pub(crate) coverage: Coverage,
    pub(crate) disk_random: Random,
    pub(crate) client_random: Random,
    pub(crate) next_message: u32,
    /// When a client last heard that a message is stored.
    acknowledged_at: Millis,
    pub(crate) leader: usize,
    pub(crate) leader_gone_since: Option<Millis>,
    pub(crate) all_lead_until: Millis,
    /// No other fault until then.
    pub(crate) quiet_until: Millis,
    /// The record was put back, and the highest epoch before that.
    pub(crate) restored_at_epoch: Option<i32>,
    /// A disk has lost something.
    pub(crate) has_lost_bytes: bool,
    pub(crate) has_lost_disk: bool,
    is_healed: bool,
    /// Prints what happens.
    pub(crate) is_verbose: bool,
    trace: DefaultHasher,
}

impl World {
    pub(crate) fn new(scenario: Scenario, is_verbose: bool) -> Self {
        let seed = scenario.seed;
        let mut random = Random::new(seed, "clocks");
        let brokers = (0..scenario.replicas).map(|i| Broker::new(i, &mut random)).collect();
        let operators = (0..scenario.operators).map(|_| Operator::new(&mut random)).collect();
        let mut world = Self {
            now: 0,
            queue: BinaryHeap::new(),
            scheduled: 0,
            brokers,
            operators,
            name_servers: vec![NameServer::default(); scenario.name_servers],
            clients: vec![Client::default(); scenario.clients],
            store: RecordStore::new(),
            network: Network::new(seed),
            oracle: Oracle::default(),
            coverage: Coverage::default(),
            disk_random: Random::new(seed, "disks"),
            client_random: Random::new(seed, "clients"),
            next_message: 1,
            acknowledged_at: 0,
            leader: 0,
            leader_gone_since: None,
            all_lead_until: 0,
            quiet_until: 0,
            restored_at_epoch: None,
            has_lost_bytes: false,
            has_lost_disk: false,
            is_healed: false,
            is_verbose,
            trace: DefaultHasher::new(),
            scenario,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for operator in 0..self.operators.len() {
            self.schedule(0, Event::StartOperator(operator));
        }
        for broker in 0..self.brokers.len() {
            self.schedule(10 * broker as Millis, Event::Start(broker));
        }
        for client in 0..self.clients.len() {
            self.schedule(100, Event::ClientTick(client));
        }
        self.schedule(1, Event::Lease);
        for (index, planned) in self.scenario.faults.clone().iter().enumerate() {
            self.schedule(planned.at, Event::Fault(index));
        }
        self.schedule(FAULTS_UNTIL, Event::Heal);
        self.store.is_blind =
            self.scenario.driver_bug == Some(crate::scenario::DriverBug::BlindWrites);
    }

    pub(crate) fn schedule(&mut self, at: Millis, event: Event) {
        self.scheduled += 1;
        let number = self.scheduled;
        self.queue.push(Scheduled { at: at.max(self.now), number, event });
    }

    /// Sends over an unreliable network.
    pub(crate) fn send(&mut self, from: Endpoint, to: Endpoint, event: impl Into<Event>) {
        let event = event.into();
        for at in self.network.arrivals(self.now, from, to) {
            self.schedule(at, event.clone());
        }
    }

    /// Runs to the end, or to the first failure.
    pub(crate) fn run(mut self) -> Outcome {
        while let Some(Scheduled { at, event, .. }) = self.queue.pop() {
            self.now = at;
            self.coverage.events += 1;
            if self.is_verbose {
                println!("{at:>7} {event:?}");
            }
            self.note(&event);
            self.happen(event);
            self.look();
            if self.oracle.failure.is_some() || self.is_over() {
                break;
            }
        }
        self.coverage.simulated = self.now;
        self.coverage.losses = self.oracle.losses;
        let failure = self.oracle.failure.map(|what| format!("after {} ms: {what}", self.now));
        Outcome { failure, trace: self.trace.finish(), coverage: self.coverage }
    }

    fn note(&mut self, event: &Event) {
        self.now.hash(&mut self.trace);
        std::mem::discriminant(event).hash(&mut self.trace);
        self.scheduled.hash(&mut self.trace);
        self.oracle.shown_end().hash(&mut self.trace);
        self.store.record().master_epoch.hash(&mut self.trace);
        self.coverage.acknowledged.hash(&mut self.trace);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Start(broker) => self.start_broker(broker),
            Event::BrokerTick(broker, run) => self.broker_tick(broker, run),
            Event::ToBroker(broker, message) => self.broker_hears(broker, message),
            Event::Ha { connection, is_to_master, message } => {
                self.ha_arrives(connection, is_to_master, message);
            }
            Event::Unconnected { broker, run, link } => self.unconnected(broker, run, link),
            Event::Flushed { broker, run, end, cuts } => self.flushed(broker, run, end, cuts),
            Event::StartOperator(operator) => self.start_operator(operator),
            Event::OperatorTick(operator, run) => self.operator_tick(operator, run),
            Event::ToOperator(operator, message) => self.operator_hears(operator, message),
            Event::ToStore { operator, number, request } => {
                self.store_hears(operator, number, request);
            }
            Event::ToNameServer { name_server, epoch, broker, is_master } => {
                self.name_server_hears(name_server, epoch, broker, is_master);
            }
            Event::ClientTick(client) => self.client_tick(client),
            Event::ToClient { client, attempt, stored } => {
                self.client_hears(client, attempt, stored);
            }
            Event::Lease => self.lease(),
            Event::Fault(index) => self.fault(index),
            Event::Crash { broker, death, back_after } => self.crash(broker, death, back_after),
            Event::UpgradeStep(broker) => self.upgrade_step(broker),
            Event::Undrain(broker) => self.tell_leaving(broker, false),
            Event::Remove(broker) => self.remove(broker),
            Event::Heal => self.heal(),
        }
    }

    fn heal(&mut self) {
        self.network.heal();
        self.store.down_until = 0;
        self.store.slow_until = 0;
        self.all_lead_until = 0;
        self.is_healed = true;
        for broker in 0..self.brokers.len() {
            self.brokers[broker].crash_at_step = None;
            self.tell_leaving(broker, false);
        }
    }

    /// Invariants, after every event.
    fn look(&mut self) {
        let record = std::sync::Arc::clone(self.store.record());
        if let Some(epoch) = self.restored_at_epoch {
            if record.master_epoch <= epoch {
                return;
            }
            self.restored_at_epoch = None;
        }
        let mut views: BTreeMap<ReplicaId, ReplicaView> = BTreeMap::new();
        for broker in &self.brokers {
            let run = record.replicas.get(&broker.id).map(|known| &known.run);
            let is_recorded = run.is_some() && run == broker.last_run.as_ref();
            if is_recorded && !broker.disk.has_lost_tail {
                views.insert(broker.id, broker.view());
            }
        }
        self.oracle.look(&record, views);
    }

    /// Whether everything is as it should be, long enough after the last fault; or whether it
    /// should be and is not.
    fn is_over(&mut self) -> bool {
        if !self.is_healed {
            return false;
        }
        let since = self.now - FAULTS_UNTIL;
        let record = self.store.record();
        if record.phase == Phase::DataLost {
            self.coverage.data_lost += 1;
            if !self.has_lost_disk {
                self.oracle.fail("data is lost although no disk was".to_owned());
            }
            return true;
        }
        let wanted: Vec<ReplicaId> =
            self.brokers.iter().filter(|b| !b.is_unwanted).map(|b| b.id).collect();
        let is_in_sync = record.master.is_some()
            && wanted.iter().all(|id| record.sync_state_set.contains(id))
            && record.sync_state_set.len() == wanted.len();
        let is_serving = self.clients.iter().all(|c| c.first_sent_at > FAULTS_UNTIL);
        if !is_serving && since > SERVING_WITHIN {
            let text = format!("no acknowledgement {since} ms after the last fault: {record:?}");
            self.oracle.fail(text);
        } else if !is_in_sync && since > IN_SYNC_WITHIN {
            let text = format!("not all are in sync {since} ms after the last fault: {record:?}");
            self.oracle.fail(text);
        }
        is_serving && is_in_sync && self.ends_agree()
    }

    fn ends_agree(&self) -> bool {
        let wanted = self.brokers.iter().filter(|b| !b.is_unwanted);
        let mut ends = wanted.map(|b| b.disk.log.end());
        let first = ends.next();
        ends.all(|end| Some(end) == first)
    }

    fn name_server_hears(&mut self, index: usize, epoch: i32, broker: usize, is_master: bool) {
        let bug = self.scenario.driver_bug;
        let name_server = &mut self.name_servers[index];
        let before = name_server.epoch;
        if is_master {
            name_server.register(epoch, broker, bug);
        } else {
            name_server.unregister(epoch, broker);
        }
        let after = name_server.epoch;
        self.oracle.check(replication::invariant::route_step(before, after));
    }

    fn client_tick(&mut self, client: usize) {
        const TIMEOUT: Millis = 3_000;
        let pause = 20 + self.client_random.below(180);
        self.schedule(self.now + pause, Event::ClientTick(client));
        let now = self.now;
        let state = &mut self.clients[client];
        if state.is_waiting && now < state.sent_at + TIMEOUT {
            return;
        }
        let is_new = !state.is_waiting && state.message == 0;
        if is_new {
            state.message = self.next_message;
            self.next_message += 1;
        }
        let name_server = self.client_random.index(self.name_servers.len());
        let Some(broker) = self.name_servers[name_server].master else { return };
        let state = &mut self.clients[client];
        state.attempt += 1;
        state.is_waiting = true;
        state.sent_at = now;
        state.broker = broker;
        let (attempt, message) = (state.attempt, state.message);
        let send = crate::event::ToBroker::Send { client, attempt, message, is_forwarded: false };
        let (from, to) = (Endpoint::Client(client), Endpoint::Broker(broker));
        self.send(from, to, Event::ToBroker(broker, send));
    }

    fn client_hears(&mut self, client: usize, attempt: u64, stored: Option<(u32, i64)>) {
        let state = &mut self.clients[client];
        if state.attempt != attempt || !state.is_waiting {
            return;
        }
        state.is_waiting = false;
        if stored.is_some() {
            state.acknowledged += 1;
            let gap = self.now - self.acknowledged_at;
            self.coverage.longest_gap = self.coverage.longest_gap.max(gap);
            self.acknowledged_at = self.now;
            state.first_sent_at = state.sent_at;
            state.message = 0;
            self.coverage.acknowledged += 1;
        }
    }
}
