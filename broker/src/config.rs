//! Settings of a broker: the keys of `broker.conf`, with Apache's names and defaults.

mod no_effect;

use std::path::PathBuf;
use std::time::Duration;

pub use no_effect::NO_EFFECT;
use protocol::perm;
use store::delay_level::DelayLevels;
use store::{FlushDiskType as StoreFlush, StoreConfig};

daemon::choice! {
    /// What a broker is within its brokerName.
    pub enum BrokerRole {
        AsyncMaster = "ASYNC_MASTER",
        SyncMaster = "SYNC_MASTER",
        Slave = "SLAVE",
    }
}

daemon::choice! {
    /// When a message counts as stored.
    pub enum FlushDiskType {
        Async = "ASYNC_FLUSH",
        Sync = "SYNC_FLUSH",
    }
}

daemon::config! {
    /// Settings of a broker.
    pub struct BrokerConfig {
        /// Cluster that the broker belongs to.
        broker_cluster_name("brokerClusterName"): String = "DefaultCluster".to_owned(), important;
        /// Name of the group of one master and its slaves; empty: the name of the machine.
        broker_name("brokerName"): String = String::new(), important;
        /// 0: master; slaves of a brokerName have different ones.
        broker_id("brokerId"): i64 = 0, range(0, i64::MAX), important;
        /// What this broker is within its brokerName.
        broker_role("brokerRole"): BrokerRole = BrokerRole::AsyncMaster, important;
        /// Name servers, `host:port` joined by semicolons; every address of a name counts.
        namesrv_addr("namesrvAddr"): String = String::new(), important, hot;
        /// Address to listen on.
        bind_address("bindAddress"): String = "0.0.0.0".to_owned();
        /// TCP port that clients connect to.
        listen_port("listenPort"): u16 = 10_911, range(1, 65_535), important;
        /// Port for requests that shall not wait behind pulls; empty: listenPort - 2.
        fast_listen_port("fastListenPort"): Option<u16> = None, range(1, 65_535);
        /// Port from which slaves get the log; empty: listenPort + 1.
        ha_listen_port("haListenPort"): Option<u16> = None, range(1, 65_535);
        /// Address or name that clients are told; empty: the address that leads to the name server.
        broker_ip1("brokerIP1"): String = String::new(), important;
        /// Address or name that slaves are told; empty: brokerIP1.
        broker_ip2("brokerIP2"): String = String::new(), important;
        /// The controllers elect the master of this brokerName; brokerRole does not count.
        enable_controller_mode("enableControllerMode"): bool = false, important;
        /// Controllers, `host:port` joined by semicolons; every address of a name counts.
        controller_addr("controllerAddr"): String = String::new(), important, hot;
        /// File with what proves to the controllers who this broker is; read anew for each request.
        controller_token_file("controllerTokenFile"): String = String::new();
        /// Position of this broker among the replicas of its brokerName, from 0: sets brokerId to
        /// one more.
        replica_index("replicaIndex"): Option<u16> = None, range(0, 1_000);
        /// Address that clients are told of the master, if it is not brokerIP1:listenPort: one that
        /// leads to whoever is master.
        master_address("masterAddress"): String = String::new();
        /// Port that only the master listens on, where all replicas are on one machine.
        master_listen_port("masterListenPort"): Option<u16> = None, range(1, 65_535);
        /// Address of the master's log, `host:port`; empty: as the name servers say.
        ha_master_address("haMasterAddress"): String = String::new();
        /// Bytes of the log that a slave is sent at once; Apache's slaves take 4 MiB at most.
        ha_transfer_batch_size("haTransferBatchSize"): usize = 32 << 10,
            range(1_024, HA_BATCH_BYTES_MAX), hot;
        /// Master and slave say something at least this often.
        ha_send_heartbeat_interval("haSendHeartbeatInterval"): Duration =
            Duration::from_secs(5), range(100, 600_000), hot;
        /// A master or slave that is silent this long loses its connection.
        ha_housekeeping_interval("haHousekeepingInterval"): Duration =
            Duration::from_secs(20), range(200, 600_000), hot;
        /// A slave that lacks this many bytes is not in sync and not waited for.
        ha_max_gap_not_in_sync("haMaxGapNotInSync"): u64 = 256 << 20, range(1, i64::MAX);
        /// Each slave gets at most maxHaTransferByteInSecond.
        ha_flow_control_enable("haFlowControlEnable"): bool = false, hot;
        /// Bytes of the log that a slave gets in a second, with haFlowControlEnable.
        max_ha_transfer_byte_in_second("maxHaTransferByteInSecond"): u64 = 100 << 20,
            range(1_024, i64::MAX), hot;
        /// How long a sender to a SYNC_MASTER waits for slaves.
        slave_timeout("slaveTimeout"): Duration = Duration::from_secs(3),
            range(1, 600_000), hot;
        /// Replicas, the master included, that have a message before a SYNC_MASTER confirms it; 2
        /// at least.
        in_sync_replicas("inSyncReplicas"): usize = 1, range(1, 16);
        /// A SYNC_MASTER, or one that was elected, refuses messages while fewer replicas, itself
        /// included, are in sync.
        min_in_sync_replicas("minInSyncReplicas"): usize = 1, range(1, 16);
        /// inSyncReplicas counts only as far as there are slaves in sync, but not below
        /// minInSyncReplicas.
        enable_auto_in_sync_replicas("enableAutoInSyncReplicas"): bool = false;
        /// All slaves in sync must have a message.
        all_ack_in_sync_state_set("allAckInSyncStateSet"): bool = false;
        /// Consumers may read from slaves; a master sends those there that are far behind.
        slave_read_enable("slaveReadEnable"): bool = false, important, hot;
        /// A slave corrects offsets that it does not have, instead of sending the consumer to the
        /// master.
        offset_check_in_slave("offsetCheckInSlave"): bool = false, hot;
        /// Bits of what clients may do here: 4 read, 2 write.
        broker_permission("brokerPermission"): i32 = perm::READ | perm::WRITE, range(0, 7), hot;

        /// Port of metrics and health checks; 0 switches them off.
        metrics_prom_exporter_port("metricsPromExporterPort"): u16 = 5_557, range(0, 65_535),
            important;
        /// Connections at once; more are closed.
        server_max_connections("serverMaxConnections"): usize = 50_000, range(1, 1_000_000);
        /// A connection that is silent this long is closed.
        server_channel_max_idle_time_seconds("serverChannelMaxIdleTimeSeconds"): u32 = 120,
            range(1, 86_400);

        /// Queues of topics that are made from TBW102 at most.
        default_topic_queue_nums("defaultTopicQueueNums"): i32 = 8, range(1, 1_024);
        /// Topics are made when they are first sent to.
        auto_create_topic_enable("autoCreateTopicEnable"): bool = true, important, hot;
        /// Groups are made when they first appear.
        auto_create_subscription_group("autoCreateSubscriptionGroup"): bool = true, important, hot;
        /// The topic named like the cluster may be used.
        cluster_topic_enable("clusterTopicEnable"): bool = true;
        /// The topic named like the broker may be used.
        broker_topic_enable("brokerTopicEnable"): bool = true;
        /// There is a topic for message traces.
        trace_topic_enable("traceTopicEnable"): bool = false;
        /// Its name.
        msg_trace_topic_name("msgTraceTopicName"): String =
            protocol::topic_name::TRACE_TOPIC.to_owned();
        /// Administrators cannot change or delete system topics.
        validate_system_topic("validateSystemTopicWhenUpdateTopic"): bool = true, hot;
        /// Topics may have the message type MIXED.
        enable_mixed_message_type("enableMixedMessageType"): bool = false, hot;
        /// Topics or groups that one answer has at most when the caller asks for pages.
        split_metadata_size("splitMetadataSize"): usize = 2_000, range(1, 100_000), hot;

        /// How often all topics are registered with the name servers.
        register_name_server_period("registerNameServerPeriod"): Duration =
            Duration::from_secs(30), range(1_000, 60_000);
        /// How long a name server may take to answer a registration.
        register_broker_timeout("registerBrokerTimeoutMills"): Duration =
            Duration::from_secs(24), range(100, 600_000);

        /// Region that answers to sends name.
        region_id("regionId"): String = "DefaultRegion".to_owned();
        /// Whether clients shall trace messages of this broker.
        trace_on("traceOn"): bool = true, hot;
        /// Sends are refused before this time, in epoch milliseconds.
        start_accept_send_request("startAcceptSendRequestTimeStamp"): i64 = 0,
            range(0, i64::MAX), hot;
        /// Pulls that find nothing are held until something comes.
        long_polling_enable("longPollingEnable"): bool = true, hot;
        /// How long they are held when longPollingEnable is off.
        short_polling_time("shortPollingTimeMills"): Duration = Duration::from_secs(1),
            range(1, 60_000), hot;
        /// Pulls that are held at once; more are refused with SYSTEM_BUSY.
        pull_hold_max("pullThreadPoolQueueCapacity"): usize = 100_000, range(1, 10_000_000);
        /// Lite consumers may pull.
        lite_pull_message_enable("litePullMessageEnable"): bool = true, hot;
        /// Consumers are told when their group changes.
        notify_consumer_ids_changed_enable("notifyConsumerIdsChangedEnable"): bool = true, hot;
        /// A client that sends no heartbeat for so long is forgotten.
        channel_expired_timeout("channelExpiredTimeout"): Duration =
            Duration::from_secs(120), range(1_000, 3_600_000);
        /// How often changed consumer offsets are written to the disk.
        flush_consumer_offset_interval("flushConsumerOffsetInterval"): Duration =
            Duration::from_secs(5), range(100, 600_000);
        /// Changes of offsets after which the table has a new version.
        consumer_offset_update_version_step("consumerOffsetUpdateVersionStep"): i64 = 500,
            range(1, 1_000_000);
        /// How often the progress of delayed messages is written to the disk.
        flush_delay_offset_interval("flushDelayOffsetInterval"): Duration =
            Duration::from_secs(10), range(100, 600_000);
        /// Keys that cannot be changed over the network, joined by semicolons.
        config_black_list("configBlackList"): String = String::new();

        /// Directory of everything that is kept.
        store_path_root_dir("storePathRootDir"): PathBuf = default_store_path(), important;
        /// Directory of the commit log; empty: `commitlog` below storePathRootDir.
        store_path_commit_log("storePathCommitLog"): Option<PathBuf> = None;
        /// Bytes of a commit log file.
        mapped_file_size_commit_log("mappedFileSizeCommitLog"): u64 = 1 << 30,
            range(4_096, 1 << 31);
        /// Bytes of a consume queue file, a multiple of 20.
        mapped_file_size_consume_queue("mappedFileSizeConsumeQueue"): u64 = 6_000_000,
            range(20, 1 << 31);
        /// When a message counts as stored.
        flush_disk_type("flushDiskType"): FlushDiskType = FlushDiskType::Async, important;
        /// Under ASYNC_FLUSH what is written is flushed this long after.
        flush_interval_commit_log("flushIntervalCommitLog"): Duration =
            Duration::from_millis(500), range(1, 60_000);
        /// How long a sender under SYNC_FLUSH waits for the flush.
        sync_flush_timeout("syncFlushTimeout"): Duration = Duration::from_secs(5),
            range(1, 600_000), hot;
        /// Consume queues are flushed this long after a change.
        flush_consume_queue("flushConsumeQueueThoroughInterval"): Duration =
            Duration::from_secs(60), range(10, 3_600_000);
        /// Bytes of the largest message body.
        max_message_size("maxMessageSize"): usize = 4 << 20, range(1, MESSAGE_SIZE_MAX), hot;
        /// Messages can be looked up by their keys. What was stored while it was off is indexed
        /// when it is on again.
        message_index_enable("messageIndexEnable"): bool = true;
        /// Slots of an index file, 4 bytes each.
        max_hash_slot_num("maxHashSlotNum"): u32 = 5_000_000, range(1, 500_000_000);
        /// Entries of an index file, 20 bytes each.
        max_index_num("maxIndexNum"): u32 = 20_000_000, range(2, 100_000_000);
        /// Messages that a look-up by unique id returns at most.
        default_query_max_num("defaultQueryMaxNum"): i32 = 32, range(1, 1_024), hot;
        /// Messages that any look-up by key returns at most.
        max_msgs_num_batch("maxMsgsNumBatch"): i32 = 64, range(1, 1_024), hot;
        /// Delays of the levels from 1 on.
        message_delay_level("messageDelayLevel"): String = DelayLevels::DEFAULT.to_owned();
        /// Hours that a commit log file is kept after its last change.
        file_reserved_time("fileReservedTime"): u64 = 72, range(1, 1_000_000), important;
        /// Hours of the day at which expired files go, joined by semicolons.
        delete_when("deleteWhen"): String = "04".to_owned();
        /// Above this per cent of disk use expired files go at any hour.
        disk_max_used_space_ratio("diskMaxUsedSpaceRatio"): u8 = 75, range(10, 95);
        /// Above this per cent the oldest files go even before their time.
        disk_space_clean_forcibly_ratio("diskSpaceCleanForciblyRatio"): u8 = 85, range(30, 100);
        /// Above this per cent nothing is accepted.
        disk_space_warning_level_ratio("diskSpaceWarningLevelRatio"): u8 = 90, range(35, 100);
        /// Files may go before their time when the disk is nearly full.
        clean_file_forcibly_enable("cleanFileForciblyEnable"): bool = true;
        /// Time between two looks at the disk and at expired files.
        clean_resource_interval("cleanResourceInterval"): Duration =
            Duration::from_secs(10), range(100, 3_600_000);
        /// Commit log files that go each time, at most.
        delete_file_batch_max("deleteFileBatchMax"): usize = 10, range(1, 10_000);
        /// Pause after a commit log file was deleted.
        delete_commit_log_files("deleteCommitLogFilesInterval"): Duration =
            Duration::from_millis(100), range(0, 60_000);
        /// Bytes of consume queue that one pull looks at, at most.
        max_filter_message_size("maxFilterMessageSize"): usize = 16_000, range(20, 10_000_000);
        /// Bytes of new messages that one pull returns.
        max_bytes_in_memory("maxTransferBytesOnMessageInMemory"): usize = 256 << 10,
            range(1, 128 << 20);
        /// New messages that one pull returns.
        max_count_in_memory("maxTransferCountOnMessageInMemory"): usize = 32, range(1, 10_000);
        /// Bytes of old messages that one pull returns.
        max_bytes_in_disk("maxTransferBytesOnMessageInDisk"): usize = 64 << 10,
            range(1, 128 << 20);
        /// Old messages that one pull returns.
        max_count_in_disk("maxTransferCountOnMessageInDisk"): usize = 8, range(1, 10_000);
        /// Start although the log is damaged below what was certainly stored; what lies behind the
        /// damage is moved to the directory `truncated`.
        recovery_cut_damaged_log("recoveryCutDamagedLog"): bool = false;
        /// Per cent of memory in which the newest messages are thought to be.
        access_message_in_memory_max_ratio("accessMessageInMemoryMaxRatio"): u8 = 40,
            range(1, 95);
    }
}

