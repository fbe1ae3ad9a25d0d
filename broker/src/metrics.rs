//! Figures under the names that Apache's broker uses, so that its dashboards work.

use std::collections::HashSet;
use std::fmt::{self, Write as _};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::RwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, EncodeMetric, LabelValueEncoder,
};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use protocol::topic_name;

use crate::broker::Broker;
use crate::clock::now_ms;

/// Topics and groups that have series of their own at most.
const SERIES_MAX: usize = 10_000;
/// Stands for all topics and groups beyond them.
const OTHERS: &str = "others";
/// Upper bounds of the latency of requests, in milliseconds.
const LATENCY_MS: [f64; 9] = [1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 1_000.0, 2_000.0, 3_000.0];
/// Upper bounds of the size of messages, in bytes.
const SIZE_BYTES: [f64; 7] =
    [1_024.0, 4_096.0, 524_288.0, 1_048_576.0, 2_097_152.0, 4_194_304.0, 16_777_216.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TopicLabels {
    topic: Arc<str>,
    message_type: &'static str,
    is_system: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConsumeLabels {
    topic: String,
    consumer_group: String,
    is_retry: &'static str,
    is_system: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RpcLabels {
    protocol_type: &'static str,
    request_code: CodeName,
    response_code: CodeName,
    is_long_polling: &'static str,
    result: &'static str,
}

/// The name of a code, written in small letters. Codes that nobody knows have one name together, or
/// they would make as many series as a peer likes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CodeName(Option<&'static str>);

impl EncodeLabelValue for CodeName {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(&self.0.unwrap_or("unknown").to_lowercase())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SizeLabels {
    message_type: &'static str,
}

/// A message that was stored or handed out, for the counters.
pub(crate) struct Counted<'a> {
    pub(crate) topic: &'a str,
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
    pub(crate) is_system: bool,
}

/// A request that was answered.
pub(crate) struct Answered {
    pub(crate) request: RequestCode,
    pub(crate) response: ResponseCode,
    /// It is a pull that may be held.
    pub(crate) is_long_polling: bool,
    pub(crate) is_oneway: bool,
    pub(crate) took: Duration,
}

type MakeHistogram = fn() -> Histogram;

/// Counters of a broker. Clones share them.
#[derive(Clone)]
pub(crate) struct Metrics {
    messages_in: Family<TopicLabels, Counter>,
    throughput_in: Family<TopicLabels, Counter>,
    message_size: Family<SizeLabels, Histogram, MakeHistogram>,
    messages_out: Family<ConsumeLabels, Counter>,
    throughput_out: Family<ConsumeLabels, Counter>,
    send_to_dlq: Family<ConsumeLabels, Counter>,
    rpc_latency: Family<RpcLabels, Histogram, MakeHistogram>,
    named: Arc<Named>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            messages_in: Family::default(),
            throughput_in: Family::default(),
            message_size: Family::new_with_constructor(|| Histogram::new(SIZE_BYTES)),
            messages_out: Family::default(),
            throughput_out: Family::default(),
            send_to_dlq: Family::default(),
            rpc_latency: Family::new_with_constructor(|| Histogram::new(LATENCY_MS)),
            named: Arc::default(),
        }
    }
}

/// Topics and groups that have series of their own; what comes after [`SERIES_MAX`] of them is
/// counted together.
#[derive(Default)]
struct Named {
    topics: RwLock<HashSet<Arc<str>>>,
    /// `topic@group`.
    groups: RwLock<HashSet<Arc<str>>>,
}

impl Named {
    /// `name`, if it is one of at most [`SERIES_MAX`].
    fn admitted(names: &RwLock<HashSet<Arc<str>>>, name: &str) -> Option<Arc<str>> {
        if let Some(name) = names.read().get(name) {
            return Some(Arc::clone(name));
        }
        let mut names = names.write();
        if names.len() >= SERIES_MAX {
            return None;
        }
        let name: Arc<str> = name.into();
        names.insert(Arc::clone(&name));
        Some(name)
    }
}

impl Metrics {
    /// Adds everything about `cluster` and `broker` to `registry`; what has to be asked of the
    /// running broker is there once `running` is set.
    pub(crate) fn register(
        &self,
        registry: &mut Registry,
        (cluster, broker): (&str, &str),
        running: &Arc<OnceLock<Weak<Broker>>>,
    ) {
        let labels = [("cluster", cluster), ("node_type", "broker"), ("node_id", broker)];
        let labels = labels.map(|(name, value)| (name.into(), value.to_owned().into()));
        let registry = labels
            .into_iter()
            .fold(registry, |registry, label| registry.sub_registry_with_label(label));
        let running = Arc::clone(running);
        registry.register("rocketmq_messages_in", "Messages stored", self.messages_in.clone());
        registry.register("rocketmq_throughput_in", "Bytes stored", self.throughput_in.clone());
        registry.register(
            "rocketmq_message_size",
            "Size of stored messages in bytes",
            self.message_size.clone(),
        );
        registry.register(
            "rocketmq_messages_out",
            "Messages handed to consumers",
            self.messages_out.clone(),
        );
        registry.register(
            "rocketmq_throughput_out",
            "Bytes handed to consumers",
            self.throughput_out.clone(),
        );
        registry.register(
            "rocketmq_send_to_dlq_messages",
            "Messages that became dead letters",
            self.send_to_dlq.clone(),
        );
        registry.register(
            "rocketmq_rpc_latency",
            "Milliseconds from a request to its answer",
            self.rpc_latency.clone(),
        );
        registry.register_collector(Box::new(Running { running }));
    }

    /// Messages were stored.
    pub(crate) fn stored(&self, counted: &Counted<'_>, message_type: &'static str) {
        let named = Named::admitted(&self.named.topics, counted.topic);
        let topic = named.unwrap_or_else(|| OTHERS.into());
        let labels = TopicLabels { topic, message_type, is_system: flag(counted.is_system) };
        self.messages_in.get_or_create(&labels).inc_by(counted.messages as u64);
        self.throughput_in.get_or_create(&labels).inc_by(counted.bytes as u64);
        let size = counted.bytes as f64 / counted.messages.max(1) as f64;
        self.message_size.get_or_create(&SizeLabels { message_type }).observe(size);
    }

    /// Messages were handed to a consumer.
    pub(crate) fn consumed(&self, counted: &Counted<'_>, group: &str) {
        let labels = self.consume_labels(counted, group);
        self.messages_out.get_or_create(&labels).inc_by(counted.messages as u64);
        self.throughput_out.get_or_create(&labels).inc_by(counted.bytes as u64);
    }

    /// A message became a dead letter.
    pub(crate) fn dead_letter(&self, counted: &Counted<'_>, group: &str) {
        self.send_to_dlq.get_or_create(&self.consume_labels(counted, group)).inc();
    }

    fn consume_labels(&self, counted: &Counted<'_>, group: &str) -> ConsumeLabels {
        let key = format!("{}@{group}", counted.topic);
        if Named::admitted(&self.named.groups, &key).is_some() {
            return consume_labels(counted, group);
        }
        consume_labels(&Counted { topic: OTHERS, ..*counted }, OTHERS)
    }

    /// A request was answered.
    pub(crate) fn answered(&self, answered: &Answered) {
        let Answered { request, response, is_long_polling, is_oneway, took } = *answered;
        let labels = RpcLabels {
            protocol_type: "remoting",
            request_code: CodeName(request.name()),
            response_code: CodeName(response.name()),
            is_long_polling: flag(is_long_polling),
            result: match (is_oneway, response) {
                (true, _) => "oneway",
                (_, ResponseCode::SYSTEM_ERROR) => "process_request_failed",
                _ => "success",
            },
        };
        self.rpc_latency.get_or_create(&labels).observe(took.as_secs_f64() * 1_000.0);
    }

    /// Forgets a topic that is no more.
    pub(crate) fn remove_topic(&self, topic: &str, is_system: bool) {
        for message_type in ["normal", "fifo", "delay", "transaction"] {
            let labels =
                TopicLabels { topic: topic.into(), message_type, is_system: flag(is_system) };
            self.messages_in.remove(&labels);
            self.throughput_in.remove(&labels);
        }
        self.named.topics.write().remove(topic);
    }

    /// Forgets a group of a topic.
    pub(crate) fn remove_group(&self, topic: &str, group: &str, is_system: bool) {
        let counted = Counted { topic, messages: 0, bytes: 0, is_system };
        let labels = consume_labels(&counted, group);
        self.messages_out.remove(&labels);
        self.throughput_out.remove(&labels);
        self.send_to_dlq.remove(&labels);
        self.named.groups.write().remove(format!("{topic}@{group}").as_str());
    }
}

fn consume_labels(counted: &Counted<'_>, group: &str) -> ConsumeLabels {
    ConsumeLabels {
        topic: counted.topic.to_owned(),
        consumer_group: group.to_owned(),
        is_retry: flag(topic_name::is_retry(counted.topic)),
        is_system: flag(counted.is_system || topic_name::is_system_group(group)),
    }
}

const fn flag(is_set: bool) -> &'static str {
    if is_set { "true" } else { "false" }
}

