//! Consumes topics as a member of a group.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use protocol::body::{LockBatchRequest, LockBatchResponse, MessageQueue, ResetOffsetBody};
use protocol::command::RemotingCommand;
use protocol::header::send::ConsumerSendMsgBackRequestHeader;
use protocol::heartbeat::{ConsumeFromWhere, ConsumeType, ConsumerData, MessageModel};
use protocol::request_code::RequestCode;
use protocol::subscription::{SUB_ALL, SubscriptionData};
use protocol::topic_name::{retry_topic, validate_group, validate_topic};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::instance::{json_request, read_body};
use crate::offset_store::OffsetStore;
use crate::process_queue::ProcessQueue;
use crate::rebalance::{self, by_broker};
use crate::running_info::Totals;
use crate::{
    ClientError, ClientInstance, ConsumeFrom, ConsumerConfig, ConsumerError, Listener, Producer,
    ProducerConfig, consume, pull,
};

/// How long a lock of a queue counts after it was got.
const LOCK_LIFE: Duration = Duration::from_secs(30);
/// Rebalances, however many causes there are, follow each other at this distance.
const REBALANCE_PAUSE: Duration = Duration::from_millis(200);
/// How long the listeners of a queue may finish before it starts again elsewhere.
const RESTART_TIMEOUT: Duration = Duration::from_secs(1);
/// Producer group of the messages that are sent to retry topics, Java's name.
const INNER_PRODUCER: &str = "CLIENT_INNER_PRODUCER";

/// A consumer. It works until it is shut down.
pub struct PushConsumer {
    core: Arc<Core>,
}

/// What the parts of a consumer share.
pub(crate) struct Core {
    pub(crate) instance: ClientInstance,
    pub(crate) config: ConsumerConfig,
    /// By topic, the retry topic included.
    pub(crate) subscriptions: BTreeMap<String, SubscriptionData>,
    pub(crate) listener: Listener,
    pub(crate) offsets: OffsetStore,
    pub(crate) queues: Mutex<BTreeMap<MessageQueue, Arc<ProcessQueue>>>,
    /// One for each delivery that may be under way.
    pub(crate) permits: Arc<Semaphore>,
    /// Sends messages to the retry topic that could not be sent back.
    pub(crate) producer: Producer,
    pub(crate) totals: Totals,
    pub(crate) started_millis: i64,
    pub(crate) tasks: TaskTracker,
    stop: CancellationToken,
    /// When queues are shared out again.
    rebalance_at: Mutex<Instant>,
    /// That time has moved.
    rebalance_moved: Notify,
}

impl PushConsumer {
    /// Starts a consumer: from now on the listener gets messages.
    ///
    /// # Errors
    /// When the settings do not make sense, the group is already on this instance, or stored
    /// offsets of a broadcasting consumer cannot be read. That there is no broker now is no error.
    pub async fn start(
        instance: &ClientInstance,
        config: ConsumerConfig,
        listener: Listener,
    ) -> Result<Self, ConsumerError> {
        validate(&config)?;
        let offsets = match (config.message_model, &config.broadcast_offset_directory) {
            (MessageModel::Clustering, _) => OffsetStore::remote(&config.group),
            (MessageModel::Broadcasting, Some(directory)) => {
                OffsetStore::local(directory, &config.group).await?
            }
            (MessageModel::Broadcasting, None) => return Err(ConsumerError::NoOffsetDirectory),
        };
        let started_millis = crate::epoch_millis();
        let producer = Producer::start(instance, ProducerConfig::new(INNER_PRODUCER))?;
        let core = Arc::new(Core {
            instance: instance.clone(),
            subscriptions: subscriptions(&config, started_millis),
            listener,
            offsets,
            queues: Mutex::default(),
            permits: Arc::new(Semaphore::new(config.concurrency.min(Semaphore::MAX_PERMITS))),
            producer,
            totals: Totals::new(),
            started_millis,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            rebalance_at: Mutex::new(Instant::now()),
            rebalance_moved: Notify::new(),
            config,
        });
        if !instance.join_consumer(&core) {
            core.producer.shutdown().await;
            let name = core.config.group.clone();
            return Err(ClientError::GroupInUse { name }.into());
        }
        core.tasks.spawn(run(Arc::clone(&core)));
        core.tasks.spawn(persist_offsets(Arc::clone(&core)));
        if core.needs_locks() {
            core.tasks.spawn(renew_locks(Arc::clone(&core)));
        }
        Ok(Self { core })
    }

