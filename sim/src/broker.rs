//! A broker: the real `Replica` over a disk, connections and clients that are not.

mod connection;
mod send;

use std::collections::{BTreeMap, VecDeque};

use replication::invariant::{self, ReplicaView};
use replication::replica::{FlushMode, HaltReason, Link, Profile, Sends, Serving};
use replication::{
    Member, Millis, Replica, ReplicaConfig, ReplicaEffect, ReplicaId, ReplicaInput, ReplicaState,
    RunIdentity,
};

use crate::disk::{Disk, Log as _};
use crate::event::{Event, ToBroker, ToOperator};
use crate::fault::{Death, Endpoint};
use crate::network::HaMessage;
use crate::random::Random;
use crate::scenario::DriverBug;
use crate::world::World;

const TICK: Millis = 100;
const HEARTBEAT: Millis = 500;
const FLUSH: Millis = 500;
const REGISTER: Millis = 3_000;
/// Sends that a broker holds while its role changes.
const HELD_MAX: usize = 32;
/// Bytes of a frame.
const FRAME_MAX: i64 = 8;

/// See the module.
pub(crate) struct Broker {
    pub(crate) id: ReplicaId,
    pub(crate) disk: Disk,
    pub(crate) snapshot: Option<Disk>,
    process: Option<Process>,
    pub(crate) runs: u64,
    pub(crate) paused_until: Millis,
    pub(crate) stalled: Option<(Millis, Millis)>,
    clock_offset: Millis,
    /// Millionths by which its clock is fast.
    clock_drift: Millis,
    /// Steps on the disk until it ends, and how.
    pub(crate) crash_at_step: Option<(u64, Death, Millis)>,
    /// Memory has what was written before.
    pub(crate) memory_survived: bool,
    /// The disk is an earlier state of itself.
    pub(crate) is_put_back: bool,
    /// The process that is running, or was the last one on this disk.
    pub(crate) last_run: Option<RunIdentity>,
    /// Highest epoch in which this disk had a role.
    pub(crate) obeyed: i32,
    pub(crate) is_machine_up: bool,
    /// The group is to go on without it.
    pub(crate) is_unwanted: bool,
    pub(crate) is_removed: bool,
}

/// A send that waits for its acknowledgement.
#[derive(Debug, Clone, Copy)]
struct Send {
    client: usize,
    attempt: u64,
    message: u32,
}

struct Process {
    replica: Replica,
    /// Connections to masters, by the number that the replica gave.
    links: BTreeMap<Link, usize>,
    waiting: VecDeque<(i64, Send)>,
    held: VecDeque<Send>,
    shown: i64,
    /// Flushes before a cut do not count after it.
    cuts: u64,
    frame: (i64, Vec<u32>),
    heartbeat_at: Millis,
    flush_at: Millis,
    register_at: Millis,
    is_flushing: bool,
    registered_epoch: Option<i32>,
    has_begun: Option<i32>,
}

