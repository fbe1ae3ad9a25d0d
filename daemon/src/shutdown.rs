//! The end of a process: one token that says stop, one tracker of all tasks, drain steps in order.

use std::future::Future;
use std::io::Read as _;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// With this variable set to `1` a process ends in order when its standard input is closed: a
/// parent that holds the other end of the pipe takes its children along, however it dies.
pub const EXIT_ON_STDIN_EOF: &str = "EXIT_ON_STDIN_EOF";

/// Says stop to the whole process, and keeps its tasks.
#[derive(Clone, Default)]
pub struct Shutdown {
    token: CancellationToken,
    tasks: TaskTracker,
    failed: Arc<AtomicBool>,
}

impl Shutdown {
    /// Nothing but [`Shutdown::stop`] will end it; for tests and embedded servers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops at SIGTERM or SIGINT, exits at once at the second one, and obeys
    /// [`EXIT_ON_STDIN_EOF`]. Call it once, in a tokio runtime.
    pub fn on_signals() -> std::io::Result<Self> {
        let shutdown = Self::new();
        let signals = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        // Not tracked: it waits for a signal for as long as the process lives.
        drop(tokio::spawn(obey_signals(signals, shutdown.token.clone())));
        if std::env::var(EXIT_ON_STDIN_EOF).is_ok_and(|value| value == "1") {
            stop_at_end_of_input(shutdown.token.clone())?;
        }
        Ok(shutdown)
    }

    /// Cancelled when the process should end; hand children of it to parts that end earlier.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Begins the end. Idempotent.
    pub fn stop(&self) {
        self.token.cancel();
    }

    /// Begins the end, which is a failure: whoever runs the process should start it anew.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
        self.token.cancel();
    }

    /// Returns when the process should end.
    pub async fn requested(&self) {
        self.token.cancelled().await;
    }

    /// Runs a task that the process needs. It should end by itself soon after
    /// [`Shutdown::token`] is cancelled. A panic in it stops the process (in order, with
    /// [`crate::EXIT_SOFTWARE`]): half a server is worse than a restarted one.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let shutdown = self.clone();
        self.tasks.spawn(async move {
            let ended = tokio::spawn(task).await;
            if ended.is_err_and(|error| error.is_panic()) {
                tracing::error!(task = name, "task panicked, stopping");
                shutdown.fail();
            } else {
                tracing::debug!(task = name, "task ended");
            }
        });
    }

    /// Waits for all tasks of [`Shutdown::spawn`]; `false` if some did not end within `bound`.
    pub async fn tasks_ended(&self, bound: Duration) -> bool {
        self.tasks.close();
        timeout(bound, self.tasks.wait()).await.is_ok()
    }

    /// Success, unless a task panicked or the end was a failure.
    pub fn exit_code(&self) -> ExitCode {
        match self.failed.load(Ordering::Relaxed) {
            true => ExitCode::from(crate::EXIT_SOFTWARE),
            false => ExitCode::SUCCESS,
        }
    }
}

async fn obey_signals((mut terminate, mut interrupt): (Signal, Signal), token: CancellationToken) {
    let mut next = async || {
        tokio::select! {
            _ = terminate.recv() => ("SIGTERM", 128 + 15),
            _ = interrupt.recv() => ("SIGINT", 128 + 2),
        }
    };
    let (name, _) = next().await;
    tracing::info!(signal = name, "stopping; a second signal exits at once");
    token.cancel();
    let (name, code) = next().await;
    tracing::warn!(signal = name, "exiting at once");
    std::process::exit(code);
}

/// A thread of its own: a blocked read of standard input would keep tokio's runtime from ending.
fn stop_at_end_of_input(token: CancellationToken) -> std::io::Result<()> {
    let watch = move || {
        let mut buffer = [0; 64];
        let mut stdin = std::io::stdin().lock();
        loop {
            match stdin.read(&mut buffer) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        if !token.is_cancelled() {
            tracing::info!("standard input was closed by the parent process, stopping");
            token.cancel();
        }
    };
    std::thread::Builder::new().name("stdin-watch".to_owned()).spawn(watch).map(drop)
}

/// Steps that end a server, one after the other, each within its bound.
///
/// The usual order: stop accepting, fail readiness, finish what is in flight, unregister, flush,
/// checkpoint.
#[derive(Default)]
pub struct Drain {
    steps: Vec<Step>,
}

struct Step {
    name: &'static str,
    bound: Duration,
    action: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Drain {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a step; nothing of it runs before [`Drain::run`] reaches it.
    #[must_use]
    pub fn step(
        mut self,
        name: &'static str,
        bound: Duration,
        action: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        self.steps.push(Step { name, bound, action: Box::pin(action) });
        self
    }

    /// Runs all steps in order. A step that takes too long is given up and named in the answer;
    /// the later ones still run.
    pub async fn run(self) -> Vec<&'static str> {
        let mut late = Vec::new();
        for Step { name, bound, action } in self.steps {
            let begin = Instant::now();
            if timeout(bound, action).await.is_ok() {
                tracing::debug!(step = name, took_ms = begin.elapsed().as_millis(), "drained");
            } else {
                tracing::warn!(step = name, bound_ms = bound.as_millis(), "drain step given up");
                late.push(name);
            }
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn drain_keeps_order_and_bounds() {
        let done = Arc::new(Mutex::new(Vec::new()));
        let note = |name: &'static str| {
            let done = done.clone();
            async move { done.lock().push(name) }
        };
        let begin = Instant::now();
        let late = Drain::new()
            .step("accept", Duration::from_secs(1), note("accept"))
            .step("in flight", Duration::from_secs(2), std::future::pending())
            .step("flush", Duration::from_secs(1), note("flush"))
            .run()
            .await;
        assert_eq!(late, ["in flight"]);
        assert_eq!(*done.lock(), ["accept", "flush"]);
        assert_eq!(begin.elapsed(), Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_end_with_the_token() {
        let shutdown = Shutdown::new();
        let token = shutdown.token().clone();
        shutdown.spawn("waits", async move { token.cancelled().await });
        assert!(!shutdown.tasks_ended(Duration::from_secs(1)).await);
        shutdown.stop();
        shutdown.requested().await;
        assert!(shutdown.tasks_ended(Duration::from_secs(1)).await);
        assert_eq!(shutdown.exit_code(), ExitCode::SUCCESS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_stops_the_process() {
        let shutdown = Shutdown::new();
        shutdown.spawn("breaks", async { panic!("broken on purpose") });
        shutdown.requested().await;
        assert!(shutdown.tasks_ended(Duration::from_secs(1)).await);
        assert_eq!(shutdown.exit_code(), ExitCode::from(crate::EXIT_SOFTWARE));
    }
}
