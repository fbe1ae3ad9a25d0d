//! `SEND_MESSAGE` in all its forms.

use std::sync::Arc;

use protocol::batch::{self, BatchMessage};
use protocol::command::RemotingCommand;
use protocol::header::send::{
    SendMessageRequestHeader, SendMessageRequestHeaderV2, SendMessageResponseHeader,
};
use protocol::message::Message;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use protocol::topic_config::{TopicConfig, TopicFilterType};
use protocol::{message_id, perm, property, sys_flag, topic_name};
use remoting::{Context, Response};
use store::{PutFuture, PutResult};

use crate::broker::Broker;
use crate::clock::now_ms;
use crate::config::{BrokerConfig, FlushDiskType};
use crate::metrics::Counted;
use crate::processor::send_properties::{Incoming, Rewrite};
use crate::refusal::{Answer, Refusal};
use crate::replication_driver::Admission;
use crate::throughput::Total;

/// Messages of a batch at most.
const BATCH_MESSAGES_MAX: usize = 65_536;
/// Longest topic of a batch in bytes.
const BATCH_TOPIC_BYTES_MAX: usize = 127;
/// First version whose `maxReconsumeTimes` counts (`V3_4_9`).
pub(super) const FIRST_VERSION_WITH_RECONSUME_LIMIT: i32 = 121;

/// Answers to a message that was stored, or why it was not.
pub(crate) async fn send(
    broker: &Arc<Broker>,
    context: &Context,
    request: &RemotingCommand,
) -> Answer {
    let settings = broker.settings();
    let mut response = match admitted(broker, context, request).await {
        Ok(response) => response,
        Err(refusal) => refusal.response(),
    };
    // Java's client reads these from every answer.
    response.ext_fields.insert(property::MSG_REGION, settings.region_id.clone());
    response.ext_fields.insert(property::TRACE_ON, settings.trace_on.to_string());
    Ok(Response::from(response))
}

/// Sends as the role of this broker allows at present.
async fn admitted(
    broker: &Arc<Broker>,
    context: &Context,
    request: &RemotingCommand,
) -> Result<RemotingCommand, Refusal> {
    match broker.role.admit().await {
        Admission::Accept => try_send(broker, context, request).await,
        Admission::Forward(master) => match &broker.replication {
            Some(replication) => replication.forward(&master, request).await,
            None => Err(Refusal::not_master()),
        },
        Admission::Refuse => Err(Refusal::not_master()),
    }
}

/// Half messages are refused, so there is no transaction to end.
pub(crate) fn end_transaction() -> Answer {
    Err(Refusal::error("transactions are not supported by this broker"))
}

async fn try_send(
    broker: &Arc<Broker>,
    context: &Context,
    request: &RemotingCommand,
) -> Result<RemotingCommand, Refusal> {
    let header: SendMessageRequestHeader = match request.request_code() {
        RequestCode::SEND_MESSAGE => request.header()?,
        _ => request.header::<SendMessageRequestHeaderV2>()?.0,
    };
    let settings = broker.settings();
    let topic = accepted_topic(broker, &header, &settings).await?;
    let queue_id = queue_of(&topic, header.queue_id)?;
    if request.body.is_empty() {
        return Err(illegal("the message has no body"));
    }
    if request.body.len() > settings.max_message_size {
        let (bytes, max) = (request.body.len(), settings.max_message_size);
        return Err(illegal(format!("message body of {bytes} bytes, maxMessageSize is {max}")));
    }
    let send = Send { broker, context, request, settings, topic, queue_id };
    if header.batch == Some(true) { send.batch(&header).await } else { send.single(&header).await }
}

fn illegal(remark: impl Into<String>) -> Refusal {
    Refusal::new(ResponseCode::MESSAGE_ILLEGAL, remark)
}

