//! `rmq`, the tool for people: send, consume, look at and administer a cluster.
//!
//! What is asked for goes to standard output, as aligned tables or as JSON; progress and errors go
//! to standard error. Exit codes: 0 done, 1 failed (the error says what to do), 2 wrong usage; of
//! `check` also 3, a start repairs the store, and 4, it is damaged.
//!
//! JSON is meant for programs: members are only ever added.

mod bench;
mod broker;
mod check;
mod cli;
mod cluster;
mod consume;
mod dump;
mod duration;
mod error;
#[cfg(test)]
mod golden;
mod group;
mod interrupt;
mod latency;
mod message;
mod output;
mod route;
mod send;
mod session;
mod source;
mod table;
mod topic;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::error::RmqError;
use crate::session::Session;

/// Runs a command line and says how it ended.
pub async fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors. Nothing can be done when printing fails.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    // A check takes long, and says how far it is.
    let is_long = matches!(cli.command, Command::Check(_));
    log_to_stderr(cli.options.verbose.max(u8::from(is_long)));
    match execute(cli).await {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads the output has seen enough.
        Err(RmqError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("rmq: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// What the client has to say beside the result, for instance that a broker does not answer.
fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => tracing::Level::WARN,
        1 => tracing::Level::INFO,
        2 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    let log = tracing_subscriber::fmt().with_max_level(level).with_target(false).without_time();
    let log = log.with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
    // A second run in one process keeps the log of the first.
    let _ = log.compact().try_init();
}

async fn execute(cli: Cli) -> Result<(), RmqError> {
    // These work on files, and need no cluster.
    match &cli.command {
        Command::Check(args) => return check::run(&cli.options, args),
        Command::Dump(args) => return dump::run(&cli.options, args),
        _ => {}
    }
    let session = Session::start(&cli).await?;
    let done = match &cli.command {
        Command::Send(args) => send::run(&session, args).await,
        Command::Consume(args) => consume::run(&session, args).await,
        Command::Topic(command) => topic::run(&session, command).await,
        Command::Route(args) => route::run(&session, args).await,
        Command::Cluster => cluster::run(&session).await,
        Command::Group(command) => group::run(&session, command).await,
        Command::Broker(command) => broker::run(&session, command).await,
        Command::Message(command) => message::run(&session, command).await,
        Command::Bench(command) => bench::run(&session, command).await,
        Command::Check(_) | Command::Dump(_) => Ok(()),
    };
    session.end().await;
    done
}
