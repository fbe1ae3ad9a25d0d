//! What administrators ask of a broker.

use crate::fixture::{Client, Fixture, consumer, pull_header};
use protocol::body::{
    ConsumeStats, GroupList, KvTable, QueryConsumeQueueResponse, QueryConsumeTimeSpan,
    SubscriptionGroupWrapper, TopicConfigTable, TopicList, TopicStatsTable,
};
use protocol::command::RemotingCommand;
use protocol::data_version::DataVersion;
use protocol::header::admin::GetBrokerConfigResponseHeader;
use protocol::header::group::{
    CloneGroupOffsetRequestHeader, DeleteSubscriptionGroupRequestHeader,
    GetConsumeStatsRequestHeader, GroupRequestHeader, TopicAndGroupRequestHeader,
};
use protocol::header::offset::UpdateConsumerOffsetRequestHeader;
use protocol::header::query::QueryConsumeQueueRequestHeader;
use protocol::header::topic::{
    CreateTopicRequestHeader, GetAllTopicConfigRequestHeader, GetAllTopicConfigResponseHeader,
    TopicRequestHeader,
};
use protocol::json;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use protocol::subscription::SubscriptionGroupConfig;
use protocol::topic_config::TopicConfig;

fn create(topic: &str, queues: i32, attributes: &str) -> CreateTopicRequestHeader {
    CreateTopicRequestHeader {
        topic: topic.into(),
        default_topic: "TBW102".into(),
        read_queue_nums: queues,
        write_queue_nums: queues,
        perm: 6,
        topic_filter_type: "SINGLE_TAG".into(),
        attributes: Some(attributes.to_owned()).filter(|text| !text.is_empty()),
        ..CreateTopicRequestHeader::default()
    }
}

async fn topic(client: &Client, topic: &str) -> TopicConfig {
    let header = TopicRequestHeader { topic: topic.into() };
    let answer = client.ask(RequestCode::GET_TOPIC_CONFIG, &header).await;
    json::from_slice(&answer.body).expect("a topic")
}

#[tokio::test]
async fn topics_are_made_changed_and_deleted() {
    let broker = Fixture::start(&[]).await;
    let client = broker.client();
    let code = RequestCode::UPDATE_AND_CREATE_TOPIC;
    client.ask(code, &create("t", 2, "+message.type=FIFO")).await;
    client.ask(code, &create("t", 3, "")).await;
    let config = topic(&client, "t").await;
    assert_eq!((config.write_queue_nums, config.attributes["message.type"].as_str()), (3, "FIFO"));
    let table = [
        (create("TBW102", 4, ""), "conflict with system topic"),
        (create("a b", 4, ""), "contains"),
        (create("u", -1, ""), "readQueueNums"),
        (create("u", 4, "+cleanup.policy=COMPACTION"), "no compaction"),
        (create("u", 4, "+message.type=MIXED"), "MIXED"),
        (CreateTopicRequestHeader { perm: 9, ..create("u", 4, "") }, "perm is 9"),
    ];
    for (header, part) in table {
        let (code, remark) = client.refused(code, &header).await;
        assert_eq!(code, ResponseCode::INVALID_PARAMETER, "{remark}");
        assert!(remark.contains(part), "{remark}");
    }
    client.send("t", "x", &[]).await;
    client.pull(pull_header("t", 0, 0, 1)).await;
    let header = TopicRequestHeader { topic: "t".into() };
    client.ask(RequestCode::DELETE_TOPIC_IN_BROKER, &header).await;
    let gone = client.refused(RequestCode::GET_TOPIC_CONFIG, &header).await;
    assert_eq!(gone.0, ResponseCode::TOPIC_NOT_EXIST);
    let groups = client.ask(RequestCode::QUERY_TOPIC_CONSUME_BY_WHO, &header).await;
    assert!(json::from_slice::<GroupList>(&groups.body).unwrap().group_list.is_empty());
    assert_eq!(client.send("t", "again", &[]).await.offset, 0, "it begins anew");
}

