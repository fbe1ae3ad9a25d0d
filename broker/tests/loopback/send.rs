//! Sending, in all its forms, and every way to be refused.

use crate::fixture::{Fixture, bodies, pull_header, send_header};
use protocol::batch::{BatchMessage, encode_batch};
use protocol::command::RemotingCommand;
use protocol::header::offset::{OffsetResponseHeader, QueueOffsetRequestHeader};
use protocol::header::query::ViewMessageRequestHeader;
use protocol::header::send::{
    SendMessageRequestHeader, SendMessageRequestHeaderV2, SendMessageResponseHeader,
};
use protocol::message::MessageExt;
use protocol::message_id::parse_offset_message_id;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;

#[tokio::test]
async fn a_message_is_stored_and_found_by_its_id() {
    let broker = Fixture::start(&[]).await;
    let client = broker.client();
    let sent =
        client.send("t", "one", &[("UNIQ_KEY", "u1"), ("TAGS", "a"), ("CLUSTER", "x")]).await;
    assert_eq!((sent.queue_id, sent.offset), (0, 0));
    let (host, offset) = parse_offset_message_id(&sent.msg_id).unwrap();
    assert_eq!(host.to_string(), broker.address);
    let header = ViewMessageRequestHeader { topic: None, offset };
    let answer = client.ask(RequestCode::VIEW_MESSAGE_BY_ID, &header).await;
    let message = MessageExt::decode(&answer.body, 1 << 20).unwrap();
    assert_eq!((message.topic.as_str(), &message.body[..]), ("t", &b"one"[..]));
    assert_eq!((message.msg_id().as_str(), message.tags()), ("u1", Some("a")));
    assert_eq!(message.properties["CLUSTER"], "DefaultCluster");
    assert_eq!(message.properties["MSG_REGION"], "DefaultRegion");
    assert_eq!(message.born_host.ip().to_string(), "127.0.0.1");
    let (code, _) = client
        .refused(
            RequestCode::VIEW_MESSAGE_BY_ID,
            &ViewMessageRequestHeader { topic: None, offset: offset + 1 },
        )
        .await;
    assert_eq!(code, ResponseCode::SYSTEM_ERROR);
}

#[tokio::test]
async fn all_request_codes_send() {
    let broker = Fixture::start(&[]).await;
    let client = broker.client();
    let header = SendMessageRequestHeader { queue_id: -1, ..send_header("t", &[]) };
    let request = RemotingCommand::request(RequestCode::SEND_MESSAGE, &header).with_body("v1");
    let answer = client.invoke(request).await;
    assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
    assert_eq!(answer.ext_fields.get("MSG_REGION"), Some("DefaultRegion"));
    assert_eq!(answer.ext_fields.get("TRACE_ON"), Some("true"));
    let queue_id = answer.header::<SendMessageResponseHeader>().unwrap().queue_id;
    assert!((0..4).contains(&queue_id), "a queue was picked: {queue_id}");
    let header = SendMessageRequestHeaderV2(send_header("o", &[]));
    let request = RemotingCommand::request(RequestCode::SEND_MESSAGE_V2, &header);
    client.oneway(request.with_body("oneway")).await;
    assert_eq!(bodies(&client.pull_some("o", 0).await), ["oneway"]);
}

#[tokio::test]
async fn a_batch_becomes_messages_with_offsets_of_their_own() {
    let broker = Fixture::start(&[]).await;
    let client = broker.client();
    let messages = ["a", "b", "c"].map(|body| BatchMessage {
        flag: 7,
        body: body.as_bytes(),
        properties: "TAGS\u{1}x\u{2}",
    });
    let mut body = Default::default();
    encode_batch(messages, &mut body).unwrap();
    let header = SendMessageRequestHeader {
        batch: Some(true),
        ..send_header("t", &[("UNIQ_KEY", "batch"), ("WAIT", "true")])
    };
    let header = SendMessageRequestHeaderV2(header);
    let request = RemotingCommand::request(RequestCode::SEND_BATCH_MESSAGE, &header);
    let answer = client.invoke(request.clone().with_body(body.freeze())).await;
    assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
    let sent: SendMessageResponseHeader = answer.header().unwrap();
    assert_eq!(sent.msg_id.split(',').count(), 3);
    let messages = client.pull_some("t", 0).await;
    assert_eq!(bodies(&messages), ["a", "b", "c"]);
    let offsets: Vec<_> = messages.iter().map(|message| message.queue_offset).collect();
    assert_eq!(offsets, [0, 1, 2]);
    assert!(messages.iter().all(|message| message.flag == 7 && message.tags() == Some("x")));
    let ids: Vec<_> = messages.iter().map(MessageExt::offset_msg_id).collect();
    assert_eq!(sent.msg_id, ids.join(","));
    let damaged = client.invoke(request.with_body("rubbish")).await;
    assert_eq!(damaged.response_code(), ResponseCode::MESSAGE_ILLEGAL);
}

