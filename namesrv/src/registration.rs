//! How brokers come into the route table, stay there and leave it.

use std::collections::btree_map;
use std::sync::Arc;
use std::time::Duration;

use protocol::body::TopicConfigTable;
use protocol::data_version::DataVersion;
use protocol::header::route::RegisterBrokerResponseHeader;
use protocol::perm;
use protocol::route::MASTER_ID;
use protocol::topic_config::TopicConfig;
use thiserror::Error;
use tokio::time::Instant;

use crate::route_table::{
    BrokerKey, BrokerName, Group, LiveBroker, Queues, RouteTable, TOPICS_PER_TURN,
};

/// What a broker says of itself when it registers, beside its topics.
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
    /// Hash of what it sent: the same again need not be read again.
    pub body_hash: u64,
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
    /// The broker's connection ended before its turn came.
    #[error("register broker failed: the connection has ended")]
    ConnectionEnded,
}

/// A broker that was taken in, and its topics that are yet to be.
#[derive(Debug)]
pub struct Registered {
    /// Tells a slave where its master is.
    pub answer: RegisterBrokerResponseHeader,
    /// Whether the process was not known.
    pub is_new: bool,
    /// Its topics, when they come from this broker: to be taken in with
    /// [`RouteTable::take_topics_turn`].
    pub topics: Option<TopicUpdate>,
}

/// Topics of a broker on their way into the table. One broker's registrations must follow each
/// other: the next one may begin when this has ended.
#[derive(Debug)]
pub struct TopicUpdate {
    key: BrokerKey,
    broker: Arc<BrokerName>,
    data_version: DataVersion,
    body_hash: u64,
    read_only: bool,
    /// What is there already is replaced.
    replaces: bool,
    /// Names of all topics, while topics that are not among them are being removed.
    complete: Option<Removal>,
    topics: btree_map::IntoIter<String, TopicConfig>,
}

#[derive(Debug)]
struct Removal {
    names: std::collections::HashSet<String>,
    after: Option<Arc<str>>,
}

impl RouteTable {
    /// Takes note of a connection on which a broker asks to be registered, for it may end before
    /// that is done.
    pub fn connected(&mut self, connection: u64) {
        self.connections.insert(connection);
    }

    /// Registers a broker whose topics are in the table as it sends them again; `None` when they
    /// may not be, and have to be read.
    pub fn register_again(
        &mut self,
        registration: &Registration,
        now: Instant,
    ) -> Option<RegisterBrokerResponseHeader> {
        let live = self.live.get(&registration.key)?;
        let same = live.body_hash == Some(registration.body_hash)
            && live.broker_name == registration.broker_name
            && live.broker_id == registration.broker_id;
        let data_version = live.data_version.filter(|_| same)?;
        let holder = self.groups.get(&live.broker_name)?.data.broker_addrs.get(&live.broker_id);
        if holder != Some(&registration.key.addr) || self.is_gone(registration) {
            return None;
        }
        self.take_broker(registration);
        self.take_live(registration, Some(data_version), now);
        Some(self.answer(registration))
    }

    /// Takes a broker in. Its topics come into the table in turns, from what is returned.
    ///
    /// # Errors
    /// When a broker that is not known sends one topic only, or its connection has ended.
    pub fn register(
        &mut self,
        registration: &Registration,
        table: TopicConfigTable,
        now: Instant,
    ) -> Result<Registered, RegistrationError> {
        let Registration { key, broker_name, broker_id, .. } = registration;
        if self.is_gone(registration) {
            return Err(RegistrationError::ConnectionEnded);
        }
        let is_new = !self.live.contains_key(key);
        if self.is_outdated(registration, table.data_version) {
            let answer = RegisterBrokerResponseHeader::default();
            return Ok(Registered { answer, is_new: false, topics: None });
        }
        let known = self.is_known(broker_name, *broker_id);
        if !known && table.topic_config_table.len() == 1 {
            let (broker_name, broker_id) = (broker_name.clone(), *broker_id);
            return Err(RegistrationError::IncrementalFirst { broker_name, broker_id });
        }
        self.take_broker(registration);
        let before = self.live.get(key).and_then(|live| live.data_version).filter(|_| known);
        let topics = self.topic_update(registration, before, table);
        let version = match &topics {
            Ok(_) => before,
            Err(version) => Some(*version),
        };
        self.take_live(registration, version, now);
        let answer = self.answer(registration);
        Ok(Registered { answer, is_new, topics: topics.ok() })
    }

