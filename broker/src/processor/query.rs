//! Looking messages up.

use std::sync::Arc;

use protocol::body::{ConsumeQueueData, QueryConsumeQueueResponse};
use protocol::command::RemotingCommand;
use protocol::header::query::{
    QueryConsumeQueueRequestHeader, QueryMessageRequestHeader, QueryMessageResponseHeader,
    ViewMessageRequestHeader,
};
use protocol::message_codec;
use protocol::response_code::ResponseCode;
use protocol::{property, tag};
use remoting::Response;
use store::{AllMessages, GetRequest, QueryRequest};

use crate::broker::Broker;
use crate::processor::with_json;
use crate::refusal::{Answer, Refusal};

/// Bytes of messages in an answer to a query by key at most, unless it is one message: clients take
/// no frame above 16 MiB.
const MESSAGE_BYTES_MAX: usize = 15 << 20;
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

pub(crate) async fn by_key(broker: &Arc<Broker>, request: &RemotingCommand) -> Answer {
    let header: QueryMessageRequestHeader = request.header()?;
    let settings = broker.settings();
    if !settings.message_index_enable {
        let remark = "this broker keeps no index of message keys (messageIndexEnable is false): \
                      look the message up by its offset id";
        return Err(Refusal::error(remark));
    }
    let is_unique_key = is_unique_key(&header)?;
    let wanted = if is_unique_key { settings.default_query_max_num } else { header.max_num };
    let max_messages = usize::try_from(wanted.min(settings.max_msgs_num_batch)).unwrap_or_default();
    if max_messages == 0 {
        return Err(Refusal::invalid(format!("maxNum is {wanted}, but must be 1 or more")));
    }
    let found = broker
        .blocking(move |broker| {
            broker.store.query(&QueryRequest {
                topic: &header.topic,
                key: &header.key,
                is_unique_key,
                begin: header.begin_timestamp,
                end: header.end_timestamp,
                max_messages,
                max_bytes: MESSAGE_BYTES_MAX,
            })
        })
        .await?;
    if found.records.is_empty() {
        let remark = "can not find message, maybe time range not correct";
        return Err(Refusal::new(ResponseCode::QUERY_NOT_FOUND, remark));
    }
    let header = QueryMessageResponseHeader {
        index_last_update_timestamp: found.last_timestamp,
        index_last_update_phyoffset: found.last_offset,
    };
    Ok(Response::with_parts(RemotingCommand::success_with(&header), found.records))
}

/// Whether the key of a query is a unique message id. What Apache's index files cannot tell is
/// refused.
fn is_unique_key(header: &QueryMessageRequestHeader) -> Result<bool, Refusal> {
    if header.last_key.as_deref().is_some_and(|key| !key.is_empty()) {
        let remark = "lastKey is for an index in a RocksDB, but this broker has index files";
        return Err(Refusal::invalid(remark));
    }
    match header.index_type.as_deref() {
        _ if header.unique_key_query == Some(true) => Ok(true),
        Some("U") => Ok(true),
        None | Some("" | "K") => Ok(false),
        Some("T") => Err(Refusal::invalid("this broker has no index of tags")),
        Some(other) => Err(Refusal::invalid(format!(
            "indexType is `{other}`, but must be K for a key or U for a unique id"
        ))),
    }
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
