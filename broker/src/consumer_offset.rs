//! How far each group has consumed each queue: `config/consumerOffset.json`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use parking_lot::Mutex;
use protocol::body::ConsumerOffsetTable as OffsetBody;
use protocol::data_version::DataVersion;

use crate::clock::now_ms;
use crate::json_file::{JsonFile, LoadTableError, SaveError};

/// Between topic and group in the keys of the file.
const SEPARATOR: char = '@';

/// Offsets by queue.
type Queues = BTreeMap<i32, i64>;
/// Offsets by group, then topic.
type Offsets = HashMap<String, HashMap<String, Queues>>;

#[derive(Default)]
struct State {
    data_version: DataVersion,
    committed: Offsets,
    /// Offsets to which consumers are to be set back or forth at their next pull; in memory only.
    resets: Offsets,
    /// Where consumers last pulled; in memory only.
    pulled: Offsets,
    changes: i64,
    is_dirty: bool,
}

/// See the module.
pub(crate) struct ConsumerOffsetTable {
    file: JsonFile,
    state: Mutex<State>,
    version_step: i64,
}

impl ConsumerOffsetTable {
    pub(crate) fn load(root: &Path, version_step: i64) -> Result<Self, LoadTableError> {
        let file = JsonFile::new(root, "consumerOffset.json");
        let loaded: OffsetBody = file.load()?;
        let mut state = State { data_version: loaded.data_version, ..State::default() };
        for (key, queues) in loaded.offset_table {
            let Some((topic, group)) = key.split_once(SEPARATOR) else {
                tracing::warn!(key, "offsets without topic and group are dropped");
                continue;
            };
            state.committed.entry(group.to_owned()).or_default().insert(topic.to_owned(), queues);
        }
        Ok(Self { file, state: Mutex::new(state), version_step: version_step.max(1) })
    }

    /// Blocks until the table is on the disk, if it changed since it was last there.
    pub(crate) fn save_if_changed(&self) -> Result<(), SaveError> {
        if !std::mem::take(&mut self.state.lock().is_dirty) {
            return Ok(());
        }
        let saved = self.file.save(|| self.table());
        if saved.is_err() {
            self.state.lock().is_dirty = true;
        }
        saved
    }

    /// Takes over the offsets that the master has; those that it does not have stay.
    pub(crate) fn merge(&self, table: OffsetBody) {
        let mut state = self.state.lock();
        for (key, queues) in table.offset_table {
            let Some((topic, group)) = key.split_once(SEPARATOR) else { continue };
            let topics = state.committed.entry(group.to_owned()).or_default();
            let known = topics.entry(topic.to_owned()).or_default();
            let is_new = |(queue, offset): (&i32, &i64)| known.get(queue) != Some(offset);
            if queues.iter().any(is_new) {
                known.extend(queues);
                state.is_dirty = true;
            }
        }
        state.data_version = table.data_version;
    }

    /// All committed offsets.
    pub(crate) fn table(&self) -> OffsetBody {
        let state = self.state.lock();
        let mut table = OffsetBody { data_version: state.data_version, ..OffsetBody::default() };
        for (group, topics) in &state.committed {
            for (topic, queues) in topics {
                table.offset_table.insert(format!("{topic}{SEPARATOR}{group}"), queues.clone());
            }
        }
        table
    }

    /// The committed offset; a pending reset counts as committed.
    pub(crate) fn get(&self, group: &str, topic: &str, queue_id: i32) -> Option<i64> {
        let state = self.state.lock();
        look_up(&state.resets, group, topic, queue_id)
            .or_else(|| look_up(&state.committed, group, topic, queue_id))
    }

    /// Commits an offset; lower ones than before count, too.
    pub(crate) fn commit(&self, group: &str, topic: &str, queue_id: i32, offset: i64) {
        let mut state = self.state.lock();
        set(&mut state.committed, group, topic, queue_id, offset);
        state.is_dirty = true;
        state.changes += 1;
        if state.changes % self.version_step == 0 {
            state.data_version = state.data_version.next(now_ms());
        }
    }

    /// Remembers where a consumer pulled.
    pub(crate) fn pulled(&self, group: &str, topic: &str, queue_id: i32, offset: i64) {
        set(&mut self.state.lock().pulled, group, topic, queue_id, offset);
    }

    /// Where a consumer last pulled.
    pub(crate) fn last_pulled(&self, group: &str, topic: &str, queue_id: i32) -> Option<i64> {
        look_up(&self.state.lock().pulled, group, topic, queue_id)
    }

    /// Sets an offset for good: whoever pulls next is sent there.
    pub(crate) fn reset(&self, group: &str, topic: &str, queue_id: i32, offset: i64) {
        let mut state = self.state.lock();
        set(&mut state.resets, group, topic, queue_id, offset);
        set(&mut state.committed, group, topic, queue_id, offset);
        state.is_dirty = true;
    }

    /// Whether a reset waits for the next pull.
    pub(crate) fn has_reset(&self, group: &str, topic: &str, queue_id: i32) -> bool {
        look_up(&self.state.lock().resets, group, topic, queue_id).is_some()
    }

