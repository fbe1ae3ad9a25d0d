//! `spec.brokers.config`: lines of broker.conf that a person may set.
//!
//! Which keys exist and what values they take is the broker's business: it refuses a bad value at
//! start, and the operator shows what it said. Only the keys that follow from other fields are
//! refused here, because setting them by hand would contradict what the operator wrote.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::json;

/// Most entries a config map may have.
pub const ENTRIES_MAX: u64 = 128;
/// Longest value in characters.
pub const VALUE_CHARS_MAX: u64 = 1024;
/// What a key looks like, as a regular expression that CEL and Kubernetes understand.
const KEY_PATTERN: &str = "^[a-zA-Z][a-zA-Z0-9_.-]{0,127}$";

/// Keys that the operator sets, each with what to do instead.
pub const OWNED_KEYS: [(&str, &str); 28] = [
    ("brokerName", "it is the name of the BrokerGroup"),
    ("brokerId", "it follows from the pod"),
    ("brokerRole", "it follows from spec.brokers.replicas"),
    ("brokerClusterName", "it is metadata.name"),
    ("namesrvAddr", "it follows from spec.nameServer"),
    ("namesrvDomain", "it follows from spec.nameServer"),
    ("namesrvDomainSubgroup", "it follows from spec.nameServer"),
    ("fetchNamesrvAddrByAddressServer", "brokers find their name servers by DNS"),
    ("fetchNameSrvAddrByDnsLookup", "brokers find their name servers by DNS"),
    ("listenPort", "it is always 10911"),
    ("fastListenPort", "it is always 10909"),
    ("haListenPort", "it is always 10912"),
    ("metricsPromExporterPort", "it is always 5557"),
    ("metricsPromExporterHost", "it is always 0.0.0.0"),
    ("bindAddress", "it is always 0.0.0.0"),
    ("brokerIP1", "it is the DNS name of the pod"),
    ("brokerIP2", "it is the DNS name of the pod"),
    ("haMasterAddress", "it follows from spec.brokers.replicas"),
    ("flushDiskType", "set spec.brokers.flush"),
    ("rocketmqHome", "data is in the volume of spec.brokers.storage"),
    ("storePathRootDir", "data is in the volume of spec.brokers.storage"),
    ("storePathCommitLog", "data is in the volume of spec.brokers.storage"),
    ("enableControllerMode", "the operator elects masters"),
    ("controllerAddr", "the operator elects masters"),
    ("controllerTokenFile", "the operator elects masters"),
    ("replicaIndex", "it follows from the pod"),
    ("masterAddress", "it is that of the master's Service"),
    ("masterListenPort", "each pod has ports of its own"),
];

/// What is said of an owned key.
fn refusal(key: &str, instead: &str) -> String {
    format!("{key} is set by the operator: {instead}")
}

/// Why this entry is refused, if it is.
pub fn problem(key: &str, value: &str) -> Option<String> {
    if let Some((owned, instead)) = OWNED_KEYS.iter().find(|(owned, _)| *owned == key) {
        return Some(refusal(owned, instead));
    }
    let mut characters = key.chars();
    let plain = characters.next().is_some_and(|first| first.is_ascii_alphabetic())
        && characters.all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
        && key.len() <= 128;
    if !plain {
        return Some(format!("{key:?} is no broker.conf key: {KEY_MESSAGE}"));
    }
    if value.contains(['\n', '\r']) {
        return Some(format!("the value of {key} has a line break"));
    }
    if value.chars().count() as u64 > VALUE_CHARS_MAX {
        return Some(format!("the value of {key} is longer than {VALUE_CHARS_MAX} characters"));
    }
    None
}

const KEY_MESSAGE: &str =
    "a key is at most 128 letters, digits, '.', '_' or '-' and starts with a letter";

/// Schema of the map: one CEL rule per owned key, so that the message names the key.
pub(crate) fn schema(_: &mut SchemaGenerator) -> Schema {
    let mut rules: Vec<_> = OWNED_KEYS
        .iter()
        .map(|(key, instead)| {
            json!({"rule": format!("!('{key}' in self)"), "message": refusal(key, instead)})
        })
        .collect();
    rules.push(json!({
        "rule": format!("self.all(k, k.matches('{KEY_PATTERN}'))"),
        "message": KEY_MESSAGE,
    }));
    json_schema!({
        "type": "object",
        "nullable": true,
        "maxProperties": ENTRIES_MAX,
        "additionalProperties": {
            "type": "string",
            "maxLength": VALUE_CHARS_MAX,
            "pattern": "^[^\\r\\n]*$",
        },
        "x-kubernetes-validations": rules,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries() {
        let long = "x".repeat(1025);
        for (key, value, expected) in [
            ("fileReservedTime", "48", None),
            ("a.b_c-D9", "", None),
            ("flushDiskType", "SYNC_FLUSH", Some("set spec.brokers.flush")),
            ("brokerName", "x", Some("name of the BrokerGroup")),
            ("", "x", Some("is no broker.conf key")),
            ("9x", "x", Some("is no broker.conf key")),
            ("a b", "x", Some("is no broker.conf key")),
            ("a", "x\ny=z", Some("line break")),
            ("a", long.as_str(), Some("longer than 1024")),
        ] {
            let found = problem(key, value);
            match expected {
                None => assert_eq!(found, None, "{key}"),
                Some(part) => assert!(found.clone().unwrap().contains(part), "{key}: {found:?}"),
            }
        }
    }
}
