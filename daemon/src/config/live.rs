//! Configuration that changes while the server runs.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::load::{NoEffect, nearest_key, shown, suggestion};
use super::{Config, Loaded};
use crate::properties;

/// Bytes of one update. All keys with their values have a few thousand.
const TEXT_BYTES_MAX: usize = 256 << 10;
/// Reasons that one refusal names; it travels as a remark.
const ERRORS_MAX: usize = 50;

/// One changed key, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub key: &'static str,
    pub from: String,
    pub to: String,
}

/// Why an update was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    #[error("{0}")]
    Syntax(#[from] properties::SyntaxError),
    #[error("unknown key `{key}`{}", suggestion(*.nearest))]
    Unknown { key: String, nearest: Option<&'static str> },
    #[error("`{key}` has no effect here: {why}")]
    NoEffect { key: String, why: &'static str },
    #[error("`{key}` takes effect at a restart only: change it in the configuration file")]
    Cold { key: &'static str },
    #[error("`{key}` is `{value}`, but must be {expected}")]
    Value { key: &'static str, value: String, expected: String },
    #[error("{0}")]
    Contradiction(String),
    #[error("the text has {bytes} bytes, at most {TEXT_BYTES_MAX} are read")]
    TooLong { bytes: usize },
}

/// The first reasons why an update was refused, separated by `; ` when printed (it travels as a
/// remark).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateErrors(pub Vec<UpdateError>);

impl std::error::Error for UpdateErrors {}

impl fmt::Display for UpdateErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.0.iter().enumerate() {
            write!(f, "{}{error}", if at == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

/// The configuration in force. Reading is an `Arc` clone; waiting for changes is a
/// [`watch::Receiver`]. Only keys declared `hot` ever change.
pub struct Live<C> {
    current: watch::Sender<Arc<C>>,
    /// Two updates at once must not lose each other's keys.
    updating: Mutex<()>,
    no_effect: &'static [NoEffect],
    check: fn(&C) -> Vec<String>,
}

impl<C: Config> Live<C> {
    pub fn new(loaded: Loaded<C>) -> Self {
        Self {
            no_effect: loaded.no_effect,
            check: loaded.check,
            updating: Mutex::new(()),
            current: watch::Sender::new(Arc::new(loaded.config)),
        }
    }

    pub fn get(&self) -> Arc<C> {
        self.current.borrow().clone()
    }

    /// Sees every later change (the newest, if several happen between two looks).
    pub fn subscribe(&self) -> watch::Receiver<Arc<C>> {
        self.current.subscribe()
    }

    /// All keys with their values as properties text, secrets hidden.
    pub fn print(&self) -> String {
        let config = self.get();
        let lines: Vec<_> = C::keys().iter().map(|key| (key.name, shown(key, &config))).collect();
        properties::print(lines.iter().map(|(name, value)| (*name, value.as_str())))
    }

    /// Applies `key=value` lines: all of them, or none if any is wrong. A cold key may be named
    /// with the value that it already has (tools send whole configurations back).
    pub fn update(&self, text: &[u8]) -> Result<Vec<Change>, UpdateErrors> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(UpdateErrors(vec![UpdateError::TooLong { bytes: text.len() }]));
        }
        let entries = properties::parse(text).map_err(|errors| {
            let errors = errors.into_iter().map(UpdateError::from);
            UpdateErrors(errors.take(ERRORS_MAX).collect())
        })?;
        let _updating = self.updating.lock();
        let before = self.get();
        let mut after = C::clone(&before);
        let errors = entries.iter().filter_map(|entry| self.apply(&mut after, entry).err());
        let mut errors: Vec<UpdateError> = errors.take(ERRORS_MAX).collect();
        if errors.is_empty() {
            let contradictions = (self.check)(&after);
            errors.extend(contradictions.into_iter().map(UpdateError::Contradiction));
        }
        if !errors.is_empty() {
            return Err(UpdateErrors(errors));
        }
        let changes = changes(before.as_ref(), &after);
        if !changes.is_empty() {
            self.current.send_replace(Arc::new(after));
        }
        Ok(changes)
    }

    fn apply(&self, config: &mut C, entry: &properties::Entry) -> Result<(), UpdateError> {
        let properties::Entry { key, value, line: _ } = entry;
        let Some(known) = C::key(key) else {
            return Err(match self.no_effect.iter().find(|no_effect| no_effect.key == key) {
                Some(no_effect) => UpdateError::NoEffect { key: key.clone(), why: no_effect.why },
                None => UpdateError::Unknown { key: key.clone(), nearest: nearest_key::<C>(key) },
            });
        };
        if known.secret && value == "******" {
            return Ok(());
        }
        let before = known.value(config);
        if !known.assign(config, value) {
            let (value, expected) = (value.clone(), known.expected());
            return Err(UpdateError::Value { key: known.name, value, expected });
        }
        if !known.hot && known.value(config) != before {
            return Err(UpdateError::Cold { key: known.name });
        }
        Ok(())
    }
}

fn changes<C: Config>(before: &C, after: &C) -> Vec<Change> {
    C::keys()
        .iter()
        .filter(|key| key.value(before) != key.value(after))
        .map(|key| Change { key: key.name, from: shown(key, before), to: shown(key, after) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::load::tests::loader;
    use super::*;

    #[test]
    fn hot_keys_change_and_are_seen() {
        let live = Live::new(loader().load().expect("defaults"));
        let mut seen = live.subscribe();
        seen.mark_unchanged();
        let changes = live.update(b"transactionTimeOut=1000\ntraceOn=true\nlistenPort=10911\n");
        let expected =
            Change { key: "transactionTimeOut", from: "6000".to_owned(), to: "1000".to_owned() };
        assert_eq!(changes, Ok(vec![expected]));
        assert_eq!(live.get().transaction_timeout.as_millis(), 1000);
        assert_eq!(seen.has_changed().ok(), Some(true));
        seen.mark_unchanged();
        assert_eq!(live.update(b"traceOn=true"), Ok(vec![]));
        assert_eq!(seen.has_changed().ok(), Some(false));
    }

    #[test]
    fn an_update_is_all_or_nothing() {
        let live = Live::new(loader().load().expect("defaults"));
        let refused = live.update(
            b"traceOn=false\nlistenPort=1\ntransactionTimeOut=-1\ntraceOm=1\n\
              sendMessageThreadPoolNums=9",
        );
        assert_eq!(
            refused.expect_err("four keys are wrong").to_string(),
            "`listenPort` takes effect at a restart only: change it in the configuration file; \
             `transactionTimeOut` is `-1`, but must be from 0 to 600000 milliseconds; \
             unknown key `traceOm`; did you mean `traceOn`?; \
             `sendMessageThreadPoolNums` has no effect here: there is no pool of threads to size"
        );
        assert!(live.get().trace_on);
        let malformed = live.update(b"traceOn=\\u1").expect_err("malformed").to_string();
        assert!(malformed.starts_with("line 1: malformed escape"), "{malformed}");
    }

    #[test]
    fn a_flood_of_wrong_keys_is_refused_in_few_words() {
        let live = Live::new(loader().load().expect("defaults"));
        let refused = live.update(&b"a\n".repeat(1_000)).expect_err("unknown keys");
        assert_eq!(refused.0.len(), ERRORS_MAX);
        let refused = live.update(&b"a\n".repeat(TEXT_BYTES_MAX)).expect_err("too long");
        assert_eq!(refused.0, [UpdateError::TooLong { bytes: 2 * TEXT_BYTES_MAX }]);
    }

    #[test]
    fn secrets_stay_hidden() {
        let live = Live::new(loader().flag("-k", "secretKey", "old").load().expect("usable"));
        assert!(live.print().ends_with("secretKey=******\n"), "{}", live.print());
        assert_eq!(live.update(b"secretKey=******"), Ok(vec![]));
        let changes = live.update(b"secretKey=new").expect("a hot key");
        assert_eq!((changes[0].from.as_str(), changes[0].to.as_str()), ("******", "******"));
        assert_eq!(live.get().secret_key, "new");
    }
}
