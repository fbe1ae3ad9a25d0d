//! One index file, in Apache's format: finds the commit log offsets of messages by a hash of a key.
//!
//! | part | content |
//! |---|---|
//! | header | begin and end time, begin and end offset (i64), slots in use, count (i32) |
//! | slots | i32: number of the newest entry whose hash falls into the slot, 0: none |
//! | entries | hash i32, offset i64, seconds since the begin time i32, previous i32 |
//!
//! `previous` is the number of the entry before it in the same slot. A header has 40 bytes, a slot
//! 4, an entry 20.
//! All integers are big-endian. Entry 0 is never used, so the count of an empty file is 1. Times
//! are store times in epoch milliseconds; begin and end are those of the first and last entry.

use std::io;
use std::path::PathBuf;

use bytes::{Buf as _, BufMut as _};

use crate::disk::File;

/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 40;
/// Bytes of a slot.
pub(crate) const SLOT_BYTES: usize = 4;
/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = 20;
/// Digits of a name: year, month, day, hour, minute, second, millisecond.
const NAME_DIGITS: usize = 17;

/// How many slots and entries each file of a store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// `maxHashSlotNum`.
    pub(crate) slots: u32,
    /// `maxIndexNum`: places for entries, with the one that is never used.
    pub(crate) entries: u32,
}

impl Layout {
    pub(crate) fn file_bytes(self) -> u64 {
        self.entry_at(self.entries)
    }

    pub(crate) fn slot(self, hash: u32) -> usize {
        (hash % self.slots) as usize
    }

    pub(crate) fn slot_at(slot: usize) -> u64 {
        (HEADER_BYTES + slot * SLOT_BYTES) as u64
    }

    pub(crate) fn entry_at(self, number: u32) -> u64 {
        Self::slot_at(self.slots as usize) + u64::from(number) * ENTRY_BYTES as u64
    }
}

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) begin_timestamp: i64,
    pub(crate) end_timestamp: i64,
    pub(crate) begin_offset: i64,
    pub(crate) end_offset: i64,
    pub(crate) used_slots: u32,
    /// Number that the next entry gets.
    pub(crate) count: u32,
}

impl Header {
    /// That of a file without entries.
    pub(crate) const EMPTY: Self = Self {
        begin_timestamp: 0,
        end_timestamp: 0,
        begin_offset: 0,
        end_offset: 0,
        used_slots: 0,
        count: 1,
    };

    /// `None` for a header that no file with entries has.
    pub(crate) fn decode(mut bytes: &[u8], layout: Layout) -> Option<Self> {
        let header = Self {
            begin_timestamp: bytes.try_get_i64().ok()?,
            end_timestamp: bytes.try_get_i64().ok()?,
            begin_offset: bytes.try_get_i64().ok()?,
            end_offset: bytes.try_get_i64().ok()?,
            used_slots: bytes.try_get_u32().ok()?,
            count: bytes.try_get_u32().ok()?,
        };
        let is_possible = (2..=layout.entries).contains(&header.count)
            && (1..header.count).contains(&header.used_slots)
            && (0..=header.end_offset).contains(&header.begin_offset);
        is_possible.then_some(header)
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut fields = &mut bytes[..];
        fields.put_i64(self.begin_timestamp);
        fields.put_i64(self.end_timestamp);
        fields.put_i64(self.begin_offset);
        fields.put_i64(self.end_offset);
        fields.put_u32(self.used_slots);
        fields.put_u32(self.count);
        bytes
    }
}

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) hash: u32,
    pub(crate) offset: i64,
    pub(crate) seconds: i32,
    pub(crate) previous: u32,
}

impl Entry {
    pub(crate) fn decode(bytes: &[u8; ENTRY_BYTES]) -> Self {
        let mut bytes = &bytes[..];
        Self {
            hash: bytes.get_u32(),
            offset: bytes.get_i64(),
            seconds: bytes.get_i32(),
            previous: bytes.get_u32(),
        }
    }

    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        into.put_u32(self.hash);
        into.put_i64(self.offset);
        into.put_i32(self.seconds);
        into.put_u32(self.previous);
    }

    pub(crate) fn read(file: &dyn File, layout: Layout, number: u32) -> io::Result<Self> {
        let mut bytes = [0; ENTRY_BYTES];
        file.read_exact_at(&mut bytes, layout.entry_at(number))?;
        Ok(Self::decode(&bytes))
    }

    /// Whether a message stored from `begin` to `end` may be meant. The seconds are rounded down
    /// and bounded at both ends.
    pub(crate) fn may_be_between(&self, begin_timestamp: i64, begin: i64, end: i64) -> bool {
        let from = begin_timestamp.saturating_add(i64::from(self.seconds.max(0)) * 1000);
        (self.seconds <= 0 || from <= end)
            && (self.seconds == i32::MAX || from.saturating_add(999) >= begin)
    }
}

/// Seconds from the begin time of a file to a store time, as an entry holds them.
pub(crate) fn seconds_since(begin_timestamp: i64, timestamp: i64) -> i32 {
    let seconds = timestamp.saturating_sub(begin_timestamp) / 1000;
    i32::try_from(seconds.max(0)).unwrap_or(i32::MAX)
}

