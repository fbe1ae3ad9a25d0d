//! Clients that send, and name servers that tell them where.

use replication::{Epoch, Millis};

use crate::scenario::DriverBug;

/// A name server's entry for the group: who registered as its master.
#[derive(Debug, Clone, Default)]
pub(crate) struct NameServer {
    pub(crate) epoch: Epoch,
    pub(crate) master: Option<usize>,
}

impl NameServer {
    /// A broker registers as master of an epoch.
    pub(crate) fn register(&mut self, epoch: Epoch, broker: usize, bug: Option<DriverBug>) {
        if epoch >= self.epoch || bug == Some(DriverBug::RouteByArrival) {
            self.epoch = epoch;
            self.master = Some(broker);
        }
    }

    /// A broker that was master of an epoch is master no more.
    pub(crate) fn unregister(&mut self, epoch: Epoch, broker: usize) {
        if epoch >= self.epoch && self.master == Some(broker) {
            self.master = None;
        }
    }
}

/// A client with one send at a time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Client {
    /// Message that is being sent, and its attempt.
    pub(crate) message: u32,
    pub(crate) attempt: u64,
    pub(crate) sent_at: Millis,
    pub(crate) is_waiting: bool,
    /// The broker that it is connected to.
    pub(crate) broker: usize,
    /// Number of acknowledgements.
    pub(crate) acknowledged: u64,
    /// When the acknowledged message was first sent.
    pub(crate) first_sent_at: Millis,
}
