//! Keeps one process running: starts it, watches it, starts it again when it dies.
//!
//! A child holds the read end of a pipe from this process and ends when that closes
//! ([`EXIT_ON_STDIN_EOF`]), so it goes even if this process is killed. It is in a process group of
//! its own: Ctrl-C reaches only this process, which stops its children in order.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use daemon::shutdown::EXIT_ON_STDIN_EOF;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval, sleep, timeout};

use super::log_file::{self, LogFile};
use super::plan::ProcessSpec;
use super::probe;
use super::report::say;
use super::status::{Board, Phase};

/// Pause before a process that died is started again: this, doubled each time ...
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// ... up to this.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A process that lived so long has not died of what it died of before.
const LONG_LIFE: Duration = Duration::from_secs(60);
/// A process has this long to end when it is asked to; then it is killed.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Time between two looks whether a process is ready.
const PROBE_INTERVAL: Duration = Duration::from_millis(200);
/// The last lines of a dead process have this long to arrive.
const LAST_LINES_TIMEOUT: Duration = Duration::from_secs(1);

/// Variables of this process that its children see. Others could be keys of their configuration,
/// which the manifest alone shall decide.
const INHERITED: &[&str] =
    &["HOME", "LANG", "LOG_FORMAT", "PATH", "RUST_BACKTRACE", "RUST_LOG", "TMPDIR", "TZ"];

/// What a process should do. The generation is that of [`Board::wanted`].
#[derive(Debug, Clone)]
pub(super) enum Desired {
    Run { spec: Arc<ProcessSpec>, generation: u64 },
    Stop { name: String, generation: u64 },
}

enum Ended {
    /// Because something else is desired now.
    Replaced,
    Died {
        how: String,
        last_lines: Vec<String>,
        lived: Duration,
    },
    Refused {
        last_lines: Vec<String>,
    },
}

/// Runs until the sender of `desired` is gone, whose last word must be [`Desired::Stop`].
pub(super) async fn supervise(desired: watch::Receiver<Desired>, board: Board) {
    let mut supervisor = Supervisor { desired, board, pause: PAUSE_MIN };
    loop {
        match supervisor.wanted() {
            Desired::Run { spec, generation } => supervisor.run(&spec, generation).await,
            Desired::Stop { name, generation } => {
                supervisor.board.process(&name, generation, |process| {
                    process.phase = Phase::Stopped;
                });
                if supervisor.desired.changed().await.is_err() {
                    return;
                }
            }
        }
    }
}

struct Supervisor {
    desired: watch::Receiver<Desired>,
    board: Board,
    /// Before the next start after a death.
    pause: Duration,
}

impl Supervisor {
    fn wanted(&mut self) -> Desired {
        self.desired.borrow_and_update().clone()
    }

    /// One life of the process, and the pause after it.
    async fn run(&mut self, spec: &ProcessSpec, generation: u64) {
        let ended = match Running::start(spec, generation, &self.board) {
            Ok(running) => running.watch(&mut self.desired).await,
            Err(error) => Ended::Died {
                how: format!("could not be started: {error}"),
                last_lines: Vec::new(),
                lived: Duration::ZERO,
            },
        };
        match ended {
            Ended::Replaced => self.pause = PAUSE_MIN,
            Ended::Refused { last_lines } => self.refused(spec, generation, &last_lines).await,
            Ended::Died { how, last_lines, lived } => {
                if lived >= LONG_LIFE {
                    self.pause = PAUSE_MIN;
                }
                self.died(spec, generation, how, &last_lines).await;
            }
        }
    }

    /// The same configuration would be refused again: waits for another.
    async fn refused(&mut self, spec: &ProcessSpec, generation: u64, last_lines: &[String]) {
        say(&format!("{} refuses its configuration{}", spec.title(), shown(last_lines)));
        self.board.process(&spec.name, generation, |process| {
            process.phase = Phase::Refused;
            process.reason = last_lines.join("\n");
        });
        self.changed().await;
    }

    async fn died(
        &mut self,
        spec: &ProcessSpec,
        generation: u64,
        how: String,
        last_lines: &[String],
    ) {
        let (title, seconds) = (spec.title(), self.pause.as_secs());
        say(&format!("{title} {how}; starting it again in {seconds} s{}", shown(last_lines)));
        self.board.process(&spec.name, generation, |process| {
            process.phase = Phase::Waiting;
            process.reason = how;
            process.restarts += 1;
        });
        let pause = self.pause;
        tokio::select! {
            () = sleep(pause) => self.pause = (pause * 2).min(PAUSE_MAX),
            () = self.changed() => self.pause = PAUSE_MIN,
        }
    }

