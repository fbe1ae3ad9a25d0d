//! How brokers come into the route table, stay there and leave it.

use std::time::Duration;

use protocol::body::TopicConfigTable;
use protocol::data_version::DataVersion;
use protocol::header::route::RegisterBrokerResponseHeader;
use protocol::perm;
use protocol::route::{BrokerData, MASTER_ID, QueueData};
use protocol::topic_config::TopicConfig;
use thiserror::Error;
use tokio::time::Instant;

use crate::route_table::{BrokerKey, LiveBroker, RouteTable};

/// What a broker says when it registers.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Registration {
    pub key: BrokerKey,
    pub broker_name: String,
    pub broker_id: i64,
    pub ha_server_addr: String,
    /// `None`: a broker so old that it does not know of acting masters.
    pub enable_acting_master: Option<bool>,
    /// How long it may be silent.
    pub timeout: Duration,
    /// Connection on which it registers.
    pub connection: u64,
    pub topics: TopicConfigTable,
    /// Topics that it does not name are no longer on it.
    pub topics_are_complete: bool,
}

/// Why a registration is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RegistrationError {
    /// A broker that is not known sends a single topic: a change to a state that was lost here. It
    /// must first send everything.
    #[error(
        "register broker failed: {broker_name} id {broker_id} is not known here and sent one \
         topic only; register with all topics first"
    )]
    IncrementalFirst {
        /// Name of the broker.
        broker_name: String,
        /// Id of the broker.
        broker_id: i64,
    },
}

impl RouteTable {
    /// Takes a registration in. The answer tells a slave where its master is.
    ///
    /// # Errors
    /// When a broker that is not known sends one topic only.
    pub fn register(
        &mut self,
        registration: Registration,
        now: Instant,
    ) -> Result<RegisterBrokerResponseHeader, RegistrationError> {
        let Registration { key, broker_name, broker_id, .. } = &registration;
        if self.is_outdated(&registration) {
            return Ok(RegisterBrokerResponseHeader::default());
        }
        let known = self.is_known(broker_name, *broker_id);
        if !known && registration.topics.topic_config_table.len() == 1 {
            let (broker_name, broker_id) = (broker_name.clone(), *broker_id);
            return Err(RegistrationError::IncrementalFirst { broker_name, broker_id });
        }
        self.clusters.entry(key.cluster.clone()).or_default().insert(broker_name.clone());
        let data = self.brokers.entry(broker_name.clone()).or_default();
        data.broker_name.clone_from(broker_name);
        data.cluster.clone_from(&key.cluster);
        data.enable_acting_master = registration.enable_acting_master.unwrap_or_default();
        // A process that changed its role comes with another id at the same address.
        data.broker_addrs.retain(|id, addr| *addr != key.addr || id == broker_id);
        data.broker_addrs.insert(*broker_id, key.addr.clone());

        self.take_topics(&registration, !known);
        let answer = self.answer(broker_name, *broker_id);
        let live = LiveBroker {
            broker_name: registration.broker_name,
            broker_id: registration.broker_id,
            last_update: now,
            timeout: registration.timeout,
            data_version: registration.topics.data_version,
            ha_server_addr: registration.ha_server_addr,
            connection: registration.connection,
        };
        self.live.insert(registration.key, live);
        Ok(answer)
    }

    fn is_known(&self, broker_name: &str, broker_id: i64) -> bool {
        self.brokers.get(broker_name).is_some_and(|data| data.broker_addrs.contains_key(&broker_id))
    }

    /// Whether another process holds the id with a newer state: this one is a deposed master.
    fn is_outdated(&self, registration: &Registration) -> bool {
        let Registration { key, broker_name, broker_id, topics, .. } = registration;
        let holder =
            self.brokers.get(broker_name).and_then(|data| data.broker_addrs.get(broker_id));
        let Some(addr) = holder.filter(|addr| **addr != key.addr) else { return false };
        let other = BrokerKey { cluster: key.cluster.clone(), addr: addr.clone() };
        self.live
            .get(&other)
            .is_some_and(|live| live.data_version.state_version > topics.data_version.state_version)
    }

