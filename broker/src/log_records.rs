//! The log in whole records, as replication sends it.

use bytes::Bytes;
use store::MessageStore;

/// Log bytes from an offset on, at most `length` but at least one record, cut after the last whole
/// one; none at the end of the log.
pub(crate) fn read(store: &MessageStore, from: i64, length: usize) -> Result<Bytes, String> {
    if length == 0 {
        return Ok(Bytes::new());
    }
    let read = |length| store.read_log(from, length).map_err(|error| error.to_string());
    let bytes = read(length)?;
    let (whole, first) = measure(&bytes)?;
    if whole > 0 {
        return Ok(bytes.slice(..whole));
    }
    let bytes = read(first)?;
    if bytes.len() < first {
        // The rest of the record is being written.
        return Ok(Bytes::new());
    }
    Ok(bytes)
}

/// The records of bytes that [`read`] returned.
pub(crate) fn each(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let size = size_of(rest)?;
        let (record, others) = rest.split_at_checked(size).filter(|_| size > 0)?;
        rest = others;
        Some(record)
    })
}

fn size_of(bytes: &[u8]) -> Option<usize> {
    let size = bytes.first_chunk::<4>()?;
    Some(usize::try_from(i32::from_be_bytes(*size)).unwrap_or(0))
}

/// How many bytes whole records have, and how many the first.
fn measure(bytes: &[u8]) -> Result<(usize, usize), String> {
    let (mut at, mut first) = (0, 0);
    while let Some(size) = bytes.get(at..).and_then(size_of) {
        if size == 0 || size > store::REPLICATED_RECORD_BYTES_MAX {
            return Err(format!("a record of {size} bytes, {at} bytes after the begin"));
        }
        if at == 0 {
            first = size;
        }
        if at + size > bytes.len() {
            break;
        }
        at += size;
    }
    Ok((at, first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_cut_where_they_end() {
        let bytes = [0, 0, 0, 6, 1, 2, 0, 0, 0, 5, 3, 0, 0, 0, 9, 4];
        assert_eq!(measure(&bytes).unwrap(), (11, 6));
        assert_eq!(measure(&bytes[..5]).unwrap(), (0, 6));
        let records: Vec<&[u8]> = each(&bytes[..11]).collect();
        assert_eq!(records, [&bytes[..6], &bytes[6..11]]);
        assert!(measure(&[0, 0, 0, 0, 1]).unwrap_err().contains("a record of 0 bytes"));
        assert!(measure(&[0x80, 0, 0, 0]).is_err());
    }
}
