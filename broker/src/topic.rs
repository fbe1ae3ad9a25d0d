//! The topics of this broker: `config/topics.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;
use protocol::body::TopicConfigTable;
use protocol::data_version::DataVersion;
use protocol::topic_config::TopicConfig;
use protocol::{perm, topic_name};
use store::MessageStore;

use crate::config::BrokerConfig;
use crate::json_file::{JsonFile, LoadTableError, SaveError};
use crate::metadata_log::{MetadataLog, TableChange};
use crate::table_version::TableVersion;
use crate::topic_attribute::{self, AttributeError, Change};

/// Topics that are made without an administrator at most.
const TOPICS_MAX: usize = 200_000;
/// Queues of `BenchmarkTest`.
const BENCHMARK_QUEUES: i32 = 1_024;
/// Queues of the topic named like the cluster.
const CLUSTER_TOPIC_QUEUES: i32 = 16;
/// Queues of the topic of pop checkpoints.
const REVIVE_QUEUES: i32 = 8;

#[derive(Default)]
struct State {
    version: TableVersion,
    topics: BTreeMap<String, Arc<TopicConfig>>,
}

impl State {
    /// Makes a topic what it is from now on, and tells the replicas.
    fn put(&mut self, config: TopicConfig) -> Arc<TopicConfig> {
        let config = Arc::new(config);
        self.topics.insert(config.topic_name.clone(), Arc::clone(&config));
        self.version.changed(TableChange::Topic(config.as_ref().clone()));
        config
    }

    fn remove(&mut self, topic: &str) -> bool {
        let was_there = self.topics.remove(topic).is_some();
        if was_there {
            self.version.changed(TableChange::TopicRemoved(topic.to_owned()));
        }
        was_there
    }

    fn table(&self) -> TopicConfigTable {
        let topics = self.topics.iter();
        TopicConfigTable {
            data_version: self.version.current(),
            topic_config_table: topics
                .map(|(name, config)| (name.clone(), config.as_ref().clone()))
                .collect(),
        }
    }
}

/// A topic, and whether the call that returned it made it.
pub(crate) struct Found {
    pub(crate) config: Arc<TopicConfig>,
    pub(crate) is_new: bool,
}

/// See the module.
pub(crate) struct TopicTable {
    file: JsonFile,
    state: RwLock<State>,
    /// Topics that the broker needs for itself.
    system: BTreeSet<String>,
}

impl TopicTable {
    /// Reads the table and adds the system topics that are missing.
    pub(crate) fn load(root: &Path, config: &BrokerConfig) -> Result<Self, LoadTableError> {
        let file = JsonFile::new(root, "topics.json");
        let loaded: TopicConfigTable = file.load()?;
        let topics = loaded.topic_config_table.into_iter();
        let mut state = State {
            version: TableVersion::new(loaded.data_version),
            topics: topics
                .map(|(name, config)| {
                    (name.clone(), Arc::new(TopicConfig { topic_name: name, ..config }))
                })
                .collect(),
        };
        let mut system = BTreeSet::new();
        for topic in system_topics(config) {
            system.insert(topic.topic_name.clone());
            if !state.topics.contains_key(&topic.topic_name) {
                state.put(topic);
            }
        }
        Ok(Self { file, state: RwLock::new(state), system })
    }

    /// Blocks until the table is on the disk.
    pub(crate) fn save(&self) -> Result<(), SaveError> {
        self.file.save(|| self.state.read().table())
    }

    pub(crate) fn get(&self, topic: &str) -> Option<Arc<TopicConfig>> {
        self.state.read().topics.get(topic).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.state.read().topics.len()
    }

    /// The whole table.
    pub(crate) fn table(&self) -> TopicConfigTable {
        self.state.read().table()
    }

    pub(crate) fn data_version(&self) -> DataVersion {
        self.state.read().version.current()
    }

    /// A new version of the unchanged table, when what is registered depends on more than it.
    pub(crate) fn next_version(&self) {
        self.state.write().version.renew();
    }

    /// The topics that the broker needs for itself.
    pub(crate) fn system_topics(&self) -> &BTreeSet<String> {
        &self.system
    }

    pub(crate) fn is_system(&self, topic: &str) -> bool {
        self.system.contains(topic) || topic_name::is_system(topic)
    }

