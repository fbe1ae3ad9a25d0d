//! Offsets of queues and of consumers.

use super::header;

header! {
    /// `QUERY_CONSUMER_OFFSET`.
    pub struct QueryConsumerOffsetRequestHeader {
        consumer_group: String = "consumerGroup",
        topic: String = "topic",
        queue_id: i32 = "queueId",
        set_zero_if_not_found: Option<bool> = "setZeroIfNotFound",
        broker_name: Option<String> = "bname",
    }

    /// `UPDATE_CONSUMER_OFFSET`.
    pub struct UpdateConsumerOffsetRequestHeader {
        consumer_group: String = "consumerGroup",
        topic: String = "topic",
        queue_id: i32 = "queueId",
        commit_offset: i64 = "commitOffset",
        broker_name: Option<String> = "bname",
    }

    /// Answer that holds one offset.
    pub struct OffsetResponseHeader {
        offset: i64 = "offset",
    }

    /// `SEARCH_OFFSET_BY_TIMESTAMP`.
    pub struct SearchOffsetRequestHeader {
        topic: String = "topic",
        queue_id: i32 = "queueId",
        /// Store time in milliseconds since the epoch.
        timestamp: i64 = "timestamp",
        /// "LOWER" (also when absent) or "UPPER", in any case.
        boundary_type: Option<String> = "boundaryType",
        broker_name: Option<String> = "bname",
    }

    /// `GET_MAX_OFFSET` and `GET_MIN_OFFSET`.
    pub struct QueueOffsetRequestHeader {
        topic: String = "topic",
        queue_id: i32 = "queueId",
        committed: bool = "committed" or true,
        broker_name: Option<String> = "bname",
    }

    /// `GET_EARLIEST_MSG_STORETIME`.
    pub struct EarliestMsgStoreTimeRequestHeader {
        topic: String = "topic",
        queue_id: i32 = "queueId",
        broker_name: Option<String> = "bname",
    }

    /// Answer to `GET_EARLIEST_MSG_STORETIME`: milliseconds since the epoch, -1 for none.
    pub struct EarliestMsgStoreTimeResponseHeader {
        timestamp: i64 = "timestamp",
    }

    /// `INVOKE_BROKER_TO_RESET_OFFSET`, and `RESET_CONSUMER_CLIENT_OFFSET` towards clients.
    pub struct ResetOffsetRequestHeader {
        group: String = "group",
        topic: String = "topic",
        /// -1: all queues.
        queue_id: i32 = "queueId" or -1,
        /// The wanted offset; absent or -1: by `timestamp`.
        offset: Option<i64> = "offset",
        /// Milliseconds since the epoch; -1: the end of the queue.
        timestamp: i64 = "timestamp" or -1,
        is_force: bool = "isForce" or true,
    }
}
