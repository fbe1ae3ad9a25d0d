//! Flags that every server has, as Apache's start scripts have them, and what they do.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::EXIT_CONFIG;
use crate::config::{Config, Loaded, Loader, Print};
use crate::telemetry::LogArgs;

/// Common flags; `#[command(flatten)]` them into a server's arguments.
#[derive(Debug, Clone, clap::Args)]
pub struct ServerArgs {
    /// Configuration file, in the syntax of Java properties
    #[arg(short = 'c', long = "configFile", value_name = "FILE")]
    pub config_file: Option<PathBuf>,

    /// Set one key of the configuration; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    pub set: Vec<(String, String)>,

    /// Print the effective configuration and exit
    #[arg(short = 'p', long = "printConfigItem")]
    pub print_all: bool,

    /// Print the important part of the effective configuration and exit
    #[arg(short = 'm', long = "printImportantConfig")]
    pub print_important: bool,

    #[command(flatten)]
    pub log: LogArgs,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.to_owned()))
        }
        _ => Err("must be KEY=VALUE".to_owned()),
    }
}

/// Parses the command line. Wrong flags exit with [`EXIT_CONFIG`], `--help` and `--version` with 0.
pub fn parse<A: Parser>() -> A {
    A::try_parse().unwrap_or_else(|error| {
        // A closed standard output (`--help | head -1`) is no reason to fail.
        let _ = error.print();
        std::process::exit(if error.use_stderr() { EXIT_CONFIG.into() } else { 0 });
    })
}

impl ServerArgs {
    /// Adds file, environment and `--set` to `loader` (which may already have the server's own
    /// flags) and loads. `Err` is the exit code of a process that is done: it has printed its
    /// configuration, or every error in it.
    pub fn load<C: Config>(&self, loader: Loader<C>) -> Result<Loaded<C>, ExitCode> {
        let mut loader = loader.environment(environment());
        if let Some(path) = &self.config_file {
            loader = loader.file(path);
        }
        for (key, value) in &self.set {
            loader = loader.flag("--set", key, value);
        }
        let loaded = loader.load().map_err(|errors| {
            eprintln!("{errors}");
            ExitCode::from(EXIT_CONFIG)
        })?;
        if self.print_all || self.print_important {
            for notice in &loaded.notices {
                eprintln!("{notice}");
            }
            print!("{}", loaded.print(if self.print_all { Print::All } else { Print::Important }));
            return Err(ExitCode::SUCCESS);
        }
        Ok(loaded)
    }
}

/// Variables whose name or value is not UTF-8 cannot be meant for us.
fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Logs what the configuration says beyond the defaults, and every notice. Call it after logging
/// has begun.
pub fn log_configuration<C: Config>(loaded: &Loaded<C>) {
    for notice in &loaded.notices {
        tracing::warn!("{notice}");
    }
    for (key, value, origin) in loaded.overridden() {
        tracing::info!(key, value, %origin, "configured");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Parser)]
    struct Args {
        #[command(flatten)]
        server: ServerArgs,
    }

    crate::config! {
        struct Example {
            listen_port("listenPort"): u16 = 9876, range(1, 65535), important;
            name("name"): String = String::new();
        }
    }

    #[test]
    fn flags_reach_the_configuration() {
        let args = Args::try_parse_from(["x", "--set", "listenPort=5", "--set", "name=a=b"]);
        let loaded = args.expect("right flags").server.load(Loader::<Example>::new());
        let config = loaded.expect("a right configuration").config;
        assert_eq!((config.listen_port, config.name.as_str()), (5, "a=b"));
    }

    #[test]
    fn a_wrong_configuration_is_exit_code_64() {
        for flags in [
            ["x", "--set", "listenPort=0"].as_slice(),
            &["x", "--set", "nothing=0"],
            &["x", "-c", "/nowhere/namesrv.conf"],
        ] {
            let args = Args::try_parse_from(flags).expect("right flags");
            let refused = args.server.load(Loader::<Example>::new());
            assert_eq!(refused.err(), Some(ExitCode::from(64)), "{flags:?}");
        }
        assert!(Args::try_parse_from(["x", "--set", "listenPort"]).is_err());
    }

    #[test]
    fn printing_ends_the_program() {
        for flag in ["-p", "-m"] {
            let args = Args::try_parse_from(["x", flag]).expect("right flags");
            assert_eq!(
                args.server.load(Loader::<Example>::new()).err(),
                Some(ExitCode::SUCCESS),
                "{flag}"
            );
        }
    }
}