    pub(crate) fn is_order(&self, topic: &str) -> bool {
        self.state.read().topics.get(topic).is_some_and(|config| config.order)
    }

    /// The topic of a send, made after the model of `default_topic` if that may be inherited.
    pub(crate) fn for_send(
        &self,
        topic: &str,
        default_topic: &str,
        queue_nums: i32,
        config: &BrokerConfig,
    ) -> Option<Found> {
        if let Some(config) = self.get(topic) {
            return Some(Found { config, is_new: false });
        }
        let mut state = self.state.write();
        if let Some(config) = state.topics.get(topic).cloned() {
            return Some(Found { config, is_new: false });
        }
        let model = state.topics.get(default_topic)?;
        let is_closed =
            default_topic == topic_name::AUTO_CREATE_TOPIC && !config.auto_create_topic_enable;
        if is_closed || !perm::is_inherited(model.perm) || state.topics.len() >= TOPICS_MAX {
            return None;
        }
        let made = TopicConfig {
            topic_filter_type: model.topic_filter_type,
            ..TopicConfig::new(
                topic,
                queue_nums.min(model.write_queue_nums).max(0),
                model.perm & !perm::INHERIT,
            )
        };
        Some(Found { config: state.put(made), is_new: true })
    }

    /// The topic, made as `config` if it does not exist. `None` when there are too many.
    pub(crate) fn get_or_make(&self, config: TopicConfig) -> Option<Found> {
        if let Some(config) = self.get(&config.topic_name) {
            return Some(Found { config, is_new: false });
        }
        let mut state = self.state.write();
        if let Some(config) = state.topics.get(&config.topic_name).cloned() {
            return Some(Found { config, is_new: false });
        }
        if state.topics.len() >= TOPICS_MAX {
            return None;
        }
        Some(Found { config: state.put(config), is_new: true })
    }

    /// Makes or changes a topic; `config` has no attributes, they come from `changes`. Returns
    /// whether anything is different now.
    pub(crate) fn update(
        &self,
        config: TopicConfig,
        changes: &BTreeMap<String, Change>,
    ) -> Result<bool, AttributeError> {
        let mut state = self.state.write();
        let current = state.topics.get(&config.topic_name);
        let attributes = topic_attribute::apply(current.map(|topic| &topic.attributes), changes)?;
        let config = TopicConfig { attributes, ..config };
        if current.is_some_and(|current| **current == config) {
            return Ok(false);
        }
        state.put(config);
        Ok(true)
    }

    /// Removes a topic; whether it was there.
    pub(crate) fn remove(&self, topic: &str) -> bool {
        self.state.write().remove(topic)
    }

    /// Takes over the table of the master, but keeps what this broker needs; whether anything is
    /// different now.
    pub(crate) fn replace(&self, table: TopicConfigTable) -> bool {
        let mut state = self.state.write();
        let named = table.topic_config_table.into_iter().map(|(name, config)| {
            let config = TopicConfig { topic_name: name.clone(), ..config };
            (name, Arc::new(config))
        });
        let mut topics: BTreeMap<String, Arc<TopicConfig>> = named.collect();
        for name in &self.system {
            if let Some(config) = state.topics.get(name) {
                topics.entry(name.clone()).or_insert_with(|| Arc::clone(config));
            }
        }
        let before = state.version.current();
        if !state.version.replace(table.data_version) {
            return false;
        }
        let is_same = before == table.data_version && state.topics == topics;
        state.topics = topics;
        !is_same
    }

    /// Changes from now on go to this log.
    pub(crate) fn set_log(&self, log: &Arc<MetadataLog>) {
        self.state.write().version.set_log(log);
    }

    /// Takes a change over from the log if it is newer than what is known; whether it was.
    pub(crate) fn apply(&self, data_version: DataVersion, change: TableChange) -> bool {
        let mut state = self.state.write();
        if !state.version.take(data_version) {
            return false;
        }
        match change {
            TableChange::Topic(config) => {
                state.topics.insert(config.topic_name.clone(), Arc::new(config));
            }
            TableChange::TopicRemoved(topic) => {
                state.topics.remove(&topic);
            }
            TableChange::Group(_)
            | TableChange::GroupRemoved(_)
            | TableChange::ReadForbidden { .. } => {}
        }
        true
    }

