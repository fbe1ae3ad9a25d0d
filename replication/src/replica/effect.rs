//! What a replica wants done, in order.

use super::input::{Ack, Link, MasterHello, SlaveHello};
use super::state::ReplicaState;
use crate::controller::{AlterRequest, FreezeFailure};
use crate::{Epoch, Member, RunIdentity};

/// What happens to sends of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sends {
    /// They are appended.
    Accept,
    /// They wait for the next `Serve`, within the client's time-out: the mastership begins or
    /// moves.
    Hold,
    /// They are forwarded to the new master.
    Forward(Member),
    /// They are refused: no master here, or too few members in sync.
    Refuse,
}

/// What a replica does for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serving {
    /// Whether it registers at name servers as master of this epoch; otherwise as slave.
    pub master_epoch: Option<Epoch>,
    /// Whether it answers reads, up to the confirm offset.
    pub reads: bool,
    /// What happens to sends.
    pub sends: Sends,
}

/// Why a replica cannot go on without a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HaltReason {
    /// The master's log lacks something that was confirmed.
    WouldCutConfirmed {
        /// Where the logs part.
        common: i64,
        /// What was confirmed.
        confirm: i64,
    },
    /// A newer run of this replica exists.
    Outdated,
}

/// See [`super::Replica`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicaEffect {
    /// Make this durable, before anything else is done.
    Persist(ReplicaState),
    /// This replica is master from now on; its epoch begins at the end of the log.
    BecomeMaster {
        /// The epoch.
        epoch: Epoch,
        /// End of the log.
        start: i64,
    },
    /// This replica is a slave from now on: no client's message is appended any more, and what
    /// still was is passed in with `Appended` before anything else. Senders that wait go on
    /// waiting: `Confirm` answers them (their messages are in the new master's log), `Truncate`
    /// fails them.
    BecomeSlave {
        /// The epoch.
        epoch: Epoch,
        /// Whose.
        master: Member,
    },
    /// This replica has no role from now on; for appends and waiting senders as `BecomeSlave`.
    BecomeFenced,

    /// Connect to the master's replication port; what was connected before is closed.
    ConnectTo {
        /// Number of the connection.
        link: Link,
        /// Whom.
        master: Member,
    },
    /// Say hello on it as soon as it is connected.
    SendHello {
        /// The connection to the master.
        link: Link,
        /// What to say.
        hello: SlaveHello,
    },
    /// Acknowledge.
    SendAck {
        /// The connection to the master.
        link: Link,
        /// What to say.
        ack: Ack,
    },
    /// Answer a slave's hello.
    AnswerHello {
        /// The slave's connection.
        link: Link,
        /// What to say.
        hello: MasterHello,
    },
    /// Send a slave the log from here on and all that is appended, with
    /// [`super::Replica::frame`], and a frame without bytes when there was nothing for a while.
    Stream {
        /// The slave's connection.
        link: Link,
        /// First offset to send.
        from: i64,
    },
    /// Close a connection.
    Close {
        /// Which one.
        link: Link,
    },

    /// Save this part of the log to `diverged/EPOCH-OFFSET` and report it: it is about to be cut.
    SaveDiverged {
        /// Epoch of its first bytes.
        epoch: Epoch,
        /// Begin.
        from: i64,
        /// End.
        to: i64,
    },
    /// Cut the log, durably.
    Truncate {
        /// Its new end.
        to: i64,
    },
    /// Forget the whole log, durably, and begin an empty one.
    Refill {
        /// Its first offset.
        from: i64,
    },
    /// Append bytes of the frame that was just passed in: all, or its end.
    Append {
        /// Offset of the first: the end of the log.
        offset: i64,
        /// Their number.
        length: i64,
    },

    /// What is below `offset` may be read, and senders whose messages end at or below
    /// `acknowledged` may be answered. Neither ever falls, except after a `Refill` or an accepted
    /// loss. In the synchronous profile both are the same.
    Confirm {
        /// All members of the in-sync set have it.
        offset: i64,
        /// The promise to senders is kept.
        acknowledged: i64,
    },
    /// Ask a controller to change the in-sync set, until `Role` or `AlterRefused` comes.
    AskAlter(AlterRequest),
    /// Ask a controller for the record; the answer is `Role`.
    AskRole,
    /// Register [`super::Replica::registration`] with a controller; the answer is `Role`.
    Register {
        /// The run that the record knew.
        replaces: Option<RunIdentity>,
    },
    /// Serve clients like this from now on.
    Serve(Serving),
    /// Answer `Freeze`.
    ReportFrozen {
        /// The mastership.
        epoch: Epoch,
        /// End of the log that this replica and the target have.
        result: Result<i64, FreezeFailure>,
    },
    /// Refuse everything and tell people.
    Halt(HaltReason),
}
