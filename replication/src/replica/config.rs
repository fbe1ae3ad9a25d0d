//! What a replica must be told, and its times.

use crate::{Member, Millis, ReplicaId, Rules, RunIdentity};

/// Whom an acknowledgement waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Every member of the in-sync set.
    Sync,
    /// The master alone, as long as it holds the promises of all others. What only it has is lost
    /// if it is.
    Async,
}

/// What counts as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushMode {
    /// What the operating system has. A process may die, a machine may not.
    Async,
    /// What the disk has.
    Sync,
}

/// From the resource, and the constants of replication.
#[derive(Debug, Clone)]
pub struct ReplicaConfig {
    /// Number of this replica.
    pub id: ReplicaId,
    /// Address for clients.
    pub address: String,
    /// Address for replication.
    pub ha_address: String,
    /// This run.
    pub run: RunIdentity,
    /// Whom an acknowledgement waits for.
    pub profile: Profile,
    /// What counts as stored.
    pub flush: FlushMode,
    /// `minInSyncReplicas`; the asynchronous profile has 1.
    pub min_in_sync: usize,
    /// A slave that has not caught up for so long leaves the in-sync set.
    pub lag_max: Millis,
    /// A slave that is not connected for so long leaves the in-sync set.
    pub gone_max: Millis,
    /// How long a promise of a slave holds.
    pub promise: Millis,
    /// Whether a new master waits until its own last promise has run out. Needed for the
    /// asynchronous profile, and for reads that may not be stale.
    pub wait_out_promise: bool,
    /// A request to a controller, and a connection, is tried again after this.
    pub retry: Millis,
    /// Connections on which nothing came for so long are closed.
    pub silence_max: Millis,
    /// A master that handed over forwards late sends for so long.
    pub forward: Millis,
    /// Which rules are kept.
    pub rules: Rules,
}

impl ReplicaConfig {
    /// The default times.
    #[must_use]
    pub fn new(member: Member, run: RunIdentity, profile: Profile, min_in_sync: usize) -> Self {
        let Member { id, address, ha_address } = member;
        let is_async = profile == Profile::Async;
        Self {
            id,
            address,
            ha_address,
            run,
            profile,
            flush: FlushMode::Async,
            min_in_sync: if is_async { 1 } else { min_in_sync },
            lag_max: 5_000,
            gone_max: 1_500,
            promise: 3_000,
            wait_out_promise: is_async,
            retry: 500,
            silence_max: 5_000,
            forward: 60_000,
            rules: Rules::default(),
        }
    }
}
