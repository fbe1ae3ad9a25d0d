//! Pulling: every answer, filters, long polling, offsets.

use std::time::{Duration, Instant};

use crate::fixture::{Fixture, SUSPEND, WITH_SUBSCRIPTION, bodies, consumer, pull_header};
use protocol::header::offset::{
    OffsetResponseHeader, QueryConsumerOffsetRequestHeader, QueueOffsetRequestHeader,
    ResetOffsetRequestHeader, SearchOffsetRequestHeader, UpdateConsumerOffsetRequestHeader,
};
use protocol::header::pull::{PullMessageRequestHeader, pull_sys_flag};
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;

#[tokio::test]
async fn each_offset_has_its_answer() {
    let broker = Fixture::start(&[]).await;
    let client = broker.client();
    for body in ["0", "1", "2"] {
        client.send("t", body, &[("TAGS", "a")]).await;
    }
    let table = [
        (0, 0, ResponseCode::SUCCESS, "FOUND", 3),
        (0, 2, ResponseCode::SUCCESS, "FOUND", 3),
        (0, 3, ResponseCode::PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 3),
        (0, 9, ResponseCode::PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 3),
        (0, -1, ResponseCode::PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0),
        (1, 0, ResponseCode::PULL_NOT_FOUND, "NO_MATCHED_LOGIC_QUEUE", 0),
        (1, 5, ResponseCode::PULL_OFFSET_MOVED, "NO_MATCHED_LOGIC_QUEUE", 0),
    ];
    for (queue_id, offset, code, remark, next) in table {
        let pulled = client.pull(pull_header("t", queue_id, offset, 0)).await;
        assert_eq!((pulled.code, pulled.remark.as_str()), (code, remark), "{queue_id} {offset}");
        assert_eq!(pulled.header.next_begin_offset, next, "{queue_id} {offset}");
        let expected = if queue_id == 0 { (0, 3) } else { (0, 0) };
        assert_eq!((pulled.header.min_offset, pulled.header.max_offset), expected);
        assert_eq!(pulled.header.suggest_which_broker_id, 0);
    }
    let limited = PullMessageRequestHeader { max_msg_nums: 2, ..pull_header("t", 0, 0, 0) };
    assert_eq!(client.pull(limited).await.bodies(), ["0", "1"]);
    let small = PullMessageRequestHeader { max_msg_bytes: Some(1), ..pull_header("t", 0, 1, 0) };
    assert_eq!(client.pull(small).await.bodies(), ["1"], "one message at least");
}

#[tokio::test]
async fn only_messages_with_a_wanted_tag_come() {
    let broker = Fixture::start(&[]).await;
    let client = broker.client();
    for tag in ["a", "b", "a"] {
        client.send("t", tag, &[("TAGS", tag)]).await;
    }
    let tagged = |expression: &str, offset| PullMessageRequestHeader {
        subscription: Some(expression.to_owned()),
        ..pull_header("t", 0, offset, 0)
    };
    assert_eq!(client.pull(tagged("a", 0)).await.bodies(), ["a", "a"]);
    assert_eq!(client.pull(tagged("a || b", 0)).await.bodies(), ["a", "b", "a"]);
    let none = client.pull(tagged("c", 0)).await;
    assert_eq!(none.code, ResponseCode::PULL_RETRY_IMMEDIATELY);
    assert_eq!((none.remark.as_str(), none.header.next_begin_offset), ("NO_MATCHED_MESSAGE", 3));
    assert_eq!(client.pull(tagged("||", 0)).await.code, ResponseCode::SUBSCRIPTION_PARSE_FAILED);
    let sql = PullMessageRequestHeader {
        expression_type: Some("SQL92".into()),
        ..tagged("price > 3", 0)
    };
    let refused = client.pull(sql).await;
    assert_eq!(refused.code, ResponseCode::SYSTEM_ERROR);
    assert!(refused.remark.contains("filter message by SQL92"), "{}", refused.remark);
}

#[tokio::test]
async fn a_held_pull_is_woken_by_a_message_that_it_wants() {
    let broker = Fixture::start(&[]).await;
    let (client, sender) = (broker.client(), broker.client());
    sender.send("t", "0", &[]).await;
    // As clients do: what was looked through in vain before the pull was held is gone past.
    let held = async {
        let mut offset = 1;
        loop {
            let header = PullMessageRequestHeader {
                subscription: Some("a".into()),
                ..pull_header("t", 0, offset, SUSPEND)
            };
            let pulled = client.pull(header).await;
            if pulled.code != ResponseCode::PULL_RETRY_IMMEDIATELY {
                return pulled;
            }
            offset = pulled.header.next_begin_offset;
        }
    };
    let send = async {
        sender.send("t", "1", &[("TAGS", "b")]).await;
        sender.send("t", "2", &[("TAGS", "a")]).await;
    };
    let begin = Instant::now();
    let (pulled, ()) = tokio::join!(held, send);
    assert_eq!(pulled.bodies(), ["2"]);
    assert!(begin.elapsed() < Duration::from_secs(10), "woken, not timed out");
}

