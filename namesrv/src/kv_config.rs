//! Key-value settings, kept in one file.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use protocol::json;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Namespace that holds the order of queues of a topic.
pub const ORDER_TOPIC_CONFIG: &str = "ORDER_TOPIC_CONFIG";

/// Why the settings cannot be read or kept.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum KvConfigError {
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path} is damaged: {source}; repair it, or move it away to start without settings")]
    Damaged { path: PathBuf, source: json::JsonError },
    #[error("cannot write {path}: {source}")]
    Write { path: PathBuf, source: std::io::Error },
}

/// The settings: namespace to key to value.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KvConfig {
    config_table: BTreeMap<String, BTreeMap<String, String>>,
    #[serde(skip)]
    path: PathBuf,
}

impl KvConfig {
    /// Reads the settings; none when there is no file yet.
    ///
    /// # Errors
    /// When the file cannot be read or is damaged.
    pub fn load(path: &Path) -> Result<Self, KvConfigError> {
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => b"{}".to_vec(),
            Err(source) => return Err(KvConfigError::Read { path: path.to_owned(), source }),
        };
        let damaged = |source| KvConfigError::Damaged { path: path.to_owned(), source };
        let loaded: Self = json::from_slice(&text).map_err(damaged)?;
        Ok(Self { path: path.to_owned(), ..loaded })
    }

    /// All settings of a namespace.
    pub fn namespace(&self, namespace: &str) -> Option<&BTreeMap<String, String>> {
        self.config_table.get(namespace)
    }

    /// One setting.
    pub fn get(&self, namespace: &str, key: &str) -> Option<&str> {
        self.config_table.get(namespace)?.get(key).map(String::as_str)
    }

    /// Sets a setting and keeps it.
    ///
    /// # Errors
    /// When the file cannot be written; the setting is then as before.
    pub fn put(&mut self, namespace: &str, key: &str, value: &str) -> Result<(), KvConfigError> {
        let table = self.config_table.entry(namespace.to_owned()).or_default();
        let before = table.insert(key.to_owned(), value.to_owned());
        self.save().inspect_err(|_| self.restore(namespace, key, before))
    }

    /// Removes a setting.
    ///
    /// # Errors
    /// When the file cannot be written; the setting is then as before.
    pub fn delete(&mut self, namespace: &str, key: &str) -> Result<(), KvConfigError> {
        let before = self.config_table.get_mut(namespace).and_then(|table| table.remove(key));
        if before.is_none() {
            return Ok(());
        }
        self.save().inspect_err(|_| self.restore(namespace, key, before))
    }

    fn restore(&mut self, namespace: &str, key: &str, before: Option<String>) {
        let table = self.config_table.entry(namespace.to_owned()).or_default();
        match before {
            Some(value) => table.insert(key.to_owned(), value),
            None => table.remove(key),
        };
    }

    fn save(&mut self) -> Result<(), KvConfigError> {
        let write = |path: &Path| -> std::io::Result<()> {
            let text = json::to_vec_pretty(self).map_err(std::io::Error::other)?;
            let directory = path.parent().unwrap_or(Path::new("."));
            std::fs::create_dir_all(directory)?;
            let new = path.with_extension("json.tmp");
            let mut file = std::fs::File::create(&new)?;
            file.write_all(&text)?;
            file.sync_all()?;
            std::fs::rename(&new, path)?;
            std::fs::File::open(directory)?.sync_all()
        };
        write(&self.path).map_err(|source| KvConfigError::Write { path: self.path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/kvConfig.json");
        let mut settings = KvConfig::load(&path).unwrap();
        settings.put("N", "k", "v").unwrap();
        settings.put("N", "l", "w").unwrap();
        settings.delete("N", "l").unwrap();
        settings.delete("M", "absent").unwrap();
        let settings = KvConfig::load(&path).unwrap();
        assert_eq!(settings.get("N", "k"), Some("v"));
        assert_eq!(settings.get("N", "l"), None);
        assert_eq!(settings.namespace("N").unwrap().len(), 1);
    }

    #[test]
    fn a_damaged_file_is_named_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kvConfig.json");
        std::fs::write(&path, "{\"configTable\":").unwrap();
        let error = KvConfig::load(&path).unwrap_err().to_string();
        assert!(error.contains("kvConfig.json is damaged"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"{\"configTable\":");
    }

    #[test]
    fn a_setting_that_cannot_be_kept_is_not_set() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let mut settings = KvConfig { path: file.join("kvConfig.json"), ..KvConfig::default() };
        assert!(matches!(settings.put("N", "k", "v"), Err(KvConfigError::Write { .. })));
        assert_eq!(settings.get("N", "k"), None);
    }
}
