//! Topics, brokers and clusters, as brokers registered them.
//!
//! Pure: the time is an argument. [`crate::registration`] has the part that brokers change.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use protocol::body::{BrokerMemberGroup, TopicList};
use protocol::data_version::DataVersion;
use protocol::perm;
use protocol::route::{BrokerData, ClusterInfo, QueueData, TopicRouteData};
use tokio::time::Instant;

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
    pub(crate) data_version: DataVersion,
    pub(crate) ha_server_addr: String,
    /// Connection on which it registered last.
    pub(crate) connection: u64,
}

/// The table. Topics map to the queues of each broker name.
#[derive(Debug, Default)]
pub struct RouteTable {
    pub(crate) topics: HashMap<String, BTreeMap<String, QueueData>>,
    pub(crate) brokers: HashMap<String, BrokerData>,
    pub(crate) clusters: BTreeMap<String, BTreeSet<String>>,
    pub(crate) live: HashMap<BrokerKey, LiveBroker>,
}

impl RouteTable {
    /// The route of a topic, `None` when no broker with an address has it.
    pub fn route(&self, topic: &str) -> Option<TopicRouteData> {
        let queues = self.topics.get(topic)?;
        let broker_datas: Vec<_> =
            queues.keys().filter_map(|name| self.brokers.get(name)).cloned().collect();
        if broker_datas.is_empty() {
            return None;
        }
        let queue_datas = queues.values().cloned().collect();
        Some(TopicRouteData { broker_datas, queue_datas, ..TopicRouteData::default() })
    }

    /// All brokers and clusters.
    pub fn cluster_info(&self) -> ClusterInfo {
        ClusterInfo {
            broker_addr_table: self
                .brokers
                .iter()
                .map(|(name, data)| (name.clone(), data.clone()))
                .collect(),
            cluster_addr_table: self.clusters.clone(),
        }
    }

    /// The members of one broker name.
    pub fn member_group(&self, cluster: &str, broker_name: &str) -> BrokerMemberGroup {
        let addrs = self.brokers.get(broker_name).map(|data| data.broker_addrs.clone());
        BrokerMemberGroup {
            cluster: cluster.to_owned(),
            broker_name: broker_name.to_owned(),
            broker_addrs: addrs.unwrap_or_default(),
        }
    }

    /// Names of all topics.
    pub fn topic_list(&self) -> TopicList {
        TopicList { topic_list: self.topics.keys().cloned().collect(), broker_addr: None }
    }

    /// Names of the topics that some broker of the cluster has.
    pub fn topics_of_cluster(&self, cluster: &str) -> TopicList {
        let Some(names) = self.clusters.get(cluster) else { return TopicList::default() };
        let here =
            |queues: &BTreeMap<String, QueueData>| queues.keys().any(|name| names.contains(name));
        let topics = self.topics.iter().filter(|(_, queues)| here(queues));
        TopicList {
            topic_list: topics.map(|(topic, _)| topic.clone()).collect(),
            broker_addr: None,
        }
    }

    /// Names of clusters and brokers, which are topics, too, and some broker's address.
    pub fn system_topic_list(&self) -> TopicList {
        let clusters = self.clusters.iter();
        let names = clusters.flat_map(|(cluster, names)| std::iter::once(cluster).chain(names));
        let topic_list = names.cloned().collect();
        let broker_addr = self.brokers.values().find_map(|data| data.address().map(str::to_owned));
        TopicList { topic_list, broker_addr }
    }

    /// Names of topics by their unit flags.
    pub fn unit_topics(&self, which: UnitTopics) -> TopicList {
        let wanted = |flag: i32| match which {
            UnitTopics::Unit => flag & FLAG_UNIT != 0,
            UnitTopics::UnitSub => flag & FLAG_UNIT_SUB != 0,
            UnitTopics::UnitSubUnUnit => flag & FLAG_UNIT_SUB != 0 && flag & FLAG_UNIT == 0,
        };
        let matches = |queues: &BTreeMap<String, QueueData>| {
            queues.values().next().is_some_and(|queue| wanted(queue.topic_sys_flag))
        };
        let topics = self.topics.iter().filter(|(_, queues)| matches(queues));
        TopicList {
            topic_list: topics.map(|(topic, _)| topic.clone()).collect(),
            broker_addr: None,
        }
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
        let queues = self.topics.values_mut().filter_map(|queues| queues.get_mut(broker_name));
        let mut count = 0;
        for queue in queues {
            queue.perm = change(queue.perm);
            count += 1;
        }
        count
    }

    /// Removes a topic, from the brokers of one cluster or from all.
    pub fn delete_topic(&mut self, topic: &str, cluster: Option<&str>) {
        let Some(cluster) = cluster.filter(|cluster| !cluster.is_empty()) else {
            self.topics.remove(topic);
            return;
        };
        let names = self.clusters.get(cluster);
        if let (Some(queues), Some(names)) = (self.topics.get_mut(topic), names) {
            queues.retain(|name, _| !names.contains(name));
            if queues.is_empty() {
                self.topics.remove(topic);
            }
        }
    }

    /// Adds a topic that an administrator names, on brokers that are known.
    pub fn add_topic(&mut self, topic: &str, queues: Vec<QueueData>) {
        for queue in queues {
            if self.brokers.contains_key(&queue.broker_name) {
                let topic = self.topics.entry(topic.to_owned()).or_default();
                topic.insert(queue.broker_name.clone(), queue);
            }
        }
    }

    /// Figures for metrics: topics, broker names, broker processes.
    pub fn sizes(&self) -> (usize, usize, usize) {
        (self.topics.len(), self.brokers.len(), self.live.len())
    }
}
