//! Looking messages up.

use super::header;

header! {
    /// `VIEW_MESSAGE_BY_ID`.
    pub struct ViewMessageRequestHeader {
        topic: Option<String> = "topic",
        /// Commit log offset.
        offset: i64 = "offset",
    }

    /// `QUERY_MESSAGE`.
    pub struct QueryMessageRequestHeader {
        topic: String = "topic",
        key: String = "key",
        max_num: i32 = "maxNum",
        /// Milliseconds since the epoch.
        begin_timestamp: i64 = "beginTimestamp",
        /// Milliseconds since the epoch.
        end_timestamp: i64 = "endTimestamp",
        /// "true": `key` is a unique message id.
        unique_key_query: Option<bool> = "_UNIQUE_KEY_QUERY",
        /// From 5.5 on: "K" for a key, "U" for a unique message id, "T" for a tag.
        index_type: Option<String> = "indexType",
        /// From 5.5 on: go on behind this entry of an index that is kept in a RocksDB.
        last_key: Option<String> = "lastKey",
    }

    /// Answer to `QUERY_MESSAGE`.
    pub struct QueryMessageResponseHeader {
        index_last_update_timestamp: i64 = "indexLastUpdateTimestamp",
        index_last_update_phyoffset: i64 = "indexLastUpdatePhyoffset",
    }

    /// `QUERY_CONSUME_QUEUE`.
    pub struct QueryConsumeQueueRequestHeader {
        topic: String = "topic",
        queue_id: i32 = "queueId",
        index: i64 = "index" or 0,
        count: i32 = "count" or 1,
        consumer_group: Option<String> = "consumerGroup",
    }
}
