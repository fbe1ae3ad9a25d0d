//! `rmq topic`.

use std::time::Duration;

use clap::{Args, Subcommand};
use client::BrokerAddress;
use protocol::body::TopicStatsTable;
use protocol::perm;
use protocol::response_code::ResponseCode;
use protocol::topic_config::TopicConfig;
use protocol::topic_name;
use serde::Serialize;
use tokio::time::Instant;

use crate::duration::format_millis;
use crate::error::RmqError;
use crate::output::{Row, print_rows};
use crate::route::RouteArgs;
use crate::session::Session;
use crate::table::Align;

/// How often a name server is asked whether it knows a new topic.
const ROUTE_POLL: Duration = Duration::from_millis(50);
/// How long a new topic may take to be known by name servers.
const ROUTE_WAIT: Duration = Duration::from_secs(5);

#[derive(Debug, Subcommand)]
pub(crate) enum TopicCommand {
    /// List topics
    List(ListArgs),
    /// Create a topic, or change its queues and permission
    Create(CreateArgs),
    /// Delete a topic and all its messages
    Delete(TopicArgs),
    /// Show the offsets of each queue
    Stats(StatsArgs),
    /// Show where a topic is (as rmq route)
    Route(RouteArgs),
    /// Allow or forbid to read and write a topic
    Perm(PermArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only topics of this cluster
    #[arg(long)]
    cluster: Option<String>,
    /// Also retry, dead letter and system topics
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TopicArgs {
    /// The topic
    topic: String,
    /// Only at the brokers of this cluster
    #[arg(long)]
    cluster: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// The topic
    topic: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rmq topic create orders                       8 queues on every master of every cluster
  rmq topic create orders --queues 16 --perm r  16 queues that may be read but not written")]
pub(crate) struct CreateArgs {
    /// The topic
    topic: String,
    /// Queues on each broker
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(i32).range(1..=65_536))]
    queues: i32,
    /// r, w or rw
    #[arg(long, default_value = "rw", value_parser = parse_perm)]
    perm: i32,
    /// Messages are meant to be consumed in the order of their queue
    #[arg(long)]
    order: bool,
    /// Only at the brokers of this cluster
    #[arg(long, conflicts_with = "broker")]
    cluster: Option<String>,
    /// Only at this broker, by name or address
    #[arg(long)]
    broker: Option<String>,
    /// Settings of the topic, for example message.type=FIFO
    #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = parse_pair)]
    attributes: Vec<(String, String)>,
}

#[derive(Debug, Args)]
pub(crate) struct PermArgs {
    /// The topic
    topic: String,
    /// r, w, rw or none
    #[arg(value_parser = parse_perm)]
    perm: i32,
    /// Only at the brokers of this cluster
    #[arg(long)]
    cluster: Option<String>,
}

/// Reads a permission as people write it.
fn parse_perm(text: &str) -> Result<i32, String> {
    match text {
        "r" | "4" => Ok(perm::READ),
        "w" | "2" => Ok(perm::WRITE),
        "rw" | "wr" | "6" => Ok(perm::READ | perm::WRITE),
        "none" | "-" | "0" => Ok(0),
        _ => Err(format!("{text:?} is no permission: write r, w, rw or none")),
    }
}

/// Reads `NAME=VALUE`.
pub(crate) fn parse_pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let wrong = || format!("{text:?} has no name and value: write it like NAME=VALUE");
    pair.map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or_else(wrong)
}

#[derive(Debug, Serialize)]
struct TopicRow {
    topic: String,
    kind: &'static str,
}

impl Row for TopicRow {
    const COLUMNS: &'static [(&'static str, Align)] =
        &[("TOPIC", Align::Left), ("KIND", Align::Left)];

    fn cells(&self) -> Vec<String> {
        vec![self.topic.clone(), self.kind.to_owned()]
    }
}

/// What was done at one broker.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DoneRow {
    pub(crate) cluster: String,
    pub(crate) broker: String,
    pub(crate) address: String,
    /// What was done, or the error.
    pub(crate) result: String,
    pub(crate) ok: bool,
}

impl Row for DoneRow {
    const COLUMNS: &'static [(&'static str, Align)] = &[
        ("CLUSTER", Align::Left),
        ("BROKER", Align::Left),
        ("ADDRESS", Align::Left),
        ("RESULT", Align::Left),
    ];

    fn cells(&self) -> Vec<String> {
        let Self { cluster, broker, address, result, ok: _ } = self;
        vec![cluster.clone(), broker.clone(), address.clone(), result.clone()]
    }
}

