//! Offsets of queues and of consumers.

use std::sync::Arc;

use protocol::command::RemotingCommand;
use protocol::header::offset::{
    EarliestMsgStoreTimeRequestHeader, EarliestMsgStoreTimeResponseHeader, OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader, QueueOffsetRequestHeader, SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
};
use protocol::response_code::ResponseCode;
use store::{AllMessages, Boundary, GetRequest};

use crate::broker::Broker;
use crate::processor::topic::QUEUES_MAX;
use crate::processor::{success, with_header, with_json};
use crate::refusal::{Answer, Refusal};

pub(crate) fn query(broker: &Broker, request: &RemotingCommand) -> Answer {
    let header: QueryConsumerOffsetRequestHeader = request.header()?;
    let (group, topic, queue_id) = (&header.consumer_group, &header.topic, header.queue_id);
    if let Some(offset) = broker.offsets.get(group, topic, queue_id) {
        return with_header(&OffsetResponseHeader { offset });
    }
    let not_found = |remark| Err(Refusal::new(ResponseCode::QUERY_NOT_FOUND, remark));
    if header.set_zero_if_not_found == Some(false) {
        return not_found("Not found, do not set to zero, maybe this group boot first");
    }
    if is_young(broker, topic, queue_id)? {
        return with_header(&OffsetResponseHeader { offset: 0 });
    }
    not_found("Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
}

/// Whether nothing of the queue was deleted yet and all of it is thought to be in memory: then a
/// group without offset begins at its start.
fn is_young(broker: &Broker, topic: &str, queue_id: i32) -> Result<bool, Refusal> {
    if broker.store.min_offset(topic, queue_id) > 0 {
        return Ok(false);
    }
    let request = GetRequest { topic, queue_id, offset: 0, max_messages: 1, max_bytes: 1 };
    Ok(!broker.store.get(&request, &AllMessages)?.suggest_slave)
}

pub(crate) fn update(broker: &Broker, request: &RemotingCommand) -> Answer {
    let header: UpdateConsumerOffsetRequestHeader = request.header()?;
    let (group, topic, queue_id) = (&header.consumer_group, &header.topic, header.queue_id);
    if broker.groups.get(group).is_none() {
        return Err(Refusal::no_group(group));
    }
    broker.topic(topic)?;
    // A client that lost its way must not send the whole group back to the beginning.
    if !(0..QUEUES_MAX).contains(&queue_id) || header.commit_offset < 0 {
        return Err(Refusal::invalid(format!(
            "queueId {queue_id} must be 0 to {QUEUES_MAX}, offset {} must not be negative",
            header.commit_offset
        )));
    }
    if broker.offsets.has_reset(group, topic, queue_id) {
        let remark = "Offset has been previously reset".to_owned();
        return Ok(RemotingCommand::response(ResponseCode::SUCCESS, Some(remark)).into());
    }
    broker.offsets.commit(group, topic, queue_id, header.commit_offset);
    success()
}

pub(crate) fn max(broker: &Broker, request: &RemotingCommand) -> Answer {
    let header: QueueOffsetRequestHeader = request.header()?;
    let offset = broker.store.max_offset(&header.topic, header.queue_id);
    with_header(&OffsetResponseHeader { offset })
}

pub(crate) fn min(broker: &Broker, request: &RemotingCommand) -> Answer {
    let header: QueueOffsetRequestHeader = request.header()?;
    let offset = broker.store.min_offset(&header.topic, header.queue_id);
    with_header(&OffsetResponseHeader { offset })
}

pub(crate) async fn search(broker: &Arc<Broker>, request: &RemotingCommand) -> Answer {
    let header: SearchOffsetRequestHeader = request.header()?;
    let boundary = match &header.boundary_type {
        Some(name) if name.eq_ignore_ascii_case("upper") => Boundary::Upper,
        _ => Boundary::Lower,
    };
    let search = move |broker: &Broker| {
        let (topic, queue_id) = (&header.topic, header.queue_id);
        broker.store.search_offset(topic, queue_id, header.timestamp, boundary)
    };
    let offset = broker.blocking(search).await?;
    with_header(&OffsetResponseHeader { offset })
}

pub(crate) async fn earliest(broker: &Arc<Broker>, request: &RemotingCommand) -> Answer {
    let header: EarliestMsgStoreTimeRequestHeader = request.header()?;
    let look =
        move |broker: &Broker| broker.store.earliest_store_time(&header.topic, header.queue_id);
    let timestamp = broker.blocking(look).await?.unwrap_or(-1);
    with_header(&EarliestMsgStoreTimeResponseHeader { timestamp })
}

/// What slaves copy.
pub(crate) fn all(broker: &Broker) -> Answer {
    with_json(&broker.offsets.table())
}

/// What slaves copy.
pub(crate) fn all_delayed(broker: &Broker) -> Answer {
    with_json(&broker.schedule.table())
}
