//! A group of one broker gets two more, and its master is elected from then on: its pod is deleted
//! in order, killed, restarted for a change and changed by a person, and its node loses power,
//! while messages flow.
//!
//! What is acknowledged must be there afterwards, and no send may fail when nothing but the master
//! changes. Where pods are restarted failed sends are printed: a send fails after 3 s, which a pod
//! may take on a busy machine. Times are printed and not judged.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::java::{Report, SendConsume, Target, client_state};
use e2e::process::wait_until;
use e2e::{programs, say};
use serde_json::{Value, json};

use crate::bed::{Bed, NAMESPACE, POD_LIMIT, ROLL_LIMIT, condition, text};

const CLUSTER: &str = "trades";
const GROUP: &str = "trades-0";
const OBJECT: &str = "rocketmqclusters.rocketmq.rs/trades";
const GROUP_OBJECT: &str = "brokergroups.rocketmq.rs/trades-0";
const MANIFEST: &str = "
apiVersion: rocketmq.rs/v1alpha1
kind: RocketMQCluster
metadata: {name: trades}
spec:
  nameServer: {replicas: 1}
  brokers:
    groups: 1
    storage: {size: 1Gi, reclaim: Delete}
";
/// Messages a second.
const RATE: u32 = 100;
/// Time in which sends must go on.
const FLOW_LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn while_messages_flow(bed: &Bed) -> Result<()> {
    let elected = Elected { bed };
    elected.install()?;
    elected.planned("deleting the master's pod in order", "Deleted", || elected.delete(&[]))?;
    elected.planned("changing the configuration", "Rolled", || elected.roll())?;
    elected.promote()?;
    elected.killed()?;
    elected.node_lost()?;
    elected.remove()
}

struct Elected<'a> {
    bed: &'a Bed,
}

