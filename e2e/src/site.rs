//! A name server and a broker over a given store directory: this project's, or Apache's own. Both
//! have the same names and ports, so that one can take over the other's store.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::java::{Target, client_state};
use crate::process::{Process, output};
use crate::programs;

const LIMIT: Duration = Duration::from_secs(60);
const NAMESRV_PORTS: std::ops::Range<u16> = 21_000..29_000;

/// Whose servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// This project's.
    Ours,
    /// Apache's, of the release that `peer.sh` names.
    Apache,
}

/// What the two have in common.
#[derive(Debug, Clone)]
pub struct Site {
    /// Holds the store as `store`, and what the servers write beside it.
    pub directory: PathBuf,
    /// brokerClusterName.
    pub cluster: String,
    /// brokerName.
    pub broker_name: String,
    namesrv_port: u16,
}

/// Running servers.
pub struct Servers {
    site: Site,
    /// Broker and name server of ours.
    ours: Option<(Process, Process)>,
}

impl Site {
    /// A directory that exists; the store in it may be there already.
    pub fn new(directory: &Path, cluster: &str, broker_name: &str) -> Result<Self> {
        let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
        let namesrv_port = NAMESRV_PORTS
            .step_by(50)
            .find(|port| [0, 1, 8, 10, 11, 20].iter().all(|more| is_free(port + more)))
            .context("no free ports on this machine")?;
        Ok(Self {
            directory: directory.to_owned(),
            cluster: cluster.to_owned(),
            broker_name: broker_name.to_owned(),
            namesrv_port,
        })
    }

    fn broker_port(&self) -> u16 {
        self.namesrv_port + 10
    }

    /// The store.
    pub fn store(&self) -> PathBuf {
        self.directory.join("store")
    }

    /// How clients reach the servers.
    pub fn target(&self) -> Target {
        Target {
            namesrv: format!("127.0.0.1:{}", self.namesrv_port),
            broker: format!("127.0.0.1:{}", self.broker_port()),
            broker_name: self.broker_name.clone(),
            cluster: self.cluster.clone(),
            dns: None,
            state: client_state(&self.directory),
        }
    }

    /// Starts servers on the store.
    pub fn start(&self, whose: Whose) -> Result<Servers> {
        let ours = match whose {
            Whose::Ours => Some(self.start_ours()?),
            Whose::Apache => {
                self.peer("start")?;
                None
            }
        };
        Ok(Servers { site: self.clone(), ours })
    }

    fn start_ours(&self) -> Result<(Process, Process)> {
        let Self { directory, cluster, broker_name, namesrv_port } = self;
        let mut namesrv = Command::new(programs::path("rocketmq-namesrv")?);
        namesrv.args(["--port", &namesrv_port.to_string(), "--health-port", "0", "--set"]);
        namesrv.arg(format!("kvConfigPath={}/kvConfig.json", directory.display()));
        let namesrv = Process::start("our-namesrv", &mut namesrv, directory)?;
        let broker_port = self.broker_port();
        let lines = [
            format!("brokerClusterName={cluster}"),
            format!("brokerName={broker_name}"),
            "brokerIP1=127.0.0.1".to_owned(),
            format!("listenPort={broker_port}"),
            format!("namesrvAddr=127.0.0.1:{namesrv_port}"),
            format!("metricsPromExporterPort={}", broker_port + 10),
            format!("storePathRootDir={}", self.store().display()),
            "diskMaxUsedSpaceRatio=95".to_owned(),
        ];
        let conf = directory.join("our-broker.conf");
        std::fs::write(&conf, lines.join("\n"))?;
        let mut command = Command::new(programs::path("rocketmq-broker")?);
        let mut broker = Process::start("our-broker", command.arg("-c").arg(conf), directory)?;
        let is_open = |port: u16| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        broker.wait_for("the broker's port", LIMIT, |_| is_open(broker_port))?;
        Ok((broker, namesrv))
    }

    fn peer(&self, action: &str) -> Result<String> {
        let mut command = Command::new(programs::root().join("e2e/peers/apache/peer.sh"));
        command
            .arg(action)
            .env("STATE", &self.directory)
            .env("NAMESRV_PORT", self.namesrv_port.to_string())
            .env("BROKER_PORT", self.broker_port().to_string())
            .env("CLUSTER", &self.cluster)
            .env("BROKER_NAME", &self.broker_name);
        output(&mut command)
    }
}

impl Servers {
    /// Stops them in good order.
    pub fn stop(mut self) -> Result<()> {
        let Some((broker, namesrv)) = &mut self.ours else {
            return self.site.peer("stop").map(drop);
        };
        let status = broker.stop(LIMIT)?;
        ensure!(status.success(), "our broker ended with {status}:\n{}", broker.log_tail());
        namesrv.stop(LIMIT).map(drop)
    }

    /// Kills the broker as a crash would.
    pub fn kill(mut self) -> Result<()> {
        let Some((broker, namesrv)) = &mut self.ours else {
            return self.site.peer("kill").map(drop);
        };
        broker.kill()?;
        namesrv.stop(LIMIT).map(drop)
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // What a failed test leaves; after `stop` and `kill` nothing is there any more.
        if self.ours.is_none() {
            let _ = self.site.peer("kill");
        }
    }
}
