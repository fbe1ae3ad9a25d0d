//! One store, opened in turn by our broker and by Apache's: a stock client reads the same from
//! both, ids, properties and offsets included, after clean stops and after crashes.
//! `cargo test -p e2e --test both_ways`

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use e2e::java::VERSIONS;
use e2e::process::{output, wait_until};
use e2e::site::{Site, Whose};
use e2e::{programs, say};
use protocol::body::ConsumerOffsetTable;
use protocol::json;
use serde_json::Value;

/// What a stock client reads: the lines that `StoreMessages read` prints.
#[derive(Debug)]
struct Content {
    /// By topic, queue and offset.
    messages: BTreeMap<(String, i64, i64), String>,
    /// By topic and queue: first offset, end, and the group's offset.
    queues: BTreeMap<(String, i64), (i64, i64, i64)>,
}

impl Content {
    fn read(site: &Site, version: &str, group: &str, topics: &[&str]) -> Result<Self> {
        let mut command = site.target().java(version, "StoreMessages");
        let text = output(command.arg("read").arg(group).args(topics))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self> {
        let mut content = Self { messages: BTreeMap::new(), queues: BTreeMap::new() };
        for line in text.lines().filter(|line| line.starts_with('{')) {
            let value: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
            let number = |name: &str| value[name].as_i64();
            let topic = value["topic"].as_str().context("no topic")?.to_owned();
            let queue = number("queue").context("no queue")?;
            if let Some(end) = number("max") {
                let consumed = number("consumed").unwrap_or(-1);
                let min = number("min").context("no min")?;
                content.queues.insert((topic, queue), (min, end, consumed));
                continue;
            }
            let offset = number("offset").context("no offset")?;
            content.messages.insert((topic, queue, offset), line.to_owned());
        }
        ensure!(!content.messages.is_empty(), "nothing was read:\n{text}");
        Ok(content)
    }

    /// Fails unless everything in here is in `later`, to the letter, and nothing but delayed
    /// messages was added.
    fn check_kept(&self, later: &Self) -> Result<()> {
        for (place, line) in &self.messages {
            match later.messages.get(place) {
                Some(found) if found == line => {}
                found => bail!("{place:?} was {line}\nand is {found:?}"),
            }
        }
        let added = later.messages.iter().filter(|(place, _)| !self.messages.contains_key(place));
        for (place, line) in added {
            ensure!(place.0.ends_with("Delay"), "a message came from nowhere: {line}");
        }
        for (queue, (min, end, consumed)) in &self.queues {
            let (new_min, new_end, new_consumed) = later.queues.get(queue).context("a queue")?;
            // Nothing consumed is the first offset or none, as the broker likes.
            let is_consumed_kept = consumed.max(min) == new_consumed.max(new_min);
            let is_kept = min == new_min && new_end >= end && is_consumed_kept;
            ensure!(
                is_kept,
                "{queue:?}: {:?} became {:?}",
                self.queues[queue],
                later.queues[queue]
            );
        }
        Ok(())
    }
}

/// A store and what a stock client read from it last.
struct Relay {
    site: Site,
    round: u32,
    topics: Vec<String>,
    last: Option<Content>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Stop,
    Kill,
}

const PREFIX: &str = "Relay";
const GROUP: &str = "CG-Relay";
/// Time for a broker to write the offsets of its consumers.
const OFFSETS_LIMIT: Duration = Duration::from_secs(30);

impl Relay {
    /// Lets a broker take the store over: it has all that was there, takes more, and ends.
    fn lap(&mut self, whose: Whose, end: End) -> Result<()> {
        self.round += 1;
        say(&format!("{whose:?} takes the store over"));
        let servers = self.site.start(whose)?;
        if let Some(last) = &self.last {
            last.check_kept(&self.read(0)?).with_context(|| format!("{whose:?} opened it"))?;
        }
        say("a stock client sends messages of every kind and reads all");
        let mut command = self.site.target().java(VERSIONS[0], "StoreMessages");
        let topics = output(command.args(["write", PREFIX, &self.round.to_string()]))?;
        let topics = topics.lines().last().unwrap_or_default();
        self.topics = topics.split_whitespace().map(str::to_owned).collect();
        let content = self.read(usize::try_from(self.round)? % VERSIONS.len())?;
        let (messages, queues) = (content.messages.len(), content.queues.len());
        say(&format!("{messages} messages in {queues} queues; ending {whose:?}"));
        let is_consumed = content.queues.values().any(|(_, end, consumed)| end == consumed);
        ensure!(is_consumed, "no consumer offsets: {:?}", content.queues);
        match end {
            End::Stop => servers.stop(),
            End::Kill => {
                // Both brokers write offsets every 5 s; what a crash loses of them is no fault.
                wait_until("the offsets are on the disk", OFFSETS_LIMIT, || {
                    self.has_offsets(&content)
                })?;
                servers.kill()
            }
        }?;
        self.last = Some(content);
        self.check_store(whose, end)
    }

