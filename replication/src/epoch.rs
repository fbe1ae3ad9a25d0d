//! Which epoch wrote which part of a log, and where two logs part.
//!
//! The text form is that of Apache's `epochFileCheckpoint`: the number of entries, a CRC-32 of the
//! rest without its sign bit (0: not checked), and a line `epoch-startOffset` per entry.

use crate::Epoch;

/// Entries that a table can hold. Older ones go with the parts of the log that they describe.
pub const ENTRIES_MAX: usize = 65_536;
/// Bytes of the largest text form.
pub const TEXT_BYTES_MAX: usize = ENTRIES_MAX * 40;

const CRC_MASK: u32 = 0x7FFF_FFFF;

/// An epoch and where its bytes begin. They end where the next one's begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpochEntry {
    /// The epoch.
    pub epoch: Epoch,
    /// Offset of its first byte.
    pub start: i64,
}

/// The epochs of a log, rising. Two logs whose tables share an entry have the same bytes up to the
/// smaller end of that epoch: an epoch has one master, and that writes each offset once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct EpochTable {
    entries: Vec<EpochEntry>,
}

/// Why a text is no epoch table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EpochTextError {
    /// More than any table has.
    #[error("{0} bytes are more than an epoch table can have")]
    TooLong(usize),
    /// A line is missing or no number.
    #[error("line {0} is not what it should be")]
    Line(usize),
    /// Another number of entries than the first line says.
    #[error("{found} entries, but the first line says {expected}")]
    Count {
        /// Entries in the text.
        found: usize,
        /// What the first line says.
        expected: usize,
    },
    /// Damaged.
    #[error("the checksum is {found}, but the second line says {expected}")]
    Crc {
        /// Of the entries.
        found: u32,
        /// What the second line says.
        expected: u32,
    },
    /// Epochs or offsets fall.
    #[error("entry {0} is not above the one before")]
    Order(usize),
}

impl EpochTable {
    /// A table of these entries, if epochs rise and offsets do not fall.
    #[must_use]
    pub fn from_entries(entries: Vec<EpochEntry>) -> Option<Self> {
        disorder(&entries).is_none().then_some(Self { entries })
    }

    /// The entries, oldest first.
    #[must_use]
    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    /// The newest entry.
    #[must_use]
    pub fn last(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    /// The newest epoch, 0 if there is none.
    #[must_use]
    pub fn last_epoch(&self) -> Epoch {
        self.last().map_or(0, |entry| entry.epoch)
    }

    /// Begins an epoch. `false`, and nothing changes, if it is not above the last one or begins
    /// before it.
    #[must_use]
    pub fn begin(&mut self, entry: EpochEntry) -> bool {
        let fits =
            self.last().is_none_or(|last| last.epoch < entry.epoch && last.start <= entry.start);
        if fits {
            self.entries.push(entry);
        }
        fits
    }

    /// The entry whose bytes include `offset`.
    #[must_use]
    pub fn at(&self, offset: i64) -> Option<EpochEntry> {
        self.entries[..self.count_until(offset)].last().copied()
    }

    /// Where the bytes of the epoch at `offset` end at most.
    #[must_use]
    pub fn end_at(&self, offset: i64, log_end: i64) -> i64 {
        self.entries.get(self.count_until(offset)).map_or(log_end, |next| next.start.min(log_end))
    }

    fn count_until(&self, offset: i64) -> usize {
        self.entries.partition_point(|entry| entry.start <= offset)
    }

    /// Up to where this log, which ends at `own_end`, is the same as another: the smaller end of
    /// the newest epoch that both have with the same start. `None` if there is none.
    #[must_use]
    pub fn common_end(&self, own_end: i64, other: &Self, other_end: i64) -> Option<i64> {
        let end = |table: &Self, index: usize, log_end: i64| {
            table.entries.get(index + 1).map_or(log_end, |next| next.start.min(log_end))
        };
        self.entries.iter().enumerate().rev().find_map(|(index, entry)| {
            let in_other = other.entries.binary_search(entry).ok()?;
            Some(end(self, index, own_end).min(end(other, in_other, other_end)))
        })
    }

    /// Forgets what a log that was cut to `end` has no more.
    pub fn cut(&mut self, end: i64) {
        let kept = self.entries.partition_point(|entry| entry.start < end);
        self.entries.truncate(kept);
    }

    /// Forgets what begins above the end of the log. An epoch that begins there may be kept: it has
    /// no bytes yet.
    pub fn cut_above(&mut self, end: i64) {
        let kept = self.entries.partition_point(|entry| entry.start <= end);
        self.entries.truncate(kept);
    }

    /// Forgets epochs of which a log that begins at `begin` has nothing.
    pub fn forget_below(&mut self, begin: i64) {
        let gone = self.count_until(begin).saturating_sub(1);
        self.entries.drain(..gone);
    }

    /// The text form.
    #[must_use]
    pub fn encode(&self) -> String {
        let line = |entry: &EpochEntry| format!("{}-{}\n", entry.epoch, entry.start);
        let lines: String = self.entries.iter().map(line).collect();
        let crc = crc32fast::hash(lines.as_bytes()) & CRC_MASK;
        format!("{}\n{crc}\n{lines}", self.entries.len())
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn decode(text: &str) -> Result<Self, EpochTextError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(EpochTextError::TooLong(text.len()));
        }
        let mut lines = text.lines();
        let expected: usize = number(lines.next(), 1)?;
        let crc: u32 = number(lines.next(), 2)?;
        let mut entries = Vec::new();
        for (line, number) in lines.zip(3..) {
            entries.push(entry(line).ok_or(EpochTextError::Line(number))?);
        }
        if entries.len() != expected {
            return Err(EpochTextError::Count { found: entries.len(), expected });
        }
        let table = Self { entries };
        if let Some(index) = disorder(&table.entries) {
            return Err(EpochTextError::Order(index));
        }
        let again = table.encode();
        let found: u32 = number(again.lines().nth(1), 2)?;
        if crc != 0 && found != crc {
            return Err(EpochTextError::Crc { found, expected: crc });
        }
        Ok(table)
    }
}

