//! `rmq check`: whether a store is sound, and what a broker's start would do about it.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use store::delay_level::DelayLevels;
use store::inspect::{self, ConfigFileState, Inspection, Place, Start, Verdict};

use crate::cli::Options;
use crate::duration::format_millis;
use crate::error::RmqError;
use crate::output::{Format, print, render_json, thousands};

/// Findings of one kind that are listed one by one for people; JSON has all.
const LISTED_MAX: usize = 20;

/// Where a store is.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// The store's directory (storePathRootDir)
    dir: PathBuf,
    /// The commit log's directory (storePathCommitLog) [default: commitlog in DIR]
    #[arg(long, value_name = "DIR")]
    commit_log: Option<PathBuf>,
    /// The brokers' messageDelayLevel, if they have one of their own
    #[arg(
        long,
        value_name = "LEVELS",
        default_value = DelayLevels::DEFAULT,
        hide_default_value = true,
        value_parser = DelayLevels::parse
    )]
    message_delay_level: DelayLevels,
    /// The brokers' maxHashSlotNum, if they have one of their own
    #[arg(long, value_name = "SLOTS", default_value_t = 5_000_000, hide_default_value = true)]
    max_hash_slot_num: u32,
    /// The brokers' maxIndexNum, if they have one of their own
    #[arg(long, value_name = "ENTRIES", default_value_t = 20_000_000, hide_default_value = true)]
    max_index_num: u32,
}

impl StoreArgs {
    pub(crate) fn place(&self) -> Place {
        Place {
            root: self.dir.clone(),
            commit_log: self.commit_log.clone(),
            message_delay_level: self.message_delay_level.clone(),
            max_hash_slot_num: self.max_hash_slot_num,
            max_index_num: self.max_index_num,
        }
    }
}

/// Checks a store whose broker is stopped: reads every record and every queue, changes nothing
///
/// Exit codes: 0 sound, 3 a broker's start will repair it, 4 damaged (a start is refused, or leaves
/// damage as it is), 1 it could not be checked, for instance because a broker has it open.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(options: &Options, args: &CheckArgs) -> Result<(), RmqError> {
    let inspection = inspect::inspect(&args.store.place())?;
    let text = match options.output {
        Format::Json => render_json(&inspection),
        Format::Table => report(&inspection),
    };
    print(&text)?;
    match inspection.verdict {
        Verdict::Sound => Ok(()),
        Verdict::Repairable => Err(RmqError::StoreRepairable),
        Verdict::Damaged => Err(RmqError::StoreDamaged),
    }
}

/// Lines of a name and what there is to say about it.
#[derive(Default)]
struct Report(Vec<(String, String)>);

impl Report {
    fn line(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.push((name.into(), value.into()));
    }

    /// A line for each of the first few.
    fn list<T>(&mut self, items: &[T], mut line: impl FnMut(&T) -> (String, String)) {
        for item in items.iter().take(LISTED_MAX) {
            let (name, value) = line(item);
            self.line(name, value);
        }
        if let Some(more) = items.len().checked_sub(LISTED_MAX).filter(|more| *more > 0) {
            self.line("", format!("and {} more, see -o json", count(more as u64)));
        }
    }

    fn text(&self) -> String {
        let width = self.0.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        for (name, value) in &self.0 {
            writeln!(text, "{name:<width$}  {value}").expect("writing to a String does not fail");
        }
        text
    }
}

fn count(number: u64) -> String {
    thousands(number)
}

fn offset(number: i64) -> String {
    thousands(number.unsigned_abs())
}