/// What is asked of the broker at each scrape.
#[derive(Debug)]
struct Running {
    running: Arc<OnceLock<Weak<Broker>>>,
}

/// One gauge with its series.
struct Gauge<'a> {
    name: &'a str,
    help: &'a str,
}

impl Gauge<'_> {
    fn encode<L: EncodeLabelSet>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        series: impl IntoIterator<Item = (L, f64)>,
    ) -> fmt::Result {
        let sample = ConstGauge::new(0.0_f64);
        let mut metric =
            encoder.encode_descriptor(self.name, self.help, None, sample.metric_type())?;
        for (labels, value) in series.into_iter().take(SERIES_MAX) {
            ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

impl Collector for Running {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(broker) = self.running.get().and_then(Weak::upgrade) else { return Ok(()) };
        encode_node(&broker, &mut encoder)?;
        encode_storage(&broker, &mut encoder)?;
        encode_replication(&broker, &mut encoder)?;
        encode_clients(&broker, &mut encoder)?;
        encode_lag(&broker, &mut encoder)
    }
}

const NO_LABELS: [(&str, &str); 0] = [];
const STORAGE_LABELS: [(&str, &str); 2] = [("storage_type", "local"), ("storage_medium", "disk")];

fn encode_node(broker: &Broker, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let settings = broker.settings();
    for (name, help, value) in [
        (
            "rocketmq_broker_permission",
            "What clients may do: 4 read, 2 write",
            f64::from(settings.broker_permission),
        ),
        ("rocketmq_topic_number", "Topics", broker.topics.len() as f64),
        ("rocketmq_consumer_group_number", "Consumer groups", broker.groups.len() as f64),
        ("rocketmq_pull_hold", "Pulls that wait for a message", broker.hold.held() as f64),
        (
            "rocketmq_registered_name_servers",
            "Name servers that know this broker",
            broker.name_servers.registered() as f64,
        ),
    ] {
        Gauge { name, help }.encode(encoder, [(NO_LABELS, value)])?;
    }
    Ok(())
}

fn encode_storage(broker: &Broker, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let stats = broker.store.stats();
    let bytes = |from: i64, to: i64| to.saturating_sub(from).max(0) as f64;
    let index_behind = match broker.settings().message_index_enable {
        true => bytes(stats.log_indexed_offset, stats.log_dispatched_offset),
        false => 0.0,
    };
    for (name, help, value) in [
        (
            "rocketmq_storage_size",
            "Bytes of the commit log",
            bytes(stats.log_min_offset, stats.log_max_offset),
        ),
        (
            "rocketmq_storage_flush_behind_bytes",
            "Bytes that are written and not yet flushed",
            bytes(stats.log_flushed_offset, stats.log_max_offset),
        ),
        (
            "rocketmq_storage_dispatch_behind_bytes",
            "Bytes that are written and not yet readable",
            bytes(stats.log_dispatched_offset, stats.log_max_offset),
        ),
        (
            "rocketmq_storage_index_behind_bytes",
            "Bytes that are readable and cannot yet be found by key",
            index_behind,
        ),
        (
            "rocketmq_storage_index_entries",
            "Keys indexed since the start",
            stats.metrics.index_entries as f64,
        ),
        (
            "rocketmq_storage_index_failures",
            "Times that the index of keys could not be read or written",
            stats.metrics.index_failures as f64,
        ),
        (
            "rocketmq_storage_message_reserve_time",
            "Age of the oldest message in milliseconds",
            broker.message_reserve_ms() as f64,
        ),
        (
            "rocketmq_storage_put_pending_bytes",
            "Bytes accepted and not yet readable",
            stats.pending_bytes as f64,
        ),
    ] {
        Gauge { name, help }.encode(encoder, [(STORAGE_LABELS, value)])?;
    }
    Ok(())
}

fn encode_replication(broker: &Broker, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let ha = &broker.ha;
    if ha.is_slave() {
        let silence_ms = match ha.following.last_read_ms() {
            0 => -1.0,
            heard_ms => (now_ms() - heard_ms).max(0) as f64,
        };
        let is_connected = f64::from(u8::from(ha.has_master()));
        let behind = ha.following.behind(broker.store.log_end()) as f64;
        for (name, help, value) in [
            ("rocketmq_ha_master_connected", "Whether the master's log comes", is_connected),
            (
                "rocketmq_ha_behind_bytes",
                "Bytes that this slave lacked when the master was last asked",
                behind,
            ),
            (
                "rocketmq_ha_master_silence",
                "Milliseconds since the master was heard of; -1: never",
                silence_ms,
            ),
        ] {
            Gauge { name, help }.encode(encoder, [(NO_LABELS, value)])?;
        }
        return Ok(());
    }
    for (name, help, value) in [
        ("rocketmq_ha_slaves", "Slaves that are connected", ha.slaves.connected() as f64),
        (
            "rocketmq_ha_in_sync_slaves",
            "Slaves that lack less than haMaxGapNotInSync",
            ha.slaves.in_sync() as f64,
        ),
    ] {
        Gauge { name, help }.encode(encoder, [(NO_LABELS, value)])?;
    }
    let lags = ha.slaves.lags(broker.store.log_end());
    let series = lags.into_iter().map(|(slave, lag)| ([("slave", slave.to_string())], lag as f64));
    let gauge = Gauge {
        name: "rocketmq_ha_slave_lag_bytes",
        help: "Bytes of the log that a slave has not acknowledged",
    };
    gauge.encode(encoder, series)
}

fn encode_clients(broker: &Broker, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let producers = broker.producers.counts().into_iter().map(|((language, version), count)| {
        let labels = [("language", language.to_lowercase()), ("version", format!("v{version}"))];
        (labels, count as f64)
    });
    let gauge = Gauge { name: "rocketmq_producer_connections", help: "Connections of producers" };
    gauge.encode(encoder, producers)?;
    let consumers =
        broker.consumers.counts().into_iter().map(|((group, language, version, mode), count)| {
            let is_system = flag(topic_name::is_system_group(&group));
            let labels = [
                ("consumer_group", group),
                ("language", language.to_lowercase()),
                ("version", format!("v{version}")),
                ("consume_mode", mode.to_owned()),
                ("is_system", is_system.to_owned()),
            ];
            (labels, count as f64)
        });
    let gauge = Gauge { name: "rocketmq_consumer_connections", help: "Connections of consumers" };
    gauge.encode(encoder, consumers)
}

/// Name, description and value of one figure about lag.
type LagFigure = (&'static str, &'static str, fn(&crate::lag::Lag) -> i64);

fn encode_lag(broker: &Broker, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let lags = broker.lags();
    let labels = |lag: &crate::lag::Lag| {
        let counted = Counted { topic: &lag.topic, messages: 0, bytes: 0, is_system: false };
        consume_labels(&counted, &lag.group)
    };
    let figures: [LagFigure; 4] = [
        ("rocketmq_consumer_lag_messages", "Messages not yet consumed", |lag| lag.messages),
        (
            "rocketmq_consumer_lag_latency",
            "Age of the oldest message not yet consumed, in milliseconds",
            |lag| lag.latency_ms,
        ),
        (
            "rocketmq_consumer_inflight_messages",
            "Messages handed out and not yet acknowledged",
            |lag| lag.inflight,
        ),
        ("rocketmq_consumer_ready_messages", "Messages not yet handed out", |lag| {
            lag.messages - lag.inflight
        }),
    ];
    for (name, help, figure) in figures {
        let series = lags.iter().map(|lag| (labels(lag), figure(lag) as f64));
        Gauge { name, help }.encode(encoder, series)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(metrics: &Metrics) -> String {
        let mut registry = Registry::default();
        metrics.register(&mut registry, ("c", "b"), &Arc::default());
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn names_and_labels_are_those_of_apache() {
        let metrics = Metrics::default();
        let counted = Counted { topic: "%RETRY%g", messages: 2, bytes: 9, is_system: false };
        metrics.stored(&counted, "normal");
        metrics.consumed(&counted, "g");
        metrics.dead_letter(&counted, "g");
        metrics.answered(&Answered {
            request: RequestCode::PULL_MESSAGE,
            response: ResponseCode::PULL_NOT_FOUND,
            is_long_polling: true,
            is_oneway: false,
            took: Duration::from_millis(2),
        });
        metrics.answered(&Answered {
            request: RequestCode(77_777),
            response: ResponseCode(77),
            is_long_polling: false,
            is_oneway: true,
            took: Duration::ZERO,
        });
        let found = text(&metrics);
        for line in [
            "rocketmq_messages_in_total{cluster=\"c\",node_type=\"broker\",node_id=\"b\",\
             topic=\"%RETRY%g\",message_type=\"normal\",is_system=\"false\"} 2",
            "consumer_group=\"g\",is_retry=\"true\",is_system=\"false\"} 9",
            "rocketmq_send_to_dlq_messages_total{",
            "le=\"3.0\",protocol_type=\"remoting\",request_code=\"pull_message\",\
             response_code=\"pull_not_found\",is_long_polling=\"true\",result=\"success\"} 1",
            "request_code=\"unknown\",response_code=\"unknown\"",
        ] {
            assert!(found.contains(line), "{line} is not in\n{found}");
        }
        metrics.remove_topic("%RETRY%g", false);
        metrics.remove_group("%RETRY%g", "g", false);
        assert!(!text(&metrics).contains("%RETRY%g"), "a topic that is gone leaves no series");
    }

    #[test]
    fn series_are_limited() {
        let metrics = Metrics::default();
        for number in 0..SERIES_MAX + 5 {
            let topic = format!("t{number}");
            let counted = Counted { topic: &topic, messages: 1, bytes: 1, is_system: false };
            metrics.stored(&counted, "normal");
        }
        let text = text(&metrics);
        let lines = text.lines().filter(|line| line.starts_with("rocketmq_messages_in_total{"));
        assert_eq!(lines.count(), SERIES_MAX + 1);
        assert!(text.contains("topic=\"others\",message_type=\"normal\",is_system=\"false\"} 5"));
    }
}