    async fn changed(&mut self) {
        // An error means that the sender is gone; `Stop` was its last word.
        let _ = self.desired.changed().await;
    }
}

fn shown(lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    format!("; the end of its log:\n    {}", lines.join("\n    "))
}

struct Running<'a> {
    spec: &'a ProcessSpec,
    generation: u64,
    board: &'a Board,
    child: Child,
    /// Held open for as long as the child shall live; `Child::wait` would close one left in it.
    _stdin: ChildStdin,
    begin: Instant,
    log: JoinHandle<Vec<String>>,
}

impl<'a> Running<'a> {
    fn start(spec: &'a ProcessSpec, generation: u64, board: &'a Board) -> io::Result<Self> {
        for file in [&spec.config_file, &spec.log_file] {
            if let Some(folder) = file.parent() {
                std::fs::create_dir_all(folder)?;
            }
        }
        std::fs::write(&spec.config_file, &spec.config_text)?;
        let log = LogFile::open(&spec.log_file)?;
        let mut child = spawn(spec)?;
        let missing = || io::Error::other("a child without its pipes");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let out = child.stdout.take().ok_or_else(missing)?;
        let err = child.stderr.take().ok_or_else(missing)?;
        board.process(&spec.name, generation, |process| {
            process.phase = Phase::Starting;
            process.reason.clear();
            process.pid = child.id();
        });
        let log = tokio::spawn(log_file::keep(log, out, err));
        let begin = Instant::now();
        Ok(Self { spec, generation, board, child, _stdin: stdin, begin, log })
    }

    /// Until it ends, by itself or because something else is desired.
    async fn watch(mut self, desired: &mut watch::Receiver<Desired>) -> Ended {
        let mut probes = interval(PROBE_INTERVAL);
        let status = loop {
            tokio::select! {
                status = self.child.wait() => break status,
                _ = desired.changed() => {
                    self.stop().await;
                    return Ended::Replaced;
                }
                _ = probes.tick() => {
                    let ready = probe::ready(self.spec.health).await;
                    self.note(ready);
                }
            }
        };
        self.note_end();
        let last_lines = timeout(LAST_LINES_TIMEOUT, self.log).await;
        let last_lines = last_lines.ok().and_then(Result::ok).unwrap_or_default();
        match status {
            Ok(status) if status.code() == Some(daemon::EXIT_CONFIG.into()) => {
                Ended::Refused { last_lines }
            }
            status => Ended::Died { how: how(status), last_lines, lived: self.begin.elapsed() },
        }
    }

    fn note(&self, ready: Result<(), String>) {
        let status = self.board.get();
        let Some(before) = status.process(&self.spec.name) else { return };
        let next = match (&ready, before.phase) {
            (Ok(()), _) => Phase::Ready,
            (Err(_), Phase::Ready | Phase::NotReady) => Phase::NotReady,
            (Err(_), phase) => phase,
        };
        let reason = ready.err().unwrap_or_default();
        // Said before others see it and say what follows from it.
        let title = self.spec.title();
        match next {
            _ if next == before.phase || before.generation != self.generation => {}
            Phase::Ready => say(&format!("{title} serves on {}", self.spec.address)),
            Phase::NotReady => say(&format!("{title} does not serve: {reason}")),
            _ => {}
        }
        self.board.process(&self.spec.name, self.generation, |process| {
            process.phase = next;
            process.reason = reason;
        });
    }

    fn note_end(&self) {
        self.board.process(&self.spec.name, self.generation, |process| process.pid = None);
    }

    /// Asks it to end, and kills it if it does not.
    async fn stop(&mut self) {
        self.board.process(&self.spec.name, self.generation, |process| {
            process.phase = Phase::Stopping;
            process.reason.clear();
        });
        // The id is that of our child until `wait` has returned: it cannot be another process.
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended just now, which is what is wanted.
            let _ = kill_process(pid, Signal::TERM);
        }
        if timeout(STOP_TIMEOUT, self.child.wait()).await.is_err() {
            let seconds = STOP_TIMEOUT.as_secs();
            say(&format!("{} did not end in {seconds} s and is killed", self.spec.title()));
            if let Err(error) = self.child.kill().await {
                tracing::warn!(%error, process = self.spec.name, "cannot kill a process");
            }
        }
        self.note_end();
    }
}

fn spawn(spec: &ProcessSpec) -> io::Result<Child> {
    let inherited = INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    Command::new(&spec.program)
        .arg("-c")
        .arg(&spec.config_file)
        .env_clear()
        .envs(inherited)
        .env(EXIT_ON_STDIN_EOF, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

fn how(status: io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => format!("ended ({status})"),
        Err(error) => format!("ended ({error})"),
    }
}
