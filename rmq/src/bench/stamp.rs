//! What the body of a benchmark's message says, so that its receiver can tell what became of it.
//!
//! `magic u32 | run u64 | stream u32 | number u64 | nanoseconds i64 | filling | crc32 u32`,
//! big-endian; the checksum is that of all before it.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

const MAGIC: u32 = 0x726d_7142;
const CRC_BYTES: usize = 4;
/// The smallest body.
pub(crate) const STAMP_BYTES: usize = 4 + 8 + 4 + 8 + 8 + CRC_BYTES;

/// The part of a body that is not filling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Tells the messages of one run from those of others.
    pub(crate) run: u64,
    /// Messages of one stream are sent one after the other.
    pub(crate) stream: u32,
    /// Counts the messages of the stream, from 0.
    pub(crate) number: u64,
    /// When it was to be sent, nanoseconds since the epoch.
    pub(crate) due: i64,
}

/// Why a body is none of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoStamp {
    /// Something else sent it.
    Foreign,
    /// It is ours and was changed on its way.
    Damaged,
}

impl Stamp {
    /// The body, as large as `filling` but at least as large as a stamp.
    pub(crate) fn body(&self, filling: &[u8]) -> Vec<u8> {
        let mut body = Vec::with_capacity(filling.len().max(STAMP_BYTES));
        body.extend(MAGIC.to_be_bytes());
        body.extend(self.run.to_be_bytes());
        body.extend(self.stream.to_be_bytes());
        body.extend(self.number.to_be_bytes());
        body.extend(self.due.to_be_bytes());
        let filled = body.len()..filling.len().saturating_sub(CRC_BYTES);
        body.extend_from_slice(filling.get(filled).unwrap_or_default());
        body.extend(crc32fast::hash(&body).to_be_bytes());
        body
    }

    /// Reads a body.
    pub(crate) fn read(body: &[u8]) -> Result<Self, NoStamp> {
        let mut rest = body.strip_prefix(&MAGIC.to_be_bytes()).ok_or(NoStamp::Foreign)?;
        let (checked, crc) = body.split_last_chunk::<CRC_BYTES>().ok_or(NoStamp::Foreign)?;
        let run = u64::from_be_bytes(*take(&mut rest)?);
        let stream = u32::from_be_bytes(*take(&mut rest)?);
        let number = u64::from_be_bytes(*take(&mut rest)?);
        let due = i64::from_be_bytes(*take(&mut rest)?);
        if crc32fast::hash(checked) != u32::from_be_bytes(*crc) {
            return Err(NoStamp::Damaged);
        }
        Ok(Self { run, stream, number, due })
    }
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Result<&'a [u8; N], NoStamp> {
    let (head, tail) = rest.split_first_chunk::<N>().ok_or(NoStamp::Damaged)?;
    *rest = tail;
    Ok(head)
}

/// Gives points of the monotonic clock as wall clock time, so that a jump of the latter during a
/// run is not seen as latency.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    base: Instant,
    base_nanos: i64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { base: Instant::now(), base_nanos: i64::try_from(wall.as_nanos()).unwrap_or(0) }
    }

    /// Nanoseconds since the epoch.
    pub(crate) fn nanos(&self, at: Instant) -> i64 {
        let since = at.saturating_duration_since(self.base).as_nanos();
        self.base_nanos.saturating_add(i64::try_from(since).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { run: 7, stream: 3, number: u64::MAX, due: -5 };

    #[test]
    fn a_stamp_survives_the_way_in_bodies_of_any_size() {
        for size in [0, STAMP_BYTES - 1, STAMP_BYTES, STAMP_BYTES + 1, 1_024] {
            let body = STAMP.body(&vec![b'x'; size]);
            assert_eq!(body.len(), size.max(STAMP_BYTES));
            assert_eq!(Stamp::read(&body), Ok(STAMP));
        }
    }

    #[test]
    fn others_messages_and_damage_are_told_apart() {
        let body = STAMP.body(&[0; 100]);
        for at in 0..body.len() {
            let mut changed = body.clone();
            changed[at] ^= 1;
            let expected = if at < 4 { NoStamp::Foreign } else { NoStamp::Damaged };
            assert_eq!(Stamp::read(&changed), Err(expected), "{at}");
        }
        assert_eq!(Stamp::read(b""), Err(NoStamp::Foreign));
        assert_eq!(Stamp::read(&body[..20]), Err(NoStamp::Damaged));
    }
}
