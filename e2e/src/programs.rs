//! Where the project's sources and its own binaries are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};

use crate::process::output;
use crate::say;

/// The root of the source tree: as cargo says when it runs the test, for what it said when it built
/// it may be another checkout with the same target directory.
pub fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let here = std::env::var_os("CARGO_MANIFEST_DIR");
        let here = here.map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
        here.parent().expect("the crate is in the source tree").to_owned()
    })
}

/// The directory of the release binaries, which are built first if something changed.
///
/// `E2E_TARGET_DIR` names cargo's target directory for them, `E2E_BIN` a directory of binaries to
/// take as they are.
pub fn directory() -> Result<&'static Path> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    if let Some(directory) = BUILT.get() {
        return Ok(directory);
    }
    let directory = match std::env::var_os("E2E_BIN") {
        Some(given) => PathBuf::from(given),
        None => build()?,
    };
    Ok(BUILT.get_or_init(|| directory))
}

/// The path of one release binary.
pub fn path(name: &str) -> Result<PathBuf> {
    let path = directory()?.join(name);
    ensure!(path.is_file(), "no program {}", path.display());
    Ok(path)
}

fn build() -> Result<PathBuf> {
    say("building the release programs");
    let given = ["E2E_TARGET_DIR", "CARGO_TARGET_DIR"].into_iter().find_map(std::env::var_os);
    let target = given.map_or_else(|| root().join("target"), PathBuf::from);
    let mut command = Command::new(env!("CARGO"));
    // Some build scripts depend on what `cargo test` tells this test about its own package, and
    // half of the tree would be compiled again.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    let status = command
        .current_dir(root())
        .args(["build", "--release", "--target-dir"])
        .arg(&target)
        .args(["-p", "namesrv", "-p", "broker", "-p", "operator", "-p", "rmq"])
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "building the release programs failed");
    Ok(target.join("release"))
}

/// The three images of one build, as archives and by their names.
pub struct Images {
    /// The archives, for loading into a cluster.
    pub archives: Vec<PathBuf>,
    /// A kustomize directory that installs the operator with these images.
    pub overlay: PathBuf,
    /// Name of the name server's image.
    pub namesrv: String,
    /// Name of the broker's image.
    pub broker: String,
}

/// Packs the release binaries into images; another `label` makes different images of them.
pub fn images(directory: &Path, label: &str) -> Result<Images> {
    let mut command = Command::new(root().join("deploy/images/build.sh"));
    command.arg(directory).env("BIN", self::directory()?).env("LABEL", format!("build={label}"));
    let names = output(&mut command)?;
    let mut names = names.lines().map(str::to_owned).skip(1);
    let archive = |name: &str| directory.join(format!("rocketmq-{name}.tar"));
    Ok(Images {
        archives: ["operator", "namesrv", "broker"].map(archive).to_vec(),
        overlay: directory.to_owned(),
        namesrv: names.next().context("no name of the name server's image")?,
        broker: names.next().context("no name of the broker's image")?,
    })
}