    /// Versions from now on are those of the master of this epoch.
    pub(crate) fn begin_epoch(&self, epoch: i64) {
        self.state.write().version.begin_epoch(epoch);
    }

    /// Makes known what the log has messages of and this table lacks: a slave that becomes master
    /// may have the messages of a topic whose making it had not heard of. Queues without messages
    /// leave no trace, so there are as many as a topic has by default.
    pub(crate) fn adopt(&self, store: &MessageStore, queues_min: i32) {
        for topic in store.topics() {
            if self.get(&topic).is_some() || topic_name::is_system(&topic) {
                continue;
            }
            let seen = store.queue_ids(&topic).into_iter().max().unwrap_or(0) + 1;
            let is_single = topic_name::is_retry(&topic) || topic_name::is_dlq(&topic);
            let queues = if is_single { seen } else { seen.max(queues_min) };
            tracing::warn!(topic = %topic, queues, "a topic with messages was not known here");
            self.state.write().put(TopicConfig::new(&*topic, queues, perm::READ | perm::WRITE));
        }
    }

    /// Marks topics as ordered, as a name server says; whether anything is different now.
    pub(crate) fn set_order<'a>(&self, topics: impl Iterator<Item = &'a str>) -> bool {
        let mut state = self.state.write();
        let mut is_changed = false;
        for topic in topics {
            let Some(config) = state.topics.get(topic).filter(|config| !config.order) else {
                continue;
            };
            let config = TopicConfig { order: true, ..config.as_ref().clone() };
            state.put(config);
            is_changed = true;
        }
        is_changed
    }
}

