//! What a replica can be told.

use crate::controller::Refusal;
use crate::{Epoch, EpochTable, Millis, ReplicaId, RoleRecord, RunIdentity};

/// A replication connection. Numbers are not used twice in a run: a message of a closed connection
/// is known by its number and ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link(pub u64);

/// A slave's first words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlaveHello {
    /// Who it is.
    pub id: ReplicaId,
    /// Which run, as it registered.
    pub run: RunIdentity,
    /// Epoch that it obeys.
    pub epoch: Epoch,
    /// End of its log before anything is cut.
    pub end: i64,
}

/// A master's answer to a slave's hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MasterHello {
    /// Its epoch.
    pub epoch: Epoch,
    /// The epochs of its log.
    pub epochs: EpochTable,
    /// First offset that its log still has.
    pub begin: i64,
    /// End of its log.
    pub end: i64,
}

/// A piece of a master's log, or only news of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The master's epoch.
    pub epoch: Epoch,
    /// Epoch of the bytes; a frame's bytes are all of one.
    pub data_epoch: Epoch,
    /// Where that epoch began.
    pub data_epoch_start: i64,
    /// Offset of the first byte.
    pub offset: i64,
    /// Number of bytes; 0 is a heartbeat.
    pub length: i64,
    /// The master's confirm offset.
    pub confirm: i64,
    /// The master's time when it was sent. Without it the master wants no promise, and gives back
    /// those that it has.
    pub stamp: Option<Millis>,
}

/// A slave's acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    /// Epoch that it obeys.
    pub epoch: Epoch,
    /// It has stored everything below.
    pub end: i64,
    /// Stamp of the latest frame. With it the slave promises not to serve as master for
    /// [`super::ReplicaConfig::promise`] from the sending of this acknowledgement on.
    pub stamp: Option<Millis>,
}

/// See the module.
#[derive(Debug, Clone)]
pub enum ReplicaInput {
    /// Time has passed: at least every 100 ms.
    Tick,
    /// What a controller says: the answer to a registration or a question, or a notice.
    Role(RoleRecord),
    /// Clients' messages were appended. Not for what a slave appends.
    Appended {
        /// End of the log.
        end: i64,
    },
    /// After `Serve` with sends that are held or refused: no append is under way any more.
    Drained {
        /// End of the log.
        end: i64,
    },
    /// Retention has deleted the beginning of the log.
    Trimmed {
        /// First offset that is left.
        begin: i64,
    },
    /// What is below is on the disk. A flush that began before a `Truncate` or `Refill` may not be
    /// reported after it.
    Flushed {
        /// End of what is on the disk.
        end: i64,
    },
    /// The log takes no more writes until the process starts anew.
    LogFailed,

    /// A slave has connected and spoken.
    SlaveHello {
        /// The connection, numbered by the driver.
        link: Link,
        /// What it said.
        hello: SlaveHello,
    },
    /// A slave acknowledges.
    SlaveAck {
        /// Its connection.
        link: Link,
        /// What it said.
        ack: Ack,
    },
    /// A slave's connection is closed.
    SlaveGone {
        /// Which one.
        link: Link,
    },

    /// The master has answered the hello.
    MasterHello {
        /// The number that `ConnectTo` gave.
        link: Link,
        /// What it said.
        hello: MasterHello,
    },
    /// The master has sent a piece of its log.
    MasterData {
        /// The connection.
        link: Link,
        /// What it is; the driver keeps the bytes for `Append`.
        frame: Frame,
    },
    /// The connection to the master is closed, or could not be made.
    MasterGone {
        /// Which one.
        link: Link,
    },

    /// A controller has refused `AskAlter`. A success is told by `Role`.
    AlterRefused {
        /// Why.
        refusal: Refusal,
    },
    /// Stop accepting, let `target` catch up, and report it.
    Freeze {
        /// The mastership that is meant.
        epoch: Epoch,
        /// Who will be master.
        target: ReplicaId,
        /// Time for it; then go on.
        budget: Millis,
    },
    /// Go on.
    Unfreeze {
        /// The mastership that is meant.
        epoch: Epoch,
    },
}
