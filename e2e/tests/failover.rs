//! A group of three brokers in local mode, whose masters are elected: what a stock Java client sees
//! when a master is killed, when all brokers are restarted one after the other, and when a person
//! moves the mastership. `cargo test -p e2e --test failover -- --nocapture`
//!
//! What is acknowledged must be there afterwards. Times are printed and not judged: they depend on
//! the machine.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use client::{Admin, ClientConfig, ClientError, ClientInstance};
use e2e::java::{Report, SendConsume};
use e2e::local::LocalMode;
use e2e::process::wait_until;
use e2e::{programs, say};
use protocol::perm;
use protocol::topic_config::TopicConfig;
use rustix::process::Signal;
use serde_json::Value;

const CLUSTER: &str = "replicated";
const GROUP: &str = "replicated-0";
/// Messages a second.
const RATE: u32 = 200;
/// Time for an election, and for a killed broker to be back in sync.
const LIMIT: Duration = Duration::from_secs(60);
/// Times that a master is killed.
const KILLS: usize = 3;

struct Bed {
    local: LocalMode,
    manifest: PathBuf,
    // Dropped last, with all that the processes write.
    _directory: tempfile::TempDir,
}

impl Bed {
    fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let manifest = directory.path().join("replicated.yaml");
        fs::copy(programs::root().join("deploy/samples/replicated.yaml"), &manifest)?;
        let local = LocalMode::start_with(&manifest, CLUSTER, directory.path())?;
        Ok(Self { local, manifest, _directory: directory })
    }

    fn record(&self) -> Result<Value> {
        let text = fs::read_to_string(self.local.data().join(GROUP).join("record.json"))?;
        let mut content: Value = serde_json::from_str(&text)?;
        Ok(content["record"].take())
    }

    fn master(&self) -> Result<i64> {
        self.record()?["master"].as_i64().context("there is no master")
    }

    fn epoch(&self) -> Result<i64> {
        self.record()?["masterEpoch"].as_i64().context("there is no epoch")
    }

    fn wait_in_sync(&self) -> Result<()> {
        wait_until("all three brokers are in sync", LIMIT, || {
            Ok(self.record()?["syncStateSet"].as_array().is_some_and(|set| set.len() == 3))
        })?;
        Ok(())
    }

    fn flow(&self, topic: &str) -> Result<SendConsume> {
        SendConsume::start(&self.local.target(), topic, 0, RATE)
    }
}

/// Ends the flow once messages flow again with all brokers in sync; nothing may be lost.
fn judged(bed: &Bed, flow: SendConsume) -> Result<Report> {
    flow.wait_for_flow(LIMIT)?;
    bed.wait_in_sync()?;
    let report = flow.finish()?;
    ensure!(report.lost == 0, "acknowledged messages were lost: {report:?}");
    say(&format!(
        "  {} acknowledged, none lost, {} sends failed, {} twice, longest pause {:?}",
        report.acked, report.failed, report.duplicated, report.longest_pause
    ));
    Ok(report)
}

#[test]
fn nothing_acknowledged_is_lost_when_the_master_goes() -> Result<()> {
    let bed = Bed::new()?;
    let outcome = steps(&bed);
    if outcome.is_err() {
        println!("{}", bed.local.log());
    }
    outcome?;
    bed.local.stop()
}

fn steps(bed: &Bed) -> Result<()> {
    bed.wait_in_sync()?;
    killed(bed)?;
    remembered(bed)?;
    paused(bed)?;
    rolled(bed)?;
    moved(bed)
}

fn killed(bed: &Bed) -> Result<()> {
    say("killing the master while messages flow");
    let flow = bed.flow("Killed")?;
    for _ in 0..KILLS {
        let (master, epoch) = (bed.master()?, bed.epoch()?);
        bed.local.kill(&format!("{GROUP}-{}/broker.conf", master - 1))?;
        wait_until("a new epoch", LIMIT, || Ok(bed.epoch()? > epoch && bed.master().is_ok()))?;
        flow.wait_for_flow(LIMIT)?;
        bed.wait_in_sync()?;
    }
    judged(bed, flow).map(drop)
}

