//! Installing the operator, and a first cluster.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::java::SendConsume;
use e2e::process::http_get;
use e2e::process::wait_until;
use e2e::say;
use serde_json::Value;

use crate::bed::{Bed, NAME, NAMESPACE, POD_LIMIT, SYSTEM, text};

/// The messages that must come once each.
const MESSAGES: u64 = 10_000;
/// How many seconds an idle cluster is watched for writes; `E2E_IDLE_SECONDS` says otherwise.
const IDLE_SECONDS: u64 = 30;
/// Most resident memory of an idle operator and of an idle broker.
const RESIDENT_BYTES_MAX: f64 = 64.0 * 1024.0 * 1024.0;

const RESOURCE: &str = "
apiVersion: rocketmq.rs/v1alpha1
kind: RocketMQCluster
metadata: {name: orders}
spec:
  nameServer: {replicas: 2}
  brokers:
    groups: 1
    storage: {size: 1Gi}
";

/// Wrong specs, made by replacing a piece of the right one, and what the refusal must say.
const WRONG: [(&str, &str, &str); 9] = [
    ("groups: 1", "groups: 0", "spec.brokers.groups"),
    ("groups: 1", "groups: 1\n    replicas: 6", "spec.brokers.replicas"),
    ("groups: 1", "grups: 1", "grups"),
    ("groups: 1", "groups: 1\n    flush: Sometimes", "spec.brokers.flush"),
    ("size: 1Gi", "size: much", "spec.brokers.storage.size"),
    ("size: 1Gi", "size: 20m", "spec.brokers.storage.size"),
    ("storage: {size: 1Gi}", "config: {}", "spec.brokers.storage"),
    ("nameServer: {replicas: 2}", "nameServer: {replicas: 0}", "spec.nameServer.replicas"),
    ("name: orders", "name: orders-of-the-whole-wide-world-and-of-mars", "metadata.name"),
];

pub(crate) fn operator(bed: &Bed) -> Result<()> {
    say("installing the operator");
    let overlay = bed.images.overlay.to_str().context("the overlay's path is no text")?;
    bed.cluster.kubectl(&["apply", "--server-side", "-k", overlay])?;
    bed.cluster.wait(SYSTEM, "deployment/rocketmq-operator", "condition=Available", POD_LIMIT)?;
    let namespace = format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}, labels: \
         {{pod-security.kubernetes.io/enforce: restricted}}}}}}"
    );
    bed.cluster.apply("default", &namespace)?;
    let profile = bed.cluster.get(SYSTEM, &["namespace", SYSTEM])?;
    let enforced = text(&profile, "/metadata/labels/pod-security.kubernetes.io~1enforce")?;
    ensure!(enforced == "restricted", "the operator's namespace enforces {enforced}");
    Ok(())
}

pub(crate) fn wrong_resources_are_refused(bed: &Bed) -> Result<()> {
    say("wrong resources are refused, and the message names the field");
    for (piece, wrong, expected) in WRONG {
        let manifest = RESOURCE.replace(piece, wrong);
        let refusal = bed.cluster.refusal(NAMESPACE, &manifest)?;
        ensure!(refusal.contains(expected), "{wrong}: no '{expected}' in the refusal:\n{refusal}");
    }
    Ok(())
}

pub(crate) fn sample(bed: &Bed) -> Result<()> {
    say("applying a RocketMQCluster");
    bed.cluster.apply(NAMESPACE, RESOURCE)?;
    bed.wait_ready(POD_LIMIT)?;
    print!("{}", bed.cluster.kubectl(&["-n", NAMESPACE, "get", "rocketmq"])?);
    let claims = bed.cluster.list(NAMESPACE, &["pvc"])?;
    ensure!(claims.len() == 1, "{} claims for one group", claims.len());
    Ok(())
}

