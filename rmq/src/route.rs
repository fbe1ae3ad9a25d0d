//! `rmq route`.

use clap::Args;
use protocol::perm;
use protocol::route::TopicRouteData;
use serde::Serialize;

use crate::error::RmqError;
use crate::output::{Row, print_rows};
use crate::session::Session;
use crate::table::Align;

#[derive(Debug, Args)]
pub(crate) struct RouteArgs {
    /// The topic
    topic: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RouteRow {
    cluster: String,
    broker: String,
    read_queues: i32,
    write_queues: i32,
    /// r, w, both or none.
    perm: String,
    addresses: Vec<Address>,
}

#[derive(Debug, Serialize)]
struct Address {
    id: i64,
    address: String,
}

impl Row for RouteRow {
    const COLUMNS: &'static [(&'static str, Align)] = &[
        ("CLUSTER", Align::Left),
        ("BROKER", Align::Left),
        ("READ QUEUES", Align::Right),
        ("WRITE QUEUES", Align::Right),
        ("PERM", Align::Left),
        ("ADDRESSES", Align::Left),
    ];

    fn cells(&self) -> Vec<String> {
        let address = |address: &Address| format!("{}={}", address.id, address.address);
        let addresses: Vec<_> = self.addresses.iter().map(address).collect();
        vec![
            self.cluster.clone(),
            self.broker.clone(),
            self.read_queues.to_string(),
            self.write_queues.to_string(),
            self.perm.clone(),
            addresses.join(" "),
        ]
    }
}

/// The permission as it is written on the command line.
pub(crate) fn perm_letters(perm: i32) -> String {
    let mut letters = String::new();
    letters.extend(perm::is_readable(perm).then_some('r'));
    letters.extend(perm::is_writable(perm).then_some('w'));
    letters.extend(perm::is_inherited(perm).then_some('x'));
    if letters.is_empty() { "-".to_owned() } else { letters }
}

fn rows(route: TopicRouteData) -> Vec<RouteRow> {
    let mut rows: Vec<_> = route
        .queue_datas
        .into_iter()
        .map(|queue| {
            let mut brokers = route.broker_datas.iter();
            let broker = brokers.find(|broker| broker.broker_name == queue.broker_name);
            let addrs = broker.map(|broker| broker.broker_addrs.iter()).into_iter().flatten();
            RouteRow {
                cluster: broker.map(|broker| broker.cluster.clone()).unwrap_or_default(),
                broker: queue.broker_name,
                read_queues: queue.read_queue_nums,
                write_queues: queue.write_queue_nums,
                perm: perm_letters(queue.perm),
                addresses: addrs
                    .map(|(id, addr)| Address { id: *id, address: addr.clone() })
                    .collect(),
            }
        })
        .collect();
    rows.sort_by(|a, b| (&a.cluster, &a.broker).cmp(&(&b.cluster, &b.broker)));
    rows
}

pub(crate) async fn run(session: &Session, args: &RouteArgs) -> Result<(), RmqError> {
    let route = session.admin.route(&args.topic).await?;
    print_rows(session.format, &rows(route))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Format, render};
    use protocol::route::{BrokerData, QueueData};

    fn example() -> TopicRouteData {
        let broker = |name: &str, addrs: &[(i64, &str)]| BrokerData {
            cluster: "orders".into(),
            broker_name: name.into(),
            broker_addrs: addrs.iter().map(|(id, addr)| (*id, (*addr).to_owned())).collect(),
            ..Default::default()
        };
        let queue = |name: &str, perm| QueueData {
            broker_name: name.into(),
            perm,
            read_queue_nums: 8,
            write_queue_nums: 16,
            ..Default::default()
        };
        TopicRouteData {
            broker_datas: vec![
                broker("orders-1", &[(0, "10.0.0.3:10911")]),
                broker("orders-0", &[(0, "10.0.0.1:10911"), (1, "10.0.0.2:10911")]),
            ],
            queue_datas: vec![queue("orders-1", 4), queue("orders-0", 6), queue("gone", 0)],
            ..Default::default()
        }
    }

    #[test]
    fn golden() {
        crate::golden::check("route.txt", &render(Format::Table, &rows(example())));
        crate::golden::check("route.json", &render(Format::Json, &rows(example())));
    }
}
