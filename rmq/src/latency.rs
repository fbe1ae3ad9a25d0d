//! Latencies of many requests, in little room.

use std::time::Duration;

/// Buckets for each doubling: the relative error is at most 1/16.
const STEPS: usize = 16;
/// Doublings from 1 microsecond to over an hour.
const DOUBLINGS: usize = 32;

/// Counts of latencies by size.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    buckets: Vec<u64>,
    count: u64,
    max: Duration,
}

impl Latencies {
    pub(crate) fn new() -> Self {
        Self { buckets: vec![0; STEPS * (DOUBLINGS + 1)], count: 0, max: Duration::ZERO }
    }

    /// Adds one.
    pub(crate) fn add(&mut self, latency: Duration) {
        let micros = u32::try_from(latency.as_micros()).unwrap_or(u32::MAX);
        if let Some(bucket) = self.buckets.get_mut(index(micros)) {
            *bucket += 1;
        }
        self.count += 1;
        self.max = self.max.max(latency);
    }

    /// The latency that `percent` of all did not exceed.
    pub(crate) fn percentile(&self, percent: u64) -> Duration {
        let rank = (self.count * percent).div_ceil(100);
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

/// Small values have a bucket each; the others are sorted by their five highest bits.
fn index(micros: u32) -> usize {
    let value = micros as usize;
    let doubling = (u32::BITS - micros.leading_zeros()).saturating_sub(5) as usize;
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
            assert!(value <= bound && bound - value <= value / 16, "{micros} {bound}");
            last = index;
        }
    }

    #[test]
    fn percentiles_of_a_ramp() {
        let mut latencies = Latencies::new();
        (1..=1_000).for_each(|millis| latencies.add(Duration::from_millis(millis)));
        let near = |percent, millis: u64| {
            let found = latencies.percentile(percent).as_millis();
            let range = u128::from(millis)..=u128::from(millis + millis / 16);
            assert!(range.contains(&found), "{percent}: {found}");
        };
        near(50, 500);
        near(99, 990);
        assert_eq!(latencies.percentile(100), Duration::from_secs(1));
        assert_eq!(Latencies::new().percentile(99), Duration::ZERO);
    }
}
