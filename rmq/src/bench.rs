//! `rmq bench`.

mod ledger;
mod pace;
mod receive;
mod recorder;
mod report;
mod run;
mod send;
mod stamp;

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::duration::parse_duration;
use crate::error::RmqError;
use crate::session::Session;

/// Callers of a benchmark without a rate, unless the user says otherwise.
const CALLERS: usize = 16;
/// Requests that may be under way at a rate, unless the user says otherwise.
const IN_FLIGHT_AT_RATE: usize = 1_024;
/// How long is measured, unless the user says otherwise.
const DURATION: Duration = Duration::from_secs(10);
/// How long is not measured at first, unless the user says otherwise.
const WARM_UP: Duration = Duration::from_secs(2);

/// Measure how fast a cluster is, and whether nothing gets lost
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Send as fast as possible, or at a rate
    Send(SendLoad),
    /// Receive what is there: a backlog, or what another rmq bench sends
    Consume(ReceiveLoad),
    /// Send and receive, and check that everything comes once and in order
    Mixed(MixedLoad),
}

const SEND_EXAMPLES: &str = "\
Examples:
  rmq bench send t --threads 64                64 callers, each waits for its answer
  rmq bench send t --rate 20000 --size 1024    20,000 a second, whether answered or not; latencies
                                               count from when a message was due
  rmq bench send t --batch 32 --duration 1m    in batches of 32

Without --rate, --threads callers send as soon as their last message is stored (closed loop). With
it, messages are due at even distances; when --threads requests are under way, those that are due
wait, and their wait is part of their latency (open loop).";

#[derive(Debug, Args)]
#[command(after_help = SEND_EXAMPLES)]
pub(crate) struct SendLoad {
    #[command(flatten)]
    topics: Topics,
    #[command(flatten)]
    load: Load,
    /// Do not wait to hear whether messages were stored
    #[arg(long, conflicts_with_all = ["batch", "keys"])]
    oneway: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReceiveLoad {
    #[command(flatten)]
    topics: Topics,
    #[command(flatten)]
    receive: Receive,
    /// The consumer group [default: a new one that begins with the first message]
    #[arg(long, short)]
    group: Option<String>,
    /// End after so many different messages
    #[arg(long, short = 'c', value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End when none came for this long
    #[arg(long, value_parser = parse_duration, default_value = "5s", value_name = "DURATION")]
    idle: Duration,
    /// Check what came: say what is missing, doubled, reordered or damaged, and fail if anything is
    #[arg(long)]
    verify: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MixedLoad {
    #[command(flatten)]
    topics: Topics,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    receive: Receive,
    /// How long to wait for messages that were stored and have not come
    #[arg(long, value_parser = parse_duration, default_value = "10s", value_name = "DURATION")]
    idle: Duration,
}

#[derive(Debug, Args)]
struct Topics {
    /// The topic; of several, the part before the number
    topic: String,
    /// Use so many topics, TOPIC-0 and so on
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    topics: u32,
    /// Make the topics first, with so many queues on each broker [default: they are there, or
    /// brokers make them]
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..=1_024))]
    queues: Option<i32>,
}

#[derive(Debug, Args)]
struct Load {
    /// Messages a second [default: as many as possible]
    #[arg(long, value_parser = parse_rate, value_name = "N")]
    rate: Option<f64>,
    /// Requests that may be under way at once, each of its own caller [default: 16; with --rate
    /// 1024]
    #[arg(
        long,
        visible_alias = "in-flight",
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=65_536)
    )]
    threads: Option<u32>,
    /// Bytes of each body
    #[arg(long, default_value_t = 128, value_name = "BYTES")]
    size: u32,
    /// Messages in one request
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,
    /// Spread messages over so many keys; those of a key go to one queue in order, one by one
    #[arg(
        long,
        conflicts_with = "batch",
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    keys: Option<u32>,
    /// How long to measure [default: 10s]
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    duration: Option<Duration>,
    /// Send so many messages instead
    #[arg(
        long,
        short = 'c',
        conflicts_with = "duration",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    count: Option<u64>,
    /// How long to send before that is measured [default: 2s; with --count none]
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    warm_up: Option<Duration>,
    /// Connections to each broker
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    connections: u32,
    /// Further attempts after a message was not stored; each may store it twice
    #[arg(long, default_value_t = 0)]
    retries: u32,
}

#[derive(Debug, Args)]
struct Receive {
    /// Messages that one pull asks for
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(i32).range(1..=1_024))]
    pull_batch: i32,
}

impl Topics {
    fn names(&self) -> Vec<String> {
        match self.topics {
            1 => vec![self.topic.clone()],
            topics => (0..topics).map(|number| format!("{}-{number}", self.topic)).collect(),
        }
    }
}

impl Load {
    fn callers(&self) -> usize {
        let default = if self.rate.is_some() { IN_FLIGHT_AT_RATE } else { CALLERS };
        let callers = self.threads.map_or(default, |threads| threads as usize);
        // A key belongs to one caller.
        self.keys.map_or(callers, |keys| callers.min(keys as usize))
    }

    fn warm_up(&self) -> Duration {
        let default = if self.count.is_some() { Duration::ZERO } else { WARM_UP };
        self.warm_up.unwrap_or(default)
    }

    fn check(&self) -> Result<(), RmqError> {
        let least = stamp::STAMP_BYTES;
        if (self.size as usize) < least {
            let text = format!("--size {} is too small: bodies have at least {least}", self.size);
            return Err(RmqError::Usage(format!("{text} bytes, by which they are told apart")));
        }
        Ok(())
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| format!("{text:?} is no rate: write messages a second, like 20000 or 0.5"))
}

/// Runs a benchmark.
pub(crate) async fn run(session: &Session, command: &BenchCommand) -> Result<(), RmqError> {
    match command {
        BenchCommand::Send(args) => run::send(session, args).await,
        BenchCommand::Consume(args) => run::consume(session, args).await,
        BenchCommand::Mixed(args) => run::mixed(session, args).await,
    }
}