/// The checks before anything is looked at in the message itself, in Apache's order.
async fn accepted_topic(
    broker: &Arc<Broker>,
    header: &SendMessageRequestHeader,
    settings: &BrokerConfig,
) -> Result<Arc<TopicConfig>, Refusal> {
    broker.check_master()?;
    let start = settings.start_accept_send_request;
    if now_ms() < start {
        return Err(Refusal::error(format!("broker unable to service, until {start} ms")));
    }
    let topic = header.topic.as_str();
    if !perm::is_writable(settings.broker_permission) && broker.topics.is_order(topic) {
        let address = &broker.identity.address;
        return Err(Refusal::forbidden(format!(
            "the broker[{address}] sending message is forbidden"
        )));
    }
    topic_name::validate_topic(topic)?;
    if topic_name::is_closed_to_clients(topic) {
        return Err(Refusal::forbidden(format!("Sending message to topic[{topic}] is forbidden.")));
    }
    let found = broker.topics.for_send(
        topic,
        &header.default_topic,
        header.default_topic_queue_nums,
        settings,
    );
    match found {
        Some(found) if is_batch_queue(&found.config) => Err(Refusal::forbidden(format!(
            "topic[{topic}] has queue.type BatchCQ, which this broker cannot write"
        ))),
        Some(found) => Ok(broker.publish_if_new(found).await),
        None if topic_name::is_retry(topic) => broker.return_topic(topic.to_owned(), 1).await,
        None => Err(Refusal::no_topic(topic)),
    }
}

/// Such a topic can come from a table that Apache's broker has written.
fn is_batch_queue(topic: &TopicConfig) -> bool {
    topic.attributes.get("queue.type").is_some_and(|kind| kind == "BatchCQ")
}

/// The queue that was asked for, or any that may be written.
fn queue_of(topic: &TopicConfig, wanted: i32) -> Result<i32, Refusal> {
    let queues = topic.write_queue_nums.max(topic.read_queue_nums);
    if wanted >= queues {
        let name = &topic.topic_name;
        return Err(Refusal::invalid(format!(
            "request queueId[{wanted}] is illegal, topic {name} has {queues} queues"
        )));
    }
    if wanted >= 0 {
        return Ok(wanted);
    }
    if topic.write_queue_nums <= 0 {
        let name = &topic.topic_name;
        return Err(Refusal::invalid(format!("topic {name} has no queue that may be written")));
    }
    Ok(random_queue(topic.write_queue_nums))
}

pub(super) fn random_queue(queues: i32) -> i32 {
    rand::random_range(0..queues.max(1))
}

/// A message that passed the first checks.
struct Send<'a> {
    broker: &'a Arc<Broker>,
    context: &'a Context,
    request: &'a RemotingCommand,
    settings: Arc<BrokerConfig>,
    topic: Arc<TopicConfig>,
    queue_id: i32,
}

