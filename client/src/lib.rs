//! The client side of RocketMQ: a producer, a push consumer and the calls of administration.
//!
//! A [`ClientInstance`] is one client as brokers see it: it has the client id, the connections, the
//! routes and the heartbeats. Producers and consumers are made on it and share them. Nothing is
//! global, so a process may have as many instances as it likes, each with its own name servers.
//!
//! Behaviour follows Apache's Java client where brokers or operators can tell: which queue a
//! message goes to, what is retried, when offsets are stored, how queues are shared out.
//!
//! Absent on purpose: transactions, pull and pop consumers, SQL filters, request-reply, traces,
//! TLS and ACL signatures. They come with the features of the broker that they need.

mod admin;
mod config;
mod consume;
mod error;
#[cfg(test)]
mod fake;
mod fault;
mod instance;
mod listener;
mod members;
mod message;
mod name_servers;
mod offset_store;
mod process_queue;
mod producer;
mod pull;
mod push_consumer;
mod rebalance;
mod retry;
mod route;
mod running_info;

pub use admin::{Admin, BrokerAddress};
pub use config::{ClientConfig, ConsumeFrom, ConsumerConfig, ProducerConfig};
pub use error::{ClientError, ConsumerError, MessageRefused, SendError};
pub use instance::ClientInstance;
pub use listener::{ConcurrentStatus, Delivery, Listener, OrderlyStatus};
pub use message::Message;
pub use producer::{Producer, SendResult, SendStatus};
pub use push_consumer::PushConsumer;
pub use route::TopicRoute;

pub use protocol::body::MessageQueue;
pub use protocol::heartbeat::MessageModel;
pub use protocol::message::MessageExt;

/// Milliseconds since the epoch by the wall clock, for timestamps that others read. What is
/// measured or waited for uses [`tokio::time`].
pub(crate) fn epoch_millis() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
