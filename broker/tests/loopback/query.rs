//! Looking messages up by their keys.

use crate::fixture::{Client, Fixture, bodies};
use protocol::command::RemotingCommand;
use protocol::header::query::{QueryMessageRequestHeader, QueryMessageResponseHeader};
use protocol::message::MessageExt;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;

fn by_key(topic: &str, key: &str) -> QueryMessageRequestHeader {
    QueryMessageRequestHeader {
        topic: topic.into(),
        key: key.into(),
        max_num: 64,
        begin_timestamp: 0,
        end_timestamp: i64::MAX,
        ..QueryMessageRequestHeader::default()
    }
}

async fn query(client: &Client, header: &QueryMessageRequestHeader) -> Vec<String> {
    let answer = client.invoke(RemotingCommand::request(RequestCode::QUERY_MESSAGE, header)).await;
    if answer.response_code() == ResponseCode::QUERY_NOT_FOUND {
        let remark = answer.remark.unwrap_or_default();
        assert_eq!(remark, "can not find message, maybe time range not correct");
        return Vec::new();
    }
    assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
    let found: QueryMessageResponseHeader = answer.header().expect("a header");
    let messages = MessageExt::decode_all(&answer.body, 1 << 20).expect("messages");
    let last = messages.last().expect("a message");
    assert!(found.index_last_update_phyoffset >= last.commit_log_offset);
    assert!(found.index_last_update_timestamp >= last.store_timestamp);
    bodies(&messages)
}

#[tokio::test]
async fn messages_are_found_by_key_and_unique_id() {
    let broker = Fixture::start(&[("defaultQueryMaxNum", "2")]).await;
    let client = broker.client();
    client.send("t", "first", &[("KEYS", "a b")]).await;
    client.send("t", "second", &[("KEYS", "b"), ("UNIQ_KEY", "id")]).await;
    client.send("u", "third", &[("KEYS", "b id")]).await;
    assert_eq!(query(&client, &by_key("t", "a")).await, ["first"]);
    assert_eq!(query(&client, &by_key("t", "b")).await, ["first", "second"]);
    assert_eq!(query(&client, &by_key("u", "b")).await, ["third"]);
    assert_eq!(query(&client, &by_key("t", "c")).await, [""; 0]);
    let some = QueryMessageRequestHeader { max_num: 1, ..by_key("t", "b") };
    assert_eq!(query(&client, &some).await, ["second"]);
    let later = QueryMessageRequestHeader { begin_timestamp: i64::MAX, ..by_key("t", "b") };
    assert_eq!(query(&client, &later).await, [""; 0]);

    let unique = |topic, key| QueryMessageRequestHeader {
        unique_key_query: Some(true),
        max_num: 0,
        ..by_key(topic, key)
    };
    // The broker has given it an id.
    let answer = client.ask(RequestCode::QUERY_MESSAGE, &by_key("t", "a")).await;
    let first = MessageExt::decode_all(&answer.body, 1 << 20).expect("messages").remove(0);
    let id = first.msg_id();
    assert_eq!(query(&client, &unique("t", &id)).await, ["first"]);
    assert_eq!(query(&client, &unique("t", "id")).await, ["second"]);
    assert_eq!(query(&client, &unique("u", "id")).await, [""; 0], "it is a key there");
    let unique = QueryMessageRequestHeader { index_type: Some("U".into()), ..by_key("t", "id") };
    assert_eq!(query(&client, &unique).await, ["second"]);

    // The id of a message that is sent three times finds the newest two.
    for body in ["1", "2", "3"] {
        client.send("t", body, &[("UNIQ_KEY", "again")]).await;
    }
    let again = QueryMessageRequestHeader { unique_key_query: Some(true), ..by_key("t", "again") };
    assert_eq!(query(&client, &again).await, ["2", "3"]);

    let broker = broker.restart().await;
    let client = broker.client();
    assert_eq!(query(&client, &by_key("t", "b")).await, ["first", "second"]);
}

#[tokio::test]
async fn what_cannot_be_looked_up_is_refused() {
    let broker = Fixture::start(&[]).await;
    let client = broker.client();
    let header = || by_key("t", "k");
    let table = [
        (QueryMessageRequestHeader { max_num: 0, ..header() }, "maxNum is 0"),
        (QueryMessageRequestHeader { index_type: Some("T".into()), ..header() }, "index of tags"),
        (QueryMessageRequestHeader { index_type: Some("X".into()), ..header() }, "`X`"),
        (QueryMessageRequestHeader { last_key: Some("x".into()), ..header() }, "lastKey"),
    ];
    for (header, part) in table {
        let (code, remark) = client.refused(RequestCode::QUERY_MESSAGE, &header).await;
        assert_eq!(code, ResponseCode::INVALID_PARAMETER, "{remark}");
        assert!(remark.contains(part), "{remark}");
    }
    let broker = Fixture::start(&[("messageIndexEnable", "false")]).await;
    let client = broker.client();
    client.send("t", "x", &[("KEYS", "k")]).await;
    let (code, remark) = client.refused(RequestCode::QUERY_MESSAGE, &header()).await;
    assert_eq!(code, ResponseCode::SYSTEM_ERROR);
    assert!(remark.contains("messageIndexEnable"), "{remark}");
}
