//! Sends messages.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use protocol::batch::{self, BatchMessage};
use protocol::body::MessageQueue;
use protocol::command::{RemotingCommand, SerializeType};
use protocol::header::send::{
    SendMessageRequestHeader, SendMessageRequestHeaderV2, SendMessageResponseHeader,
};
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use protocol::topic_name::{AUTO_CREATE_TOPIC, is_retry};
use protocol::{message, property, sys_flag, tag, topic_name};
use remoting::RemotingError;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::fault::FaultTable;
use crate::instance::read_header;
use crate::{
    ClientError, ClientInstance, Message, MessageRefused, ProducerConfig, SendError, TopicRoute,
};

/// Refusals after which another broker may do better.
const RETRIED: [ResponseCode; 8] = [
    ResponseCode::TOPIC_NOT_EXIST,
    ResponseCode::SERVICE_NOT_AVAILABLE,
    ResponseCode::SYSTEM_ERROR,
    ResponseCode::SYSTEM_BUSY,
    ResponseCode::NO_PERMISSION,
    ResponseCode::NO_BUYER_ID,
    ResponseCode::NOT_IN_CURRENT_UNIT,
    ResponseCode::GO_AWAY,
];

/// How safely a message was stored. It was stored in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendStatus {
    /// As safely as the broker is set to store it.
    SendOk,
    /// Not flushed to disk in time.
    FlushDiskTimeout,
    /// Not copied to a slave in time.
    FlushSlaveTimeout,
    /// There was no slave to copy it to.
    SlaveNotAvailable,
}

impl SendStatus {
    fn from_code(code: ResponseCode) -> Option<Self> {
        match code {
            ResponseCode::SUCCESS => Some(Self::SendOk),
            ResponseCode::FLUSH_DISK_TIMEOUT => Some(Self::FlushDiskTimeout),
            ResponseCode::FLUSH_SLAVE_TIMEOUT => Some(Self::FlushSlaveTimeout),
            ResponseCode::SLAVE_NOT_AVAILABLE => Some(Self::SlaveNotAvailable),
            _ => None,
        }
    }

    /// Java's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::SendOk => "SEND_OK",
            Self::FlushDiskTimeout => "FLUSH_DISK_TIMEOUT",
            Self::FlushSlaveTimeout => "FLUSH_SLAVE_TIMEOUT",
            Self::SlaveNotAvailable => "SLAVE_NOT_AVAILABLE",
        }
    }
}

/// Where a message was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendResult {
    /// How safely.
    pub status: SendStatus,
    /// The id that users see; of a batch, one for each message, joined by commas.
    pub msg_id: String,
    /// The id that says where it is; of a batch, one for each message, joined by commas.
    pub offset_msg_id: String,
    /// The queue.
    pub queue: MessageQueue,
    /// Offset in the queue; of a batch, of its first message.
    pub queue_offset: i64,
}

/// Sends messages of one group. All calls may be made concurrently; waiting for none of several
/// futures before the next is made is what other clients call asynchronous sending.
pub struct Producer {
    instance: ClientInstance,
    config: ProducerConfig,
    faults: FaultTable,
    in_flight: Semaphore,
}

/// A message or batch that is ready to be sent, as often as it takes.
struct Prepared {
    code: RequestCode,
    topic: String,
    body: Bytes,
    properties: String,
    flag: i32,
    sys_flag: i32,
    msg_id: String,
    /// For a message to a retry topic: times consumed, and the limit.
    reconsume: Option<(i32, i32)>,
}

