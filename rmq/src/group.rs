//! `rmq group`.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Args, Subcommand};
use protocol::body::ConsumeStats;
use protocol::heartbeat::MessageModel;
use protocol::response_code::ResponseCode;
use protocol::subscription::SubscriptionGroupConfig;
use protocol::topic_name;
use serde::Serialize;

use crate::duration::{format_millis, parse_time};
use crate::error::RmqError;
use crate::output::{Row, print_rows};
use crate::session::Session;
use crate::table::Align;
use crate::topic::{DoneRow, print_done};

#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// List consumer groups, who is in them and how far behind they are
    List(ListArgs),
    /// Create a consumer group, or change its settings
    Create(CreateArgs),
    /// Delete a consumer group
    Delete(DeleteArgs),
    /// Show how far a group is in each queue
    Progress(ProgressArgs),
    /// Move a group to another place in a topic
    Reset(ResetArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only groups of this cluster
    #[arg(long)]
    cluster: Option<String>,
    /// Also the system's own groups
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The group
    group: String,
    /// Deliveries before a message goes to the dead letters
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(i32).range(0..))]
    retries: i32,
    /// Messages are delivered in the order of their queue
    #[arg(long)]
    order: bool,
    /// Only at the brokers of this cluster
    #[arg(long)]
    cluster: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// The group
    group: String,
    /// Keep its offsets, so that a group of this name goes on where this one was
    #[arg(long)]
    keep_offsets: bool,
    /// Only at the brokers of this cluster
    #[arg(long)]
    cluster: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ProgressArgs {
    /// The group
    group: String,
    /// Only this topic
    #[arg(long)]
    topic: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rmq group reset payments orders last                   skip all that is there
  rmq group reset payments orders 2026-11-30T12:00:00Z   all that was stored since
  rmq group reset payments orders 10m                    what was stored in the last 10 minutes")]
pub(crate) struct ResetArgs {
    /// The group
    group: String,
    /// The topic
    topic: String,
    /// first, last, a time (RFC 3339 or milliseconds since the epoch), or how long ago (10m)
    to: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupRow {
    group: String,
    clients: usize,
    /// CLUSTERING or BROADCASTING; none when nobody is there.
    model: Option<MessageModel>,
    topics: BTreeSet<String>,
    lag: i64,
    retry_max_times: i32,
}

impl Row for GroupRow {
    const COLUMNS: &'static [(&'static str, Align)] = &[
        ("GROUP", Align::Left),
        ("CLIENTS", Align::Right),
        ("MODEL", Align::Left),
        ("LAG", Align::Right),
        ("RETRIES", Align::Right),
        ("TOPICS", Align::Left),
    ];

    fn cells(&self) -> Vec<String> {
        let model = match self.model {
            Some(MessageModel::Clustering) => "clustering",
            Some(MessageModel::Broadcasting) => "broadcasting",
            None => "-",
        };
        vec![
            self.group.clone(),
            self.clients.to_string(),
            model.to_owned(),
            self.lag.to_string(),
            self.retry_max_times.to_string(),
            self.topics.iter().map(String::as_str).collect::<Vec<_>>().join(","),
        ]
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProgressRow {
    topic: String,
    broker: String,
    queue: i32,
    broker_offset: i64,
    consumer_offset: i64,
    lag: i64,
    /// Store time of the last message consumed, milliseconds since the epoch; 0 for none.
    last_consumed: i64,
}

impl Row for ProgressRow {
    const COLUMNS: &'static [(&'static str, Align)] = &[
        ("TOPIC", Align::Left),
        ("BROKER", Align::Left),
        ("QUEUE", Align::Right),
        ("BROKER OFFSET", Align::Right),
        ("CONSUMER OFFSET", Align::Right),
        ("LAG", Align::Right),
        ("LAST CONSUMED", Align::Left),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.topic.clone(),
            self.broker.clone(),
            self.queue.to_string(),
            self.broker_offset.to_string(),
            self.consumer_offset.to_string(),
            self.lag.to_string(),
            format_millis(self.last_consumed),
        ]
    }
}

pub(crate) async fn run(session: &Session, command: &GroupCommand) -> Result<(), RmqError> {
    match command {
        GroupCommand::List(args) => list(session, args).await,
        GroupCommand::Create(args) => create(session, args).await,
        GroupCommand::Delete(args) => delete(session, args).await,
        GroupCommand::Progress(args) => progress(session, args).await,
        GroupCommand::Reset(args) => reset(session, args).await,
    }
}

async fn list(session: &Session, args: &ListArgs) -> Result<(), RmqError> {
    let mut rows: BTreeMap<String, GroupRow> = BTreeMap::new();
    for broker in session.masters(args.cluster.as_deref()).await? {
        let groups = session.admin.groups(&broker.addr).await?.subscription_group_table;
        for (group, config) in groups {
            if !args.all && topic_name::is_system_group(&group) {
                continue;
            }
            let row = rows.entry(group.clone()).or_insert_with(|| GroupRow {
                group: group.clone(),
                clients: 0,
                model: None,
                topics: BTreeSet::new(),
                lag: 0,
                retry_max_times: config.retry_max_times,
            });
            if let Some(who) = session.admin.consumer_connections(&broker.addr, &group).await? {
                row.clients = row.clients.max(who.connection_set.len());
                row.model = Some(who.message_model);
            }
            let stats = session.admin.consume_stats_at(&broker.addr, &group, None).await?;
            for (queue, offsets) in stats.offset_table.0 {
                row.lag += offsets.broker_offset.saturating_sub(offsets.consumer_offset).max(0);
                if !topic_name::is_retry(&queue.topic) {
                    row.topics.insert(queue.topic);
                }
            }
        }
    }
    print_rows(session.format, &rows.into_values().collect::<Vec<_>>())
}

