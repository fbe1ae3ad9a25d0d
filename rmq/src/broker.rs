//! `rmq broker`.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::error::RmqError;
use crate::output::{Format, Row, print, print_rows, render_json};
use crate::session::Session;
use crate::table::Align;
use crate::topic::parse_pair;

#[derive(Debug, Subcommand)]
pub(crate) enum BrokerCommand {
    /// Show the figures of a running broker
    Status(BrokerArgs),
    /// Show the settings of a broker, or change some
    Config(ConfigArgs),
    /// Keep producers from choosing a broker, at every name server, for instance before it stops
    WipeWritePerm(NameArgs),
    /// Let producers choose a broker again
    AddWritePerm(NameArgs),
}

#[derive(Debug, Args)]
pub(crate) struct BrokerArgs {
    /// The broker, by name (its master) or by address
    broker: String,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// The broker, by name (its master) or by address
    broker: String,
    /// Change this setting
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = parse_pair)]
    set: Vec<(String, String)>,
}

#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// Name of the broker
    name: String,
}

#[derive(Debug, Serialize)]
struct PairRow {
    key: String,
    value: String,
}

impl Row for PairRow {
    const COLUMNS: &'static [(&'static str, Align)] =
        &[("KEY", Align::Left), ("VALUE", Align::Left)];

    fn cells(&self) -> Vec<String> {
        vec![self.key.clone(), self.value.clone()]
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PermRow {
    name_server: String,
    /// Topics whose permission changed.
    topics: i32,
}

impl Row for PermRow {
    const COLUMNS: &'static [(&'static str, Align)] =
        &[("NAME SERVER", Align::Left), ("TOPICS CHANGED", Align::Right)];

    fn cells(&self) -> Vec<String> {
        vec![self.name_server.clone(), self.topics.to_string()]
    }
}

pub(crate) async fn run(session: &Session, command: &BrokerCommand) -> Result<(), RmqError> {
    match command {
        BrokerCommand::Status(args) => {
            let addr = session.broker(&args.broker).await?;
            print_pairs(session.format, session.admin.broker_runtime_info(&addr).await?)
        }
        BrokerCommand::Config(args) => config(session, args).await,
        BrokerCommand::WipeWritePerm(args) => {
            session.broker(&args.name).await?;
            print_counts(session.format, session.admin.wipe_write_perm(&args.name).await?)
        }
        BrokerCommand::AddWritePerm(args) => {
            session.broker(&args.name).await?;
            print_counts(session.format, session.admin.add_write_perm(&args.name).await?)
        }
    }
}

async fn config(session: &Session, args: &ConfigArgs) -> Result<(), RmqError> {
    let addr = session.broker(&args.broker).await?;
    if !args.set.is_empty() {
        let settings = args.set.iter().cloned().collect();
        session.admin.update_broker_config(&addr, &settings).await?;
    }
    let mut settings = session.admin.broker_config(&addr).await?;
    if !args.set.is_empty() {
        settings.retain(|key, _| args.set.iter().any(|(set, _)| set == key));
    }
    print_pairs(session.format, settings)
}

/// A table, or one JSON object.
fn print_pairs(format: Format, pairs: BTreeMap<String, String>) -> Result<(), RmqError> {
    if format == Format::Json {
        return print(&render_json(&pairs));
    }
    let rows: Vec<_> = pairs.into_iter().map(|(key, value)| PairRow { key, value }).collect();
    print_rows(format, &rows)
}

fn print_counts(format: Format, counts: BTreeMap<String, i32>) -> Result<(), RmqError> {
    let row = |(name_server, topics)| PermRow { name_server, topics };
    print_rows(format, &counts.into_iter().map(row).collect::<Vec<_>>())
}
