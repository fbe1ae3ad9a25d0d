//! Replicas of a broker name, as a controller knows them.

use std::collections::{BTreeMap, BTreeSet};

use super::{BrokerMemberGroup, body};

body! {
    /// The replicas that have every acknowledged message, by id.
    pub struct SyncStateSet {
        sync_state_set: BTreeSet<i64>,
        sync_state_set_epoch: i32,
    }

    /// Body of `CONTROLLER_ALTER_SYNC_STATE_SET`: the set that a master wants, and the runs of its
    /// members as far as the master has met them.
    pub struct AlterSyncStateSet {
        sync_state_set: BTreeSet<i64>,
        sync_state_set_epoch: i32,
        runs: BTreeMap<i64, ReplicaRun>,
    }

    /// One run of a replica.
    pub struct ReplicaRun {
        store_id: String,
        open_count: u64,
        incarnation: String,
    }

    /// Body of the answer to `CONTROLLER_ELECT_MASTER`.
    pub struct ElectMasterResponseBody {
        broker_member_group: Option<BrokerMemberGroup>,
        sync_state_set: BTreeSet<i64>,
    }

    /// Answer to `CONTROLLER_GET_SYNC_STATE_DATA`, by broker name.
    pub struct BrokerReplicasInfo {
        replicas_info_table: BTreeMap<String, ReplicasInfo>,
    }

    /// The replicas of one broker name.
    pub struct ReplicasInfo {
        master_broker_id: Option<i64>,
        master_address: String,
        master_epoch: i32,
        sync_state_set_epoch: i32,
        in_sync_replicas: Vec<ReplicaInfo>,
        not_in_sync_replicas: Vec<ReplicaInfo>,
    }

    /// One of them.
    pub struct ReplicaInfo {
        broker_name: String,
        broker_id: i64,
        broker_address: String,
        alive: bool,
    }
}
