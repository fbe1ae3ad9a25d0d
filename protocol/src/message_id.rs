//! The two ids of a message: where it is stored (`offsetMsgId`) and who made it (`UNIQ_KEY`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

const OFFSET_ID_V4_CHARS: usize = 32;
const OFFSET_ID_V6_CHARS: usize = 56;

/// Why a text is no `offsetMsgId`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageIdError {
    /// Neither 32 characters (IPv4) nor 56 (IPv6).
    #[error("message id has {0} characters, expected 32 or 56")]
    Length(usize),
    /// Not hexadecimal.
    #[error("message id holds a character that is not hexadecimal")]
    NotHexadecimal,
    /// The port is outside 0 to 65535.
    #[error("message id names port {0}, outside 0 to 65535")]
    Port(u32),
    /// The offset is negative.
    #[error("message id names the negative commit log offset {0}")]
    Offset(i64),
}

/// `offsetMsgId`: store host (address, 32-bit port) and commit log offset in upper-case hex.
#[must_use]
pub fn offset_message_id(store_host: SocketAddr, physical_offset: i64) -> String {
    let mut id = String::with_capacity(OFFSET_ID_V6_CHARS);
    push_address(&mut id, store_host.ip());
    push_hex(&mut id, &u32::from(store_host.port()).to_be_bytes());
    push_hex(&mut id, &physical_offset.to_be_bytes());
    id
}

/// Reads an `offsetMsgId` back: the broker's address and the commit log offset.
///
/// # Errors
/// The text does not have the form of such an id.
pub fn parse_offset_message_id(id: &str) -> Result<(SocketAddr, i64), MessageIdError> {
    let bytes = parse_hex(id)?;
    let (address, rest): (IpAddr, &[u8]) = match id.len() {
        OFFSET_ID_V4_CHARS => {
            let (ip, rest) = split(&bytes)?;
            (Ipv4Addr::from(*ip).into(), rest)
        }
        OFFSET_ID_V6_CHARS => {
            let (ip, rest) = split::<16>(&bytes)?;
            (Ipv6Addr::from(*ip).into(), rest)
        }
        length => return Err(MessageIdError::Length(length)),
    };
    let (port, rest) = split(rest)?;
    let (offset, _) = split(rest)?;
    let port = u32::from_be_bytes(*port);
    let offset = i64::from_be_bytes(*offset);
    if offset < 0 {
        return Err(MessageIdError::Offset(offset));
    }
    let port = u16::try_from(port).map_err(|_| MessageIdError::Port(port))?;
    Ok((SocketAddr::new(address, port), offset))
}

fn split<const N: usize>(bytes: &[u8]) -> Result<(&[u8; N], &[u8]), MessageIdError> {
    bytes.split_first_chunk::<N>().ok_or(MessageIdError::Length(bytes.len()))
}

fn parse_hex(text: &str) -> Result<Vec<u8>, MessageIdError> {
    if text.len() != OFFSET_ID_V4_CHARS && text.len() != OFFSET_ID_V6_CHARS {
        return Err(MessageIdError::Length(text.chars().count()));
    }
    let digit = |letter: u8| match letter {
        b'0'..=b'9' => Ok(letter - b'0'),
        b'a'..=b'f' => Ok(letter - b'a' + 10),
        b'A'..=b'F' => Ok(letter - b'A' + 10),
        _ => Err(MessageIdError::NotHexadecimal),
    };
    let (pairs, _) = text.as_bytes().as_chunks::<2>();
    pairs.iter().map(|[high, low]| Ok(digit(*high)? << 4 | digit(*low)?)).collect()
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    // By hand, for each message has two ids, and formatting takes ten times as long.
    let digit =
        |nibble: u8| char::from(if nibble < 10 { b'0' + nibble } else { b'A' - 10 + nibble });
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 0xF));
    }
}

fn push_address(text: &mut String, address: IpAddr) {
    match address.to_canonical() {
        IpAddr::V4(address) => push_hex(text, &address.octets()),
        IpAddr::V6(address) => push_hex(text, &address.octets()),
    }
}

/// Makes client message ids (`UNIQ_KEY`): address, process id, a number that tells generators of
/// one process apart, milliseconds since the month began (UTC), and a counter; upper-case hex.
///
/// Unique while one process makes fewer than 65,536 ids in a millisecond.
#[derive(Debug)]
pub struct UniqueIdGenerator {
    prefix: String,
    counter: AtomicU16,
}

impl UniqueIdGenerator {
    /// `instance` takes the place of Java's class loader hash.
    #[must_use]
    pub fn new(address: IpAddr, process_id: u32, instance: u32) -> Self {
        let mut prefix = String::with_capacity(44);
        push_address(&mut prefix, address);
        let [_, _, pid @ ..] = process_id.to_be_bytes();
        push_hex(&mut prefix, &pid);
        push_hex(&mut prefix, &instance.to_be_bytes());
        Self { prefix, counter: AtomicU16::new(0) }
    }

