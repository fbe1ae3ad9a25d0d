//! Registration with the name servers: a task for each address that their names lead to.
//!
//! Everything is registered at the start, each `registerNameServerPeriod`, after a connection was
//! lost and after a failure; topics that were made or changed are registered at once.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use protocol::body::KvTable;
use protocol::command::RemotingCommand;
use protocol::header::route::{
    BrokerIdentityRequestHeader, RegisterBrokerRequestHeader, RegisterBrokerResponseHeader,
};
use protocol::json;
use protocol::register_broker::{RegisterBrokerBody, checksum};
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use remoting::{
    Channel, Context, Limits, Processor, RemotingClient, RemotingError, RemotingMetrics, Response,
};
use thiserror::Error;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::address;
use crate::broker::Broker;
use crate::config;
use crate::ha::MasterAddress;

/// Changes of topics that are remembered for registrations of only what changed.
const CHANGES_MAX: usize = 1_024;
/// Names are looked up again this often: a broker that starts when only some of its name servers
/// are in the DNS would otherwise be unknown to the others for a whole registration period.
const RESOLVE_PERIOD: Duration = Duration::from_secs(5);
/// After a failure or the loss of a connection: pauses that double up to the period.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Time for saying good-bye to all name servers.
const UNREGISTER_TIMEOUT: Duration = Duration::from_millis(500);

/// Why a name server did not take a registration.
#[derive(Debug, Error)]
enum RegisterError {
    #[error(transparent)]
    Remoting(#[from] RemotingError),
    #[error(transparent)]
    Json(#[from] json::JsonError),
    #[error("it answers {code}: {remark}")]
    Refused { code: ResponseCode, remark: String },
}

/// How far one name server is.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// Number of the last change that it knows.
    served: u64,
    is_registered: bool,
}

struct Peer {
    progress: watch::Receiver<Progress>,
    lost: Arc<Notify>,
    stop: CancellationToken,
}

type Peers = Arc<Mutex<HashMap<SocketAddr, Peer>>>;

/// Answers what name servers ask of us, and notices lost connections.
struct Outbound {
    peers: Peers,
}

impl Processor for Outbound {
    async fn process(&self, _: Context, request: RemotingCommand) -> Option<Response> {
        let remark = format!("request type {} not supported", request.code);
        let code = ResponseCode::REQUEST_CODE_NOT_SUPPORTED;
        Some(RemotingCommand::error(code, remark).into())
    }

    fn disconnected(&self, channel: &Channel) {
        if let Some(peer) = self.peers.lock().get(&channel.remote_addr()) {
            peer.lost.notify_one();
        }
    }
}

/// Changes by number; `None` means that everything has to be registered anew.
#[derive(Default)]
struct Changes {
    last: u64,
    recent: VecDeque<(u64, Option<String>)>,
}

impl Changes {
    fn add(&mut self, topic: Option<String>) -> u64 {
        self.last += 1;
        if self.recent.len() == CHANGES_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((self.last, topic));
        self.last
    }

