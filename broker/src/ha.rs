//! Replication by Apache's default HA protocol: a master sends its commit log as it is to the
//! slaves that connect to `haListenPort`; a slave appends it to its own.
//!
//! Under SYNC_MASTER a message is confirmed, that is acknowledged and readable, when enough slaves
//! have it. While too few are there nobody is waited for, and senders are told so.

mod ack_rule;
mod connection;
mod follow;
mod growth;
mod slaves;
mod speed;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use protocol::body::{HaClientRuntimeInfo, HaRuntimeInfo};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::broker::Broker;
use crate::config::BrokerConfig;
use crate::ha::follow::Following;
pub(crate) use crate::ha::growth::Growth;
use crate::ha::slaves::Slaves;
use crate::replication_driver::RoleGate;

/// How often slaves are looked at that say nothing.
const REVIEW_INTERVAL: Duration = Duration::from_secs(1);

/// Where the master is, as a name server says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MasterAddress {
    /// For requests; empty until it is known.
    pub(crate) address: String,
    /// For the log; empty until it is known.
    pub(crate) ha_address: String,
}

/// See the module.
pub(crate) struct Ha {
    role: Arc<RoleGate>,
    is_elected: bool,
    pub(crate) slaves: Slaves,
    pub(crate) following: Following,
    growth: Arc<Growth>,
    master: watch::Sender<MasterAddress>,
    /// Messages came of which the topic is not known here.
    pub(crate) unknown_topic: Arc<Notify>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Ha {
    pub(crate) fn new(settings: &BrokerConfig, role: Arc<RoleGate>) -> Self {
        let ha_address = settings.ha_master_address.trim().to_owned();
        let master = MasterAddress { address: String::new(), ha_address };
        Self {
            role,
            is_elected: settings.enable_controller_mode,
            slaves: Slaves::new(settings),
            following: Following::default(),
            growth: Arc::default(),
            master: watch::Sender::new(master),
            unknown_topic: Arc::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    pub(crate) fn is_slave(&self) -> bool {
        !self.role.is_master()
    }

    /// Told of the log's growth.
    pub(crate) fn growth(&self) -> Arc<Growth> {
        Arc::clone(&self.growth)
    }

    /// Whether the master of this slave is there.
    pub(crate) fn has_master(&self) -> bool {
        self.following.is_connected()
            || (self.is_elected && !self.master.borrow().address.is_empty())
    }

    /// Where the master is; changes of it.
    pub(crate) fn master(&self) -> watch::Receiver<MasterAddress> {
        self.master.subscribe()
    }

    /// The replication of an elected group has said where the master is; nowhere for the master.
    pub(crate) fn follow(&self, master: MasterAddress) {
        self.master.send_replace(master);
    }

    /// A name server has said where the master is.
    pub(crate) fn set_master(&self, settings: &BrokerConfig, told: MasterAddress) {
        self.master.send_if_modified(|known| {
            let is_fixed = !settings.ha_master_address.trim().is_empty();
            let ha_address = if is_fixed || told.ha_address.is_empty() {
                known.ha_address.clone()
            } else {
                told.ha_address
            };
            // One that is away is found again where it was, or said to be elsewhere.
            let address =
                if told.address.is_empty() { known.address.clone() } else { told.address };
            let now = MasterAddress { address, ha_address };
            let is_changed = *known != now;
            *known = now;
            is_changed
        });
    }

    /// Starts to serve slaves, or to follow the master.
    pub(crate) fn start(&self, broker: &Arc<Broker>, listener: TcpListener) {
        let spawn = |work: futures::future::BoxFuture<'static, ()>| {
            let stop = self.stop.clone();
            self.tasks.spawn(async move {
                stop.run_until_cancelled(work).await;
            });
        };
        if let Some(replication) = &broker.replication {
            broker.metadata_log.start(Arc::downgrade(broker));
            replication.start(broker, listener);
            spawn(Box::pin(crate::slave_sync::run(Arc::clone(broker))));
            return;
        }
        let served = connection::accept(Arc::clone(broker), listener, self.tasks.clone());
        spawn(Box::pin(served));
        if self.is_slave() {
            spawn(Box::pin(follow::follow(Arc::clone(broker))));
            spawn(Box::pin(crate::slave_sync::run(Arc::clone(broker))));
        } else {
            spawn(Box::pin(review(Arc::clone(broker))));
        }
    }

    /// Ends everything, and waits for nobody.
    pub(crate) async fn shutdown(&self, broker: &Broker) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        match &broker.replication {
            Some(replication) => replication.shutdown().await,
            None => broker.store.release_confirm(),
        }
    }

    /// The answer to `GET_BROKER_HA_STATUS`.
    pub(crate) fn info(&self, broker: &Broker) -> HaRuntimeInfo {
        let end = broker.store.log_end();
        if self.is_slave() {
            let ha_client_runtime_info = HaClientRuntimeInfo {
                master_addr: self.master.borrow().ha_address.clone(),
                max_offset: end,
                ..self.following.info()
            };
            return HaRuntimeInfo { ha_client_runtime_info, ..HaRuntimeInfo::default() };
        }
        let in_sync = match &broker.replication {
            Some(replication) => replication.slaves_in_sync(),
            None => self.slaves.in_sync(),
        };
        HaRuntimeInfo {
            master: true,
            master_commit_log_max_offset: end,
            in_sync_slave_nums: i32::try_from(in_sync).unwrap_or(i32::MAX),
            ha_connection_info: self.slaves.infos(end),
            ha_client_runtime_info: HaClientRuntimeInfo::default(),
        }
    }
}

/// Listens for slaves.
pub(crate) async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let with_address = |error: std::io::Error| {
        let text = format!("cannot listen on {address} for slaves (haListenPort): {error}");
        std::io::Error::new(error.kind(), text)
    };
    TcpListener::bind(address).await.map_err(with_address)
}

/// A slave that stands still says nothing, but falls behind.
async fn review(broker: Arc<Broker>) {
    let mut ticks = tokio::time::interval(REVIEW_INTERVAL);
    loop {
        ticks.tick().await;
        broker.ha.slaves.review(&broker.store);
    }
}