impl DoneRow {
    pub(crate) fn new(
        broker: BrokerAddress,
        done: &str,
        outcome: Result<(), client::ClientError>,
    ) -> Self {
        Self {
            cluster: broker.cluster,
            broker: broker.name,
            address: broker.addr,
            ok: outcome.is_ok(),
            result: outcome.map_or_else(|error| error.to_string(), |()| done.to_owned()),
        }
    }
}

/// Prints what was done, which is an error unless all of it was.
pub(crate) fn print_done(session: &Session, rows: &[DoneRow]) -> Result<(), RmqError> {
    print_rows(session.format, rows)?;
    let failed = rows.iter().filter(|row| !row.ok).count();
    if failed == 0 { Ok(()) } else { Err(RmqError::SomeBrokers { failed, all: rows.len() }) }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct QueueRow {
    broker: String,
    queue: i32,
    min_offset: i64,
    max_offset: i64,
    messages: i64,
    /// Milliseconds since the epoch, 0 when empty.
    last_stored: i64,
}

impl Row for QueueRow {
    const COLUMNS: &'static [(&'static str, Align)] = &[
        ("BROKER", Align::Left),
        ("QUEUE", Align::Right),
        ("MIN OFFSET", Align::Right),
        ("MAX OFFSET", Align::Right),
        ("MESSAGES", Align::Right),
        ("LAST STORED", Align::Left),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.broker.clone(),
            self.queue.to_string(),
            self.min_offset.to_string(),
            self.max_offset.to_string(),
            self.messages.to_string(),
            format_millis(self.last_stored),
        ]
    }
}

pub(crate) async fn run(session: &Session, command: &TopicCommand) -> Result<(), RmqError> {
    match command {
        TopicCommand::List(args) => list(session, args).await,
        TopicCommand::Create(args) => create(session, args).await,
        TopicCommand::Delete(args) => delete(session, args).await,
        TopicCommand::Stats(args) => stats(session, &args.topic).await,
        TopicCommand::Route(args) => crate::route::run(session, args).await,
        TopicCommand::Perm(args) => set_perm(session, args).await,
    }
}

async fn list(session: &Session, args: &ListArgs) -> Result<(), RmqError> {
    let cluster_info = session.admin.cluster_info().await?;
    if let Some(cluster) = &args.cluster {
        session.masters(Some(cluster)).await?;
    }
    let list = session.admin.topic_list(args.cluster.as_deref()).await?;
    // Each cluster and broker has a topic of its own name.
    let is_own = |topic: &str| {
        cluster_info.cluster_addr_table.contains_key(topic)
            || cluster_info.broker_addr_table.contains_key(topic)
            || cluster_info.cluster_addr_table.keys().any(|c| topic_name::reply_topic(c) == topic)
    };
    let kind = |topic: &str| match () {
        () if topic_name::is_retry(topic) => "retry",
        () if topic_name::is_dlq(topic) => "dead letters",
        () if topic_name::is_system(topic) || topic.starts_with("RMQ_SYS_") || is_own(topic) => {
            "system"
        }
        () => "normal",
    };
    let topics = list.topic_list.into_iter();
    let mut rows: Vec<_> = topics.map(|topic| TopicRow { kind: kind(&topic), topic }).collect();
    rows.retain(|row| args.all || row.kind == "normal");
    print_rows(session.format, &rows)
}

async fn create(session: &Session, args: &CreateArgs) -> Result<(), RmqError> {
    topic_name::validate_topic(&args.topic).map_err(|error| RmqError::Usage(error.to_string()))?;
    let brokers = match &args.broker {
        Some(broker) => {
            let addr = session.broker(broker).await?;
            let mut brokers = session.admin.brokers().await?;
            brokers.retain(|broker| broker.addr == addr);
            brokers
        }
        None => session.masters(args.cluster.as_deref()).await?,
    };
    let config = TopicConfig {
        attributes: args.attributes.iter().cloned().collect(),
        order: args.order,
        ..TopicConfig::new(&args.topic, args.queues, args.perm)
    };
    let mut rows = Vec::new();
    for broker in brokers {
        let outcome = session.admin.create_topic(&broker.addr, &config).await;
        rows.push(DoneRow::new(broker, "created", outcome));
    }
    print_done(session, &rows)?;
    await_route(session, &args.topic, &rows).await
}

