//! Layers of configuration, put together once at start.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::{Config, nearest};
use crate::properties;

/// A key of Apache's configuration that is known and has nothing to act on here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoEffect {
    pub key: &'static str,
    /// Why, as the end of "`key` has no effect here: ".
    pub why: &'static str,
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Default,
    File {
        path: PathBuf,
        line: usize,
    },
    Environment {
        name: String,
    },
    Flag {
        flag: String,
    },
    /// A change while running.
    Update,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment { name } => write!(f, "environment {name}"),
            Self::Flag { flag } => write!(f, "flag {flag}"),
            Self::Update => write!(f, "update"),
        }
    }
}

/// What the person who wrote the configuration should know, although it is usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Notice {
    #[error("{origin}: unknown key `{key}` is ignored{}", suggestion(*.nearest))]
    Unknown { key: String, origin: Origin, nearest: Option<&'static str> },
    #[error("{origin}: `{key}` has no effect here: {why}")]
    NoEffect { key: String, origin: Origin, why: &'static str },
    #[error("{origin}: `{key}` was already set on line {first_line}; this later value counts")]
    Repeated { key: String, origin: Origin, first_line: usize },
}

pub(super) fn suggestion(nearest: Option<&'static str>) -> String {
    nearest.map(|key| format!("; did you mean `{key}`?")).unwrap_or_default()
}

/// One thing that makes a configuration unusable.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{}: cannot read the configuration file: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{}: {source}", path.display())]
    Syntax { path: PathBuf, source: properties::SyntaxError },
    #[error("{origin}: `{key}` is `{value}`, but must be {expected}")]
    Value { key: &'static str, value: String, expected: String, origin: Origin },
    #[error("flag {flag}: unknown key `{key}`{}", suggestion(*.nearest))]
    UnknownFlagKey { flag: String, key: String, nearest: Option<&'static str> },
    /// Keys that are right one by one and wrong together.
    #[error("{0}")]
    Contradiction(String),
}

/// Every error of a configuration, one a line when printed.
#[derive(Debug)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors = if self.0.len() == 1 { "error" } else { "errors" };
        write!(f, "{} {errors} in the configuration:", self.0.len())?;
        self.0.iter().try_for_each(|error| write!(f, "\n  {error}"))
    }
}

/// Which keys to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Print {
    All,
    Important,
}

/// A configuration in force, with what led to it.
#[derive(Debug)]
pub struct Loaded<C> {
    pub config: C,
    pub notices: Vec<Notice>,
    pub(super) check: fn(&C) -> Vec<String>,
    pub(super) no_effect: &'static [NoEffect],
    origins: BTreeMap<&'static str, Origin>,
}

impl<C: Config> Loaded<C> {
    /// `key=value` lines, as the start scripts' `-p` (all) and `-m` (important) print them.
    pub fn print(&self, which: Print) -> String {
        let keys = C::keys().iter().filter(|key| which == Print::All || key.important);
        let lines: Vec<_> = keys.map(|key| (key.name, shown(key, &self.config))).collect();
        properties::print(lines.iter().map(|(name, value)| (*name, value.as_str())))
    }

    pub fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::Default)
    }

    /// Keys that something other than the defaults has set: name, value, where from.
    pub fn overridden(&self) -> impl Iterator<Item = (&'static str, String, &Origin)> {
        let with_origin =
            |key: &'static super::Key<C>| self.origins.get(key.name).map(|origin| (key, origin));
        C::keys()
            .iter()
            .filter_map(with_origin)
            .map(|(key, origin)| (key.name, shown(key, &self.config), origin))
    }
}

/// The value as it may be shown to people.
pub(super) fn shown<C: Config>(key: &super::Key<C>, config: &C) -> String {
    let value = key.value(config);
    if key.secret && !value.is_empty() { "******".to_owned() } else { value }
}

struct Flag {
    flag: String,
    key: String,
    value: String,
}

