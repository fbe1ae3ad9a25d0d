//! What a local cluster does: shared by its processes' supervisors, written to a file for
//! `local status`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::plan::{Kind, ProcessSpec};

const FILE: &str = "status.json";

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Runs, not ready yet.
    Starting,
    Ready,
    /// Was ready and is not now.
    NotReady,
    /// Died; will be started again.
    Waiting,
    /// Refused its configuration; a change of the manifest starts it again.
    Refused,
    Stopping,
    Stopped,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessStatus {
    pub name: String,
    pub kind: Kind,
    pub phase: Phase,
    /// Why it is in this phase, if that needs a reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How often it was started again after it died.
    pub restarts: u32,
    /// Where clients connect.
    pub address: SocketAddr,
    /// Where /metrics, /healthz and /readyz are.
    pub health: SocketAddr,
    pub log_file: PathBuf,
    /// Which of the specs that it was given it is about; rises with each.
    #[serde(skip)]
    pub(super) generation: u64,
}

/// A cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    pub cluster: String,
    pub manifest: PathBuf,
    pub data: PathBuf,
    /// Name servers, as clients' `namesrvAddr` takes them.
    pub namesrv_addr: String,
    /// Why what runs is not what the manifest says; empty if it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub problem: String,
    pub processes: Vec<ProcessStatus>,
}

impl Status {
    pub(super) fn process(&self, name: &str) -> Option<&ProcessStatus> {
        self.processes.iter().find(|process| process.name == name)
    }

    /// Everything that the manifest wants runs and serves.
    pub fn is_ready(&self) -> bool {
        self.problem.is_empty()
            && !self.processes.is_empty()
            && self.processes.iter().all(|process| process.phase == Phase::Ready)
    }
}

/// The status in the making; clones share it.
#[derive(Debug, Clone)]
pub(super) struct Board {
    status: watch::Sender<Status>,
}

impl Board {
    pub(super) fn new(status: Status) -> Self {
        Self { status: watch::Sender::new(status) }
    }

    pub(super) fn get(&self) -> Status {
        self.status.borrow().clone()
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Changes the status; watchers are told if it became another.
    pub(super) fn update(&self, change: impl FnOnce(&mut Status)) {
        self.status.send_if_modified(|status| {
            let before = status.clone();
            change(status);
            *status != before
        });
    }

    /// Adds a process, or says that it is given another spec.
    pub(super) fn wanted(&self, spec: &ProcessSpec, generation: u64) {
        self.update(|status| {
            let known = status.processes.iter_mut().find(|process| process.name == spec.name);
            if let Some(known) = known {
                known.generation = generation;
                known.phase = Phase::Starting;
                known.reason.clear();
                return;
            }
            status.processes.push(ProcessStatus {
                name: spec.name.clone(),
                kind: spec.kind,
                phase: Phase::Starting,
                reason: String::new(),
                pid: None,
                restarts: 0,
                address: spec.address,
                health: spec.health,
                log_file: spec.log_file.clone(),
                generation,
            });
            status.processes.sort_by_key(|process| (process.kind, process.address));
        });
    }

    /// Changes what is known of a process, unless it was given a newer spec meanwhile: what the
    /// one before it did says nothing of the new one.
    pub(super) fn process(
        &self,
        name: &str,
        generation: u64,
        change: impl FnOnce(&mut ProcessStatus),
    ) {
        self.update(|status| {
            let found = status
                .processes
                .iter_mut()
                .find(|process| process.name == name && process.generation == generation);
            if let Some(process) = found {
                change(process);
            }
        });
    }

    pub(super) fn remove(&self, name: &str) {
        self.update(|status| status.processes.retain(|process| process.name != name));
    }
}

/// Keeps the status file in step until the board is gone. Losing it loses no data, so a full disk
/// only makes it stale.
pub(super) async fn keep_file(mut status: watch::Receiver<Status>, dir: PathBuf) {
    loop {
        let current = status.borrow_and_update().clone();
        if let Err(error) = write(&current, &dir) {
            tracing::warn!(%error, "cannot write {}", dir.join(FILE).display());
        }
        if status.changed().await.is_err() {
            return;
        }
    }
}

fn write(status: &Status, dir: &Path) -> std::io::Result<()> {
    let (path, new) = (dir.join(FILE), dir.join(format!("{FILE}.new")));
    std::fs::write(&new, serde_json::to_vec_pretty(status)?)?;
    std::fs::rename(new, path)
}

/// The status file of a directory; `None` if no cluster ever ran there.
pub(super) fn read(dir: &Path) -> std::io::Result<Option<Status>> {
    match std::fs::read(dir.join(FILE)) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn empty() -> Status {
        Status {
            cluster: "local".to_owned(),
            manifest: "c.yaml".into(),
            data: "/data".into(),
            namesrv_addr: "127.0.0.1:9876".to_owned(),
            problem: String::new(),
            processes: Vec::new(),
        }
    }

    pub(in super::super) fn spec(name: &str, kind: Kind, port: u16) -> ProcessSpec {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        ProcessSpec {
            kind,
            name: name.to_owned(),
            program: "/program".into(),
            config_file: "/config".into(),
            config_text: String::new(),
            ports: vec![port],
            address,
            health: address,
            log_file: "/log".into(),
            replica: None,
        }
    }

    #[test]
    fn the_board_keeps_order_and_tells_changes() {
        let board = Board::new(empty());
        let mut seen = board.subscribe();
        board.wanted(&spec("b-1", Kind::Broker, 10921), 1);
        board.wanted(&spec("b-0", Kind::Broker, 10911), 1);
        board.wanted(&spec("n", Kind::NameServer, 9876), 1);
        let names = |status: &Status| -> Vec<_> {
            status.processes.iter().map(|process| process.name.clone()).collect()
        };
        assert_eq!(names(&board.get()), ["n", "b-0", "b-1"]);
        assert!(!board.get().is_ready());
        for name in ["n", "b-0", "b-1"] {
            board.process(name, 1, |process| process.phase = Phase::Ready);
        }
        assert!(board.get().is_ready());
        seen.mark_unchanged();
        board.process("n", 1, |process| process.phase = Phase::Ready);
        board.process("n", 0, |process| process.phase = Phase::Stopped);
        assert_eq!(seen.has_changed().ok(), Some(false));
        board.remove("b-0");
        assert_eq!(names(&board.get()), ["n", "b-1"]);
        board.update(|status| status.problem = "wrong".to_owned());
        assert!(!board.get().is_ready());
    }

    #[test]
    fn the_file_is_read_back() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(read(dir.path()).expect("none"), None);
        let board = Board::new(empty());
        board.wanted(&spec("n", Kind::NameServer, 9876), 0);
        write(&board.get(), dir.path()).expect("written");
        assert_eq!(read(dir.path()).expect("read"), Some(board.get()));
    }
}