impl Elected<'_> {
    fn install(&self) -> Result<()> {
        say("applying a cluster of one broker, which gets two slaves while messages flow");
        self.bed.cluster.apply(NAMESPACE, MANIFEST)?;
        self.wait_settled(ROLL_LIMIT, 0)?;
        let flow = self.flow("Grown", &format!("{GROUP}-0.{CLUSTER}-broker.{NAMESPACE}.svc"))?;
        let more = json!({"replicas": 3, "config": {"minInSyncReplicas": "2"}});
        self.bed.cluster.patch(NAMESPACE, OBJECT, &json!({"spec": {"brokers": more}}))?;
        self.wait_settled(ROLL_LIMIT, 3)?;
        flow.wait_for_flow(FLOW_LIMIT)?;
        self.judge(&flow.finish()?)?;
        let group = self.group()?;
        let address = group["status"]["address"].as_str().context("an address")?;
        ensure!(address == format!("{GROUP}-master.{NAMESPACE}.svc:10911"), "{address}");
        say(&format!("  {} is master", self.master()?));
        Ok(())
    }

    fn target(&self, broker: &str) -> Result<Target> {
        Ok(Target {
            namesrv: format!("{CLUSTER}-namesrv.{NAMESPACE}.svc:9876"),
            broker: format!("{broker}:10911"),
            broker_name: GROUP.to_owned(),
            cluster: CLUSTER.to_owned(),
            dns: Some(self.bed.cluster.dns()?),
            state: client_state(self.bed.directory.path()),
        })
    }

    fn group(&self) -> Result<Value> {
        self.bed.cluster.get(NAMESPACE, &[GROUP_OBJECT])
    }

    fn record(&self) -> Result<Value> {
        Ok(self.group()?["status"]["election"].take())
    }

    fn epoch(&self) -> Result<i64> {
        self.record()?["masterEpoch"].as_i64().context("there is no epoch")
    }

    /// Pod of the master.
    fn master(&self) -> Result<String> {
        let id = self.record()?["master"].as_i64().context("there is no master")?;
        Ok(format!("{GROUP}-{}", id - 1))
    }

    /// Waits until the spec runs, with this many brokers in sync.
    fn wait_settled(&self, limit: Duration, in_sync: usize) -> Result<()> {
        wait_until("all brokers run as the spec says, in sync", limit, || {
            let resource = self.bed.cluster.get(NAMESPACE, &[OBJECT])?;
            let (ready, why) = condition(&resource, "Ready");
            let (progressing, what) = condition(&resource, "Progressing");
            let current =
                resource["status"]["observedGeneration"] == resource["metadata"]["generation"];
            ensure!(
                current && ready == "True" && progressing == "False",
                "Ready: {ready} ({why}), Progressing: {progressing} ({what})"
            );
            let set = self.record()?["syncStateSet"].as_array().map_or(0, Vec::len);
            ensure!(set == in_sync, "{set} in sync");
            Ok(true)
        })?;
        Ok(())
    }

    fn flow(&self, topic: &str, broker: &str) -> Result<SendConsume> {
        let target = self.target(broker)?;
        wait_until(&format!("{broker} has an address"), POD_LIMIT, || {
            let script = programs::root().join("e2e/kubernetes/with_dns.sh");
            let dns = target.dns.clone().unwrap_or_default();
            let found = Command::new(script).args([&dns, "getent", "hosts", broker]).output()?;
            Ok(found.status.success())
        })?;
        SendConsume::start(&target, topic, 0, RATE)
    }

    fn flow_to_master(&self, topic: &str) -> Result<SendConsume> {
        self.flow(topic, &format!("{GROUP}-master.{NAMESPACE}.svc"))
    }

    fn planned(&self, what: &str, topic: &str, change: impl Fn() -> Result<()>) -> Result<()> {
        say(what);
        let (flow, epoch) = (self.flow_to_master(topic)?, self.epoch()?);
        change()?;
        ensure!(self.epoch()? > epoch, "the master did not change");
        flow.wait_for_flow(FLOW_LIMIT)?;
        self.judge(&flow.finish()?)
    }

    fn judge(&self, report: &Report) -> Result<()> {
        ensure!(report.lost == 0, "acknowledged messages were lost: {report:?}");
        say(&format!(
            "  {} acknowledged, none lost, {} sends failed, {} twice, longest pause {:?}; {} is \
             master",
            report.acked,
            report.failed,
            report.duplicated,
            report.longest_pause,
            self.master()?
        ));
        Ok(())
    }

    fn delete(&self, how: &[&str]) -> Result<()> {
        let (master, epoch) = (self.master()?, self.epoch()?);
        let delete = ["-n", NAMESPACE, "delete", "pod", &master, "--wait=false"];
        self.bed.cluster.kubectl(&[&delete[..], how].concat())?;
        wait_until("another epoch", POD_LIMIT, || Ok(self.epoch()? > epoch))?;
        self.wait_settled(POD_LIMIT, 3)
    }

    fn roll(&self) -> Result<()> {
        let patch = json!({"spec": {"brokers": {"config": {"fileReservedTime": "37"}}}});
        self.bed.cluster.patch(NAMESPACE, OBJECT, &patch)?;
        self.wait_settled(ROLL_LIMIT, 3)
    }

    fn promote(&self) -> Result<()> {
        say("making another pod master by annotation");
        let (flow, master) = (self.flow_to_master("Promoted")?, self.master()?);
        let other = if master == format!("{GROUP}-0") { "trades-0-1" } else { "trades-0-0" };
        let wish = format!("rocketmq.rs/promote={other}");
        self.bed.cluster.kubectl(&["-n", NAMESPACE, "annotate", GROUP_OBJECT, &wish])?;
        wait_until(&format!("{other} is master"), POD_LIMIT, || Ok(self.master()? == other))?;
        wait_until("the annotation is gone", POD_LIMIT, || {
            Ok(self.group()?["metadata"]["annotations"]["rocketmq.rs/promote"].is_null())
        })?;
        flow.wait_for_flow(FLOW_LIMIT)?;
        let report = flow.finish()?;
        self.judge(&report)?;
        ensure!(report.failed == 0, "sends failed as another became master: {report:?}");
        let events = self.bed.cluster.list(NAMESPACE, &["events"])?;
        let told: Vec<_> = events.iter().filter(|event| event["reason"] == "Promoted").collect();
        ensure!(told.len() == 1, "people are told more than once: {told:?}");
        Ok(())
    }

    fn killed(&self) -> Result<()> {
        say("killing the master's pod");
        let flow = self.flow_to_master("Killed")?;
        self.delete(&["--grace-period=0", "--force"])?;
        flow.wait_for_flow(FLOW_LIMIT)?;
        let report = flow.finish()?;
        self.judge(&report)
    }

    fn node_lost(&self) -> Result<()> {
        let Some(nodes) = self.bed.cluster.nodes() else {
            say("nodes of this cluster cannot be made to fail: skipped");
            return Ok(());
        };
        let (flow, epoch) = (self.flow_to_master("Powerless")?, self.epoch()?);
        let pod = self.bed.cluster.get(NAMESPACE, &["pod", &self.master()?])?;
        let node = text(&pod, "/spec/nodeName")?;
        say(&format!("power failure of node {node}, which has the master"));
        nodes.kill(node)?;
        let elected = wait_until("another epoch", POD_LIMIT, || Ok(self.epoch()? > epoch));
        let flows = flow.wait_for_flow(POD_LIMIT);
        nodes.start(node)?;
        elected?;
        flows?;
        self.bed.cluster.wait("default", &format!("node/{node}"), "condition=Ready", POD_LIMIT)?;
        self.wait_settled(ROLL_LIMIT, 3)?;
        self.judge(&flow.finish()?)
    }

    fn remove(&self) -> Result<()> {
        self.bed.cluster.kubectl(&["-n", NAMESPACE, "delete", OBJECT])?;
        let ours = ["pods,pvc,services,endpointslices", "-l", "rocketmq.rs/cluster=trades"];
        wait_until("nothing of the cluster is left", POD_LIMIT, || {
            Ok(self.bed.cluster.list(NAMESPACE, &ours)?.is_empty())
        })?;
        Ok(())
    }
}
