//! Which disk and which run of a process a replica is.

use crate::{Epoch, ReplicaId};

/// One run of a broker process on one disk. Two runs differ in at least one field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunIdentity {
    /// UUID that the store got when it was formatted. Another one is another disk.
    pub store_id: String,
    /// How often the store was opened, from 1 on. Persisted before the broker registers, so a lower
    /// number than the recorded one is a disk that was rolled back.
    pub open_count: u64,
    /// UID of the pod and start of the process, or whatever else no two processes share.
    pub incarnation: String,
}

/// A position below which a member of the in-sync set surely has everything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Floor {
    /// Epoch in which it was confirmed.
    pub epoch: Epoch,
    /// Offset in the commit log.
    pub offset: i64,
}

/// What the record knows about a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaIdentity {
    /// Address for clients, `host:port`.
    pub address: String,
    /// Address for replication, `host:port`.
    pub ha_address: String,
    /// The run that registered last.
    pub run: RunIdentity,
    /// Its log must not end below this.
    pub floor: Floor,
    /// It may have lost acknowledged bytes (power was lost under asynchronous flush). It stays in
    /// the in-sync set, but is elected only if all members are like that.
    pub tail_in_doubt: bool,
}

/// What a replica says when it registers, and with every heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// Its number.
    pub id: ReplicaId,
    /// Address for clients.
    pub address: String,
    /// Address for replication.
    pub ha_address: String,
    /// Which run it is.
    pub run: RunIdentity,
    /// Whether all that was ever acknowledged is still in its log as far as it can know: shut down
    /// cleanly, or the machine's memory survived, or every acknowledgement waited for the disk.
    pub is_whole: bool,
    /// Where its log stands.
    pub log: LogPosition,
}

/// Where a replica's log stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogPosition {
    /// Highest epoch that it has promised to obey.
    pub promised: Epoch,
    /// Epoch of its last bytes; 0 if it has none.
    pub last_epoch: Epoch,
    /// End of what is stored.
    pub end: i64,
    /// Confirm offset as it knows it.
    pub confirm: i64,
    /// Highest number of an in-sync set that it has seen.
    pub sync_state_set_epoch: i32,
    /// Whether it is master of `promised` in this run.
    pub is_master: bool,
}
