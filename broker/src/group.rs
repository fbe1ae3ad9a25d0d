//! The consumer groups of this broker: `config/subscriptionGroup.json`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;
use protocol::body::SubscriptionGroupWrapper;
use protocol::data_version::DataVersion;
use protocol::subscription::SubscriptionGroupConfig;
use protocol::topic_name;

use crate::json_file::{JsonFile, LoadTableError, SaveError};
use crate::metadata_log::{MetadataLog, TableChange};
use crate::table_version::TableVersion;

/// Groups that are made without an administrator at most.
const GROUPS_MAX: usize = 200_000;
/// Bit of the forbidden table: the group must not read the topic.
const FORBID_READ: i32 = 1;

/// Groups of Apache's own tools; the flag says whether they may broadcast.
const SYSTEM_GROUPS: [(&str, bool); 8] = [
    ("TOOLS_CONSUMER", false),
    ("FILTERSRV_CONSUMER", false),
    ("SELF_TEST_C_GROUP", false),
    ("CID_ONS-HTTP-PROXY", true),
    ("CID_ONSAPI_PULL", true),
    ("CID_ONSAPI_PERMISSION", true),
    ("CID_ONSAPI_OWNER", true),
    ("CID_RMQ_SYS_TRANS", true),
];

#[derive(Default)]
struct State {
    version: TableVersion,
    groups: BTreeMap<String, Arc<SubscriptionGroupConfig>>,
    /// Group to topic to bits of what is forbidden.
    forbidden: BTreeMap<String, BTreeMap<String, i32>>,
}

impl State {
    /// Makes a group what it is from now on, and tells the replicas.
    fn put(&mut self, config: SubscriptionGroupConfig) -> Arc<SubscriptionGroupConfig> {
        let config = Arc::new(config);
        self.groups.insert(config.group_name.clone(), Arc::clone(&config));
        self.version.changed(TableChange::Group(config.as_ref().clone()));
        config
    }

    fn remove(&mut self, group: &str) -> bool {
        self.forbidden.remove(group);
        self.groups.remove(group).is_some()
    }

    fn set_read_forbidden(&mut self, group: &str, topic: &str, is_forbidden: bool) {
        let topics = self.forbidden.entry(group.to_owned()).or_default();
        let bits = topics.entry(topic.to_owned()).or_default();
        *bits = if is_forbidden { *bits | FORBID_READ } else { *bits & !FORBID_READ };
        topics.retain(|_, bits| *bits != 0);
        self.forbidden.retain(|_, topics| !topics.is_empty());
    }

    fn table(&self) -> SubscriptionGroupWrapper {
        let groups = self.groups.iter();
        SubscriptionGroupWrapper {
            data_version: self.version.current(),
            forbidden_table: self.forbidden.clone(),
            subscription_group_table: groups
                .map(|(name, config)| (name.clone(), config.as_ref().clone()))
                .collect(),
        }
    }
}

/// A group, and whether the call that returned it made it.
pub(crate) struct Found {
    pub(crate) config: Arc<SubscriptionGroupConfig>,
    pub(crate) is_new: bool,
}

/// See the module.
pub(crate) struct GroupTable {
    file: JsonFile,
    state: RwLock<State>,
}

impl GroupTable {
    /// Reads the table and adds the system groups that are missing.
    pub(crate) fn load(root: &Path) -> Result<Self, LoadTableError> {
        let file = JsonFile::new(root, "subscriptionGroup.json");
        let loaded: SubscriptionGroupWrapper = file.load()?;
        let groups = loaded.subscription_group_table.into_iter();
        let mut state = State {
            version: TableVersion::new(loaded.data_version),
            forbidden: loaded.forbidden_table,
            groups: groups
                .map(|(name, config)| {
                    let config = SubscriptionGroupConfig { group_name: name.clone(), ..config };
                    (name, Arc::new(config))
                })
                .collect(),
        };
        for (name, may_broadcast) in SYSTEM_GROUPS {
            if !state.groups.contains_key(name) {
                let mut config = named(name);
                config.consume_broadcast_enable |= may_broadcast;
                state.put(config);
            }
        }
        Ok(Self { file, state: RwLock::new(state) })
    }

    /// Blocks until the table is on the disk.
    pub(crate) fn save(&self) -> Result<(), SaveError> {
        self.file.save(|| self.state.read().table())
    }

    pub(crate) fn get(&self, group: &str) -> Option<Arc<SubscriptionGroupConfig>> {
        self.state.read().groups.get(group).cloned()
    }