impl Broker {
    pub(crate) fn new(index: usize, random: &mut Random) -> Self {
        let id = i64::try_from(index).unwrap_or(0) + 1;
        Self {
            id,
            disk: Disk::format(format!("disk-{id}-{}", random.draw() % 1_000)),
            snapshot: None,
            process: None,
            runs: 0,
            paused_until: 0,
            stalled: None,
            clock_offset: random.below(1 << 40),
            clock_drift: random.below(400),
            crash_at_step: None,
            memory_survived: true,
            is_put_back: false,
            last_run: None,
            obeyed: 0,
            is_machine_up: true,
            is_unwanted: false,
            is_removed: false,
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.process.is_some()
    }

    fn clock(&self, now: Millis) -> Millis {
        self.clock_offset + now + now * self.clock_drift / 1_000_000
    }

    pub(crate) fn view(&self) -> ReplicaView {
        let replica = self.process.as_ref().map(|process| &process.replica);
        let confirm = replica.map_or(0, Replica::confirm);
        ReplicaView {
            promised: self.disk.state.promised,
            master_epoch: replica.and_then(Replica::master_epoch),
            epochs: self.disk.state.epochs.clone(),
            begin: self.disk.log.begin(),
            end: self.disk.log.end(),
            confirm,
            acknowledged: confirm,
        }
    }

    pub(crate) fn end_process(&mut self) {
        self.process = None;
        self.runs += 1;
        self.stalled = None;
    }
}

impl World {
    pub(crate) fn start_broker(&mut self, index: usize) {
        let now = self.now;
        let scenario = &self.scenario;
        let broker = &mut self.brokers[index];
        if broker.is_running() || broker.is_removed {
            return;
        }
        let disk = &mut broker.disk;
        // That a volume was put back is noticed by who attached it, if its store was not closed.
        let survived =
            broker.memory_survived || (scenario.flush == FlushMode::Sync && !broker.is_put_back);
        let is_whole = survived || disk.is_clean;
        let end = disk.log.end();
        disk.log.flush(end);
        disk.state = disk.state.clone().opened(end, is_whole);
        disk.is_clean = false;
        disk.has_lost_tail = false;
        broker.runs += 1;
        let run = RunIdentity {
            store_id: disk.state.store_id.clone(),
            open_count: disk.state.open_count,
            incarnation: format!("run-{}", broker.runs),
        };
        broker.last_run = Some(run.clone());
        let (address, ha_address) = (format!("b{index}:10911"), format!("b{index}:10912"));
        let member = Member { id: broker.id, address, ha_address };
        let config = ReplicaConfig {
            flush: scenario.flush,
            rules: scenario.rules,
            ..ReplicaConfig::new(member, run, scenario.profile, scenario.min_in_sync)
        };
        let log = disk.log.begin()..end;
        let clock = broker.clock(now);
        let shown = log.start;
        let replica = Replica::new(config, broker.disk.state.clone(), log, clock);
        let broker = &mut self.brokers[index];
        broker.process = Some(Process {
            replica,
            links: BTreeMap::new(),
            waiting: VecDeque::new(),
            held: VecDeque::new(),
            shown,
            cuts: 0,
            frame: (0, Vec::new()),
            heartbeat_at: now,
            flush_at: now + FLUSH,
            register_at: now,
            is_flushing: false,
            registered_epoch: None,
            has_begun: None,
        });
        broker.is_machine_up = true;
        broker.memory_survived = true;
        broker.is_put_back = false;
        let runs = broker.runs;
        self.schedule(now + 1, Event::BrokerTick(index, runs));
    }

    pub(crate) fn broker_tick(&mut self, index: usize, run: u64) {
        let now = self.now;
        let broker = &mut self.brokers[index];
        if broker.runs != run || broker.process.is_none() {
            return;
        }
        if now < broker.paused_until {
            let until = broker.paused_until;
            self.schedule(until, Event::BrokerTick(index, run));
            return;
        }
        self.schedule(now + TICK, Event::BrokerTick(index, run));
        if self.disk_random.chance(5) {
            let broker = &mut self.brokers[index];
            broker.snapshot = Some(Disk { is_clean: false, ..broker.disk.clone() });
        }
        self.give(index, ReplicaInput::Tick);
        let Some(process) = &mut self.brokers[index].process else { return };
        if now >= process.heartbeat_at {
            process.heartbeat_at = now + HEARTBEAT;
            self.heartbeat(index);
        }
        let broker = &mut self.brokers[index];
        let Some(process) = &mut broker.process else { return };
        if now >= process.flush_at {
            process.flush_at = now + FLUSH;
            self.begin_flush(index);
        }
        let Some(process) = &mut self.brokers[index].process else { return };
        if now >= process.register_at {
            process.register_at = now + REGISTER;
            self.register_route(index);
        }
        self.pump(index, true);
    }

    fn heartbeat(&mut self, index: usize) {
        let broker = &self.brokers[index];
        let Some(process) = &broker.process else { return };
        let beat = replication::controller::Heartbeat {
            registration: process.replica.registration(),
            heard_master: process.replica.heard_master(broker.clock(self.now)),
            disk_stall: broker.stalled.map_or(0, |(since, _)| self.now.saturating_sub(since)),
            priority: i32::MAX,
            is_target_version: true,
        };
        for operator in 0..self.operators.len() {
            let message = ToOperator::Heartbeat(beat.clone());
            let to = Endpoint::Operator(operator);
            self.send(Endpoint::Broker(index), to, Event::ToOperator(operator, message));
        }
    }

