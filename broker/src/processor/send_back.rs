//! `CONSUMER_SEND_MSG_BACK`: a message that could not be consumed comes again later, or becomes a
//! dead letter.

use std::sync::Arc;

use protocol::command::RemotingCommand;
use protocol::header::send::ConsumerSendMsgBackRequestHeader;
use protocol::message::Message;
use protocol::message_codec::{self, RecordView};
use protocol::response_code::ResponseCode;
use protocol::subscription::SubscriptionGroupConfig;
use protocol::{message_id, perm, property, topic_name};

use crate::broker::Broker;
use crate::metrics::Counted;
use crate::processor::send::{self, FIRST_VERSION_WITH_RECONSUME_LIMIT};
use crate::processor::success;
use crate::refusal::{Answer, Refusal};

/// Added to the number of earlier tries for the delay level of the next.
const FIRST_DELAY_LEVEL: i32 = 3;

/// Where a message goes that comes back.
struct Destination {
    topic: String,
    queue_id: i32,
    /// 0: at once.
    delay_level: i32,
    is_dead: bool,
}

pub(crate) async fn send_back(broker: &Arc<Broker>, request: &RemotingCommand) -> Answer {
    let header: ConsumerSendMsgBackRequestHeader = request.header()?;
    broker.check_master()?;
    let settings = broker.settings();
    let group = broker.group(&header.group).await?;
    if !perm::is_writable(settings.broker_permission) {
        let address = &broker.identity.address;
        let remark = format!("the broker[{address}] sending message is forbidden");
        return Err(Refusal::forbidden(remark));
    }
    if group.retry_queue_nums <= 0 {
        return success();
    }
    let offset = header.offset;
    let record = broker.blocking(move |broker| broker.store.look_up(offset)).await?;
    let record =
        record.ok_or_else(|| Refusal::error(format!("look message by offset failed, {offset}")))?;
    let view = message_codec::decode_record(&record)
        .map_err(|error| Refusal::error(format!("message at {offset} is damaged: {error}")))?;
    let destination = destination(broker, request, (&header, &group), &view).await?;
    let put = put(broker, &view, &destination)?;
    let (result, code) = send::stored((broker, &settings), put, true).await?;
    // Without a slave it is stored nevertheless; sent again it would come twice.
    if !matches!(code, ResponseCode::SUCCESS | ResponseCode::SLAVE_NOT_AVAILABLE) {
        return Err(Refusal::error(code.name().unwrap_or_default()));
    }
    let kind = if destination.delay_level > 0 { "delay" } else { "normal" };
    send::count_stored(broker, &destination.topic, 1, result.record_bytes, kind);
    if destination.is_dead {
        let topic = view.property(property::RETRY_TOPIC).unwrap_or(view.topic);
        let counted = Counted { topic, messages: 1, bytes: 0, is_system: false };
        broker.metrics.dead_letter(&counted, &header.group);
    }
    success()
}

async fn destination(
    broker: &Arc<Broker>,
    request: &RemotingCommand,
    (header, group): (&ConsumerSendMsgBackRequestHeader, &SubscriptionGroupConfig),
    view: &RecordView<'_>,
) -> Result<Destination, Refusal> {
    let limit = match header.max_reconsume_times {
        Some(limit) if request.version >= FIRST_VERSION_WITH_RECONSUME_LIMIT => limit,
        _ => group.retry_max_times,
    };
    let is_dead = view.reconsume_times >= limit || header.delay_level < 0;
    if is_dead {
        let topic = broker.return_topic(topic_name::dlq_topic(&header.group), 1).await?;
        let topic = topic.topic_name.clone();
        return Ok(Destination { topic, queue_id: 0, delay_level: 0, is_dead });
    }
    let retry = topic_name::retry_topic(&header.group);
    let topic = broker.return_topic(retry, group.retry_queue_nums).await?;
    if !perm::is_writable(topic.perm) {
        let name = &topic.topic_name;
        return Err(Refusal::forbidden(format!("the topic[{name}] sending message is forbidden")));
    }
    let delay_level = match header.delay_level {
        0 => FIRST_DELAY_LEVEL.saturating_add(view.reconsume_times),
        level => level,
    };
    Ok(Destination {
        topic: topic.topic_name.clone(),
        queue_id: send::random_queue(group.retry_queue_nums),
        delay_level: delay_level.min(broker.schedule.levels().max_level()),
        is_dead,
    })
}

fn put(
    broker: &Broker,
    view: &RecordView<'_>,
    destination: &Destination,
) -> Result<store::PutFuture, Refusal> {
    let damaged =
        |error: message_codec::RecordError| Refusal::error(format!("message is damaged: {error}"));
    let identity = &broker.identity;
    let properties = properties(view, destination).map_err(damaged)?;
    let is_delayed = destination.delay_level > 0;
    let message = Message {
        topic: if is_delayed { topic_name::SCHEDULE_TOPIC } else { &destination.topic },
        queue_id: if is_delayed { destination.delay_level - 1 } else { destination.queue_id },
        flag: view.flag,
        sys_flag: view.sys_flag,
        born_timestamp: view.born_timestamp,
        born_host: view.born_host().map_err(damaged)?,
        store_host: identity.store_host,
        reconsume_times: view.reconsume_times.saturating_add(1),
        prepared_transaction_offset: 0,
        body: view.body,
        properties: &properties,
    };
    Ok(broker.put(&message))
}

/// The properties of the message as it comes again: those it had, the topic and the id that it had
/// at first, and where it goes after the delay.
fn properties(
    view: &RecordView<'_>,
    destination: &Destination,
) -> Result<String, message_codec::RecordError> {
    let given = view.properties();
    let origin_id = match property::get(given, property::ORIGIN_MESSAGE_ID) {
        Some(id) => id.to_owned(),
        None => message_id::offset_message_id(view.store_host()?, view.physical_offset),
    };
    let retry_topic = property::get(given, property::RETRY_TOPIC).unwrap_or(view.topic).to_owned();
    let rewritten = [
        // The consumer counts on the answer, so the message is as safe as any other.
        property::WAIT,
        property::DELAY,
        property::REAL_TOPIC,
        property::REAL_QUEUE_ID,
        property::RETRY_TOPIC,
        property::ORIGIN_MESSAGE_ID,
    ];
    let kept = property::entries(given).filter(|(name, _)| !rewritten.contains(name));
    let mut text = property::encode(kept);
    property::append(&mut text, property::RETRY_TOPIC, &retry_topic);
    property::append(&mut text, property::ORIGIN_MESSAGE_ID, &origin_id);
    property::append(&mut text, property::DELAY, &destination.delay_level.to_string());
    if destination.delay_level > 0 {
        property::append(&mut text, property::REAL_TOPIC, &destination.topic);
        let queue_id = destination.queue_id.to_string();
        property::append(&mut text, property::REAL_QUEUE_ID, &queue_id);
    }
    Ok(text)
}