    /// The next id at this time (epoch milliseconds).
    #[must_use]
    pub fn next_id(&self, now_ms: i64) -> String {
        let count = self.counter.fetch_add(1, Ordering::Relaxed);
        let mut id = String::with_capacity(self.prefix.len() + 12);
        id.push_str(&self.prefix);
        push_hex(&mut id, &ms_since_month_began(now_ms).to_be_bytes());
        push_hex(&mut id, &count.to_be_bytes());
        id
    }
}

/// At most 31 days, 2,678,400,000 ms, so it fits into 32 bits without sign.
fn ms_since_month_began(now_ms: i64) -> u32 {
    const DAY_MS: i64 = 86_400_000;
    let day_of_month = day_of_month(now_ms.div_euclid(DAY_MS));
    let elapsed = (day_of_month - 1) * DAY_MS + now_ms.rem_euclid(DAY_MS);
    u32::try_from(elapsed).expect("a month has at most 31 days")
}

/// Day of the month, 1 to 31, of a day counted from 1970-01-01 (proleptic Gregorian calendar).
///
/// Days are counted from 0000-03-01 so that the leap day is the last of its year; 400 years have
/// 146,097 days, and five months from March on have 153.
fn day_of_month(epoch_day: i64) -> i64 {
    let day_of_era = (epoch_day + 719_468).rem_euclid(146_097);
    let year = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    day_of_year - (153 * month + 2) / 5 + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn host(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn offset_ids_equal_those_of_java() {
        let id = "7F000001000051AF000000000000023D";
        assert_eq!(offset_message_id(host("127.0.0.1:20911"), 573), id);
        assert_eq!(parse_offset_message_id(id), Ok((host("127.0.0.1:20911"), 573)));
        let id = offset_message_id(host("[fd00::1]:10911"), 7);
        assert_eq!(id, "FD00000000000000000000000000000100002A9F0000000000000007");
        assert_eq!(parse_offset_message_id(&id), Ok((host("[fd00::1]:10911"), 7)));
    }

    #[test]
    fn a_mapped_address_is_written_as_ipv4() {
        let mapped = offset_message_id(host("[::ffff:10.0.0.1]:10911"), 1);
        assert_eq!(mapped, offset_message_id(host("10.0.0.1:10911"), 1));
    }

    #[test]
    fn other_texts_are_refused() {
        let table = [
            ("", MessageIdError::Length(0)),
            ("7F", MessageIdError::Length(2)),
            ("7F000001000051AF00000000000002ZZ", MessageIdError::NotHexadecimal),
            ("7F000001000100000000000000000001", MessageIdError::Port(65_536)),
            ("7F000001000051AFFFFFFFFFFFFFFFFF", MessageIdError::Offset(-1)),
        ];
        for (id, error) in table {
            assert_eq!(parse_offset_message_id(id), Err(error), "{id}");
        }
    }

    #[test]
    fn unique_ids_have_the_form_of_java_and_differ() {
        let generator =
            UniqueIdGenerator::new("10.1.2.3".parse().unwrap(), 0x0001_027D, 0x5930_946E);
        // 2026-11-30T00:00:00.001Z
        let now_ms = 1_795_996_800_001;
        assert_eq!(generator.next_id(now_ms), "0A010203027D5930946E95586C010000");
        let ids: HashSet<String> = (0..60_000).map(|_| generator.next_id(now_ms)).collect();
        assert_eq!(ids.len(), 60_000);
        let v6 = UniqueIdGenerator::new("fd00::2".parse().unwrap(), 637, 1);
        assert_eq!(v6.next_id(now_ms).len(), 56);
    }

    #[test]
    fn days_of_the_month() {
        // Days since 1970-01-01, checked with `date -u`.
        for (epoch_day, day) in
            [(0, 1), (30, 31), (31, 1), (58, 28), (59, 1), (11_016, 29), (11_017, 1), (20_787, 30)]
        {
            assert_eq!(day_of_month(epoch_day), day, "{epoch_day}");
        }
    }

    proptest! {
        #[test]
        fn offset_id_round_trip(ip: [u8; 4], port: u16, offset in 0..=i64::MAX) {
            let host = SocketAddr::new(IpAddr::from(ip), port);
            prop_assert_eq!(parse_offset_message_id(&offset_message_id(host, offset)), Ok((host, offset)));
        }

        #[test]
        fn any_text_is_read_without_panic(id in "[0-9A-Fg]{30,57}|.{32}") {
            let _ = parse_offset_message_id(&id);
        }
    }
}
