//! What the parts of a broker share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use daemon::config::Live;
use protocol::message::Message;
use protocol::perm;
use protocol::subscription::SubscriptionGroupConfig;
use protocol::topic_config::TopicConfig;
use remoting::Channel;
use store::{MessageStore, PutFuture};

use crate::client_channel::ClientChannel;
use crate::clock::now_ms;
use crate::config::BrokerConfig;
use crate::consumer::{ConsumerTable, GroupChange};
use crate::consumer_offset::ConsumerOffsetTable;
use crate::farewell::Farewell;
use crate::group::{self, GroupTable};
use crate::ha::Ha;
use crate::hold::PullHold;
use crate::json_file::SaveError;
use crate::metadata_log::MetadataLog;
use crate::metrics::Metrics;
use crate::producer::ProducerTable;
use crate::rebalance_lock::RebalanceLocks;
use crate::refusal::Refusal;
use crate::register::NameServers;
use crate::replication_driver::{ReplicationDriver, RoleGate};
use crate::schedule::Schedule;
use crate::throughput::Throughput;
use crate::topic::{Found, TopicTable};

/// How long a request that changes a topic waits for the name servers: well below the 3 s after
/// which Java's client gives a request up and closes the connection.
const REGISTER_WAIT: Duration = Duration::from_secs(1);

/// Who this broker is.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) cluster: String,
    pub(crate) broker: String,
    pub(crate) id: i64,
    /// `host:port` as clients are told.
    pub(crate) address: String,
    /// `host:port` as slaves are told.
    pub(crate) ha_address: String,
    /// Address that records and message ids name.
    pub(crate) store_host: SocketAddr,
}

/// A broker: its store, its tables, its clients.
pub(crate) struct Broker {
    pub(crate) config: Live<BrokerConfig>,
    pub(crate) identity: Identity,
    pub(crate) store: MessageStore,
    /// What sends meet at present.
    pub(crate) role: Arc<RoleGate>,
    /// Takes part in elections, if this broker does.
    pub(crate) replication: Option<Arc<ReplicationDriver>>,
    pub(crate) topics: TopicTable,
    pub(crate) groups: GroupTable,
    pub(crate) metadata_log: Arc<MetadataLog>,
    pub(crate) offsets: ConsumerOffsetTable,
    pub(crate) producers: ProducerTable,
    pub(crate) consumers: ConsumerTable,
    pub(crate) locks: RebalanceLocks,
    pub(crate) hold: Arc<PullHold>,
    pub(crate) schedule: Schedule,
    pub(crate) name_servers: NameServers,
    pub(crate) farewell: Farewell,
    pub(crate) ha: Ha,
    pub(crate) metrics: Metrics,
    pub(crate) throughput: Throughput,
    /// When it started, epoch milliseconds.
    pub(crate) started_ms: i64,
}

impl Broker {
    /// The settings in force.
    pub(crate) fn settings(&self) -> Arc<BrokerConfig> {
        self.config.get()
    }

