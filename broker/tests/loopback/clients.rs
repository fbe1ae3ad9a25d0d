//! Clients come, stay, change and go.

use crate::fixture::{Fixture, consumer, producer, until};
use protocol::body::{ConsumerConnection, ConsumerList, ProducerConnection, ProducerTableInfo};
use protocol::command::RemotingCommand;
use protocol::header::client::{
    ConsumeMessageDirectlyRequestHeader, ConsumerGroupRequestHeader,
    ConsumerRunningInfoRequestHeader, ProducerGroupRequestHeader, UnregisterClientRequestHeader,
};
use protocol::header::group::TopicAndGroupRequestHeader;
use protocol::heartbeat::HeartbeatData;
use protocol::json;
use protocol::message::MessageExt;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;

fn group() -> ConsumerGroupRequestHeader {
    ConsumerGroupRequestHeader { consumer_group: "g".into() }
}

async fn members(client: &crate::fixture::Client) -> Vec<String> {
    let request = RemotingCommand::request(RequestCode::GET_CONSUMER_LIST_BY_GROUP, &group());
    let answer = client.invoke(request).await;
    if answer.response_code() != ResponseCode::SUCCESS {
        return Vec::new();
    }
    json::from_slice::<ConsumerList>(&answer.body).expect("a list").consumer_id_list
}

#[tokio::test]
async fn members_learn_of_each_other() {
    let broker = Fixture::start(&[]).await;
    let (first, second) = (broker.client(), broker.client());
    assert_eq!(members(&first).await, Vec::<String>::new());
    let answer = first.heartbeat(&consumer("c1", "g", "t", "*")).await;
    assert_eq!(answer.ext_fields.get("IS_SUPPORT_HEART_BEAT_V2"), Some("true"));
    assert_eq!(answer.ext_fields.get("IS_SUB_CHANGE"), Some("false"));
    let notice = first.asked(RequestCode::NOTIFY_CONSUMER_IDS_CHANGED).await;
    assert!(notice.is_oneway());
    assert_eq!(notice.header::<ConsumerGroupRequestHeader>().unwrap(), group());
    first.heartbeat(&consumer("c1", "g", "t", "*")).await;
    second.heartbeat(&consumer("c2", "g", "t", "*")).await;
    first.asked(RequestCode::NOTIFY_CONSUMER_IDS_CHANGED).await;
    assert_eq!(members(&first).await, ["c1", "c2"]);
    let header = UnregisterClientRequestHeader {
        client_id: "c2".into(),
        consumer_group: Some("g".into()),
        producer_group: None,
    };
    second.ask(RequestCode::UNREGISTER_CLIENT, &header).await;
    first.asked(RequestCode::NOTIFY_CONSUMER_IDS_CHANGED).await;
    assert_eq!(members(&first).await, ["c1"]);
    second.heartbeat(&consumer("c2", "g", "t", "*")).await;
    first.asked(RequestCode::NOTIFY_CONSUMER_IDS_CHANGED).await;
    second.close().await;
    until("the connection is lost", async || members(&first).await == ["c1"]).await;
    first.asked(RequestCode::NOTIFY_CONSUMER_IDS_CHANGED).await;
}

#[tokio::test]
async fn subscriptions_that_change_are_noticed() {
    let broker = Fixture::start(&[]).await;
    let client = broker.client();
    let look = async |topic: &str| {
        let header = TopicAndGroupRequestHeader { topic: topic.into(), group: "g".into() };
        let answer = client.ask(RequestCode::QUERY_SUBSCRIPTION_BY_CONSUMER, &header).await;
        let body: protocol::body::QuerySubscriptionResponse =
            json::from_slice(&answer.body).unwrap();
        body.subscription_data.map(|data| data.sub_string)
    };
    client.heartbeat(&consumer("c", "g", "t", "a")).await;
    client.asked(RequestCode::NOTIFY_CONSUMER_IDS_CHANGED).await;
    assert_eq!(look("t").await.as_deref(), Some("a"));
    client.heartbeat(&consumer("c", "g", "u", "b")).await;
    client.asked(RequestCode::NOTIFY_CONSUMER_IDS_CHANGED).await;
    assert_eq!((look("t").await, look("u").await.as_deref()), (None, Some("b")));
    let mut newer = consumer("c", "g", "u", "c");
    newer.consumer_data_set[0].subscription_data_set[0].sub_version = 2;
    client.heartbeat(&newer).await;
    assert_eq!(look("u").await.as_deref(), Some("c"));
    client.heartbeat(&consumer("c", "g", "u", "b")).await;
    assert_eq!(look("u").await.as_deref(), Some("c"), "an older one does not count");
}

