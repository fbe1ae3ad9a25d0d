//! `dag`: which of our crates may use which, as the table in ARCHITECTURE.md says.
//!
//! The table has the columns `crate` and `may use` (others between them do not matter). A cell of
//! `may use` is `-`, `anything` or crate names. Dependencies of tests are free: they ship nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

const TABLE_FILE: &str = "ARCHITECTURE.md";

#[derive(Debug, Clone, PartialEq, Eq)]
enum MayUse {
    Anything,
    Crates(BTreeSet<String>),
}

type Table = BTreeMap<String, MayUse>;
/// Each crate of the workspace with those that it depends on.
type Edges = BTreeMap<String, BTreeSet<String>>;

pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(root.join(TABLE_FILE))
        .with_context(|| format!("cannot read {TABLE_FILE}, which says what may use what"))?;
    let wrong = violations(&edges(root)?, &parse_table(&text)?);
    if !wrong.is_empty() {
        bail!("{TABLE_FILE} and the manifests disagree:\n  {}", wrong.join("\n  "));
    }
    Ok(())
}

fn edges(root: &Path) -> anyhow::Result<Edges> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata failed: {said}");
    edges_of(&serde_json::from_slice(&output.stdout)?)
}

fn edges_of(metadata: &Value) -> anyhow::Result<Edges> {
    let list = |value: &Value, name: &str| -> anyhow::Result<Vec<Value>> {
        let list = value.get(name).and_then(Value::as_array).cloned();
        list.with_context(|| format!("cargo metadata has no `{name}`"))
    };
    let text = |value: &Value, name: &str| value.get(name)?.as_str().map(str::to_owned);
    let mut edges = Edges::new();
    for package in list(metadata, "packages")? {
        let name = text(&package, "name").context("a package has no name")?;
        let dependencies = list(&package, "dependencies")?;
        let ours = dependencies
            .iter()
            .filter(|d| text(d, "path").is_some() && text(d, "kind").as_deref() != Some("dev"))
            .filter_map(|d| text(d, "name"));
        edges.insert(name, ours.collect());
    }
    Ok(edges)
}

fn parse_table(text: &str) -> anyhow::Result<Table> {
    let mut rows = text.lines().map(cells).skip_while(|row| column(row, "may use").is_none());
    let header = rows.next().with_context(|| {
        format!("{TABLE_FILE} has no table with the columns `crate` and `may use`")
    })?;
    let crate_column = column(&header, "crate").context("the table has no column `crate`")?;
    let use_column = column(&header, "may use").context("the table has no column `may use`")?;
    let mut table = Table::new();
    for row in rows.skip(1).take_while(|row| row.len() == header.len()) {
        let (crates, may_use) = (&row[crate_column], &row[use_column]);
        let may_use = match may_use.as_str() {
            "anything" => MayUse::Anything,
            "-" => MayUse::Crates(BTreeSet::new()),
            names => MayUse::Crates(crate_names(names)?.into_iter().collect()),
        };
        for name in crate_names(crates)? {
            ensure!(
                table.insert(name.clone(), may_use.clone()).is_none(),
                "`{name}` is in the table twice"
            );
        }
    }
    Ok(table)
}

/// Cells of a Markdown table's row without emphasis; none if the line is no row.
fn cells(line: &str) -> Vec<String> {
    let Some(inner) = line.trim().strip_prefix('|').and_then(|l| l.strip_suffix('|')) else {
        return Vec::new();
    };
    inner.split('|').map(|cell| cell.replace(['`', '*'], "").trim().to_owned()).collect()
}

fn column(header: &[String], name: &str) -> Option<usize> {
    header.iter().position(|cell| cell == name)
}

fn crate_names(cell: &str) -> anyhow::Result<Vec<String>> {
    let names: Vec<String> = cell.split(',').map(|name| name.trim().to_owned()).collect();
    let is_name = |name: &String| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
    };
    ensure!(
        names.iter().all(is_name),
        "`{cell}` is neither crate names with commas between them nor `-` nor `anything`"
    );
    Ok(names)
}

fn violations(edges: &Edges, table: &Table) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, uses) in edges {
        match table.get(name) {
            None => wrong.push(format!("`{name}` is not in the table")),
            Some(MayUse::Anything) => {}
            Some(MayUse::Crates(allowed)) => {
                let forbidden = uses.difference(allowed);
                wrong.extend(forbidden.map(|used| format!("`{name}` may not use `{used}`")));
            }
        }
    }
    let named = table.iter().flat_map(|(name, may_use)| {
        let uses = match may_use {
            MayUse::Anything => None,
            MayUse::Crates(crates) => Some(crates),
        };
        std::iter::once(name).chain(uses.into_iter().flatten())
    });
    let unknown: BTreeSet<_> = named.filter(|name| !edges.contains_key(*name)).collect();
    wrong.extend(unknown.iter().map(|name| format!("the table names `{name}`, which is no crate")));
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
Text | with a bar.

| crate | what it is | may use |
|---|---|---|
| `protocol` | bytes | - |
| **store** | files | `protocol` |
| broker | server | protocol, store |
| `e2e`, `xtask` | proof | anything |

| crate | may use |
|---|---|
| other | table |
";

    fn edges(list: &[(&str, &[&str])]) -> Edges {
        let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        list.iter().map(|&(name, uses)| (name.to_owned(), set(uses))).collect()
    }

    #[test]
    fn this_workspace_obeys_its_table() {
        let root = crate::root().expect("a workspace");
        check(&root).unwrap_or_else(|error| panic!("{error:#}"));
    }

    #[test]
    fn violations_are_named() {
        let table = parse_table(TABLE).expect("a table");
        let right = edges(&[
            ("protocol", &[]),
            ("store", &["protocol"]),
            ("broker", &["store"]),
            ("e2e", &["broker", "protocol"]),
            ("xtask", &[]),
        ]);
        assert_eq!(violations(&right, &table), Vec::<String>::new());
        let wrong = edges(&[
            ("protocol", &["store"]),
            ("store", &["protocol", "broker"]),
            ("broker", &[]),
            ("e2e", &[]),
            ("extra", &[]),
        ]);
        assert_eq!(
            violations(&wrong, &table),
            [
                "`extra` is not in the table",
                "`protocol` may not use `store`",
                "`store` may not use `broker`",
                "the table names `xtask`, which is no crate",
            ]
        );
    }

    #[test]
    fn wrong_tables() {
        for (text, expected) in [
            ("no table", "has no table"),
            ("| crate | may use |\n|---|---|\n| a | b and c |\n", "neither crate names"),
            ("| crate | may use |\n|---|---|\n| a | - |\n| a | - |\n", "twice"),
            ("| may use |\n", "no column `crate`"),
        ] {
            let error = parse_table(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn edges_of_tests_are_free() {
        let metadata = serde_json::json!({"packages": [{"name": "a", "dependencies": [
            {"name": "b", "path": "/x/b", "kind": null},
            {"name": "c", "path": "/x/c", "kind": "dev"},
            {"name": "d", "path": "/x/d", "kind": "build"},
            {"name": "serde", "kind": null},
        ]}]});
        let found = edges_of(&metadata).expect("metadata");
        assert_eq!(found, edges(&[("a", &["b", "d"])]));
    }
}