/// Gathers the layers; [`Loader::load`] puts them together.
pub struct Loader<C> {
    file: Option<PathBuf>,
    environment: BTreeMap<String, String>,
    flags: Vec<Flag>,
    no_effect: &'static [NoEffect],
    check: fn(&C) -> Vec<String>,
}

impl<C: Config> Default for Loader<C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Config> Loader<C> {
    pub fn new() -> Self {
        Self {
            file: None,
            environment: BTreeMap::new(),
            flags: Vec::new(),
            no_effect: &[],
            check: |_| Vec::new(),
        }
    }

    /// A file that must exist: a configuration that was named and cannot be read is an error.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.file = Some(path.into());
        self
    }

    /// Usually `std::env::vars()`. An empty variable counts as unset.
    #[must_use]
    pub fn environment(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        self.environment.extend(variables);
        self
    }

    /// A value from the command line, `flag` as people type it.
    #[must_use]
    pub fn flag(mut self, flag: &str, key: &str, value: &str) -> Self {
        let (flag, key, value) = (flag.to_owned(), key.to_owned(), value.to_owned());
        self.flags.push(Flag { flag, key, value });
        self
    }

    /// Keys that a file may have although nothing here obeys them.
    #[must_use]
    pub fn no_effect(mut self, keys: &'static [NoEffect]) -> Self {
        self.no_effect = keys;
        self
    }

    /// Finds contradictions between keys; each returned sentence is an error. Also holds for
    /// changes while running.
    #[must_use]
    pub fn check(mut self, check: fn(&C) -> Vec<String>) -> Self {
        self.check = check;
        self
    }

    pub fn load(self) -> Result<Loaded<C>, ConfigErrors> {
        let mut layers = Layers {
            config: C::default(),
            origins: BTreeMap::new(),
            notices: Vec::new(),
            errors: Vec::new(),
        };
        if let Some(path) = &self.file {
            layers.add_file(path, self.no_effect);
        }
        for key in C::keys() {
            let name = key.env_name();
            if let Some(value) = self.environment.get(&name).filter(|value| !value.is_empty()) {
                layers.assign(key, value, Origin::Environment { name });
            }
        }
        for flag in &self.flags {
            layers.add_flag(flag);
        }
        if layers.errors.is_empty() {
            let contradictions = (self.check)(&layers.config);
            layers.errors.extend(contradictions.into_iter().map(ConfigError::Contradiction));
        }
        if !layers.errors.is_empty() {
            return Err(ConfigErrors(layers.errors));
        }
        Ok(Loaded {
            config: layers.config,
            notices: layers.notices,
            check: self.check,
            no_effect: self.no_effect,
            origins: layers.origins,
        })
    }
}

struct Layers<C> {
    config: C,
    origins: BTreeMap<&'static str, Origin>,
    notices: Vec<Notice>,
    errors: Vec<ConfigError>,
}

impl<C: Config> Layers<C> {
    fn add_file(&mut self, path: &Path, no_effect: &'static [NoEffect]) {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(source) => {
                self.errors.push(ConfigError::Unreadable { path: path.to_owned(), source });
                return;
            }
        };
        let entries = match properties::parse(&bytes) {
            Ok(entries) => entries,
            Err(errors) => {
                let located = errors
                    .into_iter()
                    .map(|source| ConfigError::Syntax { path: path.to_owned(), source });
                self.errors.extend(located);
                return;
            }
        };
        let mut lines: BTreeMap<String, usize> = BTreeMap::new();
        for properties::Entry { key, value, line } in entries {
            let origin = Origin::File { path: path.to_owned(), line };
            if let Some(first_line) = lines.insert(key.clone(), line) {
                let (key, origin) = (key.clone(), origin.clone());
                self.notices.push(Notice::Repeated { key, origin, first_line });
            }
            match C::key(&key) {
                Some(known) => self.assign(known, &value, origin),
                None => self.notices.push(not_a_key::<C>(key, origin, no_effect)),
            }
        }
    }

    fn add_flag(&mut self, flag: &Flag) {
        let Flag { flag, key, value } = flag;
        match C::key(key) {
            Some(known) => self.assign(known, value, Origin::Flag { flag: flag.clone() }),
            None => self.errors.push(ConfigError::UnknownFlagKey {
                flag: flag.clone(),
                key: key.clone(),
                nearest: nearest_key::<C>(key),
            }),
        }
    }

    fn assign(&mut self, key: &'static super::Key<C>, value: &str, origin: Origin) {
        if key.assign(&mut self.config, value) {
            self.origins.insert(key.name, origin);
        } else {
            let (value, expected) = (value.to_owned(), key.expected());
            self.errors.push(ConfigError::Value { key: key.name, value, expected, origin });
        }
    }
}