    /// Topics come from the master, or from the slave with the smallest id.
    fn take_topics(&mut self, registration: &Registration, first: bool) {
        let Registration { key, broker_name, broker_id, topics, .. } = registration;
        let Some(data) = self.brokers.get(broker_name) else { return };
        let smallest = data.broker_addrs.keys().next() == Some(broker_id);
        let is_master = *broker_id == MASTER_ID;
        let acts_for_master = smallest && registration.enable_acting_master.is_some();
        if !is_master && !acts_for_master {
            return;
        }
        let read_only = !is_master && data.enable_acting_master;
        let changed =
            first || self.live.get(key).is_none_or(|live| live.data_version != topics.data_version);
        if registration.topics_are_complete && changed {
            let table = &topics.topic_config_table;
            self.remove_topics_of(broker_name, |topic| !table.contains_key(topic));
        }
        for (topic, config) in &topics.topic_config_table {
            let queues = self.topics.entry(topic.clone()).or_default();
            if changed || !queues.contains_key(broker_name) {
                queues.insert(broker_name.clone(), queue_data(broker_name, config, read_only));
            }
        }
    }

    fn answer(&self, broker_name: &str, broker_id: i64) -> RegisterBrokerResponseHeader {
        let mut answer = RegisterBrokerResponseHeader::default();
        let Some(data) = self.brokers.get(broker_name).filter(|_| broker_id != MASTER_ID) else {
            return answer;
        };
        if let Some(master) = data.broker_addrs.get(&MASTER_ID) {
            let key = BrokerKey { cluster: data.cluster.clone(), addr: master.clone() };
            answer.ha_server_addr = self.live.get(&key).map(|live| live.ha_server_addr.clone());
            answer.master_addr = Some(master.clone());
        }
        answer
    }

    /// Whether a broker's topics differ from what is known, and what is known. A broker that is up
    /// to date counts as having been heard of.
    pub fn query_data_version(
        &mut self,
        key: &BrokerKey,
        version: DataVersion,
        now: Instant,
    ) -> (bool, Option<DataVersion>) {
        match self.live.get_mut(key) {
            None => (true, None),
            Some(live) => {
                let changed = live.data_version != version;
                if !changed {
                    live.last_update = now;
                }
                (changed, Some(live.data_version))
            }
        }
    }

    /// A broker says that it is alive, and from now on how long it may be silent.
    pub fn heartbeat(&mut self, key: &BrokerKey, timeout: Option<Duration>, now: Instant) {
        if let Some(live) = self.live.get_mut(key) {
            live.last_update = now;
            live.timeout = timeout.unwrap_or(live.timeout);
        }
    }

    /// A broker leaves.
    pub fn unregister(&mut self, key: &BrokerKey, broker_name: &str, broker_id: i64) {
        self.live.remove(key);
        self.remove_address(&key.addr, broker_name, broker_id);
    }

    /// Takes out the brokers that registered on a connection that is gone; returns them.
    pub fn disconnected(&mut self, connection: u64) -> Vec<BrokerKey> {
        self.remove_where(|live| live.connection == connection)
    }

    /// Takes out the brokers that were silent for too long; returns them with their connections.
    pub fn expire(&mut self, now: Instant) -> Vec<BrokerKey> {
        self.remove_where(|live| now.duration_since(live.last_update) > live.timeout)
    }

    fn remove_where(&mut self, gone: impl Fn(&LiveBroker) -> bool) -> Vec<BrokerKey> {
        let removed: Vec<_> = self.live.extract_if(|_, live| gone(live)).collect();
        for (key, live) in &removed {
            self.remove_address(&key.addr, &live.broker_name, live.broker_id);
        }
        removed.into_iter().map(|(key, _)| key).collect()
    }

    fn remove_address(&mut self, addr: &str, broker_name: &str, broker_id: i64) {
        let Some(data) = self.brokers.get_mut(broker_name) else { return };
        if data.broker_addrs.get(&broker_id).is_some_and(|known| known == addr) {
            data.broker_addrs.remove(&broker_id);
        }
        if !data.broker_addrs.is_empty() {
            self.stop_writes_without_master(broker_name);
            return;
        }
        let BrokerData { cluster, .. } = self.brokers.remove(broker_name).unwrap_or_default();
        if let Some(names) = self.clusters.get_mut(&cluster) {
            names.remove(broker_name);
            if names.is_empty() {
                self.clusters.remove(&cluster);
            }
        }
        self.remove_topics_of(broker_name, |_| true);
    }

