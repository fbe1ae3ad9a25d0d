//! Pulling the messages of one queue.

use std::sync::Arc;
use std::time::Duration;

use protocol::command::RemotingCommand;
use protocol::header::pull::{PullMessageRequestHeader, PullMessageResponseHeader, pull_sys_flag};
use protocol::heartbeat::MessageModel;
use protocol::message::{MessageError, MessageExt};
use protocol::message_codec::decode_record;
use protocol::property;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use protocol::route::MASTER_ID;
use protocol::subscription::SubscriptionData;
use protocol::topic_name::is_retry;
use tokio::time::Instant;

use crate::ClientError;
use crate::instance::read_header;
use crate::process_queue::{ProcessQueue, QueueLimits};
use crate::push_consumer::Core;

/// Pause after the broker asked for one.
const FLOW_CONTROL_PAUSE: Duration = Duration::from_millis(20);
/// How often an orderly queue without lock is looked at.
const LOCK_PAUSE: Duration = Duration::from_millis(100);
/// An answer without messages that came sooner than this was not held by the broker. A pause then
/// keeps a broker that never holds pulls from being asked without end.
const HELD: Duration = Duration::from_millis(5);

/// What a pull brought.
struct Pulled {
    code: ResponseCode,
    header: PullMessageResponseHeader,
    messages: Vec<Arc<MessageExt>>,
}

/// Pulls a queue until it is stopped.
pub(crate) async fn run(core: Arc<Core>, queue: Arc<ProcessQueue>, start: i64) {
    let stop = queue.stop.clone();
    tokio::select! {
        () = pull_all(&core, &queue, start) => {}
        () = stop.cancelled() => {}
    }
}

async fn pull_all(core: &Arc<Core>, queue: &Arc<ProcessQueue>, start: i64) {
    let config = &core.config;
    let limits = QueueLimits {
        messages: config.queue_messages_max,
        bytes: config.queue_bytes_max,
        span: (!core.listener.is_orderly()).then_some(config.queue_span_max),
    };
    let mut next = start;
    let mut broker_id = MASTER_ID;
    let mut failures = 0_u64;
    loop {
        queue.wait_for_room(limits).await;
        while core.needs_locks() && !queue.is_locked() {
            tokio::time::sleep(LOCK_PAUSE).await;
        }
        let began = Instant::now();
        let pulled = match pull(core, queue, next, broker_id).await {
            Ok(pulled) => pulled,
            Err(error) => {
                broker_id = MASTER_ID;
                tokio::time::sleep(pause_after(core, queue, &error, failures)).await;
                failures += 1;
                continue;
            }
        };
        failures = 0;
        broker_id = pulled.header.suggest_which_broker_id;
        if pulled.code == ResponseCode::PULL_OFFSET_MOVED {
            return move_offset(core, queue, next, pulled.header.next_begin_offset).await;
        }
        let found = !pulled.messages.is_empty();
        let advanced = pulled.header.next_begin_offset > next;
        next = pulled.header.next_begin_offset;
        if found {
            core.totals.pulled(&queue.queue.topic, pulled.messages.len(), began.elapsed());
        }
        queue.put(pulled.messages, next);
        core.commit(queue);
        if !found && !advanced && began.elapsed() < HELD {
            tokio::time::sleep(FLOW_CONTROL_PAUSE).await;
        }
    }
}

/// How long to wait after a pull that failed, as did so many before it.
fn pause_after(core: &Core, queue: &ProcessQueue, error: &ClientError, failures: u64) -> Duration {
    let code = error.code();
    if code == Some(ResponseCode::FLOW_CONTROL) {
        return FLOW_CONTROL_PAUSE;
    }
    let (topic, id) = (&queue.queue.topic, queue.queue.queue_id);
    // Said once: a broker that is away for an hour would fill the log.
    if failures == 0 {
        tracing::warn!(group = core.config.group, topic, id, %error, "a pull failed");
    } else {
        tracing::debug!(group = core.config.group, topic, id, %error, failures, "a pull failed");
    }
    match code {
        // The broker does not know us, or not as we are now.
        Some(
            ResponseCode::SUBSCRIPTION_NOT_EXIST
            | ResponseCode::SUBSCRIPTION_NOT_LATEST
            | ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST,
        ) => core.instance.heartbeat_soon(),
        _ => core.instance.refresh_routes_soon(),
    }
    core.config.pull_pause
}

/// The broker no longer has the offset, or someone reset it: the queue starts again at `next`.
async fn move_offset(core: &Arc<Core>, queue: &Arc<ProcessQueue>, from: i64, next: i64) {
    let (topic, id) = (&queue.queue.topic, queue.queue.queue_id);
    tracing::warn!(group = core.config.group, topic, id, from, next, "the offset moved");
    core.restart_queue(queue, next).await;
    core.rebalance_after(core.config.pull_pause);
}

