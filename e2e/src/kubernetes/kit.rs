use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::process::output;
use crate::{programs, say};

/// Our own cluster, by the scripts of `e2e/kubernetes`. It ends when the value is dropped.
pub(super) struct Kit {
    home: PathBuf,
    keep: bool,
}

impl Kit {
    /// Brings a new cluster up. What a run left that was cut off, or told to keep it, is removed.
    pub(super) fn up() -> Result<Self> {
        let home = std::env::var_os("E2E_HOME").unwrap_or_else(|| "/var/tmp/rocketmq-e2e".into());
        let kit = Self { home: home.into(), keep: std::env::var_os("E2E_KEEP").is_some() };
        if kit.home.exists() {
            say(&format!("removing what an earlier run left in {}", kit.home.display()));
            kit.script("down.sh", &["--purge"])?;
        }
        say(&format!("bringing a Kubernetes of three nodes up in {}", kit.home.display()));
        let status = kit
            .command("up.sh")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .context("cannot run up.sh")?;
        ensure!(status.success(), "the cluster did not come up; logs: {}/log", kit.home.display());
        Ok(kit)
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.home.join("admin.kubeconfig")
    }

    pub(super) fn kubectl(&self) -> Result<PathBuf> {
        let path = self.home.join("conf/kubectl");
        ensure!(path.exists(), "no {}", path.display());
        Ok(path)
    }

    pub(super) fn audit_log(&self) -> PathBuf {
        self.home.join("log/audit.log")
    }

    pub(super) fn script(&self, name: &str, arguments: &[&str]) -> Result<String> {
        output(self.command(name).args(arguments).stdin(Stdio::null()))
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(programs::root().join("e2e/kubernetes").join(name));
        command
            .env("K8S_HOME", &self.home)
            .env("K8S_NAME", "rmqtest")
            .env("K8S_NET", "10.79")
            .env("K8S_NODES", "3");
        command
    }
}

impl Drop for Kit {
    fn drop(&mut self) {
        if self.keep {
            say(&format!("E2E_KEEP: the cluster in {} is left running", self.home.display()));
            return;
        }
        if let Err(error) = self.script("down.sh", &["--purge"]) {
            say(&format!("cannot end the cluster: {error:#}"));
        }
    }
}
