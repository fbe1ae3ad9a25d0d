//! A static master and its slave, ours and Apache's in each combination: a stock producer sends
//! until the master is killed; everything that was acknowledged is in the slave's log, which is the
//! master's byte for byte, and a stock consumer reads all of it from the slave.
//! `cargo test -p e2e --test static_replication`

use std::collections::BTreeSet;
use std::io::Read as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use e2e::java::{Target, VERSIONS};
use e2e::process::{Process, output, wait_until};
use e2e::{programs, say};
use protocol::body::HaRuntimeInfo;
use protocol::command::RemotingCommand;
use protocol::header::topic::CreateTopicRequestHeader;
use protocol::json;
use protocol::message_codec::{self, MAGIC_BLANK};
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use remoting::{Limits, NoRequests, RemotingClient, RemotingMetrics};
use rustix::process::{Pid, Signal, kill_process};

const LIMIT: Duration = Duration::from_secs(90);
/// Ports of the first combination; those of the others follow.
const PORTS: std::ops::Range<u16> = 29_100..30_000;
const CLUSTER: &str = "StaticCluster";
const BROKER: &str = "broker-static";
const TOPIC: &str = "Static";
/// Acknowledged messages before the master is killed.
const ACKED_MIN: usize = 1_500;
/// Small, so that there are several.
const LOG_FILE_BYTES: usize = 256 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Ours,
    Apache,
}

/// Asks brokers what no stock client asks.
struct Remote {
    runtime: tokio::runtime::Runtime,
    client: RemotingClient<NoRequests>,
}

impl Remote {
    fn new() -> Result<Self> {
        let metrics = RemotingMetrics::default();
        Ok(Self {
            runtime: tokio::runtime::Runtime::new()?,
            client: RemotingClient::new(Limits::default(), Arc::new(NoRequests), metrics),
        })
    }

    fn ask(&self, port: u16, request: RemotingCommand) -> Result<RemotingCommand> {
        let address = format!("127.0.0.1:{port}");
        let invoking = self.client.invoke(&address, request, Duration::from_secs(10));
        let answer = self.runtime.block_on(invoking)?;
        let remark = &answer.remark;
        ensure!(answer.response_code() == ResponseCode::SUCCESS, "{address}: {remark:?}");
        Ok(answer)
    }

    fn status(&self, port: u16) -> Result<HaRuntimeInfo> {
        let code = RequestCode::GET_BROKER_HA_STATUS;
        let answer = self.ask(port, RemotingCommand::request_without_header(code))?;
        Ok(json::from_slice(&answer.body)?)
    }

    fn create_topic(&self, port: u16) -> Result<()> {
        let header = CreateTopicRequestHeader {
            topic: TOPIC.to_owned(),
            default_topic: "TBW102".to_owned(),
            read_queue_nums: 4,
            write_queue_nums: 4,
            perm: 6,
            topic_filter_type: "SINGLE_TAG".to_owned(),
            ..CreateTopicRequestHeader::default()
        };
        let request = RemotingCommand::request(RequestCode::UPDATE_AND_CREATE_TOPIC, &header);
        self.ask(port, request).map(drop)
    }
}

/// Names, directories and ports of one combination.
struct Site {
    directory: PathBuf,
    base: u16,
}

impl Site {
    fn new(directory: &Path, number: u16) -> Result<Self> {
        let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
        let used = [0, 8, 10, 11, 20, 28, 30, 31, 40];
        // Combinations run side by side.
        let mut bases = PORTS.step_by(50).map(|base| base + number * (PORTS.end - PORTS.start));
        let base = bases
            .find(|base| used.iter().all(|more| is_free(base + more)))
            .context("no free ports on this machine")?;
        Ok(Self { directory: directory.to_owned(), base })
    }

    fn master_port(&self) -> u16 {
        self.base + 10
    }

    fn slave_port(&self) -> u16 {
        self.base + 30
    }

    fn target(&self) -> Target {
        Target {
            namesrv: format!("127.0.0.1:{}", self.base),
            broker: format!("127.0.0.1:{}", self.master_port()),
            broker_name: BROKER.to_owned(),
            cluster: CLUSTER.to_owned(),
            dns: None,
            state: self.directory.join("clients"),
        }
    }

    fn store(&self, whose: Whose, is_master: bool) -> PathBuf {
        match (whose, is_master) {
            // `peer.sh` has no other place for it.
            (Whose::Apache, _) => self.directory.join("apache/store"),
            (Whose::Ours, true) => self.directory.join("master"),
            (Whose::Ours, false) => self.directory.join("slave"),
        }
    }

    fn lines(&self, is_master: bool) -> Vec<String> {
        let mut lines = vec![
            format!("mappedFileSizeCommitLog={LOG_FILE_BYTES}"),
            "slaveReadEnable=true".to_owned(),
        ];
        if is_master {
            // Apache's waits for slaves only with the second line.
            lines.push("brokerRole=SYNC_MASTER".to_owned());
            lines.push("inSyncReplicas=2".to_owned());
        } else {
            lines.push("brokerRole=SLAVE".to_owned());
            lines.push("brokerId=1".to_owned());
            // A slave learns from name servers where its master is; Apache's obeys haMasterAddress
            // no more.
            lines.push("registerNameServerPeriod=10000".to_owned());
        }
        lines
    }