/// Bytes that a message body may be allowed to have: a frame of 16 MiB less its header.
pub const MESSAGE_SIZE_MAX: i64 = 15 << 20;
/// What Apache's slave has room for in one piece, less its header.
const HA_BATCH_BYTES_MAX: i64 = (4 << 20) - 16;

fn default_store_path() -> PathBuf {
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("."), PathBuf::from);
    home.join("store")
}

/// What is wrong with keys that are right one by one.
pub fn check(config: &BrokerConfig) -> Vec<String> {
    let mut errors = Vec::new();
    if config.enable_controller_mode {
        errors.extend(check_controller_mode(config));
    } else if config.broker_role == BrokerRole::Slave {
        if config.broker_id == 0 {
            let text = "`brokerRole` is `SLAVE`, but `brokerId` is 0, which is the master's";
            errors.push(text.to_owned());
        }
    } else if config.broker_id != 0 {
        errors.push(format!(
            "`brokerId` is {}, but a master ({}) has brokerId 0",
            config.broker_id,
            config.broker_role.name()
        ));
    }
    if config.bind_address.parse::<std::net::IpAddr>().is_err() {
        errors.push(format!(
            "`bindAddress` is `{}`, but must be an IP address of this machine",
            config.bind_address
        ));
    }
    errors.extend(check_ports(config));
    if let Err(error) = config.store_config().validate() {
        errors.push(error.to_string());
    }
    if let Err(error) = delete_when(&config.delete_when) {
        errors.push(error);
    }
    match DelayLevels::parse(&config.message_delay_level) {
        Ok(levels) if levels.max_level() > DELAY_LEVELS_MAX => errors.push(format!(
            "`messageDelayLevel` has {} levels, at most {DELAY_LEVELS_MAX} are possible",
            levels.max_level()
        )),
        Ok(_) => {}
        Err(error) => errors.push(format!("`messageDelayLevel`: {error}")),
    }
    for server in name_servers(&config.namesrv_addr) {
        let port = server.rsplit_once(':').and_then(|(host, port)| {
            (!host.is_empty()).then(|| port.parse::<u16>().ok()).flatten()
        });
        if port.is_none() {
            errors.push(format!("`namesrvAddr` has `{server}`, but must have `host:port`"));
        }
    }
    errors
}

