//! The connection to a cluster that a command works with.

use std::time::Duration;

use client::{Admin, BrokerAddress, ClientConfig, ClientError, ClientInstance};

use crate::cli::Cli;
use crate::error::RmqError;
use crate::output::Format;

/// A client, and how its user wants things.
pub(crate) struct Session {
    pub(crate) instance: ClientInstance,
    pub(crate) admin: Admin,
    pub(crate) format: Format,
    /// What the user set as time limit.
    pub(crate) timeout: Option<Duration>,
}

impl Session {
    pub(crate) async fn start(cli: &Cli) -> Result<Self, RmqError> {
        let options = &cli.options;
        let mut config = ClientConfig::new(&options.namesrv);
        config.request_timeout = cli.request_timeout();
        let instance = ClientInstance::start(config).await.map_err(|error| match error {
            ClientError::NameServerAddress { .. } | ClientError::NoNameServer => {
                RmqError::Usage(error.to_string())
            }
            error => error.into(),
        })?;
        let admin = Admin::new(&instance);
        Ok(Self { instance, admin, format: options.output, timeout: options.timeout })
    }

    pub(crate) async fn end(&self) {
        self.instance.shutdown().await;
    }

    /// Masters of one cluster, or of all.
    pub(crate) async fn masters(
        &self,
        cluster: Option<&str>,
    ) -> Result<Vec<BrokerAddress>, RmqError> {
        let mut masters = self.admin.masters(None).await?;
        if let Some(cluster) = cluster {
            let known = joined(masters.iter().map(|broker| broker.cluster.as_str()));
            masters.retain(|broker| broker.cluster == cluster);
            if masters.is_empty() {
                return Err(RmqError::NoCluster { cluster: cluster.to_owned(), known });
            }
        }
        Ok(masters)
    }

    /// The address of a broker that is named by address or, its master, by name.
    pub(crate) async fn broker(&self, broker: &str) -> Result<String, RmqError> {
        if broker.contains(':') {
            return Ok(broker.to_owned());
        }
        let masters = self.masters(None).await?;
        let found = masters.iter().find(|master| master.name == broker);
        found.map(|master| master.addr.clone()).ok_or_else(|| RmqError::NoBroker {
            broker: broker.to_owned(),
            known: joined(masters.iter().map(|master| master.name.as_str())),
        })
    }
}

/// Different names, joined by commas.
fn joined<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}
