//! What must hold in every moment, over a view of a whole group. The simulator asks after every
//! event, `rmq check` on a standstill.

use std::collections::{BTreeMap, BTreeSet};

use crate::group_record::GroupRecord;
use crate::{Epoch, EpochTable, ReplicaId};

/// What can be seen of a replica.
#[derive(Debug, Clone)]
pub struct ReplicaView {
    /// Epoch that it has promised, durably.
    pub promised: Epoch,
    /// Epoch that it is master of.
    pub master_epoch: Option<Epoch>,
    /// The epochs of its log.
    pub epochs: EpochTable,
    /// First offset of its log.
    pub begin: i64,
    /// End of its log.
    pub end: i64,
    /// What it lets readers see.
    pub confirm: i64,
    /// What senders at it were told is safe.
    pub acknowledged: i64,
}

/// A group at one moment: its record as the store has it, and its replicas.
#[derive(Debug, Clone)]
pub struct GroupView<'a> {
    /// The record.
    pub record: &'a GroupRecord,
    /// The replicas whose disks exist, running or not.
    pub replicas: BTreeMap<ReplicaId, ReplicaView>,
}

/// An invariant that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// I1.
    #[error("epoch fell from {from} to {to}")]
    EpochFell {
        /// Before.
        from: Epoch,
        /// After.
        to: Epoch,
    },
    /// I1.
    #[error("{first} and {second} are masters of epoch {epoch}")]
    TwoMasters {
        /// The epoch.
        epoch: Epoch,
        /// One of them.
        first: ReplicaId,
        /// The other.
        second: ReplicaId,
    },
    /// I2.
    #[error("{id} may be elected and ends at {end}, but {acknowledged} was acknowledged")]
    AcknowledgedMissing {
        /// A member of the in-sync set.
        id: ReplicaId,
        /// End of its log.
        end: i64,
        /// What was acknowledged.
        acknowledged: i64,
    },
    /// I3.
    #[error("master {0} is not in the in-sync set")]
    MasterNotInSync(ReplicaId),
    /// I4.
    #[error("{0} was elected but was not in the in-sync set with a whole disk")]
    ElectedFromOutside(ReplicaId),
    /// I5.
    #[error("{id} obeyed epoch {to} after epoch {from}")]
    ObeyedLower {
        /// Who.
        id: ReplicaId,
        /// Before.
        from: Epoch,
        /// After.
        to: Epoch,
    },
    /// I6.
    #[error("{id} shows {confirm} but ends at {end}")]
    ShowsWhatItLacks {
        /// Who.
        id: ReplicaId,
        /// What readers see.
        confirm: i64,
        /// End of its log.
        end: i64,
    },
    /// I6.
    #[error("{id} cut its log to {to} below {confirm}, which readers had seen")]
    CutConfirmed {
        /// Who.
        id: ReplicaId,
        /// New end.
        to: i64,
        /// What was seen.
        confirm: i64,
    },
    /// I7.
    #[error("{id} acknowledged with {members} members in sync, {needed} are needed")]
    TooFewMembers {
        /// The master.
        id: ReplicaId,
        /// Members of its set.
        members: usize,
        /// `minInSyncReplicas`.
        needed: usize,
    },
    /// I8.
    #[error("the record's set changed without a new number")]
    SetChangedSilently,
    /// I9.
    #[error("an empty record went to epoch {epoch} although {id} knows epoch {promised}")]
    BegunAnew {
        /// The new epoch.
        epoch: Epoch,
        /// Who knows better.
        id: ReplicaId,
        /// What it has promised.
        promised: Epoch,
    },
    /// I10.
    #[error("a name server went from epoch {from} to {to}")]
    RouteFell {
        /// Before.
        from: Epoch,
        /// After.
        to: Epoch,
    },
}

/// I1: an epoch has one master.
///
/// # Errors
/// If it has two.
pub fn one_master_per_epoch(view: &GroupView<'_>) -> Result<(), Violation> {
    let mut masters = BTreeMap::new();
    for (id, replica) in &view.replicas {
        let Some(epoch) = replica.master_epoch else { continue };
        if let Some(first) = masters.insert(epoch, *id) {
            return Err(Violation::TwoMasters { epoch, first, second: *id });
        }
    }
    Ok(())
}

