//! The JSON files below `config/`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use serde::de::IgnoredAny;

use crate::config_file::{ConfigFile, LoadError, Source};
use crate::disk::Disk as _;
use crate::dry_run::DryRunDisk;
use crate::error::StoreError;

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigFinding {
    /// The file.
    pub path: PathBuf,
    /// How it is.
    #[serde(flatten)]
    pub state: ConfigFileState,
}

/// How a configuration file is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "state", content = "reason")]
pub enum ConfigFileState {
    /// Whole.
    Good,
    /// Missing or damaged, but the version before is there and will be read.
    Backup(String),
    /// Damaged, and so is the version before, if there is one.
    Damaged(String),
}

/// Looks at all of them.
pub(super) fn inspect(disk: &DryRunDisk, dir: &Path) -> Result<Vec<ConfigFinding>, StoreError> {
    let list = disk.list(dir).map_err(StoreError::io("list", dir))?;
    let files = list.into_iter().filter(|entry| !entry.is_dir);
    let mut names: Vec<String> = files
        .map(|entry| entry.name.trim_end_matches(".bak").to_owned())
        .filter(|name| name.ends_with(".json"))
        .collect();
    names.sort();
    names.dedup();
    let mut findings = Vec::new();
    for name in names {
        let path = dir.join(name);
        let state = state(disk, &path)?;
        findings.push(ConfigFinding { path, state });
    }
    Ok(findings)
}

fn state(disk: &DryRunDisk, path: &Path) -> Result<ConfigFileState, StoreError> {
    let file = ConfigFile::new(Arc::new(disk.clone()), path);
    let parse = |content: &[u8]| protocol::json::from_slice::<IgnoredAny>(content);
    match file.load(parse) {
        Ok(Some((_, Source::Main)) | None) => Ok(ConfigFileState::Good),
        Ok(Some((_, Source::Backup))) => {
            let reason = match std::fs::read(path).map(|content| parse(&content)) {
                Ok(Err(error)) => error.to_string(),
                _ => "it is missing".to_owned(),
            };
            Ok(ConfigFileState::Backup(reason))
        }
        Err(LoadError::Damaged { error, .. }) => Ok(ConfigFileState::Damaged(error.to_string())),
        Err(LoadError::Store(error)) => Err(error),
    }
}
