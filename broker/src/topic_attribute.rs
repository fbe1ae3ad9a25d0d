//! Attributes of a topic, and the text that changes them: `+name=value,-name`.

use std::collections::BTreeMap;

use thiserror::Error;

/// Why attributes are not accepted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum AttributeError {
    #[error("attribute {0:?} is not of the form +name=value or -name")]
    Form(String),
    #[error("attribute {0} is named twice")]
    Twice(String),
    #[error(
        "unsupported attribute {0}: there are message.type, queue.type, cleanup.policy and \
         reserve.time"
    )]
    Unknown(String),
    #[error("attribute {name} is {value:?}, but must be {expected}")]
    Value { name: String, value: String, expected: &'static str },
    #[error("attribute {0} cannot be changed once the topic exists")]
    Immutable(String),
    #[error("a new topic has no attribute {0} that could be removed")]
    RemoveFromNew(String),
    #[error("the topic has no attribute {0} that could be removed")]
    NotThere(String),
}

const MESSAGE_TYPE: &str = "message.type";
const QUEUE_TYPE: &str = "queue.type";
const CLEANUP_POLICY: &str = "cleanup.policy";
const RESERVE_TIME: &str = "reserve.time";

/// A wanted change of one attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Set(String),
    Remove,
}

/// Reads the text of a request.
pub(crate) fn parse(text: &str) -> Result<BTreeMap<String, Change>, AttributeError> {
    let mut changes = BTreeMap::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let wrong = || AttributeError::Form(part.to_owned());
        let (name, change) = match (part.strip_prefix('+'), part.strip_prefix('-')) {
            (Some(set), _) => {
                let (name, value) = set.split_once('=').ok_or_else(wrong)?;
                (name.trim(), Change::Set(value.trim().to_owned()))
            }
            (None, Some(name)) => (name.trim(), Change::Remove),
            (None, None) => return Err(wrong()),
        };
        if name.is_empty() {
            return Err(wrong());
        }
        if changes.insert(name.to_owned(), change).is_some() {
            return Err(AttributeError::Twice(name.to_owned()));
        }
    }
    Ok(changes)
}

/// The attributes after the changes; `current` is `None` for a topic that does not exist yet.
pub(crate) fn apply(
    current: Option<&BTreeMap<String, String>>,
    changes: &BTreeMap<String, Change>,
) -> Result<BTreeMap<String, String>, AttributeError> {
    let mut attributes = current.cloned().unwrap_or_default();
    for (name, change) in changes {
        let is_immutable = name == QUEUE_TYPE || name == CLEANUP_POLICY;
        match change {
            Change::Set(value) => {
                check_value(name, value)?;
                let is_change = attributes.get(name) != Some(value);
                if is_immutable && current.is_some() && is_change {
                    return Err(AttributeError::Immutable(name.clone()));
                }
                attributes.insert(name.clone(), value.clone());
            }
            Change::Remove if current.is_none() => {
                return Err(AttributeError::RemoveFromNew(name.clone()));
            }
            Change::Remove if is_immutable => return Err(AttributeError::Immutable(name.clone())),
            Change::Remove => {
                if attributes.remove(name).is_none() {
                    return Err(AttributeError::NotThere(name.clone()));
                }
            }
        }
    }
    Ok(attributes)
}

fn check_value(name: &str, value: &str) -> Result<(), AttributeError> {
    let (is_right, expected) = match name {
        MESSAGE_TYPE => (
            ["UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"].contains(&value),
            "UNSPECIFIED, NORMAL, FIFO, DELAY, TRANSACTION or MIXED",
        ),
        QUEUE_TYPE => (value == "SimpleCQ", "SimpleCQ (this version has no batch queues)"),
        CLEANUP_POLICY => (value == "DELETE", "DELETE (this version has no compaction)"),
        RESERVE_TIME => {
            (value.parse::<i64>().is_ok_and(|time| time >= -1), "a number of -1 or more")
        }
        _ => return Err(AttributeError::Unknown(name.to_owned())),
    };
    if is_right {
        return Ok(());
    }
    Err(AttributeError::Value { name: name.to_owned(), value: value.to_owned(), expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pairs<'a> = &'a [(&'a str, &'a str)];

    fn change(
        current: Option<Pairs<'_>>,
        text: &str,
    ) -> Result<BTreeMap<String, String>, AttributeError> {
        let current = current.map(|pairs| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        });
        apply(current.as_ref(), &parse(text)?)
    }

    #[test]
    fn changes_are_applied() {
        let set = change(None, "+message.type=FIFO, +reserve.time=-1").unwrap();
        assert_eq!((set["message.type"].as_str(), set["reserve.time"].as_str()), ("FIFO", "-1"));
        let current = [("message.type", "FIFO"), ("cleanup.policy", "DELETE")];
        let kept = change(Some(&current), "").unwrap();
        assert_eq!(kept.len(), 2);
        let less = change(Some(&current), "-message.type,+cleanup.policy=DELETE").unwrap();
        assert_eq!(less.keys().collect::<Vec<_>>(), ["cleanup.policy"]);
    }

    #[test]
    fn what_cannot_be_is_named() {
        let current = [("cleanup.policy", "DELETE")];
        let table: [(Option<Pairs<'_>>, &str, &str); 10] = [
            (None, "message.type=FIFO", "not of the form"),
            (None, "+=FIFO", "not of the form"),
            (None, "+message.type", "not of the form"),
            (None, "+message.type=FIFO,-message.type", "named twice"),
            (None, "+color=red", "unsupported attribute color"),
            (None, "+message.type=fifo", "must be UNSPECIFIED"),
            (None, "+cleanup.policy=COMPACTION", "no compaction"),
            (None, "-message.type", "a new topic"),
            (Some(&current), "-cleanup.policy", "cannot be changed"),
            (Some(&current), "-message.type", "has no attribute message.type"),
        ];
        for (current, text, part) in table {
            let error = change(current, text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