/// The topics that every broker has.
fn system_topics(config: &BrokerConfig) -> Vec<TopicConfig> {
    let read_write = perm::READ | perm::WRITE;
    let inherit = |is_enabled| if is_enabled { read_write | perm::INHERIT } else { perm::INHERIT };
    let (cluster, broker) = (&config.broker_cluster_name, &config.broker_name);
    let levels = config.delay_levels().max_level();
    let mut topics = vec![
        TopicConfig::new(topic_name::SELF_TEST_TOPIC, 1, read_write),
        TopicConfig::new(topic_name::BENCHMARK_TOPIC, BENCHMARK_QUEUES, read_write),
        TopicConfig::new(cluster, CLUSTER_TOPIC_QUEUES, inherit(config.cluster_topic_enable)),
        TopicConfig::new(broker, 1, inherit(config.broker_topic_enable)),
        TopicConfig::new(topic_name::OFFSET_MOVED_EVENT, 1, read_write),
        TopicConfig::new(topic_name::SCHEDULE_TOPIC, levels, read_write),
        TopicConfig::new(topic_name::reply_topic(cluster), 1, read_write),
        TopicConfig::new(
            format!("{}{cluster}", topic_name::REVIVE_PREFIX),
            REVIVE_QUEUES,
            read_write,
        ),
        TopicConfig::new(
            format!("{}{broker}", topic_name::SYNC_BROKER_MEMBER_PREFIX),
            1,
            perm::INHERIT,
        ),
        TopicConfig::new(topic_name::TRANS_HALF_TOPIC, 1, read_write),
        TopicConfig::new(topic_name::TRANS_OP_HALF_TOPIC, 1, read_write),
        TopicConfig::new(topic_name::TIMER_TOPIC, 1, read_write),
    ];
    if config.enable_controller_mode {
        topics.push(TopicConfig::new(topic_name::METADATA_TOPIC, 1, perm::READ));
    }
    if config.auto_create_topic_enable {
        let queues = config.default_topic_queue_nums;
        topics.push(TopicConfig::new(topic_name::AUTO_CREATE_TOPIC, queues, inherit(true)));
    }
    if config.trace_topic_enable {
        topics.push(TopicConfig::new(&config.msg_trace_topic_name, 1, read_write));
    }
    topics
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(auto_create: bool) -> BrokerConfig {
        BrokerConfig {
            broker_name: "b".into(),
            auto_create_topic_enable: auto_create,
            ..BrokerConfig::default()
        }
    }

    #[test]
    fn topics_are_made_after_a_model() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(true);
        let table = TopicTable::load(dir.path(), &config).unwrap();
        let made = table.for_send("t", "TBW102", 4, &config).unwrap();
        assert!(made.is_new);
        assert_eq!((made.config.write_queue_nums, made.config.perm), (4, 6));
        assert!(!table.for_send("t", "TBW102", 4, &config).unwrap().is_new);
        let many = table.for_send("u", "TBW102", 99, &config).unwrap().config;
        assert_eq!(many.read_queue_nums, 8);
        assert_eq!(table.for_send("v", "TBW102", -1, &config).unwrap().config.read_queue_nums, 0);
        assert!(table.for_send("w", "no such model", 4, &config).is_none());
        assert!(table.for_send("w", "t", 4, &config).is_none(), "t cannot be inherited");
        let closed = BrokerConfig { auto_create_topic_enable: false, ..config };
        assert!(table.for_send("w", "TBW102", 4, &closed).is_none());
    }

    #[test]
    fn the_table_survives_a_restart_and_versions_rise() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(false);
        let table = TopicTable::load(dir.path(), &config).unwrap();
        assert!(table.get("TBW102").is_none());
        let before = table.data_version();
        let topic = TopicConfig::new("t", 3, 6);
        let changes = topic_attribute::parse("+message.type=FIFO").unwrap();
        assert!(table.update(topic.clone(), &changes).unwrap());
        assert!(!table.update(topic, &BTreeMap::new()).unwrap());
        assert!(table.data_version() > before);
        assert!(table.set_order(["t", "nothing"].into_iter()));
        assert!(!table.set_order(["t"].into_iter()));
        table.save().unwrap();
        let again = TopicTable::load(dir.path(), &config).unwrap();
        assert_eq!(again.table(), table.table());
        assert!(again.is_order("t"));
        assert_eq!(again.get("t").unwrap().attributes["message.type"], "FIFO");
        assert!(again.remove("t"));
        assert!(!again.remove("t"));
    }

    #[test]
    fn a_slave_has_the_topics_of_its_master() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(true);
        let table = TopicTable::load(dir.path(), &config).unwrap();
        table.get_or_make(TopicConfig::new("gone", 1, 6)).unwrap();
        let topics = ["a", "b"].map(|name| (name.to_owned(), TopicConfig::new(name, 3, 6)));
        let data_version = DataVersion { counter: 77, ..DataVersion::default() };
        let master = TopicConfigTable { data_version, topic_config_table: topics.into() };
        assert!(table.replace(master.clone()));
        assert!(!table.replace(master));
        assert!(table.get("a").is_some() && table.get("gone").is_none());
        assert!(table.get("SELF_TEST_TOPIC").is_some(), "the broker's own stay");
        assert_eq!(table.data_version(), data_version);
    }

    #[test]
    fn older_changes_in_the_log_do_not_undo_newer_ones() {
        let dir = tempfile::tempdir().unwrap();
        let table = TopicTable::load(dir.path(), &config(true)).unwrap();
        table.begin_epoch(3);
        let version = |state_version, counter| DataVersion { state_version, counter, timestamp: 1 };
        let change = |queues| TableChange::Topic(TopicConfig::new("t", queues, 6));
        assert!(table.apply(version(4, 1), change(1)));
        assert!(!table.apply(version(4, 1), change(2)), "read twice");
        assert!(!table.apply(version(3, 99), change(2)), "of the master before");
        assert_eq!(table.get("t").unwrap().write_queue_nums, 1);
        assert!(table.apply(version(4, 2), TableChange::TopicRemoved("t".to_owned())));
        assert!(table.get("t").is_none());
        table.begin_epoch(5);
        assert!(table.data_version() > version(4, 2));
    }

    #[test]
    fn a_file_of_apache_is_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("config")).unwrap();
        let text = "{\n\t\"dataVersion\":{\n\t\t\"counter\":3,\"stateVersion\":0,\"timestamp\":7\n\t},\
            \"topicConfigTable\":{\"T\":{\"attributes\":{},\"order\":false,\"perm\":6,\
            \"readQueueNums\":4,\"topicFilterType\":\"SINGLE_TAG\",\"topicName\":\"T\",\
            \"topicSysFlag\":0,\"writeQueueNums\":4}}}";
        std::fs::write(dir.path().join("config/topics.json"), text).unwrap();
        let table = TopicTable::load(dir.path(), &config(true)).unwrap();
        assert_eq!(table.get("T").unwrap().read_queue_nums, 4);
        assert!(table.is_system("SELF_TEST_TOPIC") && !table.is_system("T"));
    }
}
