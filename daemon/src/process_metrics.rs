//! Metrics of the process itself, under the names that every Prometheus client library uses.
//!
//! Read from `/proc` at each scrape; a value that cannot be read is left out.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// `USER_HZ`: the unit of the times in `/proc/*/stat`, fixed in Linux's user space interface.
const TICKS_PER_SECOND: f64 = 100.0;

/// Registers the `process_*` metrics.
pub fn register(registry: &mut Registry) {
    registry.register_collector(Box::new(Process));
}

#[derive(Debug)]
struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let mut gauge = |name: &str, help: &str, value: Option<f64>| match value {
            Some(value) => encode(&mut encoder, name, help, &ConstGauge::new(value)),
            None => Ok(()),
        };
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let memory = |name| status_kib(&status, name).map(|kib| kib * 1024.0);
        gauge("process_resident_memory_bytes", "Resident memory", memory("VmRSS"))?;
        gauge("process_virtual_memory_bytes", "Virtual memory", memory("VmSize"))?;
        gauge("process_threads", "Threads", status_number(&status, "Threads"))?;
        gauge("process_open_fds", "Open file descriptors", open_fds())?;
        gauge("process_max_fds", "Limit of open file descriptors", max_fds())?;
        let start = start_time_seconds(&stat);
        gauge("process_start_time_seconds", "Start, in seconds since 1970", start)?;
        match cpu_seconds(&stat) {
            Some(seconds) => {
                let counter = ConstCounter::new(seconds);
                encode(&mut encoder, "process_cpu_seconds", "User and system CPU time", &counter)
            }
            None => Ok(()),
        }
    }
}

fn encode(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> Result<(), fmt::Error> {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

fn status_kib(status: &str, name: &str) -> Option<f64> {
    status_field(status, name)?.strip_suffix("kB")?.trim().parse().ok()
}

fn status_number(status: &str, name: &str) -> Option<f64> {
    status_field(status, name)?.parse().ok()
}

fn status_field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim())
}

/// Field `number` of `/proc/self/stat`, counted from 1 as in proc(5). Field 2, the program's name,
/// may hold blanks and is enclosed in parentheses, so counting starts behind the last one.
fn stat_field(stat: &str, number: usize) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    let (user, system) = (stat_field(stat, 14)?, stat_field(stat, 15)?);
    Some((user + system) / TICKS_PER_SECOND)
}

fn start_time_seconds(stat: &str) -> Option<f64> {
    let system = fs::read_to_string("/proc/stat").ok()?;
    let boot = system.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(boot.trim().parse::<f64>().ok()? + stat_field(stat, 22)? / TICKS_PER_SECOND)
}

fn open_fds() -> Option<f64> {
    let count = fs::read_dir("/proc/self/fd").ok()?.count();
    // One of them was open only to count.
    u32::try_from(count).ok().map(|count| f64::from(count) - 1.0)
}

fn max_fds() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_of_this_process() {
        let mut registry = Registry::default();
        register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
        for name in [
            "process_resident_memory_bytes",
            "process_virtual_memory_bytes",
            "process_threads",
            "process_open_fds",
            "process_max_fds",
            "process_start_time_seconds",
            "process_cpu_seconds_total",
        ] {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            let value: f64 = value.unwrap_or_else(|| panic!("no {name}")).parse().expect("number");
            assert!(value >= 0.0 && (value > 0.0 || name.contains("cpu")), "{name} {value}");
        }
    }

    #[test]
    fn the_name_of_a_program_may_be_anything() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 150 50 13 14 15 16 17 18 4200 20";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(stat_field(stat, 22), Some(4200.0));
        assert_eq!(stat_field("", 22), None);
    }
}
