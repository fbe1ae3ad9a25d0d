//! The record in a file, for clusters of processes on one machine.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crds::ElectionRecord;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use replication::GroupRecord;
use replication::group_record::Version;
use serde::{Deserialize, Serialize};

use super::group_store::{GroupStore, StoreFailure};
use super::record_json;

/// Largest file that is read.
const BYTES_MAX: u64 = 1 << 20;

/// A record in a file of JSON with a number that each write raises. One process writes it: the one
/// that holds the lock on the cluster's directory.
pub struct FileStore {
    path: PathBuf,
    /// Held from reading the old file to replacing it.
    turn: Arc<Mutex<()>>,
}

#[derive(Serialize, Deserialize)]
struct Content {
    version: u64,
    record: ElectionRecord,
}

impl FileStore {
    /// The record in `path`, which need not exist.
    pub fn new(path: PathBuf) -> Self {
        Self { path, turn: Arc::default() }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> Result<T, StoreFailure> + Send + 'static,
    ) -> Result<T, StoreFailure> {
        let (path, turn) = (self.path.clone(), Arc::clone(&self.turn));
        let work = tokio::task::spawn_blocking(move || {
            let _turn = turn.lock();
            work(&path)
        });
        work.await.map_err(|error| StoreFailure::Unavailable(error.to_string()))?
    }
}

impl GroupStore for FileStore {
    fn read(&self) -> BoxFuture<'_, Result<(Version, GroupRecord), StoreFailure>> {
        Box::pin(self.blocking(|path| {
            let Some(content) = read(path)? else {
                return Ok((version(0), GroupRecord::default()));
            };
            let record = record_json::record(content.record).map_err(|error| {
                StoreFailure::Unavailable(format!("{} is no record: {error}", path.display()))
            })?;
            Ok((version(content.version), record))
        }))
    }

    fn write(
        &self,
        expected: Version,
        record: Arc<GroupRecord>,
    ) -> BoxFuture<'_, Result<Version, StoreFailure>> {
        Box::pin(self.blocking(move |path| {
            let found = read(path)?.map_or(0, |content| content.version);
            if version(found) != expected {
                return Err(StoreFailure::Conflict);
            }
            let content = Content { version: found + 1, record: record_json::kept(&record) };
            replace(path, &content).map_err(|error| {
                StoreFailure::Unavailable(format!("cannot write {}: {error}", path.display()))
            })?;
            Ok(version(content.version))
        }))
    }
}

fn version(number: u64) -> Version {
    Version(number.to_string())
}

fn read(path: &Path) -> Result<Option<Content>, StoreFailure> {
    let unavailable =
        |error| StoreFailure::Unavailable(format!("cannot read {}: {error}", path.display()));
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unavailable(error)),
    };
    let mut text = String::new();
    io::Read::read_to_string(&mut io::Read::take(file, BYTES_MAX), &mut text)
        .map_err(unavailable)?;
    let content = serde_json::from_str(&text).map_err(|error| {
        StoreFailure::Unavailable(format!("{} is no record: {error}", path.display()))
    })?;
    Ok(Some(content))
}

/// After this either the old or the new content is on the disk, whatever happens.
fn replace(path: &Path, content: &Content) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(&serde_json::to_vec_pretty(content)?)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::election::record_json::tests::example;

    #[tokio::test]
    async fn only_the_expected_version_is_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = FileStore::new(dir.path().join("g/record.json"));
        let (none, empty) = store.read().await.expect("nothing yet");
        assert_eq!(empty, GroupRecord::default());
        let record = Arc::new(example());
        let first = store.write(none.clone(), Arc::clone(&record)).await.expect("written");
        let again = store.write(none, Arc::clone(&record)).await;
        assert!(matches!(again, Err(StoreFailure::Conflict)), "{again:?}");
        assert_eq!(store.read().await.expect("read"), (first.clone(), (*record).clone()));
        let other = FileStore::new(dir.path().join("g/record.json"));
        assert_eq!(other.read().await.expect("read").0, first);
    }

    #[tokio::test]
    async fn damage_is_told_and_not_overwritten() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("record.json");
        std::fs::write(&path, "{\"version\": 1").expect("written");
        let store = FileStore::new(path.clone());
        let error = store.read().await.expect_err("damaged").to_string();
        assert!(error.contains("record.json is no record"), "{error}");
        assert!(store.write(version(0), Arc::new(example())).await.is_err());
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "{\"version\": 1");
    }
}
