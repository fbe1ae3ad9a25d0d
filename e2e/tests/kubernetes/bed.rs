//! The cluster under test and what is asked of it again and again.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::java::Target;
use e2e::kubernetes::Cluster;
use e2e::process::wait_until;
use e2e::programs::{self, Images};
use e2e::say;
use serde_json::Value;
use tempfile::TempDir;

/// Namespace of the RocketMQCluster, under the restricted pod security profile.
pub(crate) const NAMESPACE: &str = "mq";
/// Namespace of the operator.
pub(crate) const SYSTEM: &str = "rocketmq-system";
/// The RocketMQCluster.
pub(crate) const NAME: &str = "orders";
/// Its full object name for kubectl.
pub(crate) const OBJECT: &str = "rocketmqclusters.rocketmq.rs/orders";

/// Time for a pod to be replaced, with all that comes after it.
pub(crate) const POD_LIMIT: Duration = Duration::from_secs(120);
/// Time for a change that restarts both brokers, one after the other.
pub(crate) const ROLL_LIMIT: Duration = Duration::from_secs(300);

/// Time for a new name to be known everywhere.
const DNS_LIMIT: Duration = Duration::from_secs(60);

/// The cluster under test.
pub(crate) struct Bed {
    pub(crate) cluster: Cluster,
    pub(crate) images: Images,
    /// The same programs under other image names.
    pub(crate) next_images: Images,
    pub(crate) directory: TempDir,
}

impl Bed {
    /// Builds the images and brings the Kubernetes cluster up with them.
    pub(crate) fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let images = programs::images(&directory.path().join("images"), "one")?;
        let next_images = programs::images(&directory.path().join("next-images"), "two")?;
        let cluster = Cluster::start()?;
        say("loading the images");
        cluster.load_images(&images.archives)?;
        cluster.load_images(&next_images.archives[1..])?;
        Ok(Self { cluster, images, next_images, directory })
    }

    /// How clients on this machine reach the cluster, once they can: the DNS server remembers for
    /// some seconds that a name was not there when it was asked too early.
    pub(crate) fn target(&self) -> Result<Target> {
        let dns = self.cluster.dns()?;
        let mut addresses = self.broker_addresses()?;
        for address in addresses.values() {
            let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
            wait_until(&format!("{host} has an address"), DNS_LIMIT, || {
                let script = programs::root().join("e2e/kubernetes/with_dns.sh");
                let found = Command::new(script).args([&dns, "getent", "hosts", host]).output()?;
                Ok(found.status.success())
            })?;
        }
        Ok(Target {
            namesrv: text(&self.resource()?, "/status/nameServers/addresses")?.to_owned(),
            broker: addresses.remove(&format!("{NAME}-0")).unwrap_or_default(),
            broker_name: format!("{NAME}-0"),
            cluster: NAME.to_owned(),
            dns: Some(dns),
            state: e2e::java::client_state(self.directory.path()),
        })
    }

    /// The addresses that the brokers tell clients, by broker name.
    pub(crate) fn broker_addresses(&self) -> Result<BTreeMap<String, String>> {
        let groups = self.cluster.list(NAMESPACE, &["brokergroups.rocketmq.rs"])?;
        let address = |group: &Value| {
            let name = group["metadata"]["name"].as_str()?.to_owned();
            Some((name, group["status"]["address"].as_str()?.to_owned()))
        };
        Ok(groups.iter().filter_map(address).collect())
    }

    /// The RocketMQCluster as it is.
    pub(crate) fn resource(&self) -> Result<Value> {
        self.cluster.get(NAMESPACE, &[OBJECT])
    }

    /// Waits until the status says of the newest spec that it runs and serves.
    pub(crate) fn wait_ready(&self, limit: Duration) -> Result<Duration> {
        let took = wait_until("the RocketMQCluster is ready", limit, || {
            let resource = self.resource()?;
            let observed = &resource["status"]["observedGeneration"];
            let ready = condition(&resource, "Ready");
            let progressing = condition(&resource, "Progressing");
            let current = *observed == resource["metadata"]["generation"];
            let done = current && ready.0 == "True" && progressing.0 == "False";
            ensure!(done, "Ready: {} ({}), Progressing: {}", ready.0, ready.1, progressing.0);
            Ok(true)
        })?;
        say(&format!("  ready after {:.1} s", took.as_secs_f64()));
        Ok(took)
    }

    /// Waits until the status says of the newest spec that it does not serve in full; returns why.
    pub(crate) fn wait_not_ready(&self, limit: Duration) -> Result<String> {
        let mut message = String::new();
        wait_until("the status says that something is wrong", limit, || {
            let (status, why) = condition(&self.resource()?, "Ready");
            message = why;
            Ok(status == "False")
        })?;
        Ok(message)
    }

    /// Names of the pods of the cluster with a component label.
    pub(crate) fn pods(&self, component: &str) -> Result<Vec<Value>> {
        let selector =
            format!("rocketmq.rs/cluster={NAME},app.kubernetes.io/component={component}");
        self.cluster.list(NAMESPACE, &["pods", "-l", &selector])
    }

    /// Prints what helps to find out why a step failed.
    pub(crate) fn show_state(&self) {
        let commands: [&[&str]; 5] = [
            &["get", "nodes"],
            &["get", "pods", "-A", "-o", "wide"],
            &["-n", NAMESPACE, "get", "rocketmq,pvc,pdb", "-o", "wide"],
            &["-n", NAMESPACE, "get", "events", "--sort-by=.lastTimestamp"],
            &["-n", SYSTEM, "logs", "deploy/rocketmq-operator", "--all-pods", "--tail=60"],
        ];
        for command in commands {
            println!("--- kubectl {}", command.join(" "));
            match self.cluster.kubectl(command) {
                Ok(text) => println!("{text}"),
                Err(error) => println!("{error:#}"),
            }
        }
        for pod in ["orders-0-0", "orders-1-0", "orders-namesrv-0"] {
            let log = self.cluster.kubectl(&["-n", NAMESPACE, "logs", pod, "--tail=40"]);
            println!("--- log of {pod}\n{}", log.unwrap_or_else(|error| format!("{error:#}")));
        }
    }
}

/// Status and message of a condition; both empty when there is none.
pub(crate) fn condition(resource: &Value, kind: &str) -> (String, String) {
    let conditions = resource["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|condition| condition["type"] == kind);
    let text = |key: &str| {
        let value = found.and_then(|condition| condition[key].as_str());
        value.unwrap_or_default().to_owned()
    };
    (text("status"), text("message"))
}

/// A text field of an object, by its JSON pointer.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> Result<&'a str> {
    object.pointer(pointer).and_then(Value::as_str).with_context(|| format!("no {pointer}"))
}
