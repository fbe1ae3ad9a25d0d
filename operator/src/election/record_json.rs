//! A group's record as JSON, for files and for the status of a BrokerGroup.

use crds::{ElectionJson, ElectionRecord, ReplicaJson};
use replication::ReplicaId;
use replication::group_record::{Election, ElectionReason, GroupRecord, Phase};
use replication::identity::{Floor, ReplicaIdentity, RunIdentity};

/// Why JSON is no record.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordError {
    #[error("it has the unknown {what} `{name}`: a newer operator wrote it")]
    Unknown { what: &'static str, name: String },
}

/// A record as it is kept.
pub(super) fn kept(record: &GroupRecord) -> ElectionRecord {
    ElectionRecord {
        master_epoch: record.master_epoch,
        master: record.master,
        sync_state_set: record.sync_state_set.clone(),
        sync_state_set_epoch: record.sync_state_set_epoch,
        replicas: record.replicas.iter().map(kept_replica).collect(),
        phase: record.phase.name().to_owned(),
        loss_epoch: record.loss_epoch,
        history: record.history.iter().map(kept_election).collect(),
    }
}

fn kept_replica((id, known): (&ReplicaId, &ReplicaIdentity)) -> (String, ReplicaJson) {
    let ReplicaIdentity { address, ha_address, run, floor, tail_in_doubt } = known.clone();
    let RunIdentity { store_id, open_count, incarnation } = run;
    let Floor { epoch: floor_epoch, offset: floor_offset } = floor;
    let kept = ReplicaJson {
        address,
        ha_address,
        store_id,
        open_count,
        incarnation,
        floor_epoch,
        floor_offset,
        tail_in_doubt,
    };
    (id.to_string(), kept)
}

fn kept_election(election: &Election) -> ElectionJson {
    let Election { epoch, master, former, reason } = *election;
    ElectionJson { epoch, master, former, reason: reason.name().to_owned() }
}

/// The record that was kept.
pub(super) fn record(kept: ElectionRecord) -> Result<GroupRecord, RecordError> {
    let phase = Phase::from_name(&kept.phase)
        .ok_or(RecordError::Unknown { what: "phase", name: kept.phase })?;
    let replicas = kept.replicas.into_iter().map(replica);
    let history = kept.history.into_iter().map(election);
    Ok(GroupRecord {
        master_epoch: kept.master_epoch,
        master: kept.master,
        sync_state_set: kept.sync_state_set,
        sync_state_set_epoch: kept.sync_state_set_epoch,
        replicas: replicas.collect::<Result<_, _>>()?,
        phase,
        loss_epoch: kept.loss_epoch,
        history: history.collect::<Result<_, _>>()?,
    })
}

fn replica((id, kept): (String, ReplicaJson)) -> Result<(ReplicaId, ReplicaIdentity), RecordError> {
    let ReplicaJson { store_id, open_count, incarnation, .. } = kept;
    let known = ReplicaIdentity {
        address: kept.address,
        ha_address: kept.ha_address,
        run: RunIdentity { store_id, open_count, incarnation },
        floor: Floor { epoch: kept.floor_epoch, offset: kept.floor_offset },
        tail_in_doubt: kept.tail_in_doubt,
    };
    let number = id.parse();
    Ok((number.map_err(|_| RecordError::Unknown { what: "replica", name: id })?, known))
}

fn election(kept: ElectionJson) -> Result<Election, RecordError> {
    let ElectionJson { epoch, master, former, reason } = kept;
    let reason = ElectionReason::from_name(&reason)
        .ok_or(RecordError::Unknown { what: "reason", name: reason })?;
    Ok(Election { epoch, master, former, reason })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::election) fn example() -> GroupRecord {
        let run = RunIdentity { store_id: "s".into(), open_count: 3, incarnation: "i".into() };
        let known = ReplicaIdentity {
            address: "127.0.0.1:10911".into(),
            ha_address: "127.0.0.1:10912".into(),
            run,
            floor: Floor { epoch: 2, offset: 90 },
            tail_in_doubt: true,
        };
        let reason = ElectionReason::First;
        GroupRecord {
            master_epoch: 2,
            master: Some(1),
            sync_state_set: [1, 2].into(),
            sync_state_set_epoch: 4,
            replicas: [(1, known)].into(),
            phase: Phase::Serving,
            loss_epoch: 1,
            history: vec![Election { epoch: 2, master: 1, former: None, reason }],
        }
    }

    #[test]
    fn a_record_comes_back() {
        let text = serde_json::to_string(&kept(&example())).expect("JSON");
        let json: ElectionRecord = serde_json::from_str(&text).expect("JSON");
        assert_eq!(record(json).expect("a record"), example());
    }

    #[test]
    fn what_a_newer_operator_wrote_is_refused() {
        let json = ElectionRecord { phase: "Moonlit".into(), ..kept(&example()) };
        let error = record(json).expect_err("unknown").to_string();
        assert_eq!(error, "it has the unknown phase `Moonlit`: a newer operator wrote it");
    }
}
