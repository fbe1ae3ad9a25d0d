//! Latencies of many requests, in little room: a histogram whose buckets grow with the values, so
//! that every percentile is known with the same relative error (Gil Tene's HDR histogram).

use std::time::Duration;

use serde::Serialize;

/// Bits of a value that are told apart: the relative error is at most 1/128.
const STEP_BITS: u32 = 7;
/// Buckets for each doubling.
const STEPS: usize = 1 << STEP_BITS;
/// Doublings from 1 microsecond to over an hour.
const DOUBLINGS: usize = 32;

/// Counts of latencies by size.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    buckets: Vec<u64>,
    count: u64,
    sum: Duration,
    max: Duration,
}

/// The figures that are shown of many latencies, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LatencyFigures {
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) p9999: f64,
    pub(crate) max: f64,
}

impl Latencies {
    pub(crate) fn new() -> Self {
        let buckets = vec![0; STEPS * (DOUBLINGS + 1)];
        Self { buckets, count: 0, sum: Duration::ZERO, max: Duration::ZERO }
    }

    /// Adds one.
    pub(crate) fn add(&mut self, latency: Duration) {
        let micros = u32::try_from(latency.as_micros()).unwrap_or(u32::MAX);
        if let Some(bucket) = self.buckets.get_mut(index(micros)) {
            *bucket += 1;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(latency);
        self.max = self.max.max(latency);
    }

    /// Adds those of another one.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (bucket, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket += count;
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.buckets.fill(0);
        (self.count, self.sum, self.max) = (0, Duration::ZERO, Duration::ZERO);
    }

    /// The figures that are shown.
    pub(crate) fn figures(&self) -> LatencyFigures {
        // Whole microseconds: more is not known.
        let millis = |latency: Duration| latency.as_micros() as f64 / 1_000.0;
        let at = |percent| millis(self.percentile(percent));
        let mean = self.sum.as_secs_f64() / self.count.max(1) as f64;
        LatencyFigures {
            mean: millis(Duration::from_secs_f64(mean)),
            p50: at(50.0),
            p90: at(90.0),
            p99: at(99.0),
            p999: at(99.9),
            p9999: at(99.99),
            max: millis(self.max),
        }
    }

    /// The latency that `percent` of all did not exceed.
    pub(crate) fn percentile(&self, percent: f64) -> Duration {
        let rank = (self.count as f64 * percent / 100.0).ceil() as u64;
        let mut seen = 0;
        for (index, bucket) in self.buckets.iter().enumerate() {
            seen += bucket;
            if seen >= rank {
                return Duration::from_micros(upper_bound(index)).min(self.max);
            }
        }
        self.max
    }

    /// The largest.
    pub(crate) fn max(&self) -> Duration {
        self.max
    }
}

/// Small values have a bucket each; the others are sorted by their highest bits.
fn index(micros: u32) -> usize {
    let value = micros as usize;
    let doubling = (u32::BITS - micros.leading_zeros()).saturating_sub(STEP_BITS + 1) as usize;
    doubling * STEPS + (value >> doubling)
}

fn upper_bound(index: usize) -> u64 {
    let doubling = (index / STEPS).saturating_sub(1);
    let step = index - doubling * STEPS;
    ((step as u64 + 1) << doubling) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_at_or_just_under_the_bound_of_its_bucket() {
        let mut last = 0;
        for micros in [0, 1, 15, 16, 31, 32, 33, 63, 64, 1_000, 65_535, 1_000_000, u32::MAX] {
            let index = index(micros);
            let bound = upper_bound(index);
            let value = u64::from(micros);
            assert!(index >= last && index < STEPS * (DOUBLINGS + 1), "{micros}");
            assert!(value <= bound && bound - value <= value / 128, "{micros} {bound}");
            last = index;
        }
    }

    #[test]
    fn percentiles_of_a_ramp() {
        let mut latencies = Latencies::new();
        (1..=1_000).for_each(|millis| latencies.add(Duration::from_millis(millis)));
        let near = |percent: f64, millis: u64| {
            let found = latencies.percentile(percent).as_millis();
            let range = u128::from(millis)..=u128::from(millis + millis / 128);
            assert!(range.contains(&found), "{percent}: {found}");
        };
        near(50.0, 500);
        near(99.0, 990);
        near(99.9, 999);
        assert_eq!(latencies.percentile(100.0), Duration::from_secs(1));
        let mut twice = latencies.clone();
        twice.merge(&latencies);
        assert_eq!(twice.count, 2_000);
        assert_eq!(twice.figures(), latencies.figures());
        assert!((latencies.figures().mean - 500.5).abs() < 0.001);
        twice.clear();
        assert_eq!(twice.figures(), LatencyFigures::default());
        assert_eq!(Latencies::new().percentile(99.0), Duration::ZERO);
    }
}
