//! The stock Java client: scenarios, the admin tool, and a program that counts what is lost.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;

use crate::process::wait_until;
use crate::programs;

/// The client lines that are run, newest first.
pub const VERSIONS: [&str; 2] = ["5.5.0", "4.9.8"];

/// How to reach a cluster with the stock clients.
#[derive(Clone)]
pub struct Target {
    /// `host:port` of a name server, or several with semicolons between.
    pub namesrv: String,
    /// The address that the first broker registers.
    pub broker: String,
    /// The name of the first broker group.
    pub broker_name: String,
    /// The name of the cluster.
    pub cluster: String,
    /// A cluster's DNS server, when names of it must be resolved.
    pub dns: Option<String>,
    /// Where the clients may write.
    pub state: PathBuf,
}

impl Target {
    /// A command that runs a script of `e2e/peers` against this cluster.
    pub fn script(&self, script: &str) -> Command {
        let directory = programs::root().join("e2e");
        let path = directory.join("peers").join(script);
        let mut command = match &self.dns {
            None => Command::new(path),
            Some(server) => {
                let mut command = Command::new(directory.join("kubernetes/with_dns.sh"));
                command.arg(server).arg(path);
                command
            }
        };
        command
            .env("NAMESRV_ADDR", &self.namesrv)
            .env("BROKER_ADDR", &self.broker)
            .env("BROKER_NAME", &self.broker_name)
            .env("CLUSTER", &self.cluster)
            .env("STATE", &self.state);
        command
    }

    /// A command that runs a program of `e2e/peers/java` with a version of the client.
    pub fn java(&self, version: &str, program: &str) -> Command {
        let mut command = self.script("java/run.sh");
        command.args([version, program]);
        command
    }

    /// Runs `mqadmin` once and returns what it printed.
    pub fn mqadmin(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.java(VERSIONS[0], "mqadmin");
        command.args(arguments).args(["-n", &self.namesrv]);
        crate::process::output(&mut command)
    }
}

/// Runs scenarios and prints each result; fails if one failed or fewer than `names` ran.
pub fn run_scenarios(mut command: Command, names: &[String]) -> Result<()> {
    let output = command
        .env("ONLY", names.join("|"))
        .stderr(Stdio::null()) // the clients write warnings there at each shutdown
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (passed, failed): (Vec<&str>, Vec<&str>) = text
        .lines()
        .filter(|line| line.starts_with("ok ") || line.starts_with("not ok "))
        .partition(|line| line.starts_with("ok "));
    for line in passed.iter().chain(&failed) {
        println!("    {line}");
    }
    ensure!(failed.is_empty(), "{} scenarios failed:\n{}", failed.len(), failed.join("\n"));
    ensure!(passed.len() == names.len(), "{} of {} scenarios passed", passed.len(), names.len());
    ensure!(output.status.success(), "{command:?} failed ({})", output.status);
    Ok(())
}

/// What [`SendConsume`] counted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Sends acknowledged as SEND_OK.
    pub acked: u64,
    /// Sends that failed after the client's own retries.
    pub failed: u64,
    /// Different messages consumed.
    pub consumed: u64,
    /// Acknowledged messages that were never consumed.
    pub lost: u64,
    /// Messages consumed more than once.
    pub duplicated: u64,
    /// The longest time between two acknowledgements.
    pub longest_pause: Duration,
    /// Acknowledged messages by broker name.
    pub brokers: BTreeMap<String, u64>,
}

impl Report {
    fn parse(line: &str) -> Result<Self> {
        let mut report = Self::default();
        for word in line.split_whitespace().skip(1) {
            let (key, value) = word.split_once('=').context("no '='")?;
            let number = || value.parse::<u64>().with_context(|| format!("{key}={value}"));
            match key {
                "acked" => report.acked = number()?,
                "failed" => report.failed = number()?,
                "consumed" => report.consumed = number()?,
                "lost" => report.lost = number()?,
                "duplicated" => report.duplicated = number()?,
                "longest_pause_ms" => report.longest_pause = Duration::from_millis(number()?),
                "brokers" => report.brokers = parse_brokers(value)?,
                _ => bail!("unknown word {word}"),
            }
        }
        Ok(report)
    }
}

