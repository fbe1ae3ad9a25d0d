//! What a controller can be told.

use std::collections::{BTreeMap, BTreeSet};

use crate::group_record::{GroupRecord, Version};
use crate::identity::Registration;
use crate::{ControllerConfig, Epoch, Millis, ReplicaId, RunIdentity};

/// Names a request until it is answered; the driver's choice, unique among those that wait.
pub type Token = u64;

/// A broker's heartbeat. It is sent to every controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// Who it is and where its log stands.
    pub registration: Registration,
    /// How long ago it heard the master of the current epoch, if it follows one: the age at
    /// sending.
    pub heard_master: Option<Millis>,
    /// Age of the oldest append that its own disk has not yet completed.
    pub disk_stall: Millis,
    /// Smaller is preferred, as `electionPriority` of Apache's.
    pub priority: i32,
    /// Whether it runs the version that the group is to have.
    pub is_target_version: bool,
}

/// A master's wish to change the in-sync set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlterRequest {
    /// The master.
    pub master: ReplicaId,
    /// Its epoch.
    pub master_epoch: Epoch,
    /// Number of the set that it builds on.
    pub sync_state_set_epoch: i32,
    /// The wanted members.
    pub set: BTreeSet<ReplicaId>,
    /// Their runs, as the master met them. A member that it has not met in this epoch has none, and
    /// may stay but not join.
    pub runs: BTreeMap<ReplicaId, RunIdentity>,
    /// The master's confirm offset: all members have so much.
    pub confirm: i64,
}

/// What a dial of a broker's port said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// Something listens there.
    Connected,
    /// The machine is there and nothing listens: the process is gone.
    Refused,
    /// Nothing came back.
    Silent,
}

/// Why a master did not freeze, or gave it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreezeFailure {
    /// It is not master of this epoch.
    NotMaster,
    /// The target did not get everything in time.
    TooSlow,
}

/// See the module.
#[derive(Debug, Clone)]
pub enum ControllerInput {
    /// Time has passed. At least every [`ControllerConfig::gap_max`] while there is nothing else.
    Tick,
    /// Whether this controller begins elections.
    Leading(bool),
    /// The spec of the group has changed.
    Config(ControllerConfig),

    /// The record as it is, or was a little ago: the answer to `Read`, or a watch event.
    Record {
        /// Its version.
        version: Version,
        /// What it says; the default if there was never one.
        record: GroupRecord,
    },
    /// The last `Write` was carried out.
    Written {
        /// Version of the record that it made.
        version: Version,
    },
    /// The last `Write` was refused because another came first.
    Conflict,
    /// The last `Read` or `Write` has no answer; a write may have been carried out nevertheless.
    Unavailable,

    /// A broker has started, and has read the record.
    Register {
        /// For the answer.
        token: Token,
        /// Who it is.
        registration: Registration,
        /// The run that the record knew when the broker read it. A registration that was long under
        /// way, or is the echo of an earlier run, does not replace a later one.
        replaces: Option<RunIdentity>,
    },
    /// A broker is alive.
    Heartbeat(Heartbeat),
    /// A broker's connection is closed.
    Disconnected {
        /// Whose.
        id: ReplicaId,
    },
    /// The answer to `Probe`.
    Probed {
        /// Who was dialled.
        id: ReplicaId,
        /// What it said.
        answer: ProbeAnswer,
    },
    /// A master wants another in-sync set.
    Alter {
        /// For the answer.
        token: Token,
        /// What it wants.
        request: AlterRequest,
    },
    /// A broker or a person asks for the record.
    Query {
        /// For the answer.
        token: Token,
    },
    /// `electMaster`: elect, if there is no live master. With a target and a live master, hand
    /// over.
    Elect {
        /// For the answer.
        token: Token,
        /// Who shall be master.
        target: Option<ReplicaId>,
    },
    /// Move the mastership in order.
    HandOver {
        /// For the answer.
        token: Token,
        /// To whom; the best if not said.
        target: Option<ReplicaId>,
    },
    /// The master's answer to `Freeze`.
    Frozen {
        /// Its epoch.
        epoch: Epoch,
        /// The end of the log that it and the target have.
        result: Result<i64, FreezeFailure>,
    },
    /// A person accepts the loss of what `id` does not have. Only in phases that need a person.
    AcceptLoss {
        /// For the answer.
        token: Token,
        /// Whose log shall be the group's.
        id: ReplicaId,
    },
    /// A person or the reconciler removes a replica that will not come back.
    Remove {
        /// For the answer.
        token: Token,
        /// Which one.
        id: ReplicaId,
    },

    /// The pod of a broker is being deleted, or its node drained: it should not be master.
    Leaving {
        /// Which one.
        id: ReplicaId,
        /// Whether it still is so.
        is_leaving: bool,
    },
    /// Many groups look dead at once, so the fault is probably here: elect with proof only.
    Brake(bool),
    /// Whether at least half of the name servers cannot reach the master either.
    MasterUnseenByNameServers(bool),
}
