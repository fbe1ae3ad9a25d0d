//! Local mode: the cluster of a `RocketMQCluster` manifest as processes of this machine.
//!
//! `up` holds a lock on its data directory, starts name servers and brokers from the manifest,
//! restarts what dies and follows changes of the file, until a signal stops it. The manifest is
//! refused for the same reasons as by the API server (the schema of the CRD) and by the operator
//! ([`crds::problems`]). Everything listens on the loopback address only.

mod args;
mod cluster;
mod control;
mod data_dir;
mod elections;
mod lock;
mod log_file;
mod manifest;
mod plan;
mod probe;
mod report;
mod schema;
mod status;
mod supervisor;
mod up;

use std::path::PathBuf;
use std::process::ExitCode;

pub use args::{Args, Command, DownArgs, OutputFormat, StatusArgs, UpArgs};
pub use status::{Phase, ProcessStatus, Status};
pub use up::up;

/// Why a local command could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    #[error(transparent)]
    Manifest(#[from] manifest::ManifestError),
    #[error(transparent)]
    Lock(#[from] lock::LockError),
    #[error(transparent)]
    Plan(#[from] plan::PlanError),
    #[error(transparent)]
    DataDir(#[from] data_dir::DataDirError),
    #[error(transparent)]
    Control(#[from] control::ControlError),
    #[error(transparent)]
    Rollout(#[from] cluster::RolloutError),
    #[error("metadata.name: a cluster cannot be renamed (from {from} to {to}) while it runs")]
    Renamed { from: String, to: String },
    #[error(
        "spec.brokers.groups: must not become fewer ({was} run, {wanted} are wanted): the messages \
         of a removed group would be lost"
    )]
    FewerGroups { was: usize, wanted: usize },
    #[error(
        "spec.brokers.replicas: must not become fewer ({was} run, {wanted} are wanted) in this \
         version"
    )]
    FewerReplicas { was: usize, wanted: usize },
    #[error("cannot {what} {}: {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
}

impl LocalError {
    /// [`daemon::EXIT_CONFIG`] if what was asked for is wrong, else 1.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Manifest(_) | Self::Plan(_) => ExitCode::from(daemon::EXIT_CONFIG),
            _ => ExitCode::FAILURE,
        }
    }
}

/// Runs one local command to its end, which for `up` is a signal.
///
/// # Errors
/// In words for whoever typed the command; [`LocalError::exit_code`] goes with them.
pub async fn run(args: &Args) -> Result<ExitCode, LocalError> {
    match &args.command {
        Command::Up(args) => {
            let shutdown = daemon::shutdown::Shutdown::on_signals().map_err(LocalError::Signals)?;
            up(args, &shutdown).await?;
            Ok(shutdown.exit_code())
        }
        Command::Status(args) => Ok(control::status(args)?),
        Command::Down(args) => Ok(control::down(args).await?),
    }
}
