//! The limit of what is accepted but not yet readable: the store's only back-pressure.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::PutError;

/// Counts bytes and messages between put and dispatch.
#[derive(Debug)]
pub(crate) struct Pending {
    bytes: AtomicUsize,
    messages: AtomicUsize,
    bytes_max: usize,
    messages_max: usize,
}

/// A share of the limit, given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    pending: Arc<Pending>,
    bytes: usize,
    messages: usize,
}

impl Pending {
    pub(crate) fn new(bytes_max: usize, messages_max: usize) -> Arc<Self> {
        let (bytes, messages) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { bytes, messages, bytes_max, messages_max })
    }

    /// Takes a share, or says that the limit is reached. A request larger than the limit passes
    /// when nothing else is waiting.
    pub(crate) fn admit(
        self: &Arc<Self>,
        bytes: usize,
        messages: usize,
    ) -> Result<Permit, PutError> {
        let waiting_bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let waiting_messages = self.messages.fetch_add(messages, Ordering::Relaxed);
        let permit = Permit { pending: Arc::clone(self), bytes, messages };
        let over = waiting_bytes + bytes > self.bytes_max
            || waiting_messages + messages > self.messages_max;
        if over && waiting_messages > 0 {
            return Err(PutError::Busy {
                waiting_bytes,
                waiting_messages,
                bytes_max: self.bytes_max,
                messages_max: self.messages_max,
            });
        }
        Ok(permit)
    }

    /// Bytes and messages accepted but not yet readable.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        (self.bytes.load(Ordering::Relaxed), self.messages.load(Ordering::Relaxed))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.pending.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.pending.messages.fetch_sub(self.messages, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_limits_hold_and_shares_come_back() {
        let pending = Pending::new(100, 3);
        let large = pending.admit(500, 1).unwrap();
        assert!(matches!(pending.admit(1, 1), Err(PutError::Busy { waiting_bytes: 500, .. })));
        drop(large);
        let permits: Vec<_> = (0..3).map(|_| pending.admit(1, 1).unwrap()).collect();
        assert!(matches!(pending.admit(1, 1), Err(PutError::Busy { waiting_messages: 3, .. })));
        assert_eq!(pending.waiting(), (3, 3));
        drop(permits);
        assert_eq!(pending.waiting(), (0, 0));
    }
}
