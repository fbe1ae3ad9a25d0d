//! Changes of the spec take effect while messages flow.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::java::SendConsume;
use e2e::say;
use serde_json::json;

use crate::bed::{Bed, NAMESPACE, OBJECT, POD_LIMIT, ROLL_LIMIT, text};

/// Messages a second during the changes.
const RATE: u32 = 100;
/// A stock client looks for new routes every 30 s.
const ROUTE_LIMIT: Duration = Duration::from_secs(90);

pub(crate) fn while_messages_flow(bed: &Bed) -> Result<()> {
    say("messages flow");
    let flow = SendConsume::start(&bed.target()?, "Flow", 0, RATE)?;
    grow(bed)?;
    say("the topic gets queues on the new group; clients find it");
    let topic = ["updateTopic", "-c", "orders", "-t", "Flow", "-r", "8", "-w", "8"];
    bed.target()?.mqadmin(&topic)?;
    flow.wait_for_line("broker orders-1", ROUTE_LIMIT)?;
    config(bed)?;
    flow.wait_for_flow(POD_LIMIT)?;
    image(bed)?;
    flow.wait_for_flow(POD_LIMIT)?;
    let report = flow.finish()?;
    ensure!(report.lost == 0, "acknowledged messages were lost: {report:?}");
    say(&format!(
        "  {} acknowledged, none lost, {} sends failed, {} twice, longest pause {:?}",
        report.acked, report.failed, report.duplicated, report.longest_pause
    ));
    Ok(())
}

fn grow(bed: &Bed) -> Result<()> {
    say("growing from one group to two");
    bed.cluster.patch(NAMESPACE, OBJECT, &json!({"spec": {"brokers": {"groups": 2}}}))?;
    bed.wait_ready(POD_LIMIT)?;
    ensure!(bed.broker_addresses()?.len() == 2, "not two broker groups with an address");
    crate::install::mqadmin_agrees(bed)
}

fn config(bed: &Bed) -> Result<()> {
    say("changing the brokers' configuration");
    let patch = json!({"spec": {"brokers": {"config": {"fileReservedTime": "31"}}}});
    bed.cluster.patch(NAMESPACE, OBJECT, &patch)?;
    bed.wait_ready(ROLL_LIMIT)?;
    for pod in ["orders-0-0", "orders-1-0"] {
        let arguments = ["-n", NAMESPACE, "exec", pod, "--", "rocketmq-broker"];
        let effective = bed
            .cluster
            .kubectl(&[&arguments[..], &["-c", "/etc/rocketmq/broker.conf", "-p"]].concat())?;
        let line = effective.lines().find(|line| line.contains("fileReservedTime"));
        ensure!(line.is_some_and(|line| line.contains("31")), "{pod}: {line:?}");
    }
    Ok(())
}

fn image(bed: &Bed) -> Result<()> {
    say("changing the image of the brokers, then of the name servers");
    for (part, component, image) in [
        ("brokers", "broker", &bed.next_images.broker),
        ("nameServer", "namesrv", &bed.next_images.namesrv),
    ] {
        bed.cluster.patch(NAMESPACE, OBJECT, &json!({"spec": {part: {"image": image}}}))?;
        bed.wait_ready(ROLL_LIMIT)?;
        for pod in bed.pods(component)? {
            let running = text(&pod, "/spec/containers/0/image")?;
            ensure!(running == image, "a {component} runs {running}, not {image}");
        }
    }
    Ok(())
}
