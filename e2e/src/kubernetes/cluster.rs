use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::{kind::Kind, kit::Kit};
use crate::process::{output, output_with_input, wait_until};
use crate::say;

/// Where the cluster comes from.
enum Source {
    Kit(Kit),
    Kind(Kind),
    Given,
}

/// A running cluster and the tool that speaks to it.
pub struct Cluster {
    kubectl: PathBuf,
    kubeconfig: PathBuf,
    source: Source,
}

/// What can be done to the nodes of a cluster: only our own lets them fail.
pub struct Nodes<'a>(&'a Kit);

impl Nodes<'_> {
    /// Power failure: every process of the node dies at once.
    pub fn kill(&self, node: &str) -> Result<()> {
        self.0.script("node.sh", &["kill", node]).map(drop)
    }

    /// The node boots again.
    pub fn start(&self, node: &str) -> Result<()> {
        self.0.script("node.sh", &["start", node]).map(drop)
    }
}

impl Cluster {
    /// Brings a cluster of three nodes up, or takes the one that `E2E_KUBECONFIG` names.
    ///
    /// `E2E_KIND=1` takes kind also where our own cluster could run. With `E2E_KEEP=1` the cluster
    /// is left running until the next test starts.
    pub fn start() -> Result<Self> {
        if let Some(kubeconfig) = std::env::var_os("E2E_KUBECONFIG") {
            let kubeconfig = PathBuf::from(kubeconfig);
            ensure!(kubeconfig.is_file(), "E2E_KUBECONFIG: no file {}", kubeconfig.display());
            say(&format!("using the cluster of {}", kubeconfig.display()));
            return Ok(Self { kubectl: "kubectl".into(), kubeconfig, source: Source::Given });
        }
        let is_root = rustix::process::geteuid().is_root();
        if std::env::var_os("E2E_KIND").is_some() || !is_root {
            ensure!(
                Kind::is_possible(),
                "a cluster needs root on Linux, or kind and a Docker engine, or E2E_KUBECONFIG"
            );
            let kind = Kind::up()?;
            let kubeconfig = kind.kubeconfig().to_owned();
            return Ok(Self { kubectl: "kubectl".into(), kubeconfig, source: Source::Kind(kind) });
        }
        let kit = Kit::up()?;
        let kubeconfig = kit.kubeconfig();
        Ok(Self { kubectl: kit.kubectl()?, kubeconfig, source: Source::Kit(kit) })
    }

    /// Makes image archives known to every node.
    ///
    /// For a given cluster `E2E_LOAD_IMAGE` names a command that is called with each archive.
    pub fn load_images(&self, archives: &[PathBuf]) -> Result<()> {
        match &self.source {
            Source::Kit(kit) => {
                let names: Vec<&str> = archives.iter().filter_map(|path| path.to_str()).collect();
                kit.script("load.sh", &names).map(drop)
            }
            Source::Kind(kind) => archives.iter().try_for_each(|archive| kind.load(archive)),
            Source::Given => archives.iter().try_for_each(|archive| load_given(archive)),
        }
    }

    /// What lets nodes fail, where that is possible.
    pub fn nodes(&self) -> Option<Nodes<'_>> {
        match &self.source {
            Source::Kit(kit) => Some(Nodes(kit)),
            Source::Kind(_) | Source::Given => None,
        }
    }

    /// The API server's audit log of the operator's requests, where there is one.
    pub fn audit_log(&self) -> Option<PathBuf> {
        match &self.source {
            Source::Kit(kit) => Some(kit.audit_log()),
            Source::Kind(_) | Source::Given => None,
        }
    }

    /// The address of the cluster's DNS server.
    pub fn dns(&self) -> Result<String> {
        let path = "jsonpath={.spec.clusterIP}";
        self.kubectl(&["-n", "kube-system", "get", "service", "kube-dns", "-o", path])
    }

    /// Runs `kubectl` against this cluster and returns what it printed.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        output(self.command().args(arguments))
    }

    /// Applies a manifest.
    pub fn apply(&self, namespace: &str, manifest: &str) -> Result<String> {
        let arguments = ["-n", namespace, "apply", "--server-side", "-f", "-"];
        output_with_input(self.command().args(arguments), manifest)
    }

    /// The error message with which the API server refuses a manifest.
    pub fn refusal(&self, namespace: &str, manifest: &str) -> Result<String> {
        let arguments = ["-n", namespace, "apply", "--server-side", "--dry-run=server", "-f", "-"];
        match output_with_input(self.command().args(arguments), manifest) {
            Ok(_) => bail!("this was not refused:\n{manifest}"),
            Err(error) => Ok(error.to_string()),
        }
    }

    /// One object, or a list when `what` names several.
    pub fn get(&self, namespace: &str, what: &[&str]) -> Result<Value> {
        let text = self.kubectl(&[&["-n", namespace, "get", "-o", "json"], what].concat())?;
        serde_json::from_str(&text).context("kubectl printed no JSON")
    }

    /// The items of a list.
    pub fn list(&self, namespace: &str, what: &[&str]) -> Result<Vec<Value>> {
        match self.get(namespace, what)?["items"].take() {
            Value::Array(items) => Ok(items),
            other => bail!("no list of {what:?}: {other}"),
        }
    }

    /// A merge patch.
    pub fn patch(&self, namespace: &str, object: &str, patch: &Value) -> Result<()> {
        let patch = patch.to_string();
        self.kubectl(&["-n", namespace, "patch", object, "--type", "merge", "-p", &patch])?;
        Ok(())
    }

    /// Waits until `kubectl wait` is content, as seen once a moment.
    pub fn wait(&self, namespace: &str, object: &str, r#for: &str, limit: Duration) -> Result<()> {
        let condition = format!("--for={for}", r#for = r#for);
        wait_until(&format!("{object} {for}", r#for = r#for), limit, || {
            self.kubectl(&["-n", namespace, "wait", object, &condition, "--timeout=1s"])?;
            Ok(true)
        })?;
        Ok(())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.kubectl);
        command.env_remove("KUBECONFIG").arg("--kubeconfig").arg(&self.kubeconfig);
        command
    }
}

fn load_given(archive: &Path) -> Result<()> {
    let program = std::env::var_os("E2E_LOAD_IMAGE")
        .context("set E2E_LOAD_IMAGE to a command that loads an image archive into the cluster")?;
    output(Command::new(program).arg(archive))?;
    Ok(())
}
