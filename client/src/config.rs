//! Settings, with the defaults of Apache's client unless said otherwise.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use protocol::heartbeat::MessageModel;

/// Settings of a [`crate::ClientInstance`].
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Name servers as `host:port`, joined by `;` or `,`.
    pub name_servers: String,
    /// Last part of the client id, which is `address@instance_name`. Two live clients with the same
    /// id confuse brokers, so the default is the process id and a random number.
    pub instance_name: Option<String>,
    /// How long a call of the name server or of administration may take. 3 s.
    pub request_timeout: Duration,
    /// How long a connection may take to be made. 1.5 s, half of what a send may take, so that
    /// there is time left for another broker. Java: 3 s.
    pub connect_timeout: Duration,
    /// How often routes are read again. 30 s.
    pub route_refresh_interval: Duration,
    /// A route that nobody used for this long is forgotten. 10 min.
    pub route_idle: Duration,
    /// How often brokers are told who is here. 30 s; brokers forget a client after 120 s.
    pub heartbeat_interval: Duration,
    /// Topics whose routes are kept at most; the one used longest ago makes room. 10,000.
    pub topics_max: usize,
}

impl ClientConfig {
    /// Defaults, with these name servers.
    pub fn new(name_servers: impl Into<String>) -> Self {
        Self {
            name_servers: name_servers.into(),
            instance_name: None,
            request_timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_millis(1_500),
            route_refresh_interval: Duration::from_secs(30),
            route_idle: Duration::from_secs(600),
            heartbeat_interval: Duration::from_secs(30),
            topics_max: 10_000,
        }
    }
}

/// Settings of a [`crate::Producer`].
#[derive(Clone, Debug)]
pub struct ProducerConfig {
    /// Name of the group.
    pub group: String,
    /// Time for one send, retries included. 3 s.
    pub send_timeout: Duration,
    /// Time for one attempt, if it is to be less than `send_timeout`. As `send_timeout`: a retry
    /// after a lost answer stores the message twice, so slow brokers are waited for.
    pub attempt_timeout: Duration,
    /// Further attempts after the first failed, each on another broker if there is one. 2. Attempts
    /// for which there was no connection do not count.
    pub retries: u32,
    /// Pause before an attempt on the broker that has just failed, for want of another, and before
    /// each attempt after the second. 100 ms.
    pub retry_pause: Duration,
    /// Also try again when the message was stored but not as safely as the broker is set to. Such a
    /// message is then stored twice. false.
    pub retry_when_not_store_ok: bool,
    /// Avoid brokers that failed or were slow lately. true. Java: false.
    pub avoid_slow_brokers: bool,
    /// Largest body in bytes, before compression. 4 MiB, the default limit of brokers.
    pub message_bytes_max: usize,
    /// Bodies of at least this many bytes are compressed. 4,096.
    pub compress_over_bytes: usize,
    /// Level of zlib, 1 to 9. 5.
    pub compress_level: u32,
    /// Queues that a topic gets on each broker when it is created by the first send. 4.
    pub default_topic_queue_nums: i32,
    /// Sends that may be under way at once; more wait, within their time. 1,024.
    pub in_flight_max: usize,
}

impl ProducerConfig {
    /// Defaults for this group.
    pub fn new(group: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            send_timeout: Duration::from_secs(3),
            attempt_timeout: Duration::from_secs(3),
            retries: 2,
            retry_pause: Duration::from_millis(100),
            retry_when_not_store_ok: false,
            avoid_slow_brokers: true,
            message_bytes_max: 4 * 1024 * 1024,
            compress_over_bytes: 4 * 1024,
            compress_level: 5,
            default_topic_queue_nums: 4,
            in_flight_max: 1_024,
        }
    }
}

/// Where a group begins in a queue in which it has no offset yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConsumeFrom {
    /// With messages that are stored from now on.
    #[default]
    Last,
    /// With the first message that is there.
    First,
    /// With the first message that was stored at or after this time, milliseconds since the epoch.
    Timestamp(i64),
}

