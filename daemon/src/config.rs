//! Configuration of a server: each key is declared once and gets everything.
//!
//! ```
//! daemon::config! {
//!     /// Settings of an example server.
//!     pub struct ExampleConfig {
//!         /// TCP port that clients connect to.
//!         listen_port("listenPort"): u16 = 9876, range(1, 65535), important;
//!         /// How often routes are scanned for dead brokers.
//!         scan_interval("scanInterval"): std::time::Duration =
//!             std::time::Duration::from_secs(10), range(100, 600_000), hot;
//!     }
//! }
//! let loader = daemon::config::Loader::<ExampleConfig>::new();
//! let loaded = loader.flag("-s", "scanInterval", "500").load();
//! assert_eq!(loaded.expect("a valid value").config.scan_interval.as_millis(), 500);
//! ```
//!
//! Layers: defaults < file (`.properties`) < environment (the key in upper snake case:
//! `brokerIP1` is `BROKER_IP1`) < flags. All errors are reported at once, with the allowed values
//! and where the wrong one came from. Options after the default: `range(min, max)` (inclusive, in
//! the unit that the file uses), `important` (printed by `-m`), `hot` (may change while running),
//! `secret` (never printed).

mod live;
mod load;
mod value;

pub use live::{Change, Live, UpdateError, UpdateErrors};
pub use load::{ConfigError, ConfigErrors, Loaded, Loader, NoEffect, Notice, Origin, Print};
pub use value::{Value, assign};

/// Inclusive bounds of a number, in the unit that the configuration file uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub min: i64,
    pub max: i64,
}

/// One declared key of the configuration `C`.
#[derive(Debug)]
pub struct Key<C> {
    pub name: &'static str,
    pub doc: &'static str,
    pub range: Option<Range>,
    pub important: bool,
    pub hot: bool,
    pub secret: bool,
    get: fn(&C) -> String,
    set: fn(&mut C, &str, Option<Range>) -> bool,
    expected: fn(Option<Range>) -> String,
}

impl<C> Key<C> {
    /// Called by [`config!`](crate::config!); the functions read, assign and describe the field.
    pub const fn new(
        name: &'static str,
        doc: &'static str,
        get: fn(&C) -> String,
        set: fn(&mut C, &str, Option<Range>) -> bool,
        expected: fn(Option<Range>) -> String,
    ) -> Self {
        Self {
            name,
            doc,
            range: None,
            important: false,
            hot: false,
            secret: false,
            get,
            set,
            expected,
        }
    }

    pub const fn range(mut self, min: i64, max: i64) -> Self {
        assert!(min <= max, "an empty range");
        self.range = Some(Range { min, max });
        self
    }

    pub const fn important(mut self) -> Self {
        self.important = true;
        self
    }

    pub const fn hot(mut self) -> Self {
        self.hot = true;
        self
    }

    pub const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// The value in force, as the file would have it.
    pub fn value(&self, config: &C) -> String {
        (self.get)(config)
    }

    /// What a value may be, for people: "an integer from 1 to 65535".
    pub fn expected(&self) -> String {
        (self.expected)(self.range)
    }

    /// Assigns the value if it is one of [`Key::expected`]; otherwise leaves `config` as it is.
    #[must_use]
    pub fn assign(&self, config: &mut C, text: &str) -> bool {
        (self.set)(config, text, self.range)
    }

    /// The environment variable that overrides this key.
    pub fn env_name(&self) -> String {
        upper_snake(self.name)
    }
}

/// A configuration that [`config!`](crate::config!) has declared.
pub trait Config: Default + Clone + Send + Sync + 'static {
    /// All keys, in the order of their declaration.
    fn keys() -> &'static [Key<Self>];

    /// The key of that exact name.
    fn key(name: &str) -> Option<&'static Key<Self>> {
        Self::keys().iter().find(|key| key.name == name)
    }
}