    /// The queues that this consumer has now.
    pub fn queues(&self) -> Vec<MessageQueue> {
        self.core.queues.lock().keys().cloned().collect()
    }

    /// Stops: no more deliveries; those under way may finish within their time; offsets are stored
    /// and brokers told.
    pub async fn shutdown(&self) {
        let core = &self.core;
        core.stop.cancel();
        core.tasks.close();
        let queues: Vec<_> = core.queues.lock().values().cloned().collect();
        let timeout = core.config.shutdown_timeout;
        let releases = queues.iter().map(|queue| rebalance::release(core, queue, timeout));
        futures::future::join_all(releases).await;
        core.offsets.persist(&core.instance).await;
        core.instance.leave_consumer(&core.config.group).await;
        core.producer.shutdown().await;
        // Nothing waits any more but listeners that did not finish in time.
        let _ = tokio::time::timeout(Duration::from_millis(100), core.tasks.wait()).await;
    }
}

fn validate(config: &ConsumerConfig) -> Result<(), ConsumerError> {
    validate_group(&config.group)?;
    for topic in config.subscriptions.keys() {
        validate_topic(topic)?;
    }
    if config.subscriptions.is_empty() {
        return Err(ConsumerError::NoSubscription);
    }
    let small = [
        ("concurrency", config.concurrency),
        ("batch_max", config.batch_max),
        ("queue_messages_max", config.queue_messages_max),
        ("queue_bytes_max", config.queue_bytes_max),
        ("pull_batch", usize::try_from(config.pull_batch).unwrap_or(0)),
        ("pull_batch_bytes", usize::try_from(config.pull_batch_bytes).unwrap_or(0)),
    ];
    match small.into_iter().find(|(_, value)| *value < 1) {
        Some((name, _)) => Err(ConsumerError::TooSmall { name, value: 0 }),
        None => Ok(()),
    }
}

/// What brokers are told. The group's own retry topic belongs to it unless everyone gets
/// everything.
fn subscriptions(config: &ConsumerConfig, version: i64) -> BTreeMap<String, SubscriptionData> {
    let data = |topic: &String, tags: &str| {
        (topic.clone(), SubscriptionData::by_tags(topic.clone(), tags, version))
    };
    let mut all: BTreeMap<_, _> =
        config.subscriptions.iter().map(|(topic, tags)| data(topic, tags)).collect();
    if config.message_model == MessageModel::Clustering {
        all.extend([data(&retry_topic(&config.group), SUB_ALL)]);
    }
    all
}

/// Finds brokers, tells them who is here, and shares queues out, until the consumer is stopped.
async fn run(core: Arc<Core>) {
    let work = async {
        for topic in core.config.subscriptions.keys() {
            if let Err(error) = core.instance.route(topic).await {
                tracing::warn!(group = core.config.group, %error, "a topic is not consumed now");
            }
        }
        // Brokers must know this member before queues are shared out.
        core.instance.heartbeat().await;
        loop {
            *core.rebalance_at.lock() = Instant::now() + core.config.rebalance_interval;
            rebalance::rebalance(&core).await;
            tokio::time::sleep(REBALANCE_PAUSE).await;
            core.rebalance_is_due().await;
        }
    };
    tokio::select! {
        () = work => {}
        () = core.stop.cancelled() => {}
    }
}

async fn persist_offsets(core: Arc<Core>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(core.config.persist_interval) => {}
            () = core.stop.cancelled() => return,
        }
        core.offsets.persist(&core.instance).await;
    }
}

async fn renew_locks(core: Arc<Core>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(core.config.lock_interval) => {}
            () = core.stop.cancelled() => return,
        }
        let queues = core.queues.lock().keys().cloned().collect();
        core.lock(queues).await;
    }
}

