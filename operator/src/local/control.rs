//! `local status` and `local down`: from another terminal than the cluster's.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;

use super::args::{DownArgs, OutputFormat, StatusArgs};
use super::data_dir::{self, DataDirError};
use super::lock::{self, LockError};
use super::report::{self, say};
use super::status;

/// How long `down` waits for the cluster to end, in steps.
const DOWN_STEP: Duration = Duration::from_millis(100);
const DOWN_STEPS_MAX: u32 = 900;

#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("cannot read the status in {}: {source}", dir.display())]
    Status { dir: PathBuf, source: std::io::Error },
    #[error("no cluster ever ran in {}", dir.display())]
    NeverRan { dir: PathBuf },
    #[error("cannot stop process {pid}: {source}")]
    Signal { pid: i32, source: std::io::Error },
    #[error("process {pid} still runs; send it SIGTERM once more to end it at once")]
    StillRuns { pid: i32 },
}

/// Prints the status. Success means that everything runs and is ready.
pub(super) fn status(args: &StatusArgs) -> Result<ExitCode, ControlError> {
    let dir = data_dir::find(args.cluster.as_deref(), args.data.as_deref())?;
    let failed = |source| ControlError::Status { dir: dir.clone(), source };
    let Some(mut status) = status::read(&dir).map_err(failed)? else {
        return Err(ControlError::NeverRan { dir });
    };
    let holder = lock::holder(&dir)?;
    if holder.is_none() {
        status.processes.clear();
    }
    match args.output {
        OutputFormat::Table => say(report::status_table(&status, holder).trim_end()),
        OutputFormat::Json => {
            let mut value = serde_json::to_value(&status).unwrap_or_default();
            value["running"] = holder.is_some().into();
            value["ready"] = status.is_ready().into();
            value["pid"] = holder.into();
            say(&format!("{value:#}"));
        }
    }
    Ok(if status.is_ready() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Stops a cluster and waits until it has stopped.
pub(super) async fn down(args: &DownArgs) -> Result<ExitCode, ControlError> {
    let dir = data_dir::find(args.cluster.as_deref(), args.data.as_deref())?;
    let Some(pid) = lock::holder(&dir)? else {
        say(&format!("nothing runs in {}", dir.display()));
        return Ok(ExitCode::SUCCESS);
    };
    let failed = |source| ControlError::Signal { pid, source };
    let process = Pid::from_raw(pid)
        .ok_or_else(|| failed(std::io::Error::other("the lock names no process")))?;
    kill_process(process, Signal::TERM).map_err(|error| failed(error.into()))?;
    for _ in 0..DOWN_STEPS_MAX {
        if lock::holder(&dir)?.is_none() {
            report::stopped(&dir, dir.is_dir());
            return Ok(ExitCode::SUCCESS);
        }
        sleep(DOWN_STEP).await;
    }
    Err(ControlError::StillRuns { pid })
}
