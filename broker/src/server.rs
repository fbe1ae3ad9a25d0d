//! A running broker: how it starts and how it ends.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use daemon::config::{Live, Loaded};
use daemon::health::{Checks, Health, HealthServer};
use daemon::shutdown::{Drain, Shutdown};
use daemon::telemetry::LogLevel;
use prometheus_client::registry::Registry;
use protocol::topic_name;
use remoting::{Limits, RemotingMetrics, Server, ServerConfig};
use store::{DispatchRequest, Dispatcher, MessageStore, Records, RecoveryReport, StoreError};
use thiserror::Error;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::address;
use crate::broker::{Broker, Identity};
use crate::clock::now_ms;
use crate::config::{self, BrokerConfig};
use crate::consumer_offset::ConsumerOffsetTable;
use crate::dispatch::BrokerProcessor;
use crate::farewell::{self, Farewell};
use crate::group::GroupTable;
use crate::ha::{self, Ha};
use crate::hold::PullHold;
use crate::json_file::{LoadTableError, SaveError};
use crate::metadata_log::MetadataLog;
use crate::metrics::Metrics;
use crate::register::NameServers;
use crate::replication_driver::{self, RoleGate};
use crate::schedule::{Arrivals, Schedule};
use crate::throughput::SAMPLE_INTERVAL;
use crate::topic::TopicTable;

/// What a held pull takes of the bytes that requests may have together.
const HELD_PULL_BYTES: usize = 1 << 10;
/// Bytes of a frame beyond its message body: header and properties.
const FRAME_OVERHEAD_BYTES: usize = 1 << 20;
/// Time for each step of an orderly end, except the store's.
/// Another replica has this long to become master in order, and clients to go there.
const RESIGN_TIMEOUT: Duration = Duration::from_secs(15);
const STEP_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for the store to flush and close.
const STORE_TIMEOUT: Duration = Duration::from_secs(20);

/// Why a broker does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A table below `config/` cannot be read.
    #[error(transparent)]
    Table(#[from] LoadTableError),
    /// The state of this replica cannot be read.
    #[error("{0}")]
    Replica(String),
    /// A port cannot be bound.
    #[error("{0}")]
    Listen(std::io::Error),
    /// The port of metrics and health checks cannot be bound.
    #[error("cannot listen on {address} for metrics (metricsPromExporterPort): {source}")]
    Health {
        /// What was to be bound.
        address: SocketAddr,
        /// Why it was not.
        source: std::io::Error,
    },
    /// The start was given up.
    #[error("the start was interrupted")]
    Interrupted,
}

/// A running broker.
pub struct RunningBroker {
    broker: Arc<Broker>,
    server: Arc<Server<BrokerProcessor>>,
    health: Option<SocketAddr>,
    health_stop: CancellationToken,
}

impl RunningBroker {
    /// Opens the store, binds the ports and serves until [`RunningBroker::shutdown`].
    ///
    /// # Errors
    /// When the store or a table cannot be opened or a port cannot be bound.
    pub async fn start(
        mut loaded: Loaded<BrokerConfig>,
        shutdown: &Shutdown,
        log_level: Option<LogLevel>,
    ) -> Result<Self, StartError> {
        if loaded.config.broker_name.is_empty() {
            loaded.config.broker_name = machine_name();
        }
        if let Some(index) = loaded.config.replica_index {
            loaded.config.broker_id = i64::from(index) + 1;
        }
        let config = Live::new(loaded);
        let settings = config.get();
        let bind: IpAddr = settings.bind_address.parse().unwrap_or([0, 0, 0, 0].into());
        let running = Arc::new(OnceLock::new());
        let (metrics, remoting_metrics) = (Metrics::default(), RemotingMetrics::default());
        let health = Health {
            registry: Arc::new(registry(&settings, &metrics, &remoting_metrics, &running)),
            live: Checks::new(),
            ready: Checks::new(),
            log_level,
        };
        add_ready_checks(&health.ready, shutdown, &running);
        let health_stop = CancellationToken::new();
        let health = match settings.metrics_prom_exporter_port {
            0 => None,
            port => Some(serve_health(SocketAddr::new(bind, port), health, &health_stop).await?),
        };
        let ha_address = SocketAddr::new(bind, settings.ha_port());
        let slaves = ha::listen(ha_address).await.map_err(StartError::Listen)?;
        let broker = Arc::new(open(config, metrics, shutdown).await?);
        let listen = [settings.listen_port, settings.fast_port()];
        let server_config = ServerConfig {
            listen: listen.map(|port| SocketAddr::new(bind, port)).to_vec(),
            limits: limits(&settings),
        };
        let processor = Arc::new(BrokerProcessor { broker: Arc::clone(&broker) });
        let server = Server::start(server_config, processor, remoting_metrics);
        let server = Arc::new(server.map_err(StartError::Listen)?);
        broker.ha.start(&broker, slaves);
        broker.schedule.start(&broker);
        broker.name_servers.start(&broker);
        shutdown.spawn("housekeeping", keep_house(Arc::clone(&broker), shutdown.token().clone()));
        if settings.enable_controller_mode {
            let said = farewell::run(Arc::clone(&broker), Arc::clone(&server));
            let stop = shutdown.token().clone();
            shutdown.spawn("farewell", async move {
                stop.run_until_cancelled(said).await;
            });
        }
        let _ = running.set(Arc::downgrade(&broker));
        let identity = &broker.identity;
        tracing::info!(
            cluster = identity.cluster,
            broker = identity.broker,
            address = identity.address,
            "broker serves"
        );
        Ok(Self { broker, server, health, health_stop })
    }

