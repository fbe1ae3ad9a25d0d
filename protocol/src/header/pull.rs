//! Pulling messages.

use super::header;

/// Bits of [`PullMessageRequestHeader::sys_flag`].
pub mod pull_sys_flag {
    /// `commit_offset` is meant.
    pub const COMMIT_OFFSET: i32 = 0x1;
    /// Hold the request while there is nothing new.
    pub const SUSPEND: i32 = 0x2;
    /// `subscription` is carried.
    pub const SUBSCRIPTION: i32 = 0x4;
    /// Filter by class, a feature long gone.
    pub const CLASS_FILTER: i32 = 0x8;
    /// Sent by a lite pull consumer.
    pub const LITE_PULL: i32 = 0x10;
}

header! {
    /// `PULL_MESSAGE` and `LITE_PULL_MESSAGE`.
    pub struct PullMessageRequestHeader {
        consumer_group: String = "consumerGroup",
        topic: String = "topic",
        queue_id: i32 = "queueId",
        queue_offset: i64 = "queueOffset",
        max_msg_nums: i32 = "maxMsgNums",
        sys_flag: i32 = "sysFlag",
        commit_offset: i64 = "commitOffset" or 0,
        /// How long the broker may hold the request.
        suspend_timeout_millis: i64 = "suspendTimeoutMillis" or 0,
        subscription: Option<String> = "subscription",
        sub_version: i64 = "subVersion" or 0,
        /// "TAG" (also when absent) or "SQL92".
        expression_type: Option<String> = "expressionType",
        max_msg_bytes: Option<i32> = "maxMsgBytes",
        broker_name: Option<String> = "bname",
    }

    /// Answer to a pull, for the codes 0, 19, 20 and 21.
    pub struct PullMessageResponseHeader {
        suggest_which_broker_id: i64 = "suggestWhichBrokerId",
        next_begin_offset: i64 = "nextBeginOffset",
        min_offset: i64 = "minOffset",
        max_offset: i64 = "maxOffset",
        topic_sys_flag: Option<i32> = "topicSysFlag",
        group_sys_flag: Option<i32> = "groupSysFlag",
        forbidden_type: Option<i32> = "forbiddenType",
    }
}
