//! How a master changes the recorded in-sync set. The same function serves a controller and a
//! master that reaches the record but no controller.

use std::collections::BTreeSet;

use crate::ReplicaId;
use crate::controller::{AlterRequest, Refusal};
use crate::group_record::GroupRecord;
use crate::identity::Floor;
use crate::rules::{Rule, Rules};

/// The record after the change, which is `record` itself if the change has already been made.
///
/// The recorded set may be wished again: its number rises, and so no earlier wish can come true.
/// `is_alive` is asked about those who join.
///
/// # Errors
/// If the request builds on something else than `record`, or names somebody who may not be in.
pub fn alter(
    record: &GroupRecord,
    request: &AlterRequest,
    is_alive: impl Fn(ReplicaId) -> bool,
    rules: Rules,
) -> Result<GroupRecord, Refusal> {
    let AlterRequest { master, master_epoch, sync_state_set_epoch, set, runs, confirm } = request;
    let checks_epochs = rules.keep(Rule::CheckAlterEpochs);
    if record.master != Some(*master) && checks_epochs {
        return Err(Refusal::InvalidMaster);
    }
    if record.master_epoch != *master_epoch && checks_epochs {
        return Err(Refusal::FencedMasterEpoch);
    }
    let is_done = record.sync_state_set == *set
        && record.sync_state_set_epoch == sync_state_set_epoch.saturating_add(1);
    if is_done {
        return Ok(record.clone());
    }
    if record.sync_state_set_epoch != *sync_state_set_epoch && checks_epochs {
        return Err(Refusal::FencedSyncStateSetEpoch);
    }
    if !set.contains(master) {
        return Err(Refusal::AlterFailed);
    }
    let joining: BTreeSet<_> = set.difference(&record.sync_state_set).copied().collect();
    for id in set {
        let Some(known) = record.replicas.get(id) else { return Err(Refusal::InvalidReplicas) };
        let is_known_run = match runs.get(id) {
            Some(run) => known.run == *run,
            None => !joining.contains(id),
        };
        if !is_known_run && rules.keep(Rule::CheckAlterRuns) {
            return Err(Refusal::InvalidReplicas);
        }
    }
    if !joining.iter().all(|id| is_alive(*id)) {
        return Err(Refusal::BrokerNotAlive);
    }
    let mut next = record.clone();
    next.sync_state_set.clone_from(set);
    next.sync_state_set_epoch += 1;
    for id in set {
        let Some(replica) = next.replicas.get_mut(id) else { continue };
        if joining.contains(id) {
            replica.tail_in_doubt = false;
        }
        if !replica.tail_in_doubt {
            let floor = Floor { epoch: *master_epoch, offset: *confirm };
            replica.floor = if joining.contains(id) { floor } else { replica.floor.max(floor) };
        }
    }
    Ok(next)
}