    /// Where clients connect: the usual port and the one for requests that shall not wait.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.server.addresses()
    }

    /// Where metrics and health checks are.
    pub fn health_address(&self) -> Option<SocketAddr> {
        self.health
    }

    /// Ends in order: readiness, mastership, registration, held pulls, requests, replication,
    /// delayed messages, tables, store.
    pub async fn shutdown(self, shutdown: &Shutdown) {
        shutdown.stop();
        let begin = Instant::now();
        let broker = |_| Arc::clone(&self.broker);
        let [leave, unregister, wake, part, deliver, save, close] = [(); 7].map(broker);
        let server = Arc::clone(&self.server);
        let left = Arc::clone(&self.server);
        Drain::new()
            .step(
                "mastership",
                RESIGN_TIMEOUT,
                async move { farewell::resign(&leave, &left).await },
            )
            .step("registration", STEP_TIMEOUT, async move {
                unregister.name_servers.shutdown(&unregister).await;
            })
            .step("held pulls", STEP_TIMEOUT, async move { wake.hold.close() })
            .step("requests", STEP_TIMEOUT, async move { server.shutdown().await })
            .step("replication", STEP_TIMEOUT, async move { part.ha.shutdown(&part).await })
            .step("delayed messages", STEP_TIMEOUT, async move {
                deliver.schedule.shutdown().await;
            })
            .step("tables", STEP_TIMEOUT, async move {
                // What failed was logged.
                let _ = save.blocking(save_all).await;
            })
            .step("store", STORE_TIMEOUT, async move {
                if let Err(refusal) = close.blocking(|broker| broker.store.shutdown()).await {
                    tracing::error!(error = refusal.remark, "the store was not closed in order");
                }
            })
            .run()
            .await;
        shutdown.tasks_ended(Duration::from_secs(1)).await;
        self.health_stop.cancel();
        tracing::info!(took_ms = begin.elapsed().as_millis(), "broker has ended");
    }
}

async fn open(
    config: Live<BrokerConfig>,
    metrics: Metrics,
    shutdown: &Shutdown,
) -> Result<Broker, StartError> {
    let settings = config.get();
    let store_settings = Arc::clone(&settings);
    let opened = tokio::task::spawn_blocking(move || open_store(&store_settings));
    let (opened, identity) = tokio::join!(opened, identity(&settings));
    let (store, report, tables) = opened.map_err(|_| StartError::Interrupted)??;
    let role = Arc::new(match settings.enable_controller_mode {
        true => RoleGate::closed(identity.id),
        false => RoleGate::open(identity.id),
    });
    let replication = match settings.enable_controller_mode {
        true => {
            let gate = Arc::clone(&role);
            Some(
                replication_driver::open(&settings, &identity, &store, &report, (gate, shutdown))
                    .map_err(|error| StartError::Replica(error.to_string()))?,
            )
        }
        false => None,
    };
    let hold = Arc::new(PullHold::new(settings.pull_hold_max));
    let schedule = tables.schedule;
    store.add_dispatcher(Arc::new(Arrived {
        hold: Arc::clone(&hold),
        delayed: schedule.arrivals(),
    }));
    let metadata_log = Arc::new(MetadataLog::default());
    tables.topics.set_log(&metadata_log);
    tables.groups.set_log(&metadata_log);
    let ha = Ha::new(&settings, Arc::clone(&role));
    store.add_log_listener(ha.growth());
    Ok(Broker {
        config,
        identity,
        store,
        role,
        replication,
        topics: tables.topics,
        groups: tables.groups,
        metadata_log,
        offsets: tables.offsets,
        producers: Default::default(),
        consumers: Default::default(),
        locks: Default::default(),
        hold,
        schedule,
        name_servers: NameServers::new(),
        farewell: Farewell::default(),
        ha,
        metrics,
        throughput: Default::default(),
        started_ms: now_ms(),
    })
}

