//! The sizes of a store's files, which nothing but the files themselves says.

use std::collections::HashMap;
use std::path::Path;

use super::Place;
use crate::commit_log::parse_segment_name;
use crate::config::StoreConfig;
use crate::consume_queue::UNIT_BYTES;
use crate::disk::{Disk as _, RealDisk};
use crate::error::StoreError;

/// Directories of queues that are looked at for the size of their files.
const QUEUES_ASKED_MAX: usize = 1_000;
/// A commit log file is not smaller.
const SEGMENT_BYTES_MIN: u64 = 4096;

/// The configuration that the store was written with, as far as it matters to a reader.
pub(super) fn config(place: &Place) -> Result<StoreConfig, StoreError> {
    let mut config = StoreConfig::new(&place.root);
    config.message_delay_level = place.message_delay_level.clone();
    (config.max_hash_slot_num, config.max_index_num) =
        (place.max_hash_slot_num, place.max_index_num);
    if let Some(dir) = &place.commit_log {
        config.store_path_commit_log.clone_from(dir);
    }
    let segments = files(&config.store_path_commit_log)?;
    match &segments[..] {
        [(first, _), (second, _), ..] => {
            config.mapped_file_size_commit_log = second.abs_diff(*first);
        }
        [(_, size)] if *size >= SEGMENT_BYTES_MIN => config.mapped_file_size_commit_log = *size,
        _ => {}
    }
    if let Some(size) = queue_file_bytes(&config.consume_queue_dir())? {
        config.mapped_file_size_consume_queue = size;
    }
    config.validate()?;
    Ok(config)
}

/// The commonest size of a consume queue file: single ones may be damaged.
fn queue_file_bytes(root: &Path) -> Result<Option<u64>, StoreError> {
    let mut sizes: HashMap<u64, usize> = HashMap::new();
    let list = |dir: &Path| RealDisk.list(dir).map_err(StoreError::io("list", dir));
    let mut asked = 0;
    for topic in list(root)?.into_iter().filter(|entry| entry.is_dir) {
        let topic = root.join(topic.name);
        for queue in list(&topic)?.into_iter().filter(|entry| entry.is_dir) {
            for (_, size) in files(&topic.join(queue.name))? {
                if size > 0 && size.is_multiple_of(UNIT_BYTES as u64) {
                    *sizes.entry(size).or_default() += 1;
                }
            }
            asked += 1;
        }
        if asked >= QUEUES_ASKED_MAX {
            break;
        }
    }
    Ok(sizes.into_iter().max_by_key(|(size, count)| (*count, *size)).map(|(size, _)| size))
}

/// Files that are named by an offset: offset and size.
fn files(dir: &Path) -> Result<Vec<(i64, u64)>, StoreError> {
    let list = RealDisk.list(dir).map_err(StoreError::io("list", dir))?;
    let file = |entry: crate::disk::DirEntry| {
        let start = parse_segment_name(&entry.name).filter(|_| !entry.is_dir)?;
        Some((start, entry.size))
    };
    Ok(list.into_iter().filter_map(file).collect())
}