fn report(inspection: &Inspection) -> String {
    let mut report = Report::default();
    report.line("store", inspection.root.display().to_string());
    let last_stop = match inspection.was_clean {
        true => "in good order",
        false => "a crash (the file abort is there)",
    };
    report.line("last stop", last_stop);
    log(inspection, &mut report);
    queues(inspection, &mut report);
    let checkpoint = &inspection.checkpoint;
    let position = match checkpoint.position {
        Some(position) => format!("all is on the disk below offset {}", offset(position)),
        None => "no position (not written by this project's broker)".to_owned(),
    };
    let times = [
        ("log", checkpoint.physic_timestamp),
        ("queues", checkpoint.logics_timestamp),
        ("index", checkpoint.index_timestamp),
    ];
    let times = times.map(|(name, time)| format!("{name} {}", format_millis(time)));
    report.line("checkpoint", format!("{position}; {}", times.join(", ")));
    if checkpoint.is_flush_failed {
        report.line("", "a flush failed in the last run: a start writes the newest records anew");
    }
    configuration(inspection, &mut report);
    start(inspection, &mut report);
    let verdict = match inspection.verdict {
        Verdict::Sound => "sound",
        Verdict::Repairable => "a start repairs it",
        Verdict::Damaged => "damaged",
    };
    report.line("verdict", verdict);
    report.text()
}

fn log(inspection: &Inspection, report: &mut Report) {
    let Some(log) = &inspection.log else {
        report.line("commit log", "its files do not fit together");
        return;
    };
    let (min, end) = (offset(log.min_offset), offset(log.end_offset));
    let files = format!(
        "offsets {min} to {end} in {} of {} bytes",
        number_of(log.files, "file"),
        offset(log.file_bytes)
    );
    report.line("commit log", files);
    let last = format_millis(log.last_store_timestamp);
    report.line("records", format!("{} good ones, the last stored {last}", count(log.records)));
    report.list(&log.damages, |damage| {
        let (from, to) = (offset(damage.offset), offset(damage.end));
        ("damage".to_owned(), format!("no good record from {from} to {to}: {}", damage.reason))
    });
    if log.has_more_damages {
        report.line("damage", "and more behind: nothing there was looked at");
    }
}

fn number_of(number: usize, what: &str) -> String {
    format!("{} {what}{}", count(number as u64), if number == 1 { "" } else { "s" })
}

fn queues(inspection: &Inspection, report: &mut Report) {
    let topics = number_of(inspection.topics, "topic");
    report.line("consume queues", format!("{} of {topics}", count(inspection.queues as u64)));
    report.list(&inspection.bad_queues, |queue| {
        let parts = [
            (queue.lacks, "lacks"),
            (queue.contradicts, "has wrong places for"),
            (queue.surplus, "has beyond the log"),
        ];
        let parts = parts.iter().filter(|(number, _)| *number > 0);
        let parts: Vec<_> = parts
            .map(|(number, what)| format!("{what} {}", number_of(*number as usize, "message")))
            .collect();
        let outcome = if queue.is_repaired { "a start repairs it" } else { "a start leaves it so" };
        let name = format!("queue {}/{}", queue.topic, queue.queue);
        (name, format!("{}; {outcome}", parts.join(", ")))
    });
    if inspection.bad_queues.iter().any(|queue| !queue.is_repaired) {
        let advice = "remove the directory consumequeue; a start then builds all queues anew";
        report.line("", advice);
    }
}

fn configuration(inspection: &Inspection, report: &mut Report) {
    let files = &inspection.config_files;
    let is_good = |state: &ConfigFileState| matches!(state, ConfigFileState::Good);
    let good = files.iter().filter(|file| is_good(&file.state)).count();
    report.line("configuration", format!("{} of {} good", good, number_of(files.len(), "file")));
    let bad: Vec<_> = files.iter().filter(|file| !is_good(&file.state)).collect();
    report.list(&bad, |file| {
        let name = file.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = match &file.state {
            ConfigFileState::Good => String::new(),
            ConfigFileState::Backup(reason) => {
                format!("{reason}; {name}.bak is good and will be read")
            }
            ConfigFileState::Damaged(reason) => format!("{reason}; there is no good {name}.bak"),
        };
        (name, text)
    });
}