impl Send<'_> {
    async fn single(self, header: &SendMessageRequestHeader) -> Result<RemotingCommand, Refusal> {
        let identity = &self.broker.identity;
        let given = header.properties.as_deref().unwrap_or_default();
        let incoming = Incoming::read(given)?;
        check_supported(&incoming, header.sys_flag)?;
        let mut topic = Arc::clone(&self.topic);
        let mut queue_id = self.queue_id;
        let mut delay_level = incoming.delay_level;
        if topic_name::is_retry(&topic.topic_name)
            && let Some(dead) = self.dead_letter_topic(header).await?
        {
            (topic, queue_id, delay_level) = (dead, 0, 0);
        }
        let mut rewrite = Rewrite::new(&self.settings, identity, &incoming);
        let stored_topic = if delay_level > 0 {
            let level = delay_level.min(self.broker.schedule.levels().max_level());
            rewrite.delay(level, &topic.topic_name, queue_id);
            queue_id = level - 1;
            topic_name::SCHEDULE_TOPIC
        } else {
            topic.topic_name.as_str()
        };
        let (properties, unique_key) = rewrite.finish(given);
        let message = Message {
            topic: stored_topic,
            queue_id,
            flag: header.flag,
            sys_flag: with_filter_type(header.sys_flag, &topic),
            born_timestamp: header.born_timestamp,
            born_host: self.context.channel.remote_addr(),
            store_host: identity.store_host,
            reconsume_times: header.reconsume_times.unwrap_or_default(),
            prepared_transaction_offset: 0,
            body: &self.request.body,
            properties: &properties,
        };
        self.broker.ha.slaves.check()?;
        let put = self.broker.enqueue(std::slice::from_ref(&message));
        let (result, code) =
            stored((self.broker, &self.settings), put, !incoming.is_unwaited).await?;
        self.count(&topic.topic_name, 1, &result, incoming.message_type());
        Ok(self.stored_response(&result, code, queue_id, Some(unique_key)))
    }

    async fn batch(self, header: &SendMessageRequestHeader) -> Result<RemotingCommand, Refusal> {
        let topic = self.topic.topic_name.as_str();
        if topic.len() > BATCH_TOPIC_BYTES_MAX {
            let length = topic.len();
            return Err(illegal(format!(
                "topic of a batch has {length} bytes, at most 127 can be"
            )));
        }
        if topic_name::is_retry(topic) {
            return Err(illegal(format!("batch request does not support retry group {topic}")));
        }
        let given = header.properties.as_deref().unwrap_or_default();
        let incoming = Incoming::read(given)?;
        check_supported(&incoming, header.sys_flag)?;
        if incoming.delay_level > 0 {
            return Err(illegal("a batch cannot be delayed"));
        }
        let identity = &self.broker.identity;
        let parts = batch::decode_batch(&self.request.body, BATCH_MESSAGES_MAX)
            .map_err(|error| illegal(error.to_string()))?;
        // As sent: anything added here would become the same property of every message.
        let joined = join_properties(&parts, given)?;
        let messages: Vec<Message<'_>> = parts
            .iter()
            .zip(&joined)
            .map(|(part, properties)| Message {
                topic,
                queue_id: self.queue_id,
                flag: part.flag,
                sys_flag: with_filter_type(header.sys_flag, &self.topic),
                born_timestamp: header.born_timestamp,
                born_host: self.context.channel.remote_addr(),
                store_host: identity.store_host,
                reconsume_times: header.reconsume_times.unwrap_or_default(),
                prepared_transaction_offset: 0,
                body: part.body,
                properties,
            })
            .collect();
        self.broker.ha.slaves.check()?;
        let put = self.broker.enqueue(&messages);
        let (result, code) =
            stored((self.broker, &self.settings), put, !incoming.is_unwaited).await?;
        self.count(topic, messages.len(), &result, incoming.message_type());
        let unique_key = incoming.unique_key.map(str::to_owned);
        Ok(self.stored_response(&result, code, self.queue_id, unique_key))
    }

    /// For a message that goes back to its group: the dead letter topic when it was consumed in
    /// vain too often, or the group consumes in order and so has tried it on the spot.
    async fn dead_letter_topic(
        &self,
        header: &SendMessageRequestHeader,
    ) -> Result<Option<Arc<TopicConfig>>, Refusal> {
        let topic = &self.topic.topic_name;
        let group = topic.strip_prefix(topic_name::RETRY_PREFIX).unwrap_or_default();
        let config = self.broker.group(group).await?;
        let limit = match header.max_reconsume_times {
            Some(limit) if self.request.version >= FIRST_VERSION_WITH_RECONSUME_LIMIT => limit,
            _ => config.retry_max_times,
        };
        let is_dead = header.reconsume_times.unwrap_or_default() > limit
            || self.broker.locks.is_any_held(group);
        if !is_dead {
            return Ok(None);
        }
        let dead = self.broker.return_topic(topic_name::dlq_topic(group), 1).await?;
        let counted = Counted { topic, messages: 1, bytes: 0, is_system: false };
        self.broker.metrics.dead_letter(&counted, group);
        Ok(Some(dead))
    }

    fn count(&self, topic: &str, messages: usize, result: &PutResult, kind: &'static str) {
        count_stored(self.broker, topic, messages, result.record_bytes, kind);
    }

    fn stored_response(
        &self,
        result: &PutResult,
        code: ResponseCode,
        queue_id: i32,
        transaction_id: Option<String>,
    ) -> RemotingCommand {
        let host = self.broker.identity.store_host;
        let ids: Vec<String> = result
            .physical_offsets()
            .map(|offset| message_id::offset_message_id(host, offset))
            .collect();
        let header = SendMessageResponseHeader {
            msg_id: ids.join(","),
            queue_id,
            queue_offset: result.queue_offset,
            transaction_id,
            ..SendMessageResponseHeader::default()
        };
        RemotingCommand::response(code, None).with_header(&header)
    }
}

