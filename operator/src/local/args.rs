//! Flags of `rocketmq-operator local`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

/// Run the cluster of a manifest as processes of this machine
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Start the cluster, follow changes of its manifest, stop it at Ctrl-C
    Up(UpArgs),
    /// Show what runs
    Status(StatusArgs),
    /// Stop the cluster that another `local up` runs
    Down(DownArgs),
}

#[derive(Debug, Clone, clap::Args)]
pub struct UpArgs {
    /// Manifest with one RocketMQCluster
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Directory that keeps messages, configuration and logs [default: ./.rocketmq/<cluster>]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Remove the data when the cluster stops
    #[arg(long, conflicts_with = "data")]
    pub ephemeral: bool,
    /// Directory of rocketmq-namesrv and rocketmq-broker [default: where this program is]
    #[arg(long, value_name = "DIR")]
    pub bin_dir: Option<PathBuf>,
    /// Added to every port, so that several clusters can run on one machine
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub port_offset: u16,
}

#[derive(Debug, Clone, clap::Args)]
pub struct StatusArgs {
    /// Name of the cluster [default: the only one in ./.rocketmq]
    #[arg(value_name = "CLUSTER")]
    pub cluster: Option<String>,
    /// Data directory of the cluster
    #[arg(long, value_name = "DIR", conflicts_with = "cluster")]
    pub data: Option<PathBuf>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

#[derive(Debug, Clone, clap::Args)]
pub struct DownArgs {
    /// Name of the cluster [default: the only one in ./.rocketmq]
    #[arg(value_name = "CLUSTER")]
    pub cluster: Option<String>,
    /// Data directory of the cluster
    #[arg(long, value_name = "DIR", conflicts_with = "cluster")]
    pub data: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum OutputFormat {
    /// Aligned columns
    #[default]
    Table,
    Json,
}