struct Tables {
    topics: TopicTable,
    groups: GroupTable,
    offsets: ConsumerOffsetTable,
    schedule: Schedule,
}

fn open_store(
    settings: &BrokerConfig,
) -> Result<(MessageStore, RecoveryReport, Tables), StartError> {
    let begin = Instant::now();
    let (store, report) = MessageStore::open(settings.store_config())?;
    let took_ms = begin.elapsed().as_millis();
    let path = settings.store_path_root_dir.display();
    tracing::info!(%path, took_ms, ?report, "store is open");
    warn_of_what_waits(&store);
    let root = &settings.store_path_root_dir;
    let tables = Tables {
        topics: TopicTable::load(root, settings)?,
        groups: GroupTable::load(root)?,
        offsets: ConsumerOffsetTable::load(root, settings.consumer_offset_update_version_step)?,
        schedule: Schedule::load(root, settings.delay_levels())?,
    };
    Ok((store, report, tables))
}

/// A store of Apache's broker may hold messages that wait for what this version does not have.
fn warn_of_what_waits(store: &MessageStore) {
    for (topic, what) in [
        (topic_name::TRANS_HALF_TOPIC, "half messages of transactions"),
        (topic_name::TIMER_TOPIC, "timed messages"),
    ] {
        if store.queue_ids(topic).iter().any(|queue_id| store.max_offset(topic, *queue_id) > 0) {
            tracing::warn!(
                topic,
                "the store has {what}, which stay where they are: this version \
                                   does not deliver them"
            );
        }
    }
}

async fn identity(settings: &BrokerConfig) -> Identity {
    let name_server = config::name_servers(&settings.namesrv_addr).next();
    let own = address::own_address(std::env::var("POD_IP").ok(), name_server).await;
    let host = match settings.broker_ip1.trim() {
        "" => own.to_string(),
        given => given.to_owned(),
    };
    let ha_host = match settings.broker_ip2.trim() {
        "" => &host,
        given => given,
    };
    let port = settings.listen_port;
    Identity {
        cluster: settings.broker_cluster_name.clone(),
        broker: settings.broker_name.clone(),
        id: settings.broker_id,
        address: address::join(&host, port),
        ha_address: address::join(ha_host, settings.ha_port()),
        store_host: address::store_host(&host, port, own).await,
    }
}

fn machine_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "DEFAULT_BROKER".to_owned(),
        name => name.to_owned(),
    }
}

/// Tells those who wait of messages that can be read now.
struct Arrived {
    hold: Arc<PullHold>,
    delayed: Arc<Arrivals>,
}

impl Dispatcher for Arrived {
    fn dispatch(&self, requests: &[DispatchRequest], _: &Records) {
        for request in requests.iter().filter(|request| request.is_in_queue()) {
            let (topic, queue_id) = (request.topic(), request.queue_id());
            if topic == topic_name::SCHEDULE_TOPIC {
                self.delayed.arrived(queue_id);
            }
            self.hold.arrived(topic, queue_id, request.queue_offset, request.tags_code);
        }
    }
}

