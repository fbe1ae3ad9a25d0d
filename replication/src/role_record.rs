//! The part of a group's record that a replica acts on.

use std::collections::BTreeSet;

use crate::group_record::GroupRecord;
use crate::{Epoch, ReplicaId, RunIdentity};

/// A replica and where it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub id: ReplicaId,
    /// Address for clients.
    pub address: String,
    /// Address for replication.
    pub ha_address: String,
}

/// What a controller tells a replica: in the answer to a registration, as a notice when roles
/// change, and when it is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleRecord {
    /// Epoch of the mastership.
    pub epoch: Epoch,
    /// The master, if there is one.
    pub master: Option<Member>,
    /// Confirmed in-sync set.
    pub sync_state_set: BTreeSet<ReplicaId>,
    /// Number of that set; rises with every change within all epochs.
    pub sync_state_set_epoch: i32,
    /// The run of this replica that the record knows. A replica obeys no record that does not know
    /// its run: it would be older than its registration.
    pub own_run: Option<RunIdentity>,
    /// Whether the record takes this replica's log for one that may lack its end.
    pub is_tail_in_doubt: bool,
    /// Highest epoch whose election may have lost acknowledged messages, with consent. Cutting
    /// below the confirm offset is right only when it is above the epoch in which that was
    /// confirmed.
    pub loss_epoch: Epoch,
}

impl RoleRecord {
    /// What `record` says to replica `id`.
    #[must_use]
    pub fn of(record: &GroupRecord, id: ReplicaId) -> Self {
        let member = |id: ReplicaId| {
            let identity = record.replicas.get(&id)?;
            let (address, ha_address) = (identity.address.clone(), identity.ha_address.clone());
            Some(Member { id, address, ha_address })
        };
        Self {
            epoch: record.master_epoch,
            master: record.master.and_then(member),
            sync_state_set: record.sync_state_set.clone(),
            sync_state_set_epoch: record.sync_state_set_epoch,
            is_tail_in_doubt: record.replicas.get(&id).is_some_and(|known| known.tail_in_doubt),
            own_run: record.replicas.get(&id).map(|identity| identity.run.clone()),
            loss_epoch: record.loss_epoch,
        }
    }
}