    fn begin_flush(&mut self, index: usize) {
        let now = self.now;
        let delay = self.disk_random.range(1, 8);
        let broker = &mut self.brokers[index];
        let stalled_until = broker.stalled.map_or(0, |(_, until)| until);
        let Some(process) = &mut broker.process else { return };
        let end = broker.disk.log.end();
        if process.is_flushing || broker.disk.log.flushed() >= end {
            return;
        }
        process.is_flushing = true;
        let (run, cuts) = (broker.runs, process.cuts);
        let at = now.max(stalled_until) + delay;
        self.schedule(at, Event::Flushed { broker: index, run, end, cuts });
    }

    pub(crate) fn flushed(&mut self, index: usize, run: u64, end: i64, cuts: u64) {
        let broker = &mut self.brokers[index];
        let Some(process) = broker.process.as_mut().filter(|_| broker.runs == run) else { return };
        process.is_flushing = false;
        if process.cuts == cuts {
            broker.disk.log.flush(end);
            if broker.stalled.is_some_and(|(_, until)| self.now >= until) {
                broker.stalled = None;
            }
            self.give(index, ReplicaInput::Flushed { end });
        }
        if self.scenario.flush == FlushMode::Sync {
            self.begin_flush(index);
        }
    }

    pub(crate) fn broker_hears(&mut self, index: usize, message: ToBroker) {
        let broker = &self.brokers[index];
        if broker.process.is_none() {
            if let ToBroker::Send { client, attempt, message, .. } = message
                && broker.is_machine_up
            {
                self.answer(index, Send { client, attempt, message }, None);
            }
            return;
        }
        if self.now < broker.paused_until {
            let until = broker.paused_until;
            self.schedule(until, Event::ToBroker(index, message));
            return;
        }
        match message {
            ToBroker::Role(record) => self.give(index, ReplicaInput::Role(record)),
            ToBroker::AlterRefused(refusal) => {
                self.give(index, ReplicaInput::AlterRefused { refusal });
            }
            ToBroker::Freeze { epoch, target, budget } => {
                self.give(index, ReplicaInput::Freeze { epoch, target, budget });
            }
            ToBroker::Unfreeze { epoch } => self.give(index, ReplicaInput::Unfreeze { epoch }),
            ToBroker::Send { client, attempt, message, is_forwarded } => {
                self.take_send(index, Send { client, attempt, message }, is_forwarded);
            }
        }
    }

    /// Passes an input to the replica and does what it says.
    pub(crate) fn give(&mut self, index: usize, input: ReplicaInput) {
        let broker = &mut self.brokers[index];
        let now = broker.clock(self.now);
        let Some(process) = &mut broker.process else { return };
        let effects = process.replica.handle(now, input);
        let run = broker.runs;
        for effect in effects {
            if self.is_verbose {
                println!("        broker {index}: {effect:?}");
            }
            if !self.survives_step(index, &effect) {
                return;
            }
            self.carry_out(index, effect);
            if self.brokers[index].runs != run {
                return;
            }
        }
    }

    /// Ends the broker before, in or after a step on its disk, if that is ordered.
    fn survives_step(&mut self, index: usize, effect: &ReplicaEffect) -> bool {
        let is_step = matches!(
            effect,
            ReplicaEffect::Persist(_)
                | ReplicaEffect::Append { .. }
                | ReplicaEffect::Truncate { .. }
                | ReplicaEffect::Refill { .. }
                | ReplicaEffect::BecomeMaster { .. }
        );
        let Some((steps, death, back_after)) = self.brokers[index].crash_at_step else {
            return true;
        };
        if !is_step {
            return true;
        }
        if steps > 0 {
            self.brokers[index].crash_at_step = Some((steps - 1, death, back_after));
            return true;
        }
        self.brokers[index].crash_at_step = None;
        let (is_done, is_first) = (self.disk_random.chance(300), self.disk_random.chance(500));
        match effect {
            ReplicaEffect::Persist(state) => {
                self.brokers[index].disk.persist(state, is_done, is_first);
            }
            _ if is_done => self.carry_out(index, effect.clone()),
            _ => {}
        }
        self.crash(index, death, back_after);
        false
    }