/// A topic that was made just before the master died is there after the failover, as it was made.
fn remembered(bed: &Bed) -> Result<()> {
    say("killing the master as soon as it has made a topic");
    let runtime = tokio::runtime::Runtime::new()?;
    let target = bed.local.target();
    for queues in 20..22 {
        let config = ClientConfig::new(target.namesrv.clone());
        let (master, epoch) = (bed.master()?, bed.epoch()?);
        let topic = TopicConfig::new(format!("Fresh{queues}"), queues, perm::READ | perm::WRITE);
        let made = runtime.block_on(async {
            let instance = ClientInstance::start(config).await?;
            Admin::new(&instance).create_topic(&target.broker, &topic).await?;
            anyhow::Ok(instance)
        });
        bed.local.kill(&format!("{GROUP}-{}/broker.conf", master - 1))?;
        let instance = made?;
        wait_until("a new epoch", LIMIT, || Ok(bed.epoch()? > epoch && bed.master().is_ok()))?;
        let admin = Admin::new(&instance);
        let ask = || admin.topic_config(&target.broker, &topic.topic_name);
        let mut found = None;
        wait_until("an answer of the new master", LIMIT, || {
            found = match runtime.block_on(ask()) {
                Err(ClientError::Remoting(_)) => return Ok(false),
                answer => Some(answer?),
            };
            Ok(true)
        })?;
        let found = found.map(|found| found.write_queue_nums);
        ensure!(found == Some(queues), "the new master knows a topic with {found:?} queues");
        bed.wait_in_sync()?;
    }
    Ok(())
}

/// A paused master keeps the port of the masters, so clients have to wait for its end; when it goes
/// on it must not acknowledge anything by itself.
fn paused(bed: &Bed) -> Result<()> {
    say("pausing the master until another is elected, with garbage on all ports meanwhile");
    let flow = bed.flow("Paused")?;
    let epoch = bed.epoch()?;
    let program = format!("{GROUP}-{}/broker.conf", bed.master()? - 1);
    bed.local.signal(&program, Signal::STOP)?;
    for address in [bed.local.controller(), bed.local.target().namesrv] {
        let mut stream = TcpStream::connect(&address)?;
        stream.write_all(&[0xff; 64])?;
        stream.set_read_timeout(Some(LIMIT))?;
        ensure!(stream.read(&mut [0; 16])? == 0, "{address} answers garbage");
    }
    let elected = wait_until("a new epoch", LIMIT, || Ok(bed.epoch()? > epoch));
    bed.local.signal(&program, Signal::CONT)?;
    elected?;
    judged(bed, flow).map(drop)
}

fn rolled(bed: &Bed) -> Result<()> {
    say("restarting every broker while messages flow: no send fails");
    let epoch = bed.epoch()?;
    let flow = bed.flow("Rolled")?;
    let manifest = fs::read_to_string(&bed.manifest)?;
    let changed = manifest.replace("minInSync", "fileReservedTime: \"47\"\n      minInSync");
    fs::write(&bed.manifest, changed)?;
    for replica in 0..3 {
        let restarted = format!("restarting broker {GROUP}-{replica}");
        wait_until(&restarted, LIMIT, || Ok(bed.local.log().contains(&restarted)))?;
    }
    let report = judged(bed, flow)?;
    ensure!(report.failed == 0, "sends failed in a planned restart: {report:?}");
    ensure!(bed.epoch()? > epoch, "the master was not handed over");
    Ok(())
}

fn moved(bed: &Bed) -> Result<()> {
    say("mqadmin sees the in-sync set, and moves the mastership");
    let (target, controller) = (bed.local.target(), bed.local.controller());
    let info = target.mqadmin(&["getControllerMetaData", "-a", &controller])?;
    ensure!(info.contains(&controller), "no leader in:\n{info}");
    let set = target.mqadmin(&["getSyncStateSet", "-a", &controller, "-b", GROUP])?;
    ensure!(set.matches("InSyncReplica").count() >= 3, "not three in sync in:\n{set}");
    let other = if bed.master()? == 1 { 2 } else { 1 };
    let address = bed.record()?["replicas"][other.to_string()]["address"].clone();
    let address = address.as_str().context("an address")?;
    let flow = bed.flow("Moved")?;
    let elect =
        ["electMaster", "-a", &controller, "-b", &other.to_string(), "-bn", GROUP, "-c", CLUSTER];
    // Apache's own tool may end with an error over its answer after the switch was made.
    if let Err(error) = target.mqadmin(&elect) {
        say(&format!("  electMaster says: {error:#}"));
    }
    wait_until("the other broker is master", LIMIT, || Ok(bed.master()? == other))?;
    let report = judged(bed, flow)?;
    ensure!(report.failed == 0, "sends failed as {address} became master: {report:?}");
    Ok(())
}
