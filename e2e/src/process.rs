//! Child processes with log files, and waiting on conditions.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(100);
/// Lines of a log shown when its process did something wrong.
const LOG_LINES_SHOWN: usize = 30;

/// A child process whose output goes to a file; it is killed when the value is dropped.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`; its standard output and error go to `NAME.log` in `directory`.
    pub fn start(name: &str, command: &mut Command, directory: &Path) -> Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let out = File::options().create(true).append(true).open(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("cannot start {name}: {command:?}"))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).with_context(|| format!("cannot signal {}", self.name))
    }

    /// Kills the process as a crash would, and reaps it.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks the process to end (SIGTERM) and waits for it.
    pub fn stop(&mut self, limit: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        let began = Instant::now();
        while began.elapsed() < limit {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(POLL);
        }
        bail!("{} did not end {limit:?} after SIGTERM:\n{}", self.name, self.log_tail())
    }

    /// The child processes of the process, each with its command line.
    pub fn children(&self) -> Result<Vec<(Pid, String)>> {
        let mut found = Vec::new();
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let children = fs::read_to_string(task?.path().join("children"))?;
            for id in children.split_whitespace() {
                let pid = Pid::from_raw(id.parse()?).context("process id 0")?;
                let command = fs::read_to_string(format!("/proc/{id}/cmdline"))?;
                found.push((pid, command.replace('\0', " ")));
            }
        }
        Ok(found)
    }

    /// Whether the process still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The whole log.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The last lines of the log.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }

    /// Waits for a condition, and fails early if the process ends.
    pub fn wait_for(
        &mut self,
        what: &str,
        limit: Duration,
        mut condition: impl FnMut(&Self) -> bool,
    ) -> Result<()> {
        let began = Instant::now();
        while !condition(self) {
            if !self.is_running() {
                bail!("{} ended while waiting for {what}:\n{}", self.name, self.log_tail());
            }
            if began.elapsed() > limit {
                bail!("no {what} from {} after {limit:?}:\n{}", self.name, self.log_tail());
            }
            thread::sleep(POLL);
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `condition` holds; an error of it counts as "not yet" and is shown at the limit.
pub fn wait_until(
    what: &str,
    limit: Duration,
    mut condition: impl FnMut() -> Result<bool>,
) -> Result<Duration> {
    let began = Instant::now();
    loop {
        let outcome = condition();
        if matches!(outcome, Ok(true)) {
            return Ok(began.elapsed());
        }
        if began.elapsed() > limit {
            match outcome {
                Err(error) => bail!("not within {limit:?}: {what} ({error:#})"),
                Ok(_) => bail!("not within {limit:?}: {what}"),
            }
        }
        thread::sleep(POLL);
    }
}

/// Runs a command to its end and returns what it printed; its standard error is part of the
/// failure's message.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?} failed ({}):\n{text}{errors}", output.status);
    }
    Ok(text)
}

/// Runs a command to its end with `input` on standard input.
pub fn output_with_input(command: &mut Command, input: &str) -> Result<String> {
    let mut file = tempfile::tempfile()?;
    std::io::Write::write_all(&mut file, input.as_bytes())?;
    std::io::Seek::rewind(&mut file)?;
    output(command.stdin(file))
}

/// Fetches `http://127.0.0.1:PORT/PATH`; `Ok` only for status 200.
pub fn http_get(address: &str, path: &str) -> Result<String> {
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    std::io::Write::write_all(&mut stream, request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    if !head.lines().next().unwrap_or_default().contains(" 200 ") {
        bail!("{address}{path} answered {head}");
    }
    Ok(body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_logs_and_ends_at_sigterm() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo hello; exec sleep 60"]);
        let mut process = Process::start("sleeper", &mut command, directory.path()).unwrap();
        let limit = Duration::from_secs(10);
        process.wait_for("greeting", limit, |p| p.log().contains("hello")).unwrap();
        assert!(process.is_running());
        process.stop(limit).unwrap();
        assert!(!process.is_running());
    }

    #[test]
    fn a_failed_command_says_what_it_printed() {
        let error = output(Command::new("sh").args(["-c", "echo bad luck >&2; exit 3"]));
        assert!(error.unwrap_err().to_string().contains("bad luck"));
        assert_eq!(
            output_with_input(&mut Command::new("cat"), "in and out").unwrap(),
            "in and out"
        );
    }
}