pub(super) fn nearest_key<C: Config>(wrong: &str) -> Option<&'static str> {
    nearest(wrong, C::keys().iter().map(|key| key.name))
}

fn not_a_key<C: Config>(key: String, origin: Origin, no_effect: &[NoEffect]) -> Notice {
    match no_effect.iter().find(|known| known.key == key) {
        Some(known) => Notice::NoEffect { key, origin, why: known.why },
        None => {
            let nearest = nearest_key::<C>(&key);
            Notice::Unknown { key, origin, nearest }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write as _;
    use std::time::Duration;

    use super::*;

    crate::choice! {
        pub(crate) enum Flush {
            Async = "ASYNC_FLUSH",
            Sync = "SYNC_FLUSH",
        }
    }

    crate::config! {
        /// An example.
        pub(crate) struct Example {
            /// TCP port.
            listen_port("listenPort"): u16 = 10911, range(1, 65535), important;
            /// Port of replication; the listen port and one when not given.
            ha_listen_port("haListenPort"): Option<u16> = None, range(1, 65535);
            broker_ip1("brokerIP1"): Option<String> = None, important;
            flush("flushDiskType"): Flush = Flush::Async, important;
            transaction_timeout("transactionTimeOut"): Duration =
                Duration::from_secs(6), range(0, 600_000), hot;
            trace_on("traceOn"): bool = true, hot;
            secret_key("secretKey"): String = String::new(), secret, hot;
        }
    }

    pub(crate) const NO_EFFECT: &[NoEffect] = &[NoEffect {
        key: "sendMessageThreadPoolNums",
        why: "there is no pool of threads to size",
    }];

    pub(crate) fn contradictions(config: &Example) -> Vec<String> {
        if config.ha_listen_port == Some(config.listen_port) {
            return vec!["`haListenPort` and `listenPort` are the same port".to_owned()];
        }
        Vec::new()
    }

    pub(crate) fn loader() -> Loader<Example> {
        Loader::new().no_effect(NO_EFFECT).check(contradictions)
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(text.as_bytes()).expect("written");
        file
    }

    fn env(name: &str, value: &str) -> [(String, String); 1] {
        [(name.to_owned(), value.to_owned())]
    }

    #[test]
    fn later_layers_win() {
        let file = file("listenPort=1\nhaListenPort=2\nflushDiskType = SYNC_FLUSH\n");
        let loaded = loader()
            .file(file.path())
            .environment(env("HA_LISTEN_PORT", "3"))
            .environment(env("BROKER_IP1", "broker-0.mq.svc"))
            .environment(env("TRACE_ON", ""))
            .flag("-l", "listenPort", "4")
            .load()
            .expect("all values are right");
        assert_eq!(loaded.config.listen_port, 4);
        assert_eq!(loaded.config.ha_listen_port, Some(3));
        assert_eq!(loaded.config.broker_ip1.as_deref(), Some("broker-0.mq.svc"));
        assert_eq!(loaded.config.flush, Flush::Sync);
        assert!(loaded.config.trace_on);
        assert_eq!(loaded.config.transaction_timeout, Duration::from_secs(6));
        let origins: Vec<_> =
            loaded.overridden().map(|(key, value, from)| format!("{key}={value} {from}")).collect();
        assert_eq!(
            origins,
            [
                "listenPort=4 flag -l".to_owned(),
                "haListenPort=3 environment HA_LISTEN_PORT".to_owned(),
                "brokerIP1=broker-0.mq.svc environment BROKER_IP1".to_owned(),
                format!("flushDiskType=SYNC_FLUSH {}:3", file.path().display()),
            ]
        );
    }

    #[test]
    fn all_errors_at_once() {
        let file = file("listenPort=0\n\nflushDiskType=sync\ntraceOn=yes");
        let path = file.path().display();
        let errors = loader()
            .file(file.path())
            .environment(env("HA_LISTEN_PORT", "x"))
            .flag("--set", "listenPrt", "4")
            .load()
            .expect_err("five values are wrong");
        assert_eq!(
            errors.to_string(),
            format!(
                "5 errors in the configuration:\n  \
                 {path}:1: `listenPort` is `0`, but must be an integer from 1 to 65535\n  \
                 {path}:3: `flushDiskType` is `sync`, but must be one of ASYNC_FLUSH, \
                 SYNC_FLUSH\n  \
                 {path}:4: `traceOn` is `yes`, but must be true or false\n  \
                 environment HA_LISTEN_PORT: `haListenPort` is `x`, but must be an integer from 1 \
                 to 65535, or nothing\n  \
                 flag --set: unknown key `listenPrt`; did you mean `listenPort`?"
            )
        );
    }

    #[test]
    fn notices() {
        let file =
            file("listnPort=1\nsendMessageThreadPoolNums=4\nzzz=1\ntraceOn=true\ntraceOn=false");
        let path = file.path().display();
        let loaded = loader().file(file.path()).load().expect("usable");
        let notices: Vec<_> = loaded.notices.iter().map(ToString::to_string).collect();
        assert_eq!(
            notices,
            [
                format!("{path}:1: unknown key `listnPort` is ignored; did you mean `listenPort`?"),
                format!(
                    "{path}:2: `sendMessageThreadPoolNums` has no effect here: there is no pool of \
                 threads to size"
                ),
                format!("{path}:3: unknown key `zzz` is ignored"),
                format!("{path}:5: `traceOn` was already set on line 4; this later value counts"),
            ]
        );
        assert!(!loaded.config.trace_on);
    }

    #[test]
    fn unusable_files_and_contradictions() {
        let missing = loader().file("/nowhere/broker.conf").load().expect_err("missing");
        assert!(missing.to_string().contains("/nowhere/broker.conf: cannot read"), "{missing}");
        let malformed = file("a=\\u1");
        let errors = loader().file(malformed.path()).load().expect_err("malformed");
        assert!(errors.to_string().contains("line 1: malformed escape"), "{errors}");
        let twice = loader().flag("-l", "listenPort", "7").flag("-h", "haListenPort", "7").load();
        let errors = twice.expect_err("the same port twice").to_string();
        assert_eq!(
            errors,
            "1 error in the configuration:\n  `haListenPort` and `listenPort` are the same port"
        );
    }

    #[test]
    fn print_all_and_important() {
        let loaded = loader().flag("-k", "secretKey", "s").load().expect("usable");
        assert_eq!(
            loaded.print(Print::Important),
            "listenPort=10911\nbrokerIP1=\nflushDiskType=ASYNC_FLUSH\n"
        );
        assert_eq!(
            loaded.print(Print::All),
            "listenPort=10911\nhaListenPort=\nbrokerIP1=\nflushDiskType=ASYNC_FLUSH\n\
             transactionTimeOut=6000\ntraceOn=true\nsecretKey=******\n"
        );
    }

    #[test]
    fn defaults_obey_their_own_limits() {
        for key in Example::keys() {
            let mut config = Example::default();
            let text = key.value(&config);
            assert!(key.assign(&mut config, &text), "{}={text}", key.name);
        }
        assert_eq!(Example::keys()[0].doc.trim(), "TCP port.");
    }
}