    /// Takes the reset that waits for the next pull.
    pub(crate) fn take_reset(&self, group: &str, topic: &str, queue_id: i32) -> Option<i64> {
        let mut state = self.state.lock();
        if state.resets.is_empty() {
            return None;
        }
        let topics = state.resets.get_mut(group)?;
        let queues = topics.get_mut(topic)?;
        let offset = queues.remove(&queue_id);
        if queues.is_empty() {
            topics.remove(topic);
        }
        if topics.is_empty() {
            state.resets.remove(group);
        }
        offset
    }

    /// The topics of which a group has offsets.
    pub(crate) fn topics_of(&self, group: &str) -> BTreeSet<String> {
        let state = self.state.lock();
        state
            .committed
            .get(group)
            .map(|topics| topics.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// The groups that have offsets of a topic.
    pub(crate) fn groups_of(&self, topic: &str) -> BTreeSet<String> {
        let state = self.state.lock();
        let groups = state.committed.iter().filter(|(_, topics)| topics.contains_key(topic));
        groups.map(|(group, _)| group.clone()).collect()
    }

    /// Gives a group the offsets of another.
    pub(crate) fn copy(&self, from: &str, to: &str, topic: &str) {
        let mut state = self.state.lock();
        let queues = state.committed.get(from).and_then(|topics| topics.get(topic)).cloned();
        let Some(queues) = queues else { return };
        state.committed.entry(to.to_owned()).or_default().insert(topic.to_owned(), queues);
        state.is_dirty = true;
    }

    pub(crate) fn remove_topic(&self, topic: &str) {
        let mut state = self.state.lock();
        let State { committed, resets, pulled, .. } = &mut *state;
        for offsets in [committed, resets, pulled] {
            for topics in offsets.values_mut() {
                topics.remove(topic);
            }
            offsets.retain(|_, topics| !topics.is_empty());
        }
        state.is_dirty = true;
    }

    pub(crate) fn remove_group(&self, group: &str) {
        let mut state = self.state.lock();
        let State { committed, resets, pulled, .. } = &mut *state;
        for offsets in [committed, resets, pulled] {
            offsets.remove(group);
        }
        state.is_dirty = true;
    }
}

fn look_up(offsets: &Offsets, group: &str, topic: &str, queue_id: i32) -> Option<i64> {
    offsets.get(group)?.get(topic)?.get(&queue_id).copied()
}

fn set(offsets: &mut Offsets, group: &str, topic: &str, queue_id: i32, offset: i64) {
    // Nearly always the entry is there, and then no key needs to be allocated.
    let known = offsets.get_mut(group).and_then(|topics| topics.get_mut(topic));
    if let Some(queues) = known {
        queues.insert(queue_id, offset);
        return;
    }
    let topics = offsets.entry(group.to_owned()).or_default();
    topics.entry(topic.to_owned()).or_default().insert(queue_id, offset);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_survive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let table = ConsumerOffsetTable::load(dir.path(), 2).unwrap();
        assert_eq!(table.get("g", "t", 0), None);
        table.commit("g", "t", 0, 7);
        table.commit("g", "t", 1, 8);
        table.commit("g", "%RETRY%g", 0, 1);
        table.pulled("g", "t", 0, 9);
        assert_eq!(table.table().data_version.counter, 1);
        table.save_if_changed().unwrap();
        let again = ConsumerOffsetTable::load(dir.path(), 2).unwrap();
        assert_eq!(again.table(), table.table());
        assert_eq!(again.get("g", "t", 1), Some(8));
        assert_eq!(again.last_pulled("g", "t", 0), None);
        assert_eq!(again.topics_of("g").into_iter().collect::<Vec<_>>(), ["%RETRY%g", "t"]);
        assert_eq!(again.groups_of("t").into_iter().collect::<Vec<_>>(), ["g"]);
        again.copy("g", "h", "t");
        assert_eq!((again.get("h", "t", 0), again.get("h", "t", 1)), (Some(7), Some(8)));
        again.remove_topic("t");
        assert_eq!(again.get("h", "t", 0), None);
        again.remove_group("g");
        assert!(again.table().offset_table.is_empty());
    }

    #[test]
    fn a_reset_counts_until_it_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let table = ConsumerOffsetTable::load(dir.path(), 500).unwrap();
        table.commit("g", "t", 0, 7);
        table.reset("g", "t", 0, 3);
        assert!(table.has_reset("g", "t", 0));
        table.commit("g", "t", 0, 8);
        assert_eq!(table.get("g", "t", 0), Some(3));
        assert_eq!(table.take_reset("g", "t", 0), Some(3));
        assert_eq!(table.take_reset("g", "t", 0), None);
        assert_eq!(table.get("g", "t", 0), Some(8));
    }

    #[test]
    fn a_file_of_apache_is_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("config")).unwrap();
        let text = "{\"dataVersion\":{\"counter\":1},\"groupTopicMap\":{\"G\":[\"T\"]},\
                    \"offsetTable\":{\"T@G\":{0:623,1:638}}}";
        std::fs::write(dir.path().join("config/consumerOffset.json"), text).unwrap();
        let table = ConsumerOffsetTable::load(dir.path(), 500).unwrap();
        assert_eq!(table.get("G", "T", 1), Some(638));
    }
}
