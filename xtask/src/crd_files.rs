//! `crds`: the generated YAML of the resource types, kept in step with the types.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};

const FOLDER: &str = "crds/yaml";

pub(crate) fn write(root: &Path) -> anyhow::Result<()> {
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {FOLDER}"))?;
    let files = files();
    for stale in stale(&folder, &files)? {
        fs::remove_file(folder.join(&stale)).with_context(|| format!("cannot remove {stale}"))?;
        println!("removed {FOLDER}/{stale}");
    }
    for (name, text) in &files {
        let path = folder.join(name);
        if fs::read_to_string(&path).ok().as_ref() == Some(text) {
            continue;
        }
        fs::write(&path, text).with_context(|| format!("cannot write {FOLDER}/{name}"))?;
        println!("wrote {FOLDER}/{name}");
    }
    Ok(())
}

pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let folder = root.join(FOLDER);
    let files = files();
    let mut wrong = stale(&folder, &files)?;
    for (name, text) in files {
        if fs::read_to_string(folder.join(&name)).ok() != Some(text) {
            wrong.push(name);
        }
    }
    if !wrong.is_empty() {
        bail!("not in step in {FOLDER}: {}; run `cargo run -p xtask -- crds`", wrong.join(", "));
    }
    Ok(())
}

/// Every file of the folder: one a resource type, and what lets `deploy/base` take them in.
fn files() -> Vec<(String, String)> {
    let mut files = crds::yaml();
    let mut list = String::from(
        "# Lets deploy/base take the generated files in.\n\
         apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n",
    );
    for (name, _) in &files {
        list.push_str(&format!("  - {name}\n"));
    }
    files.push(("kustomization.yaml".to_owned(), list));
    files
}

/// Files that no resource type has any more.
fn stale(folder: &Path, files: &[(String, String)]) -> anyhow::Result<Vec<String>> {
    let wanted: BTreeSet<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    let mut stale = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {FOLDER}"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".yaml") && !wanted.contains(name.as_str()) {
            stale.push(name);
        }
    }
    Ok(stale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_then_check_and_notice_changes() {
        let root = tempfile::tempdir().expect("a folder");
        write(root.path()).expect("written");
        check(root.path()).expect("in step");
        let folder = root.path().join(FOLDER);
        fs::write(folder.join("old.yaml"), "x").expect("written");
        let name = &crds::yaml()[0].0;
        fs::write(folder.join(name), "x").expect("written");
        let error = check(root.path()).expect_err("two files are wrong").to_string();
        assert!(error.contains("old.yaml") && error.contains(name), "{error}");
        write(root.path()).expect("written");
        check(root.path()).expect("in step again");
    }
}
