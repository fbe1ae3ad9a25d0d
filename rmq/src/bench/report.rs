//! What a benchmark says at its end, and each second before.

use std::time::Duration;

use serde::Serialize;

use super::ledger::Verdict;
use super::recorder::{Recorder, Tally};
use crate::latency::LatencyFigures;
use crate::output::thousands;
use crate::table::{Align, layout};

/// Clock ticks per second in `/proc`: Linux has shown 100 on every architecture for decades.
const TICKS_PER_SECOND: f64 = 100.0;

/// One side of a benchmark.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Side {
    pub(crate) messages: u64,
    pub(crate) failed: u64,
    /// Of those that failed: refused since the broker was busy.
    pub(crate) busy: u64,
    pub(crate) per_second: f64,
    pub(crate) mib_per_second: f64,
    /// Milliseconds. Of a request when sending; from due to received when receiving.
    pub(crate) latency: LatencyFigures,
}

impl Side {
    pub(crate) fn new(tally: &Tally, seconds: f64, size: usize) -> Self {
        let per_second = if seconds > 0.0 { tally.messages as f64 / seconds } else { 0.0 };
        Self {
            messages: tally.messages,
            failed: tally.failed,
            busy: tally.busy,
            per_second,
            mib_per_second: per_second * size as f64 / (1024.0 * 1024.0),
            latency: tally.latencies.figures(),
        }
    }

    fn cells(&self, name: &str) -> Vec<String> {
        let latency = &self.latency;
        let mut cells = vec![
            name.to_owned(),
            thousands(self.messages),
            thousands(self.failed),
            thousands(self.per_second.round() as u64),
            format!("{:.1}", self.mib_per_second),
        ];
        let millis = [
            latency.mean,
            latency.p50,
            latency.p90,
            latency.p99,
            latency.p999,
            latency.p9999,
            latency.max,
        ];
        cells.extend(millis.map(|millis| format!("{millis:.2}")));
        cells
    }
}

const COLUMNS: &[(&str, Align)] = &[
    ("", Align::Left),
    ("MESSAGES", Align::Right),
    ("FAILED", Align::Right),
    ("PER SECOND", Align::Right),
    ("MiB/s", Align::Right),
    ("MEAN ms", Align::Right),
    ("P50", Align::Right),
    ("P90", Align::Right),
    ("P99", Align::Right),
    ("P99.9", Align::Right),
    ("P99.99", Align::Right),
    ("MAX", Align::Right),
];

/// The result of a benchmark.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    /// Time that was measured; the warm-up is not part of it.
    pub(crate) seconds: f64,
    pub(crate) size: usize,
    pub(crate) batch: usize,
    pub(crate) in_flight: usize,
    /// Messages a second that were to be sent; `null`: as many as possible.
    pub(crate) rate: Option<f64>,
    pub(crate) send: Option<Side>,
    pub(crate) receive: Option<Side>,
    /// `null` when nothing was verified.
    pub(crate) verdict: Option<Verdict>,
    /// Processor time of this program while it measured.
    pub(crate) cpu_seconds: f64,
    /// Some of the reasons why requests failed.
    pub(crate) errors: Vec<String>,
}

impl Report {
    pub(crate) fn text(&self) -> String {
        let sides = [("send", &self.send), ("receive", &self.receive)];
        let rows: Vec<_> =
            sides.iter().filter_map(|(name, side)| Some(side.as_ref()?.cells(name))).collect();
        let mut text = layout(COLUMNS, &rows);
        for error in &self.errors {
            text.push_str(&format!("failed: {error}\n"));
        }
        if let Some(verdict) = &self.verdict {
            text.push_str(&format!(
                "verified: {} lost, {} doubled, {} reordered, {} damaged\n",
                thousands(verdict.lost),
                thousands(verdict.doubled),
                thousands(verdict.reordered),
                thousands(verdict.damaged),
            ));
        }
        let cores = if self.seconds > 0.0 { self.cpu_seconds / self.seconds } else { 0.0 };
        text.push_str(&format!(
            "measured {:.1} s; this program used {cores:.2} cores\n",
            self.seconds
        ));
        text
    }
}

/// A line of progress.
pub(crate) fn progress(
    at: Duration,
    warm: bool,
    send: Option<&Recorder>,
    receive: &Recorder,
) -> String {
    let mut line = format!("{:>4} s", at.as_secs());
    let side = |name: &str, tally: &Tally| {
        let millis = |percent| tally.latencies.percentile(percent).as_secs_f64() * 1_000.0;
        format!(
            "  {name} {:>9}/s  p50 {:.2} ms  p99 {:.2} ms",
            thousands(tally.messages),
            millis(50.0),
            millis(99.0),
        )
    };
    if let Some(send) = send {
        let tally = send.recent();
        line.push_str(&side("sent", &tally));
        if tally.failed > 0 {
            line.push_str(&format!("  failed {}", thousands(tally.failed)));
        }
    }
    let tally = receive.recent();
    if tally.messages > 0 || send.is_none() {
        line.push_str(&side("received", &tally));
    }
    if !warm {
        line.push_str("  (warming up)");
    }
    line
}

/// Processor time that this process has used, seconds; 0 where `/proc` does not say.
pub(crate) fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The program's name, in brackets, may have blanks.
    let Some((_, fields)) = text.rsplit_once(") ") else { return 0.0 };
    let mut times = fields.split(' ').skip(11).map_while(|field| field.parse::<f64>().ok());
    let ticks = times.next().unwrap_or(0.0) + times.next().unwrap_or(0.0);
    ticks / TICKS_PER_SECOND
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Latencies;
    use crate::output::render_json;

    #[test]
    fn golden() {
        let mut latencies = Latencies::new();
        (1..=1_000).for_each(|micros| latencies.add(Duration::from_micros(micros * 10)));
        let tally = Tally { messages: 123_456, failed: 12, busy: 10, latencies };
        let verdict = Verdict { lost: 1, doubled: 2, reordered: 0, damaged: 0 };
        let report = Report {
            seconds: 10.0,
            size: 1_024,
            batch: 1,
            in_flight: 16,
            rate: Some(12_000.0),
            send: Some(Side::new(&tally, 10.0, 1_024)),
            receive: Some(Side::new(&tally, 10.0, 1_024)),
            verdict: Some(verdict),
            cpu_seconds: 7.5,
            errors: vec!["no answer from 127.0.0.1:10911 within 3s".to_owned()],
        };
        crate::golden::check("bench.txt", &report.text());
        crate::golden::check("bench.json", &render_json(&report));
    }

    #[test]
    fn progress_has_both_sides() {
        let (send, receive) = (Recorder::new(), Recorder::new());
        send.succeeded(0, 1_500, Duration::from_millis(2));
        send.failed(0, 3, false, "x");
        let line = progress(Duration::from_secs(7), false, Some(&send), &receive);
        let expected = "   7 s  sent     1,500/s  p50 2.00 ms  p99 2.00 ms  failed 3  (warming up)";
        assert_eq!(line, expected);
        receive.succeeded(0, 9, Duration::from_millis(1));
        let line = progress(Duration::from_secs(8), true, None, &receive);
        assert_eq!(line, "   8 s  received         9/s  p50 1.00 ms  p99 1.00 ms");
    }

    #[test]
    fn this_process_has_used_time() {
        let before = cpu_seconds();
        while cpu_seconds() == before {
            std::hint::black_box(before);
        }
        assert!(cpu_seconds() > before);
    }
}
