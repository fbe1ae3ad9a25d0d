//! What a consumer tells about itself, and the bodies in which it does.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use protocol::body::MessageQueue;
use protocol::command::CURRENT_VERSION;
use protocol::heartbeat::MessageModel;
use protocol::json::ObjectKeyMap;
use protocol::message::MessageExt;
use protocol::subscription::SubscriptionData;
use serde::Serialize;
use tokio::time::Instant;

use crate::listener;
use crate::push_consumer::Core;
use crate::{ConcurrentStatus, Delivery, Listener, OrderlyStatus};

/// One queue in [`ConsumerRunningInfo`], with Java's names, spelling included.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProcessQueueInfo {
    commit_offset: i64,
    cached_msg_min_offset: i64,
    cached_msg_max_offset: i64,
    cached_msg_count: usize,
    #[serde(rename = "cachedMsgSizeInMiB")]
    cached_msg_size_in_mib: usize,
    locked: bool,
    droped: bool,
    last_pull_timestamp: i64,
    last_consume_timestamp: i64,
}

/// One topic in [`ConsumerRunningInfo`]: averages since the start. Times in milliseconds.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ConsumeStatus {
    #[serde(rename = "pullRT")]
    pull_rt: f64,
    #[serde(rename = "pullTPS")]
    pull_tps: f64,
    #[serde(rename = "consumeRT")]
    consume_rt: f64,
    #[serde(rename = "consumeOKTPS")]
    consume_ok_tps: f64,
    #[serde(rename = "consumeFailedTPS")]
    consume_failed_tps: f64,
    #[serde(rename = "consumeFailedMsgs")]
    consume_failed_msgs: u64,
}

/// Answer to `GET_CONSUMER_RUNNING_INFO`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConsumerRunningInfo {
    properties: BTreeMap<&'static str, String>,
    subscription_set: Vec<SubscriptionData>,
    mq_table: ObjectKeyMap<MessageQueue, ProcessQueueInfo>,
    status_table: BTreeMap<String, ConsumeStatus>,
}

/// Answer to `GET_CONSUMER_STATUS_FROM_CLIENT`: offsets by queue.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OffsetStatus {
    message_queue_table: ObjectKeyMap<MessageQueue, i64>,
}

/// Answer to `CONSUME_MESSAGE_DIRECTLY`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConsumeMessageDirectlyResult {
    order: bool,
    auto_commit: bool,
    consume_result: &'static str,
    spent_time_mills: u64,
}

/// Counts of one topic.
#[derive(Clone, Copy, Debug, Default)]
struct TopicTotals {
    pulls: u64,
    pulled: u64,
    pull_time: Duration,
    succeeded: u64,
    failed: u64,
    consume_time: Duration,
}

/// Counts by topic. There are as many as subscriptions.
#[derive(Debug)]
pub(crate) struct Totals {
    began: Instant,
    topics: Mutex<BTreeMap<String, TopicTotals>>,
}

impl Totals {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), topics: Mutex::default() }
    }

    pub(crate) fn pulled(&self, topic: &str, messages: usize, time: Duration) {
        self.change(topic, |totals| {
            totals.pulls += 1;
            totals.pulled += messages as u64;
            totals.pull_time += time;
        });
    }

    pub(crate) fn consumed(&self, topic: &str, messages: usize, time: Duration, succeeded: bool) {
        self.change(topic, |totals| {
            let count = if succeeded { &mut totals.succeeded } else { &mut totals.failed };
            *count += messages as u64;
            totals.consume_time += time;
        });
    }

    fn change(&self, topic: &str, change: impl FnOnce(&mut TopicTotals)) {
        let mut topics = self.topics.lock();
        match topics.get_mut(topic) {
            Some(totals) => change(totals),
            None => change(topics.entry(topic.to_owned()).or_default()),
        }
    }

    fn statuses(&self) -> BTreeMap<String, ConsumeStatus> {
        let seconds = self.began.elapsed().as_secs_f64().max(0.001);
        let mean = |time: Duration, count: u64| {
            if count == 0 { 0.0 } else { time.as_secs_f64() * 1_000.0 / count as f64 }
        };
        let status = |totals: &TopicTotals| ConsumeStatus {
            pull_rt: mean(totals.pull_time, totals.pulls),
            pull_tps: totals.pulled as f64 / seconds,
            consume_rt: mean(totals.consume_time, totals.succeeded + totals.failed),
            consume_ok_tps: totals.succeeded as f64 / seconds,
            consume_failed_tps: totals.failed as f64 / seconds,
            consume_failed_msgs: totals.failed,
        };
        self.topics.lock().iter().map(|(topic, totals)| (topic.clone(), status(totals))).collect()
    }
}