    fn is_known(&self, broker_name: &str, broker_id: i64) -> bool {
        let group = self.groups.get(broker_name);
        group.is_some_and(|group| group.data.broker_addrs.contains_key(&broker_id))
    }

    fn is_gone(&self, registration: &Registration) -> bool {
        !self.connections.contains(&registration.connection)
    }

    /// Whether another process holds the id with a newer state: this one is a deposed master.
    fn is_outdated(&self, registration: &Registration, version: DataVersion) -> bool {
        let Registration { key, broker_name, broker_id, .. } = registration;
        let group = self.groups.get(broker_name);
        let holder = group.and_then(|group| group.data.broker_addrs.get(broker_id));
        let Some(addr) = holder.filter(|addr| **addr != key.addr) else { return false };
        let other = BrokerKey { cluster: key.cluster.clone(), addr: addr.clone() };
        let held = self.live.get(&other).and_then(|live| live.data_version);
        held.is_some_and(|held| held.state_version > version.state_version)
    }

    fn take_broker(&mut self, registration: &Registration) {
        let Registration { key, broker_name, broker_id, .. } = registration;
        self.clusters.entry(key.cluster.clone()).or_default().insert(broker_name.clone());
        let new = || Group::new(broker_name);
        let data = &mut self.groups.entry(broker_name.clone()).or_insert_with(new).data;
        data.cluster.clone_from(&key.cluster);
        data.enable_acting_master = registration.enable_acting_master.unwrap_or_default();
        // A process that changed its role comes with another id at the same address.
        data.broker_addrs.retain(|id, addr| *addr != key.addr || id == broker_id);
        data.broker_addrs.insert(*broker_id, key.addr.clone());
    }

    fn take_live(
        &mut self,
        registration: &Registration,
        data_version: Option<DataVersion>,
        now: Instant,
    ) {
        let before = self.live.get(&registration.key);
        let live = LiveBroker {
            broker_name: registration.broker_name.clone(),
            broker_id: registration.broker_id,
            last_update: now,
            timeout: registration.timeout,
            data_version,
            body_hash: before
                .and_then(|live| live.body_hash)
                .filter(|hash| *hash == registration.body_hash),
            ha_server_addr: registration.ha_server_addr.clone(),
            connection: registration.connection,
        };
        self.live.insert(registration.key.clone(), live);
    }

    /// Topics come from the master, or from the slave with the smallest id; of another one, the
    /// version of its topics is all that counts.
    fn topic_update(
        &self,
        registration: &Registration,
        before: Option<DataVersion>,
        table: TopicConfigTable,
    ) -> Result<TopicUpdate, DataVersion> {
        let TopicConfigTable { data_version, topic_config_table } = table;
        let Registration { broker_name, broker_id, .. } = registration;
        let group = self.groups.get(broker_name).ok_or(data_version)?;
        let smallest = group.data.broker_addrs.keys().next() == Some(broker_id);
        let is_master = *broker_id == MASTER_ID;
        let acts_for_master = smallest && registration.enable_acting_master.is_some();
        if !is_master && !acts_for_master {
            return Err(data_version);
        }
        let replaces = before != Some(data_version);
        let removes = registration.topics_are_complete && replaces;
        let names = || topic_config_table.keys().cloned().collect();
        Ok(TopicUpdate {
            key: registration.key.clone(),
            broker: Arc::clone(&group.name),
            data_version,
            body_hash: registration.body_hash,
            read_only: !is_master && group.data.enable_acting_master,
            replaces,
            complete: removes.then(|| Removal { names: names(), after: None }),
            topics: topic_config_table.into_iter(),
        })
    }

    /// Takes in the topics of one turn; whether there are more. Ends when the broker has gone
    /// meanwhile.
    pub fn take_topics_turn(&mut self, update: &mut TopicUpdate) -> bool {
        if update.broker.is_gone() {
            return false;
        }
        if let Some(Removal { names, after }) = &mut update.complete {
            let broker = &update.broker;
            let stays = |topic: &str, queues: &Queues| {
                !Arc::ptr_eq(&queues.broker, broker) || names.contains(topic)
            };
            *after = self.retain_turn(after.as_ref(), stays);
            if after.is_none() {
                update.complete = None;
            }
            return true;
        }
        for (topic, config) in update.topics.by_ref().take(TOPICS_PER_TURN) {
            let perm = if update.read_only { config.perm & !perm::WRITE } else { config.perm };
            let queues = Queues {
                broker: Arc::clone(&update.broker),
                perm,
                read: config.read_queue_nums,
                write: config.write_queue_nums,
                sys_flag: config.topic_sys_flag,
            };
            self.put(&topic, queues, update.replaces);
        }
        if update.topics.len() > 0 {
            return true;
        }
        if let Some(live) = self.live.get_mut(&update.key) {
            live.data_version = Some(update.data_version);
            live.body_hash = Some(update.body_hash);
        }
        false
    }