/// Levels of delay at most; each is a queue with a task of its own.
const DELAY_LEVELS_MAX: i32 = 64;

fn check_controller_mode(config: &BrokerConfig) -> Vec<String> {
    let mut errors = Vec::new();
    if config.broker_id == 0 && config.replica_index.is_none() {
        let text = "`enableControllerMode` is true, but `brokerId` is 0: number the replicas of a \
                    brokerName from 1 on";
        errors.push(text.to_owned());
    }
    if name_servers(&config.controller_addr).next().is_none() {
        errors.push("`enableControllerMode` is true, but `controllerAddr` is empty".to_owned());
    }
    errors
}

fn check_ports(config: &BrokerConfig) -> Vec<String> {
    if config.fast_listen_port.is_none() && config.listen_port < 3 {
        return vec!["`listenPort` must be 3 or more, or `fastListenPort` be set".to_owned()];
    }
    let ports = [
        ("listenPort", config.listen_port),
        ("fastListenPort", config.fast_port()),
        ("haListenPort", config.ha_port()),
        ("metricsPromExporterPort", config.metrics_prom_exporter_port),
    ];
    let mut errors = Vec::new();
    for (at, (key, port)) in ports.iter().enumerate() {
        for (other, same) in ports.iter().skip(at + 1) {
            if port == same {
                errors.push(format!("`{key}` and `{other}` are both {port}"));
            }
        }
    }
    errors
}

