//! The body of a SEND_BATCH_MESSAGE request: small records back to back, one per message.
//!
//! Each is totalSize i32, magic i32, bodyCRC i32 (both 0 from clients, not looked at), flag i32,
//! bodyLength i32, body, propertiesLength i16, properties.

use bytes::{Buf, BufMut, BytesMut, TryGetError};

use crate::property;

/// Bytes of a record of the batch without body and properties.
const FIXED_BYTES: usize = 22;

/// One message of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchMessage<'a> {
    /// User flag.
    pub flag: i32,
    /// Body.
    pub body: &'a [u8],
    /// Properties string.
    pub properties: &'a str,
}

/// What is wrong with a batch body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// It ends within a message.
    #[error("message {index} of the batch is cut off")]
    Truncated {
        /// Position in the batch, from 0.
        index: usize,
    },
    /// totalSize, bodyLength and propertiesLength do not fit together.
    #[error("message {index} of the batch has size {size}, its parts say otherwise")]
    Size {
        /// Position in the batch, from 0.
        index: usize,
        /// The totalSize it claims.
        size: i32,
    },
    /// Properties are not UTF-8.
    #[error("message {index} of the batch has properties that are not UTF-8")]
    Properties {
        /// Position in the batch, from 0.
        index: usize,
    },
    /// More messages than the caller allows.
    #[error("the batch has more than {limit} messages")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// A body or properties string that a batch cannot hold.
    #[error("message {index} of the batch is too long to be encoded")]
    TooLong {
        /// Position in the batch, from 0.
        index: usize,
    },
}

/// Reads a batch body of at most `limit` messages.
///
/// # Errors
/// The body is damaged or has too many messages.
pub fn decode_batch(mut body: &[u8], limit: usize) -> Result<Vec<BatchMessage<'_>>, BatchError> {
    let mut messages = Vec::new();
    while !body.is_empty() {
        let index = messages.len();
        if index == limit {
            return Err(BatchError::TooMany { limit });
        }
        let start = body;
        let size = body.try_get_i32().map_err(|_| BatchError::Truncated { index })?;
        let record = usize::try_from(size)
            .ok()
            .filter(|size| *size >= FIXED_BYTES)
            .ok_or(BatchError::Size { index, size })?;
        let (record, rest) =
            start.split_at_checked(record).ok_or(BatchError::Truncated { index })?;
        messages.push(decode_message(record, index, size)?);
        body = rest;
    }
    Ok(messages)
}

fn decode_message(record: &[u8], index: usize, size: i32) -> Result<BatchMessage<'_>, BatchError> {
    let wrong_size = BatchError::Size { index, size };
    let Ok((flag, body, properties)) = split_message(record) else { return Err(wrong_size) };
    let properties =
        std::str::from_utf8(properties).map_err(|_| BatchError::Properties { index })?;
    Ok(BatchMessage { flag, body, properties })
}

/// Flag, body and properties; an error unless they fill the record exactly.
fn split_message(mut record: &[u8]) -> Result<(i32, &[u8], &[u8]), TryGetError> {
    let wrong = TryGetError { requested: 0, available: record.len() };
    let _size_magic_crc = (record.try_get_i32()?, record.try_get_i32()?, record.try_get_i32()?);
    let flag = record.try_get_i32()?;
    let length = usize::try_from(record.try_get_i32()?).map_err(|_| wrong)?;
    let wrong = TryGetError { requested: length, available: record.len() };
    let (body, mut rest) = record.split_at_checked(length).ok_or(wrong)?;
    let wrong = TryGetError { requested: 0, available: rest.len() };
    let length = usize::try_from(rest.try_get_i16()?).map_err(|_| wrong)?;
    if length == rest.len() {
        Ok((flag, body, rest))
    } else {
        Err(TryGetError { requested: length, available: rest.len() })
    }
}

/// Writes a batch body.
///
/// # Errors
/// A message does not fit the 32-bit size or the 16-bit properties length.
pub fn encode_batch<'a>(
    messages: impl IntoIterator<Item = BatchMessage<'a>>,
    out: &mut BytesMut,
) -> Result<(), BatchError> {
    for (index, message) in messages.into_iter().enumerate() {
        let BatchMessage { flag, body, properties } = message;
        let too_long = BatchError::TooLong { index };
        if properties.len() > property::LENGTH_MAX {
            return Err(too_long);
        }
        let size = FIXED_BYTES + body.len() + properties.len();
        let Ok(size_field) = i32::try_from(size) else { return Err(too_long) };
        let Ok(body_length) = i32::try_from(body.len()) else { return Err(too_long) };
        let Ok(properties_length) = i16::try_from(properties.len()) else { return Err(too_long) };
        out.reserve(size);
        out.put_i32(size_field);
        out.put_i32(0);
        out.put_i32(0);
        out.put_i32(flag);
        out.put_i32(body_length);
        out.put_slice(body);
        out.put_i16(properties_length);
        out.put_slice(properties.as_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_message_as_java_writes_it() {
        let mut out = BytesMut::new();
        let message = BatchMessage { flag: 3, body: b"hi", properties: "a\u{1}b\u{2}" };
        encode_batch([message], &mut out).unwrap();
        let expected = [
            0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, b'h', b'i', 0, 4, b'a', 1,
            b'b', 2,
        ];
        assert_eq!(out[..], expected);
        assert_eq!(decode_batch(&expected, 1), Ok(vec![message]));
        assert_eq!(decode_batch(&expected, 0), Err(BatchError::TooMany { limit: 0 }));
    }

    #[test]
    fn every_cut_and_wrong_length_is_an_error() {
        let mut out = BytesMut::new();
        let message = BatchMessage { flag: 0, body: b"body", properties: "a\u{1}b\u{2}" };
        encode_batch([message, message], &mut out).unwrap();
        for cut in 0..out.len() {
            let whole = cut == 0 || cut == out.len() / 2;
            assert_eq!(decode_batch(&out[..cut], 9).is_ok(), whole, "{cut}");
        }
        for position in [3, 19, 25] {
            let mut damaged = out.clone();
            damaged[position] ^= 1;
            assert!(decode_batch(&damaged, 9).is_err(), "{position}");
        }
        let mut damaged = out.clone();
        damaged[26] = 0xFF;
        assert_eq!(decode_batch(&damaged, 9), Err(BatchError::Properties { index: 0 }));
    }

    #[test]
    fn too_long_properties_are_refused() {
        let properties = "x".repeat(property::LENGTH_MAX + 1);
        let message = BatchMessage { flag: 0, body: b"", properties: &properties };
        let error = encode_batch([message], &mut BytesMut::new());
        assert_eq!(error, Err(BatchError::TooLong { index: 0 }));
    }

    proptest! {
        #[test]
        fn round_trip(messages in proptest::collection::vec(
            (any::<i32>(), proptest::collection::vec(any::<u8>(), 0..40), ".{0,20}"),
            0..8,
        )) {
            let view: Vec<_> = messages
                .iter()
                .map(|(flag, body, properties)| BatchMessage { flag: *flag, body, properties })
                .collect();
            let mut out = BytesMut::new();
            encode_batch(view.iter().copied(), &mut out).unwrap();
            prop_assert_eq!(decode_batch(&out, 8), Ok(view));
        }

        #[test]
        fn any_bytes_are_read_without_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..80)
        ) {
            let _ = decode_batch(&bytes, 10);
        }
    }
}
