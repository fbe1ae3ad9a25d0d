//! Configuration files of the servers, as Java properties.

use super::Owner;
use k8s_openapi::api::core::v1::ConfigMap;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Bytes of a hash that are kept: enough that no two configurations of a cluster share one.
const HASH_BYTES: usize = 8;

const HEAD: &str = "# Written by rocketmq-operator; changes here are undone.\n";

/// A configuration file: sorted keys, so that equal configurations are equal texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// Name of the file in its folder.
    pub name: &'static str,
    /// Its text.
    pub text: String,
}

impl ConfigFile {
    /// A file with these entries.
    pub fn new(name: &'static str, entries: &BTreeMap<String, String>) -> Self {
        let lines = entries.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let lines = daemon::properties::print(lines);
        Self { name, text: format!("{HEAD}{lines}") }
    }

    /// Hash of the text, as hexadecimal digits.
    pub fn hash(&self) -> String {
        hash(self.text.as_bytes())
    }

    /// The ConfigMap with the file in it.
    pub fn config_map(
        &self,
        owner: &Owner,
        name: String,
        labels: BTreeMap<String, String>,
    ) -> ConfigMap {
        ConfigMap {
            metadata: owner.metadata(name, labels),
            data: Some(BTreeMap::from([(self.name.to_owned(), self.text.clone())])),
            ..ConfigMap::default()
        }
    }
}

/// Short hash of some bytes, as hexadecimal digits.
pub fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(HASH_BYTES).fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes all that is written");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_sorted_lines() {
        let entries = [("b", "2"), ("a", "1;x"), ("c", "x\ny=z")];
        let entries = entries.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let file = ConfigFile::new("f", &BTreeMap::from(entries));
        assert_eq!(file.text.strip_prefix(HEAD), Some("a=1;x\nb=2\nc=x\\ny=z\n"));
    }

    #[test]
    fn hash_follows_the_text() {
        let file = |value: &str| {
            ConfigFile::new("f", &BTreeMap::from([("k".to_owned(), value.to_owned())])).hash()
        };
        assert_eq!(file("1"), file("1"));
        assert_ne!(file("1"), file("2"));
        assert_eq!(file("1").len(), 16);
    }
}