#[tokio::test]
async fn the_messages_of_a_batch_keep_ids_of_their_own() {
    let broker = Fixture::start(&[]).await;
    let client = broker.client();
    let messages = ["UNIQ_KEY\u{1}first\u{2}", "UNIQ_KEY\u{1}second\u{2}"]
        .map(|properties| BatchMessage { flag: 0, body: b"x", properties });
    let mut body = Default::default();
    encode_batch(messages, &mut body).unwrap();
    let header = SendMessageRequestHeader { batch: Some(true), ..send_header("t", &[]) };
    let header = SendMessageRequestHeaderV2(header);
    let request = RemotingCommand::request(RequestCode::SEND_BATCH_MESSAGE, &header);
    let answer = client.invoke(request.with_body(body.freeze())).await;
    assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
    let messages = client.pull_some("t", 0).await;
    let ids: Vec<_> = messages.iter().map(MessageExt::msg_id).collect();
    assert_eq!(ids, ["first", "second"]);
}

#[tokio::test]
async fn what_cannot_be_sent_is_refused_with_the_right_code() {
    let broker =
        Fixture::start(&[("maxMessageSize", "100"), ("autoCreateSubscriptionGroup", "false")])
            .await;
    let client = broker.client();
    client.send("t", "x", &[]).await;
    let long = "x".repeat(101);
    let queue = |queue_id| SendMessageRequestHeader { queue_id, ..send_header("t", &[]) };
    let no_model =
        SendMessageRequestHeader { default_topic: "none".into(), ..send_header("new", &[]) };
    let half = SendMessageRequestHeader { sys_flag: 4, ..send_header("t", &[]) };
    let table = [
        (send_header("a b", &[]), "x", ResponseCode::INVALID_PARAMETER),
        (send_header("SCHEDULE_TOPIC_XXXX", &[]), "x", ResponseCode::NO_PERMISSION),
        (no_model, "x", ResponseCode::TOPIC_NOT_EXIST),
        (queue(4), "x", ResponseCode::INVALID_PARAMETER),
        (send_header("%RETRY%unknown", &[]), "x", ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST),
        (queue(0), "", ResponseCode::MESSAGE_ILLEGAL),
        (queue(0), long.as_str(), ResponseCode::MESSAGE_ILLEGAL),
        (send_header("t", &[("DELAY", "soon")]), "x", ResponseCode::MESSAGE_ILLEGAL),
        (half, "x", ResponseCode::NO_PERMISSION),
        (send_header("t", &[("TRAN_MSG", "true")]), "x", ResponseCode::NO_PERMISSION),
        (send_header("t", &[("TIMER_DELAY_MS", "9")]), "x", ResponseCode::SYSTEM_ERROR),
    ];
    for (header, body, code) in table {
        let text = format!("{header:?}");
        let answer = client.try_send(header, body).await;
        assert_eq!(answer.response_code(), code, "{text}: {:?}", answer.remark);
        assert!(answer.remark.is_some_and(|remark| !remark.is_empty()), "{text}");
        assert!(answer.ext_fields.get("MSG_REGION").is_some(), "{text}");
    }
    let header = QueueOffsetRequestHeader { topic: "t".into(), ..Default::default() };
    let answer = client.ask(RequestCode::GET_MAX_OFFSET, &header).await;
    assert_eq!(answer.header::<OffsetResponseHeader>().unwrap().offset, 1, "nothing was stored");
    let end = RemotingCommand::request_without_header(RequestCode::END_TRANSACTION);
    assert_eq!(client.invoke(end).await.response_code(), ResponseCode::SYSTEM_ERROR);
    let reply = RemotingCommand::request_without_header(RequestCode::SEND_REPLY_MESSAGE_V2);
    let code = client.invoke(reply).await.response_code();
    assert_eq!(code, ResponseCode::REQUEST_CODE_NOT_SUPPORTED);
}

