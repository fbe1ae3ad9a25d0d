//! A broker's disk: its log and the small files beside it, as a crash leaves them.

use replication::ReplicaState;

use crate::random::Random;

/// What a log must be able to do. The simulator's compact one has records of one byte.
pub trait Log {
    /// First offset.
    fn begin(&self) -> i64;
    /// End of what is written.
    fn end(&self) -> i64;
    /// End of what survives a loss of power.
    fn flushed(&self) -> i64;
    /// Appends, and returns the new end.
    fn append(&mut self, records: &[u32]) -> i64;
    /// The records from `from` to before `to`.
    fn read(&self, from: i64, to: i64) -> &[u32];
    /// Makes what was written before durable up to `end`.
    fn flush(&mut self, end: i64);
    /// Cuts, durably.
    fn truncate(&mut self, to: i64);
    /// Begins anew, durably.
    fn refill(&mut self, from: i64);
    /// Loses power.
    fn lose_power(&mut self, random: &mut Random);
}

/// A log of numbers, each of which is a message.
#[derive(Debug, Clone, Default)]
pub struct ModelLog {
    begin: i64,
    records: Vec<u32>,
    flushed: i64,
}

impl ModelLog {
    fn index(&self, offset: i64) -> usize {
        let index = usize::try_from(offset - self.begin).unwrap_or(0);
        index.min(self.records.len())
    }
}

impl Log for ModelLog {
    fn begin(&self) -> i64 {
        self.begin
    }

    fn end(&self) -> i64 {
        self.begin + i64::try_from(self.records.len()).unwrap_or(i64::MAX)
    }

    fn flushed(&self) -> i64 {
        self.flushed
    }

    fn append(&mut self, records: &[u32]) -> i64 {
        self.records.extend_from_slice(records);
        self.end()
    }

    fn read(&self, from: i64, to: i64) -> &[u32] {
        &self.records[self.index(from)..self.index(to)]
    }

    fn flush(&mut self, end: i64) {
        self.flushed = self.flushed.max(end.min(self.end()));
    }

    fn truncate(&mut self, to: i64) {
        self.records.truncate(self.index(to));
        self.flushed = self.flushed.min(self.end());
    }

    fn refill(&mut self, from: i64) {
        *self = Self { begin: from, records: Vec::new(), flushed: from };
    }

    fn lose_power(&mut self, random: &mut Random) {
        let unsynced = u64::try_from(self.end() - self.flushed).unwrap_or(0);
        let kept = i64::try_from(random.below(unsynced + 1)).unwrap_or(0);
        self.truncate(self.flushed + kept);
        self.flushed = self.end();
    }
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    /// The commit log.
    pub log: ModelLog,
    /// The files beside it.
    pub state: ReplicaState,
    /// The store was closed in order.
    pub is_clean: bool,
    /// Something that was acknowledged may be missing since the last start.
    pub has_lost_tail: bool,
}

impl Disk {
    /// A new disk.
    #[must_use]
    pub fn format(store_id: String) -> Self {
        let state = ReplicaState { store_id, ..ReplicaState::default() };
        Self { log: ModelLog::default(), state, is_clean: true, has_lost_tail: false }
    }

    /// Writes the small files in two steps, of which a crash may leave the first.
    pub fn persist(&mut self, state: &ReplicaState, is_whole: bool, is_table_first: bool) {
        if is_whole {
            self.state.clone_from(state);
        } else if is_table_first {
            self.state.epochs.clone_from(&state.epochs);
        } else {
            let epochs = self.state.epochs.clone();
            self.state = ReplicaState { epochs, ..state.clone() };
        }
    }
}
