//! What must never happen, watched from above.

use std::collections::BTreeMap;

use replication::invariant::{self, GroupView, ReplicaView, Violation};
use replication::replica::Profile;
use replication::{Epoch, GroupRecord, Millis, ReplicaId};

use crate::disk::{Disk, Log};

/// Everything that was ever shown to a reader, in order of offset, and what senders were told.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    /// What lies at each offset that somebody could read.
    shown: Vec<u32>,
    /// Highest epoch whose master has begun to serve, and who it is.
    begun: (Epoch, usize),
    /// A loss was accepted, by a person or because every tail was in doubt.
    pub(crate) losses: u64,
    pub(crate) failure: Option<String>,
}

impl Oracle {
    pub(crate) fn fail(&mut self, what: String) {
        if self.failure.is_none() {
            self.failure = Some(what);
        }
    }

    pub(crate) fn check(&mut self, result: Result<(), Violation>) {
        if let Err(violation) = result {
            self.fail(violation.to_string());
        }
    }

    pub(crate) fn shown_end(&self) -> i64 {
        i64::try_from(self.shown.len()).unwrap_or(i64::MAX)
    }

    /// A broker lets readers see its log from `from` to `to`.
    pub(crate) fn show(&mut self, broker: usize, log: &impl Log, from: i64, to: i64) {
        if to > log.end() {
            self.fail(format!("broker {broker} shows {to} but its log ends at {}", log.end()));
            return;
        }
        let first = from.max(log.begin());
        for (offset, record) in (first..).zip(log.read(first, to)) {
            let index = usize::try_from(offset).unwrap_or(usize::MAX);
            match self.shown.get(index) {
                Some(known) if known == record => {}
                Some(known) => {
                    let text =
                        format!("broker {broker} shows {record} at {offset}, it was {known}");
                    self.fail(text);
                    return;
                }
                None if index == self.shown.len() => self.shown.push(*record),
                None => {
                    self.fail(format!("broker {broker} shows {offset} before what lies below"));
                    return;
                }
            }
        }
    }

    /// A client hears that its message is stored.
    pub(crate) fn acknowledge(&mut self, message: u32, offset: i64, profile: Profile) {
        let index = usize::try_from(offset).unwrap_or(usize::MAX);
        let is_shown = self.shown.get(index) == Some(&message);
        if profile == Profile::Sync && !is_shown {
            self.fail(format!("message {message} at {offset} is acknowledged but not confirmed"));
        }
    }

    /// A master answers a sender by promises alone.
    pub(crate) fn answer_alone(&mut self, broker: usize, epoch: Epoch) {
        let (latest, other) = self.begun;
        if epoch < latest {
            let text = format!(
                "broker {broker} acknowledges alone in epoch {epoch}, but broker {other} serves \
                 epoch {latest}"
            );
            self.fail(text);
        }
    }

    /// A master begins to serve: it must have everything that was shown.
    pub(crate) fn begin(&mut self, broker: usize, epoch: Epoch, disk: &Disk) {
        // One that was deposed and does not know yet: it cannot acknowledge, and shows what it has.
        if epoch < self.begun.0 {
            return;
        }
        self.begun = (epoch, broker);
        let end = disk.log.end();
        if end < self.shown_end() {
            let shown = self.shown_end();
            self.fail(format!("master {broker} of epoch {epoch} ends at {end}, shown {shown}"));
            return;
        }
        let same = disk.log.read(disk.log.begin(), self.shown_end());
        let first = usize::try_from(disk.log.begin()).unwrap_or(0);
        if self.shown.get(first..).is_some_and(|shown| shown != same) {
            self.fail(format!("master {broker} of epoch {epoch} has other messages than shown"));
        }
    }

    /// A loss was accepted: only what the new master has counts from now on.
    pub(crate) fn accept_loss(&mut self, log: &impl Log) {
        self.losses += 1;
        let has = log.read(0, self.shown_end());
        let same = self.shown.iter().zip(has).take_while(|(a, b)| a == b).count();
        self.shown.truncate(same);
    }

    /// After every event.
    pub(crate) fn look(
        &mut self,
        record: &GroupRecord,
        replicas: BTreeMap<ReplicaId, ReplicaView>,
    ) {
        let view = GroupView { record, replicas };
        self.check(invariant::one_master_per_epoch(&view));
        self.check(invariant::master_in_sync(record));
        self.check(invariant::shows_what_it_has(&view));
        self.check(invariant::acknowledged_everywhere(&view, self.shown_end()));
    }
}

/// How long until what, for the report.
#[derive(Debug, Clone, Copy, Default)]
pub struct Coverage {
    /// Elections, hand-overs among them, and elections with an accepted loss.
    pub elections: u64,
    /// Hand-overs.
    pub hand_overs: u64,
    /// Elections with an accepted loss.
    pub losses: u64,
    /// Logs that were cut.
    pub cuts: u64,
    /// Logs that began anew.
    pub refills: u64,
    /// Records made from what all replicas say.
    pub rebuilds: u64,
    /// Changes of the in-sync set by a master.
    pub alters: u64,
    /// Writes that came second.
    pub conflicts: u64,
    /// Acknowledged messages.
    pub acknowledged: u64,
    /// Groups that ended without any disk of the in-sync set.
    pub data_lost: u64,
    /// Runs that ended because the record knew a later one.
    pub outdated: u64,
    /// Longest time between two acknowledgements.
    pub longest_gap: Millis,
    /// Simulated time.
    pub simulated: Millis,
    /// Events.
    pub events: u64,
}

impl Coverage {
    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        self.elections += other.elections;
        self.hand_overs += other.hand_overs;
        self.losses += other.losses;
        self.cuts += other.cuts;
        self.refills += other.refills;
        self.rebuilds += other.rebuilds;
        self.alters += other.alters;
        self.conflicts += other.conflicts;
        self.acknowledged += other.acknowledged;
        self.data_lost += other.data_lost;
        self.outdated += other.outdated;
        self.longest_gap = self.longest_gap.max(other.longest_gap);
        self.simulated += other.simulated;
        self.events += other.events;
    }
}
