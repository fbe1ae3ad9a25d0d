use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process::{output, output_with_input};
use crate::say;

const NAME: &str = "rocketmq-e2e";
const CONFIG: &str = "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnodes:\n\
                      - role: control-plane\n- role: worker\n- role: worker\n- role: worker\n";
/// kind's default range of Service addresses.
const SERVICES: &str = "10.96.0.0/16";

/// A kind cluster in the local Docker engine. It is deleted when the value is dropped.
pub(super) struct Kind {
    kubeconfig: PathBuf,
    _directory: tempfile::TempDir,
}

impl Kind {
    /// Whether kind is installed and a Docker engine answers.
    pub(super) fn is_possible() -> bool {
        let answers = |program: &str, argument: &str| {
            let mut command = Command::new(program);
            let command = command.arg(argument).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        answers("kind", "version") && answers("docker", "info")
    }

    /// Makes the cluster, and routes to its pods and Services, which needs root or sudo.
    pub(super) fn up() -> Result<Self> {
        say("making a kind cluster of three nodes");
        let directory = tempfile::tempdir()?;
        let kubeconfig = directory.path().join("kubeconfig");
        let mut command = Command::new("kind");
        command
            .args(["create", "cluster", "--name", NAME, "--wait", "180s", "--config", "-"])
            .arg("--kubeconfig")
            .arg(&kubeconfig);
        let kind = Self { kubeconfig, _directory: directory };
        output_with_input(&mut command, CONFIG)?;
        kind.add_routes()?;
        Ok(kind)
    }

    pub(super) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub(super) fn load(&self, archive: &Path) -> Result<()> {
        let arguments = ["load", "image-archive", "--name", NAME];
        output(Command::new("kind").args(arguments).arg(archive)).map(drop)
    }

    fn add_routes(&self) -> Result<()> {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(["get", "nodes", "-o", "json"]);
        let nodes: Value = serde_json::from_str(&output(&mut command)?)?;
        for node in nodes["items"].as_array().context("no nodes")? {
            let addresses = node["status"]["addresses"].as_array().context("no addresses")?;
            let internal = addresses
                .iter()
                .find(|address| address["type"] == "InternalIP")
                .and_then(|address| address["address"].as_str())
                .context("a node without an address")?;
            let pods = node["spec"]["podCIDR"].as_str().context("a node without a pod range")?;
            route(pods, internal)?;
            route(SERVICES, internal)?;
        }
        Ok(())
    }
}

impl Drop for Kind {
    fn drop(&mut self) {
        let deleted = output(Command::new("kind").args(["delete", "cluster", "--name", NAME]));
        if let Err(error) = deleted {
            say(&format!("cannot delete the kind cluster: {error:#}"));
        }
    }
}

fn route(range: &str, via: &str) -> Result<()> {
    let arguments = ["ip", "route", "replace", range, "via", via];
    let is_root = rustix::process::geteuid().is_root();
    let mut command = Command::new(if is_root { "env" } else { "sudo" });
    output(command.args(arguments)).map(drop)
}
