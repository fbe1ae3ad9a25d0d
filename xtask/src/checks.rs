//! `check`: every check that runs no test, in the order in which a failure is cheapest to find.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, bail};

use crate::{crd_files, dag, tidy};

/// What a step does.
enum Action {
    /// A check of this program.
    Own(fn(&Path) -> anyhow::Result<()>),
    /// A command line.
    Run(&'static [&'static str]),
}

const CLIPPY: &[&str] =
    &["cargo", "clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];

/// Fails when the fuzz targets, a workspace of their own, have not followed a new dependency.
const FUZZ_LOCK: &[&str] =
    &["cargo", "tree", "--locked", "--depth", "0", "--manifest-path", "fuzz/Cargo.toml"];

const STEPS: &[(&str, Action)] = &[
    ("format", Action::Run(&["cargo", "fmt", "--all", "--check"])),
    ("tidy", Action::Own(tidy::check)),
    ("crate edges", Action::Own(dag::check)),
    ("generated files", Action::Own(crd_files::check)),
    ("lock file of the fuzz targets", Action::Run(FUZZ_LOCK)),
    ("lints", Action::Run(CLIPPY)),
    (
        "dependencies",
        Action::Run(&["cargo", "deny", "--locked", "check", "bans", "licenses", "sources"]),
    ),
    ("advisories", Action::Run(&["cargo", "deny", "check", "advisories"])),
];

pub(crate) fn run(root: &Path, list: bool) -> anyhow::Result<()> {
    for (name, action) in STEPS {
        match action {
            Action::Own(_) => println!("{name}"),
            Action::Run(words) => println!("{name}: {}", words.join(" ")),
        }
        if list {
            continue;
        }
        if let Some(reason) = skipped(name, root) {
            println!("{name}: skipped: {reason}");
            continue;
        }
        let begin = Instant::now();
        match action {
            Action::Own(check) => check(root).with_context(|| format!("{name} failed"))?,
            Action::Run(words) => run_command(name, words, root)?,
        }
        println!("{name}: ok after {} s", begin.elapsed().as_secs());
    }
    Ok(())
}

fn run_command(name: &str, words: &[&str], root: &Path) -> anyhow::Result<()> {
    let line = words.join(" ");
    let (program, arguments) = words.split_first().context("an empty step")?;
    let status = cargo_from_outside(program).args(arguments).current_dir(root).status();
    let status = status.with_context(|| format!("cannot run `{line}`"))?;
    if !status.success() {
        bail!("{name} failed: `{line}` ended with {status}");
    }
    Ok(())
}

/// A command that does not see what `cargo run` tells this program about its own package: some
/// build scripts depend on it, and half of the tree would be compiled again.
fn cargo_from_outside(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    command
}

/// Why a step cannot run here, although nothing is wrong with the code.
fn skipped(name: &str, root: &Path) -> Option<&'static str> {
    let succeeds = |program: &str, arguments: &[&str]| {
        let status = cargo_from_outside(program)
            .args(arguments)
            .current_dir(root)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    };
    match name {
        "dependencies" | "advisories" if !succeeds("cargo", &["deny", "--version"]) => {
            Some("cargo-deny is not installed (`cargo install cargo-deny --locked`)")
        }
        "advisories" if !succeeds("cargo", &["deny", "fetch", "db"]) => {
            Some("the advisory database cannot be reached")
        }
        _ => None,
    }
}
