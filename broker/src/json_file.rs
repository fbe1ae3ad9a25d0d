//! A table that is kept as one JSON file below `config/`, replaced as a whole.

use std::path::Path;
use std::sync::Arc;

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
    /// Held from the look at the table to the end of writing, so that an older state never
    /// replaces a newer one.
    saving: Mutex<()>,
}

impl JsonFile {
    /// The file `name` in the directory `config` below the root of the store.
    pub(crate) fn new(root: &Path, name: &str) -> Self {
        let file = ConfigFile::new(Arc::new(RealDisk), root.join("config").join(name));
        Self { file, saving: Mutex::new(()) }
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

    /// Blocks until the state that `table` returns is on the disk.
    pub(crate) fn save<T: Serialize>(&self, table: impl FnOnce() -> T) -> Result<(), SaveError> {
        let _saving = self.saving.lock();
        self.file.store(&json::to_vec_pretty(&table())?)?;
        Ok(())
    }
}