    fn has_offsets(&self, content: &Content) -> Result<bool> {
        let text = std::fs::read(self.site.store().join("config/consumerOffset.json"))?;
        let table: ConsumerOffsetTable = json::from_slice(&text)?;
        Ok(content.queues.iter().all(|((topic, queue), (_, _, consumed))| {
            let queues = table.offset_table.get(&format!("{topic}@{GROUP}"));
            let found = i32::try_from(*queue).ok().and_then(|queue| queues?.get(&queue).copied());
            *consumed <= 0 || found == Some(*consumed)
        }))
    }

    fn read(&self, version: usize) -> Result<Content> {
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        Content::read(&self.site, VERSIONS[version], GROUP, &topics)
    }

    /// `rmq check` finds every record good, and nothing that a start would not repair.
    fn check_store(&self, whose: Whose, end: End) -> Result<()> {
        let mut command = Command::new(programs::path("rmq")?);
        let store = self.site.store();
        let checked = command.arg("check").arg(store).output().context("rmq check")?;
        let text = String::from_utf8_lossy(&checked.stdout);
        let code = checked.status.code();
        let is_right = code == Some(0) || code == Some(3) && end == End::Kill;
        ensure!(is_right, "rmq check of what {whose:?} left: exit code {code:?}\n{text}");
        Ok(())
    }
}

#[test]
fn a_store_goes_from_one_broker_to_the_other_and_back() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let site = Site::new(directory.path(), "DefaultCluster", "broker-a")?;
    let mut relay = Relay { site, round: 0, topics: Vec::new(), last: None };
    relay.lap(Whose::Ours, End::Stop)?;
    relay.lap(Whose::Apache, End::Kill)?;
    relay.lap(Whose::Ours, End::Kill)?;
    relay.lap(Whose::Apache, End::Stop)?;
    relay.lap(Whose::Ours, End::Stop)
}

/// Topics of the fixtures none of whose bodies were replaced to make them small.
const GOLDEN_TOPICS: [&str; 7] = [
    "GoldenBatch",
    "GoldenOrder",
    "GoldenRetry",
    "GoldenDelay",
    "GoldenTimer",
    "GoldenTx",
    "%RETRY%CG_Golden",
];

#[test]
fn a_stock_client_reads_the_stores_of_the_fixtures_through_our_broker() -> Result<()> {
    let fixtures = programs::root().join("store/tests/fixtures");
    for name in ["java-5.3.3-clean", "java-5.3.3-killed"] {
        let directory = tempfile::tempdir()?;
        say(&format!("our broker opens {name}"));
        unpack(&fixtures.join(format!("{name}.tar.xz")), directory.path())?;
        let expected = std::fs::read_to_string(directory.path().join("expected.jsonl"))?;
        let site = Site::new(directory.path(), "GoldenCluster", "broker-golden")?;
        let servers = site.start(Whose::Ours)?;
        let content = Content::read(&site, VERSIONS[0], "CG_Golden", &GOLDEN_TOPICS)?;
        servers.stop()?;
        let count = check_golden(&Content::parse(&expected)?, &content)?;
        say(&format!("{count} messages are as Apache's broker stored them"));
    }
    Ok(())
}

fn check_golden(expected: &Content, content: &Content) -> Result<usize> {
    let topics: BTreeSet<&str> = GOLDEN_TOPICS.into();
    let mut count = 0;
    for (place, line) in &expected.messages {
        if !topics.contains(place.0.as_str()) {
            continue;
        }
        let found = content.messages.get(place).with_context(|| format!("no {line}"))?;
        let (found, line): (Value, Value) =
            (serde_json::from_str(found)?, serde_json::from_str(line)?);
        ensure!(found == line, "{line}\nwas read as {found}");
        count += 1;
    }
    for (queue, (min, end, _)) in &expected.queues {
        let Some((found_min, found_end, _)) = content.queues.get(queue) else { continue };
        // Delayed messages that were pending have come since.
        ensure!(found_min == min && found_end >= end, "{queue:?}");
    }
    let consumed: i64 = content.queues.iter().map(|(_, (_, _, consumed))| *consumed.max(&0)).sum();
    ensure!(
        consumed >= 40,
        "CG_Golden had consumed the 40 messages of GoldenRetry, not {consumed}"
    );
    Ok(count)
}

fn unpack(archive: &Path, directory: &Path) -> Result<()> {
    let mut command = Command::new("tar");
    output(command.arg("xJSf").arg(archive).arg("-C").arg(directory)).map(drop)
}
