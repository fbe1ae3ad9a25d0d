//! The wall clock, passed in so that tests and simulations choose the time.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// Tells the time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Epoch milliseconds. It may jump in both directions.
    fn now_ms(&self) -> i64;
}

/// The clock of this machine.
#[derive(Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_after_2020() {
        assert!(SystemClock.now_ms() > 1_577_836_800_000);
    }
}