/// I1, I8, I9 and I4: a record follows from the one before. `is_loss_accepted` when a person has
/// accepted a loss in this step.
///
/// # Errors
/// If it does not.
pub fn record_step(before: &GroupRecord, after: &GroupRecord) -> Result<(), Violation> {
    let (from, to) = (before.master_epoch, after.master_epoch);
    if to < from {
        return Err(Violation::EpochFell { from, to });
    }
    let is_number_new = after.sync_state_set_epoch > before.sync_state_set_epoch;
    if after.sync_state_set != before.sync_state_set && !is_number_new {
        return Err(Violation::SetChangedSilently);
    }
    master_in_sync(after)?;
    let is_rebuilt = after.loss_epoch == to || before.master_epoch == 0;
    let is_regressed = before.phase == crate::Phase::RecordRegression;
    if let Some(master) = after.master.filter(|_| to > from && !is_rebuilt && !is_regressed) {
        let is_member = before.sync_state_set.contains(&master);
        let is_whole = before.replicas.get(&master).is_some_and(|known| !known.tail_in_doubt);
        if !is_member || !is_whole {
            return Err(Violation::ElectedFromOutside(master));
        }
    }
    Ok(())
}

/// I3: the master is in the in-sync set.
///
/// # Errors
/// If it is not.
pub fn master_in_sync(record: &GroupRecord) -> Result<(), Violation> {
    match record.master {
        Some(master) if !record.sync_state_set.contains(&master) => {
            Err(Violation::MasterNotInSync(master))
        }
        Some(_) | None => Ok(()),
    }
}

/// I9: the first epoch of a record is above what any replica knows.
///
/// # Errors
/// If one knows a higher or the same epoch, or has messages that the master lacks.
pub fn not_begun_anew(
    before: &GroupRecord,
    after: &GroupRecord,
    replicas: &BTreeMap<ReplicaId, ReplicaView>,
) -> Result<(), Violation> {
    if after.master_epoch == before.master_epoch {
        return Ok(());
    }
    for (id, replica) in replicas {
        if replica.promised >= after.master_epoch {
            let (epoch, promised) = (after.master_epoch, replica.promised);
            return Err(Violation::BegunAnew { epoch, id: *id, promised });
        }
    }
    Ok(())
}

/// I2: what was acknowledged is on every disk that may be elected. `acknowledged` is the end of the
/// last acknowledged message of the synchronous profile.
///
/// # Errors
/// If one lacks it.
pub fn acknowledged_everywhere(view: &GroupView<'_>, acknowledged: i64) -> Result<(), Violation> {
    let is_electable =
        |id: &ReplicaId| view.record.replicas.get(id).is_some_and(|known| !known.tail_in_doubt);
    for id in view.record.sync_state_set.iter().filter(|id| is_electable(id)) {
        let Some(replica) = view.replicas.get(id) else { continue };
        if replica.end < acknowledged {
            let end = replica.end;
            return Err(Violation::AcknowledgedMissing { id: *id, end, acknowledged });
        }
    }
    Ok(())
}

/// I5: promises only rise.
///
/// # Errors
/// If one fell.
pub fn promise_step(id: ReplicaId, from: Epoch, to: Epoch) -> Result<(), Violation> {
    if to < from { Err(Violation::ObeyedLower { id, from, to }) } else { Ok(()) }
}

/// I6: readers see what is there.
///
/// # Errors
/// If they see more.
pub fn shows_what_it_has(view: &GroupView<'_>) -> Result<(), Violation> {
    for (id, replica) in &view.replicas {
        let ReplicaView { confirm, end, .. } = *replica;
        if confirm > end {
            return Err(Violation::ShowsWhatItLacks { id: *id, confirm, end });
        }
    }
    Ok(())
}

/// I6: a log is cut only above what readers have seen.
///
/// # Errors
/// If it is cut below.
pub fn cut_above_confirm(id: ReplicaId, to: i64, confirm: i64) -> Result<(), Violation> {
    if to < confirm { Err(Violation::CutConfirmed { id, to, confirm }) } else { Ok(()) }
}

/// I7: with too few members nothing is acknowledged.
///
/// # Errors
/// If something was.
pub fn enough_members(
    id: ReplicaId,
    set: &BTreeSet<ReplicaId>,
    needed: usize,
) -> Result<(), Violation> {
    let members = set.len();
    if members < needed { Err(Violation::TooFewMembers { id, members, needed }) } else { Ok(()) }
}

/// I10: a name server keeps the highest epoch of a group.
///
/// # Errors
/// If it fell.
pub fn route_step(from: Epoch, to: Epoch) -> Result<(), Violation> {
    if to < from { Err(Violation::RouteFell { from, to }) } else { Ok(()) }
}