impl Core {
    /// What `mqadmin consumerStatus` shows.
    pub(crate) fn running_info(&self) -> ConsumerRunningInfo {
        let properties = [
            ("PROP_NAMESERVER_ADDR", self.instance.name_servers().join(";")),
            ("PROP_CONSUME_TYPE", "CONSUME_PASSIVELY".to_owned()),
            ("PROP_CONSUMEORDERLY", self.listener.is_orderly().to_string()),
            ("PROP_THREADPOOL_CORE_SIZE", self.config.concurrency.to_string()),
            ("PROP_CLIENT_VERSION", CURRENT_VERSION.to_string()),
            ("PROP_CONSUMER_START_TIMESTAMP", self.started_millis.to_string()),
        ];
        let queues: Vec<_> = self.queues.lock().values().cloned().collect();
        let info = |queue: &std::sync::Arc<crate::process_queue::ProcessQueue>| {
            let figures = queue.figures();
            let info = ProcessQueueInfo {
                commit_offset: figures.commit_offset,
                cached_msg_min_offset: figures.min_offset,
                cached_msg_max_offset: figures.max_offset,
                cached_msg_count: figures.messages,
                cached_msg_size_in_mib: figures.bytes >> 20,
                locked: figures.locked,
                droped: queue.stop.is_cancelled(),
                last_pull_timestamp: figures.last_pull_millis,
                last_consume_timestamp: figures.last_consume_millis,
            };
            (queue.queue.clone(), info)
        };
        ConsumerRunningInfo {
            properties: properties.into(),
            subscription_set: self.subscriptions.values().cloned().collect(),
            mq_table: queues.iter().map(info).collect(),
            status_table: self.totals.statuses(),
        }
    }

    /// Offsets of a topic's queues that this consumer has.
    pub(crate) fn offset_status(&self, topic: &str) -> OffsetStatus {
        let queues = self.queues.lock();
        let of_topic = queues.keys().filter(|queue| topic.is_empty() || queue.topic == topic);
        let offset = |queue: &MessageQueue| Some((queue.clone(), self.offsets.get(queue)?));
        OffsetStatus { message_queue_table: of_topic.filter_map(offset).collect() }
    }

    /// Gives a message to the listener because an administrator wants it, outside of its queue.
    pub(crate) async fn consume_directly(
        &self,
        message: MessageExt,
        broker_name: String,
    ) -> ConsumeMessageDirectlyResult {
        let queue =
            MessageQueue { topic: message.topic.clone(), broker_name, queue_id: message.queue_id };
        let delivery = Delivery { queue, messages: vec![std::sync::Arc::new(message)] };
        let began = Instant::now();
        let timeout = self.config.consume_timeout;
        let consume_result = match &self.listener {
            Listener::Concurrent(call) => match listener::run(call, delivery, timeout).await {
                Ok(ConcurrentStatus::Success) => "CR_SUCCESS",
                Ok(ConcurrentStatus::Retry { .. }) => "CR_LATER",
                Err(_) => "CR_THROW_EXCEPTION",
            },
            Listener::Orderly(call) => match listener::run(call, delivery, timeout).await {
                Ok(OrderlyStatus::Success) => "CR_SUCCESS",
                Ok(OrderlyStatus::Suspend(_)) => "CR_LATER",
                Err(_) => "CR_THROW_EXCEPTION",
            },
        };
        ConsumeMessageDirectlyResult {
            order: self.listener.is_orderly(),
            auto_commit: self.config.message_model == MessageModel::Clustering,
            consume_result,
            spent_time_mills: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }
}
