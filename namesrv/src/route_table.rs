//! Topics, brokers and clusters, as brokers registered them.
//!
//! Pure: the time is an argument. [`crate::registration`] has the part that brokers change.
//!
//! A table may have 50,000 topics on ten brokers, and clients that wait for routes while brokers
//! register or leave. So whatever touches all topics is done in turns of [`TOPICS_PER_TURN`], and
//! the lock of the table is free between two turns. What happens in between is right at any time: a
//! route has only queues of brokers that are there.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use protocol::body::{BrokerMemberGroup, TopicList};
use protocol::data_version::DataVersion;
use protocol::perm;
use protocol::route::{BrokerData, ClusterInfo, QueueData, TopicRouteData};
use tokio::time::Instant;

/// Topics that one turn at the lock of the table looks at: some 100 us.
pub const TOPICS_PER_TURN: usize = 512;

/// Bit of `topicSysFlag`: the topic belongs to a unit.
const FLAG_UNIT: i32 = 0x1;
/// Bit of `topicSysFlag`: the topic has subscriptions of units.
const FLAG_UNIT_SUB: i32 = 0x2;

/// Which topics of units a list shall have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitTopics {
    /// Topics of units.
    Unit,
    /// Topics with subscriptions of units.
    UnitSub,
    /// Topics with subscriptions of units that are themselves of none.
    UnitSubUnUnit,
}

/// Which topics a list shall have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicFilter {
    /// All.
    All,
    /// Those that some broker of this cluster has.
    Cluster(String),
    /// Those with these unit flags.
    Units(UnitTopics),
}

/// A broker process is known by the cluster it names and the address it advertises.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BrokerKey {
    /// Cluster name.
    pub cluster: String,
    /// `host:port`.
    pub addr: String,
}

/// What is known of a broker that registered and was not given up.
#[derive(Clone, Debug)]
pub struct LiveBroker {
    pub(crate) broker_name: String,
    pub(crate) broker_id: i64,
    pub(crate) last_update: Instant,
    pub(crate) timeout: Duration,
    /// Of the topics that were taken in; `None` until the first ones are all there.
    pub(crate) data_version: Option<DataVersion>,
    /// Hash of the registration whose topics are exactly what is in the table for this broker.
    pub(crate) body_hash: Option<u64>,
    pub(crate) ha_server_addr: String,
    /// Connection on which it registered last.
    pub(crate) connection: u64,
}

/// A broker name from the time its first broker registers until the last one is gone. One that
/// comes back is another one, so that what is left in the table of the first can be told apart.
#[derive(Debug)]
pub(crate) struct BrokerName {
    pub(crate) name: String,
    gone: AtomicBool,
}

impl BrokerName {
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
}

/// The brokers of one name.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) data: BrokerData,
    pub(crate) name: Arc<BrokerName>,
}

impl Group {
    pub(crate) fn new(name: &str) -> Self {
        let data = BrokerData { broker_name: name.to_owned(), ..BrokerData::default() };
        let name = BrokerName { name: name.to_owned(), gone: AtomicBool::new(false) };
        Self { data, name: Arc::new(name) }
    }
}

/// The queues of a topic on one broker name. [`QueueData`] with less room: there may be millions.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    pub(crate) broker: Arc<BrokerName>,
    pub(crate) perm: i32,
    pub(crate) read: i32,
    pub(crate) write: i32,
    pub(crate) sys_flag: i32,
}

impl Queues {
    fn data(&self) -> QueueData {
        QueueData {
            broker_name: self.broker.name.clone(),
            perm: self.perm,
            read_queue_nums: self.read,
            topic_sys_flag: self.sys_flag,
            write_queue_nums: self.write,
        }
    }
}

/// The table.
#[derive(Debug, Default)]
pub struct RouteTable {
    /// Queues of each topic, ordered by broker name.
    pub(crate) topics: BTreeMap<Arc<str>, Vec<Queues>>,
    pub(crate) groups: HashMap<String, Group>,
    pub(crate) clusters: BTreeMap<String, BTreeSet<String>>,
    pub(crate) live: HashMap<BrokerKey, LiveBroker>,
    /// Connections on which a broker has asked to be registered, until they end.
    pub(crate) connections: HashSet<u64>,
    /// Topics may have queues of brokers that are gone.
    pub(crate) needs_sweep: bool,
}

