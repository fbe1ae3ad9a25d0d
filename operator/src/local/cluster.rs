//! The processes of one cluster, brought to what a plan says without more disturbance than needed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use daemon::shutdown::Shutdown;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::elections::Elections;
use super::plan::{Kind, Plan, ProcessSpec};
use super::probe;
use super::report::say;
use super::status::{Board, Phase, ProcessStatus, Status};
use super::supervisor::{Desired, STOP_TIMEOUT, supervise};

/// After each such time of waiting, people are told for what.
const STILL_WAITING: Duration = Duration::from_secs(15);
/// Ports that processes of a killed `local up` still hold are free after this long.
const PORT_ATTEMPTS: u32 = 15;
const PORT_PAUSE: Duration = Duration::from_millis(200);

/// Why a plan is not carried out. What runs stays as it is.
#[derive(Debug, thiserror::Error)]
pub enum RolloutError {
    #[error(
        "port {port}, which {title} needs, is in use by another program: stop that (`ss -ltnp \
         'sport = :{port}'` shows it), or move this cluster's ports with --port-offset N"
    )]
    PortInUse { port: u16, title: String },
    #[error("the controller cannot start: {0}")]
    Controller(std::io::Error),
    #[error("{title} refuses its configuration: {reason}")]
    Refused { title: String, reason: String },
}

struct Member {
    spec: Arc<ProcessSpec>,
    generation: u64,
    desired: watch::Sender<Desired>,
    stopping: bool,
}

impl Member {
    fn stop(&mut self) {
        self.stopping = true;
        let (name, generation) = (self.spec.name.clone(), self.generation);
        self.desired.send_replace(Desired::Stop { name, generation });
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.stop();
    }
}

pub(super) struct Cluster {
    board: Board,
    shutdown: Shutdown,
    data: PathBuf,
    members: BTreeMap<String, Member>,
    elections: Elections,
    generation: u64,
}

impl Cluster {
    pub(super) fn new(board: Board, data: PathBuf, shutdown: Shutdown) -> Self {
        let elections = Elections::new(shutdown.clone());
        Self { board, shutdown, data, members: BTreeMap::new(), elections, generation: 0 }
    }

    /// Name servers before brokers; new processes all at once, changed ones one at a time with
    /// everything else ready; what is not in the plan goes last. May be dropped at any time and
    /// called again, with the same or another plan.
    pub(super) async fn apply(&mut self, plan: &Plan) -> Result<(), RolloutError> {
        self.check_ports(plan).await?;
        self.elections.apply(plan, &self.data).await.map_err(RolloutError::Controller)?;
        for specs in [&plan.name_servers, &plan.brokers] {
            let new: Vec<_> =
                specs.iter().filter(|spec| !self.members.contains_key(&spec.name)).collect();
            for spec in &new {
                say(&format!("starting {}", spec.title()));
                self.set(spec);
            }
            for spec in new {
                self.ready(&spec.name).await?;
            }
            self.roll(specs).await?;
        }
        let surplus: Vec<String> = self
            .members
            .keys()
            .filter(|name| plan.processes().all(|spec| spec.name != **name))
            .cloned()
            .collect();
        for name in surplus {
            self.remove(&name).await;
        }
        Ok(())
    }

    /// Brokers first, so that they can tell the name servers that they go.
    pub(super) async fn stop(&mut self) {
        if !self.members.is_empty() {
            say("stopping");
        }
        self.elections.stop().await;
        for kind in [Kind::Broker, Kind::NameServer] {
            let of_kind = self.members.values_mut().filter(|member| member.spec.kind == kind);
            let mut names = Vec::new();
            for member in of_kind {
                member.stop();
                names.push(member.spec.name.clone());
            }
            self.stopped(&names).await;
        }
        self.members.clear();
    }

    async fn roll(&mut self, specs: &[Arc<ProcessSpec>]) -> Result<(), RolloutError> {
        let mut changed: Vec<_> = specs.iter().filter(|spec| self.is_changed(spec)).collect();
        // First those that serve nobody anyway; they may be what the change is to cure. Masters
        // last, when those who take over run what they shall run.
        changed.sort_by_key(|spec| (self.is_ready(&spec.name), self.elections.is_master(spec)));
        for spec in changed {
            if self.is_ready(&spec.name) {
                let others: Vec<_> =
                    self.members.keys().filter(|name| **name != spec.name).cloned().collect();
                for other in others {
                    self.ready(&other).await?;
                }
                self.elections.hand_over(spec).await;
            }
            say(&format!("restarting {}: its configuration changed", spec.title()));
            self.set(spec);
            self.ready(&spec.name).await?;
            self.elections.caught_up(spec).await;
        }
        Ok(())
    }

