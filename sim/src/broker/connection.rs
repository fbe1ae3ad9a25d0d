//! Replication connections between brokers.

use replication::replica::Link;
use replication::{ReplicaId, ReplicaInput};

use super::{FRAME_MAX, LINKS_OF_MASTERS, connection_of};
use crate::disk::Log as _;
use crate::event::Event;
use crate::fault::Endpoint;
use crate::network::HaMessage;
use crate::scenario::DriverBug;
use crate::world::World;

/// Replication connections, as the two replicas at their ends see them.
impl World {
    pub(super) fn connect(&mut self, index: usize, link: Link, master: ReplicaId) {
        let now = self.now;
        let run = self.brokers[index].runs;
        let Some(target) = self.brokers.iter().position(|b| b.id == master) else { return };
        let (own, other) = (Endpoint::Broker(index), Endpoint::Broker(target));
        let is_cut =
            self.network.is_blocked(now, own, other) || self.network.is_blocked(now, other, own);
        if is_cut || !self.brokers[target].is_running() {
            let delay = if is_cut { 1_000 } else { 2 };
            self.schedule(now + delay, Event::Unconnected { broker: index, run, link });
            return;
        }
        let target_run = self.brokers[target].runs;
        let connection = self.network.connect((index, run, link), (target, target_run));
        if let Some(process) = &mut self.brokers[index].process {
            process.links.insert(link, connection);
        }
    }

    pub(crate) fn unconnected(&mut self, index: usize, run: u64, link: Link) {
        if self.brokers[index].runs == run {
            self.give(index, ReplicaInput::MasterGone { link });
        }
    }

    pub(super) fn send_to_master(&mut self, index: usize, link: Link, message: HaMessage) {
        let Some(process) = &self.brokers[index].process else { return };
        let Some(connection) = process.links.get(&link).copied() else { return };
        self.send_ha(connection, true, message);
    }

    pub(super) fn send_ha(&mut self, connection: usize, is_to_master: bool, message: HaMessage) {
        if let Some(at) = self.network.deliver(self.now, connection, is_to_master) {
            self.schedule(at, Event::Ha { connection, is_to_master, message });
        }
    }

    pub(super) fn close(&mut self, index: usize, link: Link) {
        let own = self.brokers[index].process.as_ref().and_then(|p| p.links.get(&link).copied());
        let connection = own.unwrap_or_else(|| connection_of(link));
        self.break_connection(connection, own.is_none());
    }

    /// Closes a connection; the other end hears of it unless it is cut off.
    pub(crate) fn break_connection(&mut self, connection: usize, is_by_master: bool) {
        let Some(state) = self.network.connections.get(connection) else { return };
        if state.is_closed {
            return;
        }
        self.send_ha(connection, !is_by_master, HaMessage::Gone);
        self.network.connections[connection].is_closed = true;
    }

    /// Connections of a broker whose process has ended.
    pub(crate) fn break_connections(&mut self, index: usize, run: u64, is_told: bool) {
        for connection in 0..self.network.connections.len() {
            let state = &self.network.connections[connection];
            let is_slave = state.slave.0 == index && state.slave.1 == run;
            let is_master = state.master == (index, run);
            if state.is_closed || !(is_slave || is_master) {
                continue;
            }
            if is_told {
                self.break_connection(connection, is_master);
            } else {
                self.network.connections[connection].is_closed = true;
            }
        }
    }

    pub(crate) fn ha_arrives(&mut self, connection: usize, is_to_master: bool, message: HaMessage) {
        let state = &self.network.connections[connection];
        let (index, run) = if is_to_master { state.master } else { (state.slave.0, state.slave.1) };
        let is_mixed = self.scenario.driver_bug == Some(DriverBug::MixedLinks);
        let broker = &self.brokers[index];
        if (broker.runs != run && !is_mixed) || broker.process.is_none() {
            return;
        }
        if self.now < broker.paused_until {
            let until = broker.paused_until;
            self.schedule(until, Event::Ha { connection, is_to_master, message });
            return;
        }
        if is_to_master {
            self.master_hears(index, connection, message);
        } else {
            self.slave_hears(index, connection, message);
        }
        self.pump(index, false);
    }

    pub(super) fn master_hears(&mut self, index: usize, connection: usize, message: HaMessage) {
        let mut number = connection;
        if self.scenario.driver_bug == Some(DriverBug::MixedLinks) {
            let slave = self.network.connections[connection].slave.0;
            let same = |c: &crate::network::Connection| c.slave.0 == slave && c.master.0 == index;
            number = self.network.connections.iter().rposition(same).unwrap_or(connection);
        }
        let link = Link(number as u64 + LINKS_OF_MASTERS);
        match message {
            HaMessage::SlaveHello(hello) => {
                self.give(index, ReplicaInput::SlaveHello { link, hello });
            }
            HaMessage::Ack(ack) => self.give(index, ReplicaInput::SlaveAck { link, ack }),
            HaMessage::Gone => self.give(index, ReplicaInput::SlaveGone { link }),
            HaMessage::MasterHello(_) | HaMessage::Data(..) => {}
        }
    }

    pub(super) fn slave_hears(&mut self, index: usize, connection: usize, message: HaMessage) {
        let link = self.network.connections[connection].slave.2;
        match message {
            HaMessage::MasterHello(hello) => {
                self.give(index, ReplicaInput::MasterHello { link, hello });
            }
            HaMessage::Data(frame, records) => {
                if let Some(process) = &mut self.brokers[index].process {
                    process.frame = (frame.offset, records);
                }
                self.give(index, ReplicaInput::MasterData { link, frame });
            }
            HaMessage::Gone => self.give(index, ReplicaInput::MasterGone { link }),
            HaMessage::SlaveHello(_) | HaMessage::Ack(_) => {}
        }
    }

    /// Sends slaves what is new, and a heartbeat if `is_idle`.
    pub(super) fn pump(&mut self, index: usize, is_idle: bool) {
        let broker = &self.brokers[index];
        if broker.process.is_none() {
            return;
        }
        let key = (index, broker.runs);
        let is_own = |c: &crate::network::Connection| c.master == key && !c.is_closed;
        let connections: Vec<usize> = (0..self.network.connections.len())
            .rev()
            .take(64)
            .filter(|c| is_own(&self.network.connections[*c]))
            .collect();
        for connection in connections {
            self.pump_one(index, connection, is_idle);
        }
    }

    pub(super) fn pump_one(&mut self, index: usize, connection: usize, is_idle: bool) {
        let now = self.brokers[index].clock(self.now);
        let mut must_send = is_idle;
        loop {
            let state = &self.network.connections[connection];
            let Some(from) = state.next else { return };
            let broker = &self.brokers[index];
            let Some(process) = &broker.process else { return };
            let Some(frame) = process.replica.frame(now, from, FRAME_MAX) else {
                self.break_connection(connection, true);
                return;
            };
            let has_news = frame.length > 0 || frame.confirm > state.confirm_sent;
            if !has_news && !must_send {
                return;
            }
            let end = from + frame.length;
            let records = broker.disk.log.read(from, end).to_vec();
            must_send = false;
            let state = &mut self.network.connections[connection];
            state.next = Some(end);
            state.confirm_sent = frame.confirm;
            self.send_ha(connection, false, HaMessage::Data(frame, records));
        }
    }
}