fn parse_brokers(text: &str) -> Result<BTreeMap<String, u64>> {
    let mut brokers = BTreeMap::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (name, count) = part.rsplit_once(':').context("no ':'")?;
        brokers.insert(name.to_owned(), count.parse()?);
    }
    Ok(brokers)
}

/// A running `SendConsume`: a stock producer and consumer on a topic of their own.
pub struct SendConsume {
    child: Child,
    input: Option<ChildStdin>,
    lines: Arc<Lines>,
    reader: Option<JoinHandle<()>>,
}

impl SendConsume {
    /// Starts sending `count` messages, or until [`Self::finish`] when it is 0; `rate` is messages
    /// a second, 0 for as many as possible. Returns once the first message went through.
    pub fn start(target: &Target, topic: &str, count: u64, rate: u32) -> Result<Self> {
        std::fs::create_dir_all(&target.state)?;
        let errors = std::fs::File::options()
            .create(true)
            .append(true)
            .open(target.state.join("send_consume.err"))?;
        let mut child = target
            .java(VERSIONS[0], "SendConsume")
            .args([topic, &count.to_string(), &rate.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .context("cannot start SendConsume")?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("no standard output")?;
        let lines = Arc::new(Lines::default());
        let reader = std::thread::spawn({
            let lines = Arc::clone(&lines);
            move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    lines.push(line);
                }
            }
        });
        let running = Self { child, input, lines, reader: Some(reader) };
        running.wait_for_line("ready", Duration::from_secs(180))?;
        Ok(running)
    }

    /// Waits until a line that starts with `prefix` was printed.
    pub fn wait_for_line(&self, prefix: &str, limit: Duration) -> Result<()> {
        wait_until(&format!("'{prefix}' from SendConsume"), limit, || {
            Ok(self.lines.last(prefix).is_some())
        })?;
        Ok(())
    }

    /// Messages acknowledged so far, as of the last progress line (every 5 s).
    pub fn acked(&self) -> u64 {
        let last = self.lines.last("progress ");
        let word = last.iter().flat_map(|line| line.split(' ')).find(|w| w.starts_with("acked="));
        word.and_then(|word| word["acked=".len()..].parse().ok()).unwrap_or(0)
    }

    /// Waits until messages sent from now on are acknowledged.
    pub fn wait_for_flow(&self, limit: Duration) -> Result<()> {
        let before = self.acked();
        wait_until("messages flow", limit, || Ok(self.acked() > before))?;
        Ok(())
    }

    /// Ends the sending, waits until everything acknowledged was consumed, and returns the count.
    pub fn finish(mut self) -> Result<Report> {
        drop(self.input.take());
        self.child.wait()?;
        if let Some(reader) = self.reader.take() {
            reader.join().ok().context("the reader of SendConsume failed")?;
        }
        for line in self.lines.all("failed ") {
            println!("    {line}");
        }
        let line = self.lines.last("result ").context("SendConsume ended without a result")?;
        println!("    {line}");
        Report::parse(&line)
    }
}

impl Drop for SendConsume {
    fn drop(&mut self) {
        // It has ended already after `finish`.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The state directory for clients under a test's own directory.
pub fn client_state(directory: &Path) -> PathBuf {
    directory.join("clients")
}

/// The lines that a program has printed so far.
#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl Lines {
    fn push(&self, line: String) {
        self.0.lock().push(line);
    }

    fn last(&self, prefix: &str) -> Option<String> {
        self.0.lock().iter().rfind(|line| line.starts_with(prefix)).cloned()
    }

    fn all(&self, prefix: &str) -> Vec<String> {
        self.0.lock().iter().filter(|line| line.starts_with(prefix)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_line_is_read() {
        let line = "result acked=12 failed=1 consumed=13 lost=0 duplicated=2 \
                    longest_pause_ms=1500 brokers=a-0:5,a-1:7";
        let report = Report::parse(line).unwrap();
        assert_eq!((report.acked, report.failed, report.consumed), (12, 1, 13));
        assert_eq!((report.lost, report.duplicated), (0, 2));
        assert_eq!(report.longest_pause, Duration::from_millis(1500));
        assert_eq!(report.brokers["a-1"], 7);
        assert!(Report::parse("result acked=x").is_err());
        assert!(Report::parse("result brokers=").unwrap().brokers.is_empty());
    }
}
