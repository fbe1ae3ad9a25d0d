//! Whether the store takes messages, and if not, why (Java `RunningFlags`).

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

/// Reasons against writing. A failure is for good; the others come and go.
#[derive(Debug, Default)]
pub(crate) struct RunningFlags {
    /// Fast answer: whether there is any reason at all.
    is_blocked: AtomicBool,
    reasons: RwLock<Reasons>,
}

#[derive(Debug, Default)]
struct Reasons {
    failed: Option<String>,
    shutdown: bool,
    disk_full: Option<String>,
    dispatch: Option<String>,
    is_slave: bool,
}

impl Reasons {
    fn first(&self) -> Option<String> {
        let shutdown = self.shutdown.then(|| "it is being shut down".to_owned());
        let failed = self.failed.clone();
        let slave = self.is_slave.then(|| "the broker is a slave".to_owned());
        let others = self.disk_full.clone().or_else(|| self.dispatch.clone());
        failed.or(shutdown).or(others).or(slave)
    }
}

impl RunningFlags {
    /// The reason why nothing can be written.
    pub(crate) fn blocked(&self) -> Option<String> {
        if self.is_blocked.load(Ordering::Acquire) { self.reasons.read().first() } else { None }
    }

    /// The failure that ended writing for good.
    pub(crate) fn failure(&self) -> Option<String> {
        self.reasons.read().failed.clone()
    }

    /// Ends writing for good; the first reason stays. A write or flush that failed is never tried
    /// again: the kernel may have thrown away the data and would report success.
    pub(crate) fn fail(&self, reason: &str) {
        tracing::error!(reason, "the store stops taking messages");
        self.change(|reasons| {
            reasons.failed.get_or_insert_with(|| reason.to_owned());
        });
    }

    pub(crate) fn shut_down(&self) {
        self.change(|reasons| reasons.shutdown = true);
    }

    /// Sets or lifts the block for a full disk.
    pub(crate) fn set_disk_full(&self, reason: Option<String>) {
        if self.reasons.read().disk_full.is_some() != reason.is_some() {
            match &reason {
                Some(reason) => tracing::warn!(reason, "the store refuses messages"),
                None => tracing::info!("there is space again, the store takes messages"),
            }
        }
        self.change(|reasons| reasons.disk_full = reason);
    }

    /// Sets or lifts the block for consume queues that cannot be written.
    pub(crate) fn set_dispatch_error(&self, reason: Option<String>) {
        self.change(|reasons| reasons.dispatch = reason);
    }

    /// A slave takes messages only from its master.
    pub(crate) fn set_slave(&self, is_slave: bool) {
        self.change(|reasons| reasons.is_slave = is_slave);
    }

    fn change(&self, change: impl FnOnce(&mut Reasons)) {
        let mut reasons = self.reasons.write();
        change(&mut reasons);
        self.is_blocked.store(reasons.first().is_some(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_for_good_and_a_full_disk_is_not() {
        let flags = RunningFlags::default();
        assert_eq!(flags.blocked(), None);
        flags.set_disk_full(Some("full".into()));
        assert_eq!(flags.blocked(), Some("full".into()));
        flags.set_disk_full(None);
        flags.set_dispatch_error(Some("queue".into()));
        assert_eq!(flags.blocked(), Some("queue".into()));
        flags.set_dispatch_error(None);
        assert_eq!(flags.blocked(), None);
        flags.fail("first");
        flags.fail("second");
        flags.set_disk_full(None);
        assert_eq!(flags.blocked(), Some("first".into()));
        assert_eq!(flags.failure(), Some("first".into()));
    }
}