#[tokio::test]
async fn topics_are_not_made_when_that_is_switched_off() {
    let broker = Fixture::start(&[("autoCreateTopicEnable", "false")]).await;
    let client = broker.client();
    let answer = client.try_send(send_header("t", &[]), "x").await;
    assert_eq!(answer.response_code(), ResponseCode::TOPIC_NOT_EXIST);
    assert!(answer.remark.unwrap().contains("topic[t] not exist"));
}

#[tokio::test]
async fn a_delayed_message_comes_after_its_delay_and_looks_as_before() {
    let broker = Fixture::start(&[("messageDelayLevel", "1s 2s")]).await;
    let client = broker.client();
    let begin = std::time::Instant::now();
    client.send("t", "late", &[("DELAY", "1"), ("TAGS", "a"), ("KEYS", "k")]).await;
    client.send("t", "soon", &[]).await;
    assert_eq!(bodies(&client.pull_some("t", 0).await), ["soon"]);
    let late = client.pull_some("t", 1).await;
    assert!(begin.elapsed().as_millis() >= 1_000, "{:?}", begin.elapsed());
    assert_eq!(bodies(&late), ["late"]);
    assert_eq!((late[0].tags(), late[0].properties.get("DELAY")), (Some("a"), None));
    let mut header = pull_header("t", 0, 1, 0);
    header.subscription = Some("a".into());
    assert_eq!(client.pull(header).await.bodies(), ["late"], "found by its tag again");
    client.send("t", "much later", &[("DELAY", "2")]).await;
    let broker = broker.restart().await;
    let client = broker.client();
    let rest = client.pull_some("t", 2).await;
    assert_eq!(bodies(&rest), ["much later"], "nothing is lost or comes twice over a restart");
}

#[tokio::test]
async fn a_sync_flush_broker_answers_after_the_flush() {
    let broker = Fixture::start(&[("flushDiskType", "SYNC_FLUSH")]).await;
    let client = broker.client();
    for number in 0..5 {
        assert_eq!(client.send("t", "x", &[]).await.offset, number);
    }
    assert_eq!(client.pull_some("t", 0).await.len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_senders_at_once_lose_and_repeat_nothing() {
    const SENDERS: usize = 8;
    const MESSAGES: usize = 100;
    let broker = Fixture::start(&[]).await;
    let senders = (0..SENDERS).map(|sender| {
        let client = broker.client();
        tokio::spawn(async move {
            for number in 0..MESSAGES {
                let header = SendMessageRequestHeader { queue_id: -1, ..send_header("t", &[]) };
                let answer = client.try_send(header, &format!("{sender}-{number}")).await;
                assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
            }
        })
    });
    for sender in senders.collect::<Vec<_>>() {
        sender.await.unwrap();
    }
    let client = broker.client();
    let mut all = std::collections::BTreeSet::new();
    for queue_id in 0..4 {
        let mut offset = 0;
        loop {
            let pulled = client.pull(pull_header("t", queue_id, offset, 0)).await;
            for message in &pulled.messages {
                assert_eq!(message.queue_offset, offset, "queue {queue_id} has no gap");
                offset += 1;
            }
            if pulled.code == ResponseCode::PULL_NOT_FOUND {
                break;
            }
            all.extend(pulled.bodies());
        }
        let header = QueueOffsetRequestHeader { topic: "t".into(), queue_id, ..Default::default() };
        let answer = client.ask(RequestCode::GET_MAX_OFFSET, &header).await;
        assert_eq!(answer.header::<OffsetResponseHeader>().unwrap().offset, offset);
    }
    assert_eq!(all.len(), SENDERS * MESSAGES);
}
