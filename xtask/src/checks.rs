//! `check`: every check that runs no test, in the order in which a failure is cheapest to find.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, bail};

/// Name and command line of each step.
const STEPS: &[(&str, &[&str])] = &[
    ("format", &["cargo", "fmt", "--all", "--check"]),
    ("tidy", &["cargo", "run", "-q", "-p", "xtask", "--", "tidy"]),
    ("dag", &["cargo", "run", "-q", "-p", "xtask", "--", "dag"]),
    ("crds", &["cargo", "run", "-q", "-p", "xtask", "--", "crds", "--check"]),
    (
        "lints",
        &["cargo", "clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"],
    ),
    ("dependencies", &["cargo", "deny", "--locked", "check", "bans", "licenses", "sources"]),
    ("advisories", &["cargo", "deny", "check", "advisories"]),
];

pub(crate) fn run(root: &Path, list: bool) -> anyhow::Result<()> {
    for (name, words) in STEPS {
        let line = words.join(" ");
        println!("{name}: {line}");
        if list {
            continue;
        }
        if let Some(reason) = skipped(name, root) {
            println!("{name}: skipped: {reason}");
            continue;
        }
        let begin = Instant::now();
        let (program, arguments) = words.split_first().context("an empty step")?;
        let status = Command::new(program).args(arguments).current_dir(root).status();
        let status = status.with_context(|| format!("cannot run `{line}`"))?;
        if !status.success() {
            bail!("{name} failed: `{line}` ended with {status}");
        }
        println!("{name}: ok after {} s", begin.elapsed().as_secs());
    }
    Ok(())
}

/// Why a step cannot run here, although nothing is wrong with the code.
fn skipped(name: &str, root: &Path) -> Option<&'static str> {
    let succeeds = |program: &str, arguments: &[&str]| {
        let status = Command::new(program)
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
