//! Faults as they happen.

use replication::Millis;
use replication::replica::FlushMode;

use crate::broker::Broker;
use crate::disk::{Disk, Log as _};
use crate::event::{Event, ToOperator};
use crate::fault::{Death, Endpoint, Fault};
use crate::random::Random;
use crate::scenario::FAULTS_UNTIL;
use crate::world::World;

const REPLICAS_MAX: usize = 5;
/// A record that is put back gets so much time without another fault.
const QUIET: Millis = 15_000;

impl World {
    pub(crate) fn fault(&mut self, index: usize) {
        let fault = self.scenario.faults[index].fault.clone();
        let now = self.now;
        if now < self.quiet_until || now >= FAULTS_UNTIL {
            return;
        }
        let until = |length: Millis| (now + length).min(FAULTS_UNTIL);
        match fault {
            Fault::Crash { broker, death, back_after } => self.crash(broker, death, back_after),
            Fault::CrashAtStep { broker, step, death, back_after } => {
                self.brokers[broker].crash_at_step = Some((step, death, back_after));
            }
            Fault::CrashAll { death, back_after } => self.crash_all(death, back_after),
            Fault::Pause { broker, length } => self.brokers[broker].paused_until = until(length),
            Fault::PauseOperator { operator, length } => {
                self.operators[operator].paused_until = until(length);
            }
            Fault::CrashOperator { operator, back_after } => {
                let state = &mut self.operators[operator];
                state.controller = None;
                state.run += 1;
                self.schedule(until(back_after), Event::StartOperator(operator));
            }
            Fault::Partition { side, direction, length } => {
                self.network.partition(side, direction, until(length));
            }
            Fault::Cut { from, to, length } => self.network.cut(from, to, until(length)),
            Fault::Noise { loss, double, delay_max, length } => {
                self.network.set_noise(loss, double, delay_max, until(length));
            }
            Fault::StoreOutage { length } => self.store.down_until = until(length),
            Fault::StoreSlow { length } => self.store.slow_until = until(length),
            Fault::StoreRestored { is_gone } => self.restore_record(is_gone),
            Fault::DiskStall { broker, length } => {
                self.brokers[broker].stalled = Some((now, until(length)));
            }
            Fault::HandOver { target } => self.ask_hand_over(target),
            Fault::Drain { broker, length } => {
                self.tell_leaving(broker, true);
                self.schedule(until(length), Event::Undrain(broker));
            }
            Fault::AllLead { length } => self.all_lead_until = until(length),
            Fault::Upgrade => self.upgrade(),
            Fault::Scale { is_up } => self.scale(is_up),
        }
    }

    /// Ends a broker's process, with what that does to its disk.
    pub(crate) fn crash(&mut self, index: usize, death: Death, back_after: Millis) {
        let harms = match death {
            Death::Stop | Death::Kill => false,
            Death::Power => self.scenario.flush == FlushMode::Async,
            Death::Wipe | Death::RollBack => true,
        };
        let death = if harms && !self.has_other_copy(index) { Death::Kill } else { death };
        self.die(index, death, back_after);
    }

    fn die(&mut self, index: usize, death: Death, back_after: Millis) {
        let now = self.now;
        let is_async = self.scenario.flush == FlushMode::Async;
        let broker = &mut self.brokers[index];
        if !broker.is_running() {
            return;
        }
        let run = broker.runs;
        broker.end_process();
        broker.is_machine_up = matches!(death, Death::Stop | Death::Kill);
        broker.memory_survived = broker.is_machine_up;
        match death {
            Death::Stop => {
                let end = broker.disk.log.end();
                broker.disk.log.flush(end);
                broker.disk.is_clean = true;
                if self.disk_random.chance(300) {
                    broker.snapshot = Some(broker.disk.clone());
                }
            }
            Death::Kill => {}
            Death::Power => {
                broker.disk.log.lose_power(&mut self.disk_random);
                broker.disk.has_lost_tail = is_async;
                self.has_lost_bytes |= is_async;
            }
            Death::Wipe => {
                let name = format!("disk-{}-{run}", broker.id);
                broker.disk = Disk::format(name);
                broker.snapshot = None;
                broker.last_run = None;
                broker.obeyed = 0;
                self.has_lost_disk = true;
            }
            Death::RollBack => {
                let name = format!("disk-{}-{run}", broker.id);
                let earlier = broker.snapshot.clone().unwrap_or_else(|| Disk::format(name));
                // A volume in use is not closed; a copy of it is found to be like that.
                broker.disk = Disk { has_lost_tail: true, ..earlier };
                broker.is_put_back = true;
                broker.obeyed = 0;
                self.has_lost_disk = true;
            }
        }
        let is_told = matches!(death, Death::Stop | Death::Kill);
        self.break_connections(index, run, is_told);
        if is_told {
            self.reset_clients(index);
            let id = self.brokers[index].id;
            for operator in 0..self.operators.len() {
                let event = Event::ToOperator(operator, ToOperator::Disconnected { id });
                self.send(Endpoint::Broker(index), Endpoint::Operator(operator), event);
            }
        }
        let back_at = (now + back_after).min(FAULTS_UNTIL.max(now + 1));
        self.schedule(back_at, Event::Start(index));
    }