#[tokio::test]
async fn a_held_pull_ends_when_its_time_is_over_or_the_broker_stops() {
    let mut broker = Fixture::start(&[]).await;
    let client = broker.client();
    client.send("t", "0", &[]).await;
    let begin = Instant::now();
    let short =
        PullMessageRequestHeader { suspend_timeout_millis: 200, ..pull_header("t", 0, 1, SUSPEND) };
    assert_eq!(client.pull(short).await.code, ResponseCode::PULL_NOT_FOUND);
    assert!(begin.elapsed() >= Duration::from_millis(200));
    let stopped = async {
        // The pull is certainly held when another request that came after it is answered.
        let header = QueueOffsetRequestHeader { topic: "t".into(), ..Default::default() };
        client.ask(RequestCode::GET_MAX_OFFSET, &header).await;
        broker.stop().await;
    };
    let begin = Instant::now();
    let (held, ()) = tokio::join!(client.pull(pull_header("t", 0, 1, SUSPEND)), stopped);
    assert_eq!(held.code, ResponseCode::PULL_NOT_FOUND);
    assert!(begin.elapsed() < Duration::from_secs(10), "an orderly end wakes held pulls");
}

#[tokio::test]
async fn held_pulls_are_limited() {
    let broker = Fixture::start(&[("pullThreadPoolQueueCapacity", "1")]).await;
    let client = broker.client();
    client.send("t", "0", &[]).await;
    client.pull_some("t", 0).await;
    let second = async {
        let header = QueueOffsetRequestHeader { topic: "t".into(), ..Default::default() };
        client.ask(RequestCode::GET_MAX_OFFSET, &header).await;
        let refused = client.pull(pull_header("t", 0, 1, SUSPEND)).await;
        client.send("t", "1", &[]).await;
        refused
    };
    let (first, second) = tokio::join!(client.pull(pull_header("t", 0, 1, SUSPEND)), second);
    assert_eq!(first.bodies(), ["1"]);
    assert_eq!(second.code, ResponseCode::SYSTEM_BUSY);
}

#[tokio::test]
async fn without_a_subscription_of_its_own_a_pull_uses_that_of_the_heartbeat() {
    let broker = Fixture::start(&[]).await;
    let client = broker.client();
    client.send("t", "x", &[("TAGS", "a")]).await;
    client.send("t", "y", &[("TAGS", "b")]).await;
    let bare = |topic: &str| {
        let header = pull_header(topic, 0, 0, 0);
        let sys_flag = header.sys_flag & !WITH_SUBSCRIPTION;
        PullMessageRequestHeader { sys_flag, ..header }
    };
    assert_eq!(client.pull(bare("t")).await.code, ResponseCode::SUBSCRIPTION_NOT_EXIST);
    client.heartbeat(&consumer("c1", "g", "t", "b")).await;
    assert_eq!(client.pull(bare("t")).await.bodies(), ["y"]);
    let newer = PullMessageRequestHeader { sub_version: 2, ..bare("t") };
    assert_eq!(client.pull(newer).await.code, ResponseCode::SUBSCRIPTION_NOT_LATEST);
    client.send("u", "z", &[]).await;
    assert_eq!(client.pull(bare("u")).await.code, ResponseCode::SUBSCRIPTION_NOT_EXIST);
    assert_eq!(client.pull(bare("none")).await.code, ResponseCode::TOPIC_NOT_EXIST);
    let queue = PullMessageRequestHeader { queue_id: 4, ..bare("t") };
    assert_eq!(client.pull(queue).await.code, ResponseCode::INVALID_PARAMETER);
}