pub(crate) fn ten_thousand_messages_once_each(bed: &Bed) -> Result<()> {
    say("the stock Java client sends 10,000 messages and consumes each");
    let report = SendConsume::start(&bed.target()?, "TenThousand", MESSAGES, 0)?.finish()?;
    ensure!(report.acked >= MESSAGES && report.failed == 0, "{report:?}");
    ensure!(report.lost == 0 && report.duplicated == 0, "{report:?}");
    ensure!(report.consumed >= report.acked, "{report:?}");
    Ok(())
}

pub(crate) fn mqadmin_agrees(bed: &Bed) -> Result<()> {
    say("mqadmin clusterList says what the status says");
    let addresses = bed.broker_addresses()?;
    ensure!(!addresses.is_empty(), "no broker group has an address in its status");
    // A broker looks every few seconds for name servers that were not in the DNS before.
    wait_until("clusterList has every broker group", POD_LIMIT, || {
        let table = bed.target()?.mqadmin(&["clusterList"])?;
        print!("{table}");
        Ok(addresses.iter().all(|(name, address)| {
            table.lines().any(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words.starts_with(&[NAME, name, "0", address])
            })
        }))
    })?;
    Ok(())
}

pub(crate) fn idle_cluster_writes_nothing(bed: &Bed) -> Result<()> {
    say("an idle cluster writes nothing to the API server and needs little memory");
    let operators = bed.cluster.list(SYSTEM, &["pods"])?;
    let brokers = bed.pods("broker")?;
    let named = [(operators, "operator", 8080), (brokers, "broker", 5557)];
    for (pods, what, port) in named {
        for pod in pods {
            let resident = resident_bytes(&format!("{}:{port}", text(&pod, "/status/podIP")?))?;
            say(&format!("  {what}: {:.1} MiB resident", resident / 1024.0 / 1024.0));
            ensure!(resident < RESIDENT_BYTES_MAX, "an idle {what} has {resident} bytes resident");
        }
    }
    let Some(log) = bed.cluster.audit_log() else {
        say("  no audit log of this cluster: writes are not counted");
        return Ok(());
    };
    let before = fs::read_to_string(&log)?.len();
    let seconds = std::env::var("E2E_IDLE_SECONDS").ok().and_then(|value| value.parse().ok());
    let window = Duration::from_secs(seconds.unwrap_or(IDLE_SECONDS));
    thread::sleep(window); // nothing to wait for: the point is that nothing happens
    let log = fs::read_to_string(&log)?;
    let writes: Vec<String> =
        log.get(before..).unwrap_or_default().lines().filter_map(write).collect();
    ensure!(writes.is_empty(), "{} writes while idle:\n{}", writes.len(), writes.join("\n"));
    say(&format!("  no write in {window:?}"));
    Ok(())
}

pub(crate) fn nothing_was_forbidden(bed: &Bed) -> Result<()> {
    let Some(log) = bed.cluster.audit_log() else { return Ok(()) };
    say("the operator never asked for what its role does not allow");
    let log = fs::read_to_string(log)?;
    let decision = "\"authorization.k8s.io/decision\":\"forbid\"";
    let forbidden: Vec<&str> = log.lines().filter(|line| line.contains(decision)).take(5).collect();
    ensure!(forbidden.is_empty(), "forbidden:\n{}", forbidden.join("\n"));
    Ok(())
}

/// A line of the audit log, if it is a write other than the Lease's renewal.
fn write(line: &str) -> Option<String> {
    let event: Value = serde_json::from_str(line).ok()?;
    let verb = event["verb"].as_str()?;
    let resource = event["objectRef"]["resource"].as_str().unwrap_or_default();
    let is_read = ["get", "list", "watch"].contains(&verb);
    (!is_read && resource != "leases")
        .then(|| format!("{verb} {}", event["requestURI"].as_str().unwrap_or_default()))
}

fn resident_bytes(address: &str) -> Result<f64> {
    let metrics = http_get(address, "/metrics")?;
    let line = metrics.lines().find(|line| line.starts_with("process_resident_memory_bytes"));
    let value = line.and_then(|line| line.split(' ').nth(1));
    value
        .with_context(|| format!("no resident memory in {address}/metrics"))?
        .parse()
        .map_err(Into::into)
}
