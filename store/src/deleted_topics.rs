//! Topics whose queues were deleted while their messages are still in the commit log, so that a
//! recovery does not bring the queues back.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::config::StoreConfig;
use crate::config_file::{ConfigFile, LoadError};
use crate::disk::Disk;
use crate::error::StoreError;

/// By topic the end of the log when it was deleted: later messages belong to a new topic of that
/// name.
type Deleted = BTreeMap<String, i64>;

/// See the module.
#[derive(Debug)]
pub(crate) struct DeletedTopics {
    file: ConfigFile,
    topics: Mutex<Deleted>,
}

impl DeletedTopics {
    pub(crate) fn open(disk: Arc<dyn Disk>, config: &StoreConfig) -> Result<Self, StoreError> {
        let path = config.store_path_root_dir.join("config/deletedTopics.json");
        let file = ConfigFile::new(disk, path);
        let topics = match file.load(|bytes| serde_json::from_slice::<Deleted>(bytes)) {
            Ok(loaded) => loaded.map(|(topics, _)| topics).unwrap_or_default(),
            Err(LoadError::Store(error)) => return Err(error),
            Err(error @ LoadError::Damaged { .. }) => {
                tracing::warn!(%error, "deleted topics may come back in this recovery");
                Deleted::new()
            }
        };
        Ok(Self { file, topics: Mutex::new(topics) })
    }

    /// Records of this topic before this offset belong to one that was deleted; 0 for no topic.
    pub(crate) fn end_of(&self, topic: &str) -> i64 {
        self.topics.lock().get(topic).copied().unwrap_or(0)
    }

    /// The log was cut at this offset: what comes behind it belongs to no deleted topic.
    pub(crate) fn cut(&self, log_end: i64) -> Result<(), StoreError> {
        let mut topics = self.topics.lock();
        if topics.values().all(|end| *end <= log_end) {
            return Ok(());
        }
        topics.values_mut().for_each(|end| *end = (*end).min(log_end));
        let content = serde_json::to_vec(&*topics).expect("a map of numbers is JSON");
        self.file.store(&content)
    }

    /// Remembers that a topic was deleted when the log ended at `log_end`, and forgets those of
    /// which the log, now beginning at `log_min`, has nothing left.
    pub(crate) fn insert(&self, topic: &str, log_min: i64, log_end: i64) -> Result<(), StoreError> {
        let mut topics = self.topics.lock();
        topics.retain(|_, end| *end > log_min);
        topics.insert(topic.to_owned(), log_end);
        let content = serde_json::to_vec(&*topics).expect("a map of numbers is JSON");
        self.file.store(&content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;

    #[test]
    fn deleted_topics_are_remembered_while_the_log_has_them() {
        let dir = tempfile::tempdir().unwrap();
        let config = StoreConfig::new(dir.path());
        let open = || DeletedTopics::open(Arc::new(RealDisk), &config).unwrap();
        open().insert("a", 0, 100).unwrap();
        let deleted = open();
        assert_eq!(deleted.end_of("a"), 100);
        assert_eq!(deleted.end_of("b"), 0);
        deleted.insert("b", 100, 200).unwrap();
        let deleted = open();
        assert_eq!(deleted.end_of("a"), 0);
        assert_eq!(deleted.end_of("b"), 200);
        let path = dir.path().join("config/deletedTopics.json");
        std::fs::write(&path, "x").unwrap();
        std::fs::remove_file(path.with_extension("json.bak")).unwrap();
        assert_eq!(open().end_of("b"), 0);
    }
}