    /// Runs what may wait for the disk away from the threads that serve connections.
    pub(crate) async fn blocking<T, E>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, E> + Send + 'static,
    ) -> Result<T, Refusal>
    where
        T: Send + 'static,
        E: Into<Refusal> + Send + 'static,
    {
        let broker = Arc::clone(self);
        match tokio::task::spawn_blocking(move || work(&broker)).await {
            Ok(outcome) => outcome.map_err(Into::into),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(Refusal::error("the broker is stopping")),
        }
    }

    /// Stores messages with consecutive offsets in one queue, written with what others put.
    pub(crate) fn enqueue(&self, messages: &[Message<'_>]) -> PutFuture {
        self.role.put(|| self.store.enqueue(messages))
    }

    /// Stores one message.
    pub(crate) fn put(&self, message: &Message<'_>) -> PutFuture {
        self.role.put(|| self.store.put(message))
    }

    /// The address that clients are told.
    pub(crate) fn told_address(&self) -> String {
        let settings = self.settings();
        match settings.master_address.trim() {
            "" => self.identity.address.clone(),
            address if self.role.is_master() => address.to_owned(),
            _ => self.identity.address.clone(),
        }
    }

    /// Makes the tables those of a master of this epoch, before it serves.
    pub(crate) fn take_over(&self, epoch: i32) {
        self.metadata_log.take_all(self);
        self.topics.adopt(&self.store, self.settings().default_topic_queue_nums);
        self.topics.begin_epoch(epoch.into());
        self.groups.begin_epoch(epoch.into());
    }

    /// Tells the name servers of another role.
    pub(crate) fn role_changed(self: &Arc<Self>) {
        let broker = Arc::clone(self);
        tokio::spawn(async move {
            broker.publish_all().await;
            broker.save_tables().await;
            // As a slave it was known by another address, where nobody is now.
            if broker.role.is_master() && broker.told_address() != broker.identity.address {
                broker.name_servers.unregister(&broker, broker.identity.id).await;
            }
        });
    }

    /// Saves the topics and tells the name servers of one that was made or changed.
    pub(crate) async fn publish_topic(self: &Arc<Self>, topic: &str) -> Result<(), Refusal> {
        let saved = self.blocking(|broker| broker.topics.save());
        let registered = self.name_servers.register(Some(topic), REGISTER_WAIT);
        futures::future::join(saved, registered).await.0
    }

    /// Saves topics and groups. They are used even if they cannot be saved at present.
    pub(crate) async fn save_tables(self: &Arc<Self>) {
        let save = |broker: &Self| broker.topics.save().and(broker.groups.save());
        if let Err(refusal) = self.blocking(save).await {
            tracing::error!(error = refusal.remark, "topics and groups cannot be saved");
        }
    }

    /// Tells the name servers of a change that concerns all topics.
    pub(crate) async fn publish_all(&self) {
        self.topics.next_version();
        self.name_servers.register(None, REGISTER_WAIT).await;
    }

    /// Publishes a topic if it is new. It is used even if it cannot be saved at present.
    pub(crate) async fn publish_if_new(self: &Arc<Self>, found: Found) -> Arc<TopicConfig> {
        if found.is_new {
            let topic = &found.config.topic_name;
            tracing::info!(topic, queues = found.config.write_queue_nums, "topic was made");
            if let Err(refusal) = self.publish_topic(topic).await {
                tracing::error!(topic, error = refusal.remark, "topics cannot be saved");
            }
        }
        found.config
    }

    /// Refuses what only a master can do.
    pub(crate) fn check_master(&self) -> Result<(), Refusal> {
        if self.ha.is_slave() {
            return Err(Refusal::not_master());
        }
        Ok(())
    }

    /// The topic by which messages return to a group, or its dead letter topic.
    pub(crate) async fn return_topic(
        self: &Arc<Self>,
        topic: String,
        queue_nums: i32,
    ) -> Result<Arc<TopicConfig>, Refusal> {
        let wanted = TopicConfig::new(topic.as_str(), queue_nums, perm::READ | perm::WRITE);
        let too_many = || Refusal::error(format!("topic[{topic}] not exist: too many topics"));
        let found = self.topics.get_or_make(wanted).ok_or_else(too_many)?;
        Ok(self.publish_if_new(found).await)
    }

    /// A group, made when it may be.
    pub(crate) async fn group(
        self: &Arc<Self>,
        group: &str,
    ) -> Result<Arc<SubscriptionGroupConfig>, Refusal> {
        let found = self.find_group(group)?;
        if found.is_new {
            self.save_groups().await;
        }
        Ok(found.config)
    }

    /// As [`Broker::group`], but a new one is not saved yet.
    pub(crate) fn find_group(&self, group: &str) -> Result<group::Found, Refusal> {
        let auto_create = self.settings().auto_create_subscription_group;
        let found =
            self.groups.get_or_make(group, auto_create).ok_or_else(|| Refusal::no_group(group))?;
        if found.is_new {
            tracing::info!(group, "group was made");
        }
        Ok(found)
    }

    /// Saves the groups. A new one is used even if it cannot be saved at present.
    pub(crate) async fn save_groups(self: &Arc<Self>) {
        if let Err(refusal) = self.blocking(|broker| broker.groups.save()).await {
            tracing::error!(error = refusal.remark, "groups cannot be saved");
        }
    }

    /// A topic that exists.
    pub(crate) fn topic(&self, topic: &str) -> Result<Arc<TopicConfig>, Refusal> {
        self.topics.get(topic).ok_or_else(|| Refusal::no_topic(topic))
    }

    /// Marks topics as ordered that a name server names.
    pub(crate) async fn set_order_topics(self: &Arc<Self>, topics: &[String]) {
        if topics.is_empty() || !self.topics.set_order(topics.iter().map(String::as_str)) {
            return;
        }
        if let Err(refusal) = self.blocking(|broker| broker.topics.save()).await {
            tracing::error!(error = refusal.remark, "topics cannot be saved");
        }
    }

    /// A client is gone without saying so.
    pub(crate) fn client_gone(&self, channel: &Channel) {
        self.producers.disconnected(channel);
        for change in self.consumers.disconnected(channel) {
            self.notify(&change);
        }
    }

    /// Forgets clients that fell silent, and locks that nobody renews.
    pub(crate) fn expire(&self) {
        let timeout = self.settings().channel_expired_timeout;
        for channel in self.producers.expire(timeout) {
            tracing::warn!(peer = %channel.remote_addr(), "producer fell silent");
            channel.close();
        }
        for change in self.consumers.expire(timeout) {
            self.notify(&change);
        }
        self.locks.expire();
    }

    /// Tells the members of a group that it changed, unless that is switched off.
    pub(crate) fn notify(&self, change: &GroupChange) {
        let is_wanted = self
            .groups
            .get(&change.group)
            .is_none_or(|group| group.notify_consumer_ids_changed_enable);
        if is_wanted && self.settings().notify_consumer_ids_changed_enable {
            crate::change_notice::send(change);
        }
    }

    /// A client of a group that is online.
    pub(crate) fn online_client(
        &self,
        group: &str,
        client_id: &str,
    ) -> Result<ClientChannel, Refusal> {
        self.consumers.client(group, client_id).ok_or_else(|| {
            Refusal::error(format!("The Consumer <{group}> <{client_id}> not online"))
        })
    }

    /// Age of the oldest message in milliseconds, 0 when there is none.
    pub(crate) fn message_reserve_ms(&self) -> i64 {
        self.earliest_message_ms().map_or(0, |time| now_ms() - time)
    }

    /// When the oldest message was stored, epoch milliseconds.
    pub(crate) fn earliest_message_ms(&self) -> Option<i64> {
        let first = self.store.stats().log_min_offset;
        let record = self.store.look_up(first).ok().flatten()?;
        let view = protocol::message_codec::decode_record(&record).ok()?;
        Some(view.store_timestamp)
    }

    /// Writes to the disk how far consumers are.
    pub(crate) fn save_offsets(&self) -> Result<(), SaveError> {
        self.offsets.save_if_changed()
    }

    /// Writes to the disk how far delayed messages are delivered.
    pub(crate) fn save_delay_offsets(&self) -> Result<(), SaveError> {
        self.schedule.save_if_changed()
    }
}

impl From<SaveError> for Refusal {
    fn from(error: SaveError) -> Self {
        tracing::error!(%error, "a table cannot be saved");
        Self::error(format!("the change counts but cannot be saved: {error}"))
    }
}
