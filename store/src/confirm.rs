//! The confirm offset: the one gate before acknowledgement and visibility.
//!
//! Below it messages become readable and their senders are answered; beyond it the log may still be
//! cut. Without replication there is no bound and the gate costs one look at a number.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// The confirm offset of a store that waits for nobody.
pub(crate) const UNBOUNDED: i64 = i64::MAX;

/// See the module.
#[derive(Debug)]
pub(crate) struct Confirm {
    offset: AtomicI64,
    /// Records below that were not dispatched have to be read from the log: another broker placed
    /// them, or another life of this one.
    tail_end: AtomicI64,
    is_slave: AtomicBool,
}

impl Confirm {
    /// A gate that is closed at this offset, or open.
    pub(crate) fn new(held_at: Option<i64>, tail_end: i64, is_slave: bool) -> Self {
        Self {
            offset: AtomicI64::new(held_at.unwrap_or(UNBOUNDED)),
            tail_end: AtomicI64::new(tail_end),
            is_slave: AtomicBool::new(is_slave),
        }
    }

    /// Everything below may be read and acknowledged.
    pub(crate) fn offset(&self) -> i64 {
        self.offset.load(Ordering::Acquire)
    }

    /// Whether anybody is waited for.
    pub(crate) fn is_bounded(&self) -> bool {
        self.offset() != UNBOUNDED
    }

    /// Raises the offset; returns whether that changed it.
    pub(crate) fn raise(&self, offset: i64) -> bool {
        self.offset.fetch_max(offset, Ordering::AcqRel) < offset
    }

    /// Closes the gate at what is dispatched; whoever calls this holds the dispatch.
    pub(crate) fn hold(&self, dispatched: i64) {
        let open = UNBOUNDED;
        // Closed already, it stays where it is.
        let _ = self.offset.compare_exchange(open, dispatched, Ordering::AcqRel, Ordering::Acquire);
    }

    pub(crate) fn tail_end(&self) -> i64 {
        self.tail_end.load(Ordering::Acquire)
    }

    /// Only the holder of the appender calls this.
    pub(crate) fn set_tail_end(&self, end: i64) {
        self.tail_end.store(end, Ordering::Release);
    }

    pub(crate) fn is_slave(&self) -> bool {
        self.is_slave.load(Ordering::Acquire)
    }

    pub(crate) fn set_slave(&self, is_slave: bool) {
        self.is_slave.store(is_slave, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_only_rises_once_it_is_bounded() {
        let confirm = Confirm::new(None, 0, false);
        assert!(!confirm.is_bounded());
        assert!(!confirm.raise(10));
        confirm.hold(10);
        confirm.hold(20);
        assert_eq!(confirm.offset(), 10);
        assert!(confirm.raise(30));
        assert!(!confirm.raise(29));
        assert_eq!(confirm.offset(), 30);
        assert!(confirm.raise(UNBOUNDED));
        assert!(!confirm.is_bounded());
    }
}
