//! Tooling of this workspace: `cargo run -p xtask -- COMMAND`. People and CI call the same.

mod checks;
mod crd_files;
mod dag;
mod rust_text;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

/// Tooling of this workspace.
#[derive(Parser)]
#[command(name = "xtask")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write crds/yaml from the crds crate
    Crds {
        /// Write nothing; fail if a file is not what it should be
        #[arg(long)]
        check: bool,
    },
    /// Fail on a dependency between our crates that ARCHITECTURE.md does not allow
    Dag,
    /// Check the style rules that no compiler checks
    Tidy,
    /// Run every check that runs no test, in order, up to the first that fails
    Check {
        /// Only print the steps
        #[arg(long)]
        list: bool,
    },
}

fn main() -> ExitCode {
    match run(&Args::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> anyhow::Result<()> {
    let root = root()?;
    match command {
        Command::Crds { check: true } => crd_files::check(&root),
        Command::Crds { check: false } => crd_files::write(&root),
        Command::Dag => dag::check(&root),
        Command::Tidy => tidy::check(&root),
        Command::Check { list } => checks::run(&root, *list),
    }
}

/// The workspace's folder: the parent of this crate's.
fn root() -> anyhow::Result<PathBuf> {
    let here = std::env::var("CARGO_MANIFEST_DIR")
        .unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    Ok(Path::new(&here).parent().context("xtask lies in no folder")?.to_owned())
}
