//! Who consumes: the consumer groups that heartbeats have named, with their subscriptions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use protocol::body::ConsumerConnection;
use protocol::heartbeat::{ConsumeFromWhere, ConsumeType, ConsumerData, MessageModel};
use protocol::subscription::SubscriptionData;
use remoting::Channel;

use crate::client_channel::ClientChannel;

/// One group.
#[derive(Default)]
struct Group {
    consume_type: ConsumeType,
    message_model: MessageModel,
    consume_from_where: ConsumeFromWhere,
    subscriptions: HashMap<String, Arc<SubscriptionData>>,
    /// Clients by connection.
    clients: HashMap<u64, ClientChannel>,
    /// Hash of the subscriptions that a client sent last (heartbeats of version 2).
    fingerprint: Option<i32>,
}

impl Group {
    fn change(&self, group: &str) -> GroupChange {
        let channels = self.clients.values().map(|client| client.channel.clone()).collect();
        GroupChange { group: group.to_owned(), channels, message_model: self.message_model }
    }

    /// Takes over what a heartbeat says of the whole group; whether topics came or went.
    fn describe(&mut self, data: &ConsumerData) {
        self.consume_type = data.consume_type;
        self.message_model = data.message_model;
        self.consume_from_where = data.consume_from_where;
    }

    /// Takes over the subscriptions of a heartbeat; whether topics came or went.
    fn subscribe(&mut self, wanted: &[SubscriptionData]) -> bool {
        let mut is_changed = false;
        for data in wanted {
            match self.subscriptions.get_mut(&data.topic) {
                Some(known) if data.sub_version > known.sub_version => {
                    *known = Arc::new(data.clone());
                }
                Some(_) => {}
                None => {
                    self.subscriptions.insert(data.topic.clone(), Arc::new(data.clone()));
                    is_changed = true;
                }
            }
        }
        let topics: BTreeSet<&str> = wanted.iter().map(|data| data.topic.as_str()).collect();
        let before = self.subscriptions.len();
        self.subscriptions.retain(|topic, _| topics.contains(topic.as_str()));
        is_changed || self.subscriptions.len() != before
    }
}

/// The members of a group that should be told of a change in it.
#[derive(Debug)]
pub(crate) struct GroupChange {
    pub(crate) group: String,
    pub(crate) channels: Vec<Channel>,
    pub(crate) message_model: MessageModel,
}

/// What a heartbeat changed.
#[derive(Debug, Default)]
pub(crate) struct Heartbeat {
    /// Clients or topics came or went.
    pub(crate) change: Option<GroupChange>,
    /// The client must send its subscriptions again.
    pub(crate) needs_subscriptions: bool,
}

/// Why a pull does not find its subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoSubscription {
    Group,
    Topic,
}

/// See the module.
#[derive(Default)]
pub(crate) struct ConsumerTable {
    groups: Mutex<HashMap<String, Group>>,
}

impl ConsumerTable {
    /// Notes the part of a heartbeat that is about one group. `fingerprint` is that of a heartbeat
    /// of version 2, which carries no subscriptions when `without_subscriptions`.
    pub(crate) fn register(
        &self,
        data: &ConsumerData,
        client: ClientChannel,
        fingerprint: Option<i32>,
        without_subscriptions: bool,
    ) -> Heartbeat {
        let mut groups = self.groups.lock();
        let group = groups.entry(data.group_name.clone()).or_default();
        group.describe(data);
        let id = client.channel.id();
        let known = group.clients.insert(id, client);
        let mut is_changed = known.is_none();
        let mut needs_subscriptions = false;
        if without_subscriptions {
            // After a restart of the broker nothing is known of a client that goes on like this.
            needs_subscriptions = group.subscriptions.is_empty();
        } else {
            is_changed |= group.subscribe(&data.subscription_data_set);
        }
        if let Some(fingerprint) = fingerprint {
            let last = group.fingerprint.replace(fingerprint);
            needs_subscriptions |= last.is_some_and(|last| last != fingerprint);
        }
        let change = is_changed.then(|| group.change(&data.group_name));
        Heartbeat { change, needs_subscriptions }
    }

    /// A client has said that it goes.
    pub(crate) fn unregister(&self, group: &str, channel: &Channel) -> Option<GroupChange> {
        let mut groups = self.groups.lock();
        let members = groups.get_mut(group)?;
        members.clients.remove(&channel.id())?;
        let change = members.change(group);
        if members.clients.is_empty() {
            groups.remove(group);
        }
        Some(change)
    }

    /// A connection has ended; the groups that it was a member of.
    pub(crate) fn disconnected(&self, channel: &Channel) -> Vec<GroupChange> {
        let id = channel.id();
        self.remove_clients(|client| client.channel.id() == id)
    }

    /// Forgets clients that were silent for so long and closes their connections.
    pub(crate) fn expire(&self, timeout: Duration) -> Vec<GroupChange> {
        self.remove_clients(|client| {
            let is_expired = client.last_heartbeat.elapsed() > timeout;
            if is_expired {
                let peer = client.channel.remote_addr();
                tracing::warn!(client = client.client_id, %peer, "consumer fell silent");
                client.channel.close();
            }
            is_expired
        })
    }

    fn remove_clients(&self, mut is_gone: impl FnMut(&ClientChannel) -> bool) -> Vec<GroupChange> {
        let mut changes = Vec::new();
        self.groups.lock().retain(|name, group| {
            let before = group.clients.len();
            group.clients.retain(|_, client| !is_gone(client));
            if group.clients.len() != before {
                changes.push(group.change(name));
            }
            !group.clients.is_empty()
        });
        changes
    }

