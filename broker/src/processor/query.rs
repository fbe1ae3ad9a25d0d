//! Looking messages up.

use std::sync::Arc;

use protocol::body::{ConsumeQueueData, QueryConsumeQueueResponse};
use protocol::command::RemotingCommand;
use protocol::header::query::{QueryConsumeQueueRequestHeader, ViewMessageRequestHeader};
use protocol::message_codec;
use protocol::{property, tag};
use store::{AllMessages, GetRequest};

use crate::broker::Broker;
use crate::processor::with_json;
use crate::refusal::{Answer, Refusal};

/// Units of a consume queue in one answer at most.
const UNITS_MAX: i32 = 1_000;
/// Bytes of messages read for an answer about a consume queue.
const UNIT_BYTES_MAX: usize = 8 << 20;

pub(crate) async fn view(broker: &Arc<Broker>, request: &RemotingCommand) -> Answer {
    let header: ViewMessageRequestHeader = request.header()?;
    let offset = header.offset;
    let record = broker.blocking(move |broker| broker.store.look_up(offset)).await?;
    let record = record
        .ok_or_else(|| Refusal::error(format!("can not find message by the offset, {offset}")))?;
    Ok(RemotingCommand::success().with_body(record).into())
}

/// There is no index to ask.
pub(crate) fn by_key() -> Answer {
    Err(Refusal::error(
        "this broker keeps no index of message keys: look the message up by its offset id",
    ))
}

pub(crate) async fn consume_queue(broker: &Arc<Broker>, request: &RemotingCommand) -> Answer {
    let header: QueryConsumeQueueRequestHeader = request.header()?;
    broker.topic(&header.topic)?;
    if header.queue_id < 0 || header.index < 0 || header.count < 1 {
        return Err(Refusal::invalid("queueId and index must be 0 or more, count 1 or more"));
    }
    let body = broker.blocking(move |broker| units(broker, &header)).await?;
    with_json(&body)
}

fn units(
    broker: &Broker,
    header: &QueryConsumeQueueRequestHeader,
) -> Result<QueryConsumeQueueResponse, store::ReadError> {
    let (topic, queue_id) = (header.topic.as_str(), header.queue_id);
    let mut body = QueryConsumeQueueResponse {
        max_queue_index: broker.store.max_offset(topic, queue_id),
        min_queue_index: broker.store.min_offset(topic, queue_id),
        queue_data: Vec::new(),
    };
    let wanted = usize::try_from(header.count.min(UNITS_MAX)).unwrap_or_default();
    let mut offset = header.index.max(body.min_queue_index);
    while body.queue_data.len() < wanted && offset < body.max_queue_index {
        let max_messages = wanted - body.queue_data.len();
        let request =
            GetRequest { topic, queue_id, offset, max_messages, max_bytes: UNIT_BYTES_MAX };
        let result = broker.store.get(&request, &AllMessages)?;
        if result.next_begin_offset <= offset {
            break;
        }
        offset = result.next_begin_offset;
        let records = result.records();
        body.queue_data.extend(records.filter_map(|record| {
            let view = message_codec::decode_record(&record).ok()?;
            Some(ConsumeQueueData {
                eval: true,
                physic_offset: view.physical_offset,
                physic_size: i32::try_from(view.bytes.len()).ok()?,
                tags_code: tag::tags_code(view.property(property::TAGS)),
            })
        }));
    }
    Ok(body)
}
