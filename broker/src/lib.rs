//! The broker: request processors over the message store.
//!
//! A request is answered by one function below [`processor`]; [`dispatch`] is the table of them.
//! What they share is [`broker::Broker`]: the store, and tables that are each one file and one
//! noun: topics, groups, consumer offsets, clients, locks, held pulls, delayed messages.
//!
//! Invariants:
//! - A send is answered with success only after the store has the message as `flushDiskType` says.
//! - No request waits on a thread: what may wait for the disk runs on tokio's blocking pool.
//! - Nothing polls: held pulls, delay levels and registrations sleep until an event or their time.
//!
//! Absent in this version, and refused with a clear answer: transactions, timed messages
//! other than delay levels, POP consumption, SQL filters, access control.

mod address;
mod broker;
mod change_notice;
mod client_channel;
mod clock;
pub mod config;
mod consumer;
mod consumer_offset;
mod dispatch;
mod farewell;
mod group;
mod ha;
mod hold;
mod json_file;
mod lag;
mod log_records;
mod metadata_log;
mod metrics;
mod processor;
mod producer;
mod rebalance_lock;
mod refusal;
mod register;
mod replication_driver;
mod schedule;
mod server;
mod slave_sync;
mod table_version;
mod throughput;
mod topic;
mod topic_attribute;

pub use json_file::LoadTableError;
pub use server::{RunningBroker, StartError};