    /// The subscription of a group, and how the group consumes.
    pub(crate) fn subscription(
        &self,
        group: &str,
        topic: &str,
    ) -> Result<(Arc<SubscriptionData>, MessageModel), NoSubscription> {
        let groups = self.groups.lock();
        let group = groups.get(group).ok_or(NoSubscription::Group)?;
        let data = group.subscriptions.get(topic).ok_or(NoSubscription::Topic)?;
        Ok((Arc::clone(data), group.message_model))
    }

    /// How a group consumes, if it has live members.
    pub(crate) fn message_model(&self, group: &str) -> Option<MessageModel> {
        self.groups.lock().get(group).map(|group| group.message_model)
    }

    /// The topics that a group subscribes to.
    pub(crate) fn topics_of(&self, group: &str) -> BTreeSet<String> {
        let groups = self.groups.lock();
        groups
            .get(group)
            .map(|group| group.subscriptions.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// The groups that subscribe to a topic.
    pub(crate) fn groups_of(&self, topic: &str) -> BTreeSet<String> {
        let groups = self.groups.lock();
        let subscribed = groups.iter().filter(|(_, group)| group.subscriptions.contains_key(topic));
        subscribed.map(|(name, _)| name.clone()).collect()
    }

    /// Ids of the clients of a group, each once.
    pub(crate) fn client_ids(&self, group: &str) -> Vec<String> {
        let groups = self.groups.lock();
        let clients = groups.get(group).into_iter().flat_map(|group| group.clients.values());
        let ids: BTreeSet<_> = clients.map(|client| client.client_id.clone()).collect();
        ids.into_iter().collect()
    }

    /// A client of a group.
    pub(crate) fn client(&self, group: &str, client_id: &str) -> Option<ClientChannel> {
        let groups = self.groups.lock();
        let mut clients = groups.get(group)?.clients.values();
        clients.find(|client| client.client_id == client_id).cloned()
    }

    /// The clients of a group.
    pub(crate) fn clients(&self, group: &str) -> Vec<ClientChannel> {
        let groups = self.groups.lock();
        groups.get(group).map(|group| group.clients.values().cloned().collect()).unwrap_or_default()
    }

    /// What administrators are shown of a group.
    pub(crate) fn connection(&self, group: &str) -> Option<ConsumerConnection> {
        let groups = self.groups.lock();
        let group = groups.get(group)?;
        let subscriptions = group.subscriptions.iter();
        let mut connection_set: Vec<_> =
            group.clients.values().map(ClientChannel::connection).collect();
        connection_set.sort_by(|a, b| a.client_id.cmp(&b.client_id));
        Some(ConsumerConnection {
            connection_set,
            consume_from_where: group.consume_from_where,
            consume_type: group.consume_type,
            message_model: group.message_model,
            subscription_table: subscriptions
                .map(|(topic, data)| (topic.clone(), data.as_ref().clone()))
                .collect(),
        })
    }

    /// Numbers of connections by group, language, version and way of consuming.
    pub(crate) fn counts(&self) -> BTreeMap<(String, &'static str, i32, &'static str), i64> {
        let mut counts = BTreeMap::new();
        for (name, group) in self.groups.lock().iter() {
            let mode = match group.consume_type {
                ConsumeType::Actively => "pull",
                ConsumeType::Passively => "push",
                ConsumeType::Pop => "pop",
            };
            for client in group.clients.values() {
                let key = (name.clone(), client.language.name(), client.version, mode);
                *counts.entry(key).or_default() += 1;
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use protocol::command::RemotingCommand;

    use super::*;
    use crate::client_channel::test_channels;

    fn data(group: &str, topic: &str) -> ConsumerData {
        ConsumerData {
            group_name: group.into(),
            subscription_data_set: vec![SubscriptionData::by_tags(topic, "*", 1)],
            ..ConsumerData::default()
        }
    }

    fn groups(changes: &[GroupChange]) -> Vec<&str> {
        changes.iter().map(|change| change.group.as_str()).collect()
    }

    #[tokio::test]
    async fn clients_that_fall_silent_are_forgotten() {
        let channels = test_channels(2).await;
        tokio::time::pause();
        let table = ConsumerTable::default();
        let client = |index: usize| {
            let id = format!("c{index}");
            ClientChannel::new(&channels[index], &id, &RemotingCommand::success())
        };
        let timeout = Duration::from_secs(120);
        assert!(table.register(&data("g", "t"), client(0), None, false).change.is_some());
        tokio::time::advance(timeout / 2).await;
        assert!(table.register(&data("g", "t"), client(1), None, false).change.is_some());
        assert!(table.register(&data("g", "t"), client(1), None, false).change.is_none());
        assert!(table.expire(timeout).is_empty());
        tokio::time::advance(timeout / 2 + Duration::from_secs(1)).await;
        let changes = table.expire(timeout);
        assert_eq!((groups(&changes), changes[0].channels.len()), (vec!["g"], 1));
        assert!(channels[0].is_closed() && !channels[1].is_closed());
        assert_eq!(table.client_ids("g"), ["c1"]);
        assert_eq!(groups(&table.disconnected(&channels[1])), ["g"]);
        assert!(table.connection("g").is_none());
    }
}
