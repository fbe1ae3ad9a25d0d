//! What a controller wants done.

use std::sync::Arc;

use protocol::response_code::ResponseCode;

use super::input::Token;
use crate::group_record::{GroupRecord, Version};
use crate::{Epoch, Millis, ReplicaId};

/// Why a request was refused, with the code that Apache's controller has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The requester's master epoch is not the record's.
    FencedMasterEpoch,
    /// The in-sync set has changed since.
    FencedSyncStateSetEpoch,
    /// The requester is not the master.
    InvalidMaster,
    /// A member is unknown, or is another run than the requester believes.
    InvalidReplicas,
    /// There is no master and none can be elected.
    MasterNotAvailable,
    /// The request makes no sense in this phase.
    InvalidRequest,
    /// A member of the wanted set is not alive.
    BrokerNotAlive,
    /// This controller cannot decide now: ask another one, or again.
    NotLeader,
    /// The record's store does not answer: ask again.
    StoreUnavailable,
    /// The replica has to register first.
    NeedToRegister,
    /// There is a live master.
    MasterStillExists,
    /// No candidate fits.
    ElectFailed,
    /// The wanted set is what is recorded, or lacks the master.
    AlterFailed,
    /// The record knows another run than the one that the registration replaces: read it again.
    OutdatedRun,
}

impl Refusal {
    /// Response code on the wire.
    #[must_use]
    pub const fn code(self) -> ResponseCode {
        match self {
            Self::FencedMasterEpoch => ResponseCode::CONTROLLER_FENCED_MASTER_EPOCH,
            Self::FencedSyncStateSetEpoch => ResponseCode::CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
            Self::InvalidMaster => ResponseCode::CONTROLLER_INVALID_MASTER,
            Self::InvalidReplicas => ResponseCode::CONTROLLER_INVALID_REPLICAS,
            Self::MasterNotAvailable => ResponseCode::CONTROLLER_MASTER_NOT_AVAILABLE,
            Self::InvalidRequest => ResponseCode::CONTROLLER_INVALID_REQUEST,
            Self::BrokerNotAlive => ResponseCode::CONTROLLER_BROKER_NOT_ALIVE,
            Self::NotLeader | Self::StoreUnavailable => ResponseCode::CONTROLLER_NOT_LEADER,
            Self::NeedToRegister => ResponseCode::CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
            Self::MasterStillExists => ResponseCode::CONTROLLER_MASTER_STILL_EXIST,
            Self::ElectFailed => ResponseCode::CONTROLLER_ELECT_MASTER_FAILED,
            Self::AlterFailed => ResponseCode::CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
            Self::OutdatedRun => ResponseCode::CONTROLLER_BROKER_ID_INVALID,
        }
    }
}

/// Something that people should know about a group while it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// This controller does not hear the master, but its slaves do.
    MasterUnreachableFromOperator,
    /// Fewer members are in sync than `minInSyncReplicas`.
    WritesRefused,
    /// There is no master.
    NoMaster,
    /// All disks of the in-sync set are gone.
    DataLost,
    /// An election may have lost acknowledged messages.
    PossibleTailLoss,
    /// The record is older than the replicas.
    RecordRegression,
    /// The record's store does not answer.
    RecordUnavailable,
}

/// See [`super::Controller`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControllerEffect {
    /// Read the record, fresh from its store; the answer is `Record` or `Unavailable`.
    Read,
    /// Write by compare-and-swap; the answer is `Written`, `Conflict` or `Unavailable`. There is at
    /// most one at a time.
    Write {
        /// Version that it replaces.
        expected: Version,
        /// The new record.
        record: Arc<GroupRecord>,
    },
    /// Answer a request.
    Reply {
        /// Which one.
        token: Token,
        /// The record after the request, or why it was refused.
        outcome: Result<Arc<GroupRecord>, Refusal>,
    },
    /// Tell a replica the record (`NOTIFY_BROKER_ROLE_CHANGED`).
    Notify {
        /// Whom.
        id: ReplicaId,
        /// What it is now.
        record: Arc<GroupRecord>,
    },
    /// Ask the master to stop accepting and to wait for the target; the answer is `Frozen`.
    Freeze {
        /// The master.
        master: ReplicaId,
        /// Its epoch.
        epoch: Epoch,
        /// Who will be master.
        target: ReplicaId,
        /// After so long the master goes on by itself.
        budget: Millis,
    },
    /// Let the master go on.
    Unfreeze {
        /// The master.
        master: ReplicaId,
        /// Its epoch.
        epoch: Epoch,
    },
    /// Dial a replica's port; the answer is `Probed`.
    Probe {
        /// Whose.
        id: ReplicaId,
    },
    /// A condition holds from now on.
    Raise(Condition),
    /// It holds no more.
    Clear(Condition),
}
