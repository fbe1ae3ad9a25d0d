//! What a record makes of a replica that has started.

use crate::controller::Refusal;
use crate::group_record::{GroupRecord, Phase, REPLICAS_MAX};
use crate::identity::{Floor, Registration, ReplicaIdentity, RunIdentity};
use crate::rules::{Rule, Rules};

/// The record after a registration.
///
/// # Errors
/// If the record knows another run than the one that is replaced, or has too many replicas.
pub fn register(
    record: &GroupRecord,
    registration: &Registration,
    replaces: Option<&RunIdentity>,
    rules: Rules,
) -> Result<GroupRecord, Refusal> {
    let Registration { id, address, ha_address, run, is_whole, log } = registration;
    let known = record.replicas.get(id);
    let mut next = record.clone();
    if let Some(known) = known.filter(|known| known.run == *run) {
        let identity = ReplicaIdentity {
            address: address.clone(),
            ha_address: ha_address.clone(),
            ..known.clone()
        };
        next.replicas.insert(*id, identity);
        return Ok(next);
    }
    if known.map(|known| &known.run) != replaces && rules.keep(Rule::CheckReplacedRun) {
        return Err(Refusal::OutdatedRun);
    }
    if known.is_none() && record.replicas.len() >= REPLICAS_MAX {
        return Err(Refusal::InvalidReplicas);
    }
    let is_same_disk = |known: &&ReplicaIdentity| {
        known.run.store_id == run.store_id || !rules.keep(Rule::CheckStoreId)
    };
    let same_disk = known.filter(is_same_disk);
    // Every start counts, so a number that is not above is that of a disk that was put back.
    let is_put_back = same_disk.is_some_and(|known| run.open_count <= known.run.open_count)
        && rules.keep(Rule::CheckOpenCount);
    let floor = same_disk.map_or(Floor::default(), |known| known.floor);
    let is_short = !is_whole || log.end < floor.offset;
    let is_other = known.is_some_and(|known| known.run.store_id != run.store_id);
    let is_believed = is_other && !rules.keep(Rule::CheckStoreId);
    let is_in_doubt = (is_put_back || (is_short && rules.keep(Rule::CheckTail))) && !is_believed;
    let identity = ReplicaIdentity {
        address: address.clone(),
        ha_address: ha_address.clone(),
        run: run.clone(),
        floor,
        tail_in_doubt: is_in_doubt || same_disk.is_some_and(|known| known.tail_in_doubt),
    };
    next.replicas.insert(*id, identity);
    // A request that was made for the former run must not be carried out for this one.
    next.sync_state_set_epoch += 1;
    if same_disk.is_none() {
        next.sync_state_set.remove(id);
        let has_lost_all = record.sync_state_set.contains(id) && next.sync_state_set.is_empty();
        if has_lost_all {
            next.phase = Phase::DataLost;
            next.master = None;
        }
    }
    if next.master == Some(*id) && rules.keep(Rule::RestartEndsMastership) {
        next.master = None;
        next.phase = Phase::NoMaster;
    }
    if next.phase == Phase::NoMaster && is_every_tail_in_doubt(&next) {
        next.phase = Phase::TailInDoubt;
    }
    Ok(next)
}

/// Whether the end of every log of the in-sync set may be missing.
pub(super) fn is_every_tail_in_doubt(record: &GroupRecord) -> bool {
    let in_doubt = |id| record.replicas.get(id).is_some_and(|replica| replica.tail_in_doubt);
    !record.sync_state_set.is_empty() && record.sync_state_set.iter().all(in_doubt)
}
