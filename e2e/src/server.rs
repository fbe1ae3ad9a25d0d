//! A name server and a broker as processes of their own, which a test kills, pauses, stops and
//! starts again on the same directory.

use std::fmt::Display;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use crate::process::{Process, http_get};
use crate::programs;
use crate::random::Random;

/// How often a start is looked at.
const POLL: Duration = Duration::from_millis(3);
/// Time for a server to end.
const END: Duration = Duration::from_secs(40);
/// Ports from here on are given to clients by the system.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// A server that is started with keys of its configuration.
pub struct Server {
    name: String,
    program: PathBuf,
    directory: PathBuf,
    keys: Vec<(String, String)>,
    address: String,
    health: String,
    process: Option<Process>,
}

impl Server {
    /// A name server; not started yet. Its log goes to `directory`.
    pub fn namesrv(directory: &Path) -> Result<Self> {
        let mut server = Self::new("rocketmq-namesrv", "namesrv", directory)?;
        server.set("healthPort", &server.health_port());
        server.set("kvConfigPath", &directory.join("kvConfig.json").display());
        Ok(server)
    }

    /// A broker named `broker-a` that registers at `name_server` and keeps its data in `store`;
    /// not started yet. Its log goes to `directory`.
    pub fn broker(directory: &Path, store: &Path, name_server: &str) -> Result<Self> {
        let mut server = Self::new("rocketmq-broker", "broker", directory)?;
        server.set("metricsPromExporterPort", &server.health_port());
        server.set("storePathRootDir", &store.display());
        server.set("namesrvAddr", &name_server);
        server.set("brokerName", &"broker-a");
        server.set("brokerIP1", &"127.0.0.1");
        server.set("fastListenPort", &free_port()?);
        server.set("haListenPort", &free_port()?);
        server.set("flushDiskType", &"SYNC_FLUSH");
        Ok(server)
    }

    fn new(program: &str, name: &str, directory: &Path) -> Result<Self> {
        let (port, health) = (free_port()?, free_port()?);
        let mut server = Self {
            name: name.to_owned(),
            program: programs::path(program)?,
            directory: directory.to_owned(),
            keys: Vec::new(),
            address: format!("127.0.0.1:{port}"),
            health: format!("127.0.0.1:{health}"),
            process: None,
        };
        server.set("bindAddress", &"127.0.0.1");
        server.set("listenPort", &port);
        Ok(server)
    }

    fn health_port(&self) -> String {
        self.health.rsplit(':').next().unwrap_or_default().to_owned()
    }

    /// Sets a key for the next start.
    pub fn set(&mut self, key: &str, value: &dyn Display) {
        self.keys.retain(|(other, _)| other != key);
        self.keys.push((key.to_owned(), value.to_string()));
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Starts the process and does not wait for anything.
    pub fn spawn(&mut self) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.directory);
        for (key, value) in &self.keys {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        self.process = Some(Process::start(&self.name, &mut command, &self.directory)?);
        Ok(())
    }

    /// Starts it and waits until it says that it is ready; returns how long that took.
    pub fn start(&mut self, limit: Duration) -> Result<Duration> {
        let began = Instant::now();
        self.spawn()?;
        self.wait_ready(limit)?;
        Ok(began.elapsed())
    }

    /// Waits until it says that it is ready.
    pub fn wait_ready(&mut self, limit: Duration) -> Result<()> {
        let began = Instant::now();
        while http_get(&self.health, "/readyz").is_err() {
            let process = self.process.as_mut().context("it was not started")?;
            if !process.is_running() {
                bail!("{} ended while it started:\n{}", self.name, process.log_tail());
            }
            if began.elapsed() > limit {
                bail!("{} is not ready after {limit:?}:\n{}", self.name, process.log_tail());
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Whether the process runs.
    pub fn is_running(&mut self) -> bool {
        self.process.as_mut().is_some_and(Process::is_running)
    }

    /// Sends a signal to it.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.as_ref().context("it does not run")?.signal(signal)
    }

    /// Kills it as a crash would (SIGKILL).
    pub fn kill(&mut self) -> Result<()> {
        self.process.take().map_or(Ok(()), |mut process| process.kill())
    }

    /// Asks it to end (SIGTERM) and waits for that.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        let mut process = self.process.take().context("it does not run")?;
        let status = process.stop(END)?;
        ensure!(status.success(), "{} ended with {status}:\n{}", self.name, process.log_tail());
        Ok(status)
    }

    /// One figure of `/metrics`, summed over its series; 0 when it has none.
    pub fn metric(&self, name: &str) -> Result<f64> {
        let text = http_get(&self.health, "/metrics")?;
        let values = text.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let series = series.split('{').next()?;
            if series == name { value.parse::<f64>().ok() } else { None }
        });
        Ok(values.sum())
    }

    /// Everything it has printed since the first start.
    pub fn log(&self) -> String {
        let file = self.directory.join(format!("{}.log", self.name));
        std::fs::read_to_string(file).unwrap_or_default()
    }

    /// The last lines of what it has printed.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

/// A port on which nothing listens, below those that the system gives to clients: a client must not
/// come to sit on it while the server is down.
pub fn free_port() -> Result<u16> {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos() as u64;
    let mut random = Random::new(seed);
    let span = u64::from(PORTS.end - PORTS.start);
    for _ in 0..1_000 {
        let port = PORTS.start + u16::try_from(random.below(span)).unwrap_or(0);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port between {} and {}", PORTS.start, PORTS.end)
}