    fn is_changed(&self, spec: &ProcessSpec) -> bool {
        self.members.get(&spec.name).is_some_and(|member| member.stopping || *member.spec != *spec)
    }

    fn is_ready(&self, name: &str) -> bool {
        self.board.get().process(name).is_some_and(|process| process.phase == Phase::Ready)
    }

    /// Starts a process, or starts it again with another spec.
    fn set(&mut self, spec: &Arc<ProcessSpec>) {
        self.generation += 1;
        let generation = self.generation;
        self.board.wanted(spec, generation);
        let run = Desired::Run { spec: spec.clone(), generation };
        match self.members.get_mut(&spec.name) {
            Some(member) => {
                member.spec = spec.clone();
                member.generation = generation;
                member.stopping = false;
                member.desired.send_replace(run);
            }
            None => {
                let desired = watch::Sender::new(run);
                let supervised = supervise(desired.subscribe(), self.board.clone());
                self.shutdown.spawn("process supervisor", supervised);
                let spec = spec.clone();
                let member = Member { spec, generation, desired, stopping: false };
                self.members.insert(member.spec.name.clone(), member);
            }
        }
    }

    async fn remove(&mut self, name: &str) {
        let Some(member) = self.members.get_mut(name) else { return };
        if !member.stopping {
            let title = member.spec.title();
            say(&format!("stopping {title}: the manifest has no such one any more"));
            member.stop();
        }
        self.stopped(&[name.to_owned()]).await;
        self.members.remove(name);
        self.board.remove(name);
    }

    /// Waits until a process serves with its newest spec.
    async fn ready(&self, name: &str) -> Result<(), RolloutError> {
        let Some(member) = self.members.get(name) else { return Ok(()) };
        let mut status = self.board.subscribe();
        let settled = |process: &ProcessStatus| {
            process.generation == member.generation
                && matches!(process.phase, Phase::Ready | Phase::Refused)
        };
        loop {
            let wait = status.wait_for(|status| status.process(name).is_none_or(settled));
            let process = match timeout(STILL_WAITING, wait).await {
                Ok(Ok(status)) => status.process(name).cloned(),
                Ok(Err(_)) => return Ok(()),
                Err(_) => {
                    say(&still_waiting(&self.board.get(), &member.spec));
                    continue;
                }
            };
            return match process {
                Some(ProcessStatus { phase: Phase::Refused, reason, .. }) => {
                    Err(RolloutError::Refused { title: member.spec.title(), reason })
                }
                _ => Ok(()),
            };
        }
    }

    async fn stopped(&self, names: &[String]) {
        let mut status = self.board.subscribe();
        let all_stopped = status.wait_for(|status| {
            names.iter().all(|name| {
                status.process(name).is_none_or(|process| process.phase == Phase::Stopped)
            })
        });
        // A supervisor kills what does not stop; this bound is for a supervisor that hangs.
        if timeout(STOP_TIMEOUT * 2, all_stopped).await.is_err() {
            say(&format!("{} cannot be stopped", names.join(", ")));
        }
    }

    /// Nothing is started when some port is taken: half a cluster helps nobody.
    async fn check_ports(&self, plan: &Plan) -> Result<(), RolloutError> {
        for spec in plan.processes().filter(|spec| !self.members.contains_key(&spec.name)) {
            for &port in &spec.ports {
                let mut attempts = 0;
                while !probe::is_free(port).await {
                    attempts += 1;
                    if attempts == PORT_ATTEMPTS {
                        return Err(RolloutError::PortInUse { port, title: spec.title() });
                    }
                    sleep(PORT_PAUSE).await;
                }
            }
        }
        Ok(())
    }
}

fn still_waiting(status: &Status, spec: &ProcessSpec) -> String {
    let reason = status.process(&spec.name).map(|process| process.reason.clone());
    let reason = reason.filter(|reason| !reason.is_empty());
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("waiting for {}{reason} (its log: {})", spec.title(), spec.log_file.display())
}