async fn create(session: &Session, args: &CreateArgs) -> Result<(), RmqError> {
    topic_name::validate_group(&args.group).map_err(|error| RmqError::Usage(error.to_string()))?;
    let config = SubscriptionGroupConfig {
        group_name: args.group.clone(),
        retry_max_times: args.retries,
        consume_message_orderly: args.order,
        ..SubscriptionGroupConfig::default()
    };
    let mut rows = Vec::new();
    for broker in session.masters(args.cluster.as_deref()).await? {
        let outcome = session.admin.create_group(&broker.addr, &config).await;
        rows.push(DoneRow::new(broker, "created", outcome));
    }
    print_done(session, &rows)
}

async fn delete(session: &Session, args: &DeleteArgs) -> Result<(), RmqError> {
    let mut rows = Vec::new();
    for broker in session.masters(args.cluster.as_deref()).await? {
        let groups = session.admin.groups(&broker.addr).await?;
        if !groups.subscription_group_table.contains_key(&args.group) {
            continue;
        }
        let clean = !args.keep_offsets;
        let outcome = session.admin.delete_group(&broker.addr, &args.group, clean).await;
        rows.push(DoneRow::new(broker, "deleted", outcome));
    }
    if rows.is_empty() {
        return Err(no_group(&args.group));
    }
    print_done(session, &rows)
}

fn no_group(group: &str) -> RmqError {
    RmqError::NoGroup { group: group.to_owned() }
}

async fn progress(session: &Session, args: &ProgressArgs) -> Result<(), RmqError> {
    let mut all = ConsumeStats::default();
    let mut is_known = false;
    for broker in session.masters(None).await? {
        let groups = session.admin.groups(&broker.addr).await?;
        if !groups.subscription_group_table.contains_key(&args.group) {
            continue;
        }
        is_known = true;
        let topic = args.topic.as_deref();
        let stats = session.admin.consume_stats_at(&broker.addr, &args.group, topic).await?;
        all.offset_table.0.extend(stats.offset_table.0);
    }
    if !is_known {
        return Err(no_group(&args.group));
    }
    print_rows(session.format, &progress_rows(all))
}

fn progress_rows(stats: ConsumeStats) -> Vec<ProgressRow> {
    let queues = stats.offset_table.0.into_iter();
    queues
        .map(|(queue, offsets)| ProgressRow {
            topic: queue.topic,
            broker: queue.broker_name,
            queue: queue.queue_id,
            broker_offset: offsets.broker_offset,
            consumer_offset: offsets.consumer_offset,
            lag: offsets.broker_offset.saturating_sub(offsets.consumer_offset).max(0),
            last_consumed: offsets.last_timestamp,
        })
        .collect()
}

async fn reset(session: &Session, args: &ResetArgs) -> Result<(), RmqError> {
    let timestamp = match args.to.as_str() {
        "first" => 0,
        "last" => -1,
        time => parse_time(time, jiff::Timestamp::now()).map_err(RmqError::Usage)?,
    };
    let mut rows = Vec::new();
    for broker in session.masters(None).await? {
        let admin = &session.admin;
        let outcome = admin.reset_offset(&broker.addr, &args.group, &args.topic, timestamp).await;
        let missing = [ResponseCode::TOPIC_NOT_EXIST, ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST];
        if outcome.as_ref().is_err_and(|error| error.code().is_some_and(|c| missing.contains(&c))) {
            continue;
        }
        let queues = outcome.as_ref().map_or(0, |body| body.offset_table.0.len());
        let done = format!("{queues} queues set");
        rows.push(DoneRow::new(broker, &done, outcome.map(drop)));
    }
    if rows.is_empty() {
        return Err(no_group(&args.group));
    }
    print_done(session, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Format, render};
    use protocol::body::{MessageQueue, OffsetWrapper};

    #[test]
    fn golden() {
        let row = |group: &str, clients, model, topics: &[&str]| GroupRow {
            group: group.into(),
            clients,
            model,
            topics: topics.iter().map(|topic| (*topic).to_owned()).collect(),
            lag: 1_234,
            retry_max_times: 16,
        };
        let rows = [
            row("payments", 3, Some(MessageModel::Clustering), &["orders", "refunds"]),
            row("idle", 0, None, &[]),
        ];
        crate::golden::check("group-list.txt", &render(Format::Table, &rows));
        crate::golden::check("group-list.json", &render(Format::Json, &rows));
        let queue =
            MessageQueue { topic: "orders".into(), broker_name: "orders-0".into(), queue_id: 3 };
        let offsets = OffsetWrapper {
            broker_offset: 1_000,
            consumer_offset: 990,
            last_timestamp: 1_764_504_000_123,
            pull_offset: 999,
        };
        let stats = || ConsumeStats {
            offset_table: [(queue.clone(), offsets.clone())].into_iter().collect(),
            consume_tps: 0.0,
        };
        crate::golden::check("group-progress.txt", &render(Format::Table, &progress_rows(stats())));
        crate::golden::check("group-progress.json", &render(Format::Json, &progress_rows(stats())));
    }
}
