//! What local mode prints.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::manifest::Manifest;
use super::plan::{Place, Plan};
use super::status::{Phase, Status};

/// The name server that `rmq` asks unless it is told otherwise.
const RMQ_DEFAULT: &str = "127.0.0.1:9876";

/// Prints a line for people. Nobody listening (a closed terminal) must not stop a cluster.
pub(super) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Before anything starts.
pub(super) fn starting(manifest: &Manifest, place: &Place) {
    say(&format!("cluster {}, data in {}", manifest.name, place.data.display()));
    if !manifest.without_effect.is_empty() {
        let fields = manifest.without_effect.join(", ");
        say(&format!("on a single machine these have no effect: {fields}"));
    }
    if !manifest.others.is_empty() {
        say(&format!("other resources of the file are left alone: {}", manifest.others.join(", ")));
    }
}

/// Once everything serves.
pub(super) fn running(plan: &Plan, place: &Place, file: &Path) {
    let mut rows = vec![["name servers".to_owned(), plan.namesrv_addr.clone()]];
    for broker in &plan.brokers {
        rows.push([broker.title(), broker.address.to_string()]);
    }
    rows.push(["data".to_owned(), place.data.display().to_string()]);
    rows.push(["logs".to_owned(), super::plan::log_folder(&place.data).display().to_string()]);
    say(&format!("\ncluster {} is ready\n{}", plan.cluster, table(&rows)));
    let rmq = program(&place.programs, "rmq");
    let at = match plan.namesrv_addr.as_str() {
        RMQ_DEFAULT => String::new(),
        // The shell would end the command at a semicolon.
        other => format!(" -n '{other}'"),
    };
    say(&format!("try:\n  {rmq} send demo hello{at}\n  {rmq} cluster{at}"));
    say(&format!("changes of {} take effect at once; Ctrl-C stops the cluster\n", file.display()));
}

/// At the end.
pub(super) fn stopped(data: &Path, kept: bool) {
    let fate = if kept { "is kept in" } else { "was removed from" };
    say(&format!("stopped; the data {fate} {}", data.display()));
}

/// The status of a cluster as aligned columns.
pub(super) fn status_table(status: &Status, holder: Option<i32>) -> String {
    let data = status.data.display();
    let Some(pid) = holder else {
        return format!("cluster {} is not running; its data is kept in {data}\n", status.cluster);
    };
    let ready = if status.is_ready() { "ready" } else { "not ready" };
    let mut text = format!(
        "cluster {} is {ready}: name servers {}, process {pid}, data in {data}\n",
        status.cluster, status.namesrv_addr
    );
    if !status.problem.is_empty() {
        text.push_str(&format!("{}\n", status.problem));
    }
    let head = ["NAME", "KIND", "STATE", "PID", "RESTARTS", "ADDRESS", "REASON"];
    let mut rows = vec![head.map(str::to_owned)];
    for process in &status.processes {
        rows.push([
            process.name.clone(),
            process.kind.as_str().to_owned(),
            phase(process.phase).to_owned(),
            process.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            process.restarts.to_string(),
            process.address.to_string(),
            process.reason.lines().next().unwrap_or_default().to_owned(),
        ]);
    }
    text.push_str(&table(&rows));
    text
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Starting => "starting",
        Phase::Ready => "ready",
        Phase::NotReady => "not ready",
        Phase::Waiting => "waiting to start again",
        Phase::Refused => "configuration refused",
        Phase::Stopping => "stopping",
        Phase::Stopped => "stopped",
    }
}

/// Aligned columns, two blanks apart.
fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| width(column).unwrap_or_default());
    let mut text = String::new();
    for row in rows {
        let cells: Vec<_> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(&format!("  {}\n", cells.join("  ").trim_end()));
    }
    text
}

/// How to call a program here: by its name if the shell finds it, else by the shortest path.
fn program(folder: &Path, name: &str) -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|found| found == folder) {
        return name.to_owned();
    }
    let full: PathBuf = folder.join(name);
    let here = std::env::current_dir().unwrap_or_default();
    full.strip_prefix(here).unwrap_or(&full).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::plan::Kind;
    use crate::local::status::Board;
    use crate::local::status::tests::{empty, spec};

    #[test]
    fn status_for_people() {
        let board = Board::new(empty());
        board.wanted(&spec("local-namesrv-0", Kind::NameServer, 9876), 1);
        board.wanted(&spec("local-0", Kind::Broker, 10911), 2);
        board.process("local-namesrv-0", 1, |process| {
            process.phase = Phase::Ready;
            process.pid = Some(7);
        });
        board.process("local-0", 2, |process| process.reason = "no route\nmore".to_owned());
        assert_eq!(
            status_table(&board.get(), Some(5)),
            "cluster local is not ready: name servers 127.0.0.1:9876, process 5, data in /data
  NAME             KIND         STATE     PID  RESTARTS  ADDRESS          REASON
  local-namesrv-0  name server  ready     7    0         127.0.0.1:9876
  local-0          broker       starting  -    0         127.0.0.1:10911  no route
"
        );
        assert_eq!(
            status_table(&board.get(), None),
            "cluster local is not running; its data is kept in /data\n"
        );
    }
}
