//! Command line of the operator.

use crate::local;
use clap::{Args, Parser, Subcommand};
use daemon::telemetry::LogArgs;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Runs RocketMQ clusters on Kubernetes
#[derive(Debug, Parser)]
#[command(name = "rocketmq-operator", version = daemon::build_info::long_version())]
pub struct Cli {
    #[command(flatten)]
    pub log: LogArgs,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Reconcile RocketMQCluster resources until a signal comes
    Run(Box<RunArgs>),
    /// Print the resource definitions as YAML, for `kubectl apply --server-side -f -`
    Crd,
    /// Run the cluster of a manifest as processes of this machine, without Kubernetes
    Local(local::Args),
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Namespaces to serve, separated by commas; none means all
    #[arg(
        long,
        env = "ROCKETMQ_WATCH_NAMESPACES",
        value_name = "NAMES",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub watch_namespaces: Vec<String>,

    /// Image of name servers whose resource names none
    #[arg(long, env = "ROCKETMQ_NAMESRV_IMAGE", value_name = "IMAGE")]
    pub namesrv_image: String,

    /// Image of brokers whose resource names none
    #[arg(long, env = "ROCKETMQ_BROKER_IMAGE", value_name = "IMAGE")]
    pub broker_image: String,

    /// Where /metrics, /healthz and /readyz are served
    #[arg(
        long,
        env = "ROCKETMQ_HEALTH_ADDRESS",
        value_name = "ADDRESS",
        default_value = "0.0.0.0:8080"
    )]
    pub health_address: SocketAddr,

    /// Seconds that a restarted pod must have been ready before the next one of its cluster is
    /// restarted: clients look for brokers every 30 s
    #[arg(
        long,
        env = "ROCKETMQ_SETTLE_SECONDS",
        value_name = "SECONDS",
        default_value_t = 35,
        value_parser = clap::value_parser!(u64).range(0..=3600)
    )]
    pub settle_seconds: u64,

    /// Where brokers register whose masters are elected
    #[arg(
        long,
        env = "ROCKETMQ_CONTROLLER_LISTEN",
        value_name = "ADDRESS",
        default_value = "0.0.0.0:9878"
    )]
    pub controller_listen: SocketAddr,

    /// Where brokers find that port of all replicas; without it the Service rocketmq-controller of
    /// the operator's namespace
    #[arg(long, env = "ROCKETMQ_CONTROLLER_ADDRESS", value_name = "HOST:PORT")]
    pub controller_address: Option<String>,

    #[command(flatten)]
    pub lease: LeaseArgs,

    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// Of several replicas of the operator, the one that holds the Lease works
#[derive(Debug, Args)]
#[command(next_help_heading = "Lease")]
pub struct LeaseArgs {
    /// Namespace of the Lease: that of the operator
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    pub lease_namespace: String,

    /// Name of the Lease
    #[arg(
        long,
        env = "ROCKETMQ_LEASE_NAME",
        value_name = "NAME",
        default_value = "rocketmq-operator"
    )]
    pub lease_name: String,

    /// Name of this replica, different for each
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub lease_identity: String,

    /// Seconds after which a silent holder is replaced
    #[arg(
        long,
        env = "ROCKETMQ_LEASE_SECONDS",
        value_name = "SECONDS",
        default_value_t = 15,
        value_parser = clap::value_parser!(u64).range(3..=600)
    )]
    pub lease_seconds: u64,
}

/// Which Kubernetes; in a pod there is nothing to say
#[derive(Debug, Args)]
#[command(next_help_heading = "Kubernetes")]
pub struct ClusterArgs {
    /// Kubeconfig file; without it the operator must run in a pod
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig file; without it the file's current one
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    pub context: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn flags_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn run_takes_namespaces() {
        let flags = [
            "rocketmq-operator",
            "run",
            "--watch-namespaces=a,b",
            "--namesrv-image=n",
            "--broker-image=b",
            "--lease-namespace=s",
            "--lease-identity=i",
        ];
        let Command::Run(args) = Cli::try_parse_from(flags).unwrap().command else {
            panic!("run is run");
        };
        assert_eq!(args.watch_namespaces, ["a", "b"]);
        assert_eq!((args.settle_seconds, args.lease.lease_seconds), (35, 15));
    }
}
