//! Requests of brokers and `mqadmin` as questions to a group, and records as answers.

use std::collections::BTreeSet;

use protocol::body::{
    AlterSyncStateSet, BrokerMemberGroup, ElectMasterResponseBody, ReplicaInfo, ReplicasInfo,
    SyncStateSet,
};
use protocol::command::RemotingCommand;
use protocol::header::HeaderError;
use protocol::header::controller::{
    AlterSyncStateSetRequestHeader, FreezeMasterRequestHeader, FreezeMasterResponseHeader,
    MasterHeader, RegisterReplicaRequestHeader, ReplicaHeader, ReplicaHeartbeatRequestHeader,
    UnfreezeMasterRequestHeader,
};
use protocol::json::{self, JsonError};
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use replication::controller::{AlterRequest, FreezeFailure, Heartbeat};
use replication::identity::{LogPosition, Registration, RunIdentity};
use replication::{Epoch, GroupRecord, Millis, ReplicaId, RoleRecord};

/// Priority of a broker that says nothing about it.
const PRIORITY_DEFAULT: i32 = i32::MAX;

/// What a replica says of itself; `address` is where clients reach it.
pub(super) fn registration(replica: ReplicaHeader, address: String) -> Registration {
    Registration {
        id: replica.broker_id,
        address,
        ha_address: replica.ha_address,
        run: run(replica.store_id, replica.open_count, replica.incarnation),
        is_whole: replica.is_whole,
        log: LogPosition {
            promised: replica.promised_epoch,
            last_epoch: replica.epoch,
            end: replica.max_offset,
            confirm: replica.confirm_offset,
            sync_state_set_epoch: replica.sync_state_set_epoch,
            is_master: replica.is_master,
        },
    }
}

/// The run that a registration replaces.
pub(super) fn replaced(header: &RegisterReplicaRequestHeader) -> Option<RunIdentity> {
    let store_id = header.replaces_store_id.clone()?;
    let incarnation = header.replaces_incarnation.clone().unwrap_or_default();
    Some(run(store_id, header.replaces_open_count.unwrap_or(0), incarnation))
}

pub(super) fn heartbeat(
    header: ReplicaHeartbeatRequestHeader,
    replica: ReplicaHeader,
    version: &str,
) -> Heartbeat {
    let millis = |value: i64| Millis::try_from(value).unwrap_or(0);
    let is_target_version = header.broker_version.as_deref().is_none_or(|runs| runs == version);
    Heartbeat {
        registration: registration(replica, header.broker_addr),
        heard_master: header.heard_master.map(millis),
        disk_stall: millis(header.disk_stall),
        priority: header.election_priority.unwrap_or(PRIORITY_DEFAULT),
        is_target_version,
    }
}

fn run(store_id: String, open_count: i64, incarnation: String) -> RunIdentity {
    RunIdentity { store_id, open_count: u64::try_from(open_count).unwrap_or(0), incarnation }
}

pub(super) fn alteration(
    header: &AlterSyncStateSetRequestHeader,
    body: &[u8],
) -> Result<AlterRequest, JsonError> {
    let wanted: AlterSyncStateSet = json::from_slice(body)?;
    let runs = wanted.runs.into_iter().map(|(id, run)| {
        let protocol::body::ReplicaRun { store_id, open_count, incarnation } = run;
        (id, RunIdentity { store_id, open_count, incarnation })
    });
    Ok(AlterRequest {
        master: header.master_broker_id,
        master_epoch: header.master_epoch,
        sync_state_set_epoch: wanted.sync_state_set_epoch,
        set: wanted.sync_state_set,
        runs: runs.collect(),
        confirm: header.confirm_offset,
    })
}