    fn start_name_server(&self) -> Result<Process> {
        let mut command = Command::new(programs::path("rocketmq-namesrv")?);
        command.args(["--port", &self.base.to_string(), "--health-port", "0", "--set"]);
        command.arg(format!("kvConfigPath={}/kvConfig.json", self.directory.display()));
        let mut process = Process::start("namesrv", &mut command, &self.directory)?;
        process.wait_for("the name server's port", LIMIT, |_| is_open(self.base))?;
        Ok(process)
    }

    fn start_ours(&self, is_master: bool) -> Result<Process> {
        let (name, port) =
            if is_master { ("master", self.master_port()) } else { ("slave", self.slave_port()) };
        let mut lines = vec![
            format!("brokerClusterName={CLUSTER}"),
            format!("brokerName={BROKER}"),
            "brokerIP1=127.0.0.1".to_owned(),
            format!("listenPort={port}"),
            format!("namesrvAddr=127.0.0.1:{}", self.base),
            format!("metricsPromExporterPort={}", port + 10),
            format!("storePathRootDir={}", self.store(Whose::Ours, is_master).display()),
            "diskMaxUsedSpaceRatio=95".to_owned(),
        ];
        lines.extend(self.lines(is_master));
        let conf = self.directory.join(format!("{name}.conf"));
        std::fs::write(&conf, lines.join("\n"))?;
        let mut command = Command::new(programs::path("rocketmq-broker")?);
        let process = Process::start(name, command.arg("-c").arg(conf), &self.directory);
        let mut process = process?;
        process.wait_for("the broker's port", LIMIT, |_| is_open(port))?;
        Ok(process)
    }
}

