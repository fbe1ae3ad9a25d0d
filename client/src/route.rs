//! Where the queues of topics are.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use protocol::body::MessageQueue;
use protocol::perm;
use protocol::route::{MASTER_ID, QueueData, TopicRouteData};
use tokio::time::Instant;

/// Queues of one topic on one broker that are believed at most. Apache's brokers have no limit;
/// 65,536 keeps a wrong answer from filling the memory.
const QUEUES_PER_BROKER_MAX: i32 = 65_536;

/// The route of one topic, and the queues that follow from it.
#[derive(Debug)]
pub struct TopicRoute {
    /// As the name server told it.
    pub data: TopicRouteData,
    /// Queues that producers may use, ordered by broker and number.
    pub write_queues: Vec<MessageQueue>,
    /// Queues that consumers read, ordered by broker and number.
    pub read_queues: Vec<MessageQueue>,
    /// Which queue is next in turn.
    next: Arc<AtomicUsize>,
}

impl TopicRoute {
    /// The queues that follow from a route.
    pub fn new(topic: &str, data: TopicRouteData) -> Self {
        let write_queues = write_queues(topic, &data);
        let mut read_queues = Vec::new();
        for queue in data.queue_datas.iter().filter(|queue| perm::is_readable(queue.perm)) {
            push_queues(&mut read_queues, topic, &queue.broker_name, queue.read_queue_nums);
        }
        read_queues.sort();
        read_queues.dedup();
        let start = rand::random_range(0..write_queues.len().max(1));
        let next = Arc::new(AtomicUsize::new(start));
        Self { data, write_queues, read_queues, next }
    }

    /// The route of a topic that does not exist yet but will be made, at the first send, after the
    /// default topic.
    pub(crate) fn by_default(topic: &str, mut default: TopicRouteData, queue_nums: i32) -> Self {
        for queue in &mut default.queue_datas {
            let queues = queue_nums.min(queue.read_queue_nums);
            (queue.read_queue_nums, queue.write_queue_nums) = (queues, queues);
        }
        default.order_topic_conf = None;
        Self::new(topic, default)
    }