impl RouteTable {
    /// The route of a topic, `None` when no broker with an address has it.
    pub fn route(&self, topic: &str) -> Option<TopicRouteData> {
        let queues = self.topics.get(topic)?.iter().filter(|queues| !queues.broker.is_gone());
        let (broker_datas, queue_datas): (Vec<_>, Vec<_>) = queues
            .filter_map(|queues| {
                let group = self.groups.get(&queues.broker.name)?;
                Some((group.data.clone(), queues.data()))
            })
            .unzip();
        if broker_datas.is_empty() {
            return None;
        }
        Some(TopicRouteData { broker_datas, queue_datas, ..TopicRouteData::default() })
    }

    /// Whether brokers are registered, and none of them has topics that were made before this time
    /// (milliseconds since the epoch): then nobody can be missing anything here.
    pub fn is_new_cluster(&self, since_millis: i64) -> bool {
        let is_new = |live: &LiveBroker| {
            let changed = live.data_version.map(|version| version.timestamp);
            // A table that was never changed has no time.
            changed.is_some_and(|changed| changed == 0 || changed >= since_millis)
        };
        !self.live.is_empty() && self.live.values().all(is_new)
    }

    /// Whether there is no broker yet whose topics are here.
    pub fn is_empty(&self) -> bool {
        self.live.values().all(|live| live.data_version.is_none())
    }

    /// All brokers and clusters.
    pub fn cluster_info(&self) -> ClusterInfo {
        let groups = self.groups.iter();
        ClusterInfo {
            broker_addr_table: groups
                .map(|(name, group)| (name.clone(), group.data.clone()))
                .collect(),
            cluster_addr_table: self.clusters.clone(),
        }
    }

    /// The members of one broker name.
    pub fn member_group(&self, cluster: &str, broker_name: &str) -> BrokerMemberGroup {
        let addrs = self.groups.get(broker_name).map(|group| group.data.broker_addrs.clone());
        BrokerMemberGroup {
            cluster: cluster.to_owned(),
            broker_name: broker_name.to_owned(),
            broker_addrs: addrs.unwrap_or_default(),
        }
    }