/// Waits until name servers know the topic at each broker, so that the next command finds it.
async fn await_route(session: &Session, topic: &str, rows: &[DoneRow]) -> Result<(), RmqError> {
    let deadline = Instant::now() + ROUTE_WAIT;
    loop {
        let route = session.admin.route(topic).await;
        let known = |broker: &String| {
            let queues = route.as_ref().map(|route| route.queue_datas.as_slice());
            queues.is_ok_and(|queues| queues.iter().any(|queue| queue.broker_name == *broker))
        };
        if rows.iter().all(|row| known(&row.broker)) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(RmqError::NoRouteYet { topic: topic.to_owned() });
        }
        tokio::time::sleep(ROUTE_POLL).await;
    }
}

async fn delete(session: &Session, args: &TopicArgs) -> Result<(), RmqError> {
    if topic_name::is_system(&args.topic) {
        return Err(RmqError::Usage(format!("topic {} is the system's own", args.topic)));
    }
    let mut rows = Vec::new();
    for broker in session.masters(args.cluster.as_deref()).await? {
        let outcome = session.admin.topic_config(&broker.addr, &args.topic).await;
        if outcome.as_ref().is_err_and(is_no_topic) {
            continue;
        }
        let outcome = session.admin.delete_topic(&broker.addr, &args.topic).await;
        rows.push(DoneRow::new(broker, "deleted", outcome));
    }
    let cluster = args.cluster.as_deref();
    session.admin.delete_topic_at_name_servers(&args.topic, cluster).await?;
    if rows.is_empty() {
        return Err(RmqError::NoTopic { topic: args.topic.clone() });
    }
    print_done(session, &rows)
}

fn is_no_topic(error: &client::ClientError) -> bool {
    error.code() == Some(ResponseCode::TOPIC_NOT_EXIST)
}

async fn set_perm(session: &Session, args: &PermArgs) -> Result<(), RmqError> {
    let mut rows = Vec::new();
    for broker in session.masters(args.cluster.as_deref()).await? {
        let outcome = match session.admin.topic_config(&broker.addr, &args.topic).await {
            Err(error) if is_no_topic(&error) => continue,
            Err(error) => Err(error),
            Ok(mut config) => {
                config.perm = args.perm;
                // Attributes are changed one by one; these are to stay.
                config.attributes.clear();
                session.admin.create_topic(&broker.addr, &config).await
            }
        };
        let done = format!("set to {}", crate::route::perm_letters(args.perm));
        rows.push(DoneRow::new(broker, &done, outcome));
    }
    if rows.is_empty() {
        return Err(RmqError::NoTopic { topic: args.topic.clone() });
    }
    print_done(session, &rows)
}

async fn stats(session: &Session, topic: &str) -> Result<(), RmqError> {
    let stats = session.admin.topic_stats(topic).await?;
    print_rows(session.format, &queue_rows(stats))
}

fn queue_rows(stats: TopicStatsTable) -> Vec<QueueRow> {
    let queues = stats.offset_table.0.into_iter();
    queues
        .map(|(queue, offsets)| QueueRow {
            broker: queue.broker_name,
            queue: queue.queue_id,
            min_offset: offsets.min_offset,
            max_offset: offsets.max_offset,
            messages: offsets.max_offset.saturating_sub(offsets.min_offset),
            last_stored: offsets.last_update_timestamp,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Format, render};
    use protocol::body::{MessageQueue, TopicOffset};

    #[test]
    fn permissions_and_pairs_are_read() {
        let table = [("r", 4), ("w", 2), ("rw", 6), ("none", 0), ("6", 6)];
        for (text, perm) in table {
            assert_eq!(parse_perm(text), Ok(perm));
        }
        assert!(parse_perm("rx").is_err());
        assert_eq!(parse_pair("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(parse_pair("=b").is_err() && parse_pair("a").is_err());
    }

    #[test]
    fn golden() {
        let queue = |queue_id| MessageQueue {
            topic: "orders".into(),
            broker_name: "orders-0".into(),
            queue_id,
        };
        let full = TopicOffset {
            min_offset: 100,
            max_offset: 12_345,
            last_update_timestamp: 1_764_504_000_123,
        };
        let offset_table = [(queue(0), full), (queue(1), TopicOffset::default())];
        let table = || TopicStatsTable {
            offset_table: offset_table.iter().cloned().collect(),
            topic_put_tps: 0.0,
        };
        crate::golden::check("topic-stats.txt", &render(Format::Table, &queue_rows(table())));
        crate::golden::check("topic-stats.json", &render(Format::Json, &queue_rows(table())));
    }
}
