//! The project's own servers as processes on this machine.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::java::{Target, client_state};
use crate::process::Process;
use crate::programs;

/// Time for a server to start or to end.
const LIMIT: Duration = Duration::from_secs(30);
/// What may be added to every port; the highest stay under those that clients are given.
const PORT_OFFSETS: std::ops::RangeInclusive<u16> = 12_000..=20_000;
/// Ports of a name server, a controller and brokers, before the offset.
const PORTS: [u16; 10] = [9876, 9877, 9878, 10909, 10911, 10912, 5557, 11551, 12191, 12831];

/// `rocketmq-operator local up`: the cluster of a manifest as processes.
pub struct LocalMode {
    process: Process,
    directory: PathBuf,
    cluster: String,
    port_offset: u16,
}

impl LocalMode {
    /// Starts `deploy/samples/local.yaml`, a name server and a broker, with its data in `directory`
    /// and waits until it says that it is ready.
    pub fn start(directory: &Path) -> Result<Self> {
        let manifest = programs::root().join("deploy/samples/local.yaml");
        Self::start_with(&manifest, "local", directory)
    }

    /// As [`Self::start`] with the cluster of another manifest.
    pub fn start_with(manifest: &Path, cluster: &str, directory: &Path) -> Result<Self> {
        let port_offset = free_offset()?;
        let mut command = Command::new(programs::path("rocketmq-operator")?);
        command
            .args(["local", "up"])
            .arg(manifest)
            .args(["--port-offset", &port_offset.to_string(), "--data"])
            .arg(directory.join("data"));
        let mut process = Process::start("local-mode", &mut command, directory)?;
        let ready = format!("cluster {cluster} is ready");
        process.wait_for(&format!("'{ready}'"), LIMIT, |p| p.log().contains(&ready))?;
        let cluster = cluster.to_owned();
        Ok(Self { process, directory: directory.to_owned(), cluster, port_offset })
    }

    /// How clients reach it.
    pub fn target(&self) -> Target {
        Target {
            namesrv: format!("127.0.0.1:{}", 9876 + self.port_offset),
            broker: format!("127.0.0.1:{}", 10911 + self.port_offset),
            broker_name: format!("{}-0", self.cluster),
            cluster: self.cluster.clone(),
            dns: None,
            state: client_state(&self.directory),
        }
    }

    /// Where elections are made.
    pub fn controller(&self) -> String {
        format!("127.0.0.1:{}", 9878 + self.port_offset)
    }

    /// The directory with the data of its processes.
    pub fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// The child process of local mode that runs `program`, or has it among its arguments.
    pub fn pid(&self, program: &str) -> Result<Pid> {
        let children = self.process.children()?;
        let child = children.iter().find(|(_, command)| command.contains(program));
        Ok(child.with_context(|| format!("no {program} among {children:?}"))?.0)
    }

    /// Kills the child process of local mode that runs `program`.
    pub fn kill(&self, program: &str) -> Result<()> {
        self.signal(program, Signal::KILL)
    }

    /// Sends a signal to the child process of local mode that runs `program`.
    pub fn signal(&self, program: &str, signal: Signal) -> Result<()> {
        let pid = self.pid(program)?;
        kill_process(pid, signal).with_context(|| format!("no {signal:?} to {program}"))
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

/// An offset with which every port is free, so that what somebody runs here is not in the way.
fn free_offset() -> Result<u16> {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    PORT_OFFSETS
        .step_by(500)
        .find(|offset| PORTS.iter().all(|port| is_free(port + offset)))
        .context("no free ports on this machine")
}