/// The entries of `namesrvAddr`.
pub fn name_servers(text: &str) -> impl Iterator<Item = &str> {
    text.split([';', ',']).map(str::trim).filter(|server| !server.is_empty())
}

fn delete_when(text: &str) -> Result<Vec<u8>, String> {
    let hours = text.split(';').map(str::trim).filter(|hour| !hour.is_empty());
    let hours: Vec<u8> = hours
        .map(|hour| hour.parse().ok().filter(|hour| *hour < 24).ok_or(hour))
        .collect::<Result<_, _>>()
        .map_err(|hour| {
            format!("`deleteWhen` has `{hour}`, but must have hours 00 to 23 joined by semicolons")
        })?;
    if hours.is_empty() {
        return Err("`deleteWhen` has no hour".to_owned());
    }
    Ok(hours)
}

impl BrokerConfig {
    /// The port for requests that shall not wait behind pulls.
    pub fn fast_port(&self) -> u16 {
        self.fast_listen_port.unwrap_or(self.listen_port.saturating_sub(2))
    }

    /// The port for slaves.
    pub fn ha_port(&self) -> u16 {
        self.ha_listen_port.unwrap_or(self.listen_port.saturating_add(1))
    }

    /// The delays of the levels.
    pub fn delay_levels(&self) -> DelayLevels {
        DelayLevels::parse(&self.message_delay_level).unwrap_or_default()
    }