    fn answer(&self, registration: &Registration) -> RegisterBrokerResponseHeader {
        let mut answer = RegisterBrokerResponseHeader::default();
        let group = self.groups.get(&registration.broker_name);
        let Some(data) = group.map(|g| &g.data).filter(|_| registration.broker_id != MASTER_ID)
        else {
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
                let changed = live.data_version != Some(version);
                if !changed {
                    live.last_update = now;
                }
                (changed, live.data_version)
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
        // Most connections are those of clients.
        if !self.connections.remove(&connection) {
            return Vec::new();
        }
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
        let Some(group) = self.groups.get_mut(broker_name) else { return };
        let addrs = &mut group.data.broker_addrs;
        if addrs.get(&broker_id).is_some_and(|known| known == addr) {
            addrs.remove(&broker_id);
        }
        if !addrs.is_empty() {
            self.stop_writes_without_master(broker_name);
            return;
        }
        let Some(group) = self.groups.remove(broker_name) else { return };
        self.group_is_gone(&group);
        if let Some(names) = self.clusters.get_mut(&group.data.cluster) {
            names.remove(broker_name);
            if names.is_empty() {
                self.clusters.remove(&group.data.cluster);
            }
        }
    }

    /// Slaves that may act for their master serve reads only.
    fn stop_writes_without_master(&mut self, broker_name: &str) {
        let acting = self.groups.get(broker_name).is_some_and(|group| {
            group.data.enable_acting_master && !group.data.broker_addrs.contains_key(&MASTER_ID)
        });
        if acting {
            self.wipe_write_perm(broker_name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route_table::TopicFilter;

    /// A registration with its topics, and the table that takes all of it in at once.
    struct Whole {
        registration: Registration,
        topics: TopicConfigTable,
    }

    trait AtOnce {
        fn take(
            &mut self,
            whole: Whole,
            now: Instant,
        ) -> Result<RegisterBrokerResponseHeader, RegistrationError>;
        fn sweep(&mut self);
    }

    impl AtOnce for RouteTable {
        fn take(
            &mut self,
            whole: Whole,
            now: Instant,
        ) -> Result<RegisterBrokerResponseHeader, RegistrationError> {
            self.connected(whole.registration.connection);
            let registered = self.register(&whole.registration, whole.topics, now)?;
            if let Some(mut topics) = registered.topics {
                while self.take_topics_turn(&mut topics) {}
            }
            Ok(registered.answer)
        }

        fn sweep(&mut self) {
            let mut after = None;
            loop {
                after = self.sweep_turn(after.as_ref());
                if after.is_none() {
                    return;
                }
            }
        }
    }

    const EXPIRY: Duration = Duration::from_secs(120);

    fn registration(id: i64, addr: &str, counter: i64, topics: &[&str]) -> Whole {
        let table = topics.iter().map(|t| ((*t).to_owned(), TopicConfig::new(*t, 4, 6))).collect();
        let topics = TopicConfigTable {
            data_version: DataVersion { counter, ..DataVersion::default() },
            topic_config_table: table,
        };
        let registration = Registration {
            key: BrokerKey { cluster: "c".into(), addr: addr.into() },
            broker_name: "b".into(),
            broker_id: id,
            ha_server_addr: format!("ha-{addr}"),
            enable_acting_master: None,
            timeout: EXPIRY,
            connection: 1,
            body_hash: u64::try_from(counter).unwrap(),
            topics_are_complete: false,
        };
        Whole { registration, topics }
    }

    fn topics(table: &RouteTable) -> Vec<String> {
        let (mut names, mut after) = (Vec::new(), None);
        loop {
            after = table.list_turn(&TopicFilter::All, after.as_ref(), &mut names);
            if after.is_none() {
                break;
            }
        }
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_master_brings_its_topics_and_a_slave_learns_of_it() {
        let (mut table, now) = (RouteTable::default(), Instant::now());
        table.take(registration(0, "m:1", 1, &["t", "u"]), now).unwrap();
        let slave = table.take(registration(1, "s:1", 9, &["v", "w"]), now).unwrap();
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
        table.take(registration(0, "m:1", 1, &["t", "u"]), now).unwrap();
        table.wipe_write_perm("b");
        table.take(registration(0, "m:1", 1, &["t", "u"]), now).unwrap();
        assert_eq!(table.route("t").unwrap().queue_datas[0].perm, 4);
        table.take(registration(0, "m:1", 2, &["t"]), now).unwrap();
        assert_eq!(table.route("t").unwrap().queue_datas[0].perm, 6);
        assert_eq!(topics(&table), ["t", "u"]);
        let mut complete = registration(0, "m:1", 3, &["t", "v"]);
        complete.registration.topics_are_complete = true;
        table.take(complete, now).unwrap();
        assert_eq!(topics(&table), ["t", "v"]);
    }

    #[test]
    fn an_unknown_broker_must_send_everything() {
        let mut table = RouteTable::default();
        let refused = table.take(registration(0, "m:1", 1, &["t"]), Instant::now());
        assert!(matches!(refused, Err(RegistrationError::IncrementalFirst { .. })));
        assert_eq!(table.sizes(), (0, 0, 0));
    }

    #[test]
    fn the_silent_expire_and_their_topics_go() {
        let (mut table, now) = (RouteTable::default(), Instant::now());
        table.take(registration(0, "m:1", 1, &["t", "u"]), now).unwrap();
        let key = BrokerKey { cluster: "c".into(), addr: "m:1".into() };
        assert!(table.expire(now + EXPIRY).is_empty());
        table.heartbeat(&key, None, now + EXPIRY);
        assert!(table.expire(now + EXPIRY * 2).is_empty());
        let later = now + EXPIRY * 2 + Duration::from_millis(1);
        assert_eq!(table.expire(later), [key]);
        assert_eq!(table.route("t"), None, "at once");
        assert_eq!(topics(&table), [""; 0]);
        table.sweep();
        assert_eq!(table.sizes(), (0, 0, 0));
        assert!(table.cluster_info().cluster_addr_table.is_empty());
    }

    #[test]
    fn a_lost_connection_takes_its_brokers_along() {
        let (mut table, now) = (RouteTable::default(), Instant::now());
        table.take(registration(0, "m:1", 1, &["t", "u"]), now).unwrap();
        let mut again = registration(0, "m:1", 1, &["t", "u"]);
        again.registration.connection = 2;
        table.take(again, now).unwrap();
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
        table.take(registration(0, "m:1", 1, &["t", "u"]), now).unwrap();
        let other = DataVersion::default();
        assert_eq!(table.query_data_version(&key, other, now), (true, Some(version)));
        assert_eq!(table.query_data_version(&key, version, now + EXPIRY), (false, Some(version)));
        assert!(table.expire(now + EXPIRY * 2).is_empty());
    }

    #[test]
    fn a_deposed_master_cannot_take_its_place_back() {
        let (mut table, now) = (RouteTable::default(), Instant::now());
        let with_state = |addr: &str, state_version| {
            let mut whole = registration(0, addr, 1, &["t", "u"]);
            whole.topics.data_version.state_version = state_version;
            whole
        };
        table.take(with_state("new:1", 2), now).unwrap();
        table.take(with_state("old:1", 1), now).unwrap();
        assert_eq!(table.route("t").unwrap().broker_datas[0].address(), Some("new:1"));
        table.take(with_state("newer:1", 3), now).unwrap();
        assert_eq!(table.route("t").unwrap().broker_datas[0].address(), Some("newer:1"));
        // The unregistration of one that was replaced changes nothing.
        let replaced = BrokerKey { cluster: "c".into(), addr: "new:1".into() };
        table.unregister(&replaced, "b", 0);
        assert_eq!(table.route("t").unwrap().broker_datas[0].address(), Some("newer:1"));
    }

    #[test]
    fn a_changed_role_leaves_no_second_entry() {
        let (mut table, now) = (RouteTable::default(), Instant::now());
        table.take(registration(1, "x:1", 1, &["t", "u"]), now).unwrap();
        table.take(registration(0, "x:1", 1, &["t", "u"]), now).unwrap();
        let addrs = table.route("t").unwrap().broker_datas[0].broker_addrs.clone();
        assert_eq!(addrs.into_iter().collect::<Vec<_>>(), [(0, "x:1".to_owned())]);
    }

    #[test]
    fn an_acting_slave_serves_reads_only() {
        let (mut table, now) = (RouteTable::default(), Instant::now());
        let acting = |id, addr: &str| {
            let mut whole = registration(id, addr, 1, &["t", "u"]);
            whole.registration.enable_acting_master = Some(true);
            whole
        };
        table.take(acting(0, "m:1"), now).unwrap();
        table.take(acting(1, "s:1"), now).unwrap();
        let master = BrokerKey { cluster: "c".into(), addr: "m:1".into() };
        table.unregister(&master, "b", 0);
        assert_eq!(table.route("t").unwrap().queue_datas[0].perm, 4);
    }

    fn many(prefix: &str, count: usize) -> Vec<String> {
        (0..count).map(|number| format!("{prefix}{number}")).collect()
    }

    fn whole(counter: i64, names: &[String]) -> Whole {
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        registration(0, "m:1", counter, &names)
    }

    #[test]
    fn many_topics_come_and_go_in_turns() {
        let (mut table, now) = (RouteTable::default(), Instant::now());
        let count = 3 * TOPICS_PER_TURN + 1;
        let Whole { registration, topics: list } = whole(1, &many("t", count));
        table.connected(1);
        let mut update = table.register(&registration, list, now).unwrap().topics.unwrap();
        assert!(table.take_topics_turn(&mut update));
        assert_eq!(table.sizes(), (TOPICS_PER_TURN, 1, 1));
        assert!(table.register_again(&registration, now).is_none(), "not all are there yet");
        assert!(!table.is_new_cluster(0), "nor is it known how old they are");
        while table.take_topics_turn(&mut update) {}
        assert_eq!(table.sizes().0, count);
        assert!(table.register_again(&registration, now + EXPIRY).is_some());
        assert!(table.expire(now + EXPIRY * 2).is_empty(), "it was heard of again");

        let mut removal = whole(2, &many("u", count));
        removal.registration.topics_are_complete = true;
        table.take(removal, now).unwrap();
        assert_eq!(table.sizes().0, count);
        assert_eq!(table.route("t0"), None);
        table.disconnected(1);
        assert_eq!(table.route("u0"), None);
        table.sweep();
        assert_eq!(table.sizes(), (0, 0, 0));
    }

    #[test]
    fn a_broker_that_goes_while_its_topics_come_leaves_nothing() {
        let (mut table, now) = (RouteTable::default(), Instant::now());
        let Whole { registration, topics: list } = whole(1, &many("t", 2 * TOPICS_PER_TURN));
        table.connected(1);
        let mut update = table.register(&registration, list, now).unwrap().topics.unwrap();
        assert!(table.take_topics_turn(&mut update));
        table.disconnected(1);
        // It is back before its first registration, and what that left, are done with.
        table.take(whole(1, &many("u", 3)), now).unwrap();
        assert!(!table.take_topics_turn(&mut update));
        assert_eq!(topics(&table), ["u0", "u1", "u2"]);
        table.sweep();
        assert_eq!(table.sizes(), (3, 1, 1));
        assert_eq!(
            table.register(&registration, TopicConfigTable::default(), now).map(|_| ()),
            Ok(())
        );
        table.disconnected(1);
        let late = table.register(&registration, TopicConfigTable::default(), now);
        assert_eq!(late.err(), Some(RegistrationError::ConnectionEnded));
    }

    #[test]
    fn the_same_again_is_not_read_unless_something_was_deleted() {
        let (mut table, now) = (RouteTable::default(), Instant::now());
        let again = || whole(1, &many("t", 3)).registration;
        assert!(table.register_again(&again(), now).is_none());
        table.take(whole(1, &many("t", 3)), now).unwrap();
        assert!(table.register_again(&again(), now).is_some());
        table.delete_topic("t1", Some("other"));
        assert!(table.register_again(&again(), now).is_some());
        table.delete_topic("t1", None);
        assert!(table.register_again(&again(), now).is_none());
        table.take(whole(1, &many("t", 3)), now).unwrap();
        assert_eq!(topics(&table).len(), 3, "the broker still has it");
        let other = Registration { body_hash: 7, ..again() };
        assert!(table.register_again(&other, now).is_none());
        let moved = Registration { broker_id: 1, ..again() };
        assert!(table.register_again(&moved, now).is_none());
    }

    #[test]
    fn a_new_cluster_is_told_from_one_that_was_there_before() {
        let (mut table, now) = (RouteTable::default(), Instant::now());
        assert!(!table.is_new_cluster(1_000), "nobody knows yet");
        let made_at = |addr: &str, timestamp| {
            let mut whole = registration(0, addr, 1, &["t", "u"]);
            whole.registration.broker_name = addr.to_owned();
            whole.topics.data_version.timestamp = timestamp;
            whole
        };
        table.take(made_at("a:1", 1_000), now).unwrap();
        table.take(made_at("b:1", 0), now).unwrap();
        assert!(table.is_new_cluster(1_000));
        table.take(made_at("c:1", 999), now).unwrap();
        assert!(!table.is_new_cluster(1_000));
    }
}