/// The first entry that is not above the one before it.
fn disorder(entries: &[EpochEntry]) -> Option<usize> {
    let bad = |pair: &[EpochEntry]| match pair {
        [a, b] => a.epoch >= b.epoch || a.start > b.start,
        _ => false,
    };
    let first = entries.first()?;
    if first.epoch < 0 || first.start < 0 {
        return Some(0);
    }
    entries.windows(2).position(bad).map(|index| index + 1)
}

fn number<T: std::str::FromStr>(line: Option<&str>, at: usize) -> Result<T, EpochTextError> {
    line.and_then(|line| line.trim().parse().ok()).ok_or(EpochTextError::Line(at))
}

fn entry(line: &str) -> Option<EpochEntry> {
    let (epoch, start) = line.trim().split_once('-')?;
    Some(EpochEntry { epoch: epoch.parse().ok()?, start: start.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(entries: &[(Epoch, i64)]) -> EpochTable {
        let entries = entries.iter().map(|&(epoch, start)| EpochEntry { epoch, start }).collect();
        EpochTable::from_entries(entries).expect("rising")
    }

    #[test]
    fn where_logs_part() {
        let check = |own: &[(Epoch, i64)], own_end, other: &[(Epoch, i64)], other_end, expected| {
            let found = table(own).common_end(own_end, &table(other), other_end);
            assert_eq!(found, expected, "{own:?} {other:?}");
            let turned = table(other).common_end(other_end, &table(own), own_end);
            assert_eq!(turned, expected, "the other way round");
        };
        check(&[(1, 0)], 100, &[(1, 0)], 80, Some(80));
        check(&[(1, 0)], 100, &[(1, 0), (2, 60)], 90, Some(60));
        check(&[(1, 0), (2, 60)], 100, &[(1, 0), (3, 70)], 90, Some(60));
        check(&[(1, 0), (2, 60)], 100, &[(1, 0), (2, 60), (4, 100)], 150, Some(100));
        check(&[(1, 0)], 100, &[(2, 0)], 90, None);
        check(&[], 0, &[(2, 0)], 90, None);
        // An epoch that was begun and has no bytes.
        check(&[(1, 0), (2, 50)], 50, &[(1, 0), (2, 50)], 70, Some(50));
        check(&[(1, 0), (2, 50)], 50, &[(1, 0), (3, 70)], 70, Some(50));
    }

    #[test]
    fn cuts() {
        let whole = table(&[(1, 0), (2, 50), (5, 80)]);
        let cut = |end| {
            let mut table = whole.clone();
            table.cut(end);
            table.entries().len()
        };
        assert_eq!([cut(0), cut(50), cut(51), cut(80), cut(90)], [0, 1, 2, 2, 3]);
        let mut above = whole.clone();
        above.cut_above(50);
        assert_eq!(above, table(&[(1, 0), (2, 50)]));
        let mut below = whole.clone();
        below.forget_below(60);
        assert_eq!(below, table(&[(2, 50), (5, 80)]));
        assert_eq!(whole.at(60), Some(EpochEntry { epoch: 2, start: 50 }));
        assert_eq!((whole.end_at(60, 200), whole.end_at(90, 200)), (80, 200));
    }

    #[test]
    fn text() {
        let two = table(&[(1, 0), (2, 1234)]);
        let text = two.encode();
        assert!(text.starts_with("2\n") && text.ends_with("\n1-0\n2-1234\n"), "{text}");
        assert_eq!(EpochTable::decode(&text), Ok(two.clone()));
        assert_eq!(EpochTable::decode("2\n0\n1-0\n2-1234\n"), Ok(two));
        assert_eq!(
            EpochTable::decode("2\n1\n1-0\n2-1234\n").map_err(|e| e.to_string().len() > 9),
            Err(true)
        );
        for (text, expected) in [
            ("", EpochTextError::Line(1)),
            ("1\n", EpochTextError::Line(2)),
            ("1\n0\nx\n", EpochTextError::Line(3)),
            ("2\n0\n1-0\n", EpochTextError::Count { found: 1, expected: 2 }),
            ("2\n0\n1-5\n1-6\n", EpochTextError::Order(1)),
            ("2\n0\n1-5\n2-4\n", EpochTextError::Order(1)),
        ] {
            assert_eq!(EpochTable::decode(text), Err(expected), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9\\-\n ]{0,60}") {
            if let Ok(table) = EpochTable::decode(&text) {
                prop_assert_eq!(EpochTable::decode(&table.encode()), Ok(table));
            }
        }
    }
}
