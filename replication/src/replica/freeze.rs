//! A master that stops accepting so that another can go on without losing or refusing anything.

use super::effect::ReplicaEffect;
use super::{Effects, Profile, Replica};
use crate::controller::FreezeFailure;
use crate::{Epoch, Millis, ReplicaId};

/// A hand-over in which this master is the giving side.
#[derive(Debug, Clone, Copy)]
pub(super) struct Freezing {
    target: ReplicaId,
    /// It goes on by itself then.
    until: Millis,
    /// No append is under way any more.
    is_drained: bool,
    is_reported: bool,
}

impl Freezing {
    pub(super) fn new(target: ReplicaId, until: Millis) -> Self {
        Self { target, until, is_drained: false, is_reported: false }
    }
}

impl Replica {
    pub(super) fn freeze(
        &mut self,
        now: Millis,
        epoch: Epoch,
        freezing: Freezing,
        out: &mut Effects,
    ) {
        let target = freezing.target;
        let own = self.config.id;
        let leading = self.leading().filter(|leading| {
            leading.epoch == epoch && target != own && leading.set.confirmed().contains(&target)
        });
        let Some(leading) = leading else {
            let result = Err(FreezeFailure::NotMaster);
            out.push(ReplicaEffect::ReportFrozen { epoch, result });
            return;
        };
        let is_drained = leading.freezing.as_ref().is_some_and(|former| former.is_drained);
        leading.freezing = Some(Freezing { is_drained, ..freezing });
        // No promise that a slave gave before counts after it.
        leading.promises_void_before = now + 1;
        for slave in leading.slaves.values_mut() {
            slave.return_promise();
        }
    }

    pub(super) fn drained(&mut self, end: i64) {
        self.appended(end);
        if let Some(freezing) = self.leading().and_then(|leading| leading.freezing.as_mut()) {
            freezing.is_drained = true;
        }
    }

    pub(super) fn unfreeze(&mut self, now: Millis, epoch: Epoch) {
        let Some(leading) = self.leading() else { return };
        if leading.epoch == epoch && leading.freezing.take().is_some() {
            leading.promises_void_before = now + 1;
        }
    }

    pub(super) fn go_on_freezing(&mut self, now: Millis, out: &mut Effects) {
        let end = self.stored();
        let is_complete = end == self.end;
        let needs_promise_back = self.config.profile == Profile::Async;
        let Some(leading) = self.leading() else { return };
        let epoch = leading.epoch;
        let Some(freezing) = &mut leading.freezing else { return };
        if now >= freezing.until {
            let was_reported = freezing.is_reported;
            self.unfreeze(now, epoch);
            if !was_reported {
                let result = Err(FreezeFailure::TooSlow);
                out.push(ReplicaEffect::ReportFrozen { epoch, result });
            }
            return;
        }
        let target = leading.slaves.get(&freezing.target);
        let has_all = target.is_some_and(|slave| {
            slave.acked >= Some(end) && (slave.is_promise_returned || !needs_promise_back)
        });
        if freezing.is_drained && is_complete && has_all && !freezing.is_reported {
            freezing.is_reported = true;
            out.push(ReplicaEffect::ReportFrozen { epoch, result: Ok(end) });
        }
    }
}