fn start(inspection: &Inspection, report: &mut Report) {
    match &inspection.start {
        Start::Refused(reason) => report.line("a start", format!("is refused: {reason}")),
        Start::Succeeds { checked_from, checked_records, log_end, cut_reason, .. } => {
            let records = count(*checked_records);
            let text = format!("checks {records} records from offset {}", offset(*checked_from));
            report.line("a start", text);
            if let Some(reason) = cut_reason {
                report.line("", format!("ends the log at {}: {reason}", offset(*log_end)));
            }
        }
    }
    let Start::Succeeds { cut_bytes, cut_records, rebuilt_queues, .. } = &inspection.start else {
        return;
    };
    if *cut_bytes > 0 {
        let mut text = format!("makes {} bytes behind it zeros", offset(*cut_bytes));
        if *cut_records > 0 {
            let records = count(*cut_records);
            write!(text, ", after a copy to truncated/: {records} whole records are among them")
                .expect("writing to a String does not fail");
        }
        report.line("", text);
    }
    report.list(rebuilt_queues, |queue| (String::new(), format!("builds queue {queue} anew")));
    let changes: Vec<_> = inspection.changes.iter().collect();
    report.list(&changes, |(path, fate)| {
        let path = path.strip_prefix(&inspection.root).unwrap_or(path);
        (String::new(), format!("{} {}", verb(**fate), path.display()))
    });
}

fn verb(fate: inspect::Fate) -> &'static str {
    match fate {
        inspect::Fate::Made => "makes",
        inspect::Fate::Changed => "changes",
        inspect::Fate::Removed => "removes",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::inspect::{CheckpointValues, ConfigFinding, Damage, Fate, LogFinding, QueueFinding};

    fn example() -> Inspection {
        let root = PathBuf::from("/data/store");
        let config_file =
            |name: &str, state| ConfigFinding { path: root.join("config").join(name), state };
        let queue = |topic: &str, queue, is_repaired: bool| QueueFinding {
            topic: topic.to_owned(),
            queue,
            lacks: 12,
            contradicts: u64::from(!is_repaired),
            surplus: 0,
            is_repaired,
        };
        Inspection {
            verdict: Verdict::Damaged,
            was_clean: false,
            checkpoint: CheckpointValues {
                physic_timestamp: 1_764_504_000_123,
                logics_timestamp: 1_764_504_000_000,
                index_timestamp: 0,
                position: Some(2_147_483_648),
                is_flush_failed: true,
            },
            log: Some(LogFinding {
                files: 3,
                file_bytes: 1 << 30,
                min_offset: 0,
                end_offset: 2_200_000_000,
                records: 1_234_567,
                last_store_timestamp: 1_764_504_000_125,
                damages: vec![Damage {
                    offset: 4_000,
                    end: 5_200,
                    reason: "body checksum is 0x1, the record says 0x2".to_owned(),
                }],
                has_more_damages: false,
            }),
            topics: 4,
            queues: 16,
            bad_queues: vec![queue("orders", 3, true), queue("payments", 0, false)],
            config_files: vec![
                config_file("delayOffset.json", ConfigFileState::Damaged("empty".to_owned())),
                config_file("topics.json", ConfigFileState::Good),
                config_file("x.json", ConfigFileState::Backup("it is missing".to_owned())),
            ],
            start: Start::Succeeds {
                checked_from: 2_147_483_648,
                checked_records: 50_000,
                log_end: 2_199_000_000,
                cut_bytes: 1_000_000,
                cut_records: 700,
                cut_reason: Some("lengths do not add up".to_owned()),
                rebuilt_queues: vec!["orders/3".to_owned()],
            },
            changes: [
                (root.join("commitlog/00000000002147483648"), Fate::Changed),
                (root.join("consumequeue/orders/3/00000000000000000000"), Fate::Made),
            ]
            .into(),
            root,
        }
    }

    #[test]
    fn golden() {
        crate::golden::check("check.txt", &report(&example()));
        crate::golden::check("check.json", &render_json(&example()));
        let mut refused = example();
        refused.log = None;
        refused.start = Start::Refused("a file between is missing".to_owned());
        crate::golden::check("check-refused.txt", &report(&refused));
    }

    #[test]
    fn a_list_is_short() {
        let mut text = Report::default();
        text.list(&[0; 30], |_| ("a".to_owned(), "b".to_owned()));
        assert_eq!(text.text().lines().count(), LISTED_MAX + 1);
        assert!(text.text().contains("and 10 more"));
    }
}