    /// Slaves that may act for their master serve reads only.
    fn stop_writes_without_master(&mut self, broker_name: &str) {
        let data = self.brokers.get(broker_name);
        let acting = data.is_some_and(|data| {
            data.enable_acting_master && !data.broker_addrs.contains_key(&MASTER_ID)
        });
        if acting {
            self.wipe_write_perm(broker_name);
        }
    }

    fn remove_topics_of(&mut self, broker_name: &str, gone: impl Fn(&str) -> bool) {
        self.topics.retain(|topic, queues| {
            if gone(topic) {
                queues.remove(broker_name);
            }
            !queues.is_empty()
        });
    }
}

fn queue_data(broker_name: &str, config: &TopicConfig, read_only: bool) -> QueueData {
    QueueData {
        broker_name: broker_name.to_owned(),
        perm: if read_only { config.perm & !perm::WRITE } else { config.perm },
        read_queue_nums: config.read_queue_nums,
        topic_sys_flag: config.topic_sys_flag,
        write_queue_nums: config.write_queue_nums,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPIRY: Duration = Duration::from_secs(120);

    fn registration(id: i64, addr: &str, counter: i64, topics: &[&str]) -> Registration {
        let table = topics.iter().map(|t| ((*t).to_owned(), TopicConfig::new(*t, 4, 6))).collect();
        Registration {
            key: BrokerKey { cluster: "c".into(), addr: addr.into() },
            broker_name: "b".into(),
            broker_id: id,
            ha_server_addr: format!("ha-{addr}"),
            enable_acting_master: None,
            timeout: EXPIRY,
            connection: 1,
            topics: TopicConfigTable {
                data_version: DataVersion { counter, ..DataVersion::default() },
                topic_config_table: table,
            },
            topics_are_complete: false,
        }
    }

    fn topics(table: &RouteTable) -> Vec<String> {
        table.topic_list().topic_list.into_iter().collect()
    }

    #[test]
    fn a_master_brings_its_topics_and_a_slave_learns_of_it() {
        let (mut table, now) = (RouteTable::default(), Instant::now());
        table.register(registration(0, "m:1", 1, &["t", "u"]), now).unwrap();
        let slave = table.register(registration(1, "s:1", 9, &["v", "w"]), now).unwrap();
        assert_eq!(slave.master_addr.as_deref(), Some("m:1"));
        assert_eq!(slave.ha_server_addr.as_deref(), Some("ha-m:1"));
        assert_eq!(topics(&table), ["t", "u"]);
        let route = table.route("t").unwrap();
        assert_eq!(route.broker_datas[0].broker_addrs.len(), 2);
        assert_eq!(route.queue_datas[0].write_queue_nums, 4);
        assert_eq!(table.route("v"), None);
    }

    #[test]
    fn topics_change_with_the_data_version_only() {
        let (mut table, now) = (RouteTable::default(), Instant::now());
        table.register(registration(0, "m:1", 1, &["t", "u"]), now).unwrap();
        table.wipe_write_perm("b");
        table.register(registration(0, "m:1", 1, &["t", "u"]), now).unwrap();
        assert_eq!(table.route("t").unwrap().queue_datas[0].perm, 4);
        table.register(registration(0, "m:1", 2, &["t"]), now).unwrap();
        assert_eq!(table.route("t").unwrap().queue_datas[0].perm, 6);
        assert_eq!(topics(&table), ["t", "u"]);
        let complete =
            Registration { topics_are_complete: true, ..registration(0, "m:1", 3, &["t", "v"]) };
        table.register(complete, now).unwrap();
        assert_eq!(topics(&table), ["t", "v"]);
    }

    #[test]
    fn an_unknown_broker_must_send_everything() {
        let mut table = RouteTable::default();
        let refused = table.register(registration(0, "m:1", 1, &["t"]), Instant::now());
        assert!(matches!(refused, Err(RegistrationError::IncrementalFirst { .. })));
        assert_eq!(table.sizes(), (0, 0, 0));
    }

    #[test]
    fn the_silent_expire_and_their_topics_go() {
        let (mut table, now) = (RouteTable::default(), Instant::now());
        table.register(registration(0, "m:1", 1, &["t", "u"]), now).unwrap();
        let key = BrokerKey { cluster: "c".into(), addr: "m:1".into() };
        assert!(table.expire(now + EXPIRY).is_empty());
        table.heartbeat(&key, None, now + EXPIRY);
        assert!(table.expire(now + EXPIRY * 2).is_empty());
        let later = now + EXPIRY * 2 + Duration::from_millis(1);
        assert_eq!(table.expire(later), [key]);
        assert_eq!(table.sizes(), (0, 0, 0));
        assert!(table.cluster_info().cluster_addr_table.is_empty());
    }

    #[test]
    fn a_lost_connection_takes_its_brokers_along() {
        let (mut table, now) = (RouteTable::default(), Instant::now());
        table.register(registration(0, "m:1", 1, &["t", "u"]), now).unwrap();
        let again = Registration { connection: 2, ..registration(0, "m:1", 1, &["t", "u"]) };
        table.register(again, now).unwrap();
        assert!(table.disconnected(1).is_empty(), "it has another connection by now");
        assert_eq!(table.disconnected(2).len(), 1);
        assert_eq!(table.route("t"), None);
    }

    #[test]
    fn an_up_to_date_query_counts_as_a_sign_of_life() {
        let (mut table, now) = (RouteTable::default(), Instant::now());
        let key = BrokerKey { cluster: "c".into(), addr: "m:1".into() };
        let version = DataVersion { counter: 1, ..DataVersion::default() };
        assert_eq!(table.query_data_version(&key, version, now), (true, None));
        table.register(registration(0, "m:1", 1, &["t", "u"]), now).unwrap();
        let other = DataVersion::default();
        assert_eq!(table.query_data_version(&key, other, now), (true, Some(version)));
        assert_eq!(table.query_data_version(&key, version, now + EXPIRY), (false, Some(version)));
        assert!(table.expire(now + EXPIRY * 2).is_empty());
    }

    #[test]
    fn a_deposed_master_cannot_take_its_place_back() {
        let (mut table, now) = (RouteTable::default(), Instant::now());
        let with_state = |addr: &str, state_version| {
            let mut registration = registration(0, addr, 1, &["t", "u"]);
            registration.topics.data_version.state_version = state_version;
            registration
        };
        table.register(with_state("new:1", 2), now).unwrap();
        table.register(with_state("old:1", 1), now).unwrap();
        assert_eq!(table.route("t").unwrap().broker_datas[0].address(), Some("new:1"));
        table.register(with_state("newer:1", 3), now).unwrap();
        assert_eq!(table.route("t").unwrap().broker_datas[0].address(), Some("newer:1"));
        // The unregistration of one that was replaced changes nothing.
        let replaced = BrokerKey { cluster: "c".into(), addr: "new:1".into() };
        table.unregister(&replaced, "b", 0);
        assert_eq!(table.route("t").unwrap().broker_datas[0].address(), Some("newer:1"));
    }

    #[test]
    fn a_changed_role_leaves_no_second_entry() {
        let (mut table, now) = (RouteTable::default(), Instant::now());
        table.register(registration(1, "x:1", 1, &["t", "u"]), now).unwrap();
        table.register(registration(0, "x:1", 1, &["t", "u"]), now).unwrap();
        let addrs = table.route("t").unwrap().broker_datas[0].broker_addrs.clone();
        assert_eq!(addrs.into_iter().collect::<Vec<_>>(), [(0, "x:1".to_owned())]);
    }

    #[test]
    fn an_acting_slave_serves_reads_only() {
        let (mut table, now) = (RouteTable::default(), Instant::now());
        let acting = |id, addr: &str| Registration {
            enable_acting_master: Some(true),
            ..registration(id, addr, 1, &["t", "u"])
        };
        table.register(acting(0, "m:1"), now).unwrap();
        table.register(acting(1, "s:1"), now).unwrap();
        let master = BrokerKey { cluster: "c".into(), addr: "m:1".into() };
        table.unregister(&master, "b", 0);
        assert_eq!(table.route("t").unwrap().queue_datas[0].perm, 4);
    }
}