pub(super) fn master_header(role: &RoleRecord) -> MasterHeader {
    let own = role.own_run.clone();
    MasterHeader {
        master_broker_id: role.master.as_ref().map(|master| master.id),
        master_address: role.master.as_ref().map(|master| master.address.clone()),
        master_ha_address: role.master.as_ref().map(|master| master.ha_address.clone()),
        master_epoch: Some(role.epoch),
        sync_state_set_epoch: Some(role.sync_state_set_epoch),
        own_open_count: own.as_ref().and_then(|run| i64::try_from(run.open_count).ok()),
        own_incarnation: own.as_ref().map(|run| run.incarnation.clone()),
        own_store_id: own.map(|run| run.store_id),
        own_tail_in_doubt: role.is_tail_in_doubt,
        loss_epoch: Some(role.loss_epoch),
        ..MasterHeader::default()
    }
}

fn set_body(role: &RoleRecord) -> Vec<u8> {
    let set = SyncStateSet {
        sync_state_set: role.sync_state_set.clone(),
        sync_state_set_epoch: role.sync_state_set_epoch,
    };
    json::to_vec(&set).unwrap_or_default()
}

/// The answer to a registration or a question for the role.
pub(super) fn role_answer(role: &RoleRecord) -> RemotingCommand {
    RemotingCommand::success_with(&master_header(role)).with_body(set_body(role))
}

pub(super) fn role_notice(role: &RoleRecord) -> RemotingCommand {
    let header = master_header(role);
    let request = RemotingCommand::request(RequestCode::NOTIFY_BROKER_ROLE_CHANGED, &header);
    request.with_body(set_body(role))
}

pub(super) fn freeze(epoch: Epoch, target: ReplicaId, budget: Millis) -> RemotingCommand {
    let header = FreezeMasterRequestHeader {
        master_epoch: epoch,
        target_broker_id: target,
        budget: i64::try_from(budget).unwrap_or(i64::MAX),
    };
    RemotingCommand::request(RequestCode::FREEZE_MASTER, &header)
}

pub(super) fn unfreeze(epoch: Epoch) -> RemotingCommand {
    let header = UnfreezeMasterRequestHeader { master_epoch: epoch };
    RemotingCommand::request(RequestCode::UNFREEZE_MASTER, &header)
}

pub(super) fn frozen(answer: &RemotingCommand) -> Result<i64, FreezeFailure> {
    match answer.response_code() {
        ResponseCode::SUCCESS => {
            let header: Result<FreezeMasterResponseHeader, HeaderError> = answer.header();
            header.map(|header| header.max_offset).map_err(|_| FreezeFailure::NotMaster)
        }
        ResponseCode::CONTROLLER_INVALID_MASTER => Err(FreezeFailure::NotMaster),
        _ => Err(FreezeFailure::TooSlow),
    }
}

/// The body of the answer to an election, as `mqadmin electMaster` prints it.
pub(super) fn elected(record: &GroupRecord, cluster: &str, group: &str) -> ElectMasterResponseBody {
    let addresses = record.replicas.iter().map(|(id, replica)| {
        let id = if record.master == Some(*id) { 0 } else { *id };
        (id, replica.address.clone())
    });
    ElectMasterResponseBody {
        broker_member_group: Some(BrokerMemberGroup {
            broker_addrs: addresses.collect(),
            broker_name: group.to_owned(),
            cluster: cluster.to_owned(),
        }),
        sync_state_set: record.sync_state_set.clone(),
    }
}

/// One group in the answer that `mqadmin getSyncStateSet` prints.
pub(super) fn replicas_info(
    record: &GroupRecord,
    connected: &BTreeSet<ReplicaId>,
    group: &str,
) -> ReplicasInfo {
    let infos = record.replicas.iter().map(|(id, replica)| ReplicaInfo {
        broker_name: group.to_owned(),
        broker_id: *id,
        broker_address: replica.address.clone(),
        alive: connected.contains(id),
    });
    let (in_sync_replicas, not_in_sync_replicas) =
        infos.partition(|info| record.sync_state_set.contains(&info.broker_id));
    let master = record.master.and_then(|id| record.replicas.get(&id));
    ReplicasInfo {
        master_broker_id: record.master,
        master_address: master.map(|master| master.address.clone()).unwrap_or_default(),
        master_epoch: record.master_epoch,
        sync_state_set_epoch: record.sync_state_set_epoch,
        in_sync_replicas,
        not_in_sync_replicas,
    }
}
