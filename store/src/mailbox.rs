//! A queue between two threads of the store; the reader takes all there is at once.
//!
//! It has no bound of its own: every item belongs to a put that was admitted under the limits
//! `put_pending_bytes_max` and `put_pending_messages_max`, or takes the place of the one before.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

#[derive(Debug)]
struct State<T> {
    items: Vec<T>,
    is_reader_waiting: bool,
    /// The reader is wanted, and has not noticed yet.
    is_woken: bool,
    is_closed: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T> Mailbox<T> {
    pub(crate) fn new() -> Self {
        let state = State {
            items: Vec::new(),
            is_reader_waiting: false,
            is_woken: false,
            is_closed: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Adds an item and wakes the reader; gives it back when the mailbox is closed.
    pub(crate) fn push(&self, item: T) -> Result<(), T> {
        self.push_quietly(item)?;
        self.wake();
        Ok(())
    }

    /// Adds an item and leaves the reader asleep; gives it back when the mailbox is closed.
    pub(crate) fn push_quietly(&self, item: T) -> Result<(), T> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(item);
        }
        state.items.push(item);
        Ok(())
    }

    /// Adds an item, in place of the last one if that `may_go`, and leaves the reader asleep; gives
    /// it back when the mailbox is closed.
    pub(crate) fn replace_quietly(&self, item: T, may_go: impl Fn(&T) -> bool) -> Result<(), T> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(item);
        }
        if state.items.last().is_some_and(may_go) {
            state.items.pop();
        }
        state.items.push(item);
        Ok(())
    }

    /// As [`Mailbox::replace_quietly`], and wakes the reader.
    pub(crate) fn replace(&self, item: T, may_go: impl Fn(&T) -> bool) -> Result<(), T> {
        self.replace_quietly(item, may_go)?;
        self.wake();
        Ok(())
    }

    /// Wakes the reader.
    pub(crate) fn wake(&self) {
        let mut state = self.state.lock();
        // A notice costs a system call, so it is given only to a reader that sleeps, and once.
        if state.is_reader_waiting && !state.is_woken {
            self.changed.notify_one();
        }
        state.is_woken = true;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().items.is_empty()
    }

    /// Moves all items to `into`, which must be empty, after waiting for the first. Returns false
    /// when the mailbox is closed and empty.
    pub(crate) fn take(&self, into: &mut Vec<T>) -> bool {
        while !self.try_take(into) {
            if !self.wait() {
                return false;
            }
        }
        true
    }

    /// Waits until [`Mailbox::wake`] was called since the last time, or the mailbox is closed.
    /// Returns false when it is closed and empty.
    pub(crate) fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while !state.is_woken && !state.is_closed {
            state.is_reader_waiting = true;
            self.changed.wait(&mut state);
            state.is_reader_waiting = false;
        }
        state.is_woken = false;
        !(state.is_closed && state.items.is_empty())
    }

    /// Moves all items to `into`, which must be empty, without waiting. Returns whether there were
    /// any.
    pub(crate) fn try_take(&self, into: &mut Vec<T>) -> bool {
        let mut state = self.state.lock();
        std::mem::swap(&mut state.items, into);
        !into.is_empty()
    }

    /// Waits until the mailbox is closed, at most this long.
    pub(crate) fn wait_closed(&self, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.is_closed {
            self.changed.wait_while_for(&mut state, |state| !state.is_closed, timeout);
        }
        state.is_closed
    }

    /// Refuses further items; the reader still gets those that are there.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_reader_gets_all_then_the_end() {
        let mailbox = Arc::new(Mailbox::new());
        let reader = {
            let mailbox = Arc::clone(&mailbox);
            std::thread::spawn(move || {
                let mut all = Vec::new();
                let mut items = Vec::new();
                while mailbox.take(&mut items) {
                    all.append(&mut items);
                }
                all
            })
        };
        for number in 0..1000 {
            mailbox.push(number).unwrap();
        }
        mailbox.close();
        assert_eq!(mailbox.push(1000), Err(1000));
        assert!(reader.join().unwrap().into_iter().eq(0..1000));
        assert!(mailbox.wait_closed(Duration::ZERO));
    }

    #[test]
    fn an_open_mailbox_waits_no_longer_than_asked() {
        let mailbox = Mailbox::<u8>::new();
        assert!(!mailbox.wait_closed(Duration::from_millis(1)));
        assert!(!mailbox.try_take(&mut Vec::new()));
    }
}
