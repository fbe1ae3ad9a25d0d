//! `peers/scenarios.txt`: which scenarios of the stock clients are run, and why others are not.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};

/// One line of the list.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    client: String,
    name: String,
    run: bool,
}

/// The list.
#[derive(Debug)]
pub struct Scenarios(Vec<Entry>);

impl Scenarios {
    /// Reads the list of this source tree.
    pub fn read() -> Result<Self> {
        Self::parse(include_str!("../peers/scenarios.txt"))
    }

    fn parse(text: &str) -> Result<Self> {
        let mut entries = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let entry = parse_entry(line)
                .with_context(|| format!("scenarios.txt line {}: {line}", number + 1))?;
            entries.push(entry);
        }
        Ok(Self(entries))
    }

    /// The names to run for clients of these kinds; fails unless the list names each of `offered`
    /// exactly once, so that no scenario is left out without a reason.
    pub fn chosen(&self, clients: &[&str], offered: &str) -> Result<Vec<String>> {
        let listed: Vec<&Entry> =
            self.0.iter().filter(|entry| clients.contains(&entry.client.as_str())).collect();
        let names: BTreeSet<&str> = listed.iter().map(|entry| entry.name.as_str()).collect();
        ensure!(names.len() == listed.len(), "scenarios.txt names a scenario of {clients:?} twice");
        let offered: BTreeSet<&str> = offered.split_whitespace().collect();
        let missing: Vec<_> = offered.difference(&names).collect();
        ensure!(missing.is_empty(), "scenarios.txt does not list {missing:?} of {clients:?}");
        let unknown: Vec<_> = names.difference(&offered).collect();
        ensure!(unknown.is_empty(), "{clients:?} has no scenario {unknown:?} of scenarios.txt");
        Ok(listed.iter().filter(|entry| entry.run).map(|entry| entry.name.clone()).collect())
    }
}

fn parse_entry(line: &str) -> Result<Entry> {
    let mut words = line.split_whitespace();
    let verb = words.next().context("empty")?;
    let client = words.next().context("no client")?.to_owned();
    let name = words.next().context("no scenario")?.to_owned();
    ensure!(["java", "java5", "go"].contains(&client.as_str()), "no such client: {client}");
    let has_reason = words.next().is_some();
    match verb {
        "run" if !has_reason => Ok(Entry { client, name, run: true }),
        "not" if has_reason => Ok(Entry { client, name, run: false }),
        "not" => bail!("no reason given"),
        _ => bail!("neither 'run CLIENT SCENARIO' nor 'not CLIENT SCENARIO REASON'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_this_tree_is_well_formed() {
        Scenarios::read().unwrap();
    }

    #[test]
    fn every_offered_scenario_must_be_listed_once() {
        let list = Scenarios::parse("run java a\nnot java b too early\nrun go c\n").unwrap();
        assert_eq!(list.chosen(&["java"], "b a").unwrap(), ["a"]);
        assert_eq!(list.chosen(&["go"], "c").unwrap(), ["c"]);
        assert!(list.chosen(&["java"], "a b d").is_err());
        assert!(list.chosen(&["java"], "a").is_err());
        let twice = Scenarios::parse("run java a\nrun java a\n").unwrap();
        assert!(twice.chosen(&["java"], "a").is_err());
    }

    #[test]
    fn a_wrong_line_is_refused() {
        for line in ["not java a", "run java a because", "run perl a", "maybe java a", "run java"] {
            assert!(Scenarios::parse(line).is_err(), "{line}");
        }
    }
}