/// Counts messages that were stored.
pub(super) fn count_stored(
    broker: &Broker,
    topic: &str,
    messages: usize,
    bytes: usize,
    kind: &'static str,
) {
    let is_system = broker.topics.is_system(topic);
    broker.metrics.stored(&Counted { topic, messages, bytes, is_system }, kind);
    broker.throughput.add(Total::Put, messages);
    broker.throughput.add(Total::PutBytes, bytes);
    broker.throughput.topics.add(topic, messages);
}

/// Each message of a batch has its own properties and those of the batch.
fn join_properties(parts: &[BatchMessage<'_>], shared: &str) -> Result<Vec<String>, Refusal> {
    let joined = parts.iter().map(|part| {
        let joined = property::join(part.properties, shared);
        if joined.len() > property::LENGTH_MAX {
            let length = joined.len();
            return Err(illegal(format!("properties of a message have {length} bytes")));
        }
        Ok(joined)
    });
    joined.collect()
}

fn with_filter_type(flags: i32, topic: &TopicConfig) -> i32 {
    match topic.topic_filter_type {
        TopicFilterType::MultiTag => flags | sys_flag::MULTI_TAGS,
        TopicFilterType::SingleTag => flags,
    }
}

/// Refuses what this version cannot keep its promise for.
fn check_supported(incoming: &Incoming<'_>, flags: i32) -> Result<(), Refusal> {
    if incoming.is_half || sys_flag::transaction(flags) != 0 {
        return Err(Refusal::forbidden(
            "sending transaction message is forbidden: this broker has no transactions",
        ));
    }
    if incoming.is_timed && incoming.delay_level <= 0 {
        return Err(Refusal::error(
            "accurate timer message is not enabled: this broker has delay levels only",
        ));
    }
    Ok(())
}

/// Waits until a message is stored. When only its flush or the slaves are late, or there are too
/// few slaves, the code says so.
pub(super) async fn stored(
    (broker, settings): (&Broker, &BrokerConfig),
    mut put: PutFuture,
    is_waiting: bool,
) -> Result<(PutResult, ResponseCode), Refusal> {
    let slaves = &broker.ha.slaves;
    let is_replicated = slaves.is_sync() || broker.replication.is_some();
    let timeout = if is_replicated && is_waiting {
        settings.slave_timeout
    } else {
        settings.sync_flush_timeout
    };
    match tokio::time::timeout(timeout, &mut put).await {
        Ok(outcome) => {
            let result = outcome?;
            let code = if is_waiting { slaves.code(result.end()) } else { ResponseCode::SUCCESS };
            Ok((result, code))
        }
        Err(_) => match put.appended() {
            Some(result) => {
                let is_flushed = settings.flush_disk_type == FlushDiskType::Async
                    || broker.store.log_flushed() >= result.end();
                let late = if is_flushed {
                    ResponseCode::FLUSH_SLAVE_TIMEOUT
                } else {
                    ResponseCode::FLUSH_DISK_TIMEOUT
                };
                Ok((result, late))
            }
            None => Err(Refusal::new(
                ResponseCode::SYSTEM_BUSY,
                format!("[TIMEOUT_CLEAN_QUEUE]broker busy: not written within {timeout:?}"),
            )),
        },
    }
}