/// How the queue is chosen.
#[derive(Clone, Copy)]
enum Choice<'a> {
    InTurn,
    Key(&'a str),
    Queue(&'a MessageQueue),
}

impl Producer {
    /// Starts a producer on an instance.
    ///
    /// # Errors
    /// When the group is not well named.
    pub fn start(instance: &ClientInstance, config: ProducerConfig) -> Result<Self, SendError> {
        topic_name::validate_group(&config.group).map_err(MessageRefused::Topic)?;
        instance.join_producer(&config.group);
        let in_flight = Semaphore::new(config.in_flight_max.clamp(1, Semaphore::MAX_PERMITS));
        Ok(Self { instance: instance.clone(), config, faults: FaultTable::default(), in_flight })
    }

    /// Sends a message to the next queue in turn. If that fails, tries another broker, within the
    /// time and number of attempts that are set.
    ///
    /// # Errors
    /// When the message cannot be sent, or no attempt was answered with success.
    pub async fn send(&self, message: &Message) -> Result<SendResult, SendError> {
        self.deliver(self.prepare(message)?, Choice::InTurn).await
    }

    /// Sends a message to the queue that belongs to a key: messages with the same key go to the
    /// same queue while the queues of the topic stay the same. Tried once, since a second attempt
    /// could overtake a later message or go elsewhere.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub async fn send_by_key(&self, message: &Message, key: &str) -> Result<SendResult, SendError> {
        self.deliver(self.prepare(message)?, Choice::Key(key)).await
    }

    /// Sends a message to this queue, once.
    ///
    /// # Errors
    /// As [`Self::send`], and when the topic has no such queue.
    pub async fn send_to_queue(
        &self,
        message: &Message,
        queue: &MessageQueue,
    ) -> Result<SendResult, SendError> {
        self.deliver(self.prepare(message)?, Choice::Queue(queue)).await
    }

    /// Sends messages of one topic in one request. They go to one queue, one after the other.
    ///
    /// # Errors
    /// As [`Self::send`], and when they cannot be in one batch.
    pub async fn send_batch(&self, messages: &[Message]) -> Result<SendResult, SendError> {
        self.deliver(self.prepare_batch(messages)?, Choice::InTurn).await
    }

    /// Sends a message and does not wait to hear whether it was stored. The next queue in turn is
    /// taken.
    ///
    /// # Errors
    /// When it cannot be sent. No error does not mean that it was stored.
    pub async fn send_oneway(&self, message: &Message) -> Result<(), SendError> {
        let prepared = self.prepare(message)?;
        let _permit = self.admit().await?;
        let route = self.route(&prepared.topic).await?;
        let queue = self.choose(&route, &prepared.topic, Choice::InTurn, None)?;
        let addr = self.master(&queue)?;
        Ok(self.instance.oneway(&addr, self.request(&prepared, &queue)).await?)
    }

    /// Sends a message that a consumer failed at to its retry topic.
    pub(crate) async fn send_to_retry_topic(
        &self,
        message: RetryMessage<'_>,
    ) -> Result<SendResult, SendError> {
        let prepared = Prepared {
            code: RequestCode::SEND_MESSAGE_V2,
            topic: message.topic.to_owned(),
            body: message.body.clone(),
            properties: message.properties,
            flag: message.flag,
            sys_flag: 0,
            msg_id: message.msg_id.to_owned(),
            reconsume: Some((message.reconsume_times, message.max_reconsume_times)),
        };
        self.deliver(prepared, Choice::InTurn).await
    }

    /// Tells the brokers that this producer leaves.
    pub async fn shutdown(&self) {
        self.instance.leave_producer(&self.config.group).await;
    }

    fn prepare(&self, message: &Message) -> Result<Prepared, MessageRefused> {
        message.validate(self.config.message_bytes_max)?;
        let msg_id = self.instance.next_message_id();
        let (body, sys_flag) = self.compress(&message.body);
        Ok(Prepared {
            code: RequestCode::SEND_MESSAGE_V2,
            topic: message.topic.clone(),
            body,
            properties: message.properties_string(&msg_id)?,
            flag: message.flag,
            sys_flag,
            msg_id,
            reconsume: None,
        })
    }

    fn compress(&self, body: &Bytes) -> (Bytes, i32) {
        if body.len() < self.config.compress_over_bytes {
            return (body.clone(), 0);
        }
        match message::compress(body, self.config.compress_level.min(9)) {
            Ok(packed) => (packed.into(), sys_flag::COMPRESSED | sys_flag::COMPRESSION_ZLIB),
            Err(error) => {
                tracing::warn!(%error, "a body is sent as it is, for it cannot be compressed");
                (body.clone(), 0)
            }
        }
    }

    fn prepare_batch(&self, messages: &[Message]) -> Result<Prepared, MessageRefused> {
        let first = messages.first().ok_or(MessageRefused::EmptyBatch)?;
        let mut ids = Vec::with_capacity(messages.len());
        let mut properties = Vec::with_capacity(messages.len());
        for message in messages {
            message.validate(self.config.message_bytes_max)?;
            if message.topic != first.topic {
                let (first, other) = (first.topic.clone(), message.topic.clone());
                return Err(MessageRefused::BatchTopics { first, other });
            }
            if message.delay_level.is_some() || is_retry(&message.topic) {
                return Err(MessageRefused::BatchKind);
            }
            if message.no_wait != first.no_wait {
                return Err(MessageRefused::BatchWait);
            }
            let id = self.instance.next_message_id();
            properties.push(message.properties_string(&id)?);
            ids.push(id);
        }
        let parts = messages.iter().zip(&properties).map(|(message, properties)| BatchMessage {
            flag: message.flag,
            body: &message.body,
            properties,
        });
        let limit = self.config.message_bytes_max;
        let mut body = BytesMut::new();
        let written = batch::encode_batch(parts, &mut body);
        if written.is_err() || body.len() > limit {
            return Err(MessageRefused::TooLarge { bytes: body.len(), limit });
        }
        let mut properties = String::new();
        if first.no_wait {
            property::append(&mut properties, property::WAIT, "false");
        }
        Ok(Prepared {
            code: RequestCode::SEND_BATCH_MESSAGE,
            topic: first.topic.clone(),
            body: body.freeze(),
            properties,
            flag: first.flag,
            sys_flag: 0,
            msg_id: ids.join(","),
            reconsume: None,
        })
    }

    async fn admit(&self) -> Result<tokio::sync::SemaphorePermit<'_>, SendError> {
        if let Ok(permit) = self.in_flight.try_acquire() {
            return Ok(permit);
        }
        let timeout = self.config.send_timeout;
        let permit = tokio::time::timeout(timeout, self.in_flight.acquire()).await;
        let waiting = self.config.in_flight_max;
        let permit = permit.map_err(|_| SendError::TooManyInFlight { timeout, waiting })?;
        Ok(permit.expect("the semaphore is never closed"))
    }

    async fn deliver(
        &self,
        prepared: Prepared,
        choice: Choice<'_>,
    ) -> Result<SendResult, SendError> {
        let began = Instant::now();
        let deadline = began + self.config.send_timeout;
        let _permit = self.admit().await?;
        let attempts_max = match choice {
            Choice::InTurn => 1 + self.config.retries,
            Choice::Key(_) | Choice::Queue(_) => 1,
        };
        let mut attempts = 0;
        let mut counted = 0;
        let mut failed_at: Option<String> = None;
        loop {
            let route = self.route(&prepared.topic).await?;
            let queue = self.choose(&route, &prepared.topic, choice, failed_at.as_deref())?;
            // A second failure in a row is not only that of one broker.
            if attempts > 1 || failed_at.as_ref() == Some(&queue.broker_name) {
                tokio::time::sleep_until(deadline.min(Instant::now() + self.config.retry_pause))
                    .await;
            }
            attempts += 1;
            let outcome = self.attempt(&prepared, &queue, deadline).await;
            counted += u32::from(!outcome.as_ref().is_err_and(is_unsent));
            let is_last = counted >= attempts_max || Instant::now() >= deadline;
            match outcome {
                Ok(result) => {
                    let retry = self.config.retry_when_not_store_ok;
                    if is_last || !retry || result.status == SendStatus::SendOk {
                        return Ok(result);
                    }
                }
                Err(error) if is_last || !is_retried(&error) => {
                    let elapsed = began.elapsed();
                    return Err(SendError::Failed { attempts, elapsed, last: Box::new(error) });
                }
                Err(error) => {
                    tracing::debug!(%error, topic = prepared.topic, "a send is tried again");
                }
            }
            failed_at = Some(queue.broker_name);
        }
    }

    /// One attempt, which is remembered for or against the broker.
    async fn attempt(
        &self,
        prepared: &Prepared,
        queue: &MessageQueue,
        deadline: Instant,
    ) -> Result<SendResult, ClientError> {
        let began = Instant::now();
        let left = deadline.saturating_duration_since(began);
        let outcome = self.exchange(prepared, queue, left.min(self.config.attempt_timeout)).await;
        match &outcome {
            Ok(_) if self.config.avoid_slow_brokers => {
                self.faults.answered(&queue.broker_name, began.elapsed());
            }
            Err(error) if is_retried(error) => {
                if self.config.avoid_slow_brokers {
                    self.faults.failed(&queue.broker_name);
                }
                self.instance.refresh_routes_soon();
            }
            _ => {}
        }
        outcome
    }

    async fn exchange(
        &self,
        prepared: &Prepared,
        queue: &MessageQueue,
        timeout: Duration,
    ) -> Result<SendResult, ClientError> {
        let addr = self.master(queue)?;
        let request = self.request(prepared, queue);
        let response = self.instance.invoke(&addr, request, timeout).await?;
        let code = response.response_code();
        let Some(status) = SendStatus::from_code(code) else {
            let remark = response.remark.unwrap_or_default();
            return Err(ClientError::Refused { addr, request: prepared.code, code, remark });
        };
        let header: SendMessageResponseHeader = read_header(&addr, prepared.code, &response)?;
        let queue = MessageQueue { queue_id: header.queue_id, ..queue.clone() };
        Ok(SendResult {
            status,
            msg_id: prepared.msg_id.clone(),
            offset_msg_id: header.msg_id,
            queue,
            queue_offset: header.queue_offset,
        })
    }

    async fn route(&self, topic: &str) -> Result<std::sync::Arc<TopicRoute>, ClientError> {
        let queue_nums = self.config.default_topic_queue_nums;
        self.instance.route_or_default(topic, Some(queue_nums)).await
    }

    fn master(&self, queue: &MessageQueue) -> Result<String, ClientError> {
        let broker = &queue.broker_name;
        let master = self.instance.routes().master(broker);
        master.ok_or_else(|| ClientError::NoMaster { broker: broker.clone() })
    }

    fn choose(
        &self,
        route: &TopicRoute,
        topic: &str,
        choice: Choice<'_>,
        failed_at: Option<&str>,
    ) -> Result<MessageQueue, SendError> {
        let queues = &route.write_queues;
        let queue = match choice {
            Choice::InTurn => self.faults.pick(queues, route.turn(), failed_at),
            Choice::Key(key) => key_index(key, queues.len()).and_then(|index| queues.get(index)),
            Choice::Queue(queue) if queues.is_empty() || queues.contains(queue) => {
                queues.iter().find(|other| *other == queue)
            }
            Choice::Queue(queue) => {
                return Err(SendError::NoSuchQueue {
                    topic: topic.to_owned(),
                    broker: queue.broker_name.clone(),
                    queue_id: queue.queue_id,
                });
            }
        };
        queue.cloned().ok_or_else(|| SendError::NoWritableQueue { topic: topic.to_owned() })
    }

    fn request(&self, prepared: &Prepared, queue: &MessageQueue) -> RemotingCommand {
        let header = SendMessageRequestHeader {
            producer_group: self.config.group.clone(),
            topic: prepared.topic.clone(),
            default_topic: AUTO_CREATE_TOPIC.to_owned(),
            default_topic_queue_nums: self.config.default_topic_queue_nums,
            queue_id: queue.queue_id,
            sys_flag: prepared.sys_flag,
            born_timestamp: crate::epoch_millis(),
            flag: prepared.flag,
            properties: Some(prepared.properties.clone()),
            reconsume_times: Some(prepared.reconsume.map_or(0, |(times, _)| times)),
            unit_mode: Some(false),
            max_reconsume_times: prepared.reconsume.map(|(_, max)| max),
            batch: Some(prepared.code == RequestCode::SEND_BATCH_MESSAGE),
            broker_name: Some(queue.broker_name.clone()),
        };
        RemotingCommand {
            // Every broker reads the compact form, which costs both sides half as much as JSON.
            serialize_type: SerializeType::RocketMq,
            body: prepared.body.clone(),
            ..RemotingCommand::request(prepared.code, &SendMessageRequestHeaderV2(header))
        }
    }
}

