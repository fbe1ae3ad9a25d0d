//! How a replica begins: its identity, its state, and what its log may have lost.

use std::path::Path;
use std::sync::Arc;

use daemon::shutdown::Shutdown;
use replication::replica::{FlushMode, Profile};
use replication::{Member, Millis, Replica, ReplicaConfig, RunIdentity};
use store::{MessageStore, RecoveryReport};

use super::state_file::{StateFile, StateFileError, new_id};
use super::{ReplicationDriver, RoleGate, Start};
use crate::broker::Identity;
use crate::config::{BrokerConfig, FlushDiskType};

/// Changes with each start of the machine; memory that was written survives as long as it is the
/// same.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Where the boot id of the last run is kept, below the root of the store.
const BOOT_ID_FILE: &str = "config/bootId";

/// The driver of a broker whose role is elected.
///
/// # Errors
/// When the state of the replica cannot be read or written.
pub(crate) fn open(
    settings: &BrokerConfig,
    identity: &Identity,
    store: &MessageStore,
    report: &RecoveryReport,
    (gate, shutdown): (Arc<RoleGate>, &Shutdown),
) -> Result<Arc<ReplicationDriver>, StateFileError> {
    let root = &settings.store_path_root_dir;
    let state_file = StateFile::new(root);
    let log = store.log_min_offset()..store.log_end();
    let is_sync_flush = settings.flush_disk_type == FlushDiskType::Sync;
    // Asked in any case: this run is the last from now on.
    let is_same_boot = is_same_boot(root);
    let is_whole = report.was_clean || is_sync_flush || is_same_boot;
    let state = state_file.open(log.end, is_whole)?;
    let run = RunIdentity {
        store_id: state.store_id.clone(),
        open_count: state.open_count,
        incarnation: new_id(),
    };
    let member = Member {
        id: identity.id,
        address: peer_address(identity, settings.listen_port),
        ha_address: identity.ha_address.clone(),
    };
    let min_in_sync = settings.min_in_sync_replicas;
    let config = ReplicaConfig {
        flush: if is_sync_flush { FlushMode::Sync } else { FlushMode::Async },
        ..ReplicaConfig::new(member, run, Profile::Sync, min_in_sync)
    };
    let replica = Replica::new(config, state, log, Millis::default());
    let identity = identity.clone();
    let (root, shutdown) = (root.clone(), shutdown.clone());
    Ok(ReplicationDriver::new(Start { replica, state_file, identity, gate, root, shutdown }))
}

/// Where the other brokers of the group reach this one: by brokerIP2, as for the log. It is
/// registered anew at each start; a name that clients are told may lead to the process before.
fn peer_address(identity: &Identity, port: u16) -> String {
    let host = identity.ha_address.rsplit_once(':').map_or("", |(host, _)| host);
    format!("{host}:{port}")
}

/// Whether the machine has not started anew since the last run; from now on this run is the last.
fn is_same_boot(root: &Path) -> bool {
    let file = root.join(BOOT_ID_FILE);
    let before = std::fs::read_to_string(&file).unwrap_or_default();
    let now = std::fs::read_to_string(BOOT_ID).unwrap_or_default();
    if let Err(error) = std::fs::write(&file, &now) {
        tracing::warn!(path = %file.display(), %error, "the id of this boot is not kept");
    }
    !now.is_empty() && before == now
}
