//! Configuration of the store. Fields are named after the keys of broker.conf and have Apache's
//! defaults.

use std::path::PathBuf;
use std::time::Duration;

use crate::consume_queue::UNIT_BYTES;
use crate::delay_level::DelayLevels;
use crate::error::StoreError;
use crate::index_file::Layout;

/// Apache's broker maps an index file as a whole, which Java can do up to this size.
const INDEX_FILE_BYTES_MAX: u64 = i32::MAX as u64;

/// When a message counts as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushDiskType {
    /// When it is written; a crash of the machine may lose the last moments.
    AsyncFlush,
    /// When it is on the disk.
    SyncFlush,
}

/// All settings of a store.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// `storePathRootDir`: the directory that holds everything.
    pub store_path_root_dir: PathBuf,
    /// `storePathCommitLog`, one directory.
    pub store_path_commit_log: PathBuf,
    /// `mappedFileSizeCommitLog`, bytes of a commit log file.
    pub mapped_file_size_commit_log: u64,
    /// `mappedFileSizeConsumeQueue`, bytes of a consume queue file.
    pub mapped_file_size_consume_queue: u64,
    /// `flushDiskType`.
    pub flush_disk_type: FlushDiskType,
    /// `flushIntervalCommitLog`: under ASYNC_FLUSH what is written is flushed this long after.
    pub flush_interval_commit_log: Duration,
    /// `flushConsumeQueueThoroughInterval`: consume queues are flushed this long after a change.
    pub flush_consume_queue_thorough_interval: Duration,
    /// `maxMessageSize`, bytes of a body.
    pub max_message_size: usize,
    /// `messageDelayLevel`.
    pub message_delay_level: DelayLevels,
    /// `fileReservedTime`: how long a commit log file is kept after its last change.
    pub file_reserved_time: Duration,
    /// `deleteWhen`: hours of the day, in local time, at which expired files go.
    pub delete_when: Vec<u8>,
    /// Local time minus UTC in seconds, for `deleteWhen`.
    pub utc_offset_seconds: i32,
    /// `diskMaxUsedSpaceRatio`: above this per cent expired files are deleted at any hour.
    pub disk_max_used_space_ratio: u8,
    /// `diskSpaceCleanForciblyRatio`: above this per cent the oldest files go even before their
    /// time.
    pub disk_space_clean_forcibly_ratio: u8,
    /// `diskSpaceWarningLevelRatio`: above this per cent nothing is accepted.
    pub disk_space_warning_level_ratio: u8,
    /// `cleanFileForciblyEnable`.
    pub clean_file_forcibly_enable: bool,
    /// `cleanResourceInterval`: time between two looks at the disk and at expired files.
    pub clean_resource_interval: Duration,
    /// `deleteCommitLogFilesInterval`: pause after a commit log file was deleted.
    pub delete_commit_log_files_interval: Duration,
    /// `deleteFileBatchMax`: commit log files deleted each time.
    pub delete_file_batch_max: usize,
    /// `maxFilterMessageSize`, divided by the size of a unit: units looked at by one read.
    pub max_filter_message_size: usize,
    /// `maxTransferBytesOnMessageInMemory`: bytes that one read returns from the newest messages.
    pub max_transfer_bytes_on_message_in_memory: usize,
    /// `maxTransferCountOnMessageInMemory`: messages that one read returns from the newest.
    pub max_transfer_count_on_message_in_memory: usize,
    /// `maxTransferBytesOnMessageInDisk`: bytes that one read returns from older messages.
    pub max_transfer_bytes_on_message_in_disk: usize,
    /// `maxTransferCountOnMessageInDisk`: messages that one read returns from older ones.
    pub max_transfer_count_on_message_in_disk: usize,
    /// `accessMessageInMemoryMaxRatio`: per cent of memory that counts as cache of the newest
    /// messages.
    pub access_message_in_memory_max_ratio: u8,
    /// Memory of this machine or container in bytes.
    pub memory_bytes: u64,
    /// Bytes accepted but not yet readable, above which senders are told to wait.
    pub put_pending_bytes_max: usize,
    /// Messages accepted but not yet readable, above which senders are told to wait.
    pub put_pending_messages_max: usize,
    /// `recoveryCutDamagedLog`: start even when the log is damaged below what was certainly stored;
    /// what lies behind the damage is moved to the directory `truncated`.
    pub cut_damaged_log: bool,
    /// Begin as a slave, which takes messages only from its master.
    pub is_slave: bool,
    /// Begin with the confirm offset at the end of what was readable before, and not beyond the
    /// end of the log.
    pub is_confirm_held: bool,
    /// Consume queue files that may be open at once.
    pub open_files_max: usize,
    /// `messageIndexEnable`: messages are indexed by their keys.
    pub message_index_enable: bool,
    /// `maxHashSlotNum`: slots of an index file.
    pub max_hash_slot_num: u32,
    /// `maxIndexNum`: entries of an index file.
    pub max_index_num: u32,
}

