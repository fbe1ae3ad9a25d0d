//! When requests are due that are sent at a rate, whether earlier ones were answered or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

/// The clock is looked at least this often, so that the end is noticed.
const NAP: Duration = Duration::from_millis(50);
/// Requests that are due at once at most: beyond them the rate is out of reach anyway.
const BACKLOG_MAX: u64 = 1 << 32;

/// A thread that says when the next request is due. It wakes up within some 60 us of the time; the
/// timers of the runtime count milliseconds.
pub(crate) struct Pace {
    inner: Arc<Inner>,
}

struct Inner {
    began: Instant,
    period_nanos: f64,
    /// One permit for each request that is due and that nobody has taken.
    due: Semaphore,
    taken: AtomicU64,
    stop: AtomicBool,
}

impl Pace {
    /// Begins now, with so many requests a second.
    pub(crate) fn start(per_second: f64) -> Self {
        let inner = Arc::new(Inner {
            began: Instant::now(),
            period_nanos: 1e9 / per_second,
            due: Semaphore::new(0),
            taken: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let ticking = Arc::clone(&inner);
        thread::spawn(move || ticking.tick());
        Self { inner }
    }

    /// Waits until a request is due; when it was due, which may be long ago. `None` after the end.
    pub(crate) async fn next(&self) -> Option<Instant> {
        self.inner.due.acquire().await.ok()?.forget();
        Some(self.inner.due_at(self.inner.taken.fetch_add(1, Ordering::Relaxed)))
    }

    /// Nothing is due any more.
    pub(crate) fn end(&self) {
        self.inner.due.close();
        self.inner.stop.store(true, Ordering::Relaxed);
    }
}

impl Inner {
    fn due_at(&self, number: u64) -> Instant {
        self.began + Duration::from_nanos((number as f64 * self.period_nanos) as u64)
    }

    fn tick(&self) {
        let mut given = 0_u64;
        while !self.stop.load(Ordering::Relaxed) {
            let elapsed = self.began.elapsed().as_nanos() as f64;
            let due = (elapsed / self.period_nanos) as u64 + 1;
            let new = due.saturating_sub(given).min(BACKLOG_MAX);
            self.due.add_permits(usize::try_from(new).unwrap_or(usize::MAX));
            given += new;
            let next = self.due_at(given).saturating_duration_since(Instant::now());
            thread::sleep(next.min(NAP));
        }
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_are_due_at_even_distances_however_late_they_are_taken() {
        let pace = Pace::start(1_000.0);
        let mut due = Vec::new();
        for _ in 0..20 {
            due.push(pace.next().await.unwrap());
        }
        assert!(due.last().unwrap() <= &Instant::now());
        let millis = |pair: &[Instant]| (pair[1] - pair[0]).as_micros();
        assert!(due.windows(2).all(|pair| millis(pair) == 1_000), "{due:?}");
        // Nobody takes any for a while.
        while pace.inner.due.available_permits() < 5 {
            tokio::task::yield_now().await;
        }
        let late = pace.next().await.unwrap();
        assert_eq!((late - *due.last().unwrap()).as_micros(), 1_000);
        pace.end();
        assert_eq!(pace.next().await, None);
    }
}
