//! Logs: text or JSON lines on standard error, with a level that can be changed while running.

use clap::ValueEnum;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, Registry, reload};

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Logging flags; `#[command(flatten)]` them into a program's arguments.
#[derive(Debug, Clone, clap::Args)]
pub struct LogArgs {
    /// How log lines look
    #[arg(long, env = "LOG_FORMAT", value_enum, default_value_t, global = true)]
    pub log_format: LogFormat,

    /// What to log: error, warn, info, debug or trace, also per module ("info,broker=debug")
    #[arg(long, env = "RUST_LOG", value_name = "FILTER", default_value = "info", global = true)]
    pub log_level: String,
}

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error(
        "`{filter}` is no log level ({reason}); give error, warn, info, debug or trace, also per \
         module as in \"info,broker=debug\""
    )]
    Filter { filter: String, reason: String },
    #[error("logging was already set up in this process")]
    AlreadySet,
    #[error("logging has ended")]
    Ended,
}

/// Changes the level of a running process.
#[derive(Debug, Clone)]
pub struct LogLevel {
    handle: reload::Handle<EnvFilter, Registry>,
}

impl LogLevel {
    /// The filter in force.
    pub fn current(&self) -> String {
        self.handle.with_current(ToString::to_string).unwrap_or_default()
    }

    pub fn set(&self, filter: &str) -> Result<(), TelemetryError> {
        let filter = parse(filter)?;
        self.handle.reload(filter).map_err(|_| TelemetryError::Ended)
    }
}

/// Starts logging for this process; to be called once, before the first log line.
pub fn init(args: &LogArgs) -> Result<LogLevel, TelemetryError> {
    let (filter, handle) = reload::Layer::new(parse(&args.log_level)?);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match args.log_format {
        LogFormat::Text => lines.with_ansi(ansi()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .try_init()
        .map_err(|_| TelemetryError::AlreadySet)?;
    Ok(LogLevel { handle })
}

/// A level of logs that go nowhere, with what must live as long as it.
#[cfg(test)]
pub(crate) fn detached_level(filter: &str) -> (LogLevel, impl tracing::Subscriber + use<>) {
    let (filter, handle) = reload::Layer::new(EnvFilter::new(filter));
    (LogLevel { handle }, tracing_subscriber::registry().with(filter))
}

/// Colours are for terminals only, and not for people who switched them off (no-color.org).
fn ansi() -> bool {
    use std::io::IsTerminal as _;
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

fn parse(filter: &str) -> Result<EnvFilter, TelemetryError> {
    let wrong = |reason: String| TelemetryError::Filter { filter: filter.to_owned(), reason };
    if filter.trim().is_empty() {
        return Err(wrong("it is empty".to_owned()));
    }
    // A lone word is a target to EnvFilter: "debgu" would silently switch all else off.
    for directive in filter.split(',').map(str::trim) {
        let is_level = directive.parse::<tracing_subscriber::filter::LevelFilter>().is_ok();
        if directive.is_empty() || (!directive.contains(['=', '[']) && !is_level) {
            return Err(wrong(format!("`{directive}` is not a level")));
        }
    }
    EnvFilter::try_new(filter.replace(' ', "")).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters() {
        for (filter, valid) in [
            ("info", true),
            ("INFO", true),
            ("off", true),
            ("warn,broker=debug", true),
            ("warn, broker=debug", true),
            ("debgu", false),
            ("info,broker=loud", false),
            ("", false),
            ("info,,", false),
        ] {
            assert_eq!(parse(filter).is_ok(), valid, "{filter:?}");
        }
    }

    #[test]
    fn the_level_changes_while_running() {
        let (level, subscriber) = detached_level("info");
        let _guard = tracing::subscriber::set_default(subscriber);
        assert!(!tracing::enabled!(tracing::Level::DEBUG));
        level.set("debug").expect("a level");
        assert!(tracing::enabled!(tracing::Level::DEBUG));
        assert_eq!(level.current(), "debug");
        let refused = level.set("loud").expect_err("not a level").to_string();
        assert!(refused.starts_with("`loud` is no log level"), "{refused}");
        assert_eq!(level.current(), "debug");
    }
}