#[tokio::test]
async fn offsets_are_committed_by_pulls_and_by_updates() {
    let broker = Fixture::start(&[]).await;
    let client = broker.client();
    for body in ["0", "1", "2"] {
        client.send("t", body, &[]).await;
    }
    let query = QueryConsumerOffsetRequestHeader {
        consumer_group: "g".into(),
        topic: "t".into(),
        ..Default::default()
    };
    let offset = async || {
        let answer = client.ask(RequestCode::QUERY_CONSUMER_OFFSET, &query).await;
        answer.header::<OffsetResponseHeader>().unwrap().offset
    };
    assert_eq!(offset().await, 0, "the queue is young");
    let strict =
        QueryConsumerOffsetRequestHeader { set_zero_if_not_found: Some(false), ..query.clone() };
    let (code, _) = client.refused(RequestCode::QUERY_CONSUMER_OFFSET, &strict).await;
    assert_eq!(code, ResponseCode::QUERY_NOT_FOUND);
    let pull = PullMessageRequestHeader {
        commit_offset: 2,
        ..pull_header("t", 0, 2, pull_sys_flag::COMMIT_OFFSET)
    };
    client.pull(pull).await;
    assert_eq!(offset().await, 2);
    let update = UpdateConsumerOffsetRequestHeader {
        consumer_group: "g".into(),
        topic: "t".into(),
        commit_offset: 1,
        ..Default::default()
    };
    client.ask(RequestCode::UPDATE_CONSUMER_OFFSET, &update).await;
    assert_eq!(offset().await, 1, "lower offsets count");
    for (change, code) in [
        (
            UpdateConsumerOffsetRequestHeader { commit_offset: -1, ..update.clone() },
            ResponseCode::INVALID_PARAMETER,
        ),
        (
            UpdateConsumerOffsetRequestHeader { topic: "none".into(), ..update.clone() },
            ResponseCode::TOPIC_NOT_EXIST,
        ),
        (
            UpdateConsumerOffsetRequestHeader { consumer_group: "none".into(), ..update.clone() },
            ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST,
        ),
    ] {
        let refused = client.refused(RequestCode::UPDATE_CONSUMER_OFFSET, &change).await;
        assert_eq!(refused.0, code, "{change:?}");
    }
    let broker = broker.restart().await;
    let client = broker.client();
    let answer = client.ask(RequestCode::QUERY_CONSUMER_OFFSET, &query).await;
    assert_eq!(answer.header::<OffsetResponseHeader>().unwrap().offset, 1, "kept on disk");
    assert_eq!(bodies(&client.pull_some("t", 0).await), ["0", "1", "2"]);
    assert!(!broker.dir.path().join("nothing").exists());
}

#[tokio::test]
async fn an_offset_that_an_administrator_sets_wins() {
    let broker = Fixture::start(&[]).await;
    let client = broker.client();
    for body in ["0", "1", "2"] {
        client.send("t", body, &[]).await;
    }
    client.pull(pull_header("t", 0, 0, 0)).await;
    let reset = ResetOffsetRequestHeader {
        group: "g".into(),
        topic: "t".into(),
        queue_id: 0,
        offset: Some(1),
        timestamp: 0,
        is_force: true,
    };
    let held = client.pull(pull_header("t", 0, 3, SUSPEND));
    let change = async {
        let header = QueueOffsetRequestHeader { topic: "t".into(), ..Default::default() };
        client.ask(RequestCode::GET_MAX_OFFSET, &header).await;
        client.ask(RequestCode::INVOKE_BROKER_TO_RESET_OFFSET, &reset).await;
    };
    let (held, ()) = tokio::join!(held, change);
    assert_eq!(
        (held.code, held.remark.as_str()),
        (ResponseCode::PULL_OFFSET_MOVED, "OFFSET_RESET")
    );
    assert_eq!(held.header.next_begin_offset, 1);
    assert_eq!(client.pull(pull_header("t", 0, 1, 0)).await.bodies(), ["1", "2"]);
    let outside = ResetOffsetRequestHeader { offset: Some(9), ..reset.clone() };
    let refused = client.refused(RequestCode::INVOKE_BROKER_TO_RESET_OFFSET, &outside).await;
    assert!(refused.1.contains("not in consume queue range [0-3]"), "{}", refused.1);
    let nobody = ResetOffsetRequestHeader { group: "nobody".into(), ..reset };
    let refused = client.refused(RequestCode::INVOKE_BROKER_TO_RESET_OFFSET, &nobody).await;
    assert_eq!(refused.0, ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST);
}

#[tokio::test]
async fn offsets_are_found_by_time() {
    let broker = Fixture::start(&[]).await;
    let client = broker.client();
    client.send("t", "0", &[]).await;
    let first = client.pull_some("t", 0).await;
    let stored = first[0].store_timestamp;
    crate::fixture::until("time goes on", async || {
        client.send("t", "1", &[]).await;
        let last = client.pull(pull_header("t", 0, 0, 0)).await.messages.pop().unwrap();
        last.store_timestamp > stored
    })
    .await;
    let search = |timestamp, boundary: &str| SearchOffsetRequestHeader {
        topic: "t".into(),
        timestamp,
        boundary_type: Some(boundary.to_owned()),
        ..Default::default()
    };
    for (timestamp, boundary, at_least, at_most) in
        [(0, "LOWER", 0, 0), (stored, "lower", 0, 0), (stored + 1, "LOWER", 1, i64::MAX)]
    {
        let header = search(timestamp, boundary);
        let answer = client.ask(RequestCode::SEARCH_OFFSET_BY_TIMESTAMP, &header).await;
        let offset = answer.header::<OffsetResponseHeader>().unwrap().offset;
        assert!((at_least..=at_most).contains(&offset), "{timestamp} {boundary}: {offset}");
    }
}