    fn carry_out(&mut self, index: usize, effect: ReplicaEffect) {
        match effect {
            ReplicaEffect::Persist(state) => self.persist(index, &state),
            ReplicaEffect::BecomeMaster { epoch, .. }
            | ReplicaEffect::BecomeSlave { epoch, .. } => {
                let broker = &self.brokers[index];
                let promised = broker.obeyed.max(broker.disk.state.promised);
                self.oracle.check(invariant::promise_step(broker.id, promised, epoch));
                self.brokers[index].obeyed = promised.max(epoch);
            }
            ReplicaEffect::BecomeFenced => {}
            ReplicaEffect::ConnectTo { link, master } => self.connect(index, link, master.id),
            ReplicaEffect::SendHello { link, hello } => {
                self.send_to_master(index, link, HaMessage::SlaveHello(hello));
            }
            ReplicaEffect::SendAck { link, ack } => {
                self.send_to_master(index, link, HaMessage::Ack(ack));
            }
            ReplicaEffect::AnswerHello { link, hello } => {
                let connection = connection_of(link);
                self.send_ha(connection, false, HaMessage::MasterHello(hello));
            }
            ReplicaEffect::Stream { link, from } => {
                self.network.connections[connection_of(link)].next = Some(from);
            }
            ReplicaEffect::Close { link } => self.close(index, link),
            ReplicaEffect::SaveDiverged { .. } => {}
            ReplicaEffect::Truncate { to } => self.truncate(index, to),
            ReplicaEffect::Refill { from } => self.refill(index, from),
            ReplicaEffect::Append { offset, length } => self.append(index, offset, length),
            ReplicaEffect::Confirm { offset, acknowledged } => {
                self.confirm(index, offset, acknowledged);
            }
            ReplicaEffect::AskAlter(request) => {
                self.ask_operator(index, ToOperator::Alter { broker: index, request });
            }
            ReplicaEffect::AskRole => self.ask_operator(index, ToOperator::Query { broker: index }),
            ReplicaEffect::Register { replaces } => self.register(index, replaces),
            ReplicaEffect::Serve(serving) => self.serve(index, &serving),
            ReplicaEffect::ReportFrozen { epoch, result } => {
                for operator in 0..self.operators.len() {
                    let message = ToOperator::Frozen { epoch, result };
                    let to = Endpoint::Operator(operator);
                    self.send(Endpoint::Broker(index), to, Event::ToOperator(operator, message));
                }
            }
            ReplicaEffect::Halt(reason) => self.halted(index, reason),
        }
    }

    fn persist(&mut self, index: usize, state: &ReplicaState) {
        let broker = &mut self.brokers[index];
        let before = broker.disk.state.promised;
        broker.disk.persist(state, true, true);
        let id = broker.id;
        self.oracle.check(invariant::promise_step(id, before, state.promised));
    }

    fn halted(&mut self, index: usize, reason: HaltReason) {
        match reason {
            // The process ends, and whoever watches it starts another.
            HaltReason::Outdated => {
                self.coverage.outdated += 1;
                self.crash(index, Death::Stop, 1_000);
            }
            HaltReason::WouldCutConfirmed { .. } => {
                self.oracle.fail(format!("broker {index} cannot go on: {reason:?}"));
            }
        }
    }

    fn register(&mut self, index: usize, replaces: Option<RunIdentity>) {
        let Some(process) = &self.brokers[index].process else { return };
        let registration = process.replica.registration();
        self.ask_operator(index, ToOperator::Register { broker: index, registration, replaces });
    }

    fn ask_operator(&mut self, index: usize, message: ToOperator) {
        let count = self.operators.len();
        let operator = self.network.random().index(count);
        let to = Endpoint::Operator(operator);
        self.send(Endpoint::Broker(index), to, Event::ToOperator(operator, message));
    }

    fn truncate(&mut self, index: usize, to: i64) {
        self.coverage.cuts += 1;
        let broker = &mut self.brokers[index];
        let id = broker.id;
        let Some(process) = &mut broker.process else { return };
        let is_loss = self.oracle.losses > 0;
        if !is_loss {
            self.oracle.check(invariant::cut_above_confirm(id, to, process.shown));
        }
        process.shown = process.shown.min(to);
        process.cuts += 1;
        broker.disk.log.truncate(to);
        let failed: Vec<Send> =
            process.waiting.iter().filter(|(end, _)| *end > to).map(|(_, send)| *send).collect();
        process.waiting.retain(|(end, _)| *end <= to);
        for send in failed {
            self.answer(index, send, None);
        }
    }

    fn refill(&mut self, index: usize, from: i64) {
        self.coverage.refills += 1;
        let broker = &mut self.brokers[index];
        let Some(process) = &mut broker.process else { return };
        process.cuts += 1;
        process.shown = from;
        broker.disk.log.refill(from);
        let failed: Vec<Send> = process.waiting.drain(..).map(|(_, send)| send).collect();
        for send in failed {
            self.answer(index, send, None);
        }
    }

