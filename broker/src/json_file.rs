//! A table that is kept as one JSON file below `config/`, replaced as a whole.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use protocol::json::{self, JsonError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use store::StoreError;
use store::config_file::{ConfigFile, LoadError, Source};
use store::disk::RealDisk;
use thiserror::Error;

/// Why a table cannot be read at the start.
#[derive(Debug, Error)]
#[error("cannot read a table: {0}; restore the file, or remove it to begin with an empty table")]
pub struct LoadTableError(#[from] LoadError<JsonError>);

/// Why a table was not saved. What is in memory counts; it is saved with the next change.
#[derive(Debug, Error)]
pub(crate) enum SaveError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Json(#[from] JsonError),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct JsonFile {
    file: ConfigFile,
    /// Saves that were asked for.
    asked: AtomicU64,
    /// How many of them are done. Held from the look at the table to the end of writing, so that
    /// an older state never replaces a newer one.
    done: Mutex<u64>,
}

impl JsonFile {
    /// The file `name` in the directory `config` below the root of the store.
    pub(crate) fn new(root: &Path, name: &str) -> Self {
        let file = ConfigFile::new(Arc::new(RealDisk), root.join("config").join(name));
        Self { file, asked: AtomicU64::new(0), done: Mutex::new(0) }
    }

    pub(crate) fn load<T: DeserializeOwned + Default>(&self) -> Result<T, LoadTableError> {
        let Some((table, source)) = self.file.load(|text| json::from_slice(text))? else {
            return Ok(T::default());
        };
        if source == Source::Backup {
            let path = self.file.path().display();
            tracing::warn!(%path, "the file is missing or damaged, its backup was read");
        }
        Ok(table)
    }

    /// Blocks until the state that `table` returns is on the disk. Those who ask while one saves
    /// are served together by the next: with a hundred new topics at once on a slow disk the last
    /// one would otherwise wait for a hundred files.
    pub(crate) fn save<T: Serialize>(&self, table: impl FnOnce() -> T) -> Result<(), SaveError> {
        let number = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        let mut done = self.done.lock();
        if *done >= number {
            return Ok(());
        }
        // Before the look at the table, which therefore has the changes of all of these.
        let served = self.asked.load(Ordering::Acquire);
        self.file.store(&json::to_vec_pretty(&table())?)?;
        *done = served;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc;

    #[test]
    fn saves_that_wait_are_done_together() {
        let dir = tempfile::tempdir().unwrap();
        let file = JsonFile::new(dir.path(), "table.json");
        let (value, looks) = (AtomicU32::new(0), AtomicU32::new(0));
        let look = || {
            looks.fetch_add(1, Ordering::SeqCst);
            value.load(Ordering::SeqCst)
        };
        std::thread::scope(|scope| {
            let (began, begin) = mpsc::sync_channel(1);
            let (go_on, wait) = mpsc::sync_channel::<()>(1);
            let file = &file;
            scope.spawn(move || {
                let slow = || {
                    began.send(()).unwrap();
                    wait.recv().unwrap();
                    look()
                };
                file.save(slow).unwrap();
            });
            begin.recv().unwrap();
            for _ in 0..8 {
                scope.spawn(|| {
                    value.fetch_add(1, Ordering::SeqCst);
                    file.save(look).unwrap();
                });
            }
            while file.asked.load(Ordering::SeqCst) < 9 {
                std::thread::yield_now();
            }
            go_on.send(()).unwrap();
        });
        assert_eq!(looks.load(Ordering::SeqCst), 2);
        assert_eq!(file.load::<u32>().unwrap(), 8);
    }
}