    /// The topics that changed after `served`, or `None` when that is not enough.
    fn since(&self, served: u64) -> Option<BTreeSet<String>> {
        let first = self.recent.front().map_or(self.last + 1, |(number, _)| *number);
        if served + 1 < first {
            return None;
        }
        let newer = self.recent.iter().filter(|(number, _)| *number > served);
        newer.map(|(_, topic)| topic.clone()).collect()
    }
}

/// See the module.
pub(crate) struct NameServers {
    client: RemotingClient<Outbound>,
    peers: Peers,
    changes: Mutex<Changes>,
    /// Number of the last change.
    wanted: watch::Sender<u64>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl NameServers {
    pub(crate) fn new() -> Self {
        let peers = Peers::default();
        let outbound = Arc::new(Outbound { peers: Arc::clone(&peers) });
        Self {
            client: RemotingClient::new(Limits::default(), outbound, RemotingMetrics::default()),
            peers,
            changes: Mutex::default(),
            wanted: watch::Sender::new(0),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// How many name servers know this broker at present.
    pub(crate) fn registered(&self) -> usize {
        self.peers.lock().values().filter(|peer| peer.progress.borrow().is_registered).count()
    }

    /// Registers a topic that was made or changed (`None`: everything) with all name servers that
    /// can be reached, and waits for them, but not longer than `timeout`.
    pub(crate) async fn register(&self, topic: Option<&str>, timeout: Duration) {
        let number = self.changes.lock().add(topic.map(str::to_owned));
        self.wanted.send_replace(number);
        let reachable = self.peers.lock().values().map(|peer| peer.progress.clone()).collect();
        let _ = tokio::time::timeout(timeout, wait_until_served(reachable, number)).await;
    }

    /// Starts to register.
    pub(crate) fn start(&self, broker: &Arc<Broker>) {
        self.tasks.spawn(follow_names(Arc::clone(broker), self.stop.clone()));
    }

    /// Ends registering and tells the name servers that this broker goes.
    pub(crate) async fn shutdown(&self, broker: &Broker) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.unregister(broker, broker.role.registered_id()).await;
        self.client.shutdown().await;
    }

    /// Tells the name servers that this broker is not there any more by this id.
    pub(crate) async fn unregister(&self, broker: &Broker, id: i64) {
        let identity = &broker.identity;
        let is_own = id == broker.role.registered_id();
        let header = BrokerIdentityRequestHeader {
            broker_name: identity.broker.clone(),
            broker_addr: if is_own { broker.told_address() } else { identity.address.clone() },
            cluster_name: identity.cluster.clone(),
            broker_id: id,
        };
        let registered: Vec<SocketAddr> = {
            let peers = self.peers.lock();
            let known = peers.iter().filter(|(_, peer)| peer.progress.borrow().is_registered);
            known.map(|(address, _)| *address).collect()
        };
        let goodbyes = registered.into_iter().map(async |address| {
            let request = RemotingCommand::request(RequestCode::UNREGISTER_BROKER, &header);
            let name = address.to_string();
            if let Err(error) = self.client.invoke(&name, request, UNREGISTER_TIMEOUT).await {
                tracing::warn!(name_server = name, %error, "cannot unregister");
            }
        });
        futures::future::join_all(goodbyes).await;
    }

    /// Makes the peers those of `addresses`.
    fn set_peers(&self, broker: &Arc<Broker>, addresses: &BTreeSet<SocketAddr>) {
        let mut gone = Vec::new();
        {
            let mut peers = self.peers.lock();
            peers.retain(|address, peer| {
                let stays = addresses.contains(address);
                if !stays {
                    peer.stop.cancel();
                    gone.push(address.to_string());
                }
                stays
            });
            for address in addresses {
                if !peers.contains_key(address) {
                    peers.insert(*address, self.start_peer(broker, *address));
                }
            }
        }
        for address in gone {
            tracing::info!(name_server = address, "is no name server any more");
            self.client.forget(&address);
        }
    }

    fn start_peer(&self, broker: &Arc<Broker>, address: SocketAddr) -> Peer {
        let (sender, progress) = watch::channel(Progress::default());
        let (lost, stop) = (Arc::new(Notify::new()), self.stop.child_token());
        let task = PeerTask {
            broker: Arc::downgrade(broker),
            address: address.to_string(),
            wanted: self.wanted.subscribe(),
            progress: sender,
            lost: Arc::clone(&lost),
        };
        let stopped = stop.clone();
        self.tasks.spawn(async move {
            stopped.run_until_cancelled(task.run()).await;
        });
        Peer { progress, lost, stop }
    }

    /// Registers with one name server; the topics that it says are ordered.
    async fn register_at(
        &self,
        broker: &Broker,
        address: &str,
        topics: Option<&BTreeSet<String>>,
    ) -> Result<Vec<String>, RegisterError> {
        let settings = broker.settings();
        let mut table = broker.topics.table();
        if let Some(topics) = topics {
            table.topic_config_table.retain(|topic, _| topics.contains(topic));
        }
        for topic in table.topic_config_table.values_mut() {
            topic.perm &= settings.broker_permission | protocol::perm::INHERIT;
        }
        // Name servers let nobody register in the place of a master of a later epoch.
        table.data_version.state_version = broker.role.epoch();
        let body = RegisterBrokerBody {
            filter_server_list: Vec::new(),
            topic_config_serialize_wrapper: table,
        };
        let body = json::to_vec(&body)?;
        let identity = &broker.identity;
        let header = RegisterBrokerRequestHeader {
            broker_name: identity.broker.clone(),
            broker_addr: broker.told_address(),
            cluster_name: identity.cluster.clone(),
            ha_server_addr: identity.ha_address.clone(),
            broker_id: broker.role.registered_id(),
            body_crc32: checksum(&body),
            ..RegisterBrokerRequestHeader::default()
        };
        let request = RemotingCommand::request(RequestCode::REGISTER_BROKER, &header);
        let timeout = settings.register_broker_timeout;
        let answer = self.client.invoke(address, request.with_body(body), timeout).await?;
        if answer.response_code() != ResponseCode::SUCCESS {
            let remark = answer.remark.clone().unwrap_or_default();
            return Err(RegisterError::Refused { code: answer.response_code(), remark });
        }
        let told: RegisterBrokerResponseHeader = answer.header().unwrap_or_default();
        let address = told.master_addr.unwrap_or_default();
        let ha_address = told.ha_server_addr.unwrap_or_default();
        if broker.ha.is_slave() && broker.replication.is_none() {
            broker.ha.set_master(&settings, MasterAddress { address, ha_address });
        }
        if answer.body.is_empty() {
            return Ok(Vec::new());
        }
        let ordered: KvTable = json::from_slice(&answer.body)?;
        Ok(ordered.table.into_keys().collect())
    }
}

async fn wait_until_served(peers: Vec<watch::Receiver<Progress>>, number: u64) {
    for mut peer in peers {
        // A name server that cannot be reached is not waited for.
        let _ =
            peer.wait_for(|progress| progress.served >= number || !progress.is_registered).await;
    }
}

/// Keeps the peers in step with the names in `namesrvAddr` and what they resolve to.
async fn follow_names(broker: Arc<Broker>, stop: CancellationToken) {
    let mut settings = broker.config.subscribe();
    let mut resolved: HashMap<String, Vec<SocketAddr>> = HashMap::new();
    let mut pause = RETRY_PAUSE;
    loop {
        let current = settings.borrow_and_update().clone();
        let names: Vec<&str> = config::name_servers(&current.namesrv_addr).collect();
        let mut is_complete = true;
        resolved.retain(|name, _| names.contains(&name.as_str()));
        for name in names {
            let addresses = address::resolve(name).await;
            if addresses.is_empty() {
                // What it led to before may still be there.
                is_complete = false;
                tracing::warn!(name, "the name server has no address at present");
            } else {
                resolved.insert(name.to_owned(), addresses);
            }
        }
        let addresses = resolved.values().flatten().copied().collect();
        broker.name_servers.set_peers(&broker, &addresses);
        let period = RESOLVE_PERIOD.min(current.register_name_server_period);
        pause = if is_complete { RETRY_PAUSE } else { (pause * 2).min(period) };
        let next = if is_complete { period } else { pause };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(next) => {}
            changed = settings.changed() => if changed.is_err() { return },
        }
    }
}

/// Registers with one name server again and again.
struct PeerTask {
    broker: Weak<Broker>,
    address: String,
    wanted: watch::Receiver<u64>,
    progress: watch::Sender<Progress>,
    lost: Arc<Notify>,
}

impl PeerTask {
    async fn run(mut self) {
        let mut failures = 0;
        // Nothing is known there at first.
        let mut served = None;
        loop {
            let Some(broker) = self.broker.upgrade() else { return };
            let number = *self.wanted.borrow_and_update();
            let topics = served.and_then(|served| broker.name_servers.changes.lock().since(served));
            let topics = topics.filter(|topics| !topics.is_empty());
            let registering =
                broker.name_servers.register_at(&broker, &self.address, topics.as_ref());
            match registering.await {
                Ok(ordered) => {
                    self.report_success(number, failures);
                    failures = 0;
                    served = Some(number);
                    broker.set_order_topics(&ordered).await;
                }
                Err(error) => {
                    self.report_failure(&error, failures);
                    failures += 1;
                    served = None;
                }
            }
            let period = broker.settings().register_name_server_period;
            drop(broker);
            if self.wait(period, failures).await {
                served = None;
            }
        }
    }