fn is_open(port: u16) -> bool {
    std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// Apache's name server and broker, master or slave.
struct Apache {
    directory: PathBuf,
}

impl Apache {
    fn start(site: &Site, is_master: bool) -> Result<Self> {
        let apache = Self { directory: site.directory.join("apache") };
        let port = if is_master { site.master_port() } else { site.slave_port() };
        let mut command = apache.script("start");
        command
            .env("NAMESRV_PORT", site.base.to_string())
            .env("BROKER_PORT", port.to_string())
            .env("CLUSTER", CLUSTER)
            .env("BROKER_NAME", BROKER)
            .env("BROKER_CONF", site.lines(is_master).join("\n"));
        output(&mut command)?;
        Ok(apache)
    }

    fn script(&self, action: &str) -> Command {
        let mut command = Command::new(programs::root().join("e2e/peers/apache/peer.sh"));
        command.arg(action).env("STATE", &self.directory);
        command
    }

    /// Kills the broker alone.
    fn kill_broker(&self) -> Result<()> {
        let pid = std::fs::read_to_string(self.directory.join("broker.pid"))?;
        let pid = Pid::from_raw(pid.trim().parse()?).context("no process")?;
        Ok(kill_process(pid, Signal::KILL)?)
    }
}

impl Drop for Apache {
    fn drop(&mut self) {
        let _ = output(&mut self.script("kill"));
    }
}

/// A stock producer that notes what was acknowledged.
struct Sender {
    child: Child,
    acked: PathBuf,
}

impl Sender {
    fn start(site: &Site) -> Result<Self> {
        let acked = site.directory.join("acked");
        let state = site.target().state;
        std::fs::create_dir_all(&state)?;
        let log = std::fs::File::create(site.directory.join("sender.log"))?;
        let mut command = site.target().java(VERSIONS[0], "SendConsume");
        command.args([TOPIC, "0", "500"]).env("ACKED", &acked);
        command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        Ok(Self { child: command.spawn().context("cannot start SendConsume")?, acked })
    }

    /// The bodies that were acknowledged so far.
    fn acked(&self) -> Result<BTreeSet<String>> {
        let text = std::fs::read_to_string(&self.acked).unwrap_or_default();
        // The last line may not be whole.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        Ok(whole.lines().map(str::to_owned).collect())
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first bytes of a commit log that begins at 0.
fn log_bytes(store: &Path, end: usize) -> Result<Vec<u8>> {
    let mut log = Vec::new();
    while log.len() < end {
        let path = store.join("commitlog").join(format!("{:020}", log.len()));
        let file = std::fs::File::open(&path).with_context(|| path.display().to_string())?;
        let length = (end - log.len()).min(LOG_FILE_BYTES);
        let read = file.take(length as u64).read_to_end(&mut log)?;
        ensure!(read == length, "{} is short", path.display());
    }
    Ok(log)
}

/// The bodies of the topic's messages.
fn bodies(log: &[u8]) -> Result<BTreeSet<String>> {
    let mut bodies = BTreeSet::new();
    let mut at = 0;
    while at < log.len() {
        let rest = &log[at..];
        let (size, magic) = message_codec::peek(rest)?;
        if magic != MAGIC_BLANK {
            let view = message_codec::decode_record(rest)?;
            view.check_body()?;
            ensure!(usize::try_from(view.physical_offset)? == at, "a record is elsewhere");
            if view.topic == TOPIC {
                bodies.insert(String::from_utf8(view.body.to_vec())?);
            }
        }
        at += usize::try_from(size)?;
    }
    Ok(bodies)
}

fn run(master: Whose, slave: Whose) -> Result<()> {
    let say = |text: &str| say(&format!("{master:?} to {slave:?}: {text}"));
    say("starting master and slave");
    let directory = tempfile::tempdir()?;
    let number = u16::from(master == Whose::Apache) + 2 * u16::from(slave == Whose::Apache);
    let site = Site::new(directory.path(), number)?;
    let remote = Remote::new()?;
    let is_ours = (master, slave) == (Whose::Ours, Whose::Ours);
    // Apache's server brings a name server of its own.
    let _names = if is_ours { Some(site.start_name_server()?) } else { None };
    let mut apache = None;
    if !is_ours {
        apache = Some(Apache::start(&site, master == Whose::Apache)?);
    }
    let mut ours = None;
    if master == Whose::Ours {
        ours = Some(site.start_ours(true)?);
    }
    let our_slave = if slave == Whose::Ours { Some(site.start_ours(false)?) } else { None };
    wait_until("the slave is in sync", LIMIT, || {
        let status = remote.status(site.master_port())?;
        Ok(status.in_sync_slave_nums == 1 && status.ha_connection_info[0].slave_ack_offset >= 0)
    })?;
    remote.create_topic(site.master_port())?;
    if slave == Whose::Apache {
        // By itself it copies topics only after a minute.
        remote.create_topic(site.slave_port())?;
    }
    if is_ours {
        check_tools(&site)?;
    }
    let sender = Sender::start(&site)?;
    wait_until("messages are acknowledged", LIMIT, || Ok(sender.acked()?.len() >= ACKED_MIN))?;
    say("the master is killed while it takes messages");
    match (&mut ours, &apache) {
        (Some(master), _) => master.kill()?,
        (None, Some(apache)) => apache.kill_broker()?,
        (None, None) => bail!("there is no master"),
    }
    let acked = sender.acked()?;
    drop(sender);
    let count = check_slave(&site, (master, slave), &remote, &acked)?;
    say(&format!("all {} acknowledged are in the slave's log, which is the master's", acked.len()));
    let mut command = site.target().java(VERSIONS[0], "ConsumeAll");
    let text = output(command.args([TOPIC, &count.to_string()]))?;
    ensure!(text.contains(&format!("result consumed={count}")), "{text}");
    say(&format!("a stock consumer read all {count} messages from the slave"));
    if let Some(mut slave) = our_slave {
        let status = slave.stop(LIMIT)?;
        ensure!(status.success(), "our slave ended with {status}:\n{}", slave.log_tail());
    }
    Ok(())
}

/// Compares the logs; returns how many messages the slave has.
fn check_slave(
    site: &Site,
    (master, slave): (Whose, Whose),
    remote: &Remote,
    acked: &BTreeSet<String>,
) -> Result<usize> {
    let end = remote.status(site.slave_port())?.ha_client_runtime_info.max_offset;
    let end = usize::try_from(end)?;
    let copy = log_bytes(&site.store(slave, false), end)?;
    let original = log_bytes(&site.store(master, true), end)?;
    ensure!(copy == original, "the first {end} bytes of the logs differ");
    ensure!(end > LOG_FILE_BYTES, "{end} bytes are less than one file");
    let stored = bodies(&copy)?;
    let lost: Vec<&String> = acked.difference(&stored).collect();
    ensure!(lost.is_empty(), "{} of {} are lost: {lost:?}", lost.len(), acked.len());
    Ok(stored.len())
}

/// What administrators see.
fn check_tools(site: &Site) -> Result<()> {
    let status = site.target().mqadmin(&["haStatus", "-c", CLUSTER])?;
    ensure!(status.contains("#InSyncSlaveNum\t1"), "{status}");
    let list = site.target().mqadmin(&["clusterList"])?;
    let ids: Vec<&str> = list
        .lines()
        .filter(|line| line.contains(BROKER))
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect();
    ensure!(ids == ["0", "1"], "{list}");
    Ok(())
}

#[test]
fn our_slave_has_all_of_our_master() -> Result<()> {
    run(Whose::Ours, Whose::Ours)
}

#[test]
fn our_slave_has_all_of_apaches_master() -> Result<()> {
    run(Whose::Apache, Whose::Ours)
}

#[test]
fn apaches_slave_has_all_of_our_master() -> Result<()> {
    run(Whose::Ours, Whose::Apache)
}