#[tokio::test]
async fn heartbeats_may_leave_out_what_did_not_change() {
    let broker = Fixture::start(&[]).await;
    let client = broker.client();
    let full = HeartbeatData { heartbeat_fingerprint: 7, ..consumer("c", "g", "t", "*") };
    let mut bare = HeartbeatData { without_sub: true, ..full.clone() };
    bare.consumer_data_set[0].subscription_data_set.clear();
    let changed = async |data: &HeartbeatData| {
        client.heartbeat(data).await.ext_fields.get("IS_SUB_CHANGE") == Some("true")
    };
    assert!(changed(&bare).await, "the broker knows nothing yet");
    assert!(!changed(&full).await);
    assert!(!changed(&bare).await);
    bare.heartbeat_fingerprint = 8;
    assert!(changed(&bare).await, "another fingerprint");
}

#[tokio::test]
async fn administrators_see_who_is_connected() {
    let broker = Fixture::start(&[]).await;
    let client = broker.client();
    let unknown = client.refused(RequestCode::GET_CONSUMER_CONNECTION_LIST, &group()).await;
    assert_eq!(unknown.0, ResponseCode::CONSUMER_NOT_ONLINE);
    let header = ProducerGroupRequestHeader { producer_group: "p".into() };
    let unknown = client.refused(RequestCode::GET_PRODUCER_CONNECTION_LIST, &header).await;
    assert_eq!(unknown.0, ResponseCode::SYSTEM_ERROR);
    client.heartbeat(&consumer("c", "g", "t", "a")).await;
    client.heartbeat(&producer("c", "p")).await;
    let answer = client.ask(RequestCode::GET_CONSUMER_CONNECTION_LIST, &group()).await;
    let body: ConsumerConnection = json::from_slice(&answer.body).unwrap();
    assert_eq!(body.connection_set[0].client_id, "c");
    assert_eq!(body.connection_set[0].language, "RUST");
    assert_eq!(body.subscription_table["t"].sub_string, "a");
    let answer = client.ask(RequestCode::GET_PRODUCER_CONNECTION_LIST, &header).await;
    let body: ProducerConnection = json::from_slice(&answer.body).unwrap();
    assert_eq!(body.connection_set.len(), 1);
    let request = RemotingCommand::request_without_header(RequestCode::GET_ALL_PRODUCER_INFO);
    let body: ProducerTableInfo = json::from_slice(&client.invoke(request).await.body).unwrap();
    assert_eq!(body.data["p"][0].client_id, "c");
}

#[tokio::test]
async fn questions_for_a_client_are_passed_on() {
    let broker = Fixture::start(&[]).await;
    let (client, admin) = (broker.client(), broker.client());
    client.heartbeat(&consumer("c", "g", "t", "*")).await;
    let header = ConsumerRunningInfoRequestHeader {
        consumer_group: "g".into(),
        client_id: "c".into(),
        jstack_enable: true,
    };
    admin.ask(RequestCode::GET_CONSUMER_RUNNING_INFO, &header).await;
    let asked = client.asked(RequestCode::GET_CONSUMER_RUNNING_INFO).await;
    assert_eq!(asked.header::<ConsumerRunningInfoRequestHeader>().unwrap(), header);
    let sent = admin.send("t", "look", &[]).await;
    let header = ConsumeMessageDirectlyRequestHeader {
        consumer_group: "g".into(),
        client_id: Some("c".into()),
        msg_id: Some(sent.msg_id),
        ..Default::default()
    };
    let answer = admin.ask(RequestCode::CONSUME_MESSAGE_DIRECTLY, &header).await;
    let message = MessageExt::decode(&answer.body, 1 << 20).unwrap();
    assert_eq!(&message.body[..], b"look", "the test's client sends back what it gets");
    let asked = client.asked(RequestCode::CONSUME_MESSAGE_DIRECTLY).await;
    assert_eq!(asked.ext_fields.get("brokerName"), Some("broker-a"));
    let nobody = ConsumerRunningInfoRequestHeader {
        consumer_group: "g".into(),
        client_id: "x".into(),
        jstack_enable: false,
    };
    let refused = admin.refused(RequestCode::GET_CONSUMER_RUNNING_INFO, &nobody).await;
    assert!(refused.1.contains("not online"), "{}", refused.1);
}
