//! What is measured while a benchmark runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::latency::Latencies;

/// Those who record share so many histograms, so that they rarely wait for each other.
const SHARDS: usize = 8;
/// Different errors that are kept.
const ERRORS_MAX: usize = 5;

/// Counts and latencies of one kind of event.
pub(crate) struct Recorder {
    shards: [Mutex<Shard>; SHARDS],
    /// Whether the warm-up is over.
    counts: AtomicBool,
    errors: Mutex<Vec<String>>,
}

struct Shard {
    /// Since the warm-up.
    whole: Tally,
    /// Since the last look.
    recent: Tally,
}

/// Figures of some time.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) messages: u64,
    pub(crate) failed: u64,
    /// Failed since the broker was busy.
    pub(crate) busy: u64,
    pub(crate) latencies: Latencies,
}

impl Tally {
    fn new() -> Self {
        Self { messages: 0, failed: 0, busy: 0, latencies: Latencies::new() }
    }

    fn merge(&mut self, other: &Self) {
        self.messages += other.messages;
        self.failed += other.failed;
        self.busy += other.busy;
        self.latencies.merge(&other.latencies);
    }
}

impl Recorder {
    pub(crate) fn new() -> Self {
        let shard = || Mutex::new(Shard { whole: Tally::new(), recent: Tally::new() });
        Self {
            shards: std::array::from_fn(|_| shard()),
            counts: AtomicBool::new(false),
            errors: Mutex::default(),
        }
    }

    /// Ends the warm-up: what is recorded from now on counts.
    pub(crate) fn begin(&self) {
        self.counts.store(true, Ordering::Relaxed);
    }

    /// Nothing that is recorded from now on counts.
    pub(crate) fn end(&self) {
        self.counts.store(false, Ordering::Relaxed);
    }

    /// `messages` that went well together, after this time.
    pub(crate) fn succeeded(&self, who: usize, messages: u64, latency: Duration) {
        self.record(who, |tally| {
            tally.messages += messages;
            tally.latencies.add(latency);
        });
    }

    /// `messages` that did not.
    pub(crate) fn failed(&self, who: usize, messages: u64, busy: bool, error: &str) {
        self.record(who, |tally| {
            tally.failed += messages;
            tally.busy += if busy { messages } else { 0 };
        });
        let mut errors = self.errors.lock();
        if errors.len() < ERRORS_MAX && !errors.iter().any(|known| known == error) {
            errors.push(error.to_owned());
        }
    }

    fn record(&self, who: usize, add: impl Fn(&mut Tally)) {
        let Some(shard) = self.shards.get(who % SHARDS) else { return };
        let mut shard = shard.lock();
        add(&mut shard.recent);
        if self.counts.load(Ordering::Relaxed) {
            add(&mut shard.whole);
        }
    }

    /// Since the last call.
    pub(crate) fn recent(&self) -> Tally {
        let mut all = Tally::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            all.merge(&shard.recent);
            let recent = &mut shard.recent;
            recent.latencies.clear();
            (recent.messages, recent.failed, recent.busy) = (0, 0, 0);
        }
        all
    }

    /// Since the warm-up.
    pub(crate) fn whole(&self) -> Tally {
        let mut all = Tally::new();
        self.shards.iter().for_each(|shard| all.merge(&shard.lock().whole));
        all
    }

    /// Some of the errors.
    pub(crate) fn errors(&self) -> Vec<String> {
        self.errors.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warm_up_does_not_count() {
        let recorder = Recorder::new();
        recorder.succeeded(0, 1, Duration::from_secs(9));
        assert_eq!(recorder.whole().messages, 0);
        assert_eq!(recorder.recent().messages, 1);
        recorder.begin();
        for who in 0..20 {
            recorder.succeeded(who, 2, Duration::from_millis(1));
            recorder.failed(who, 1, who % 2 == 0, &format!("error {}", who % 7));
        }
        let whole = recorder.whole();
        assert_eq!((whole.messages, whole.failed, whole.busy), (40, 20, 10));
        assert_eq!(whole.latencies.max(), Duration::from_millis(1));
        assert_eq!(recorder.recent().messages, 40);
        assert_eq!(recorder.recent().messages, 0);
        assert_eq!(recorder.errors().len(), ERRORS_MAX);
        recorder.end();
        recorder.succeeded(0, 1, Duration::from_secs(9));
        assert_eq!(recorder.whole().messages, 40);
    }
}
