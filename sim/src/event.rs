//! What can happen next.

use std::cmp::Ordering;
use std::sync::Arc;

use replication::controller::{AlterRequest, FreezeFailure, Heartbeat, ProbeAnswer};
use replication::group_record::Version;
use replication::identity::Registration;
use replication::{Epoch, GroupRecord, Millis, ReplicaId, RoleRecord, RunIdentity};

use crate::fault::Death;
use crate::network::HaMessage;

/// A message to a broker, other than over a replication connection.
#[derive(Debug, Clone)]
pub(crate) enum ToBroker {
    Role(RoleRecord),
    AlterRefused(replication::controller::Refusal),
    Freeze { epoch: Epoch, target: ReplicaId, budget: Millis },
    Unfreeze { epoch: Epoch },
    Send { client: usize, attempt: u64, message: u32, is_forwarded: bool },
}

/// A message to an operator replica.
#[derive(Debug, Clone)]
pub(crate) enum ToOperator {
    Heartbeat(Heartbeat),
    Register { broker: usize, registration: Registration, replaces: Option<RunIdentity> },
    Query { broker: usize },
    Alter { broker: usize, request: AlterRequest },
    Frozen { epoch: Epoch, result: Result<i64, FreezeFailure> },
    Disconnected { id: ReplicaId },
    Probed { id: ReplicaId, answer: ProbeAnswer },
    Answer { number: u64, answer: StoreAnswer },
    Watched(Version, GroupRecord),
    Leading(bool),
    HandOver { target: Option<ReplicaId> },
    Leaving { id: ReplicaId, is_leaving: bool },
    Remove { id: ReplicaId },
    Config,
}

/// What the record's store is asked.
#[derive(Debug, Clone)]
pub(crate) enum StoreRequest {
    Read,
    Write(Version, Arc<GroupRecord>),
}

/// What it answers.
#[derive(Debug, Clone)]
pub(crate) enum StoreAnswer {
    Record(Version, GroupRecord),
    Written(Version),
    Conflict,
    Unavailable,
}

/// See the module.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    Start(usize),
    BrokerTick(usize, u64),
    ToBroker(usize, ToBroker),
    Ha {
        connection: usize,
        is_to_master: bool,
        message: HaMessage,
    },
    /// The connection could not be made.
    Unconnected {
        broker: usize,
        run: u64,
        link: replication::replica::Link,
    },
    Flushed {
        broker: usize,
        run: u64,
        end: i64,
        cuts: u64,
    },
    StartOperator(usize),
    OperatorTick(usize, u64),
    ToOperator(usize, ToOperator),
    ToStore {
        operator: usize,
        number: u64,
        request: StoreRequest,
    },
    ToNameServer {
        name_server: usize,
        epoch: Epoch,
        broker: usize,
        is_master: bool,
    },
    ClientTick(usize),
    ToClient {
        client: usize,
        attempt: u64,
        stored: Option<(u32, i64)>,
    },
    Lease,
    Fault(usize),
    Crash {
        broker: usize,
        death: Death,
        back_after: Millis,
    },
    UpgradeStep(usize),
    Undrain(usize),
    Remove(usize),
    Heal,
}

/// An event and its time; the first is the greatest.
#[derive(Debug)]
pub(crate) struct Scheduled {
    pub(crate) at: Millis,
    pub(crate) number: u64,
    pub(crate) event: Event,
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}
