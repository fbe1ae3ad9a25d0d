//! Settings, with the defaults of Apache's client unless said otherwise.

use std::time::Duration;

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
    /// How long a connection may take to be made. 1.5 s, half of what a send may take, so that there
    /// is time left for another broker. Java: 3 s.
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
    /// Further attempts after the first failed, each on another broker if there is one. 2.
    pub retries: u32,
    /// Pause before an attempt on the broker that has just failed, for want of another. 100 ms.
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
