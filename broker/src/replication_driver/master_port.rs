//! The port that only the master of a group listens on, where all its replicas are on one machine.
//!
//! Clients know the group by this address, so a failover changes no route. Who becomes master binds
//! the port beside the master before, who passes on what still comes to it, then gives the port up
//! and tells those who are connected to connect anew, and after a while ends what is left: at no
//! time is a connection refused. (On Kubernetes the address of a Service does the same.)

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use protocol::command::RemotingCommand;
use remoting::{
    Channel, Context, Limits, Processor, RemotingMetrics, Response, Server, ServerConfig,
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::broker::Broker;
use crate::dispatch::BrokerProcessor;
use crate::{farewell, server};

/// Another program may hold the port.
const BIND_PAUSE: Duration = Duration::from_millis(10);
/// The new master has this long to bind the port, and less when this process ends.
const OVERLAP: Duration = Duration::from_millis(100);
const OVERLAP_MIN: Duration = Duration::from_millis(20);
/// Clients have this long to go by themselves, and less when this process ends. Java's client waits
/// 3 s for an answer that was on its way when the connection was closed.
const LEAVE_TIME: Duration = Duration::from_secs(3);
const LEAVE_TIME_MIN: Duration = Duration::from_millis(100);

/// Answers as a broker, until clients had better go to another.
struct MasterProcessor {
    processor: BrokerProcessor,
    is_leaving: AtomicBool,
}

impl Processor for MasterProcessor {
    async fn process(&self, context: Context, request: RemotingCommand) -> Option<Response> {
        if self.is_leaving.load(Ordering::Acquire)
            && let Some(answer) = farewell::answer(&request)
        {
            return Some(answer);
        }
        self.processor.process(context, request).await
    }

    fn before_wait(&self) {
        self.processor.before_wait();
    }

    fn disconnected(&self, channel: &Channel) {
        self.processor.disconnected(channel);
    }
}

/// The port while this broker is master.
struct MasterPort {
    server: Server<MasterProcessor>,
    processor: Arc<MasterProcessor>,
}

impl MasterPort {
    fn bind(broker: &Arc<Broker>, address: SocketAddr, limits: &Limits) -> Option<Self> {
        let processor = Arc::new(MasterProcessor {
            processor: BrokerProcessor { broker: Arc::clone(broker) },
            is_leaving: AtomicBool::new(false),
        });
        let config = ServerConfig { listen: vec![address], limits: limits.clone() };
        match Server::start_shared(config, Arc::clone(&processor), RemotingMetrics::default()) {
            Ok(server) => {
                tracing::info!(%address, "the port of the master is served");
                Some(Self { server, processor })
            }
            Err(error) => {
                tracing::debug!(%error, "the port of the master is not free yet");
                None
            }
        }
    }

    /// Gives the port up when the new master can have it, and those who are connected some time.
    async fn leave(self, broker: Arc<Broker>, stop: CancellationToken) {
        wait(OVERLAP_MIN, OVERLAP, &stop).await;
        self.server.stop_accepting();
        self.processor.is_leaving.store(true, Ordering::Release);
        // Those who wait for messages ask again, and are told to go.
        broker.hold.wake_all();
        wait(LEAVE_TIME_MIN, LEAVE_TIME, &stop).await;
        self.server.shutdown().await;
    }
}

/// Waits for `max`, or for `min` when the process ends.
async fn wait(min: Duration, max: Duration, stop: &CancellationToken) {
    sleep(min).await;
    stop.run_until_cancelled(sleep(max.saturating_sub(min))).await;
}

/// Serves on `masterListenPort`, if there is one, for as long as this broker is master, until
/// `stop`.
pub(super) async fn keep(broker: Arc<Broker>, stop: CancellationToken) {
    let settings = broker.settings();
    let Some(port) = settings.master_listen_port else { return };
    let bind: IpAddr = settings.bind_address.parse().unwrap_or([0, 0, 0, 0].into());
    let (address, limits) = (SocketAddr::new(bind, port), server::limits(&settings));
    let mut roles = broker.role.subscribe();
    let mut held: Option<MasterPort> = None;
    let leaving = TaskTracker::new();
    let leave = |port: MasterPort| {
        tracing::info!(%address, "the port of the master is left to another");
        leaving.spawn(port.leave(Arc::clone(&broker), stop.clone()));
    };
    loop {
        roles.borrow_and_update();
        let is_master = broker.role.is_master();
        if is_master && held.is_none() {
            held = MasterPort::bind(&broker, address, &limits);
        } else if !is_master && let Some(port) = held.take() {
            leave(port);
        }
        tokio::select! {
            () = stop.cancelled() => break,
            _ = roles.changed() => {}
            () = sleep(BIND_PAUSE), if is_master && held.is_none() => {}
        }
    }
    held.map(leave);
    leaving.close();
    leaving.wait().await;
}
