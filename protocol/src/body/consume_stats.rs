//! How far consumers are.

use super::{MessageQueue, body};
use crate::json::ObjectKeyMap;

body! {
    /// Offsets of one queue and of the group in it.
    pub struct OffsetWrapper {
        broker_offset: i64,
        consumer_offset: i64,
        /// Store time of the last consumed message, milliseconds since the epoch.
        last_timestamp: i64,
        pull_offset: i64,
    }

    /// Answer to `GET_CONSUME_STATS`.
    pub struct ConsumeStats {
        consume_tps: f64,
        offset_table: ObjectKeyMap<MessageQueue, OffsetWrapper>,
    }

    /// Offsets of one queue.
    pub struct TopicOffset {
        /// Milliseconds since the epoch, 0 when empty.
        last_update_timestamp: i64,
        max_offset: i64,
        min_offset: i64,
    }

    /// Answer to `GET_TOPIC_STATS_INFO`.
    pub struct TopicStatsTable {
        offset_table: ObjectKeyMap<MessageQueue, TopicOffset>,
        topic_put_tps: f64,
    }

    /// Times of one queue, in milliseconds.
    pub struct QueueTimeSpan {
        consume_time_stamp: i64,
        delay_time: i64,
        max_time_stamp: i64,
        message_queue: MessageQueue,
        min_time_stamp: i64,
    }

    /// Answer to `QUERY_CONSUME_TIME_SPAN`.
    pub struct QueryConsumeTimeSpan {
        consume_time_span_set: Vec<QueueTimeSpan>,
    }
}
