//! What brokers, `mqadmin` and a controller say to each other.
//!
//! The fields of Apache's controller, and extra fields of ours that safety needs and that it lacks:
//! the identity of a replica's disk, and what a replica knows of its master. A controller of Apache
//! ignores them.

use super::header;

/// Field of a broker's request with what proves who it is, where a controller asks for that.
pub const TOKEN_FIELD: &str = "token";

header! {
    /// What a replica says of itself, in `CONTROLLER_REGISTER_BROKER` and `BROKER_HEARTBEAT`,
    /// beside the header of the request.
    pub struct ReplicaHeader {
        cluster_name: String = "clusterName",
        broker_name: String = "brokerName",
        broker_id: i64 = "brokerId",
        /// Where slaves connect to.
        ha_address: String = "haAddress",
        /// Identity of the store, made when its directory was.
        store_id: String = "storeId",
        /// Times that the store was opened: less than before tells of an older copy of the disk.
        open_count: i64 = "openCount",
        /// Identity of the process or pod.
        incarnation: String = "incarnation",
        /// Epoch of the log's last bytes.
        epoch: i32 = "epoch",
        /// Highest epoch that the replica has promised to obey.
        promised_epoch: i32 = "promisedEpoch",
        max_offset: i64 = "maxOffset",
        confirm_offset: i64 = "confirmOffset",
        /// Highest number of an in-sync set that the replica has seen.
        sync_state_set_epoch: i32 = "syncStateSetEpoch",
        is_master: bool = "isMaster",
        /// Whether the log has all that this replica ever acknowledged, as far as it can know.
        is_whole: bool = "isWhole",
    }

    /// `CONTROLLER_REGISTER_BROKER`, with a [`ReplicaHeader`].
    pub struct RegisterReplicaRequestHeader {
        broker_address: String = "brokerAddress",
        invoke_time: Option<i64> = "invokeTime",
        /// The run that the record had when the replica read it; none if it had none.
        replaces_store_id: Option<String> = "replacesStoreId",
        replaces_open_count: Option<i64> = "replacesOpenCount",
        replaces_incarnation: Option<String> = "replacesIncarnation",
    }

    /// `CONTROLLER_ALTER_SYNC_STATE_SET`; the body is the set that the master wants.
    pub struct AlterSyncStateSetRequestHeader {
        broker_name: String = "brokerName",
        master_broker_id: i64 = "masterBrokerId",
        master_epoch: i32 = "masterEpoch",
        /// All members of the set have the log up to here.
        confirm_offset: i64 = "confirmOffset",
        invoke_time: Option<i64> = "invokeTime",
    }

    /// Answer to `CONTROLLER_ALTER_SYNC_STATE_SET`; the body is the set that now holds.
    pub struct AlterSyncStateSetResponseHeader {
        new_sync_state_set_epoch: i32 = "newSyncStateSetEpoch",
    }

    /// `CONTROLLER_ELECT_MASTER`.
    pub struct ElectMasterRequestHeader {
        cluster_name: String = "clusterName" or String::new(),
        broker_name: String = "brokerName" or String::new(),
        /// Who asks, or who shall be master if `designate_elect`; -1 for nobody.
        broker_id: i64 = "brokerId" or -1,
        designate_elect: bool = "designateElect" or false,
        /// Move the mastership in order, though there is a live master: to `broker_id` if it is
        /// designated, else to the best.
        hand_over: bool = "handOver" or false,
        /// Go on with the log of `broker_id` though it may lack acknowledged messages. Only where
        /// nothing else is left.
        accept_loss: bool = "acceptLoss" or false,
        invoke_time: Option<i64> = "invokeTime",
    }

    /// Who is master: answer to `CONTROLLER_ELECT_MASTER` and, with the in-sync set as its body, to
    /// `CONTROLLER_REGISTER_BROKER` and `CONTROLLER_GET_REPLICA_INFO`; also what
    /// `NOTIFY_BROKER_ROLE_CHANGED` says.
    pub struct MasterHeader {
        cluster_name: Option<String> = "clusterName",
        broker_name: Option<String> = "brokerName",
        master_broker_id: Option<i64> = "masterBrokerId",
        master_address: Option<String> = "masterAddress",
        master_epoch: Option<i32> = "masterEpoch",
        sync_state_set_epoch: Option<i32> = "syncStateSetEpoch",
        /// Where slaves of this master connect to.
        master_ha_address: Option<String> = "masterHaAddress",
        /// The run of the replica that asks, as it is recorded.
        own_store_id: Option<String> = "ownStoreId",
        own_open_count: Option<i64> = "ownOpenCount",
        own_incarnation: Option<String> = "ownIncarnation",
        /// Whether the record knows that the log of the replica that asks may lack its end.
        own_tail_in_doubt: bool = "ownTailInDoubt" or false,
        /// Highest epoch whose election may have lost acknowledged messages.
        loss_epoch: Option<i32> = "lossEpoch",
    }

    /// `CONTROLLER_GET_REPLICA_INFO`.
    pub struct GetReplicaInfoRequestHeader {
        broker_name: String = "brokerName",
        /// Who asks, if it is a replica.
        broker_id: Option<i64> = "brokerId",
    }

    /// `FREEZE_MASTER`: take no message until the target has all that there are.
    pub struct FreezeMasterRequestHeader {
        master_epoch: i32 = "masterEpoch",
        target_broker_id: i64 = "targetBrokerId",
        /// Milliseconds after which the master goes on by itself.
        budget: i64 = "budget",
    }

    /// Answer to `FREEZE_MASTER`.
    pub struct FreezeMasterResponseHeader {
        /// End of the log that the master and the target have.
        max_offset: i64 = "maxOffset",
    }

    /// `UNFREEZE_MASTER`: go on.
    pub struct UnfreezeMasterRequestHeader {
        master_epoch: i32 = "masterEpoch",
    }

    /// Answer to `CONTROLLER_GET_METADATA_INFO`.
    pub struct ControllerMetadataResponseHeader {
        group: Option<String> = "group",
        controller_leader_id: Option<String> = "controllerLeaderId",
        controller_leader_address: Option<String> = "controllerLeaderAddress",
        is_leader: bool = "isLeader" or false,
        /// `id:address;id:address;`
        peers: Option<String> = "peers",
    }

    /// `CLEAN_BROKER_DATA`.
    pub struct CleanBrokerDataRequestHeader {
        cluster_name: Option<String> = "clusterName",
        broker_name: String = "brokerName",
        /// Ids with `;` between them; none for all.
        broker_controller_ids_to_clean: Option<String> = "brokerControllerIdsToClean",
        is_clean_living_broker: bool = "isCleanLivingBroker" or false,
        invoke_time: Option<i64> = "invokeTime",
    }

    /// `BROKER_HEARTBEAT` to a controller, with a [`ReplicaHeader`].
    pub struct ReplicaHeartbeatRequestHeader {
        broker_addr: String = "brokerAddr",
        heartbeat_timeout_millis: Option<i64> = "heartbeatTimeoutMills",
        /// Smaller is preferred.
        election_priority: Option<i32> = "electionPriority",
        /// Milliseconds since the replica last heard its master; a master leaves it out.
        heard_master: Option<i64> = "heardMaster",
        /// Milliseconds that the oldest append has waited for the disk.
        disk_stall: i64 = "diskStall" or 0,
        /// What it runs, to be compared with what the group shall run.
        broker_version: Option<String> = "brokerVersion",
    }
}
