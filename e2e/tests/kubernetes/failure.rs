//! Pods, a node and the operator fail while messages flow; no acknowledged message is lost.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::java::SendConsume;
use e2e::process::wait_until;
use e2e::say;
use serde_json::json;

use crate::bed::{Bed, NAMESPACE, OBJECT, POD_LIMIT, ROLL_LIMIT, SYSTEM, condition, text};

/// Messages a second during the failures.
const RATE: u32 = 100;
/// Time in which sends must go on by another broker. A stock producer without
/// `sendLatencyFaultEnable` tries each of the 8 queues of a silent node for 3 s, and finds out that
/// they are gone when it asks for routes again, every 30 s.
const FLOW_LIMIT: Duration = Duration::from_secs(120);

pub(crate) fn while_messages_flow(bed: &Bed) -> Result<()> {
    say("messages flow");
    let flow = SendConsume::start(&bed.target()?, "Flow", 0, RATE)?;
    pod(bed, "orders-0-0")?;
    flow.wait_for_flow(FLOW_LIMIT)?;
    pod(bed, "orders-namesrv-0")?;
    flow.wait_for_flow(FLOW_LIMIT)?;
    node(bed, &flow)?;
    flow.wait_for_flow(FLOW_LIMIT)?;
    operator(bed)?;
    flow.wait_for_flow(FLOW_LIMIT)?;
    let report = flow.finish()?;
    ensure!(report.lost == 0, "acknowledged messages were lost: {report:?}");
    say(&format!(
        "  {} acknowledged, none lost, {} sends failed, {} twice, longest pause {:?}",
        report.acked, report.failed, report.duplicated, report.longest_pause
    ));
    Ok(())
}

fn pod(bed: &Bed, name: &str) -> Result<()> {
    say(&format!("killing pod {name}"));
    let before = bed.cluster.get(NAMESPACE, &["pod", name])?;
    bed.cluster.kubectl(&[
        "-n",
        NAMESPACE,
        "delete",
        "pod",
        name,
        "--grace-period=0",
        "--force",
    ])?;
    wait_until("the pod is replaced", POD_LIMIT, || {
        let now = bed.cluster.get(NAMESPACE, &["pod", name])?;
        Ok(now["metadata"]["uid"] != before["metadata"]["uid"])
    })?;
    bed.cluster.wait(NAMESPACE, &format!("pod/{name}"), "condition=Ready", POD_LIMIT)?;
    bed.wait_ready(POD_LIMIT).map(drop)
}

fn node(bed: &Bed, flow: &SendConsume) -> Result<()> {
    let Some(nodes) = bed.cluster.nodes() else {
        say("nodes of this cluster cannot be made to fail: skipped");
        return Ok(());
    };
    let pod = bed.cluster.get(NAMESPACE, &["pod", "orders-1-0"])?;
    let node = text(&pod, "/spec/nodeName")?;
    say(&format!("power failure of node {node}, which has orders-1-0"));
    nodes.kill(node)?;
    let object = format!("node/{node}");
    bed.cluster.wait("default", &object, "condition=Ready=Unknown", POD_LIMIT)?;
    let why = bed.wait_not_ready(POD_LIMIT)?;
    say(&format!("  the status says: {why}"));
    ensure!(why.contains(node), "the status does not name {node}: {why}");
    let group = bed.cluster.get(NAMESPACE, &["brokergroups.rocketmq.rs", "orders-1"])?;
    let (ready, why) = condition(&group, "Ready");
    ensure!(ready == "False" && why.contains("orders-1-0"), "Ready of orders-1: {ready} ({why})");
    flow.wait_for_flow(FLOW_LIMIT)?;
    say(&format!("node {node} comes back"));
    nodes.start(node)?;
    bed.cluster.wait("default", &object, "condition=Ready", POD_LIMIT)?;
    bed.wait_ready(POD_LIMIT).map(drop)
}

fn operator(bed: &Bed) -> Result<()> {
    let lease = bed.cluster.get(SYSTEM, &["lease", "rocketmq-operator"])?;
    let holder = text(&lease, "/spec/holderIdentity")?.to_owned();
    let pods = bed.cluster.list(SYSTEM, &["pods"])?;
    let leader = pods
        .iter()
        .filter_map(|pod| text(pod, "/metadata/name").ok())
        .find(|name| holder.contains(name))
        .with_context(|| format!("the Lease's holder {holder} is no pod"))?;
    say(&format!("killing the active operator {leader} in the middle of a change"));
    let patch = json!({"spec": {"brokers": {"config": {"fileReservedTime": "37"}}}});
    bed.cluster.patch(NAMESPACE, OBJECT, &patch)?;
    bed.cluster.kubectl(&["-n", SYSTEM, "delete", "pod", leader, "--grace-period=0", "--force"])?;
    bed.wait_ready(ROLL_LIMIT)?;
    let conf = bed.cluster.list(NAMESPACE, &["configmaps", "-l", "rocketmq.rs/broker-group"])?;
    ensure!(conf.len() == 2, "{} configurations of broker groups", conf.len());
    for map in conf {
        ensure!(map["data"].to_string().contains("fileReservedTime=37"), "{}", map["data"]);
    }
    Ok(())
}
