//! `rmq cluster`.

use std::collections::BTreeMap;

use client::BrokerAddress;
use serde::Serialize;

use crate::error::RmqError;
use crate::output::{Row, or_dash, print_rows};
use crate::session::Session;
use crate::table::Align;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BrokerRow {
    cluster: String,
    broker: String,
    id: i64,
    address: String,
    /// Whether the broker answers.
    up: bool,
    version: Option<String>,
    /// Messages per second, in and out, in the last 10 s.
    in_tps: Option<f64>,
    out_tps: Option<f64>,
    in_today: Option<u64>,
    out_today: Option<u64>,
}

impl Row for BrokerRow {
    const COLUMNS: &'static [(&'static str, Align)] = &[
        ("CLUSTER", Align::Left),
        ("BROKER", Align::Left),
        ("ID", Align::Right),
        ("ADDRESS", Align::Left),
        ("STATE", Align::Left),
        ("VERSION", Align::Left),
        ("IN/S", Align::Right),
        ("OUT/S", Align::Right),
        ("IN TODAY", Align::Right),
        ("OUT TODAY", Align::Right),
    ];

    fn cells(&self) -> Vec<String> {
        let rate = |tps: Option<f64>| or_dash(tps.map(|tps| format!("{tps:.1}")).as_ref());
        vec![
            self.cluster.clone(),
            self.broker.clone(),
            self.id.to_string(),
            self.address.clone(),
            if self.up { "up" } else { "no answer" }.to_owned(),
            or_dash(self.version.as_ref()),
            rate(self.in_tps),
            rate(self.out_tps),
            or_dash(self.in_today.as_ref()),
            or_dash(self.out_today.as_ref()),
        ]
    }
}

impl BrokerRow {
    fn new(broker: BrokerAddress, info: Option<&BTreeMap<String, String>>) -> Self {
        let value = |key: &str| info.and_then(|info| info.get(key));
        // Averages over the last 10 s, 1 min and 10 min.
        let rate = |key| value(key)?.split_whitespace().next()?.parse().ok();
        let total = |key: &str| -> Option<u64> {
            let at = |suffix: &str| value(&format!("{key}{suffix}"))?.parse::<u64>().ok();
            Some(at("Now")?.saturating_sub(at("Morning")?))
        };
        Self {
            cluster: broker.cluster,
            broker: broker.name,
            id: broker.id,
            address: broker.addr,
            up: info.is_some(),
            version: value("brokerVersionDesc").cloned(),
            in_tps: rate("putTps"),
            out_tps: rate("getTransferredTps"),
            in_today: total("msgPutTotalToday"),
            out_today: total("msgGetTotalToday"),
        }
    }
}

pub(crate) async fn run(session: &Session) -> Result<(), RmqError> {
    let brokers = session.admin.brokers().await?;
    let rows = brokers.into_iter().map(|broker| async move {
        let info = session.admin.broker_runtime_info(&broker.addr).await;
        if let Err(error) = &info {
            eprintln!("rmq: {}: {error}", broker.name);
        }
        BrokerRow::new(broker, info.ok().as_ref())
    });
    let rows = futures::future::join_all(rows).await;
    print_rows(session.format, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Format, render};

    fn rows() -> Vec<BrokerRow> {
        let broker = |name: &str, id| BrokerAddress {
            cluster: "orders".into(),
            name: name.into(),
            id,
            addr: format!("10.0.0.1:1091{id}"),
        };
        let info = [
            ("brokerVersionDesc", "V5_5_0"),
            ("putTps", "12.34 5 6"),
            ("getTransferredTps", "0.0 0.0 0.0"),
            ("msgPutTotalTodayMorning", "100"),
            ("msgPutTotalTodayNow", "1300"),
            ("msgGetTotalTodayMorning", "0"),
            ("msgGetTotalTodayNow", "x"),
        ];
        let info = info.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        vec![
            BrokerRow::new(broker("orders-0", 0), Some(&info)),
            BrokerRow::new(broker("orders-1", 1), None),
        ]
    }

    #[test]
    fn golden() {
        crate::golden::check("cluster.txt", &render(Format::Table, &rows()));
        crate::golden::check("cluster.json", &render(Format::Json, &rows()));
    }
}