impl Core {
    /// This consumer as heartbeats tell it.
    pub(crate) fn heartbeat_data(&self) -> ConsumerData {
        ConsumerData {
            consume_from_where: match self.config.consume_from {
                ConsumeFrom::Last => ConsumeFromWhere::LastOffset,
                ConsumeFrom::First => ConsumeFromWhere::FirstOffset,
                ConsumeFrom::Timestamp(_) => ConsumeFromWhere::Timestamp,
            },
            consume_type: ConsumeType::Passively,
            group_name: self.config.group.clone(),
            message_model: self.config.message_model,
            subscription_data_set: self.subscriptions.values().cloned().collect(),
            unit_mode: false,
        }
    }

    /// Has the queues shared out again.
    pub(crate) fn rebalance_soon(&self) {
        self.rebalance_after(Duration::ZERO);
    }

    /// Has the queues shared out again after this time at the latest.
    pub(crate) fn rebalance_after(&self, time: Duration) {
        let at = Instant::now() + time;
        let mut next = self.rebalance_at.lock();
        *next = at.min(*next);
        drop(next);
        self.rebalance_moved.notify_one();
    }

    async fn rebalance_is_due(&self) {
        loop {
            let at = *self.rebalance_at.lock();
            tokio::select! {
                () = tokio::time::sleep_until(at) => return,
                () = self.rebalance_moved.notified() => {}
            }
        }
    }

    /// Whether queues must be locked at the broker: orderly listeners that share messages.
    pub(crate) fn needs_locks(&self) -> bool {
        self.listener.is_orderly() && self.config.message_model == MessageModel::Clustering
    }

    /// Starts work on a queue.
    pub(crate) fn start_queue(self: &Arc<Self>, queue: &MessageQueue, offset: i64) {
        let held = ProcessQueue::new(queue.clone(), offset, self.stop.child_token());
        if self.needs_locks() {
            held.set_locked(Some(LOCK_LIFE));
        }
        let held = Arc::new(held);
        self.queues.lock().insert(queue.clone(), Arc::clone(&held));
        self.tasks.spawn(pull::run(Arc::clone(self), Arc::clone(&held), offset));
        self.tasks.spawn(consume::run(Arc::clone(self), held));
    }

    /// Takes note of how far a queue is, unless it is no longer ours.
    pub(crate) fn commit(&self, queue: &Arc<ProcessQueue>) {
        let queues = self.queues.lock();
        if queues.get(&queue.queue).is_some_and(|held| Arc::ptr_eq(held, queue)) {
            self.offsets.update(&queue.queue, queue.commit_offset());
        }
    }

    /// Takes a queue off the table; false when it was not there any more.
    pub(crate) fn forget(&self, queue: &Arc<ProcessQueue>) -> bool {
        let mut queues = self.queues.lock();
        let is_held = queues.get(&queue.queue).is_some_and(|held| Arc::ptr_eq(held, queue));
        if is_held {
            queues.remove(&queue.queue);
        }
        is_held
    }

    /// Ends work on a queue; it starts anew at `offset` with the next rebalance.
    pub(crate) async fn restart_queue(&self, queue: &Arc<ProcessQueue>, offset: i64) {
        if !self.forget(queue) {
            return;
        }
        // What is under way counts no longer, but must not overlap with what comes.
        self.offsets.reset(&queue.queue, offset);
        self.offsets.persist_queue(&self.instance, &queue.queue).await;
        queue.stop.cancel();
    }

    /// Starts queues of a topic anew at other offsets, since an administrator wants it.
    pub(crate) async fn reset_offsets(&self, topic: &str, offsets: ResetOffsetBody) {
        for (queue, offset) in offsets.offset_table.0 {
            let held = self.queues.lock().get(&queue).cloned();
            if let Some(held) = held.filter(|_| queue.topic == topic) {
                held.stop.cancel();
                let _ = tokio::time::timeout(RESTART_TIMEOUT, held.wait_idle()).await;
                self.restart_queue(&held, offset).await;
            }
        }
        self.rebalance_soon();
    }