/// A message on its way to a retry topic.
pub(crate) struct RetryMessage<'a> {
    pub(crate) topic: &'a str,
    pub(crate) body: &'a Bytes,
    pub(crate) properties: String,
    pub(crate) flag: i32,
    pub(crate) msg_id: &'a str,
    pub(crate) reconsume_times: i32,
    pub(crate) max_reconsume_times: i32,
}

/// Whether nothing was sent at all. Such an attempt can be repeated without harm, for instance
/// while a broker restarts, so that only the time limits their number.
fn is_unsent(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::NoMaster { .. }
            | ClientError::Remoting(
                RemotingError::Connect { .. } | RemotingError::ConnectTimeout { .. }
            )
    )
}

/// Whether another broker may do better.
fn is_retried(error: &ClientError) -> bool {
    match error {
        ClientError::Remoting(_) | ClientError::NoMaster { .. } => true,
        ClientError::Refused { code, .. } => RETRIED.contains(code),
        _ => false,
    }
}

/// The queue of a key, as Java's `SelectMessageQueueByHash` picks it for a `String`.
fn key_index(key: &str, queues: usize) -> Option<usize> {
    let queues = i32::try_from(queues).ok().filter(|queues| *queues > 0)?;
    let index = tag::java_hash(key).checked_rem(queues)?.unsigned_abs();
    usize::try_from(index).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, client, name_server, route};
    use protocol::header::send::SendMessageRequestHeader as SendHeader;

    fn stored(code: ResponseCode) -> RemotingCommand {
        let header = SendMessageResponseHeader {
            msg_id: "OFFSETID".into(),
            queue_id: 2,
            queue_offset: 77,
            ..Default::default()
        };
        RemotingCommand::response(code, None).with_header(&header)
    }

    fn broker(code: ResponseCode) -> Fake {
        Fake::start(move |request| match request.request_code() {
            RequestCode::UNREGISTER_CLIENT => Some(RemotingCommand::success()),
            _ if SendStatus::from_code(code).is_some() => Some(stored(code)),
            _ => Some(RemotingCommand::error(code, "no")),
        })
    }

    /// Brokers `a` and `b` that answer with these codes, and a producer.
    async fn cluster(a: ResponseCode, b: ResponseCode) -> ([Fake; 3], Producer) {
        let (a, b) = (broker(a), broker(b));
        let data = route(&[("a", &a.addr), ("b", &b.addr)], 1);
        let names = name_server("t", move || data.clone());
        let mut config = ProducerConfig::new("g");
        config.send_timeout = Duration::from_secs(20);
        config.attempt_timeout = Duration::from_secs(20);
        config.retry_pause = Duration::from_millis(1);
        let producer = Producer::start(&client(&names).await, config).unwrap();
        ([names, a, b], producer)
    }

    fn sent(broker: &Fake) -> Vec<SendHeader> {
        let requests = broker.requests(RequestCode::SEND_MESSAGE_V2);
        let header =
            |request: &RemotingCommand| request.header::<SendMessageRequestHeaderV2>().unwrap().0;
        requests.iter().map(header).collect()
    }

    #[tokio::test]
    async fn messages_go_to_the_brokers_in_turn_as_java_sends_them() {
        let (fakes, producer) = cluster(ResponseCode::SUCCESS, ResponseCode::SUCCESS).await;
        let message = Message::new("t", vec![b'x'; 5_000]).with_tag("T").with_key("k");
        let result = producer.send(&message).await.unwrap();
        assert_eq!(result.status, SendStatus::SendOk);
        assert_eq!((result.queue.queue_id, result.queue_offset), (2, 77));
        assert_eq!((result.offset_msg_id.as_str(), result.msg_id.len()), ("OFFSETID", 32));
        producer.send(&message).await.unwrap();
        let [_, a, b] = &fakes;
        let (mut at_a, at_b) = (sent(a), sent(b));
        assert_eq!((at_a.len(), at_b.len()), (1, 1));
        let header = at_a.pop().unwrap();
        assert_eq!((header.topic.as_str(), header.queue_id), ("t", 0));
        assert_eq!(
            (header.producer_group.as_str(), header.default_topic.as_str()),
            ("g", "TBW102")
        );
        assert_eq!(header.sys_flag, 0x301, "compressed by zlib");
        let properties = property::parse(&header.properties.unwrap());
        assert_eq!((properties["TAGS"].as_str(), properties["KEYS"].as_str()), ("T", "k"));
        let body = &a.requests(RequestCode::SEND_MESSAGE_V2)[0].body;
        assert!(body.len() < 100 && body[0] == 0x78, "{body:?}");
        producer.shutdown().await;
        assert_eq!(a.requests(RequestCode::UNREGISTER_CLIENT).len(), 1);
    }

    #[tokio::test]
    async fn what_another_broker_may_do_better_is_tried_there() {
        let (fakes, producer) = cluster(ResponseCode::SYSTEM_BUSY, ResponseCode::SUCCESS).await;
        for _ in 0..4 {
            producer.send(&Message::new("t", "x")).await.unwrap();
        }
        let [_, a, b] = &fakes;
        assert_eq!((sent(a).len(), sent(b).len()), (1, 4), "once busy, a is left alone");
    }

    #[tokio::test]
    async fn attempts_and_their_causes_are_bounded() {
        let check = async |code, attempts, total| {
            let (fakes, producer) = cluster(code, code).await;
            let error = producer.send(&Message::new("t", "x")).await.unwrap_err();
            let SendError::Failed { attempts: made, last, .. } = error else { panic!("{error}") };
            assert_eq!((made, last.code()), (attempts, Some(code)));
            let [_, a, b] = &fakes;
            assert_eq!(sent(a).len() + sent(b).len(), total);
        };
        check(ResponseCode::SYSTEM_BUSY, 3, 3).await;
        check(ResponseCode::MESSAGE_ILLEGAL, 1, 1).await;
    }

    #[tokio::test]
    async fn a_message_that_is_stored_less_safely_is_sent() {
        let code = ResponseCode::FLUSH_SLAVE_TIMEOUT;
        let (_fakes, producer) = cluster(code, code).await;
        let result = producer.send(&Message::new("t", "x")).await.unwrap();
        assert_eq!(result.status, SendStatus::FlushSlaveTimeout);
    }

    #[tokio::test]
    async fn a_silent_broker_costs_no_more_than_its_time() {
        let silent = Fake::start(|_| None);
        let data = route(&[("a", &silent.addr)], 1);
        let names = name_server("t", move || data.clone());
        let mut config = ProducerConfig::new("g");
        config.send_timeout = Duration::from_millis(100);
        let producer = Producer::start(&client(&names).await, config).unwrap();
        let error = producer.send(&Message::new("t", "x")).await.unwrap_err();
        let SendError::Failed { attempts: 1, last, .. } = error else { panic!("{error}") };
        let timeout = matches!(*last, ClientError::Remoting(RemotingError::Timeout { .. }));
        assert!(timeout, "{last}");
    }

    #[tokio::test]
    async fn a_broker_that_restarts_is_waited_for() {
        // A port that is free now, and taken by a broker later.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let data = route(&[("a", &free.to_string())], 1);
        let names = name_server("t", move || data.clone());
        let mut config = ProducerConfig::new("g");
        (config.send_timeout, config.retry_pause) =
            (Duration::from_secs(20), Duration::from_millis(1));
        let instance = client(&names).await;
        let producer = Producer::start(&instance, config.clone()).unwrap();
        let message = Message::new("t", "x");
        let send = producer.send(&message);
        let restart = async {
            // Reading routes again is what the producer does after each attempt that failed.
            names.wait_for(RequestCode::GET_ROUTEINFO_BY_TOPIC, 3).await;
            Fake::start_at(free, |_| Some(stored(ResponseCode::SUCCESS)))
        };
        let (sent, _broker) = tokio::join!(send, restart);
        assert_eq!(sent.unwrap().status, SendStatus::SendOk);
    }

    #[tokio::test]
    async fn a_key_has_its_queue_and_a_queue_may_be_named() {
        let (fakes, producer) = cluster(ResponseCode::SUCCESS, ResponseCode::SUCCESS).await;
        let message = Message::new("t", "x");
        for _ in 0..3 {
            producer.send_by_key(&message, "order-1").await.unwrap();
        }
        let [_, a, b] = &fakes;
        assert!(matches!((sent(a).len(), sent(b).len()), (3, 0) | (0, 3)));
        let queue =
            |queue_id| MessageQueue { topic: "t".into(), broker_name: "a".into(), queue_id };
        producer.send_to_queue(&message, &queue(0)).await.unwrap();
        let error = producer.send_to_queue(&message, &queue(9)).await.unwrap_err();
        assert!(matches!(error, SendError::NoSuchQueue { queue_id: 9, .. }), "{error}");
    }

    #[test]
    fn keys_hash_as_in_java() {
        // Java takes the absolute value of the remainder of the hash.
        assert_eq!(tag::java_hash("order-1"), -1_207_111_310);
        assert_eq!(key_index("order-1", 8), Some(6));
        assert_eq!(key_index("polygenelubricants", 8), Some(0), "i32::MIN has no absolute value");
        assert_eq!(key_index("x", 0), None);
    }

    #[tokio::test]
    async fn batches_are_one_request_of_one_topic() {
        let (fakes, producer) = cluster(ResponseCode::SUCCESS, ResponseCode::SUCCESS).await;
        let messages: Vec<_> = ["one", "two"].map(|body| Message::new("t", body)).into();
        let result = producer.send_batch(&messages).await.unwrap();
        assert_eq!(result.msg_id.split(',').count(), 2);
        let [_, a, b] = &fakes;
        let code = RequestCode::SEND_BATCH_MESSAGE;
        let request = a.requests(code).pop().or(b.requests(code).pop()).unwrap();
        let header = request.header::<SendMessageRequestHeaderV2>().unwrap().0;
        assert_eq!(header.batch, Some(true));
        let parts = batch::decode_batch(&request.body, 10).unwrap();
        let bodies: Vec<_> = parts.iter().map(|part| part.body).collect();
        assert_eq!(bodies, [b"one", b"two"]);
        let refused = |messages: Vec<Message>| match producer.prepare_batch(&messages) {
            Err(refused) => refused,
            Ok(_) => panic!("not refused"),
        };
        assert_eq!(refused(vec![]), MessageRefused::EmptyBatch);
        let other = refused(vec![Message::new("t", "x"), Message::new("u", "x")]);
        assert_eq!(other, MessageRefused::BatchTopics { first: "t".into(), other: "u".into() });
        let delayed = Message { delay_level: Some(1), ..Message::new("t", "x") };
        assert_eq!(refused(vec![delayed]), MessageRefused::BatchKind);
        let no_wait = Message { no_wait: true, ..Message::new("t", "x") };
        assert_eq!(refused(vec![no_wait, Message::new("t", "x")]), MessageRefused::BatchWait);
    }

    #[tokio::test]
    async fn a_topic_is_made_after_the_default_one_or_not_at_all() {
        let broker = broker(ResponseCode::SUCCESS);
        let data = route(&[("a", &broker.addr)], 8);
        let names = name_server(AUTO_CREATE_TOPIC, move || data.clone());
        let instance = client(&names).await;
        let producer = Producer::start(&instance, ProducerConfig::new("g")).unwrap();
        for _ in 0..8 {
            producer.send(&Message::new("new", "x")).await.unwrap();
        }
        let mut queues: Vec<_> = sent(&broker).iter().map(|header| header.queue_id).collect();
        queues.sort_unstable();
        assert_eq!(queues, [0, 0, 1, 1, 2, 2, 3, 3], "four queues, in turn");
        let nothing = name_server("other", || route(&[], 0));
        let producer = Producer::start(&client(&nothing).await, ProducerConfig::new("g")).unwrap();
        let error = producer.send(&Message::new("new", "x")).await.unwrap_err();
        let no_route =
            matches!(&error, SendError::Client(ClientError::NoRoute { topic }) if topic == "new");
        assert!(no_route, "{error}");
    }
}
