//! The command line.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::bench::BenchCommand;
use crate::broker::BrokerCommand;
use crate::check::CheckArgs;
use crate::consume::ConsumeArgs;
use crate::dump::DumpArgs;
use crate::duration::parse_duration;
use crate::group::GroupCommand;
use crate::message::MessageCommand;
use crate::output::Format;
use crate::route::RouteArgs;
use crate::send::SendArgs;
use crate::topic::TopicCommand;

/// How long one request may take, unless the user says otherwise.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Heading of the options that every command has.
const COMMON: &str = "Common options";
const EXAMPLES: &str = "\
Examples:
  rmq cluster                                  who is there
  rmq topic create orders --queues 8           make a topic on every broker
  rmq send orders 'hello' --tag a --key k1     send one message
  rmq send orders --count 10000                send 10,000 and see how fast that was
  rmq consume orders --group check             print what is there and what comes
  rmq group progress payments                  how far behind a consumer group is
  rmq bench mixed load --queues 8              how fast it is, and whether all arrives
  rmq check /data/store                        whether a stopped broker's store is sound

Exit codes: 0 done, 1 failed, 2 wrong usage; for check also 3 and 4, see rmq check --help.";

/// Send, consume, look at and administer a RocketMQ cluster.
#[derive(Debug, Parser)]
#[command(name = "rmq", version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Name servers as host:port, several joined by ';'
    #[arg(
        short,
        long,
        global = true,
        env = "NAMESRV_ADDR",
        hide_env_values = true,
        default_value = "127.0.0.1:9876",
        value_name = "ADDRESSES",
        help_heading = COMMON
    )]
    pub(crate) namesrv: String,
    /// How to print results
    #[arg(
        short,
        long,
        global = true,
        default_value = "table",
        value_enum,
        value_name = "FORMAT",
        help_heading = COMMON
    )]
    pub(crate) output: Format,
    /// How long a request may take [default: 3s]; consume: how long to wait for the next message
    /// [default: for ever]
    #[arg(
        long,
        global = true,
        value_parser = parse_duration,
        value_name = "DURATION",
        help_heading = COMMON
    )]
    pub(crate) timeout: Option<Duration>,
    /// Say more on standard error; up to three times
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = COMMON)]
    pub(crate) verbose: u8,
}

impl Cli {
    /// How long one request may take.
    pub(crate) fn request_timeout(&self) -> Duration {
        match self.command {
            // The option says something else there.
            Command::Consume(_) => REQUEST_TIMEOUT,
            _ => self.options.timeout.unwrap_or(REQUEST_TIMEOUT),
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send messages: given ones, lines of standard input, or a load
    Send(SendArgs),
    /// Print the messages of a topic as a member of a consumer group
    Consume(ConsumeArgs),
    /// List, create, change and delete topics
    #[command(subcommand)]
    Topic(TopicCommand),
    /// Show where a topic is
    Route(RouteArgs),
    /// Show all brokers
    Cluster,
    /// List, create and delete consumer groups, and see how far they are
    #[command(subcommand)]
    Group(GroupCommand),
    /// Look at and change brokers
    #[command(subcommand)]
    Broker(BrokerCommand),
    /// Look messages up
    #[command(subcommand)]
    Message(MessageCommand),
    /// Measure how fast a cluster is, and whether everything that was stored comes
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Check a broker's store on this machine, without a broker
    Check(CheckArgs),
    /// Show records of a broker's store on this machine, without a broker
    Dump(DumpArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
