//! What a seed decides before anything happens: the cluster, its profile, and the faults.

use replication::replica::{FlushMode, Profile};
use replication::{Millis, Rules};

use crate::fault::{Fault, Planned};
use crate::random::Random;

/// Time in which faults happen.
pub const FAULTS_UNTIL: Millis = 45_000;
/// Time after that in which a message must be acknowledged.
pub const SERVING_WITHIN: Millis = 60_000;
/// Time after that in which every replica must be in sync.
pub const IN_SYNC_WITHIN: Millis = 120_000;

/// Bugs that are planted outside of `replication`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverBug {
    /// An acknowledgement under synchronous flush does not wait for the disk.
    AckBeforeFlush,
    /// A name server believes whoever registered last.
    RouteByArrival,
    /// The record's store writes whatever version is expected.
    BlindWrites,
    /// Late messages of a closed replication connection are passed in under the next one's number.
    MixedLinks,
}

/// One cluster and what happens to it.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Decides everything.
    pub seed: u64,
    /// Replicas of the group.
    pub replicas: usize,
    /// `minInSyncReplicas`.
    pub min_in_sync: usize,
    /// Whom acknowledgements wait for.
    pub profile: Profile,
    /// What counts as stored.
    pub flush: FlushMode,
    /// Operator replicas.
    pub operators: usize,
    /// Name servers.
    pub name_servers: usize,
    /// Clients that send.
    pub clients: usize,
    /// The faults, in order of time.
    pub faults: Vec<Planned>,
    /// The rules of `replication` that are kept.
    pub rules: Rules,
    /// A bug outside of it.
    pub driver_bug: Option<DriverBug>,
}

impl Scenario {
    /// What `seed` decides.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, "scenario");
        let replicas = [3, 3, 3, 3, 2, 3, 5, 4, 1, 2][random.index(10)];
        let profile = if random.chance(800) { Profile::Sync } else { Profile::Async };
        let min_in_sync =
            if profile == Profile::Async || random.chance(250) { 1 } else { replicas / 2 + 1 };
        let flush = if random.chance(600) { FlushMode::Async } else { FlushMode::Sync };
        let mut scenario = Self {
            seed,
            replicas,
            min_in_sync,
            profile,
            flush,
            operators: 1 + random.index(3),
            name_servers: 1 + random.index(2),
            clients: 1 + random.index(2),
            faults: Vec::new(),
            rules: Rules::default(),
            driver_bug: None,
        };
        scenario.faults = Fault::plan(&scenario, &mut Random::new(seed, "faults"));
        scenario
    }

    /// Three replicas, two of them needed, and no faults but these.
    #[must_use]
    pub fn calm(seed: u64) -> Self {
        Self {
            replicas: 3,
            min_in_sync: 2,
            profile: Profile::Sync,
            flush: FlushMode::Async,
            operators: 2,
            name_servers: 2,
            clients: 1,
            faults: Vec::new(),
            ..Self::new(seed)
        }
    }
}