/// Settings of a [`crate::PushConsumer`].
#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    /// Name of the group. All its members must subscribe to the same.
    pub group: String,
    /// What is consumed: topics, each with tags joined by `||`, or `*` for all messages.
    pub subscriptions: BTreeMap<String, String>,
    /// Whether the members of the group share the messages (clustering) or each get all of them
    /// (broadcasting). Clustering.
    pub message_model: MessageModel,
    /// Where the group begins. At the end.
    pub consume_from: ConsumeFrom,
    /// Deliveries that may be under way at once. 20.
    pub concurrency: usize,
    /// Messages in one delivery at most. 1.
    pub batch_max: usize,
    /// Messages that one pull asks for. 32.
    pub pull_batch: i32,
    /// Bytes that one pull asks for. 256 KiB.
    pub pull_batch_bytes: i32,
    /// Pulling of a queue pauses while it has this many messages that are not done with. 1,000.
    pub queue_messages_max: usize,
    /// Pulling of a queue pauses while it has this many bytes that are not done with. 100 MiB.
    pub queue_bytes_max: usize,
    /// Pulling of a queue pauses while its first and last message that are not done with are this
    /// far apart. Not for orderly listeners. 2,000.
    pub queue_span_max: i64,
    /// Largest body, decompressed, in bytes. Larger ones go to the dead letters. 64 MiB.
    pub message_bytes_max: usize,
    /// A listener that takes longer has failed. 15 min.
    pub consume_timeout: Duration,
    /// Deliveries before a message goes to the dead letters. `None`: 16; without end for orderly
    /// listeners, whose queue waits.
    pub max_reconsume_times: Option<i32>,
    /// Pause before a message is delivered again that could not even be sent back. 5 s.
    pub local_retry_pause: Duration,
    /// Pause after a pull that failed. 1 s.
    pub pull_pause: Duration,
    /// How long a broker may hold a pull for which there is no message. 15 s.
    pub pull_suspend: Duration,
    /// How long a pull may take in all. 30 s.
    pub pull_timeout: Duration,
    /// How often offsets are stored. 5 s.
    pub persist_interval: Duration,
    /// How often the share of queues is looked at without cause. 20 s.
    pub rebalance_interval: Duration,
    /// How often the locks of an orderly consumer are renewed. 20 s; they count for 30 s.
    pub lock_interval: Duration,
    /// How long listeners may finish at shutdown. 10 s.
    pub shutdown_timeout: Duration,
    /// Where a broadcasting consumer keeps its offsets, as `GROUP/offsets.json`. Must be its own.
    /// Needed for broadcasting.
    pub broadcast_offset_directory: Option<PathBuf>,
}

impl ConsumerConfig {
    /// Defaults, for this group and one topic. Tags are joined by `||`; `*` is all.
    pub fn new(
        group: impl Into<String>,
        topic: impl Into<String>,
        tags: impl Into<String>,
    ) -> Self {
        Self {
            group: group.into(),
            subscriptions: BTreeMap::from([(topic.into(), tags.into())]),
            message_model: MessageModel::Clustering,
            consume_from: ConsumeFrom::Last,
            concurrency: 20,
            batch_max: 1,
            pull_batch: 32,
            pull_batch_bytes: 256 * 1024,
            queue_messages_max: 1_000,
            queue_bytes_max: 100 * 1024 * 1024,
            queue_span_max: 2_000,
            message_bytes_max: 64 * 1024 * 1024,
            consume_timeout: Duration::from_secs(15 * 60),
            max_reconsume_times: None,
            local_retry_pause: Duration::from_secs(5),
            pull_pause: Duration::from_secs(1),
            pull_suspend: Duration::from_secs(15),
            pull_timeout: Duration::from_secs(30),
            persist_interval: Duration::from_secs(5),
            rebalance_interval: Duration::from_secs(20),
            lock_interval: Duration::from_secs(20),
            shutdown_timeout: Duration::from_secs(10),
            broadcast_offset_directory: None,
        }
    }
}
