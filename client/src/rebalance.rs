//! Sharing the queues of a topic out among the members of a group.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use protocol::body::{ConsumerList, MessageQueue};
use protocol::command::RemotingCommand;
use protocol::header::client::ConsumerGroupRequestHeader;
use protocol::header::offset::{
    OffsetResponseHeader, QueueOffsetRequestHeader, SearchOffsetRequestHeader,
};
use protocol::heartbeat::MessageModel;
use protocol::request_code::RequestCode;
use protocol::route::MASTER_ID;
use protocol::topic_name::is_retry;

use crate::instance::{read_body, read_header};
use crate::process_queue::ProcessQueue;
use crate::push_consumer::Core;
use crate::{ClientError, ConsumeFrom, TopicRoute};

/// How long listeners may finish what they have of a queue that goes to another consumer.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);
/// After so long another attempt is made at queues that could not be started.
const AGAIN: Duration = Duration::from_millis(500);

/// The queues of one client, as Java's `AllocateMessageQueueAveragely` gives them: contiguous, the
/// first clients get one more where they cannot all get the same. Both lists must be sorted.
fn allocate_averagely<'a>(
    queues: &'a [MessageQueue],
    clients: &[String],
    client: &str,
) -> &'a [MessageQueue] {
    let Some(index) = clients.iter().position(|other| other == client) else { return &[] };
    let (each, more) = (queues.len() / clients.len(), queues.len() % clients.len());
    let start = index * each + index.min(more);
    let count = each + usize::from(index < more);
    queues.get(start..start + count).unwrap_or_default()
}

/// Makes the queues of a consumer those that are its share now.
pub(crate) async fn rebalance(core: &Arc<Core>) {
    let mut is_complete = true;
    for topic in core.subscriptions.keys() {
        let route = match core.instance.route(topic).await {
            Ok(route) => route,
            // The retry topic comes into being with the first heartbeat or retry.
            Err(ClientError::NoRoute { .. }) if is_retry(topic) => continue,
            Err(error) => {
                tracing::warn!(group = core.config.group, %error, "a topic is not consumed now");
                continue;
            }
        };
        match share(core, topic, &route).await {
            Ok(Some(share)) => is_complete &= assign(core, topic, &share).await,
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(group = core.config.group, topic, %error, "queues stay as they are");
            }
        }
    }
    if !is_complete {
        core.rebalance_after(AGAIN);
    }
}

