//! RocketMQ's remoting over tokio TCP: frames in both directions on one connection, the server end
//! and the client end.
//!
//! Both ends are the same thing once connected: either side may send requests, one-way requests and
//! responses. [`Channel`] is the handle on such a connection, [`Processor`] answers what the peer
//! asks. A connection starts its requests in the order in which they arrived and answers in the
//! order in which they end.
//!
//! Everything is bounded; the limits have names in [`Limits`]. A peer that sends garbage loses its
//! connection and nothing else.

mod channel;
mod client;
mod connection;
mod error;
mod limits;
mod metrics;
mod processor;
mod server;

pub use channel::Channel;
pub use client::RemotingClient;
pub use error::RemotingError;
pub use limits::Limits;
pub use metrics::RemotingMetrics;
pub use processor::{Context, NoRequests, Processor, Response};
pub use server::{Server, ServerConfig};
