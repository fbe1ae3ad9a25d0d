//! Who is master of a BrokerName, what is acknowledged, and how a replica comes back: the rules of
//! election and replication as state machines.
//!
//! No IO, no clock, no threads, no randomness: a [`Controller`] or a [`Replica`] takes an input and
//! the time and returns effects, which its driver carries out **in order**. An effect that needs a
//! disk is durable before the next one is begun; if it fails, the driver ends the process. That
//! order is what makes a crash between any two effects harmless.
//!
//! - [`GroupRecord`] is what must be remembered about a group. It changes by compare-and-swap only
//!   (in Kubernetes, in a file, in memory), so any number of controllers may decide at a time.
//! - [`Controller`] runs in every operator replica, one per group.
//! - [`Replica`] runs in every broker.
//! - [`invariant`] states what must hold in every moment, for the simulator and `rmq check`.
//!
//! # Invariants
//! - Epochs only rise; an epoch has one master, and a replica is master of an epoch in one run
//!   only.
//! - A replica persists an epoch before it acts on it, and obeys no lower one.
//! - Acknowledged means stored on every member of the confirmed in-sync set and of every set that
//!   is still being proposed.
//! - A master is chosen from the recorded in-sync set, with the disk that the record knows.
//! - Only what lies above the confirm offset is ever cut, and it is saved before.

pub mod controller;
pub mod epoch;
pub mod group_record;
pub mod identity;
pub mod invariant;
pub mod replica;
pub mod role_record;
pub mod rules;

pub use controller::{Controller, ControllerConfig, ControllerEffect, ControllerInput};
pub use epoch::{EpochEntry, EpochTable};
pub use group_record::{Election, ElectionReason, GroupRecord, Phase};
pub use identity::{Floor, ReplicaIdentity, RunIdentity};
pub use replica::{Replica, ReplicaConfig, ReplicaEffect, ReplicaInput, ReplicaState};
pub use role_record::{Member, RoleRecord};
pub use rules::Rules;

/// Number of a replica in its group, as in Apache's controller: from 1 on, never reused for
/// another.
pub type ReplicaId = i64;

/// Number of a mastership. It only rises; 0 is before the first.
pub type Epoch = i32;

/// Milliseconds of a monotonic clock of the machine that passes them in. Clocks of two machines are
/// never compared.
pub type Millis = u64;
