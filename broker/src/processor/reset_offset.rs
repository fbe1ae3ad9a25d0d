//! Setting the offsets of a group back or forth.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::body::ResetOffsetBody;
use protocol::command::RemotingCommand;
use protocol::header::group::CloneGroupOffsetRequestHeader;
use protocol::header::offset::ResetOffsetRequestHeader;
use protocol::json::ObjectKeyMap;
use store::Boundary;

use crate::broker::Broker;
use crate::processor::topic::message_queue;
use crate::processor::{success, with_json};
use crate::refusal::{Answer, Refusal};

/// `timestamp` that means the end of the queue.
const TO_THE_END: i64 = -1;

pub(crate) async fn reset(broker: &Arc<Broker>, request: &RemotingCommand) -> Answer {
    let header: ResetOffsetRequestHeader = request.header()?;
    let queues = broker.topic(&header.topic)?.read_queue_nums;
    if broker.groups.get(&header.group).is_none() {
        return Err(Refusal::no_group(&header.group));
    }
    let ids = match header.queue_id {
        id if id < 0 => 0..queues,
        id if id < queues => id..id + 1,
        id => return Err(Refusal::invalid(format!("queue {id} of {queues} does not exist"))),
    };
    let found = broker.blocking(move |broker| wanted_offsets(broker, &header, ids)).await?;
    let (header, offsets) = found;
    let mut table = BTreeMap::new();
    for (queue_id, offset) in offsets {
        broker.offsets.reset(&header.group, &header.topic, queue_id, offset);
        broker.hold.wake(&header.topic, queue_id);
        table.insert(message_queue(broker, &header.topic, queue_id), offset);
    }
    tracing::info!(group = header.group, topic = header.topic, ?table, "offsets were reset");
    with_json(&ResetOffsetBody { offset_table: ObjectKeyMap(table) })
}

/// All new offsets, or an error before any is set.
fn wanted_offsets(
    broker: &Broker,
    header: &ResetOffsetRequestHeader,
    queue_ids: std::ops::Range<i32>,
) -> Result<(ResetOffsetRequestHeader, Vec<(i32, i64)>), Refusal> {
    let topic = header.topic.as_str();
    let mut offsets = Vec::new();
    for queue_id in queue_ids {
        let min = broker.store.min_offset(topic, queue_id);
        let max = broker.store.max_offset(topic, queue_id);
        let offset = match header.offset {
            Some(offset) if offset >= 0 => offset,
            _ if header.timestamp == TO_THE_END => max,
            _ => broker.store.search_offset(topic, queue_id, header.timestamp, Boundary::Lower)?,
        };
        if !(min..=max + 1).contains(&offset) {
            return Err(Refusal::error(format!(
                "Target offset {offset} not in consume queue range [{min}-{max}]"
            )));
        }
        let current = broker.offsets.get(&header.group, topic, queue_id);
        // Without force a group is only sent back, as Apache's tools expect it.
        let is_ahead = current.is_some_and(|current| current <= offset);
        let is_by_time = header.offset.is_none_or(|offset| offset < 0);
        if is_by_time && !header.is_force && is_ahead {
            offsets.push((queue_id, current.unwrap_or(offset)));
        } else {
            offsets.push((queue_id, offset));
        }
    }
    Ok((header.clone(), offsets))
}

/// Gives a group the offsets of another.
pub(crate) fn clone(broker: &Broker, request: &RemotingCommand) -> Answer {
    let header: CloneGroupOffsetRequestHeader = request.header()?;
    let (from, to) = (header.src_group.as_str(), header.dest_group.as_str());
    let topics = match header.topic.filter(|topic| !topic.trim().is_empty()) {
        Some(topic) => vec![topic],
        None => broker.offsets.topics_of(from).into_iter().collect(),
    };
    for topic in topics.iter().filter(|topic| broker.topics.get(topic).is_some()) {
        broker.offsets.copy(from, to, topic);
    }
    success()
}
