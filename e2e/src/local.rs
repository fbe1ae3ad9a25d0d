//! The project's own servers as processes on this machine.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Signal, kill_process};

use crate::java::{Target, client_state};
use crate::process::Process;
use crate::programs;

/// Time for a server to start or to end.
const LIMIT: Duration = Duration::from_secs(30);
/// Added to every port, so that a cluster somebody runs here is not in the way.
const PORT_OFFSET: u16 = 20_000;

/// `rocketmq-operator local up` on `deploy/samples/local.yaml`: a name server and a broker.
pub struct LocalMode {
    process: Process,
    directory: PathBuf,
}

impl LocalMode {
    /// Starts it with its data in `directory` and waits until it says that it is ready.
    pub fn start(directory: &Path) -> Result<Self> {
        let mut command = Command::new(programs::path("rocketmq-operator")?);
        command
            .args(["local", "up"])
            .arg(programs::root().join("deploy/samples/local.yaml"))
            .args(["--port-offset", &PORT_OFFSET.to_string(), "--data"])
            .arg(directory.join("data"));
        let mut process = Process::start("local-mode", &mut command, directory)?;
        process.wait_for("'ready'", LIMIT, |p| p.log().contains("is ready"))?;
        Ok(Self { process, directory: directory.to_owned() })
    }

    /// How clients reach it.
    pub fn target(&self) -> Target {
        Target {
            namesrv: format!("127.0.0.1:{}", 9876 + PORT_OFFSET),
            broker: format!("127.0.0.1:{}", 10911 + PORT_OFFSET),
            broker_name: "local-0".to_owned(),
            cluster: "local".to_owned(),
            dns: None,
            state: client_state(&self.directory),
        }
    }

    /// Kills the child process of local mode that runs `program`.
    pub fn kill(&self, program: &str) -> Result<()> {
        let children = self.process.children()?;
        let child = children.iter().find(|(_, command)| command.contains(program));
        let (pid, _) = child.with_context(|| format!("no {program} among {children:?}"))?;
        kill_process(*pid, Signal::KILL).with_context(|| format!("cannot kill {program}"))
    }

    /// What it has printed.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Stops it as Ctrl-C does.
    pub fn stop(mut self) -> Result<()> {
        let status = self.process.stop(LIMIT).context("local mode does not stop")?;
        anyhow::ensure!(status.success(), "local mode ended with {status}:\n{}", self.log());
        Ok(())
    }
}
