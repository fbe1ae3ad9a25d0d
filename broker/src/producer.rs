//! Who sends: the producer groups that heartbeats have named.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use protocol::body::{Connection, ProducerInfo, ProducerTableInfo};
use protocol::command::LanguageCode;
use remoting::Channel;

use crate::client_channel::ClientChannel;
use crate::clock::now_ms;

/// Clients of a group by connection.
type Clients = HashMap<u64, ClientChannel>;

/// See the module.
#[derive(Default)]
pub(crate) struct ProducerTable {
    groups: Mutex<HashMap<String, Clients>>,
}

impl ProducerTable {
    /// Notes a heartbeat.
    pub(crate) fn register(&self, group: &str, client: ClientChannel) {
        let mut groups = self.groups.lock();
        let id = client.channel.id();
        match groups.get_mut(group) {
            Some(clients) => drop(clients.insert(id, client)),
            None => drop(groups.insert(group.to_owned(), HashMap::from([(id, client)]))),
        }
    }

    /// A client has said that it goes.
    pub(crate) fn unregister(&self, group: &str, channel: &Channel) {
        self.groups.lock().retain(|name, clients| {
            if name == group {
                clients.remove(&channel.id());
            }
            !clients.is_empty()
        });
    }

    /// A connection has ended.
    pub(crate) fn disconnected(&self, channel: &Channel) {
        self.groups.lock().retain(|_, clients| {
            clients.remove(&channel.id());
            !clients.is_empty()
        });
    }

    /// Forgets clients that were silent for so long and returns their connections.
    pub(crate) fn expire(&self, timeout: Duration) -> Vec<Channel> {
        let mut expired = Vec::new();
        self.groups.lock().retain(|_, clients| {
            let silent = clients.extract_if(|_, client| client.last_heartbeat.elapsed() > timeout);
            expired.extend(silent.map(|(_, client)| client.channel));
            !clients.is_empty()
        });
        expired
    }

    /// The clients of a group; empty when it is not known.
    pub(crate) fn connections(&self, group: &str) -> Vec<Connection> {
        let groups = self.groups.lock();
        let clients = groups.get(group).into_iter().flat_map(HashMap::values);
        let mut connections: Vec<_> = clients.map(ClientChannel::connection).collect();
        connections.sort_by(|a, b| a.client_addr.cmp(&b.client_addr));
        connections
    }

    /// All producers.
    pub(crate) fn table(&self) -> ProducerTableInfo {
        let now = now_ms();
        let mut data = BTreeMap::new();
        for (group, clients) in self.groups.lock().iter() {
            let infos = clients.values().map(|client| {
                let silent = i64::try_from(client.last_heartbeat.elapsed().as_millis());
                ProducerInfo {
                    client_id: client.client_id.clone(),
                    language: client.language.name().to_owned(),
                    last_update_timestamp: now - silent.unwrap_or_default(),
                    remote_ip: client.channel.remote_addr().to_string(),
                    version: client.version,
                }
            });
            data.insert(group.clone(), infos.collect());
        }
        ProducerTableInfo { data }
    }

    /// Numbers of connections by language and version.
    pub(crate) fn counts(&self) -> BTreeMap<(&'static str, i32), i64> {
        let mut counts = BTreeMap::new();
        for client in self.groups.lock().values().flat_map(HashMap::values) {
            let language: LanguageCode = client.language;
            *counts.entry((language.name(), client.version)).or_default() += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use protocol::command::RemotingCommand;

    use super::*;
    use crate::client_channel::test_channels;

    #[tokio::test]
    async fn clients_that_fall_silent_are_forgotten() {
        let channels = test_channels(2).await;
        tokio::time::pause();
        let table = ProducerTable::default();
        let client =
            |index: usize| ClientChannel::new(&channels[index], "c", &RemotingCommand::success());
        let timeout = Duration::from_secs(120);
        table.register("p", client(0));
        table.register("q", client(0));
        tokio::time::advance(timeout + Duration::from_secs(1)).await;
        table.register("p", client(1));
        assert_eq!(table.expire(timeout), [channels[0].clone(), channels[0].clone()]);
        assert_eq!((table.connections("p").len(), table.connections("q").len()), (1, 0));
        table.unregister("p", &channels[1]);
        assert!(table.table().data.is_empty());
        table.register("p", client(1));
        table.disconnected(&channels[1]);
        assert!(table.counts().is_empty());
    }
}
