//! Open files of consume queues, at most a given number at once.
//!
//! A broker has up to 100,000 queues; a descriptor for each would exceed every limit.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::File;

/// Which file: the queue's number within this process, and the byte offset at which the file
/// begins.
pub(crate) type FileKey = (u64, i64);

#[derive(Debug)]
struct Slot {
    file: Arc<dyn File>,
    last_used: u64,
}

#[derive(Debug, Default)]
struct State {
    open: HashMap<FileKey, Slot>,
    clock: u64,
}

/// Parts with a lock each, so that threads seldom wait for a file that another one opens.
const PARTS: usize = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct FileCache {
    parts: [Mutex<State>; PARTS],
    /// Open files of each part.
    open_max: usize,
}

impl FileCache {
    /// A cache of at most this many files, but at least one for each part.
    pub(crate) fn new(open_max: usize) -> Self {
        Self {
            parts: std::array::from_fn(|_| Mutex::default()),
            open_max: (open_max / PARTS).max(1),
        }
    }

    fn part(&self, queue: u64) -> &Mutex<State> {
        &self.parts[usize::try_from(queue % PARTS as u64).expect("a small number")]
    }

    /// The open file, or what `open` returns.
    pub(crate) fn get(
        &self,
        key: FileKey,
        open: impl FnOnce() -> io::Result<Arc<dyn File>>,
    ) -> io::Result<Arc<dyn File>> {
        let mut state = self.part(key.0).lock();
        state.clock += 1;
        let now = state.clock;
        if let Some(slot) = state.open.get_mut(&key) {
            slot.last_used = now;
            return Ok(Arc::clone(&slot.file));
        }
        // Opened under the lock: two handles of one file would both be kept by their users.
        let file = open()?;
        if state.open.len() >= self.open_max {
            state.close_oldest(self.open_max / 8 + 1);
        }
        state.open.insert(key, Slot { file: Arc::clone(&file), last_used: now });
        Ok(file)
    }

    /// Closes one file.
    pub(crate) fn remove(&self, key: FileKey) {
        self.part(key.0).lock().open.remove(&key);
    }

    /// Closes all files of a queue.
    pub(crate) fn remove_queue(&self, queue: u64) {
        self.part(queue).lock().open.retain(|(owner, _), _| *owner != queue);
    }
}

impl State {
    /// Several at a time, so that the search for the oldest is rare.
    fn close_oldest(&mut self, count: usize) {
        let mut ages: Vec<u64> = self.open.values().map(|slot| slot.last_used).collect();
        ages.sort_unstable();
        let limit = ages.get(count).copied().unwrap_or(u64::MAX);
        self.open.retain(|_, slot| slot.last_used >= limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk as _, RealDisk};

    #[test]
    fn the_oldest_files_are_closed() {
        let dir = tempfile::tempdir().unwrap();
        let cache = FileCache::new(16 * PARTS);
        let mut opened = 0;
        // All in one part.
        let number = |queue: u64| queue * PARTS as u64;
        let mut get = |queue: u64| {
            cache
                .get((number(queue), 0), || {
                    opened += 1;
                    RealDisk.create(&dir.path().join(queue.to_string()), 1)
                })
                .unwrap();
            opened
        };
        for queue in 0..16 {
            get(queue);
        }
        get(0);
        assert_eq!(get(16), 17);
        // Queue 0 was used since, 1 was not.
        assert_eq!(get(0), 17);
        assert_eq!(get(1), 18);
        cache.remove_queue(0);
        assert_eq!(get(0), 19);
        cache.remove((0, 0));
        assert_eq!(get(0), 20);
        assert!(cache.part(0).lock().open.len() <= 16);
        assert!(cache.part(1).lock().open.is_empty());
    }
}
