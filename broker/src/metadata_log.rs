//! Changes of topics and groups in the log of an elected group: one queue of a topic of its own,
//! with a JSON body for each change. A message comes behind the change that made its topic, so
//! whoever has the message knows the topic, and whoever is elected knows all that was acknowledged.
//!
//! A version goes with each change, which begins with the epoch of the master that made it. A
//! replica takes only what is newer than what it has, so reading the log twice does no harm.

use std::future::Future;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{OnceLock, Weak};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use protocol::data_version::DataVersion;
use protocol::message::Message;
use protocol::subscription::SubscriptionGroupConfig;
use protocol::topic_config::TopicConfig;
use protocol::{json, message_codec, topic_name};
use serde::{Deserialize, Serialize};
use store::{AllMessages, GetRequest, GetStatus};
use tokio::time::timeout;

use crate::broker::Broker;
use crate::clock::now_ms;
use crate::log_records;
use crate::refusal::Refusal;

/// Changes that are read at once.
const READ_MESSAGES: usize = 256;
const READ_BYTES: usize = 4 << 20;
/// Log bytes that are read at once.
const SCAN_BYTES: usize = 4 << 20;
/// How long an administrator waits for the slaves.
const SETTLE_LIMIT: Duration = Duration::from_secs(3);

/// What became different.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum TableChange {
    Topic(TopicConfig),
    TopicRemoved(String),
    Group(SubscriptionGroupConfig),
    GroupRemoved(String),
    /// Whether a group is forbidden to read a topic.
    #[serde(rename_all = "camelCase")]
    ReadForbidden {
        group: String,
        topic: String,
        is_forbidden: bool,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    /// Of the table, after the change.
    data_version: DataVersion,
    change: TableChange,
}

type Outcome = Shared<BoxFuture<'static, Result<(), String>>>;

/// See the module.
#[derive(Default)]
pub(crate) struct MetadataLog {
    /// Not set without elections: then nothing is written.
    broker: OnceLock<Weak<Broker>>,
    /// The last change that was written.
    last: Mutex<Option<Outcome>>,
    /// Offset in the queue of the next change to read.
    next: AtomicI64,
}

impl MetadataLog {
    /// From now on changes are written to the broker's log.
    pub(crate) fn start(&self, broker: Weak<Broker>) {
        let _ = self.broker.set(broker);
    }

    /// Whether this broker is of an elected group.
    pub(crate) fn is_started(&self) -> bool {
        self.broker.get().is_some()
    }

    /// Whether changes are another broker's to make.
    pub(crate) fn is_slave(&self) -> bool {
        let broker = self.broker.get().and_then(Weak::upgrade);
        broker.is_some_and(|broker| !broker.role.is_master())
    }

    /// Writes a change, unless this broker is not master; then it is the master's. Called while
    /// nobody else sees the change, so that no message that needs it comes before it.
    pub(crate) fn write(&self, data_version: DataVersion, change: TableChange) {
        let Some(broker) = self.broker.get().and_then(Weak::upgrade) else { return };
        if !broker.role.is_master() {
            return;
        }
        let body = match json::to_vec(&Record { data_version, change }) {
            Ok(body) => body,
            Err(error) => return tracing::error!(%error, "a change has no JSON form"),
        };
        let store_host = broker.identity.store_host;
        let put = broker.put(&Message {
            topic: topic_name::METADATA_TOPIC,
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_timestamp: now_ms(),
            born_host: store_host,
            store_host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: &body,
            properties: "",
        });
        let outcome = put.map(|put| put.map(drop).map_err(|error| error.to_string()));
        *self.last.lock() = Some(outcome.boxed().shared());
    }

    /// Waits until the last change is acknowledged by the replicas.
    pub(crate) fn settled(&self) -> impl Future<Output = Result<(), Refusal>> + use<> {
        let last = self.last.lock().clone();
        async move {
            let Some(last) = last else { return Ok(()) };
            let reason = match timeout(SETTLE_LIMIT, last).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(reason)) => reason,
                Err(_) => format!("no answer of the slaves within {SETTLE_LIMIT:?}"),
            };
            Err(Refusal::error(format!(
                "the change counts here, but another master might not know it: {reason}"
            )))
        }
    }

    /// Takes over the changes in the log that can be read; whether there were new ones.
    pub(crate) fn catch_up(&self, broker: &Broker) -> bool {
        let mut is_changed = false;
        loop {
            let request = GetRequest {
                topic: topic_name::METADATA_TOPIC,
                queue_id: 0,
                offset: self.next.load(Ordering::Acquire),
                max_messages: READ_MESSAGES,
                max_bytes: READ_BYTES,
            };
            let result = match broker.store.get(&request, &AllMessages) {
                Ok(result) => result,
                Err(error) => {
                    tracing::error!(%error, "changes of topics and groups cannot be read");
                    return is_changed;
                }
            };
            if result.status == GetStatus::Found {
                for record in result.records() {
                    is_changed |= apply_record(broker, &record);
                }
            }
            let next = result.next_begin_offset;
            if self.next.swap(next, Ordering::AcqRel) == next {
                return is_changed;
            }
        }
    }

    /// Takes over all changes in the log, those that are not confirmed yet, too: before this broker
    /// becomes master, and these count.
    pub(crate) fn take_all(&self, broker: &Broker) {
        self.catch_up(broker);
        let store = &broker.store;
        let mut at = store.stats().log_dispatched_offset.max(store.log_min_offset());
        while at < store.log_end() {
            match scan(broker, at) {
                Ok(0) => return,
                Ok(bytes) => at += bytes,
                Err(error) => {
                    tracing::error!(error, "changes at the end of the log cannot be read");
                    return;
                }
            }
        }
    }
}

/// Applies the changes among the records from `at` on; returns how many bytes it looked at.
fn scan(broker: &Broker, at: i64) -> Result<i64, String> {
    let bytes = log_records::read(&broker.store, at, SCAN_BYTES)?;
    for record in log_records::each(&bytes) {
        // What is no message closes a file of the log.
        let is_change = message_codec::decode_record(record)
            .is_ok_and(|view| view.topic == topic_name::METADATA_TOPIC);
        if is_change {
            apply_record(broker, record);
        }
    }
    i64::try_from(bytes.len()).map_err(|error| error.to_string())
}

/// Applies a change if it is newer than what is known; whether it was.
fn apply_record(broker: &Broker, record: &[u8]) -> bool {
    let view = match message_codec::decode_record(record) {
        Ok(view) => view,
        Err(error) => {
            tracing::error!(%error, "a change of topics or groups is damaged");
            return false;
        }
    };
    // What a newer version writes and this one does not know comes with the tables of the master.
    match json::from_slice::<Record>(view.body) {
        Ok(Record { data_version, change }) => apply(broker, data_version, change),
        Err(error) => {
            let offset = view.physical_offset;
            tracing::warn!(offset, %error, "a change of topics or groups is not understood");
            false
        }
    }
}

fn apply(broker: &Broker, data_version: DataVersion, change: TableChange) -> bool {
    tracing::debug!(?data_version, ?change, "a change in the log");
    match change {
        TableChange::Topic(_) | TableChange::TopicRemoved(_) => {
            broker.topics.apply(data_version, change)
        }
        TableChange::Group(_)
        | TableChange::GroupRemoved(_)
        | TableChange::ReadForbidden { .. } => broker.groups.apply(data_version, change),
    }
}
