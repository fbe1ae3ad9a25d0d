//! More load than a broker can take: it goes on with as much as it can, within its memory, and is
//! itself again soon after. `cargo test -p e2e --test overload`
//!
//! `OVERLOAD_SECONDS` is how long each overload lasts: 10 s, and 300 s in the long form.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::local::LocalMode;
use e2e::process::output;
use e2e::{programs, say};
use serde_json::Value;

/// How long the peak is measured, and each look at whether it is back.
const LOOK_SECONDS: u64 = 4;
/// Goodput under overload, and of what comes after it, to the peak.
const SHARE: f64 = 0.8;
/// Time in which the broker must be itself again.
const RECOVERY: Duration = Duration::from_secs(10);
/// Bytes that the broker may have more under overload than at its peak: requests that it holds.
const MEMORY_MORE: u64 = 512 * 1024 * 1024;
/// Requests that clients have under way under overload.
const CONNECTIONS: u32 = 4;
const IN_FLIGHT: u32 = 8_192;
/// A machine that does other things, too, gets another chance.
const ATTEMPTS: usize = 3;

struct Load {
    per_second: f64,
    failed: u64,
    p99: f64,
}

#[test]
fn overload_costs_little_and_ends_soon() -> Result<()> {
    let seconds = std::env::var("OVERLOAD_SECONDS").ok().map(|text| text.parse()).transpose()?;
    let seconds: u64 = seconds.unwrap_or(10);
    let mut last = Ok(());
    for _ in 0..ATTEMPTS {
        let directory = tempfile::tempdir()?;
        let local = LocalMode::start(directory.path())?;
        last = [1.5, 3.0].into_iter().try_for_each(|factor| overload(&local, factor, seconds));
        local.stop()?;
        if last.is_ok() {
            break;
        }
    }
    last
}

fn overload(local: &LocalMode, factor: f64, seconds: u64) -> Result<()> {
    // The first look is the warm-up.
    bench(local, &["--threads", "64"], LOOK_SECONDS)?;
    let peak = bench(local, &["--threads", "64"], LOOK_SECONDS)?;
    let before = resident_bytes(local)?;
    say(&format!("peak: {:.0}/s, p99 {:.1} ms, {} MiB", peak.per_second, peak.p99, before >> 20));

    let (rate, in_flight) = ((peak.per_second * factor).round().to_string(), IN_FLIGHT.to_string());
    let connections = CONNECTIONS.to_string();
    let options = ["--rate", &rate, "--threads", &in_flight, "--connections", &connections];
    let burst = bench(local, &options, seconds)?;
    let more = resident_bytes(local)?.saturating_sub(before);
    say(&format!(
        "{rate}/s asked for {seconds} s: {:.0}/s stored, {} refused, {} MiB more",
        burst.per_second,
        burst.failed,
        more >> 20
    ));
    ensure!(burst.per_second >= SHARE * peak.per_second, "goodput fell to {}", burst.per_second);
    ensure!(more <= MEMORY_MORE, "the broker took {more} bytes more");

    let began = Instant::now();
    loop {
        let after = bench(local, &["--threads", "64"], 2)?;
        let is_back = after.per_second >= SHARE * peak.per_second && after.failed == 0;
        let waited = began.elapsed();
        if is_back && waited <= RECOVERY {
            say(&format!("{:.0}/s again after {:.1} s", after.per_second, waited.as_secs_f64()));
            return Ok(());
        }
        ensure!(waited <= RECOVERY, "only {:.0}/s after {waited:?}", after.per_second);
    }
}

fn bench(local: &LocalMode, options: &[&str], seconds: u64) -> Result<Load> {
    let mut command = Command::new(programs::path("rmq")?);
    command.args(["-n", &local.target().namesrv, "-o", "json", "bench", "send", "Overload"]);
    command.args(["--size", "1024", "--warm-up", "0s", "--duration", &format!("{seconds}s")]);
    let report: Value = serde_json::from_str(&output(command.args(options))?)?;
    let send = &report["send"];
    let number = |name: &str| send[name].as_f64().with_context(|| format!("no {name}: {report}"));
    Ok(Load {
        per_second: number("perSecond")?,
        failed: send["failed"].as_u64().context("no number of failures")?,
        p99: send["latency"]["p99"].as_f64().context("no p99")?,
    })
}

fn resident_bytes(local: &LocalMode) -> Result<u64> {
    let pid = local.pid("rocketmq-broker")?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.split_whitespace().next().context("no size")?.parse()?;
    Ok(kib * 1024)
}
