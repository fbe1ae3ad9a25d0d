//! Messages that could not be consumed.

use crate::fixture::{Client, Fixture, bodies, consumer, send_header};
use protocol::body::{LockBatchRequest, LockBatchResponse, MessageQueue};
use protocol::header::send::{ConsumerSendMsgBackRequestHeader, SendMessageRequestHeader};
use protocol::json;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;

async fn first_offset(client: &Client, topic: &str) -> i64 {
    client.pull_some(topic, 0).await[0].commit_log_offset
}

fn back(offset: i64, delay_level: i32) -> ConsumerSendMsgBackRequestHeader {
    ConsumerSendMsgBackRequestHeader {
        offset,
        group: "g".into(),
        delay_level,
        ..ConsumerSendMsgBackRequestHeader::default()
    }
}

#[tokio::test]
async fn a_message_comes_back_later_and_is_dead_in_the_end() {
    let broker = Fixture::start(&[("messageDelayLevel", "1s 1s 1s 1s 1s")]).await;
    let client = broker.client();
    let sent = client.send("t", "hard", &[("UNIQ_KEY", "u"), ("TAGS", "a")]).await;
    let offset = first_offset(&client, "t").await;
    client.ask(RequestCode::CONSUMER_SEND_MSG_BACK, &back(offset, 0)).await;
    let again = client.pull_some("%RETRY%g", 0).await;
    assert_eq!(bodies(&again), ["hard"]);
    let message = &again[0];
    assert_eq!((message.reconsume_times, message.msg_id().as_str()), (1, "u"));
    assert_eq!(message.properties["RETRY_TOPIC"], "t");
    assert_eq!(message.properties["ORIGIN_MESSAGE_ID"], sent.msg_id);
    assert_eq!(message.tags(), Some("a"));

    let header = ConsumerSendMsgBackRequestHeader {
        max_reconsume_times: Some(1),
        ..back(message.commit_log_offset, 0)
    };
    client.ask(RequestCode::CONSUMER_SEND_MSG_BACK, &header).await;
    let dead = client.pull_some("%DLQ%g", 0).await;
    assert_eq!(dead[0].reconsume_times, 2);
    assert_eq!(dead[0].properties["RETRY_TOPIC"], "t");
    assert_eq!(dead[0].properties["ORIGIN_MESSAGE_ID"], sent.msg_id, "of the first time");
    client.ask(RequestCode::CONSUMER_SEND_MSG_BACK, &back(offset, -1)).await;
    assert_eq!(bodies(&client.pull_some("%DLQ%g", 1).await), ["hard"], "given up at once");
    let (code, _) = client.refused(RequestCode::CONSUMER_SEND_MSG_BACK, &back(offset + 1, 0)).await;
    assert_eq!(code, ResponseCode::SYSTEM_ERROR);
}

#[tokio::test]
async fn what_orderly_consumers_send_back_is_dead_at_once() {
    let broker = Fixture::start(&[]).await;
    let client = broker.client();
    client.heartbeat(&consumer("c", "g", "t", "*")).await;
    let retry = |reconsume_times| SendMessageRequestHeader {
        reconsume_times: Some(reconsume_times),
        ..send_header("%RETRY%g", &[])
    };
    let answer = client.try_send(retry(1), "again").await;
    assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
    assert_eq!(bodies(&client.pull_some("%RETRY%g", 0).await), ["again"]);
    let answer = client.try_send(retry(17), "too often").await;
    assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
    assert_eq!(bodies(&client.pull_some("%DLQ%g", 0).await), ["too often"]);

    let queue = MessageQueue { topic: "t".into(), broker_name: "broker-a".into(), queue_id: 0 };
    let request = LockBatchRequest {
        client_id: "c".into(),
        consumer_group: "g".into(),
        mq_set: vec![queue.clone()],
        only_this_broker: false,
    };
    let answer = client.ask_json(RequestCode::LOCK_BATCH_MQ, &request).await;
    let held: LockBatchResponse = json::from_slice(&answer.body).unwrap();
    assert_eq!(held.lock_ok_mq_set, std::slice::from_ref(&queue));
    let other = LockBatchRequest { client_id: "d".into(), ..request.clone() };
    let answer = client.ask_json(RequestCode::LOCK_BATCH_MQ, &other).await;
    let held: LockBatchResponse = json::from_slice(&answer.body).unwrap();
    assert_eq!(held.lock_ok_mq_set, []);
    let answer = client.try_send(retry(1), "in order").await;
    assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
    assert_eq!(bodies(&client.pull_some("%DLQ%g", 1).await), ["in order"]);
    client.ask_json(RequestCode::UNLOCK_BATCH_MQ, &request).await;
    let answer = client.ask_json(RequestCode::LOCK_BATCH_MQ, &other).await;
    let held: LockBatchResponse = json::from_slice(&answer.body).unwrap();
    assert_eq!(held.lock_ok_mq_set, [queue]);
}
