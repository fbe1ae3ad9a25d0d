//! Counters of the store. The broker exports a snapshot of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets of a [`Histogram`]: bucket `n` counts values below `2^n`, the last one all others.
pub const BUCKETS: usize = 26;

/// Counts of values by power of two.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

impl Histogram {
    pub(crate) fn record(&self, value: u64) {
        let bucket = usize::try_from(u64::BITS - value.leading_zeros()).unwrap_or(BUCKETS);
        self.buckets[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    pub(crate) fn record_micros(&self, elapsed: Duration) {
        self.record(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX));
    }

    fn snapshot(&self) -> HistogramSnapshot {
        let buckets = std::array::from_fn(|index| self.buckets[index].load(Ordering::Relaxed));
        HistogramSnapshot { buckets, sum: self.sum.load(Ordering::Relaxed) }
    }
}

/// A histogram at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// Values by bucket: bucket `n` counts those below `2^n` and not in an earlier one.
    pub buckets: [u64; BUCKETS],
    /// Sum of all values.
    pub sum: u64,
}

impl HistogramSnapshot {
    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// What the store counts while it runs.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) put_messages: AtomicU64,
    pub(crate) put_bytes: AtomicU64,
    pub(crate) put_refused: AtomicU64,
    pub(crate) replicated_messages: AtomicU64,
    pub(crate) replicated_bytes: AtomicU64,
    pub(crate) get_messages: AtomicU64,
    pub(crate) get_bytes: AtomicU64,
    pub(crate) dispatched_messages: AtomicU64,
    pub(crate) deleted_segments: AtomicU64,
    pub(crate) index_entries: AtomicU64,
    pub(crate) index_failures: AtomicU64,
    pub(crate) group_messages: Histogram,
    pub(crate) write_micros: Histogram,
    pub(crate) flush_micros: Histogram,
}

impl Metrics {
    pub(crate) fn add(counter: &AtomicU64, value: usize) {
        counter.fetch_add(value as u64, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> MetricsSnapshot {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MetricsSnapshot {
            put_messages: load(&self.put_messages),
            put_bytes: load(&self.put_bytes),
            put_refused: load(&self.put_refused),
            replicated_messages: load(&self.replicated_messages),
            replicated_bytes: load(&self.replicated_bytes),
            get_messages: load(&self.get_messages),
            get_bytes: load(&self.get_bytes),
            dispatched_messages: load(&self.dispatched_messages),
            deleted_segments: load(&self.deleted_segments),
            index_entries: load(&self.index_entries),
            index_failures: load(&self.index_failures),
            group_messages: self.group_messages.snapshot(),
            write_micros: self.write_micros.snapshot(),
            flush_micros: self.flush_micros.snapshot(),
        }
    }
}

/// All counters at one moment, since the store was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsSnapshot {
    /// Messages written to the commit log.
    pub put_messages: u64,
    /// Bytes of their records.
    pub put_bytes: u64,
    /// Puts refused, for whatever reason.
    pub put_refused: u64,
    /// Messages that another broker placed, written to the commit log.
    pub replicated_messages: u64,
    /// Bytes of them and of fillers.
    pub replicated_bytes: u64,
    /// Messages returned by reads.
    pub get_messages: u64,
    /// Bytes returned by reads.
    pub get_bytes: u64,
    /// Messages that became readable.
    pub dispatched_messages: u64,
    /// Commit log files deleted by retention.
    pub deleted_segments: u64,
    /// Keys added to the index.
    pub index_entries: u64,
    /// Times that the index could not be read or written.
    pub index_failures: u64,
    /// Messages per write.
    pub group_messages: HistogramSnapshot,
    /// Microseconds per write.
    pub write_micros: HistogramSnapshot,
    /// Microseconds per flush of the commit log.
    pub flush_micros: HistogramSnapshot,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_their_buckets() {
        let histogram = Histogram::default();
        for value in [0, 1, 2, 3, 4, u64::from(u32::MAX)] {
            histogram.record(value);
        }
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.buckets[..4], [1, 1, 2, 1]);
        assert_eq!(snapshot.buckets[BUCKETS - 1], 1);
        assert_eq!(snapshot.count(), 6);
        assert_eq!(snapshot.sum, 10 + u64::from(u32::MAX));
    }
}
