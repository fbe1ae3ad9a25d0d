//! Who is master in the groups of a local cluster: the same elections as on Kubernetes, with a file
//! for each group's record.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use daemon::shutdown::Shutdown;
use remoting::RemotingMetrics;
use replication::{ControllerConfig, ReplicaId};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::plan::{Plan, ProcessSpec};
use super::report::say;
use crate::election::{Authority, Endpoint, EndpointConfig, FileStore, Group, GroupId, GroupView};

/// Connections of brokers and of people.
const CONNECTIONS_MAX: usize = 1024;
/// How long a restart waits for another replica to take the mastership over, and how often it asks.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(30);
const HAND_OVER_PAUSE: Duration = Duration::from_millis(250);
/// How long the next restart waits for a replica to have everything again, before it is said.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(60);

/// The port where elections are made, and a group for each BrokerName that has several replicas.
pub(super) struct Elections {
    shutdown: Shutdown,
    stop: CancellationToken,
    endpoint: Option<Endpoint>,
    groups: BTreeMap<String, Group>,
}

impl Elections {
    pub(super) fn new(shutdown: Shutdown) -> Self {
        let stop = CancellationToken::new();
        Self { shutdown, stop, endpoint: None, groups: BTreeMap::new() }
    }

    /// Makes the groups those of the plan. Their records are in the folders of the groups.
    pub(super) async fn apply(&mut self, plan: &Plan, data: &Path) -> std::io::Result<()> {
        if plan.replicas < 2 {
            return Ok(());
        }
        if self.endpoint.is_none() {
            let config = EndpointConfig {
                listen: plan.controller,
                cluster: plan.cluster.clone(),
                peers: vec![plan.controller.to_string()],
                broker_version: env!("CARGO_PKG_VERSION").to_owned(),
                connections_max: CONNECTIONS_MAX,
                authority: Authority::Everybody,
            };
            self.endpoint = Some(Endpoint::start(config, RemotingMetrics::default())?);
        }
        let ids = 1..=ReplicaId::try_from(plan.replicas).unwrap_or(ReplicaId::MAX);
        let config = ControllerConfig::new(ids.collect(), plan.min_in_sync);
        let names = plan.brokers.iter().filter_map(|spec| spec.replica.as_ref());
        for (name, _) in names {
            match self.groups.get(name) {
                Some(group) => group.configure(config.clone()).await,
                None => self.add(name, config.clone(), data).await,
            }
        }
        Ok(())
    }

    async fn add(&mut self, name: &str, config: ControllerConfig, data: &Path) {
        let store = Arc::new(FileStore::new(data.join(name).join("record.json")));
        let stop = self.stop.child_token();
        let (group, run) = Group::start(name.to_owned(), config, store, stop);
        self.shutdown.spawn("election driver", run);
        self.shutdown.spawn("election news", tell(name.to_owned(), group.clone()));
        group.lead(true).await;
        if let Some(endpoint) = &self.endpoint {
            endpoint.add(GroupId::local(name), group.clone());
        }
        self.groups.insert(name.to_owned(), group);
    }

    fn group(&self, spec: &ProcessSpec) -> Option<(&Group, ReplicaId)> {
        let (name, id) = spec.replica.as_ref()?;
        Some((self.groups.get(name)?, *id))
    }

    /// Whether this process is master of its group.
    pub(super) fn is_master(&self, spec: &ProcessSpec) -> bool {
        let group = self.group(spec);
        group.is_some_and(|(group, id)| group.view().borrow().record.master == Some(id))
    }

    /// Moves the mastership away from a process that is about to be restarted.
    pub(super) async fn hand_over(&self, spec: &ProcessSpec) {
        let Some((group, id)) = self.group(spec) else { return };
        group.leaving(id, true).await;
        let moved = async {
            while group.view().borrow().record.master == Some(id) {
                match group.hand_over(None).await {
                    // The view may be a moment behind; a second one would take it from the new.
                    Ok(record) if record.master != Some(id) => return,
                    Ok(_) => {}
                    Err(refusal) => tracing::debug!(process = spec.name, ?refusal, "no hand-over"),
                }
                sleep(HAND_OVER_PAUSE).await;
            }
        };
        if timeout(HAND_OVER_LIMIT, moved).await.is_err() {
            say(&format!(
                "{} is restarted as master: no other replica could take over in {} s",
                spec.title(),
                HAND_OVER_LIMIT.as_secs()
            ));
        }
    }

    /// Waits until a process that was restarted has everything again.
    pub(super) async fn caught_up(&self, spec: &ProcessSpec) {
        let Some((group, id)) = self.group(spec) else { return };
        group.leaving(id, false).await;
        let mut view = group.view().clone();
        let in_sync = view.wait_for(|view| view.record.sync_state_set.contains(&id));
        if timeout(CATCH_UP_LIMIT, in_sync).await.is_err() {
            say(&format!("{} is still behind its master", spec.title()));
        }
    }

    /// Begins no election any more: what ends now ends because it was told to.
    pub(super) async fn stop(&mut self) {
        self.stop.cancel();
        self.groups.clear();
        if let Some(endpoint) = self.endpoint.take() {
            endpoint.shutdown().await;
        }
    }
}

/// Says who is master whenever that changes.
async fn tell(name: String, group: Group) {
    let mut views = group.view().clone();
    let mut known: Option<ReplicaId> = None;
    while views.changed().await.is_ok() {
        let GroupView { record, .. } = views.borrow_and_update().clone();
        if record.master == known {
            continue;
        }
        known = record.master;
        let reason = record.last_election().map_or("", |election| election.reason.name());
        match record.master {
            Some(id) => say(&format!(
                "{name}: broker {name}-{} is master of epoch {} ({reason})",
                id - 1,
                record.master_epoch
            )),
            None => say(&format!("{name} has no master")),
        }
    }
}