pub(crate) fn limits(settings: &BrokerConfig) -> Limits {
    let body_max = usize::try_from(config::MESSAGE_SIZE_MAX).unwrap_or(usize::MAX);
    let defaults = Limits::default();
    // Held pulls are requests that are worked on: they must not keep others out.
    Limits {
        requests_in_flight_max: defaults.requests_in_flight_max + settings.pull_hold_max,
        request_bytes_in_flight_max: defaults.request_bytes_in_flight_max
            + settings.pull_hold_max * HELD_PULL_BYTES,
        connections_max: settings.server_max_connections,
        idle: Duration::from_secs(settings.server_channel_max_idle_time_seconds.into()),
        frame_bytes_max: defaults.frame_bytes_max.max(body_max + FRAME_OVERHEAD_BYTES),
        ..defaults
    }
}

fn registry(
    settings: &BrokerConfig,
    metrics: &Metrics,
    remoting: &RemotingMetrics,
    running: &Arc<OnceLock<Weak<Broker>>>,
) -> Registry {
    let mut registry = Registry::default();
    daemon::build_info::register(&mut registry, "rocketmq-broker");
    daemon::process_metrics::register(&mut registry);
    remoting.register(&mut registry);
    let node = (settings.broker_cluster_name.as_str(), settings.broker_name.as_str());
    metrics.register(&mut registry, node, running);
    registry
}

fn add_ready_checks(checks: &Checks, shutdown: &Shutdown, running: &Arc<OnceLock<Weak<Broker>>>) {
    let token = shutdown.token().clone();
    checks.add("running", move || {
        if token.is_cancelled() { Err("the broker is stopping".to_owned()) } else { Ok(()) }
    });
    let store = Arc::clone(running);
    checks.add("store", move || {
        let broker = store.get().and_then(Weak::upgrade).ok_or("the store is being opened")?;
        if broker.role.is_master() { broker.store.check_writable() } else { Ok(()) }
    });
    let following = Arc::clone(running);
    checks.add("replication", move || {
        let broker = following.get().and_then(Weak::upgrade).ok_or("the store is being opened")?;
        if let Some(replication) = &broker.replication {
            return replication.check();
        }
        // A slave whose master is away serves what it has.
        let is_empty = broker.store.log_end() == broker.store.log_min_offset();
        if broker.ha.is_slave() && is_empty && !broker.ha.has_master() {
            return Err("the slave is empty and has no master".to_owned());
        }
        Ok(())
    });
    let registered = Arc::clone(running);
    checks.add("registered", move || {
        let broker = registered.get().and_then(Weak::upgrade).ok_or("the store is being opened")?;
        let servers = &broker.settings().namesrv_addr;
        let is_alone = config::name_servers(servers).next().is_none();
        if is_alone || broker.name_servers.registered() > 0 {
            return Ok(());
        }
        Err(format!("no name server of `{servers}` knows this broker"))
    });
}

async fn serve_health(
    address: SocketAddr,
    health: Health,
    stop: &CancellationToken,
) -> Result<SocketAddr, StartError> {
    let wrong = |source| StartError::Health { address, source };
    let server = HealthServer::bind(address, health).await.map_err(wrong)?;
    let bound = server.local_addr().map_err(wrong)?;
    tokio::spawn(server.serve(stop.clone()));
    Ok(bound)
}

/// Saves what changed, forgets who fell silent and looks at the counters, each in its interval.
async fn keep_house(broker: Arc<Broker>, stop: CancellationToken) {
    let settings = broker.settings();
    let every = |period| {
        let mut ticks = tokio::time::interval_at(Instant::now() + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    };
    let mut offsets = every(settings.flush_consumer_offset_interval);
    let mut delay_offsets = every(settings.flush_delay_offset_interval);
    let mut sample = every(SAMPLE_INTERVAL);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = offsets.tick() => {
                let _ = broker.blocking(Broker::save_offsets).await;
            }
            _ = delay_offsets.tick() => {
                let _ = broker.blocking(Broker::save_delay_offsets).await;
            }
            _ = sample.tick() => {
                broker.expire();
                broker.throughput.sample(local_day());
            }
        }
    }
}

/// Saves all tables; one that cannot be saved does not keep the others from it.
fn save_all(broker: &Broker) -> Result<(), SaveError> {
    let offsets = [broker.save_offsets(), broker.save_delay_offsets()];
    let tables = [broker.topics.save(), broker.groups.save()];
    offsets.into_iter().chain(tables).collect()
}

/// Number of the day in local time.
fn local_day() -> i64 {
    let offset_ms = i64::from(jiff::Zoned::now().offset().seconds()) * 1_000;
    (now_ms() + offset_ms).div_euclid(86_400_000)
}
