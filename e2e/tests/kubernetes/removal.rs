//! Deleting a cluster keeps its volume claims, or deletes them, as the resource says.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::process::wait_until;
use e2e::say;
use serde_json::{Value, json};

use crate::bed::{Bed, NAMESPACE, OBJECT, POD_LIMIT};

const LIMIT: Duration = Duration::from_secs(120);

pub(crate) fn keeps_the_claims(bed: &Bed) -> Result<()> {
    say("deleting the cluster keeps its volume claims");
    let mut resource = bed.resource()?;
    let messages = messages(bed)?;
    delete(bed)?;
    let claims = bed.cluster.list(NAMESPACE, &["pvc"])?;
    ensure!(claims.len() == 2, "{} claims are left of 2", claims.len());
    say("a cluster of the same name finds its messages again");
    let metadata = resource["metadata"].as_object_mut().context("no metadata")?;
    metadata.retain(|key, _| key == "name");
    resource.as_object_mut().context("no object")?.remove("status");
    bed.cluster.apply(NAMESPACE, &resource.to_string())?;
    bed.wait_ready(POD_LIMIT)?;
    let again = self::messages(bed)?;
    ensure!(again == messages, "{again} messages, there were {messages}");
    Ok(())
}

pub(crate) fn deletes_the_claims(bed: &Bed) -> Result<()> {
    say("with reclaim: Delete the claims go as well");
    let patch = json!({"spec": {"brokers": {"storage": {"reclaim": "Delete"}}}});
    bed.cluster.patch(NAMESPACE, OBJECT, &patch)?;
    bed.wait_ready(POD_LIMIT)?;
    delete(bed)?;
    wait_until("no claim is left", LIMIT, || {
        Ok(bed.cluster.list(NAMESPACE, &["pvc"])?.is_empty())
    })?;
    Ok(())
}

fn delete(bed: &Bed) -> Result<()> {
    bed.cluster.kubectl(&["-n", NAMESPACE, "delete", OBJECT, "--timeout=60s"])?;
    wait_until("nothing of the cluster is left", LIMIT, || {
        let kinds = "pods,statefulsets,configmaps,pdb,serviceaccounts,brokergroups.rocketmq.rs";
        let left = bed.cluster.list(NAMESPACE, &[kinds, "-l", "rocketmq.rs/cluster=orders"])?;
        let names: Vec<&Value> = left.iter().map(|object| &object["metadata"]["name"]).collect();
        ensure!(names.is_empty(), "{names:?}");
        Ok(true)
    })?;
    Ok(())
}

/// How many messages topic Flow has, by the admin tool.
fn messages(bed: &Bed) -> Result<u64> {
    let mut sum = 0;
    wait_until("mqadmin topicStatus answers for both groups", LIMIT, || {
        let table = bed.target()?.mqadmin(&["topicStatus", "-t", "Flow"])?;
        let rows = table.lines().filter(|line| line.starts_with("orders-"));
        let offsets: Vec<u64> = rows
            .filter_map(|row| row.split_whitespace().nth(3))
            .filter_map(|word| word.parse().ok())
            .collect();
        sum = offsets.iter().sum();
        ensure!(offsets.len() >= 16, "{} queues:\n{table}", offsets.len());
        Ok(true)
    })?;
    Ok(sum)
}