    /// Clients notice that their connection is reset.
    fn reset_clients(&mut self, index: usize) {
        for client in 0..self.clients.len() {
            let state = &self.clients[client];
            if state.is_waiting && state.broker == index {
                let event = Event::ToClient { client, attempt: state.attempt, stored: None };
                self.send(Endpoint::Broker(index), Endpoint::Client(client), event);
            }
        }
    }

    /// Whether another disk has everything that was acknowledged, as far as the record says.
    fn has_other_copy(&self, index: usize) -> bool {
        let record = self.store.record();
        self.brokers.iter().enumerate().any(|(other, broker)| {
            let known = record.replicas.get(&broker.id);
            let is_intact = known.is_some_and(|known| {
                Some(&known.run) == broker.last_run.as_ref() && !known.tail_in_doubt
            });
            other != index
                && is_intact
                && !broker.disk.has_lost_tail
                && (broker.memory_survived || self.scenario.flush == FlushMode::Sync)
                && record.sync_state_set.contains(&broker.id)
        })
    }

    fn crash_all(&mut self, death: Death, back_after: Millis) {
        for broker in 0..self.brokers.len() {
            let later = self.disk_random.below(5_000);
            self.die(broker, death, back_after + later);
        }
    }

    fn restore_record(&mut self, is_gone: bool) {
        let now = self.now;
        let is_calm = self
            .brokers
            .iter()
            .all(|broker| broker.is_removed || (broker.is_running() && now >= broker.paused_until));
        if !is_calm || self.store.record().master.is_none() {
            return;
        }
        self.quiet_until = now + QUIET;
        self.network.heal();
        for broker in &mut self.brokers {
            broker.crash_at_step = None;
        }
        let highest = self.brokers.iter().map(|b| b.disk.state.promised).max().unwrap_or(0);
        self.restored_at_epoch = Some(highest.max(self.store.record().master_epoch));
        self.store.restore(is_gone);
    }

    fn ask_hand_over(&mut self, target: Option<usize>) {
        let target = target.and_then(|index| self.brokers.get(index)).map(|broker| broker.id);
        let operator = self.leader;
        let message = ToOperator::HandOver { target };
        self.schedule(self.now, Event::ToOperator(operator, message));
    }

    pub(crate) fn tell_leaving(&mut self, broker: usize, is_leaving: bool) {
        let id = self.brokers[broker].id;
        for operator in 0..self.operators.len() {
            let message = ToOperator::Leaving { id, is_leaving };
            self.schedule(self.now, Event::ToOperator(operator, message));
        }
    }

    fn upgrade(&mut self) {
        const STEP: Millis = 4_000;
        for broker in 0..self.brokers.len() {
            let at = self.now + STEP * (1 + broker as Millis);
            self.schedule(at, Event::UpgradeStep(broker));
        }
    }

    /// Restarts one broker; a master hands over before.
    pub(crate) fn upgrade_step(&mut self, broker: usize) {
        if self.now >= FAULTS_UNTIL {
            return;
        }
        let id = self.brokers[broker].id;
        let is_master = self.store.record().master == Some(id);
        let delay = if is_master { 2_200 } else { 0 };
        if is_master {
            self.ask_hand_over(None);
        }
        let (death, back_after) = (Death::Stop, 800);
        self.schedule(self.now + delay, Event::Crash { broker, death, back_after });
    }

    fn scale(&mut self, is_up: bool) {
        let present = self.brokers.iter().filter(|broker| !broker.is_unwanted).count();
        if is_up && self.brokers.len() < REPLICAS_MAX {
            let index = self.brokers.len();
            let mut random = Random::new(self.scenario.seed, &format!("broker {index}"));
            self.brokers.push(Broker::new(index, &mut random));
            self.schedule(self.now, Event::Start(index));
        } else if !is_up && present > self.scenario.min_in_sync.max(2) {
            let Some(index) = self.brokers.iter().rposition(|broker| !broker.is_unwanted) else {
                return;
            };
            self.brokers[index].is_unwanted = true;
            self.schedule(self.now + 100, Event::Remove(index));
        }
        for operator in 0..self.operators.len() {
            self.schedule(self.now, Event::ToOperator(operator, ToOperator::Config));
        }
    }

    /// Takes a replica out of the group, which ends then.
    pub(crate) fn remove(&mut self, index: usize) {
        let id = self.brokers[index].id;
        let record = self.store.record();
        if record.replicas.contains_key(&id) {
            if record.master == Some(id) {
                self.ask_hand_over(None);
            } else {
                let message = ToOperator::Remove { id };
                self.schedule(self.now, Event::ToOperator(self.leader, message));
            }
            self.schedule(self.now + 3_000, Event::Remove(index));
        } else {
            self.die(index, Death::Stop, 0);
            self.brokers[index].is_removed = true;
        }
    }
}