/// A file to which nothing is added any more. It is opened anew by each query: files of a large
/// store would take too many descriptors.
#[derive(Debug)]
pub(crate) struct IndexFile {
    /// Number that its name is.
    pub(crate) name: u64,
    pub(crate) path: PathBuf,
    pub(crate) header: Header,
}

/// The number that a file's name is, or `None` for another file.
pub(crate) fn parse_name(name: &str) -> Option<u64> {
    let is_number = name.len() == NAME_DIGITS && name.bytes().all(|digit| digit.is_ascii_digit());
    if is_number { name.parse().ok() } else { None }
}

/// The name of a file made now, as a number: `yyyyMMddHHmmssSSS` in local time, but behind the last
/// one, because names say the order.
pub(crate) fn next_name(now_ms: i64, utc_offset_seconds: i32, last: Option<u64>) -> u64 {
    let local_ms = now_ms.saturating_add(i64::from(utc_offset_seconds) * 1000);
    let (days, of_day) = (local_ms.div_euclid(86_400_000), local_ms.rem_euclid(86_400_000));
    let (year, month, day) = civil(days);
    let time = of_day / 3_600_000 * 10_000_000
        + of_day / 60_000 % 60 * 100_000
        + of_day / 1000 % 60 * 1000
        + of_day % 1000;
    let name = ((year * 100 + month) * 100 + day) * 1_000_000_000 + time;
    let now = u64::try_from(name).unwrap_or(0);
    last.map_or(now, |last| now.max(last + 1))
}

/// The text of a name.
pub(crate) fn name_text(name: u64) -> String {
    format!("{name:0NAME_DIGITS$}")
}

/// Year, month and day of a day since 1970-01-01 in the Gregorian calendar: years are counted from
/// March, so that the leap day is the last one.
fn civil(days: i64) -> (i64, i64, i64) {
    const DAYS_OF_400_YEARS: i64 = 146_097;
    let days = days + 719_468;
    let era = days.div_euclid(DAYS_OF_400_YEARS);
    let of_era = days.rem_euclid(DAYS_OF_400_YEARS);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { slots: 5_000_000, entries: 20_000_000 };

    #[test]
    fn the_layout_is_that_of_apache() {
        assert_eq!(LAYOUT.file_bytes(), 420_000_040);
        assert_eq!(Layout::slot_at(LAYOUT.slot(5_000_001)), 44);
        assert_eq!(LAYOUT.entry_at(1), 20_000_060);
    }

    #[test]
    fn headers_and_entries_survive_a_round_trip() {
        let header = Header {
            begin_timestamp: 1,
            end_timestamp: 2,
            begin_offset: 3,
            end_offset: 4,
            used_slots: 5,
            count: 7,
        };
        assert_eq!(Header::decode(&header.encode(), LAYOUT), Some(header));
        for broken in [
            Header { count: 1, ..header },
            Header { count: u32::MAX, ..header },
            Header { used_slots: 7, ..header },
            Header { used_slots: 0, ..header },
            Header { begin_offset: 5, ..header },
            Header { begin_offset: -1, ..header },
            Header::EMPTY,
        ] {
            assert_eq!(Header::decode(&broken.encode(), LAYOUT), None, "{broken:?}");
        }
        assert_eq!(Header::decode(&[0; 39], LAYOUT), None);
        let entry = Entry { hash: 1, offset: -2, seconds: 3, previous: 4 };
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        assert_eq!(Entry::decode(bytes[..].try_into().unwrap()), entry);
    }

    #[test]
    fn names_are_local_times_in_order() {
        // 2026-11-30T10:19:44.134Z
        let now = 1_796_033_984_134;
        assert_eq!(next_name(now, 0, None), 20_261_130_101_944_134);
        assert_eq!(next_name(now, 8 * 3600, None), 20_261_130_181_944_134);
        assert_eq!(next_name(now, -11 * 3600, None), 20_261_129_231_944_134);
        assert_eq!(next_name(now, 0, Some(20_261_130_101_944_134)), 20_261_130_101_944_135);
        assert_eq!(next_name(0, 0, None), 19_700_101_000_000_000);
        // Leap days.
        assert_eq!(next_name(951_782_400_000, 0, None), 20_000_229_000_000_000);
        assert_eq!(next_name(4_107_542_400_000, 0, None), 21_000_301_000_000_000);
        assert_eq!(parse_name(&name_text(20_261_130_101_944_134)), Some(20_261_130_101_944_134));
        for name in ["", "2026113010194413x", "202611301019441345", "tmp"] {
            assert_eq!(parse_name(name), None, "{name}");
        }
    }

    #[test]
    fn seconds_are_rounded_down_and_bounded() {
        assert_eq!(seconds_since(1_000, 2_999), 1);
        assert_eq!(seconds_since(5_000, 1_000), 0);
        assert_eq!(seconds_since(0, i64::MAX), i32::MAX);
        let entry = |seconds| Entry { hash: 0, offset: 0, seconds, previous: 0 };
        let table = [
            (1, 2_500, 9_000, true),
            (1, 3_000, 9_000, false),
            (1, 0, 1_999, false),
            (1, 0, 2_000, true),
            (0, 0, 10, true),
            (i32::MAX, i64::MAX, i64::MAX, true),
        ];
        for (seconds, begin, end, expected) in table {
            let found = entry(seconds).may_be_between(1_000, begin, end);
            assert_eq!(found, expected, "{seconds} {begin} {end}");
        }
    }
}