    /// Adds to `names` those topics of one turn, after `after`, that the filter lets through.
    /// Returns where the next turn begins.
    pub fn list_turn(
        &self,
        filter: &TopicFilter,
        after: Option<&Arc<str>>,
        names: &mut Vec<Arc<str>>,
    ) -> Option<Arc<str>> {
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.clone()));
        let mut last = None;
        let turn = self.topics.range((from, Bound::Unbounded)).take(TOPICS_PER_TURN);
        for (count, (topic, queues)) in turn.enumerate() {
            if self.passes(filter, queues) {
                names.push(Arc::clone(topic));
            }
            last = (count + 1 == TOPICS_PER_TURN).then(|| Arc::clone(topic));
        }
        last
    }

    fn passes(&self, filter: &TopicFilter, queues: &[Queues]) -> bool {
        let mut there = queues.iter().filter(|queues| !queues.broker.is_gone());
        let unit = match filter {
            TopicFilter::All => return there.next().is_some(),
            TopicFilter::Cluster(cluster) => {
                let names = self.clusters.get(cluster);
                let is_in =
                    |queues: &Queues| names.is_some_and(|n| n.contains(&queues.broker.name));
                return there.any(is_in);
            }
            TopicFilter::Units(unit) => unit,
        };
        let flag = there.next().map_or(0, |queues| queues.sys_flag);
        match unit {
            UnitTopics::Unit => flag & FLAG_UNIT != 0,
            UnitTopics::UnitSub => flag & FLAG_UNIT_SUB != 0,
            UnitTopics::UnitSubUnUnit => flag & FLAG_UNIT_SUB != 0 && flag & FLAG_UNIT == 0,
        }
    }

    /// Names of clusters and brokers, which are topics, too, and some broker's address.
    pub fn system_topic_list(&self) -> TopicList {
        let clusters = self.clusters.iter();
        let names = clusters.flat_map(|(cluster, names)| std::iter::once(cluster).chain(names));
        let topic_list = names.cloned().collect();
        let mut groups = self.groups.values();
        let broker_addr = groups.find_map(|group| group.data.address().map(str::to_owned));
        TopicList { topic_list, broker_addr }
    }

    /// Takes the write permission from every topic of a broker name until it registers a change;
    /// returns how many topics it has.
    pub fn wipe_write_perm(&mut self, broker_name: &str) -> i32 {
        self.change_perm(broker_name, |perm| perm & !perm::WRITE)
    }

    /// Gives read and write permission to every topic of a broker name; returns how many it has.
    pub fn add_write_perm(&mut self, broker_name: &str) -> i32 {
        self.change_perm(broker_name, |_| perm::READ | perm::WRITE)
    }

    fn change_perm(&mut self, broker_name: &str, change: impl Fn(i32) -> i32) -> i32 {
        let all = self.topics.values_mut().flatten();
        let mut count = 0;
        for queues in all.filter(|q| q.broker.name == broker_name && !q.broker.is_gone()) {
            queues.perm = change(queues.perm);
            count += 1;
        }
        count
    }

    /// Removes a topic, from the brokers of one cluster or from all. It comes back with the next
    /// registration of a broker that still has it.
    pub fn delete_topic(&mut self, topic: &str, cluster: Option<&str>) {
        let cluster = cluster.filter(|cluster| !cluster.is_empty());
        let names = match cluster.map(|cluster| self.clusters.get(cluster)) {
            Some(None) => return,
            Some(Some(names)) => Some(names),
            None => None,
        };
        let Some(queues) = self.topics.get_mut(topic) else { return };
        let is_here = |name: &str| names.is_none_or(|names| names.contains(name));
        queues.retain(|queues| !is_here(&queues.broker.name));
        if queues.is_empty() {
            self.topics.remove(topic);
        }
        // What these brokers registered last is no longer what is in the table.
        for live in self.live.values_mut().filter(|live| is_here(&live.broker_name)) {
            live.body_hash = None;
        }
    }

    /// Adds a topic that an administrator names, on brokers that are known.
    pub fn add_topic(&mut self, topic: &str, queues: Vec<QueueData>) {
        for queue in queues {
            if let Some(group) = self.groups.get(&queue.broker_name) {
                let queues = Queues {
                    broker: Arc::clone(&group.name),
                    perm: queue.perm,
                    read: queue.read_queue_nums,
                    write: queue.write_queue_nums,
                    sys_flag: queue.topic_sys_flag,
                };
                self.put(topic, queues, true);
            }
        }
    }

    /// Sets the queues of a topic on one broker name; if there are some already, only when they
    /// are to be replaced.
    pub(crate) fn put(&mut self, topic: &str, queues: Queues, replace: bool) {
        let Some(known) = self.topics.get_mut(topic) else {
            self.topics.insert(topic.into(), vec![queues]);
            return;
        };
        let name = |other: &Queues| other.broker.name.as_str().cmp(&queues.broker.name);
        match known.binary_search_by(name).map(|at| known.get_mut(at)) {
            Ok(Some(old)) if replace || old.broker.is_gone() => *old = queues,
            Ok(_) => {}
            Err(at) => {
                // A topic is rarely on more brokers than it is now.
                known.reserve_exact(1);
                known.insert(at, queues);
            }
        }
    }

    /// Marks a broker name as gone: no route has it from now on, and [`Self::sweep_turn`] takes its
    /// queues out.
    pub(crate) fn group_is_gone(&mut self, group: &Group) {
        group.name.gone.store(true, Ordering::Relaxed);
        self.needs_sweep = true;
    }

    /// Takes out what is left of brokers that are gone, for the topics of one turn after `after`.
    /// Returns where the next turn begins.
    pub fn sweep_turn(&mut self, after: Option<&Arc<str>>) -> Option<Arc<str>> {
        if after.is_none() && !std::mem::take(&mut self.needs_sweep) {
            return None;
        }
        self.retain_turn(after, |_, queues| !queues.broker.is_gone())
    }

    /// Keeps, of the topics of one turn, the queues for which `stays` holds. Returns where the next
    /// turn begins.
    pub(crate) fn retain_turn(
        &mut self,
        after: Option<&Arc<str>>,
        stays: impl Fn(&str, &Queues) -> bool,
    ) -> Option<Arc<str>> {
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.clone()));
        let (mut last, mut empty) = (None, Vec::new());
        let turn = self.topics.range_mut((from, Bound::Unbounded)).take(TOPICS_PER_TURN);
        for (count, (topic, queues)) in turn.enumerate() {
            queues.retain(|queues| stays(topic, queues));
            if queues.is_empty() {
                empty.push(Arc::clone(topic));
            }
            last = (count + 1 == TOPICS_PER_TURN).then(|| Arc::clone(topic));
        }
        for topic in &empty {
            self.topics.remove(topic);
        }
        last
    }

    /// Figures for metrics: topics, broker names, broker processes.
    pub fn sizes(&self) -> (usize, usize, usize) {
        (self.topics.len(), self.groups.len(), self.live.len())
    }
}
