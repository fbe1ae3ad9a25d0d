//! State of replication.

use super::body;

body! {
    /// Answer to `GET_BROKER_HA_STATUS` (Java `HARuntimeInfo`).
    pub struct HaRuntimeInfo {
        master: bool,
        /// End of the master's log.
        master_commit_log_max_offset: i64,
        in_sync_slave_nums: i32,
        /// Slaves that are connected.
        ha_connection_info: Vec<HaConnectionRuntimeInfo>,
        ha_client_runtime_info: HaClientRuntimeInfo,
    }

    /// A slave, as its master sees it.
    pub struct HaConnectionRuntimeInfo {
        addr: String,
        slave_ack_offset: i64,
        /// Bytes that it lacks.
        diff: i64,
        in_sync: bool,
        transferred_byte_in_second: i64,
        transfer_from_where: i64,
    }

    /// A slave, as it sees itself. Times are epoch milliseconds.
    pub struct HaClientRuntimeInfo {
        master_addr: String,
        transferred_byte_in_second: i64,
        max_offset: i64,
        last_read_timestamp: i64,
        last_write_timestamp: i64,
        master_flush_offset: i64,
        activated: bool,
    }
}
