//! The name server: which brokers serve a topic, and where they are.
//!
//! Brokers register here every 30 s and when something changes; a broker that falls silent for
//! 120 s, or whose connection breaks, is taken out of the routes. Nothing is replicated between
//! name servers and only the key-value settings are kept on disk: brokers tell the rest again.
//!
//! [`route_table::RouteTable`] holds the rules and knows neither clock nor connection; the
//! processor turns requests into calls of it.

pub mod config;
pub mod kv_config;
mod metrics;
mod processor;
mod registrar;
pub mod registration;
pub mod route_table;
mod server;

pub use server::{NameServer, StartError};