    fn append(&mut self, index: usize, offset: i64, length: i64) {
        let broker = &mut self.brokers[index];
        let Some(process) = &mut broker.process else { return };
        let (start, records) = &process.frame;
        let skip = usize::try_from(offset - start).unwrap_or(0);
        let count = usize::try_from(length).unwrap_or(0);
        let records: Vec<u32> = records.iter().copied().skip(skip).take(count).collect();
        if broker.disk.log.end() != offset || records.len() != count {
            self.oracle.fail(format!("broker {index} appends at {offset}, not at its end"));
            return;
        }
        broker.disk.log.append(&records);
        match (self.scenario.flush, self.scenario.driver_bug) {
            (FlushMode::Sync, Some(DriverBug::AckBeforeFlush)) => {
                let (run, cuts) = (broker.runs, process.cuts);
                let end = broker.disk.log.end();
                self.schedule(self.now, Event::Flushed { broker: index, run, end, cuts });
            }
            (FlushMode::Sync, _) => self.begin_flush(index),
            (FlushMode::Async, _) => {}
        }
    }

    fn confirm(&mut self, index: usize, offset: i64, acknowledged: i64) {
        let loss_epoch = self.store.record().loss_epoch;
        let broker = &mut self.brokers[index];
        let Some(process) = &mut broker.process else { return };
        // What was accepted as lost may still be shown by those who do not know yet.
        let is_lost_line = broker.obeyed < loss_epoch;
        if !is_lost_line {
            self.oracle.show(index, &broker.disk.log, process.shown, offset);
        }
        process.shown = process.shown.max(offset);
        let is_ready = |entry: &&(i64, Send)| entry.0 <= acknowledged;
        let count = process.waiting.iter().take_while(is_ready).count();
        let ready: Vec<(i64, Send)> = process.waiting.drain(..count).collect();
        let epoch = process.replica.master_epoch();
        if epoch.is_some() && self.scenario.profile == Profile::Sync {
            let (set, _) = process.replica.sync_state_set();
            let needed = self.scenario.min_in_sync;
            self.oracle.check(invariant::enough_members(broker.id, set, needed));
        }
        for (end, send) in ready {
            if !is_lost_line {
                self.oracle.acknowledge(send.message, end - 1, self.scenario.profile);
            }
            if let Some(epoch) = epoch.filter(|_| end > offset) {
                self.oracle.answer_alone(index, epoch);
            }
            self.answer(index, send, Some((send.message, end - 1)));
        }
    }

    fn serve(&mut self, index: usize, serving: &Serving) {
        let broker = &mut self.brokers[index];
        let Some(process) = &mut broker.process else { return };
        let held: Vec<Send> = process.held.drain(..).collect();
        if let Some(epoch) = serving.master_epoch.filter(|epoch| process.has_begun != Some(*epoch))
        {
            process.has_begun = Some(epoch);
            self.oracle.begin(index, epoch, &broker.disk);
        }
        let end = broker.disk.log.end();
        self.register_route(index);
        for send in held {
            self.take_send(index, send, false);
        }
        match serving.sends {
            Sends::Hold => self.give(index, ReplicaInput::Drained { end }),
            Sends::Accept | Sends::Forward(_) | Sends::Refuse => {}
        }
    }

    /// Tells the name servers what role this broker has.
    fn register_route(&mut self, index: usize) {
        let Some(process) = &mut self.brokers[index].process else { return };
        let is_master = process.replica.serving().master_epoch;
        let (epoch, is_master) = match (is_master, process.registered_epoch) {
            (Some(epoch), _) => (epoch, true),
            (None, Some(epoch)) => (epoch, false),
            (None, None) => return,
        };
        process.registered_epoch = is_master.then_some(epoch);
        for name_server in 0..self.name_servers.len() {
            let event = Event::ToNameServer { name_server, epoch, broker: index, is_master };
            self.send(Endpoint::Broker(index), Endpoint::NameServer(name_server), event);
        }
    }
}

/// Numbers that masters know connections by lie above those that slaves give.
const LINKS_OF_MASTERS: u64 = 1 << 32;

fn connection_of(link: Link) -> usize {
    usize::try_from(link.0.saturating_sub(LINKS_OF_MASTERS)).unwrap_or(usize::MAX)
}