    /// A number that goes up by one with each call, for taking queues in turn.
    pub(crate) fn turn(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

/// Where the topic is ordered across brokers, the order says which queues there are; else these are
/// the queues of the brokers that have a master now.
fn write_queues(topic: &str, data: &TopicRouteData) -> Vec<MessageQueue> {
    let mut queues = Vec::new();
    if let Some(order) = data.order_topic_conf.as_deref().filter(|order| !order.is_empty()) {
        for (broker, number) in order.split(';').filter_map(|part| part.split_once(':')) {
            push_queues(&mut queues, topic, broker, number.parse().unwrap_or(0));
        }
        return queues;
    }
    let has_master = |queue: &&QueueData| {
        data.broker_datas.iter().any(|broker| {
            broker.broker_name == queue.broker_name && broker.broker_addrs.contains_key(&MASTER_ID)
        })
    };
    let writable = data.queue_datas.iter().filter(|queue| perm::is_writable(queue.perm));
    for queue in writable.filter(has_master) {
        push_queues(&mut queues, topic, &queue.broker_name, queue.write_queue_nums);
    }
    queues.sort();
    queues.dedup();
    queues
}

fn push_queues(queues: &mut Vec<MessageQueue>, topic: &str, broker: &str, number: i32) {
    queues.extend((0..number.min(QUEUES_PER_BROKER_MAX)).map(|queue_id| MessageQueue {
        topic: topic.to_owned(),
        broker_name: broker.to_owned(),
        queue_id,
    }));
}

/// The routes that a client knows.
pub(crate) struct RouteTable {
    topics: Mutex<HashMap<String, Entry>>,
    /// Addresses by broker name and id, of all routes.
    brokers: Mutex<BTreeMap<String, BTreeMap<i64, String>>>,
    topics_max: usize,
    idle: Duration,
}

struct Entry {
    route: Arc<TopicRoute>,
    used: Instant,
}

impl RouteTable {
    pub(crate) fn new(topics_max: usize, idle: Duration) -> Self {
        Self { topics: Mutex::default(), brokers: Mutex::default(), topics_max, idle }
    }

    /// The route of a topic, which thereby counts as used.
    pub(crate) fn get(&self, topic: &str) -> Option<Arc<TopicRoute>> {
        let mut topics = self.topics.lock();
        let entry = topics.get_mut(topic)?;
        entry.used = Instant::now();
        Some(Arc::clone(&entry.route))
    }

    /// Stores a route. Returns what is in force now, and whether it differs from what was.
    pub(crate) fn put(&self, topic: &str, mut route: TopicRoute) -> (Arc<TopicRoute>, bool) {
        {
            let mut brokers = self.brokers.lock();
            for broker in &route.data.broker_datas {
                brokers.insert(broker.broker_name.clone(), broker.broker_addrs.clone());
            }
        }
        let mut topics = self.topics.lock();
        if let Some(entry) = topics.get_mut(topic) {
            if entry.route.data == route.data {
                return (Arc::clone(&entry.route), false);
            }
            route.next = Arc::clone(&entry.route.next);
            entry.route = Arc::new(route);
            return (Arc::clone(&entry.route), true);
        }
        if topics.len() >= self.topics_max {
            let oldest = topics.iter().min_by_key(|(_, entry)| entry.used);
            if let Some(oldest) = oldest.map(|(topic, _)| topic.clone()) {
                topics.remove(&oldest);
            }
        }
        let route = Arc::new(route);
        let entry = Entry { route: Arc::clone(&route), used: Instant::now() };
        topics.insert(topic.to_owned(), entry);
        (route, true)
    }

    /// Forgets a topic, for it was deleted.
    pub(crate) fn remove(&self, topic: &str) {
        self.topics.lock().remove(topic);
    }

    /// Forgets topics that nobody used lately and brokers that no route has. Returns the topics
    /// that are left and the addresses that are no longer needed.
    pub(crate) fn expire(&self) -> (Vec<String>, Vec<String>) {
        let mut topics = self.topics.lock();
        topics.retain(|_, entry| entry.used.elapsed() < self.idle);
        let mut known: BTreeMap<String, BTreeMap<i64, String>> = BTreeMap::new();
        for broker in topics.values().flat_map(|entry| &entry.route.data.broker_datas) {
            let addrs = known.entry(broker.broker_name.clone()).or_default();
            addrs.extend(broker.broker_addrs.clone());
        }
        let left = topics.keys().cloned().collect();
        drop(topics);
        let mut brokers = self.brokers.lock();
        let is_known = |addr: &&String| known.values().any(|b| b.values().any(|a| a == *addr));
        let gone = brokers.values().flat_map(BTreeMap::values).filter(|addr| !is_known(addr));
        let gone = gone.cloned().collect();
        *brokers = known;
        (left, gone)
    }

    /// Address of a broker's master.
    pub(crate) fn master(&self, broker_name: &str) -> Option<String> {
        self.brokers.lock().get(broker_name)?.get(&MASTER_ID).cloned()
    }

    /// Address of this member of a broker name; without it, of the next one; without that, of any.
    pub(crate) fn member(&self, broker_name: &str, id: i64) -> Option<(i64, String)> {
        let brokers = self.brokers.lock();
        let addrs = brokers.get(broker_name)?;
        let exact = addrs.get_key_value(&id);
        let next = || id.checked_add(1).and_then(|next| addrs.get_key_value(&next));
        let (id, addr) = exact.or_else(next).or_else(|| addrs.iter().next())?;
        Some((*id, addr.clone()))
    }

    /// Addresses of all brokers, or of all masters.
    pub(crate) fn addresses(&self, masters_only: bool) -> Vec<String> {
        let brokers = self.brokers.lock();
        let all = brokers.values().flatten();
        let wanted = all.filter(|(id, _)| !masters_only || **id == MASTER_ID);
        wanted.map(|(_, addr)| addr.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::route::BrokerData;

    fn broker(name: &str, ids: &[i64]) -> BrokerData {
        let addrs = ids.iter().map(|id| (*id, format!("{name}-{id}:10911"))).collect();
        BrokerData { broker_name: name.into(), broker_addrs: addrs, ..Default::default() }
    }

    fn queue_data(broker: &str, read: i32, write: i32, perm: i32) -> QueueData {
        QueueData {
            broker_name: broker.into(),
            read_queue_nums: read,
            write_queue_nums: write,
            perm,
            ..Default::default()
        }
    }

    fn names(queues: &[MessageQueue]) -> Vec<String> {
        queues.iter().map(|queue| format!("{}{}", queue.broker_name, queue.queue_id)).collect()
    }

    fn data() -> TopicRouteData {
        TopicRouteData {
            broker_datas: vec![broker("a", &[0, 1]), broker("b", &[0]), broker("c", &[1])],
            queue_datas: vec![
                queue_data("b", 1, 2, 6),
                queue_data("a", 2, 1, 6),
                queue_data("c", 1, 1, 6),
                queue_data("d", 1, 1, 4),
            ],
            ..Default::default()
        }
    }

    #[test]
    fn queues_follow_permission_masters_and_order() {
        let route = TopicRoute::new("t", data());
        assert_eq!(names(&route.write_queues), ["a0", "b0", "b1"]);
        assert_eq!(names(&route.read_queues), ["a0", "a1", "b0", "c0", "d0"]);
        let order_topic_conf = Some("d:1;a:2;x".to_owned());
        let ordered = TopicRouteData { order_topic_conf, ..data() };
        assert_eq!(names(&TopicRoute::new("t", ordered).write_queues), ["d0", "a0", "a1"]);
        let queue_datas = vec![queue_data("a", i32::MAX, -3, 6)];
        let odd = TopicRoute::new("t", TopicRouteData { queue_datas, ..data() });
        assert_eq!((odd.read_queues.len(), odd.write_queues.len()), (65_536, 0));
    }

    #[test]
    fn a_topic_to_be_made_gets_few_queues() {
        let route = TopicRoute::by_default("t", data(), 1);
        assert_eq!(names(&route.write_queues), ["a0", "b0"]);
        let route = TopicRoute::by_default("t", data(), 4);
        assert_eq!(names(&route.write_queues), ["a0", "a1", "b0"]);
    }

    #[tokio::test(start_paused = true)]
    async fn routes_are_replaced_and_forgotten() {
        let table = RouteTable::new(2, Duration::from_secs(60));
        assert!(table.put("t", TopicRoute::new("t", data())).1);
        assert!(!table.put("t", TopicRoute::new("t", data())).1);
        let turn = table.get("t").unwrap().turn();
        let small = TopicRouteData { broker_datas: vec![broker("a", &[2])], ..data() };
        let (route, changed) = table.put("t", TopicRoute::new("t", small));
        assert!(changed);
        assert_eq!(route.turn(), turn + 1, "taking turns goes on");
        assert_eq!(table.master("a"), None);
        assert_eq!(table.member("a", 0), Some((2, "a-2:10911".into())));
        assert_eq!(table.member("a", 1), Some((2, "a-2:10911".into())));
        assert_eq!(table.master("b").as_deref(), Some("b-0:10911"));
        assert_eq!(table.addresses(true), ["b-0:10911"]);
        assert_eq!(table.addresses(false).len(), 3);
        let (left, gone) = table.expire();
        assert_eq!(
            (left, gone),
            (vec!["t".to_owned()], vec!["b-0:10911".into(), "c-1:10911".into()])
        );
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(table.expire().0.is_empty());
        assert!(table.get("t").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_topic_used_longest_ago_makes_room() {
        let table = RouteTable::new(2, Duration::from_secs(60));
        for topic in ["x", "y"] {
            table.put(topic, TopicRoute::new(topic, data()));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        table.get("x");
        tokio::time::advance(Duration::from_secs(1)).await;
        table.put("z", TopicRoute::new("z", data()));
        assert!(table.get("y").is_none() && table.get("x").is_some() && table.get("z").is_some());
    }
}
