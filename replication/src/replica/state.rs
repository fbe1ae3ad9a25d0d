//! What a replica keeps on its disk beside the log.

use crate::{Epoch, EpochTable};

/// Bytes of the largest text form.
const TEXT_BYTES_MAX: usize = 4096;

/// Kept in two files: the epoch table in Apache's `epochFileCheckpoint`, the rest beside it. In
/// whatever order they are written, a crash between them is harmless.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplicaState {
    /// UUID of the store, made when it was formatted.
    pub store_id: String,
    /// How often the store was opened. It is raised and made durable before a broker registers.
    pub open_count: u64,
    /// Numbers of the runs that the record may know: the last one that it surely knew, and the last
    /// one that was about to register. If it knows a later one, this disk was put back to an
    /// earlier state.
    pub known_runs: [u64; 2],
    /// Something that was acknowledged may be missing. It outlives runs that end before they
    /// register, and ends when the record, which knew of it, says so.
    pub is_in_doubt: bool,
    /// The replica obeys no lower epoch.
    pub promised: Epoch,
    /// The epochs of the log.
    pub epochs: EpochTable,
}

/// Why a text is no state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// More than any state has.
    #[error("{0} bytes are more than a replica's state can have")]
    TooLong(usize),
    /// A field is missing or no number.
    #[error("`{0}` is missing or wrong")]
    Field(&'static str),
    /// Damaged.
    #[error("the checksum is wrong")]
    Crc,
}

impl ReplicaState {
    /// The text form of everything but the epoch table.
    #[must_use]
    pub fn encode(&self) -> String {
        let Self { store_id, open_count, known_runs, is_in_doubt, promised, epochs: _ } = self;
        let [known, registering] = known_runs;
        let fields = format!(
            "storeId={store_id}\nopenCount={open_count}\nknownRun={known}\n\
             registeringRun={registering}\ninDoubt={is_in_doubt}\npromised={promised}\n"
        );
        format!("{fields}crc={}\n", crc32fast::hash(fields.as_bytes()))
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn decode(text: &str, epochs: EpochTable) -> Result<Self, StateError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(StateError::TooLong(text.len()));
        }
        let field = |name: &'static str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            value.ok_or(StateError::Field(name))
        };
        let number = |name| field(name)?.parse().map_err(|_| StateError::Field(name));
        let state = Self {
            store_id: field("storeId")?.to_owned(),
            open_count: number("openCount")?,
            known_runs: [number("knownRun")?, number("registeringRun")?],
            is_in_doubt: field("inDoubt")? == "true",
            promised: field("promised")?.parse().map_err(|_| StateError::Field("promised"))?,
            epochs,
        };
        if state.encode().trim_end() != text.trim_end() {
            return Err(StateError::Crc);
        }
        Ok(state)
    }

    /// The state for the next run, of a log that ends at `end`; to be made durable before anything
    /// else. What the table says of bytes that are not there is forgotten, and a promise that did
    /// not reach the disk before the table did is found again.
    ///
    /// `is_whole`: the log has all that was ever acknowledged, as far as this machine can know. The
    /// store was closed cleanly, or neither machine nor pod have changed since it was last written,
    /// or every acknowledgement waited for the disk and the volume is the same.
    #[must_use]
    pub fn opened(mut self, end: i64, is_whole: bool) -> Self {
        self.open_count += 1;
        self.is_in_doubt |= !is_whole;
        self.promised = self.promised.max(self.epochs.last_epoch());
        self.epochs.cut_above(end);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EpochEntry;

    #[test]
    fn text_form() {
        let state = ReplicaState {
            store_id: "5d2c".to_owned(),
            open_count: 7,
            known_runs: [5, 6],
            is_in_doubt: true,
            promised: 3,
            epochs: EpochTable::default(),
        };
        let text = state.encode();
        assert_eq!(ReplicaState::decode(&text, EpochTable::default()), Ok(state));
        let damaged = text.replace("promised=3", "promised=4");
        let found = ReplicaState::decode(&damaged, EpochTable::default());
        assert_eq!(found, Err(StateError::Crc));
        let found = ReplicaState::decode("storeId=a\n", EpochTable::default());
        assert_eq!(found, Err(StateError::Field("openCount")));
    }

    #[test]
    fn a_new_run_counts_and_forgets_what_is_not_there() {
        let entries = vec![EpochEntry { epoch: 1, start: 0 }, EpochEntry { epoch: 4, start: 90 }];
        let epochs = EpochTable::from_entries(entries).unwrap();
        let state = ReplicaState { promised: 2, epochs, ..ReplicaState::default() };
        let opened = state.opened(80, true);
        assert_eq!((opened.open_count, opened.promised), (1, 4));
        assert_eq!(opened.epochs.last_epoch(), 1);
    }
}