    /// Whether a key must not be changed over the network.
    pub fn is_blacklisted(&self, key: &str) -> bool {
        key == "configBlackList" || self.config_black_list.split(';').any(|name| name.trim() == key)
    }

    /// The settings of the store.
    pub fn store_config(&self) -> StoreConfig {
        let root = &self.store_path_root_dir;
        let seconds_per_hour = 3_600;
        StoreConfig {
            store_path_commit_log: self
                .store_path_commit_log
                .clone()
                .unwrap_or_else(|| root.join("commitlog")),
            mapped_file_size_commit_log: self.mapped_file_size_commit_log,
            mapped_file_size_consume_queue: self.mapped_file_size_consume_queue,
            flush_disk_type: match self.flush_disk_type {
                FlushDiskType::Async => StoreFlush::AsyncFlush,
                FlushDiskType::Sync => StoreFlush::SyncFlush,
            },
            flush_interval_commit_log: self.flush_interval_commit_log,
            flush_consume_queue_thorough_interval: self.flush_consume_queue,
            // The broker compares bodies with maxMessageSize, which may change while it runs.
            max_message_size: usize::try_from(MESSAGE_SIZE_MAX).unwrap_or(usize::MAX),
            message_delay_level: self.delay_levels(),
            cut_damaged_log: self.recovery_cut_damaged_log,
            is_slave: self.enable_controller_mode || self.broker_role == BrokerRole::Slave,
            is_confirm_held: self.enable_controller_mode,
            message_index_enable: self.message_index_enable,
            max_hash_slot_num: self.max_hash_slot_num,
            max_index_num: self.max_index_num,
            file_reserved_time: Duration::from_secs(self.file_reserved_time * seconds_per_hour),
            delete_when: delete_when(&self.delete_when).unwrap_or_else(|_| vec![4]),
            utc_offset_seconds: jiff::Zoned::now().offset().seconds(),
            disk_max_used_space_ratio: self.disk_max_used_space_ratio,
            disk_space_clean_forcibly_ratio: self.disk_space_clean_forcibly_ratio,
            disk_space_warning_level_ratio: self.disk_space_warning_level_ratio,
            clean_file_forcibly_enable: self.clean_file_forcibly_enable,
            clean_resource_interval: self.clean_resource_interval,
            delete_commit_log_files_interval: self.delete_commit_log_files,
            delete_file_batch_max: self.delete_file_batch_max,
            max_filter_message_size: self.max_filter_message_size,
            max_transfer_bytes_on_message_in_memory: self.max_bytes_in_memory,
            max_transfer_count_on_message_in_memory: self.max_count_in_memory,
            max_transfer_bytes_on_message_in_disk: self.max_bytes_in_disk,
            max_transfer_count_on_message_in_disk: self.max_count_in_disk,
            access_message_in_memory_max_ratio: self.access_message_in_memory_max_ratio,
            ..StoreConfig::new(root)
        }
    }
}