    /// Locks queues at their brokers. Returns those that this client holds now.
    pub(crate) async fn lock(&self, queues: Vec<MessageQueue>) -> Vec<MessageQueue> {
        let calls = by_broker(&queues).into_iter().map(|(broker, wanted)| async move {
            let locked = match self.lock_at(&broker, &wanted).await {
                Ok(locked) => locked,
                Err(error) => {
                    tracing::warn!(group = self.config.group, %error, "queues were not locked");
                    // They stay ours as long as the last lock counts.
                    return Vec::new();
                }
            };
            let held = self.queues.lock();
            for queue in &wanted {
                if let Some(held) = held.get(queue) {
                    held.set_locked(locked.contains(queue).then_some(LOCK_LIFE));
                }
            }
            locked
        });
        futures::future::join_all(calls).await.concat()
    }

    async fn lock_at(
        &self,
        broker: &str,
        queues: &[MessageQueue],
    ) -> Result<Vec<MessageQueue>, ClientError> {
        let code = RequestCode::LOCK_BATCH_MQ;
        let addr = self.master(broker)?;
        let response = self.instance.call(&addr, self.lock_request(code, queues)?).await?;
        let body: LockBatchResponse = read_body(&addr, code, &response)?;
        Ok(body.lock_ok_mq_set)
    }