    /// The group, made if it does not exist, may be made (`auto_create`, or the system owns it) and
    /// has a legal name.
    pub(crate) fn get_or_make(&self, group: &str, auto_create: bool) -> Option<Found> {
        if let Some(config) = self.get(group) {
            return Some(Found { config, is_new: false });
        }
        let may_be_made = auto_create || topic_name::is_system_group(group);
        if !may_be_made || topic_name::validate_group(group).is_err() {
            return None;
        }
        let mut state = self.state.write();
        if let Some(config) = state.groups.get(group).cloned() {
            return Some(Found { config, is_new: false });
        }
        if state.groups.len() >= GROUPS_MAX {
            return None;
        }
        Some(Found { config: state.put(named(group)), is_new: true })
    }

    pub(crate) fn len(&self) -> usize {
        self.state.read().groups.len()
    }

    /// The whole table.
    pub(crate) fn table(&self) -> SubscriptionGroupWrapper {
        self.state.read().table()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.state.read().groups.keys().cloned().collect()
    }

    /// Makes or replaces a group.
    pub(crate) fn update(&self, config: SubscriptionGroupConfig) {
        self.state.write().put(config);
    }

    /// Removes a group; whether it was there.
    pub(crate) fn remove(&self, group: &str) -> bool {
        let mut state = self.state.write();
        let was_there = state.remove(group);
        if was_there {
            state.version.changed(TableChange::GroupRemoved(group.to_owned()));
        }
        was_there
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
            TableChange::Group(config) => {
                state.groups.insert(config.group_name.clone(), Arc::new(config));
            }
            TableChange::GroupRemoved(group) => {
                state.remove(&group);
            }
            TableChange::ReadForbidden { group, topic, is_forbidden } => {
                state.set_read_forbidden(&group, &topic, is_forbidden);
            }
            TableChange::Topic(_) | TableChange::TopicRemoved(_) => {}
        }
        true
    }

    /// Versions from now on are those of the master of this epoch.
    pub(crate) fn begin_epoch(&self, epoch: i64) {
        self.state.write().version.begin_epoch(epoch);
    }

    /// Takes over the table of the master; whether anything is different now.
    pub(crate) fn replace(&self, table: SubscriptionGroupWrapper) -> bool {
        let groups = table.subscription_group_table.into_iter();
        let named = groups.map(|(name, config)| {
            let config = SubscriptionGroupConfig { group_name: name.clone(), ..config };
            (name, Arc::new(config))
        });
        let groups: BTreeMap<_, _> = named.collect();
        let mut state = self.state.write();
        let before = state.version.current();
        if !state.version.replace(table.data_version) {
            return false;
        }
        let is_same = before == table.data_version
            && state.forbidden == table.forbidden_table
            && state.groups == groups;
        state.forbidden = table.forbidden_table;
        state.groups = groups;
        !is_same
    }

    /// Whether the group must not read the topic.
    pub(crate) fn is_read_forbidden(&self, group: &str, topic: &str) -> bool {
        let state = self.state.read();
        let bits = state.forbidden.get(group).and_then(|topics| topics.get(topic));
        bits.is_some_and(|bits| bits & FORBID_READ != 0)
    }

    /// Forbids or allows the group to read the topic.
    pub(crate) fn set_read_forbidden(&self, group: &str, topic: &str, is_forbidden: bool) {
        let mut state = self.state.write();
        state.set_read_forbidden(group, topic, is_forbidden);
        let (group, topic) = (group.to_owned(), topic.to_owned());
        state.version.changed(TableChange::ReadForbidden { group, topic, is_forbidden });
    }
}

fn named(group: &str) -> SubscriptionGroupConfig {
    SubscriptionGroupConfig { group_name: group.to_owned(), ..SubscriptionGroupConfig::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_made_when_they_may_be() {
        let dir = tempfile::tempdir().unwrap();
        let table = GroupTable::load(dir.path()).unwrap();
        assert!(table.get_or_make("g", false).is_none());
        assert!(table.get_or_make("g", true).unwrap().is_new);
        assert!(!table.get_or_make("g", false).unwrap().is_new);
        assert!(table.get_or_make("CID_RMQ_SYS_X", false).unwrap().is_new);
        assert!(table.get_or_make("a b", true).is_none());
        assert_eq!(table.get("g").unwrap().retry_max_times, 16);
    }

    #[test]
    fn the_table_survives_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let table = GroupTable::load(dir.path()).unwrap();
        table.update(SubscriptionGroupConfig { retry_max_times: 3, ..named("g") });
        table.set_read_forbidden("g", "t", true);
        table.save().unwrap();
        let again = GroupTable::load(dir.path()).unwrap();
        assert_eq!(again.table(), table.table());
        assert!(again.is_read_forbidden("g", "t") && !again.is_read_forbidden("g", "u"));
        again.set_read_forbidden("g", "t", false);
        assert!(again.table().forbidden_table.is_empty());
        assert!(again.remove("g") && !again.remove("g"));
    }
}