    /// Waits until there is a reason to register; whether everything has to be registered.
    async fn wait(&mut self, period: Duration, failures: u32) -> bool {
        if failures > 0 {
            let pause = RETRY_PAUSE * 2_u32.saturating_pow(failures.min(10));
            tokio::time::sleep(pause.min(period)).await;
            return true;
        }
        tokio::select! {
            changed = self.wanted.changed() => changed.is_err(),
            () = tokio::time::sleep(period) => true,
            () = self.lost.notified() => {
                tokio::time::sleep(RETRY_PAUSE).await;
                true
            }
        }
    }

    fn report_success(&self, number: u64, failures: u32) {
        let before = self.progress.send_replace(Progress { served: number, is_registered: true });
        if failures > 0 || !before.is_registered {
            tracing::info!(name_server = self.address, "registered");
        }
    }

    fn report_failure(&self, error: &RegisterError, failures: u32) {
        self.progress.send_modify(|progress| progress.is_registered = false);
        if failures == 0 {
            tracing::warn!(name_server = self.address, %error, "cannot register, trying again");
        } else {
            tracing::debug!(name_server = self.address, %error, failures, "still cannot register");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_apart_from_everything() {
        let mut changes = Changes::default();
        let topics = |changes: &Changes, served| {
            changes.since(served).map(|topics| topics.into_iter().collect::<Vec<_>>())
        };
        assert_eq!(topics(&changes, 0), Some(vec![]));
        changes.add(Some("a".into()));
        changes.add(Some("b".into()));
        assert_eq!(topics(&changes, 0), Some(vec!["a".into(), "b".into()]));
        assert_eq!(topics(&changes, 1), Some(vec!["b".into()]));
        assert_eq!(topics(&changes, 2), Some(vec![]));
        changes.add(None);
        assert_eq!(topics(&changes, 2), None);
        assert_eq!(topics(&changes, 3), Some(vec![]));
        for _ in 0..CHANGES_MAX {
            changes.add(Some("c".into()));
        }
        assert_eq!(topics(&changes, 2), None, "forgotten");
        assert_eq!(topics(&changes, 3), Some(vec!["c".into()]));
    }
}
