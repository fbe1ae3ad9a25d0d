//! What a replica keeps beside its log: `epochFileCheckpoint` as Apache's broker has it, and
//! `config/replica` with the identity of the disk and the promised epoch.

use std::path::Path;
use std::sync::Arc;

use replication::{EpochTable, ReplicaState};
use store::StoreError;
use store::config_file::{ConfigFile, LoadError};
use store::disk::RealDisk;
use thiserror::Error;

/// Why the state of a replica cannot be read. A broker does not start without it: it would not know
/// which epochs it has promised to obey.
#[derive(Debug, Error)]
pub(crate) enum StateFileError {
    /// A file cannot be read, or is damaged as its backup is.
    #[error("cannot read the state of this replica: {0}")]
    Load(String),
    /// A file cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// See the module.
#[derive(Debug)]
pub(super) struct StateFile {
    epochs: ConfigFile,
    replica: ConfigFile,
}

impl StateFile {
    pub(super) fn new(root: &Path) -> Self {
        let file = |path| ConfigFile::new(Arc::new(RealDisk), path);
        Self {
            epochs: file(root.join("epochFileCheckpoint")),
            replica: file(root.join("config/replica")),
        }
    }

    /// The state of this run, counted and durable; that of a new replica if there is none.
    pub(super) fn open(
        &self,
        log_end: i64,
        is_whole: bool,
    ) -> Result<ReplicaState, StateFileError> {
        let epochs = self
            .epochs
            .load(|text| parse(text, EpochTable::decode))
            .map_err(|error| failed(&error))?;
        let epochs = epochs.map(|(epochs, _)| epochs).unwrap_or_default();
        let known = self
            .replica
            .load(|text| parse(text, |text| ReplicaState::decode(text, epochs.clone())));
        let state = match known.map_err(|error| failed(&error))? {
            Some((state, _)) => state,
            None => ReplicaState { store_id: new_id(), epochs, ..ReplicaState::default() },
        };
        let state = state.opened(log_end, is_whole);
        self.store(&state)?;
        Ok(state)
    }

    /// Makes a state durable.
    pub(super) fn store(&self, state: &ReplicaState) -> Result<(), StoreError> {
        self.epochs.store(state.epochs.encode().as_bytes())?;
        self.replica.store(state.encode().as_bytes())
    }
}

fn parse<T, E: std::fmt::Display>(
    text: &[u8],
    decode: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, String> {
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    decode(text).map_err(|error| error.to_string())
}

fn failed(error: &LoadError<String>) -> StateFileError {
    StateFileError::Load(error.to_string())
}

/// 128 random bits as 32 hexadecimal digits.
pub(super) fn new_id() -> String {
    format!("{:032x}", rand::random::<u128>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use replication::EpochEntry;

    #[test]
    fn each_run_is_counted_on_the_same_disk() {
        let root = tempfile::tempdir().unwrap();
        let file = StateFile::new(root.path());
        let mut first = file.open(0, true).unwrap();
        assert_eq!((first.open_count, first.store_id.len()), (1, 32));
        first.promised = 3;
        assert!(first.epochs.begin(EpochEntry { epoch: 3, start: 0 }));
        file.store(&first).unwrap();
        let second = StateFile::new(root.path()).open(10, true).unwrap();
        let expected = ReplicaState { open_count: 2, ..first };
        assert_eq!(second, expected);
    }

    #[test]
    fn a_damaged_promise_is_not_forgotten() {
        let root = tempfile::tempdir().unwrap();
        StateFile::new(root.path()).open(0, true).unwrap();
        std::fs::write(root.path().join("config/replica"), "storeId=x\n").unwrap();
        let error = StateFile::new(root.path()).open(0, true).unwrap_err().to_string();
        assert!(error.contains("replica"), "{error}");
    }
}
