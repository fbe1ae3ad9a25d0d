//! A look at a store without a broker: what is in it, what is damaged, and what a start would do
//! about it. Nothing is changed and no lock is taken.
//!
//! What a start would do is found by running the recovery itself on a disk that only pretends, so
//! the two cannot disagree.

mod config_files;
mod layout;
mod log;
mod reader;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use crate::checkpoint::{self, Checkpoint};
use crate::clock::SystemClock;
use crate::config::StoreConfig;
use crate::delay_level::DelayLevels;
use crate::disk;
use crate::dry_run::DryRunDisk;
use crate::error::StoreError;
use crate::message_store::Threads;
use crate::open;
use crate::pipeline::Pipeline;
use crate::recovery::RecoveryReport;

pub use crate::checkpoint::CheckpointValues;
pub use crate::dry_run::Fate;
pub use config_files::{ConfigFileState, ConfigFinding};
pub use log::{Damage, LogFinding, QueueFinding};
pub use reader::{Found, Reader};

/// Where a store is.
#[derive(Debug, Clone)]
pub struct Place {
    /// `storePathRootDir`.
    pub root: PathBuf,
    /// `storePathCommitLog`, when it is not `commitlog` below the root.
    pub commit_log: Option<PathBuf>,
    /// `messageDelayLevel` of the brokers that wrote it.
    pub message_delay_level: DelayLevels,
    /// `maxHashSlotNum` of these brokers.
    pub max_hash_slot_num: u32,
    /// `maxIndexNum` of these brokers.
    pub max_index_num: u32,
}

/// Why a store could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// There is none.
    #[error(
        "{} is no store: it has neither a directory commitlog nor a file checkpoint",
        path.display()
    )]
    NoStore {
        /// The directory.
        path: PathBuf,
    },
    /// A broker is using it.
    #[error(
        "a broker has the store {} open: stop it first, or look at a copy of the directory",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The disk refuses, or the store cannot be read at all.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What it comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// A start changes nothing.
    Sound,
    /// A start repairs it; the findings say how, and whether records are cut off.
    Repairable,
    /// A start is refused, or leaves damage as it is.
    Damaged,
}

/// What a start would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Start {
    /// It succeeds.
    #[serde(rename_all = "camelCase")]
    Succeeds {
        /// First record that it checks.
        checked_from: i64,
        /// Records that it checks.
        checked_records: u64,
        /// End of the log afterwards.
        log_end: i64,
        /// Bytes behind the end that are made zeros.
        cut_bytes: i64,
        /// Whole records among them; they are copied to `truncated/` first.
        cut_records: u64,
        /// Why the log ends there, if something is cut.
        cut_reason: Option<String>,
        /// Queues that are built anew, as `topic/queue`.
        rebuilt_queues: Vec<String>,
    },
    /// It is refused.
    Refused(String),
}

/// Everything that was found.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    /// `storePathRootDir`.
    pub root: PathBuf,
    /// What it comes to.
    pub verdict: Verdict,
    /// The last broker stopped in good order: there is no file `abort`.
    pub was_clean: bool,
    /// The file `checkpoint`.
    pub checkpoint: CheckpointValues,
    /// The commit log, unless its files do not fit together.
    pub log: Option<LogFinding>,
    /// Topics with a directory of consume queues.
    pub topics: usize,
    /// Consume queues.
    pub queues: usize,
    /// Queues that do not agree with the log.
    pub bad_queues: Vec<QueueFinding>,
    /// Files below `config/`.
    pub config_files: Vec<ConfigFinding>,
    /// What a start would do.
    pub start: Start,
    /// What would become of files, but for `checkpoint`, `abort` and `lock`.
    pub changes: BTreeMap<PathBuf, Fate>,
}

impl Place {
    /// Refuses a directory that is no store.
    fn check(&self) -> Result<(), InspectError> {
        let has = |name: &str| self.root.join(name).exists();
        if !has("commitlog") && !has("checkpoint") && self.commit_log.is_none() {
            return Err(InspectError::NoStore { path: self.root.clone() });
        }
        Ok(())
    }