#[cfg(test)]
mod tests {
    use daemon::config::{Config as _, Loader};

    use super::*;

    fn errors(values: &[(&str, &str)]) -> Vec<String> {
        let mut config = BrokerConfig::default();
        for (key, value) in values {
            assert!(BrokerConfig::key(key).unwrap().assign(&mut config, value), "{key}={value}");
        }
        check(&config)
    }

    #[test]
    fn contradictions_are_named() {
        assert_eq!(errors(&[]), Vec::<String>::new());
        let table: [(&[(&str, &str)], &str); 8] = [
            (&[("brokerRole", "SLAVE")], "`brokerId` is 0"),
            (&[("brokerId", "1")], "has brokerId 0"),
            (&[("bindAddress", "here")], "bindAddress"),
            (&[("fastListenPort", "10911")], "`listenPort` and `fastListenPort` are both 10911"),
            (&[("deleteWhen", "04;25")], "deleteWhen"),
            (&[("messageDelayLevel", "1s 2x")], "messageDelayLevel"),
            (&[("namesrvAddr", "a:1;b")], "`namesrvAddr` has `b`"),
            (&[("listenPort", "2")], "3 or more"),
        ];
        for (values, part) in table {
            let errors = errors(values);
            assert!(errors.len() == 1 && errors[0].contains(part), "{values:?}: {errors:?}");
        }
    }

    #[test]
    fn a_configuration_file_of_apache_is_read_as_it_is() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "brokerClusterName = DefaultCluster\nbrokerName = broker-a\nbrokerId = 0\n\
                    deleteWhen = 04\nfileReservedTime = 48\nbrokerRole = ASYNC_MASTER\n\
                    flushDiskType = ASYNC_FLUSH\nsendMessageThreadPoolNums=16\nfoo=1\n";
        std::fs::write(file.path(), text).unwrap();
        let loader = Loader::<BrokerConfig>::new().no_effect(NO_EFFECT).check(check);
        let loaded = loader.file(file.path()).load().unwrap();
        assert_eq!(loaded.config.broker_name, "broker-a");
        assert_eq!(loaded.config.store_config().file_reserved_time.as_secs(), 48 * 3_600);
        let notices: Vec<_> = loaded.notices.iter().map(ToString::to_string).collect();
        assert_eq!(notices.len(), 2, "{notices:?}");
        assert!(notices[0].contains("`sendMessageThreadPoolNums` has no effect"), "{notices:?}");
        assert!(notices[1].contains("unknown key `foo`"), "{notices:?}");
    }

    #[test]
    fn keys_without_effect_are_no_keys() {
        for no_effect in NO_EFFECT {
            assert!(BrokerConfig::key(no_effect.key).is_none(), "{}", no_effect.key);
        }
    }
}