#[tokio::test]
async fn the_topic_table_comes_whole_or_in_pages() {
    let broker = Fixture::start(&[]).await;
    let client = broker.client();
    client.send("t", "x", &[]).await;
    let request = RemotingCommand::request_without_header(RequestCode::GET_ALL_TOPIC_CONFIG);
    let answer = client.invoke(request).await;
    let whole: TopicConfigTable = json::from_slice(&answer.body).unwrap();
    assert!(whole.topic_config_table.contains_key("t"));
    let mut paged = TopicConfigTable::default();
    loop {
        let seq = i32::try_from(paged.topic_config_table.len()).unwrap();
        let header = GetAllTopicConfigRequestHeader {
            topic_seq: Some(seq),
            max_topic_num: Some(5),
            data_version: None,
        };
        let answer = client.ask(RequestCode::GET_ALL_TOPIC_CONFIG, &header).await;
        let total = answer.header::<GetAllTopicConfigResponseHeader>().unwrap().total_topic_num;
        assert_eq!(total, i32::try_from(whole.topic_config_table.len()).ok());
        let page: TopicConfigTable = json::from_slice(&answer.body).unwrap();
        if page.topic_config_table.is_empty() {
            break;
        }
        assert!(page.topic_config_table.len() <= 5);
        paged.topic_config_table.extend(page.topic_config_table);
        paged.data_version = page.data_version;
    }
    assert_eq!(paged, whole);
    let request =
        RemotingCommand::request_without_header(RequestCode::GET_SYSTEM_TOPIC_LIST_FROM_BROKER);
    let system: TopicList = json::from_slice(&client.invoke(request).await.body).unwrap();
    assert!(system.topic_list.contains("TBW102") && !system.topic_list.contains("t"));
}

#[tokio::test]
async fn groups_are_made_changed_and_deleted() {
    let broker = Fixture::start(&[("autoCreateSubscriptionGroup", "false")]).await;
    let client = broker.client();
    client.send("t", "x", &[]).await;
    let refused = client.pull(pull_header("t", 0, 0, 0)).await;
    assert_eq!(refused.code, ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST);
    let group = SubscriptionGroupConfig {
        group_name: "g".into(),
        consume_enable: false,
        ..SubscriptionGroupConfig::default()
    };
    client.ask_json(RequestCode::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, &group).await;
    let refused = client.pull(pull_header("t", 0, 0, 0)).await;
    assert_eq!(refused.code, ResponseCode::NO_PERMISSION);
    let group = SubscriptionGroupConfig { consume_enable: true, ..group };
    client.ask_json(RequestCode::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, &group).await;
    assert_eq!(client.pull(pull_header("t", 0, 0, 0)).await.bodies(), ["x"]);
    let header = GroupRequestHeader { group: "g".into() };
    let answer = client.ask(RequestCode::GET_SUBSCRIPTIONGROUP_CONFIG, &header).await;
    assert_eq!(json::from_slice::<SubscriptionGroupConfig>(&answer.body).unwrap(), group);
    let request =
        RemotingCommand::request_without_header(RequestCode::GET_ALL_SUBSCRIPTIONGROUP_CONFIG);
    let table: SubscriptionGroupWrapper =
        json::from_slice(&client.invoke(request).await.body).unwrap();
    assert_eq!(table.subscription_group_table["g"], group);
    let header =
        DeleteSubscriptionGroupRequestHeader { group_name: "g".into(), clean_offset: true };
    client.ask(RequestCode::DELETE_SUBSCRIPTIONGROUP, &header).await;
    let refused = client.pull(pull_header("t", 0, 0, 0)).await;
    assert_eq!(refused.code, ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST);
}

#[tokio::test]
async fn progress_is_told() {
    let broker = Fixture::start(&[]).await;
    let client = broker.client();
    for body in ["0", "1", "2"] {
        client.send("t", body, &[]).await;
    }
    client.heartbeat(&consumer("c", "g", "t", "*")).await;
    client.pull_some("t", 0).await;
    let update = UpdateConsumerOffsetRequestHeader {
        consumer_group: "g".into(),
        topic: "t".into(),
        commit_offset: 2,
        ..Default::default()
    };
    client.ask(RequestCode::UPDATE_CONSUMER_OFFSET, &update).await;
    let header =
        GetConsumeStatsRequestHeader { consumer_group: "g".into(), topic: None, topic_list: None };
    let answer = client.ask(RequestCode::GET_CONSUME_STATS, &header).await;
    let stats: ConsumeStats = json::from_slice(&answer.body).unwrap();
    assert_eq!(stats.offset_table.0.len(), 4);
    let queue = stats.offset_table.0.iter().find(|(queue, _)| queue.queue_id == 0).unwrap();
    assert_eq!(queue.0.broker_name, "broker-a");
    assert_eq!((queue.1.broker_offset, queue.1.consumer_offset), (3, 2));
    assert!(queue.1.last_timestamp > 0);

    let header = TopicRequestHeader { topic: "t".into() };
    let answer = client.ask(RequestCode::GET_TOPIC_STATS_INFO, &header).await;
    let stats: TopicStatsTable = json::from_slice(&answer.body).unwrap();
    let queue = stats.offset_table.0.iter().find(|(queue, _)| queue.queue_id == 0).unwrap();
    assert_eq!((queue.1.min_offset, queue.1.max_offset), (0, 3));
    let header = TopicAndGroupRequestHeader { topic: "t".into(), group: "g".into() };
    let answer = client.ask(RequestCode::QUERY_CONSUME_TIME_SPAN, &header).await;
    let spans: QueryConsumeTimeSpan = json::from_slice(&answer.body).unwrap();
    assert!(spans.consume_time_span_set[0].consume_time_stamp > 0);
    let header = QueryConsumeQueueRequestHeader {
        topic: "t".into(),
        index: 1,
        count: 9,
        ..Default::default()
    };
    let answer = client.ask(RequestCode::QUERY_CONSUME_QUEUE, &header).await;
    let units: QueryConsumeQueueResponse = json::from_slice(&answer.body).unwrap();
    assert_eq!((units.max_queue_index, units.queue_data.len()), (3, 2));

    let header = CloneGroupOffsetRequestHeader {
        src_group: "g".into(),
        dest_group: "h".into(),
        topic: None,
        offline: false,
    };
    client.ask(RequestCode::CLONE_GROUP_OFFSET, &header).await;
    let header = GroupRequestHeader { group: "h".into() };
    let answer = client.ask(RequestCode::QUERY_TOPICS_BY_CONSUMER, &header).await;
    let topics: TopicList = json::from_slice(&answer.body).unwrap();
    assert!(topics.topic_list.contains("t"));
}

