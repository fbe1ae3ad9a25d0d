//! How far consumers are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::body::{
    ConsumeStats, GroupList, OffsetWrapper, QueryConsumeTimeSpan, QueueTimeSpan, TopicList,
};
use protocol::command::RemotingCommand;
use protocol::header::admin::GetBrokerConsumeStatsRequestHeader;
use protocol::header::group::{
    GetConsumeStatsRequestHeader, GroupRequestHeader, TopicAndGroupRequestHeader,
};
use protocol::header::topic::TopicRequestHeader;
use serde::Serialize;
use store::ReadError;

use crate::broker::Broker;
use crate::clock::now_ms;
use crate::processor::topic::message_queue;
use crate::processor::with_json;
use crate::refusal::Answer;

pub(crate) async fn of_group(broker: &Arc<Broker>, request: &RemotingCommand) -> Answer {
    let header: GetConsumeStatsRequestHeader = request.header()?;
    let listed = header.topic_list.iter().flat_map(|list| list.split(';')).map(str::trim);
    let mut topics: BTreeSet<String> =
        listed.filter(|topic| !topic.is_empty()).map(str::to_owned).collect();
    topics.extend(header.topic.filter(|topic| !topic.trim().is_empty()));
    let group = header.consumer_group;
    if topics.is_empty() {
        topics = broker.offsets.topics_of(&group);
    }
    let look = move |broker: &Broker| {
        let mut stats = ConsumeStats::default();
        for topic in topics {
            add_topic(broker, &group, &topic, &mut stats)?;
        }
        Ok::<_, ReadError>(stats)
    };
    with_json(&broker.blocking(look).await?)
}

/// Adds a topic, unless it is gone or the group has live members that do not want it.
fn add_topic(
    broker: &Broker,
    group: &str,
    topic: &str,
    stats: &mut ConsumeStats,
) -> Result<(), ReadError> {
    let Some(config) = broker.topics.get(topic) else { return Ok(()) };
    let subscribed = broker.consumers.topics_of(group);
    if !subscribed.is_empty() && !subscribed.contains(topic) {
        return Ok(());
    }
    for queue_id in 0..config.read_queue_nums {
        let progress = broker.queue_progress(group, topic, queue_id);
        let consumed = progress.consumer_offset;
        let wrapper = OffsetWrapper {
            broker_offset: progress.broker_offset,
            consumer_offset: consumed,
            last_timestamp: broker.consumed_until(topic, queue_id, consumed)?,
            pull_offset: progress.pull_offset,
        };
        stats.offset_table.0.insert(message_queue(broker, topic, queue_id), wrapper);
    }
    stats.consume_tps += broker.throughput.groups.per_second(format!("{topic}@{group}").as_str());
    Ok(())
}

/// Answer to `GET_BROKER_CONSUME_STATS`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConsumeStatsList {
    broker_addr: String,
    consume_stats_list: Vec<BTreeMap<String, Vec<ConsumeStats>>>,
    total_diff: i64,
    total_inflight_diff: i64,
}

pub(crate) async fn of_broker(broker: &Arc<Broker>, request: &RemotingCommand) -> Answer {
    let header: GetBrokerConsumeStatsRequestHeader = request.header()?;
    let look = move |broker: &Broker| stats_list(broker, header.is_order);
    with_json(&broker.blocking(look).await?)
}

fn stats_list(broker: &Broker, only_ordered: bool) -> Result<ConsumeStatsList, ReadError> {
    let mut list = ConsumeStatsList {
        broker_addr: broker.identity.address.clone(),
        consume_stats_list: Vec::new(),
        total_diff: 0,
        total_inflight_diff: 0,
    };
    for group in broker.groups.names() {
        let mut of_group = Vec::new();
        for topic in broker.offsets.topics_of(&group) {
            if only_ordered && !broker.topics.is_order(&topic) {
                continue;
            }
            let mut stats = ConsumeStats::default();
            add_topic(broker, &group, &topic, &mut stats)?;
            for offsets in stats.offset_table.0.values() {
                list.total_diff += offsets.broker_offset - offsets.consumer_offset;
                list.total_inflight_diff += offsets.pull_offset - offsets.consumer_offset;
            }
            of_group.push(stats);
        }
        list.consume_stats_list.push(BTreeMap::from([(group, of_group)]));
    }
    Ok(list)
}

pub(crate) async fn time_span(broker: &Arc<Broker>, request: &RemotingCommand) -> Answer {
    let header: TopicAndGroupRequestHeader = request.header()?;
    let queues = broker.topic(&header.topic)?.write_queue_nums;
    let look = move |broker: &Broker| {
        (0..queues)
            .map(|queue_id| queue_time_span(broker, &header, queue_id))
            .collect::<Result<Vec<_>, ReadError>>()
    };
    let consume_time_span_set = broker.blocking(look).await?;
    with_json(&QueryConsumeTimeSpan { consume_time_span_set })
}

fn queue_time_span(
    broker: &Broker,
    header: &TopicAndGroupRequestHeader,
    queue_id: i32,
) -> Result<QueueTimeSpan, ReadError> {
    let topic = header.topic.as_str();
    let min_time_stamp = broker.store.earliest_store_time(topic, queue_id)?.unwrap_or_default();
    let progress = broker.queue_progress(&header.group, topic, queue_id);
    let consumed = progress.consumer_offset;
    let consume_time_stamp = match consumed {
        0 => min_time_stamp,
        _ => broker.consumed_until(topic, queue_id, consumed)?,
    };
    let next = match consumed < progress.broker_offset {
        true => broker.store.store_time(topic, queue_id, consumed)?,
        false => None,
    };
    Ok(QueueTimeSpan {
        consume_time_stamp,
        delay_time: next.map_or(0, |next| now_ms() - next),
        max_time_stamp: broker.consumed_until(topic, queue_id, progress.broker_offset)?,
        message_queue: message_queue(broker, topic, queue_id),
        min_time_stamp,
    })
}

/// The groups that consume a topic or have done so.
pub(crate) fn groups_of(broker: &Broker, request: &RemotingCommand) -> Answer {
    let header: TopicRequestHeader = request.header()?;
    let mut groups = broker.consumers.groups_of(&header.topic);
    groups.extend(broker.offsets.groups_of(&header.topic));
    with_json(&GroupList { group_list: groups.into_iter().collect() })
}

/// The topics of which a group has offsets.
pub(crate) fn topics_of(broker: &Broker, request: &RemotingCommand) -> Answer {
    let header: GroupRequestHeader = request.header()?;
    let topic_list = broker.offsets.topics_of(&header.group);
    with_json(&TopicList { broker_addr: None, topic_list })
}
