//! The process: health endpoint, Lease, controllers, an orderly end.

use crate::cli::{ClusterArgs, RunArgs};
use crate::context::{Context, Images};
use crate::event::Events;
use crate::group_elections::GroupElections;
use crate::lease::{Candidate, Settings};
use crate::metrics::Metrics;
use crate::watch::Scope;
use crate::{broker_group_controller, cluster_controller, port};
use daemon::health::{Checks, Health, HealthServer};
use daemon::shutdown::Shutdown;
use daemon::telemetry::LogLevel;
use futures::StreamExt as _;
use futures::stream::select_all;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// A replica that did not reach the API server for so long is not ready.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Why the operator could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No kubeconfig was named and this is no pod.
    #[error(
        "this is no pod of Kubernetes ({0}): name the cluster with --kubeconfig FILE and \
         --context NAME"
    )]
    NoCluster(#[source] kube::config::InClusterError),
    /// The kubeconfig that was named cannot be used.
    #[error("kubeconfig {path}: {source}")]
    Kubeconfig {
        /// The file.
        path: String,
        /// What is wrong with it.
        source: kube::config::KubeconfigError,
    },
    /// The client cannot be made.
    #[error("cannot speak to Kubernetes: {0}")]
    Client(#[from] kube::Error),
    /// The health endpoint cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: std::net::SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
}

impl RunError {
    /// Whether other flags would help.
    pub fn is_configuration(&self) -> bool {
        matches!(self, Self::NoCluster(_) | Self::Kubeconfig { .. })
    }
}

/// Runs the operator until `shutdown`.
pub async fn run(args: RunArgs, log: LogLevel, shutdown: &Shutdown) -> Result<(), RunError> {
    let client = connect(&args.cluster).await?;
    let mut registry = Registry::default();
    daemon::build_info::register(&mut registry, "rocketmq-operator");
    daemon::process_metrics::register(&mut registry);
    let metrics = Metrics::register(&mut registry);
    let controller_address = args.controller_address.unwrap_or_else(|| {
        let namespace = &args.lease.lease_namespace;
        format!("rocketmq-controller.{namespace}.svc:{}", port::CONTROLLER)
    });
    let lease = Settings {
        namespace: args.lease.lease_namespace,
        name: args.lease.lease_name,
        identity: args.lease.lease_identity.clone(),
        duration: Duration::from_secs(args.lease.lease_seconds),
    };
    let candidate = Candidate::new(client.clone(), lease);
    let health = Health {
        registry: Arc::new(registry),
        live: Checks::new(),
        ready: ready(candidate.contact()),
        log_level: Some(log),
    };
    let address = args.health_address;
    let server = HealthServer::bind(address, health)
        .await
        .map_err(|source| RunError::Listen { address, source })?;
    shutdown.spawn("health", server.serve(shutdown.token().clone()));

    let events = Events::new(client.clone(), args.lease.lease_identity);
    let images = Images { namesrv: args.namesrv_image, broker: args.broker_image };
    let settle = Duration::from_secs(args.settle_seconds);
    let mut context = Context::new(client.clone(), images, settle, events.clone(), metrics);
    context.controller_address = controller_address;
    let address = args.controller_listen;
    let told = context.controller_address.clone();
    let elections = GroupElections::start(client, address, told, events, shutdown.clone())
        .map_err(|source| RunError::Listen { address, source })?;
    context.elections = Some(Arc::clone(&elections));
    let scopes = Scope::of(&args.watch_namespaces);
    tracing::info!(?scopes, "serving");
    let (stop, watched) = (shutdown.token().clone(), scopes.clone());
    shutdown.spawn("elections", async move {
        stop.run_until_cancelled(elections.run(watched)).await;
    });
    lead(candidate, &Arc::new(context), &scopes, shutdown).await;
    Ok(())
}

/// Reconciles while this replica holds the Lease, again and again until `shutdown`.
async fn lead(
    mut candidate: Candidate,
    context: &Arc<Context>,
    scopes: &[Scope],
    shutdown: &Shutdown,
) {
    let stop = shutdown.token();
    while stop.run_until_cancelled(candidate.acquire()).await.is_some() {
        context.leads(true);
        // When the Lease is lost, the controllers are dropped, in the middle of a reconcile if
        // need be: another replica may be at it already.
        tokio::select! {
            () = stop.cancelled() => {}
            () = candidate.hold() => {}
            () = control(context, scopes) => {
                tracing::warn!("the controllers ended; beginning anew");
            }
        }
        context.leads(false);
    }
    candidate.release().await;
}

/// All controllers of all scopes.
async fn control(context: &Arc<Context>, scopes: &[Scope]) {
    let streams = scopes.iter().flat_map(|scope| {
        [
            cluster_controller::run(context.clone(), scope).boxed(),
            broker_group_controller::run(context.clone(), scope).boxed(),
        ]
    });
    select_all(streams).for_each(|()| std::future::ready(())).await;
}

fn ready(contact: watch::Receiver<Instant>) -> Checks {
    let ready = Checks::new();
    ready.add("kubernetes", move || {
        let silence = contact.borrow().elapsed();
        if silence < SILENCE_MAX {
            return Ok(());
        }
        Err(format!("the API server has not answered for {} s", silence.as_secs()))
    });
    ready
}

/// Never the context that happens to be current somewhere: a pod's own cluster, or the one that
/// was named.
async fn connect(args: &ClusterArgs) -> Result<Client, RunError> {
    let config = match &args.kubeconfig {
        None => kube::Config::incluster().map_err(RunError::NoCluster)?,
        Some(file) => {
            let path = file.display().to_string();
            let read = async {
                let options =
                    KubeConfigOptions { context: args.context.clone(), ..Default::default() };
                kube::Config::from_custom_kubeconfig(Kubeconfig::read_from(file)?, &options).await
            };
            read.await.map_err(|source| RunError::Kubeconfig { path, source })?
        }
    };
    Ok(Client::try_from(config)?)
}
