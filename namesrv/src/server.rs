//! A running name server.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use daemon::config::{Live, Loaded};
use daemon::health::{Checks, Health, HealthServer};
use daemon::shutdown::{Drain, Shutdown};
use daemon::telemetry::LogLevel;
use prometheus_client::registry::Registry;
use remoting::{Limits, RemotingMetrics, Server, ServerConfig};
use thiserror::Error;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::config::NamesrvConfig;
use crate::kv_config::{KvConfig, KvConfigError};
use crate::metrics::Metrics;
use crate::processor::NamesrvProcessor;

/// Why a name server does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// `bindAddress` is no address.
    #[error("bindAddress {0:?} is not an IP address")]
    BindAddress(String),
    /// The key-value settings cannot be read.
    #[error(transparent)]
    KvConfig(#[from] KvConfigError),
    /// A port cannot be bound.
    #[error("{0}")]
    Listen(std::io::Error),
    /// The port of metrics and health checks cannot be bound.
    #[error("cannot listen on {address} for health checks (healthPort): {source}")]
    Health {
        /// What was to be bound.
        address: SocketAddr,
        /// Why it was not.
        source: std::io::Error,
    },
}

/// A running name server.
pub struct NameServer {
    server: Arc<Server<NamesrvProcessor>>,
    health_addr: Option<SocketAddr>,
    health_stop: CancellationToken,
}

impl NameServer {
    /// Binds its ports and serves until [`NameServer::shutdown`].
    ///
    /// # Errors
    /// When settings cannot be read or a port cannot be bound.
    pub async fn start(
        loaded: Loaded<NamesrvConfig>,
        shutdown: &Shutdown,
        log_level: Option<LogLevel>,
    ) -> Result<Self, StartError> {
        let config = Live::new(loaded);
        let settings = config.get();
        let ip: IpAddr = settings
            .bind_address
            .parse()
            .map_err(|_| StartError::BindAddress(settings.bind_address.clone()))?;
        let kv_config = KvConfig::load(&settings.kv_config_path)?;
        let metrics = Metrics::default();
        let remoting_metrics = RemotingMetrics::default();
        let registry = registry(&metrics, &remoting_metrics);
        let processor = Arc::new(NamesrvProcessor::new(config, kv_config, metrics));
        let listen = vec![SocketAddr::new(ip, settings.listen_port)];
        let config = ServerConfig { listen, limits: limits(&settings) };
        let server = Server::start(config, Arc::clone(&processor), remoting_metrics)
            .map_err(StartError::Listen)?;
        let health_stop = CancellationToken::new();
        let health = health(registry, shutdown, log_level);
        let health_addr = match settings.health_port {
            0 => None,
            port => Some(serve_health(SocketAddr::new(ip, port), health, &health_stop).await?),
        };
        shutdown.spawn("expiry", expire(processor, shutdown.token().clone()));
        tracing::info!(address = %server.addresses()[0], "name server is ready");
        Ok(Self { server: Arc::new(server), health_addr, health_stop })
    }

    /// Where clients and brokers connect.
    pub fn address(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    /// Where metrics and health checks are.
    pub fn health_address(&self) -> Option<SocketAddr> {
        self.health_addr
    }

    /// Ends in order: no new connections, open requests, tasks, health checks.
    pub async fn shutdown(self, shutdown: &Shutdown) {
        shutdown.stop();
        let server = Arc::clone(&self.server);
        Drain::new()
            .step("connections", Duration::from_secs(2), async move { server.shutdown().await })
            .run()
            .await;
        shutdown.tasks_ended(Duration::from_secs(1)).await;
        self.health_stop.cancel();
        tracing::info!("name server has ended");
    }
}

fn limits(settings: &NamesrvConfig) -> Limits {
    Limits {
        frame_bytes_max: settings.max_frame_bytes,
        connections_max: settings.server_max_connections,
        idle: Duration::from_secs(settings.server_channel_max_idle_time_seconds.into()),
        drain: Duration::from_millis(500),
        ..Limits::default()
    }
}

fn registry(metrics: &Metrics, remoting: &RemotingMetrics) -> Registry {
    let mut registry = Registry::default();
    daemon::build_info::register(&mut registry, "rocketmq-namesrv");
    daemon::process_metrics::register(&mut registry);
    metrics.register(&mut registry);
    remoting.register(&mut registry);
    registry
}

fn health(registry: Registry, shutdown: &Shutdown, log_level: Option<LogLevel>) -> Health {
    let ready = Checks::new();
    let token = shutdown.token().clone();
    ready.add("running", move || match token.is_cancelled() {
        true => Err("it is stopping".to_owned()),
        false => Ok(()),
    });
    Health { registry: Arc::new(registry), live: Checks::new(), ready, log_level }
}

async fn serve_health(
    address: SocketAddr,
    health: Health,
    stop: &CancellationToken,
) -> Result<SocketAddr, StartError> {
    let bound = HealthServer::bind(address, health).await;
    let server = bound.map_err(|source| StartError::Health { address, source })?;
    let address = server.local_addr().map_err(|source| StartError::Health { address, source })?;
    drop(tokio::spawn(server.serve(stop.clone())));
    Ok(address)
}

/// Takes out brokers that fell silent, at every scan.
async fn expire(processor: Arc<NamesrvProcessor>, stop: CancellationToken) {
    let interval = processor.config.get().scan_not_active_broker_interval;
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let gone = processor.routes.write().expire(Instant::now());
        if gone.is_empty() {
            continue;
        }
        processor.sweep();
        processor.metrics.brokers_expired.inc_by(gone.len() as u64);
        for broker in gone {
            tracing::warn!(cluster = broker.cluster, addr = broker.addr, "broker fell silent");
        }
    }
}