async fn pull(
    core: &Core,
    queue: &ProcessQueue,
    offset: i64,
    broker_id: i64,
) -> Result<Pulled, ClientError> {
    let code = RequestCode::PULL_MESSAGE;
    let name = &queue.queue.broker_name;
    let unknown = || ClientError::UnknownBroker { broker: name.clone() };
    let (id, addr) = core.instance.routes().member(name, broker_id).ok_or_else(unknown)?;
    let subscription = core.subscriptions.get(&queue.queue.topic);
    let commit = core.offsets.get(&queue.queue);
    // A slave keeps no offsets, and those of broadcasting consumers are their own.
    let commits = id == MASTER_ID && core.config.message_model == MessageModel::Clustering;
    let commit = commit.filter(|_| commits);
    let flag = if commit.is_some() { pull_sys_flag::COMMIT_OFFSET } else { 0 };
    let header = PullMessageRequestHeader {
        consumer_group: core.config.group.clone(),
        topic: queue.queue.topic.clone(),
        queue_id: queue.queue.queue_id,
        queue_offset: offset,
        max_msg_nums: core.config.pull_batch,
        sys_flag: flag | pull_sys_flag::SUSPEND,
        commit_offset: commit.unwrap_or(0),
        suspend_timeout_millis: millis(core.config.pull_suspend),
        subscription: None,
        sub_version: subscription.map_or(0, |subscription| subscription.sub_version),
        expression_type: subscription.map(|subscription| subscription.expression_type.clone()),
        max_msg_bytes: Some(core.config.pull_batch_bytes),
        broker_name: Some(name.clone()),
    };
    let request = RemotingCommand::request(code, &header);
    let response = core.instance.invoke(&addr, request, core.config.pull_timeout).await?;
    match response.response_code() {
        ResponseCode::SUCCESS
        | ResponseCode::PULL_NOT_FOUND
        | ResponseCode::PULL_RETRY_IMMEDIATELY
        | ResponseCode::PULL_OFFSET_MOVED => {}
        refused => {
            let remark = response.remark.unwrap_or_default();
            return Err(ClientError::Refused { addr, request: code, code: refused, remark });
        }
    }
    let header: PullMessageResponseHeader = read_header(&addr, code, &response)?;
    let mut messages = decode(core, queue, &addr, &response.body).await?;
    messages.retain(|message| subscription.is_none_or(|wanted| matches(wanted, message)));
    Ok(Pulled { code: response.response_code(), header, messages })
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Brokers compare hashes of tags only.
fn matches(subscription: &SubscriptionData, message: &MessageExt) -> bool {
    subscription.tags_set.is_empty()
        || message.tags().is_some_and(|tag| subscription.tags_set.contains(tag))
}

/// Reads the messages of an answer. One that is whole but cannot be read, for instance since its
/// compression is not known, would be in the way for ever: it goes to the dead letters.
async fn decode(
    core: &Core,
    queue: &ProcessQueue,
    addr: &str,
    mut body: &[u8],
) -> Result<Vec<Arc<MessageExt>>, ClientError> {
    let mut messages = Vec::new();
    while !body.is_empty() {
        let damaged = |source| ClientError::Message { addr: addr.to_owned(), source };
        let view = decode_record(body).map_err(|error| damaged(MessageError::Record(error)))?;
        let (record, rest) = body.split_at(view.bytes.len());
        match MessageExt::decode(record, core.config.message_bytes_max) {
            Ok(message) => messages.push(Arc::new(with_own_topic(message))),
            Err(error) => {
                let (topic, offset) = (&queue.queue.topic, view.queue_offset);
                tracing::error!(topic, offset, %error, "a message goes to the dead letters");
                core.bury(addr, view.physical_offset).await?;
            }
        }
        body = rest;
    }
    Ok(messages)
}

/// A message that is retried belongs to the topic it was first sent to.
fn with_own_topic(mut message: MessageExt) -> MessageExt {
    if is_retry(&message.topic)
        && let Some(topic) = message.properties.get(property::RETRY_TOPIC)
    {
        message.topic = topic.clone();
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_queue::tests::message;

    #[test]
    fn tags_are_compared_as_text() {
        let tagged = |tag: Option<&str>| {
            let mut message = MessageExt::clone(&message(0));
            if let Some(tag) = tag {
                message.properties.insert(property::TAGS.into(), tag.into());
            }
            message
        };
        let check = |expression: &str, tag: Option<&str>, expected: bool| {
            let subscription = SubscriptionData::by_tags("t", expression, 1);
            assert_eq!(matches(&subscription, &tagged(tag)), expected, "{expression} {tag:?}");
        };
        check("*", None, true);
        check("*", Some("a"), true);
        check("Aa || b", Some("b"), true);
        check("Aa || b", Some("BB"), false);
        check("Aa", None, false);
    }

    #[test]
    fn retried_messages_look_like_the_first_time() {
        let mut retried = MessageExt::clone(&message(0));
        retried.topic = "%RETRY%g".into();
        retried.properties.insert(property::RETRY_TOPIC.into(), "orders".into());
        assert_eq!(with_own_topic(retried).topic, "orders");
        assert_eq!(with_own_topic(MessageExt::clone(&message(0))).topic, "t");
    }
}
