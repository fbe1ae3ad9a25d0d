//! What a controller knows of the record, and the one read or write that is under way.

use std::sync::Arc;

use super::input::Token;
use super::request::Request;
use super::{Controller, ControllerEffect, Effects, Refusal};
use crate::group_record::{GroupRecord, Version};
use crate::{Epoch, Millis};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Knowledge {
    /// The last that was read or written here.
    known: Option<(Version, Arc<GroupRecord>)>,
    activity: Activity,
    /// The store did not answer the last time.
    pub(super) is_unavailable: bool,
    /// What is known was read because it was doubted, and nothing was heard since.
    is_fresh: bool,
    /// Highest numbers that any record had here: one with lower ones was put back.
    highest: Number,
}

/// Master epoch and number of the in-sync set. Neither falls while a record is what it should be.
pub(super) type Number = (Epoch, i32);

pub(super) fn number(record: &GroupRecord) -> Number {
    (record.master_epoch, record.sync_state_set_epoch)
}

#[derive(Debug, Default)]
enum Activity {
    /// Nothing; `known` is good enough to decide, or there is none yet.
    #[default]
    Idle,
    Reading {
        since: Millis,
    },
    Writing {
        since: Millis,
        next: Arc<GroupRecord>,
        purpose: Purpose,
    },
    /// The store did not answer; it is read again then.
    Pausing {
        until: Millis,
    },
}

/// What a write is for.
#[derive(Debug)]
pub(super) enum Purpose {
    /// A request: it is answered then, or decided again.
    Request(Token, Box<Request>),
    /// An election, or what else a leader decides by itself.
    Decision,
    /// The hand-over that is under way.
    HandOver,
}

/// Pause before a store that did not answer is asked again.
const PAUSE: Millis = 200;

impl Knowledge {
    pub(super) fn record(&self) -> Option<&GroupRecord> {
        self.known.as_ref().map(|(_, record)| record.as_ref())
    }

    /// The record, if a decision can be made on it now.
    pub(super) fn settled(&self) -> Option<Arc<GroupRecord>> {
        match self.activity {
            Activity::Idle => self.known.as_ref().map(|(_, record)| Arc::clone(record)),
            Activity::Reading { .. } | Activity::Writing { .. } | Activity::Pausing { .. } => None,
        }
    }

    pub(super) fn highest(&self) -> Number {
        self.highest
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    /// What is known is not believed any more.
    pub(super) fn doubt(&mut self, now: Millis, out: &mut Effects) {
        if matches!(self.activity, Activity::Idle) {
            self.read(now, out);
        }
    }

    fn read(&mut self, now: Millis, out: &mut Effects) {
        self.activity = Activity::Reading { since: now };
        out.push(ControllerEffect::Read);
    }

    pub(super) fn learn(
        &mut self,
        now: Millis,
        version: Version,
        record: GroupRecord,
        out: &mut Effects,
    ) {
        self.is_fresh = matches!(self.activity, Activity::Reading { .. });
        self.highest = self.highest.max(number(&record));
        match &self.activity {
            // It may be older than the one that is being replaced.
            Activity::Writing { .. } => {}
            Activity::Reading { .. } | Activity::Pausing { .. } => {
                self.is_unavailable = false;
                self.activity = Activity::Idle;
                self.known = Some((version, Arc::new(record)));
            }
            Activity::Idle => {
                let known = self.known.as_ref().map(|(_, known)| number(known));
                if known.is_none_or(|known| known <= number(&record)) {
                    self.known = Some((version, Arc::new(record)));
                } else {
                    self.read(now, out);
                }
            }
        }
    }

    pub(super) fn write(
        &mut self,
        now: Millis,
        next: GroupRecord,
        purpose: Purpose,
        out: &mut Effects,
    ) {
        let Some((version, _)) = &self.known else { return };
        self.is_fresh = false;
        let next = Arc::new(next);
        let (expected, record) = (version.clone(), Arc::clone(&next));
        self.activity = Activity::Writing { since: now, next, purpose };
        out.push(ControllerEffect::Write { expected, record });
    }

    /// Reads when nothing is known, and gives up what has no answer.
    pub(super) fn go_on(&mut self, now: Millis, timeout: Millis, out: &mut Effects) {
        match &self.activity {
            Activity::Idle if self.known.is_none() => self.read(now, out),
            Activity::Reading { since } if now >= since + timeout => self.read(now, out),
            Activity::Pausing { until } if now >= *until => self.read(now, out),
            Activity::Idle
            | Activity::Reading { .. }
            | Activity::Writing { .. }
            | Activity::Pausing { .. } => {}
        }
    }

    /// The write under way, if it has had no answer for too long.
    fn overdue(&self, now: Millis, timeout: Millis) -> bool {
        matches!(&self.activity, Activity::Writing { since, .. } if now >= since + timeout)
    }

    fn end_write(&mut self, then: Activity) -> Option<(Arc<GroupRecord>, Purpose)> {
        match std::mem::replace(&mut self.activity, then) {
            Activity::Writing { next, purpose, .. } => Some((next, purpose)),
            other @ (Activity::Idle | Activity::Reading { .. } | Activity::Pausing { .. }) => {
                self.activity = other;
                None
            }
        }
    }
}

impl Controller {
    pub(super) fn written(&mut self, version: Version, out: &mut Effects) {
        let Some((record, purpose)) = self.knowledge.end_write(Activity::Idle) else { return };
        self.knowledge.is_unavailable = false;
        self.knowledge.highest = self.knowledge.highest.max(number(&record));
        self.knowledge.known = Some((version, Arc::clone(&record)));
        Self::notify(&record, out);
        match purpose {
            Purpose::Request(token, _) => {
                out.push(ControllerEffect::Reply { token, outcome: Ok(record) });
            }
            Purpose::Decision => {}
            Purpose::HandOver => self.handed_over(&record, out),
        }
    }

    /// Somebody else wrote first: read, and decide again.
    pub(super) fn conflict(&mut self) {
        let Some((_, purpose)) = self.knowledge.end_write(Activity::Idle) else { return };
        self.knowledge.known = None;
        match purpose {
            Purpose::Request(token, request) => self.waiting.put_back(token, request),
            Purpose::Decision | Purpose::HandOver => {}
        }
    }

    /// A write may have been carried out; who asked for it asks again, and that is harmless.
    pub(super) fn unavailable(&mut self, now: Millis, out: &mut Effects) {
        self.knowledge.is_unavailable = true;
        let pause = Activity::Pausing { until: now + PAUSE };
        match self.knowledge.end_write(Activity::Idle) {
            Some((_, Purpose::Request(token, _))) => {
                out.push(ControllerEffect::Reply {
                    token,
                    outcome: Err(Refusal::StoreUnavailable),
                });
            }
            Some((_, Purpose::Decision | Purpose::HandOver)) | None => {}
        }
        self.knowledge.activity = pause;
        self.refuse_waiting(out);
    }

    pub(super) fn give_up_overdue_write(&mut self, now: Millis, out: &mut Effects) {
        if self.knowledge.overdue(now, self.config.store_timeout) {
            self.unavailable(now, out);
        }
    }
}