/// Declares a configuration struct with its keys, defaults and limits. See [`crate::config`].
#[macro_export]
macro_rules! config {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $field:ident($key:literal): $type:ty = $default:expr
                    $(, $option:ident $(($($argument:expr),*))?)*;
            )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone)]
        $vis struct $name {
            $(
                $(#[doc = $doc])*
                pub $field: $type,
            )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl $crate::config::Config for $name {
            fn keys() -> &'static [$crate::config::Key<Self>] {
                static KEYS: &[$crate::config::Key<$name>] = &[
                    $(
                        $crate::config::Key::<$name>::new(
                            $key,
                            concat!($($doc, "\n"),*),
                            |config| $crate::config::Value::print(&config.$field),
                            |config, text, range| {
                                $crate::config::assign(&mut config.$field, text, range)
                            },
                            <$type as $crate::config::Value>::expected,
                        )
                        $(.$option($($($argument),*)?))*,
                    )*
                ];
                KEYS
            }
        }
    };
}

/// Declares an enum whose values have the names that Java's configuration uses.
///
/// ```
/// daemon::choice! {
///     /// When a message counts as stored.
///     pub enum FlushDiskType {
///         Async = "ASYNC_FLUSH",
///         Sync = "SYNC_FLUSH",
///     }
/// }
/// assert_eq!(FlushDiskType::Sync.name(), "SYNC_FLUSH");
/// ```
#[macro_export]
macro_rules! choice {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $text:literal),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $name {
            $($(#[$variant_meta])* $variant,)*
        }

        impl $name {
            /// The name in configuration files.
            $vis const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }

        impl $crate::config::Value for $name {
            fn parse(text: &str) -> Option<Self> {
                match text.trim() {
                    $($text => Some(Self::$variant),)*
                    _ => None,
                }
            }

            fn print(&self) -> String {
                self.name().to_owned()
            }

            fn expected(_: Option<$crate::config::Range>) -> String {
                format!("one of {}", [$($text),*].join(", "))
            }
        }
    };
}

/// `brokerIP1` -> `BROKER_IP1`, `namesrvAddr` -> `NAMESRV_ADDR`, `useTLSOnly` -> `USE_TLS_ONLY`.
pub(crate) fn upper_snake(key: &str) -> String {
    let chars: Vec<char> = key.chars().collect();
    let mut name = String::with_capacity(key.len() + 4);
    for (at, &c) in chars.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| chars.get(at));
        let after = chars.get(at + 1);
        let starts_word = c.is_uppercase()
            && before
                .is_some_and(|&b| !b.is_uppercase() || after.is_some_and(|a| a.is_lowercase()));
        if starts_word && before != Some(&'_') {
            name.push('_');
        }
        name.extend(c.to_uppercase());
    }
    name
}

/// The known name nearest to `wrong`, when it is near enough to be what was meant.
pub fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = wrong.to_lowercase();
    let limit = (wrong.len() / 4).clamp(1, 4);
    // A difference in length is the least that the distance can be, and much cheaper to see.
    known
        .filter(|name| name.len().abs_diff(wrong.len()) <= limit)
        .map(|name| (distance(&wrong, &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Levenshtein distance in characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (above, to) in row.iter().skip(1).zip(&b) {
            left = (diagonal + usize::from(from != *to)).min(left + 1).min(above + 1);
            diagonal = *above;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_names() {
        for (key, expected) in [
            ("listenPort", "LISTEN_PORT"),
            ("brokerIP1", "BROKER_IP1"),
            ("namesrvAddr", "NAMESRV_ADDR"),
            ("useTLSOnly", "USE_TLS_ONLY"),
            ("mappedFileSizeCommitLog", "MAPPED_FILE_SIZE_COMMIT_LOG"),
            ("enableRetryTopicV2", "ENABLE_RETRY_TOPIC_V2"),
        ] {
            assert_eq!(upper_snake(key), expected);
        }
    }

    #[test]
    fn nearest_key() {
        let known = ["listenPort", "fastListenPort", "brokerName", "brokerId"];
        for (wrong, expected) in [
            ("listenport", Some("listenPort")),
            ("listenPrt", Some("listenPort")),
            ("brokrName", Some("brokerName")),
            ("borkerId", Some("brokerId")),
            ("somethingElse", None),
            ("", None),
        ] {
            assert_eq!(nearest(wrong, known.into_iter()), expected, "{wrong}");
        }
    }

    #[test]
    fn levenshtein() {
        for (a, b, expected) in
            [("", "", 0), ("a", "", 1), ("", "ab", 2), ("kitten", "sitting", 3), ("ab", "ba", 2)]
        {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }
}
