//! Subscription groups.

use super::header;

header! {
    /// `DELETE_SUBSCRIPTIONGROUP`.
    pub struct DeleteSubscriptionGroupRequestHeader {
        group_name: String = "groupName",
        clean_offset: bool = "cleanOffset" or false,
    }

    /// `GET_ALL_SUBSCRIPTIONGROUP_CONFIG`; older callers send none of the fields.
    pub struct GetAllSubscriptionGroupRequestHeader {
        group_seq: Option<i32> = "groupSeq",
        data_version: Option<String> = "dataVersion",
        max_group_num: Option<i32> = "maxGroupNum",
    }

    /// Answer to `GET_ALL_SUBSCRIPTIONGROUP_CONFIG`.
    pub struct GetAllSubscriptionGroupResponseHeader {
        total_group_num: Option<i32> = "totalGroupNum",
    }

    /// Requests about one group.
    pub struct GroupRequestHeader {
        group: String = "group",
    }

    /// `GET_CONSUME_STATS`.
    pub struct GetConsumeStatsRequestHeader {
        consumer_group: String = "consumerGroup",
        topic: Option<String> = "topic",
        /// Topics joined by semicolons.
        topic_list: Option<String> = "topicList",
    }

    /// `QUERY_CONSUME_TIME_SPAN` and `QUERY_SUBSCRIPTION_BY_CONSUMER`.
    pub struct TopicAndGroupRequestHeader {
        topic: String = "topic",
        group: String = "group",
    }

    /// `CLONE_GROUP_OFFSET`.
    pub struct CloneGroupOffsetRequestHeader {
        src_group: String = "srcGroup",
        dest_group: String = "destGroup",
        topic: Option<String> = "topic",
        offline: bool = "offline" or false,
    }
}
