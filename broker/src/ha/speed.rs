//! Bytes a second of one connection, counted and limited.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct Speed(Mutex<State>);

#[derive(Debug)]
struct State {
    /// When the second at hand began.
    begin: Instant,
    bytes: u64,
    /// Bytes of the second before.
    before: u64,
}

impl Default for Speed {
    fn default() -> Self {
        Self(Mutex::new(State { begin: Instant::now(), bytes: 0, before: 0 }))
    }
}

impl State {
    fn turn(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.begin);
        if elapsed >= SECOND {
            self.before = if elapsed < SECOND * 2 { self.bytes } else { 0 };
            self.bytes = 0;
            self.begin = now;
        }
    }
}

impl Speed {
    pub(crate) fn add(&self, bytes: usize) {
        let mut state = self.0.lock();
        state.turn(Instant::now());
        state.bytes += bytes as u64;
    }

    /// Bytes of the last whole second.
    pub(crate) fn bytes_in_second(&self) -> i64 {
        let mut state = self.0.lock();
        state.turn(Instant::now());
        i64::try_from(state.before).unwrap_or(i64::MAX)
    }

    /// Bytes that may still go in this second, or how long to wait for the next.
    pub(crate) fn room(&self, bytes_max: u64) -> Result<usize, Duration> {
        let mut state = self.0.lock();
        let now = Instant::now();
        state.turn(now);
        match bytes_max.saturating_sub(state.bytes) {
            0 => Err((state.begin + SECOND).saturating_duration_since(now)),
            room => Ok(usize::try_from(room).unwrap_or(usize::MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_second_has_room_for_so_much() {
        let speed = Speed::default();
        speed.add(60);
        assert_eq!((speed.room(100), speed.bytes_in_second()), (Ok(40), 0));
        speed.add(40);
        let pause = speed.room(100).unwrap_err();
        assert!(pause <= SECOND);
        tokio::time::advance(pause).await;
        assert_eq!((speed.bytes_in_second(), speed.room(100)), (100, Ok(100)));
        tokio::time::advance(SECOND * 3).await;
        assert_eq!(speed.bytes_in_second(), 0);
    }
}
