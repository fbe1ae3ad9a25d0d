//! A group's record as JSON, for files and for the status of a BrokerGroup.

use std::collections::{BTreeMap, BTreeSet};

use replication::group_record::{Election, ElectionReason, GroupRecord, Phase};
use replication::identity::{Floor, ReplicaIdentity, RunIdentity};
use replication::{Epoch, ReplicaId};
use serde::{Deserialize, Serialize};

/// Why JSON is no record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("it has the unknown {what} `{name}`: a newer operator wrote it")]
    Unknown { what: &'static str, name: String },
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordJson {
    pub master_epoch: Epoch,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<ReplicaId>,
    pub sync_state_set: BTreeSet<ReplicaId>,
    pub sync_state_set_epoch: i32,
    pub replicas: BTreeMap<ReplicaId, ReplicaJson>,
    pub phase: String,
    #[serde(default)]
    pub loss_epoch: Epoch,
    pub history: Vec<ElectionJson>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplicaJson {
    pub address: String,
    pub ha_address: String,
    pub store_id: String,
    pub open_count: u64,
    pub incarnation: String,
    pub floor_epoch: Epoch,
    pub floor_offset: i64,
    #[serde(default)]
    pub tail_in_doubt: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ElectionJson {
    pub epoch: Epoch,
    pub master: ReplicaId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<ReplicaId>,
    pub reason: String,
}

impl From<&GroupRecord> for RecordJson {
    fn from(record: &GroupRecord) -> Self {
        Self {
            master_epoch: record.master_epoch,
            master: record.master,
            sync_state_set: record.sync_state_set.clone(),
            sync_state_set_epoch: record.sync_state_set_epoch,
            replicas: record.replicas.iter().map(|(id, known)| (*id, known.into())).collect(),
            phase: record.phase.name().to_owned(),
            loss_epoch: record.loss_epoch,
            history: record.history.iter().map(ElectionJson::from).collect(),
        }
    }
}

impl From<&ReplicaIdentity> for ReplicaJson {
    fn from(known: &ReplicaIdentity) -> Self {
        let ReplicaIdentity { address, ha_address, run, floor, tail_in_doubt } = known.clone();
        let RunIdentity { store_id, open_count, incarnation } = run;
        let Floor { epoch: floor_epoch, offset: floor_offset } = floor;
        Self {
            address,
            ha_address,
            store_id,
            open_count,
            incarnation,
            floor_epoch,
            floor_offset,
            tail_in_doubt,
        }
    }
}

impl From<&Election> for ElectionJson {
    fn from(election: &Election) -> Self {
        let Election { epoch, master, former, reason } = *election;
        Self { epoch, master, former, reason: reason.name().to_owned() }
    }
}

impl TryFrom<RecordJson> for GroupRecord {
    type Error = RecordError;

    fn try_from(json: RecordJson) -> Result<Self, RecordError> {
        let phase = Phase::from_name(&json.phase)
            .ok_or(RecordError::Unknown { what: "phase", name: json.phase })?;
        let replicas = json.replicas.into_iter().map(|(id, known)| (id, known.into())).collect();
        let history = json.history.into_iter().map(Election::try_from);
        Ok(Self {
            master_epoch: json.master_epoch,
            master: json.master,
            sync_state_set: json.sync_state_set,
            sync_state_set_epoch: json.sync_state_set_epoch,
            replicas,
            phase,
            loss_epoch: json.loss_epoch,
            history: history.collect::<Result<_, _>>()?,
        })
    }
}

impl From<ReplicaJson> for ReplicaIdentity {
    fn from(json: ReplicaJson) -> Self {
        let ReplicaJson { store_id, open_count, incarnation, .. } = json;
        Self {
            address: json.address,
            ha_address: json.ha_address,
            run: RunIdentity { store_id, open_count, incarnation },
            floor: Floor { epoch: json.floor_epoch, offset: json.floor_offset },
            tail_in_doubt: json.tail_in_doubt,
        }
    }
}

impl TryFrom<ElectionJson> for Election {
    type Error = RecordError;

    fn try_from(json: ElectionJson) -> Result<Self, RecordError> {
        let ElectionJson { epoch, master, former, reason } = json;
        let reason = ElectionReason::from_name(&reason)
            .ok_or(RecordError::Unknown { what: "reason", name: reason })?;
        Ok(Self { epoch, master, former, reason })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::election) fn record() -> GroupRecord {
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
        let text = serde_json::to_string(&RecordJson::from(&record())).expect("JSON");
        let json: RecordJson = serde_json::from_str(&text).expect("JSON");
        assert_eq!(GroupRecord::try_from(json).expect("a record"), record());
    }

    #[test]
    fn what_a_newer_operator_wrote_is_refused() {
        let json = RecordJson { phase: "Moonlit".into(), ..RecordJson::from(&record()) };
        let error = GroupRecord::try_from(json).expect_err("unknown").to_string();
        assert_eq!(error, "it has the unknown phase `Moonlit`: a newer operator wrote it");
    }
}
