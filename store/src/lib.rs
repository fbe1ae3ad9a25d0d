//! The message store: a commit log in Apache RocketMQ's format and everything derived from it.
//!
//! Synchronous, with threads of its own, behind a disk trait. It knows nothing of networks, topics'
//! settings or consumers.
//!
//! # Invariants
//! - A put resolves only after its record is written, under SYNC_FLUSH after it is flushed, and
//!   once the message can be read (unless no consume queue can be written at present).
//! - A write or flush that failed is never repeated; nothing is acknowledged after it.
//! - Behind the end of the log there are only zeros before anything is appended.
//! - Everything but the commit log can be rebuilt from it.
//! - Consumers see a message only after it is written, under SYNC_FLUSH after it is flushed, and
//!   never beyond the confirm offset, if there is one.

mod checkpoint;
pub mod clock;
mod commit_log;
pub mod completion;
pub mod config;
pub mod config_file;
mod confirm;
mod consume_queue;
mod consume_queue_table;
pub mod delay_level;
mod deleted_topics;
pub mod disk;
pub mod dispatch;
mod dry_run;
pub mod error;
mod file_cache;
pub mod filter;
pub mod get;
pub mod index;
mod index_file;
mod index_key;
pub mod inspect;
mod mailbox;
mod mapped_file;
pub mod message_store;
pub mod metrics;
mod open;
mod pending;
mod pipeline;
mod put;
pub mod recovery;
mod replication;
mod retention;
mod running_flags;
pub mod sim_disk;
mod tail;

pub use commit_log::LogListener;
pub use commit_log::replicate::REPLICATED_RECORD_BYTES_MAX;
pub use completion::{PutFuture, PutResult};
pub use config::{FlushDiskType, StoreConfig};
pub use dispatch::{DispatchRequest, Dispatcher, Records};
pub use error::{IllegalMessage, PutError, ReadError, ReplicationError, StoreError};
pub use filter::{AllMessages, MessageFilter, TagFilter};
pub use get::{Boundary, GetRequest, GetResult, GetStatus};
pub use index::{QueryRequest, QueryResult};
pub use message_store::{MessageStore, StoreStats, Threads};
pub use recovery::RecoveryReport;