impl StoreConfig {
    /// Apache's defaults below this root directory.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        Self {
            store_path_commit_log: root.join("commitlog"),
            store_path_root_dir: root,
            mapped_file_size_commit_log: 1 << 30,
            mapped_file_size_consume_queue: 300_000 * 20,
            flush_disk_type: FlushDiskType::AsyncFlush,
            flush_interval_commit_log: Duration::from_millis(500),
            flush_consume_queue_thorough_interval: Duration::from_secs(60),
            max_message_size: 4 << 20,
            message_delay_level: DelayLevels::default(),
            file_reserved_time: Duration::from_secs(72 * 3600),
            delete_when: vec![4],
            utc_offset_seconds: 0,
            disk_max_used_space_ratio: 75,
            disk_space_clean_forcibly_ratio: 85,
            disk_space_warning_level_ratio: 90,
            clean_file_forcibly_enable: true,
            clean_resource_interval: Duration::from_secs(10),
            delete_commit_log_files_interval: Duration::from_millis(100),
            delete_file_batch_max: 10,
            max_filter_message_size: 16_000,
            max_transfer_bytes_on_message_in_memory: 256 << 10,
            max_transfer_count_on_message_in_memory: 32,
            max_transfer_bytes_on_message_in_disk: 64 << 10,
            max_transfer_count_on_message_in_disk: 8,
            access_message_in_memory_max_ratio: 40,
            memory_bytes: memory_of_this_machine(),
            put_pending_bytes_max: 64 << 20,
            put_pending_messages_max: 100_000,
            cut_damaged_log: false,
            is_slave: false,
            is_confirm_held: false,
            open_files_max: 1024,
            message_index_enable: true,
            max_hash_slot_num: 5_000_000,
            max_index_num: 20_000_000,
        }
    }

    /// Checks every value.
    ///
    /// # Errors
    /// The first value that is out of range, with its key.
    pub fn validate(&self) -> Result<(), StoreError> {
        let error = |key, value: String, reason| Err(StoreError::Config { key, value, reason });
        let log = self.mapped_file_size_commit_log;
        if !(4096..=1 << 31).contains(&log) {
            let reason = "a commit log file has 4096 bytes to 2 GiB";
            return error("mappedFileSizeCommitLog", log.to_string(), reason);
        }
        let queue = self.mapped_file_size_consume_queue;
        let unit = UNIT_BYTES as u64;
        if queue < unit || queue > 1 << 31 || !queue.is_multiple_of(unit) {
            let reason = "a consume queue file has a multiple of 20 bytes, at most 2 GiB";
            return error("mappedFileSizeConsumeQueue", queue.to_string(), reason);
        }
        let body = self.max_message_size;
        if body == 0 || body > 512 << 20 {
            return error("maxMessageSize", body.to_string(), "between 1 byte and 512 MiB");
        }
        let path = self.store_path_commit_log.to_string_lossy();
        if path.contains(',') {
            let reason = "several directories for the commit log are not supported";
            return error("storePathCommitLog", path.into_owned(), reason);
        }
        if let Some(hour) = self.delete_when.iter().find(|hour| **hour > 23) {
            return error("deleteWhen", hour.to_string(), "hours are 0 to 23");
        }
        for (key, ratio) in [
            ("diskMaxUsedSpaceRatio", self.disk_max_used_space_ratio),
            ("diskSpaceCleanForciblyRatio", self.disk_space_clean_forcibly_ratio),
            ("diskSpaceWarningLevelRatio", self.disk_space_warning_level_ratio),
            ("accessMessageInMemoryMaxRatio", self.access_message_in_memory_max_ratio),
        ] {
            if !(1..=100).contains(&ratio) {
                return error(key, ratio.to_string(), "per cent, 1 to 100");
            }
        }
        if self.open_files_max < 16 {
            let reason = "at least 16 files must be allowed to be open";
            return error("openFilesMax", self.open_files_max.to_string(), reason);
        }
        self.validate_index()
    }

    fn validate_index(&self) -> Result<(), StoreError> {
        let (slots, entries) = (self.max_hash_slot_num, self.max_index_num);
        let error = |key, value: u32, reason| {
            Err(StoreError::Config { key, value: value.to_string(), reason })
        };
        if slots == 0 {
            return error("maxHashSlotNum", slots, "an index file has at least one slot");
        }
        if entries < 2 {
            return error(
                "maxIndexNum",
                entries,
                "an index file has room for at least two entries",
            );
        }
        if (Layout { slots, entries }).file_bytes() > INDEX_FILE_BYTES_MAX {
            let reason = "4 bytes for each of maxHashSlotNum and 20 for each of maxIndexNum are \
                          more than 2 GiB";
            return error("maxIndexNum", entries, reason);
        }
        Ok(())
    }

    pub(crate) fn index_dir(&self) -> PathBuf {
        self.store_path_root_dir.join("index")
    }

    pub(crate) fn consume_queue_dir(&self) -> PathBuf {
        self.store_path_root_dir.join("consumequeue")
    }
}

/// The memory limit of this container, or what the machine has, or 1 GiB when neither is known.
fn memory_of_this_machine() -> u64 {
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let limit = number("/sys/fs/cgroup/memory.max")
        .or_else(|| number("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        let kib = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
        Some(kib * 1024)
    });
    let smaller = [limit, machine].into_iter().flatten().min();
    smaller.unwrap_or(1 << 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_bad_values_are_named() {
        let config = StoreConfig::new("/nowhere");
        config.validate().unwrap();
        type Change = fn(&mut StoreConfig);
        let broken: [(&str, Change); 9] = [
            ("mappedFileSizeCommitLog", |config| config.mapped_file_size_commit_log = 100),
            ("mappedFileSizeConsumeQueue", |config| config.mapped_file_size_consume_queue = 30),
            ("maxMessageSize", |config| config.max_message_size = 0),
            ("deleteWhen", |config| config.delete_when = vec![24]),
            ("diskMaxUsedSpaceRatio", |config| config.disk_max_used_space_ratio = 101),
            ("openFilesMax", |config| config.open_files_max = 1),
            ("maxHashSlotNum", |config| config.max_hash_slot_num = 0),
            ("maxIndexNum", |config| config.max_index_num = 1),
            ("maxIndexNum", |config| config.max_index_num = 200_000_000),
        ];
        for (name, change) in broken {
            let mut config = config.clone();
            change(&mut config);
            let error = config.validate().unwrap_err();
            assert!(matches!(error, StoreError::Config { key, .. } if key == name), "{error}");
        }
    }
}
