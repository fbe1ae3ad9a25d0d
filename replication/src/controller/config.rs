//! What a controller must be told about its group, and its times.

use std::collections::BTreeSet;

use crate::{Millis, ReplicaId, Rules};

/// From the resource, and the constants of detection.
#[derive(Debug, Clone, PartialEq)]
pub struct ControllerConfig {
    /// Replicas that the spec wants. All of them have to register before the first election, and
    /// before a lost record is made anew.
    pub replicas: BTreeSet<ReplicaId>,
    /// `minInSyncReplicas`.
    pub min_in_sync: usize,
    /// A broker that is silent for so long is dead.
    pub heartbeat_timeout: Millis,
    /// A slave that heard the master within so long vetoes an election.
    pub veto_age: Millis,
    /// A veto counts for so long if the name servers do not see the master either.
    pub veto_max: Millis,
    /// Between two ticks; longer means that this process stood still and knows nothing.
    pub gap_max: Millis,
    /// Between two elections because of silence.
    pub election_pause: Millis,
    /// Between two elections of which the first's master is surely gone.
    pub election_pause_proved: Millis,
    /// A disk that stalls for so long loses the mastership.
    pub disk_stall_max: Millis,
    /// Time that a hand-over has to freeze and catch up.
    pub hand_over_budget: Millis,
    /// A target must not be further behind than this many bytes.
    pub hand_over_lag_max: i64,
    /// For so long all members are waited for when every tail is in doubt.
    pub gather: Millis,
    /// A write or read without an answer is given up after this.
    pub store_timeout: Millis,
    /// Which rules are kept.
    pub rules: Rules,
}

impl ControllerConfig {
    /// The default times for a group of these replicas.
    #[must_use]
    pub fn new(replicas: BTreeSet<ReplicaId>, min_in_sync: usize) -> Self {
        Self {
            replicas,
            min_in_sync,
            heartbeat_timeout: 3_000,
            veto_age: 1_000,
            veto_max: 30_000,
            gap_max: 1_000,
            election_pause: 10_000,
            election_pause_proved: 1_000,
            disk_stall_max: 10_000,
            hand_over_budget: 2_000,
            hand_over_lag_max: 64 << 20,
            gather: 30_000,
            store_timeout: 5_000,
            rules: Rules::default(),
        }
    }
}