/// The queues of a topic that are for this consumer; `None` when that cannot be told now.
async fn share(
    core: &Core,
    topic: &str,
    route: &TopicRoute,
) -> Result<Option<Vec<MessageQueue>>, ClientError> {
    if core.config.message_model == MessageModel::Broadcasting {
        return Ok(Some(route.read_queues.clone()));
    }
    let mut brokers: Vec<_> = route.data.broker_datas.iter().collect();
    if brokers.is_empty() {
        return Ok(None);
    }
    // Any broker of the topic knows all members, so the load is spread.
    let start = rand::random_range(0..brokers.len());
    brokers.rotate_left(start);
    let mut failure = None;
    for broker in brokers {
        let Some(addr) = broker.address() else { continue };
        match members(core, addr).await {
            Ok(mut clients) => {
                clients.sort();
                let client = core.instance.client_id();
                if !clients.iter().any(|other| other == client) {
                    tracing::warn!(topic, addr, "the broker does not count us in, telling it");
                    core.instance.heartbeat_soon();
                }
                return Ok(Some(allocate_averagely(&route.read_queues, &clients, client).to_vec()));
            }
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or(Ok(None), Err)
}

async fn members(core: &Core, addr: &str) -> Result<Vec<String>, ClientError> {
    let code = RequestCode::GET_CONSUMER_LIST_BY_GROUP;
    let header = ConsumerGroupRequestHeader { consumer_group: core.config.group.clone() };
    let response = core.instance.call(addr, RemotingCommand::request(code, &header)).await?;
    let list: ConsumerList = read_body(addr, code, &response)?;
    Ok(list.consumer_id_list)
}

/// Lets go of queues that are not in the share and starts those that are new. False when some could
/// not be started.
async fn assign(core: &Arc<Core>, topic: &str, share: &[MessageQueue]) -> bool {
    let (lost, new) = {
        let queues = core.queues.lock();
        let of_topic = queues.values().filter(|queue| queue.queue.topic == topic);
        let lost: Vec<_> = of_topic.filter(|held| !share.contains(&held.queue)).cloned().collect();
        let new: Vec<_> =
            share.iter().filter(|queue| !queues.contains_key(queue)).cloned().collect();
        (lost, new)
    };
    if !lost.is_empty() || !new.is_empty() {
        let (group, lost, new) = (&core.config.group, lost.len(), new.len());
        tracing::debug!(group, topic, lost, new, share = share.len(), "queues change hands");
    }
    let releases = lost.iter().map(|queue| release(core, queue, RELEASE_TIMEOUT));
    futures::future::join_all(releases).await;
    let wanted = new.len();
    let new = if core.needs_locks() { core.lock(new).await } else { new };
    let starts = new.iter().map(|queue| start(core, queue));
    let started = futures::future::join_all(starts).await;
    started.len() == wanted && started.iter().all(|started| *started)
}

/// Ends work on a queue and stores how far it got.
pub(crate) async fn release(core: &Core, queue: &Arc<ProcessQueue>, timeout: Duration) {
    queue.stop.cancel();
    if tokio::time::timeout(timeout, queue.wait_idle()).await.is_err() {
        let (topic, id) = (&queue.queue.topic, queue.queue.queue_id);
        tracing::warn!(topic, id, "messages of a queue that goes to another are still consumed");
    }
    core.commit(queue);
    if core.forget(queue) {
        core.offsets.persist_queue(&core.instance, &queue.queue).await;
        core.offsets.remove(&queue.queue);
        if core.needs_locks() {
            core.unlock(std::slice::from_ref(&queue.queue)).await;
        }
    }
}

async fn start(core: &Arc<Core>, queue: &MessageQueue) -> bool {
    match start_offset(core, queue).await {
        Ok(offset) => {
            core.start_queue(queue, offset);
            true
        }
        Err(error) => {
            let (group, topic) = (&core.config.group, &queue.topic);
            tracing::warn!(group, topic, id = queue.queue_id, %error, "a queue is not started yet");
            false
        }
    }
}

/// Where the group goes on in a queue, or where it begins.
async fn start_offset(core: &Core, queue: &MessageQueue) -> Result<i64, ClientError> {
    if let Some(offset) = core.offsets.load(&core.instance, queue).await? {
        return Ok(offset.max(0));
    }
    // What is there to be retried is all the group's own.
    let from = if is_retry(&queue.topic) { ConsumeFrom::First } else { core.config.consume_from };
    let (code, request) = match from {
        ConsumeFrom::First => queue_offset_request(RequestCode::GET_MIN_OFFSET, queue),
        ConsumeFrom::Last => queue_offset_request(RequestCode::GET_MAX_OFFSET, queue),
        ConsumeFrom::Timestamp(timestamp) => {
            let header = SearchOffsetRequestHeader {
                topic: queue.topic.clone(),
                queue_id: queue.queue_id,
                timestamp,
                boundary_type: None,
                broker_name: Some(queue.broker_name.clone()),
            };
            let code = RequestCode::SEARCH_OFFSET_BY_TIMESTAMP;
            (code, RemotingCommand::request(code, &header))
        }
    };
    let member = core.instance.routes().member(&queue.broker_name, MASTER_ID);
    let unknown = || ClientError::UnknownBroker { broker: queue.broker_name.clone() };
    let (_, addr) = member.ok_or_else(unknown)?;
    let response = core.instance.call(&addr, request).await?;
    let header: OffsetResponseHeader = read_header(&addr, code, &response)?;
    Ok(header.offset.max(0))
}

fn queue_offset_request(code: RequestCode, queue: &MessageQueue) -> (RequestCode, RemotingCommand) {
    let header = QueueOffsetRequestHeader {
        topic: queue.topic.clone(),
        queue_id: queue.queue_id,
        committed: true,
        broker_name: Some(queue.broker_name.clone()),
    };
    (code, RemotingCommand::request(code, &header))
}

/// Queues by broker, as lock requests want them.
pub(crate) fn by_broker(queues: &[MessageQueue]) -> Vec<(String, Vec<MessageQueue>)> {
    let brokers: BTreeSet<_> = queues.iter().map(|queue| &queue.broker_name).collect();
    let of = |broker: &String| {
        queues.iter().filter(|queue| queue.broker_name == *broker).cloned().collect()
    };
    brokers.into_iter().map(|broker| (broker.clone(), of(broker))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_shared_out_as_java_does() {
        let queue =
            |queue_id| MessageQueue { topic: "t".into(), broker_name: "b".into(), queue_id };
        let check = |queues: i32, clients: usize, expected: &[&[i32]]| {
            let queues: Vec<_> = (0..queues).map(queue).collect();
            let clients: Vec<_> = (0..clients).map(|index| format!("c{index}")).collect();
            let shares: Vec<Vec<i32>> = clients
                .iter()
                .map(|client| allocate_averagely(&queues, &clients, client))
                .map(|share| share.iter().map(|queue| queue.queue_id).collect())
                .collect();
            assert_eq!(shares, expected);
        };
        check(4, 1, &[&[0, 1, 2, 3]]);
        check(4, 2, &[&[0, 1], &[2, 3]]);
        check(5, 3, &[&[0, 1], &[2, 3], &[4]]);
        check(2, 3, &[&[0], &[1], &[]]);
        check(0, 2, &[&[], &[]]);
        assert!(allocate_averagely(&[queue(0)], &["a".into()], "b").is_empty());
    }
}
