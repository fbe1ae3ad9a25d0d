//! What a broker does with clients' sends.

use replication::replica::{FlushMode, Sends};
use replication::{ReplicaId, ReplicaInput};

use super::{HELD_MAX, Send};
use crate::disk::Log as _;
use crate::event::{Event, ToBroker};
use crate::fault::Endpoint;
use crate::scenario::DriverBug;
use crate::world::World;

impl World {
    pub(super) fn take_send(&mut self, index: usize, send: Send, is_forwarded: bool) {
        let broker = &mut self.brokers[index];
        let Some(process) = &mut broker.process else { return };
        match &process.replica.serving().sends {
            Sends::Accept => {
                let end = broker.disk.log.append(&[send.message]);
                process.waiting.push_back((end, send));
                self.give(index, ReplicaInput::Appended { end });
                self.after_append(index);
            }
            Sends::Hold if process.held.len() < HELD_MAX => process.held.push_back(send),
            Sends::Forward(master) if !is_forwarded => {
                let master = master.id;
                self.forward(index, master, send);
            }
            Sends::Hold | Sends::Forward(_) | Sends::Refuse => self.answer(index, send, None),
        }
    }

    pub(super) fn forward(&mut self, index: usize, master: ReplicaId, send: Send) {
        let Some(to) = self.brokers.iter().position(|b| b.id == master) else { return };
        let Send { client, attempt, message } = send;
        let message = ToBroker::Send { client, attempt, message, is_forwarded: true };
        let (from, target) = (Endpoint::Broker(index), Endpoint::Broker(to));
        self.send(from, target, Event::ToBroker(to, message));
    }

    pub(super) fn answer(&mut self, index: usize, send: Send, stored: Option<(u32, i64)>) {
        let event = Event::ToClient { client: send.client, attempt: send.attempt, stored };
        self.send(Endpoint::Broker(index), Endpoint::Client(send.client), event);
    }

    pub(super) fn after_append(&mut self, index: usize) {
        match (self.scenario.flush, self.scenario.driver_bug) {
            (FlushMode::Sync, Some(DriverBug::AckBeforeFlush)) => {
                let end = self.brokers[index].disk.log.end();
                self.give(index, ReplicaInput::Flushed { end });
            }
            (FlushMode::Sync, _) => self.begin_flush(index),
            (FlushMode::Async, _) => {}
        }
        self.pump(index, false);
    }
}
