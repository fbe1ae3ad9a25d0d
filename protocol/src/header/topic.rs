//! Topic administration, on brokers and name servers.

use super::header;

header! {
    /// `UPDATE_AND_CREATE_TOPIC`.
    pub struct CreateTopicRequestHeader {
        topic: String = "topic",
        default_topic: String = "defaultTopic" or String::new(),
        read_queue_nums: i32 = "readQueueNums",
        write_queue_nums: i32 = "writeQueueNums",
        perm: i32 = "perm",
        topic_filter_type: String = "topicFilterType" or "SINGLE_TAG".to_owned(),
        topic_sys_flag: Option<i32> = "topicSysFlag",
        order: bool = "order" or false,
        /// `+name=value` and `-name`, joined by commas.
        attributes: Option<String> = "attributes",
        force: bool = "force" or false,
    }

    /// Requests about one topic.
    pub struct TopicRequestHeader {
        topic: String = "topic",
    }

    /// `DELETE_TOPIC_IN_NAMESRV`.
    pub struct DeleteTopicFromNamesrvRequestHeader {
        topic: String = "topic",
        /// Only on the brokers of this cluster.
        cluster_name: Option<String> = "clusterName",
    }

    /// `GET_ALL_TOPIC_CONFIG`; older callers send none of the fields and get everything.
    pub struct GetAllTopicConfigRequestHeader {
        topic_seq: Option<i32> = "topicSeq",
        data_version: Option<String> = "dataVersion",
        max_topic_num: Option<i32> = "maxTopicNum",
    }

    /// Answer to `GET_ALL_TOPIC_CONFIG`.
    pub struct GetAllTopicConfigResponseHeader {
        total_topic_num: Option<i32> = "totalTopicNum",
    }

    /// `GET_TOPICS_BY_CLUSTER`.
    pub struct TopicsByClusterRequestHeader {
        cluster: String = "cluster",
    }
}
