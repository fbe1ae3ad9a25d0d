//! Name server requests: registration, routes, write permission, key-value settings.

use super::header;

header! {
    /// `GET_ROUTEINFO_BY_TOPIC`.
    pub struct GetRouteInfoRequestHeader {
        topic: String = "topic",
        accept_standard_json_only: Option<bool> = "acceptStandardJsonOnly",
    }

    /// `REGISTER_BROKER`.
    pub struct RegisterBrokerRequestHeader {
        broker_name: String = "brokerName",
        broker_addr: String = "brokerAddr",
        cluster_name: String = "clusterName",
        ha_server_addr: String = "haServerAddr",
        broker_id: i64 = "brokerId",
        /// Absent: the name server's own limit of 120 s.
        heartbeat_timeout_millis: Option<i64> = "heartbeatTimeoutMillis",
        enable_acting_master: Option<bool> = "enableActingMaster",
        /// Java 5 says false even when it did compress: look at the body, too.
        compressed: bool = "compressed" or false,
        /// CRC-32 of the body as sent with the top bit cleared; 0: do not check.
        body_crc32: i32 = "bodyCrc32" or 0,
    }

    /// Answer to `REGISTER_BROKER`: for slaves, where their master is.
    pub struct RegisterBrokerResponseHeader {
        ha_server_addr: Option<String> = "haServerAddr",
        master_addr: Option<String> = "masterAddr",
    }

    /// `UNREGISTER_BROKER` and `QUERY_DATA_VERSION`.
    pub struct BrokerIdentityRequestHeader {
        broker_name: String = "brokerName",
        broker_addr: String = "brokerAddr",
        cluster_name: String = "clusterName",
        broker_id: i64 = "brokerId",
    }

    /// Answer to `QUERY_DATA_VERSION`.
    pub struct QueryDataVersionResponseHeader {
        changed: bool = "changed",
    }

    /// `BROKER_HEARTBEAT`.
    pub struct BrokerHeartbeatRequestHeader {
        cluster_name: String = "clusterName",
        broker_addr: String = "brokerAddr",
        broker_name: String = "brokerName",
        broker_id: Option<i64> = "brokerId",
        epoch: Option<i32> = "epoch",
        max_offset: Option<i64> = "maxOffset",
        confirm_offset: Option<i64> = "confirmOffset",
        heartbeat_timeout_mills: Option<i64> = "heartbeatTimeoutMills",
        election_priority: Option<i32> = "electionPriority",
    }

    /// `GET_BROKER_MEMBER_GROUP`.
    pub struct GetBrokerMemberGroupRequestHeader {
        cluster_name: String = "clusterName",
        broker_name: String = "brokerName",
    }

    /// `WIPE_WRITE_PERM_OF_BROKER` and `ADD_WRITE_PERM_OF_BROKER`.
    pub struct WritePermRequestHeader {
        broker_name: String = "brokerName",
    }

    /// Answer to `WIPE_WRITE_PERM_OF_BROKER`.
    pub struct WipeWritePermResponseHeader {
        wipe_topic_count: i32 = "wipeTopicCount",
    }

    /// Answer to `ADD_WRITE_PERM_OF_BROKER`.
    pub struct AddWritePermResponseHeader {
        add_topic_count: i32 = "addTopicCount",
    }

    /// `PUT_KV_CONFIG`.
    pub struct PutKvConfigRequestHeader {
        namespace: String = "namespace",
        key: String = "key",
        value: String = "value",
    }

    /// `GET_KV_CONFIG` and `DELETE_KV_CONFIG`.
    pub struct KvConfigRequestHeader {
        namespace: String = "namespace",
        key: String = "key",
    }

    /// Answer to `GET_KV_CONFIG`.
    pub struct GetKvConfigResponseHeader {
        value: Option<String> = "value",
    }

    /// `GET_KVLIST_BY_NAMESPACE`.
    pub struct KvListRequestHeader {
        namespace: String = "namespace",
    }
}