    /// Unlocks queues, so that the next consumer need not wait for the locks to expire.
    pub(crate) async fn unlock(&self, queues: &[MessageQueue]) {
        for (broker, queues) in by_broker(queues) {
            let request = self.lock_request(RequestCode::UNLOCK_BATCH_MQ, &queues);
            let unlocked = match (self.master(&broker), request) {
                (Ok(addr), Ok(request)) => self.instance.oneway(&addr, request).await,
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
            if let Err(error) = unlocked {
                tracing::debug!(%error, "queues were not unlocked");
            }
        }
    }

    fn lock_request(
        &self,
        code: RequestCode,
        queues: &[MessageQueue],
    ) -> Result<RemotingCommand, ClientError> {
        let body = LockBatchRequest {
            client_id: self.instance.client_id().to_owned(),
            consumer_group: self.config.group.clone(),
            mq_set: queues.to_vec(),
            only_this_broker: false,
        };
        json_request(code, &body)
    }

    fn master(&self, broker: &str) -> Result<String, ClientError> {
        let master = self.instance.routes().master(broker);
        master.ok_or_else(|| ClientError::NoMaster { broker: broker.to_owned() })
    }

    /// Sends a message that cannot be read to the dead letters.
    pub(crate) async fn bury(&self, addr: &str, commit_log_offset: i64) -> Result<(), ClientError> {
        let header = ConsumerSendMsgBackRequestHeader {
            offset: commit_log_offset,
            group: self.config.group.clone(),
            delay_level: -1,
            origin_msg_id: None,
            origin_topic: None,
            unit_mode: false,
            max_reconsume_times: Some(self.max_reconsume_times()),
        };
        let request = RemotingCommand::request(RequestCode::CONSUMER_SEND_MSG_BACK, &header);
        self.instance.call(addr, request).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, client, record, route, with_json};
    use crate::{ConcurrentStatus, OrderlyStatus};
    use protocol::body::ConsumerList;
    use protocol::header::client::{
        ConsumeMessageDirectlyRequestHeader, ConsumerGroupRequestHeader,
        ConsumerRunningInfoRequestHeader,
    };
    use protocol::header::offset::{OffsetResponseHeader, UpdateConsumerOffsetRequestHeader};
    use protocol::header::pull::{PullMessageRequestHeader, PullMessageResponseHeader};
    use protocol::header::route::GetRouteInfoRequestHeader;
    use protocol::header::send::{SendMessageRequestHeaderV2, SendMessageResponseHeader};
    use protocol::heartbeat::HeartbeatData;
    use protocol::response_code::ResponseCode;
    use std::sync::OnceLock;

    /// Name server and broker in one, with topic `t` of one queue.
    #[derive(Clone, Default)]
    struct Broker {
        addr: Arc<OnceLock<String>>,
        client_id: Arc<OnceLock<String>>,
        records: Arc<Mutex<Vec<Vec<u8>>>>,
        /// Pulls of an offset below are moved to it.
        min_offset: i64,
        refuses_send_back: bool,
        has_retry_topic: bool,
        offset: Arc<Mutex<Option<i64>>>,
    }

    impl Broker {
        fn with_records(records: Vec<Vec<u8>>) -> Self {
            Self { records: Arc::new(Mutex::new(records)), ..Self::default() }
        }

        fn start(&self) -> Fake {
            let broker = self.clone();
            let fake = Fake::start(move |request| broker.answer(request));
            self.addr.set(fake.addr.clone()).unwrap();
            fake
        }

        fn answer(&self, request: &RemotingCommand) -> Option<RemotingCommand> {
            match request.request_code() {
                RequestCode::GET_ROUTEINFO_BY_TOPIC => {
                    let header: GetRouteInfoRequestHeader = request.header().unwrap();
                    let route = route(&[("b", self.addr.get().unwrap())], 1);
                    let no_route = RemotingCommand::error(ResponseCode::TOPIC_NOT_EXIST, "");
                    let is_known = header.topic == "t" || self.has_retry_topic;
                    if is_known { with_json(&route) } else { Some(no_route) }
                }
                RequestCode::GET_CONSUMER_LIST_BY_GROUP => {
                    let client = self.client_id.get().cloned();
                    with_json(&ConsumerList { consumer_id_list: client.into_iter().collect() })
                }
                RequestCode::QUERY_CONSUMER_OFFSET => Some(match *self.offset.lock() {
                    Some(offset) => RemotingCommand::success_with(&OffsetResponseHeader { offset }),
                    None => RemotingCommand::error(ResponseCode::QUERY_NOT_FOUND, ""),
                }),
                RequestCode::UPDATE_CONSUMER_OFFSET => {
                    let header: UpdateConsumerOffsetRequestHeader = request.header().unwrap();
                    if header.topic == "t" {
                        *self.offset.lock() = Some(header.commit_offset);
                    }
                    Some(RemotingCommand::success())
                }
                RequestCode::GET_MIN_OFFSET => {
                    Some(RemotingCommand::success_with(&OffsetResponseHeader { offset: 0 }))
                }
                RequestCode::PULL_MESSAGE => self.pull(&request.header().unwrap()),
                RequestCode::LOCK_BATCH_MQ => {
                    let wanted: LockBatchRequest =
                        protocol::json::from_slice(&request.body).unwrap();
                    with_json(&LockBatchResponse { lock_ok_mq_set: wanted.mq_set })
                }
                RequestCode::CONSUMER_SEND_MSG_BACK if self.refuses_send_back => {
                    Some(RemotingCommand::error(ResponseCode::SYSTEM_ERROR, "no"))
                }
                RequestCode::SEND_MESSAGE_V2 => {
                    Some(RemotingCommand::success_with(&SendMessageResponseHeader {
                        msg_id: "ID".into(),
                        ..Default::default()
                    }))
                }
                _ => Some(RemotingCommand::success()),
            }
        }

        fn pull(&self, request: &PullMessageRequestHeader) -> Option<RemotingCommand> {
            let header = |next_begin_offset| PullMessageResponseHeader {
                next_begin_offset,
                ..Default::default()
            };
            if request.queue_offset < self.min_offset {
                let moved = RemotingCommand::response(ResponseCode::PULL_OFFSET_MOVED, None);
                return Some(moved.with_header(&header(self.min_offset)));
            }
            let records = self.records.lock();
            let from = usize::try_from(request.queue_offset).unwrap();
            // Held, for there is nothing new.
            let new = records.get(from..).filter(|new| !new.is_empty() && request.topic == "t")?;
            let next = i64::try_from(records.len()).unwrap();
            Some(RemotingCommand::success_with(&header(next)).with_body(new.concat()))
        }
    }

    fn records(count: i64) -> Vec<Vec<u8>> {
        (0..count).map(|at| record(at, format!("m{at}").as_bytes(), "", 0)).collect()
    }

    fn config() -> ConsumerConfig {
        let mut config = ConsumerConfig::new("g", "t", "*");
        config.consume_from = ConsumeFrom::First;
        config.local_retry_pause = Duration::from_millis(1);
        config.pull_pause = Duration::from_millis(1);
        config
    }

    /// Bodies that were delivered, with the number of earlier deliveries.
    type Seen = Arc<Mutex<Vec<String>>>;

    fn see(seen: &Seen, delivery: &crate::Delivery) {
        for message in &delivery.messages {
            let body = String::from_utf8_lossy(&message.body).into_owned();
            seen.lock().push(format!("{body}/{}", message.reconsume_times));
        }
    }

    async fn wait_seen(seen: &Seen, count: usize) -> Vec<String> {
        let enough = async {
            while seen.lock().len() < count {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(20), enough).await;
        assert!(in_time.is_ok(), "{seen:?}");
        seen.lock().clone()
    }

    async fn start(
        broker: &Broker,
        fake: &Fake,
        config: ConsumerConfig,
        listener: Listener,
    ) -> (ClientInstance, PushConsumer) {
        let instance = client(fake).await;
        broker.client_id.set(instance.client_id().to_owned()).unwrap();
        let consumer = PushConsumer::start(&instance, config, listener).await.unwrap();
        (instance, consumer)
    }

    fn succeeding(seen: &Seen) -> Listener {
        let seen = Arc::clone(seen);
        Listener::concurrent(move |delivery| {
            see(&seen, &delivery);
            async { ConcurrentStatus::Success }
        })
    }

    #[tokio::test]
    async fn a_member_joins_consumes_stores_its_offset_and_leaves() {
        let broker = Broker::with_records(records(5));
        let fake = broker.start();
        let seen = Seen::default();
        let (instance, consumer) = start(&broker, &fake, config(), succeeding(&seen)).await;
        let mut bodies = wait_seen(&seen, 5).await;
        bodies.sort();
        assert_eq!(bodies, ["m0/0", "m1/0", "m2/0", "m3/0", "m4/0"]);
        assert_eq!(consumer.queues().len(), 1);
        let beat = &fake.wait_for(RequestCode::HEART_BEAT, 1).await[0];
        let beat: HeartbeatData = protocol::json::from_slice(&beat.body).unwrap();
        let group = &beat.consumer_data_set[0];
        let topics: Vec<_> =
            group.subscription_data_set.iter().map(|data| data.topic.as_str()).collect();
        assert_eq!((group.group_name.as_str(), topics), ("g", vec!["%RETRY%g", "t"]));
        let again = PushConsumer::start(&instance, config(), succeeding(&seen)).await;
        let in_use = matches!(again, Err(ConsumerError::Client(ClientError::GroupInUse { .. })));
        assert!(in_use);
        consumer.shutdown().await;
        assert_eq!(*broker.offset.lock(), Some(5));
        let left = fake.requests(RequestCode::UNREGISTER_CLIENT);
        assert!(left.iter().any(|request| request.ext_fields.get("consumerGroup") == Some("g")));
        assert_eq!(seen.lock().len(), 5);
    }

    #[tokio::test]
    async fn failed_messages_go_back_to_the_broker() {
        let broker = Broker::with_records(records(2));
        let fake = broker.start();
        let listener = Listener::concurrent(|delivery| async move {
            assert!(delivery.messages[0].queue_offset != 1, "a panic that the test wants");
            ConcurrentStatus::Retry { delay_level: 7 }
        });
        let (_instance, consumer) = start(&broker, &fake, config(), listener).await;
        let back = fake.wait_for(RequestCode::CONSUMER_SEND_MSG_BACK, 2).await;
        let mut levels: Vec<_> = back
            .iter()
            .map(|request| request.header::<ConsumerSendMsgBackRequestHeader>().unwrap())
            .map(|header| (header.offset, header.delay_level, header.max_reconsume_times))
            .collect();
        levels.sort_unstable();
        assert_eq!(levels, [(0, 7, Some(16)), (1_000, 0, Some(16))]);
        consumer.shutdown().await;
        assert_eq!(*broker.offset.lock(), Some(2));
    }

    #[tokio::test]
    async fn what_cannot_go_back_is_sent_to_the_retry_topic() {
        let mut broker = Broker::with_records(records(1));
        (broker.refuses_send_back, broker.has_retry_topic) = (true, true);
        let fake = broker.start();
        let retry = || async { ConcurrentStatus::Retry { delay_level: 0 } };
        let listener = Listener::concurrent(move |_| retry());
        let (_instance, consumer) = start(&broker, &fake, config(), listener).await;
        let sent = fake.wait_for(RequestCode::SEND_MESSAGE_V2, 1).await;
        let header = sent[0].header::<SendMessageRequestHeaderV2>().unwrap().0;
        assert_eq!(header.topic, "%RETRY%g");
        assert_eq!((header.reconsume_times, header.max_reconsume_times), (Some(1), Some(16)));
        let properties = protocol::property::parse(&header.properties.unwrap());
        assert_eq!((properties["DELAY"].as_str(), properties["RETRY_TOPIC"].as_str()), ("3", "t"));
        consumer.shutdown().await;
        assert_eq!(*broker.offset.lock(), Some(1));
    }

    #[tokio::test]
    async fn a_moved_offset_is_followed() {
        let broker = Broker { min_offset: 3, ..Broker::with_records(records(5)) };
        let fake = broker.start();
        let seen = Seen::default();
        let (_instance, consumer) = start(&broker, &fake, config(), succeeding(&seen)).await;
        let mut bodies = wait_seen(&seen, 2).await;
        bodies.sort();
        assert_eq!(bodies, ["m3/0", "m4/0"]);
        consumer.shutdown().await;
        assert_eq!(*broker.offset.lock(), Some(5));
    }

    #[tokio::test]
    async fn an_orderly_listener_gets_a_message_again_before_the_next() {
        let broker = Broker { has_retry_topic: true, ..Broker::with_records(records(4)) };
        let fake = broker.start();
        let seen = Seen::default();
        let log = Arc::clone(&seen);
        let listener = Listener::orderly(move |delivery| {
            see(&log, &delivery);
            let message = Arc::clone(&delivery.messages[0]);
            async move {
                match (message.queue_offset, message.reconsume_times) {
                    (1, 0) | (2, _) => OrderlyStatus::Suspend(Duration::from_millis(1)),
                    _ => OrderlyStatus::Success,
                }
            }
        });
        let mut config = config();
        config.max_reconsume_times = Some(1);
        let (_instance, consumer) = start(&broker, &fake, config, listener).await;
        let bodies = wait_seen(&seen, 6).await;
        assert_eq!(bodies, ["m0/0", "m1/0", "m1/1", "m2/0", "m2/1", "m3/0"]);
        let dead = fake.wait_for(RequestCode::SEND_MESSAGE_V2, 1).await;
        let header = dead[0].header::<SendMessageRequestHeaderV2>().unwrap().0;
        assert_eq!((header.topic.as_str(), header.reconsume_times), ("%RETRY%g", Some(2)));
        let locks = fake.requests(RequestCode::LOCK_BATCH_MQ);
        assert!(!locks.is_empty());
        consumer.shutdown().await;
        fake.wait_for(RequestCode::UNLOCK_BATCH_MQ, 1).await;
        assert_eq!(*broker.offset.lock(), Some(4));
    }

    #[tokio::test]
    async fn a_message_that_cannot_be_read_goes_to_the_dead_letters() {
        let zstd = protocol::sys_flag::COMPRESSED | protocol::sys_flag::COMPRESSION_ZSTD;
        let mut all = records(3);
        all[1] = record(1, b"not to be read", "", zstd);
        let broker = Broker::with_records(all);
        let fake = broker.start();
        let seen = Seen::default();
        let (_instance, consumer) = start(&broker, &fake, config(), succeeding(&seen)).await;
        let mut bodies = wait_seen(&seen, 2).await;
        bodies.sort();
        assert_eq!(bodies, ["m0/0", "m2/0"]);
        let buried = fake.requests(RequestCode::CONSUMER_SEND_MSG_BACK);
        let header: ConsumerSendMsgBackRequestHeader = buried[0].header().unwrap();
        assert_eq!((header.offset, header.delay_level), (1_000, -1));
        consumer.shutdown().await;
        assert_eq!(*broker.offset.lock(), Some(3));
    }

    #[tokio::test]
    async fn brokers_get_answers() {
        let broker = Broker::with_records(records(2));
        let fake = broker.start();
        let seen = Seen::default();
        let (instance, consumer) = start(&broker, &fake, config(), succeeding(&seen)).await;
        wait_seen(&seen, 2).await;
        let lists = fake.requests(RequestCode::GET_CONSUMER_LIST_BY_GROUP).len();
        let header = ConsumerGroupRequestHeader { consumer_group: "g".into() };
        let code = RequestCode::NOTIFY_CONSUMER_IDS_CHANGED;
        fake.ask_client(RemotingCommand::request(code, &header)).await;
        fake.wait_for(RequestCode::GET_CONSUMER_LIST_BY_GROUP, lists + 1).await;

        let header = ConsumerRunningInfoRequestHeader {
            consumer_group: "g".into(),
            client_id: instance.client_id().into(),
            jstack_enable: false,
        };
        let code = RequestCode::GET_CONSUMER_RUNNING_INFO;
        let answer = fake.ask_client(RemotingCommand::request(code, &header)).await;
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        let queue = r#""mqTable":{{"topic":"t","brokerName":"b","queueId":0}:{"commitOffset":2"#;
        assert!(text.contains(queue), "{text}");

        let header = ConsumeMessageDirectlyRequestHeader {
            consumer_group: "g".into(),
            ..Default::default()
        };
        let request = RemotingCommand::request(RequestCode::CONSUME_MESSAGE_DIRECTLY, &header);
        let answer = fake.ask_client(request.with_body(record(9, b"direct", "", 0))).await;
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        assert!(text.contains(r#""consumeResult":"CR_SUCCESS""#), "{text}");
        assert_eq!(seen.lock().last().unwrap(), "direct/0");

        let header = ConsumerGroupRequestHeader { consumer_group: "other".into() };
        let code = RequestCode::NOTIFY_CONSUMER_IDS_CHANGED;
        let answer = fake.ask_client(RemotingCommand::request(code, &header)).await;
        assert_eq!(answer.response_code(), ResponseCode::SYSTEM_ERROR);
        let answer = fake.ask_client(RemotingCommand::request(RequestCode(9_999), &header)).await;
        assert_eq!(answer.response_code(), ResponseCode::REQUEST_CODE_NOT_SUPPORTED);
        consumer.shutdown().await;
    }

    #[tokio::test]
    async fn an_administrator_can_have_messages_delivered_again() {
        let broker = Broker::with_records(records(3));
        let fake = broker.start();
        let seen = Seen::default();
        let (_instance, consumer) = start(&broker, &fake, config(), succeeding(&seen)).await;
        wait_seen(&seen, 3).await;
        let queue = consumer.queues().pop().unwrap();
        let header = protocol::header::offset::ResetOffsetRequestHeader {
            group: "g".into(),
            topic: "t".into(),
            queue_id: -1,
            offset: None,
            timestamp: 0,
            is_force: true,
        };
        let body = ResetOffsetBody { offset_table: [(queue, 1)].into_iter().collect() };
        let request = RemotingCommand::request(RequestCode::RESET_CONSUMER_CLIENT_OFFSET, &header);
        let body = protocol::json::to_vec(&body).unwrap();
        let answer = fake.ask_client(request.with_body(body)).await;
        assert_eq!(answer.response_code(), ResponseCode::SUCCESS);
        let mut again = wait_seen(&seen, 5).await.split_off(3);
        again.sort();
        assert_eq!(again, ["m1/0", "m2/0"]);
        consumer.shutdown().await;
        assert_eq!(*broker.offset.lock(), Some(3));
    }

    #[tokio::test]
    async fn settings_that_make_no_sense_are_refused() {
        let instance =
            ClientInstance::start(crate::ClientConfig::new("127.0.0.1:1")).await.unwrap();
        let start = async |config| {
            let listener = Listener::concurrent(|_| async { ConcurrentStatus::Success });
            PushConsumer::start(&instance, config, listener).await.err().unwrap().to_string()
        };
        let mut wrong = config();
        wrong.concurrency = 0;
        assert_eq!(start(wrong).await, "concurrency is 0: it must be at least 1");
        let mut wrong = config();
        wrong.message_model = MessageModel::Broadcasting;
        assert!(start(wrong).await.contains("broadcast_offset_directory"));
        let mut wrong = config();
        wrong.subscriptions.clear();
        assert_eq!(start(wrong).await, "a consumer must subscribe to at least one topic");
    }
}