    /// Refuses a store that a broker uses.
    fn check_unused(&self) -> Result<(), InspectError> {
        let path = self.root.join("lock");
        match disk::is_locked(&path) {
            Ok(false) => Ok(()),
            Ok(true) => Err(InspectError::InUse { path: self.root.clone() }),
            Err(error) => Err(StoreError::io("look at", &path)(error).into()),
        }
    }
}

/// Looks at all of a store: every record of the log, every queue, every file. Says on the log how
/// far it is.
///
/// # Errors
/// There is no store, a broker uses it, or the disk refuses.
pub fn inspect(place: &Place) -> Result<Inspection, InspectError> {
    place.check()?;
    place.check_unused()?;
    let disk = DryRunDisk::default();
    let config = Arc::new(layout::config(place)?);
    let root = &config.store_path_root_dir;
    let was_clean = !checkpoint::is_aborted(&disk, root)?;
    let checkpoint = Checkpoint::open(&DryRunDisk::default(), root)?.values();
    let (start, pipeline) = start(&config, &disk, was_clean)?;
    let before = match log::LogInspection::open(&config) {
        Err(StoreError::SegmentGap { .. } | StoreError::SegmentSize { .. }) => None,
        outcome => Some(outcome?),
    };
    let after = pipeline.as_ref().map(|pipeline| &*pipeline.queues);
    let mut inspection = Inspection {
        root: root.clone(),
        verdict: Verdict::Sound,
        was_clean,
        checkpoint,
        log: None,
        topics: 0,
        queues: 0,
        bad_queues: Vec::new(),
        config_files: config_files::inspect(&disk, &root.join("config"))?,
        start,
        changes: changes(&disk, root),
    };
    if let Some(before) = before {
        (inspection.topics, inspection.queues) = before.counts();
        let (log, bad_queues) = before.run(after)?;
        inspection.log = Some(log);
        inspection.bad_queues = bad_queues;
    }
    inspection.verdict = inspection.find_verdict();
    Ok(inspection)
}

/// Tries a start. Gives the recovered store when it would succeed.
fn start(
    config: &Arc<StoreConfig>,
    disk: &DryRunDisk,
    was_clean: bool,
) -> Result<(Start, Option<Pipeline>), StoreError> {
    let try_start = || {
        open::refuse_other_kinds(disk, config)?;
        let (config, disk) = (Arc::clone(config), Arc::new(disk.clone()));
        open::recover(config, disk, Arc::new(SystemClock), (was_clean, Threads::Stepped))
    };
    match try_start() {
        Ok((pipeline, report)) => {
            let RecoveryReport {
                checked_from,
                checked_records,
                log_end,
                cut_bytes,
                cut_records,
                cut_reason,
                rebuilt_queues,
                ..
            } = report;
            let start = Start::Succeeds {
                checked_from,
                checked_records,
                log_end,
                cut_bytes,
                cut_records,
                cut_reason,
                rebuilt_queues,
            };
            Ok((start, Some(pipeline)))
        }
        Err(error @ StoreError::Io { .. }) => Err(error),
        Err(error) => Ok((Start::Refused(error.to_string()), None)),
    }
}

fn changes(disk: &DryRunDisk, root: &Path) -> BTreeMap<PathBuf, Fate> {
    let mut fates = disk.fates();
    for name in ["checkpoint", "abort", "lock"] {
        fates.remove(&root.join(name));
    }
    fates
}

impl Inspection {
    fn find_verdict(&self) -> Verdict {
        let Start::Succeeds { log_end, .. } = self.start else { return Verdict::Damaged };
        let is_damaged = self.log.as_ref().is_some_and(|log| {
            log.damages.iter().any(|damage| damage.offset < log_end) || log.has_more_damages
        });
        let is_left = self.bad_queues.iter().any(|queue| !queue.is_repaired);
        let has = |state: fn(&ConfigFileState) -> bool| {
            self.config_files.iter().any(|file| state(&file.state))
        };
        if is_damaged || is_left || has(|state| matches!(state, ConfigFileState::Damaged(_))) {
            return Verdict::Damaged;
        }
        if !self.changes.is_empty() || has(|state| matches!(state, ConfigFileState::Backup(_))) {
            return Verdict::Repairable;
        }
        Verdict::Sound
    }
}