#[tokio::test]
async fn settings_are_told_and_changed() {
    let broker = Fixture::start(&[("configBlackList", "brokerName;traceOn")]).await;
    let client = broker.client();
    let update = async |text: &'static str| {
        let request = RemotingCommand::request_without_header(RequestCode::UPDATE_BROKER_CONFIG);
        let answer = client.invoke(request.with_body(text)).await;
        (answer.response_code(), answer.remark.unwrap_or_default())
    };
    let request = RemotingCommand::request_without_header(RequestCode::GET_BROKER_CONFIG);
    let answer = client.invoke(request.clone()).await;
    let header: GetBrokerConfigResponseHeader = answer.header().unwrap();
    assert!(json::from_slice::<DataVersion>(header.version.as_bytes()).is_ok());
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    assert!(text.contains("autoCreateTopicEnable=true\n"), "{text}");
    client.send("t", "x", &[]).await;
    assert_eq!(update("brokerPermission=2\n").await.0, ResponseCode::SUCCESS);
    assert_eq!(client.pull(pull_header("t", 0, 0, 0)).await.code, ResponseCode::NO_PERMISSION);
    let text = client.invoke(request).await.body;
    assert!(String::from_utf8_lossy(&text).contains("brokerPermission=2\n"));
    for (text, code, part) in [
        ("brokerPermission=9", ResponseCode::SYSTEM_ERROR, "from 0 to 7"),
        ("listenPort=5", ResponseCode::SYSTEM_ERROR, "restart"),
        ("sendMessageThreadPoolNums=5", ResponseCode::SYSTEM_ERROR, "no effect"),
        ("nothing=5", ResponseCode::SYSTEM_ERROR, "unknown key"),
        ("traceOn=false", ResponseCode::NO_PERMISSION, "black list"),
    ] {
        let (found, remark) = update(text).await;
        assert!(found == code && remark.contains(part), "{text}: {found} {remark}");
    }
}

#[tokio::test]
async fn figures_are_told() {
    let broker = Fixture::start(&[]).await;
    let client = broker.client();
    client.send("t", "x", &[]).await;
    client.pull_some("t", 0).await;
    let request = RemotingCommand::request_without_header(RequestCode::GET_BROKER_RUNTIME_INFO);
    let table: KvTable = json::from_slice(&client.invoke(request).await.body).unwrap();
    for key in ["brokerVersionDesc", "putTps", "getTransferredTps", "commitLogDiskRatio"] {
        assert!(table.table.contains_key(key), "{key}");
    }
    assert_eq!(table.table["msgPutTotalTodayNow"], "1");
    assert_eq!(table.table["msgGetTotalTodayNow"], "1");
    assert_eq!(table.table["putTps"].split(' ').count(), 3);
    for code in [
        RequestCode::CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode::DELETE_EXPIRED_COMMITLOG,
        RequestCode::CLEAN_UNUSED_TOPIC,
        RequestCode::GET_ALL_CONSUMER_OFFSET,
        RequestCode::GET_ALL_DELAY_OFFSET,
    ] {
        let answer = client.invoke(RemotingCommand::request_without_header(code)).await;
        assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{code}");
    }
    assert_eq!(client.pull(pull_header("t", 0, 0, 0)).await.bodies(), ["x"], "still there");
    let request = RemotingCommand::request_without_header(RequestCode(99_999));
    let answer = client.invoke(request).await;
    assert_eq!(answer.response_code(), ResponseCode::REQUEST_CODE_NOT_SUPPORTED);
}
