//! Bytes that Apache's Java classes wrote, read and written again.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::Path;

use bytes::BytesMut;
use protocol::body::{
    ConsumeStats, LockBatchRequest, MessageQueue, OffsetWrapper, TopicStatsTable,
};
use protocol::command::{LanguageCode, RemotingCommand, SerializeType};
use protocol::frame;
use protocol::header::pull::PullMessageRequestHeader;
use protocol::header::route::GetRouteInfoRequestHeader;
use protocol::header::send::{
    SendMessageRequestHeader, SendMessageRequestHeaderV2, SendMessageResponseHeader,
};
use protocol::header::{Header, HeaderError};
use protocol::heartbeat::{ConsumeFromWhere, HeartbeatData};
use protocol::json;
use protocol::register_broker::RegisterBrokerBody;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use protocol::route::{ClusterInfo, TopicRouteData};
use protocol::subscription::SubscriptionGroupConfig;

fn golden(name: &str) -> Vec<u8> {
    let path = Path::new("tests/golden").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn decoded(bytes: &[u8]) -> RemotingCommand {
    let mut buffer = BytesMut::from(bytes);
    let command = frame::decode(&mut buffer, frame::DEFAULT_MAX_FRAME_BYTES).unwrap().unwrap();
    assert!(buffer.is_empty());
    command
}

/// Reads both forms of a frame and hands them to `check`, then writes and reads them again.
fn check_frames(name: &str, check: impl Fn(&RemotingCommand)) {
    for (suffix, serialize_type) in
        [("json", SerializeType::Json), ("rocketmq", SerializeType::RocketMq)]
    {
        let bytes = golden(&format!("{name}.{suffix}.frame"));
        let command = decoded(&bytes);
        assert_eq!(command.serialize_type, serialize_type, "{name}");
        assert_eq!((command.opaque, command.language), (7, LanguageCode::Java), "{name}");
        check(&command);
        let mut written = BytesMut::new();
        frame::encode(&command, &mut written).unwrap();
        assert_eq!(decoded(&written), command, "{name}");
        assert_eq!(written.len(), bytes.len(), "{name}: as long as Java's {suffix}");
    }
}

fn header<H: Header>(command: &RemotingCommand) -> H {
    command.header().unwrap_or_else(|error: HeaderError| panic!("{error}: {command:?}"))
}

#[test]
fn a_send_of_the_java_client() {
    check_frames("send_v2", |command| {
        assert_eq!(command.request_code(), RequestCode::SEND_MESSAGE_V2);
        assert_eq!(command.body, "hello");
        let SendMessageRequestHeaderV2(send) = header(command);
        let expected = SendMessageRequestHeader {
            producer_group: "PID".into(),
            topic: "TopicTest".into(),
            default_topic: "TBW102".into(),
            default_topic_queue_nums: 4,
            queue_id: 2,
            sys_flag: 0,
            born_timestamp: 1_700_000_000_123,
            flag: 77,
            properties: send.properties.clone(),
            reconsume_times: Some(0),
            unit_mode: Some(false),
            max_reconsume_times: Some(16),
            batch: Some(false),
            broker_name: Some("broker-a".into()),
        };
        assert_eq!(send, expected);
        let properties = send.properties.unwrap();
        let read = protocol::property::parse(&properties);
        assert_eq!(read.get("färg").map(String::as_str), Some("blå ☃"));
        assert_eq!(read.get("KEYS").map(String::as_str), Some("k1 k2"));
    });
}

#[test]
fn a_pull_of_the_java_client() {
    check_frames("pull", |command| {
        let pull: PullMessageRequestHeader = header(command);
        assert_eq!((pull.consumer_group.as_str(), pull.topic.as_str()), ("CID", "TopicTest"));
        assert_eq!((pull.queue_id, pull.queue_offset, pull.max_msg_nums), (1, 99, 32));
        assert_eq!((pull.sys_flag, pull.commit_offset), (3, 98));
        assert_eq!(pull.suspend_timeout_millis, 15_000);
        assert_eq!(
            (pull.expression_type.as_deref(), pull.max_msg_bytes),
            (Some("TAG"), Some(262_144))
        );
        assert_eq!(pull.subscription, None);
    });
}

#[test]
fn answers_and_errors() {
    check_frames("send_response", |command| {
        assert!(command.is_response());
        let sent: SendMessageResponseHeader = header(command);
        assert_eq!((sent.queue_id, sent.queue_offset), (2, 5));
        assert_eq!(sent.msg_id, "7F00000100002A9F0000000000000063");
        assert_eq!(command.ext_fields.get("TRACE_ON"), Some("true"));
    });
    check_frames("error_response", |command| {
        assert_eq!(command.response_code(), ResponseCode::TOPIC_NOT_EXIST);
        assert_eq!(command.remark.as_deref(), Some("No topic route info \"x\"\n see \\ url"));
    });
    check_frames("route", |command| {
        let route: GetRouteInfoRequestHeader = header(command);
        assert_eq!(route.accept_standard_json_only, Some(true));
    });
}

#[test]
fn heartbeats_and_locks() {
    let heartbeat: HeartbeatData = json::from_slice(&golden("heartbeat.json")).unwrap();
    assert_eq!(heartbeat.client_id, "10.0.0.1@1#2");
    let consumer = &heartbeat.consumer_data_set[0];
    assert_eq!(consumer.consume_from_where, ConsumeFromWhere::FirstOffset);
    let subscription = &consumer.subscription_data_set[0];
    assert_eq!(subscription.tags_set.iter().collect::<Vec<_>>(), ["TagA", "TagB"]);
    let ours = protocol::subscription::SubscriptionData::by_tags(
        "TopicTest",
        "TagA || TagB",
        1_700_000_000_000,
    );
    assert_eq!(*subscription, ours);
    assert_eq!(json::to_vec(&heartbeat).unwrap(), golden("heartbeat.json"));
    let lock: LockBatchRequest = json::from_slice(&golden("lock_batch.json")).unwrap();
    assert_eq!(lock.mq_set.len(), 1);
    let group: SubscriptionGroupConfig =
        json::from_slice(&golden("subscription_group.json")).unwrap();
    assert_eq!((group.retry_max_times, group.consume_timeout_minute), (16, 15));
    assert_eq!(json::to_vec(&group).unwrap(), golden("subscription_group.json"));
}

#[test]
fn routes_and_clusters() {
    let bytes = golden("topic_route.json");
    let route: TopicRouteData = json::from_slice(&bytes).unwrap();
    assert_eq!(route.broker_datas[0].broker_addrs[&1], "10.0.0.2:10911");
    assert_eq!(json::to_vec_fastjson(&route).unwrap(), bytes);
    let info: ClusterInfo = json::from_slice(&golden("cluster_info.json")).unwrap();
    assert!(info.cluster_addr_table["DefaultCluster"].contains("broker-a"));
    assert_eq!(json::to_vec_fastjson(&info).unwrap(), golden("cluster_info.json"));
}

#[test]
fn registrations_plain_and_compressed() {
    let plain = RegisterBrokerBody::decode(&golden("register_broker.json"), 513, 0).unwrap();
    let packed = RegisterBrokerBody::decode(&golden("register_broker.zlib"), 513, 0).unwrap();
    assert_eq!(plain, packed);
    let table = plain.topic_config_serialize_wrapper;
    assert_eq!(table.data_version.counter, 3);
    let topic = &table.topic_config_table["TopicTest"];
    assert_eq!((topic.read_queue_nums, topic.write_queue_nums, topic.perm), (4, 8, 6));
    assert_eq!(topic.attributes["message.type"], "FIFO");
}

#[test]
fn tables_with_queues_as_keys() {
    let queue =
        MessageQueue { topic: "TopicTest".into(), broker_name: "broker-a".into(), queue_id: 3 };
    let stats: ConsumeStats = json::from_slice(&golden("consume_stats.json")).unwrap();
    let offsets = OffsetWrapper {
        broker_offset: 10,
        consumer_offset: 7,
        last_timestamp: 1_700_000_000_000,
        pull_offset: 0,
    };
    assert_eq!(stats.offset_table.0[&queue], offsets);
    let written = json::to_vec(&stats).unwrap();
    assert!(written.starts_with(br#"{"consumeTps":1.5,"offsetTable":{{""#), "as Java does");
    assert_eq!(json::from_slice::<ConsumeStats>(&written).unwrap(), stats);
    let stats: TopicStatsTable = json::from_slice(&golden("topic_stats.json")).unwrap();
    assert_eq!(stats.offset_table.0[&queue].max_offset, 9);
}
