//! What must be remembered about a BrokerName group, whoever keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::{Epoch, ReplicaId, ReplicaIdentity};

/// Elections that a record remembers.
pub const HISTORY_MAX: usize = 10;
/// Replicas that a record can hold.
pub const REPLICAS_MAX: usize = 16;

/// Version of a record, opaque: Kubernetes' `resourceVersion`, or a count. A write names the
/// version that it replaces and fails if there is another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub String);

/// State of a group, for people and for decisions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    /// Nothing was ever elected: all replicas of the spec have to register first.
    #[default]
    New,
    /// There is a master.
    Serving,
    /// There is none, and one will be elected as soon as a member of the in-sync set is there.
    NoMaster,
    /// All members of the in-sync set may have lost the end of their logs: all are waited for, for
    /// a while, and the best is elected.
    TailInDoubt,
    /// No disk of the in-sync set exists any more. Only a person can go on, with loss.
    DataLost,
    /// The record is older than what replicas have seen: all replicas have to register before it is
    /// made anew from what they say.
    RecordRegression,
}

impl Phase {
    /// As it is shown and stored.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "New",
            Self::Serving => "Serving",
            Self::NoMaster => "NoMaster",
            Self::TailInDoubt => "TailInDoubt",
            Self::DataLost => "DataLost",
            Self::RecordRegression => "RecordRegression",
        }
    }

    /// Every phase.
    pub const ALL: [Self; 6] = [
        Self::New,
        Self::Serving,
        Self::NoMaster,
        Self::TailInDoubt,
        Self::DataLost,
        Self::RecordRegression,
    ];

    /// The phase with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.name() == name)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a master was elected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElectionReason {
    /// The first of the group.
    First,
    /// Its connections were refused: the process is gone.
    ProcessGone,
    /// It was silent too long.
    Silent,
    /// It started anew, or on another disk.
    Restarted,
    /// Its disk took too long.
    DiskStalled,
    /// There was none.
    NoMaster,
    /// The former one handed over.
    HandOver,
    /// All members' tails were in doubt; acknowledged messages may be lost.
    TailInDoubt,
    /// A person accepted a loss.
    LossAccepted,
    /// The record had to be made anew.
    Rebuilt,
}

impl ElectionReason {
    /// As it is shown and stored.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::First => "First",
            Self::ProcessGone => "ProcessGone",
            Self::Silent => "Silent",
            Self::Restarted => "Restarted",
            Self::DiskStalled => "DiskStalled",
            Self::NoMaster => "NoMaster",
            Self::HandOver => "HandOver",
            Self::TailInDoubt => "TailInDoubt",
            Self::LossAccepted => "LossAccepted",
            Self::Rebuilt => "Rebuilt",
        }
    }

    /// Every reason.
    pub const ALL: [Self; 10] = [
        Self::First,
        Self::ProcessGone,
        Self::Silent,
        Self::Restarted,
        Self::DiskStalled,
        Self::NoMaster,
        Self::HandOver,
        Self::TailInDoubt,
        Self::LossAccepted,
        Self::Rebuilt,
    ];

    /// The reason with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

/// One election. The time at which it happened is the keeper's business: nothing is decided by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Election {
    /// Epoch that began.
    pub epoch: Epoch,
    /// Who became master.
    pub master: ReplicaId,
    /// Who was it before.
    pub former: Option<ReplicaId>,
    /// Why.
    pub reason: ElectionReason,
}

/// The record. Every field is authoritative: there is no other copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupRecord {
    /// Epoch of the current or last mastership; never falls.
    pub master_epoch: Epoch,
    /// The master, if there is one.
    pub master: Option<ReplicaId>,
    /// Replicas that have every acknowledged message; the next master is one of them.
    pub sync_state_set: BTreeSet<ReplicaId>,
    /// Rises with each change of the set or of a run in it; never falls.
    pub sync_state_set_epoch: i32,
    /// Every replica that ever registered and was not removed.
    pub replicas: BTreeMap<ReplicaId, ReplicaIdentity>,
    /// See [`Phase`].
    pub phase: Phase,
    /// Highest epoch whose election may have lost acknowledged messages; 0 if none ever did.
    pub loss_epoch: Epoch,
    /// The latest elections, newest last, at most [`HISTORY_MAX`].
    pub history: Vec<Election>,
}

impl GroupRecord {
    /// The latest election.
    #[must_use]
    pub fn last_election(&self) -> Option<&Election> {
        self.history.last()
    }

    /// Smallest number that no replica has.
    #[must_use]
    pub fn next_replica_id(&self) -> ReplicaId {
        (1..).find(|id| !self.replicas.contains_key(id)).unwrap_or(1)
    }

    pub(crate) fn remember(&mut self, election: Election) {
        self.history.push(election);
        let excess = self.history.len().saturating_sub(HISTORY_MAX);
        self.history.drain(..excess);
    }
}
