//! Clients: heartbeats, membership, queue locks.

use super::header;

header! {
    /// `UNREGISTER_CLIENT`.
    pub struct UnregisterClientRequestHeader {
        client_id: String = "clientID",
        producer_group: Option<String> = "producerGroup",
        consumer_group: Option<String> = "consumerGroup",
    }

    /// `GET_CONSUMER_LIST_BY_GROUP`, and `NOTIFY_CONSUMER_IDS_CHANGED` towards clients.
    pub struct ConsumerGroupRequestHeader {
        consumer_group: String = "consumerGroup",
    }

    /// `GET_PRODUCER_CONNECTION_LIST`.
    pub struct ProducerGroupRequestHeader {
        producer_group: String = "producerGroup",
    }

    /// `GET_CONSUMER_RUNNING_INFO`, to the broker and on to the client.
    pub struct ConsumerRunningInfoRequestHeader {
        consumer_group: String = "consumerGroup",
        client_id: String = "clientId",
        jstack_enable: bool = "jstackEnable" or false,
    }

    /// `CONSUME_MESSAGE_DIRECTLY`, to the broker and on to the client.
    pub struct ConsumeMessageDirectlyRequestHeader {
        consumer_group: String = "consumerGroup",
        client_id: Option<String> = "clientId",
        msg_id: Option<String> = "msgId",
        broker_name: Option<String> = "brokerName",
        topic: Option<String> = "topic",
        topic_sys_flag: Option<i32> = "topicSysFlag",
        group_sys_flag: Option<i32> = "groupSysFlag",
    }

    /// `INVOKE_BROKER_TO_GET_CONSUMER_STATUS`, and `GET_CONSUMER_STATUS_FROM_CLIENT`.
    pub struct ConsumerStatusRequestHeader {
        topic: String = "topic",
        group: String = "group",
        client_addr: Option<String> = "clientAddr",
    }
}
