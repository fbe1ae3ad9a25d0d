//! Frames on a connection: `length i32 | mark i32 | header | body`, big-endian.
//!
//! `length` counts what follows it. The top byte of `mark` names the header's serialisation, its
//! low 24 bits are the header's length.

use bytes::{Buf, BufMut, BytesMut};
use thiserror::Error;

use crate::command::{RemotingCommand, SerializeType};
use crate::{header_json, header_rocketmq};

/// Java's default limit of a whole frame, its length field included: 16 MiB.
pub const DEFAULT_MAX_FRAME_BYTES: usize = 16 * 1024 * 1024;

const LENGTH_BYTES: usize = 4;
const MARK_BYTES: usize = 4;
const MAX_HEADER_BYTES: usize = 0x00FF_FFFF;

/// Why bytes are not a frame. The connection that sent them cannot be used any further.
#[derive(Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FrameError {
    #[error("frame of {bytes} bytes is larger than the limit of {max} bytes")]
    TooLarge { bytes: u64, max: usize },
    #[error("frame length {0} is negative or too short for a header mark")]
    BadLength(i32),
    #[error("header of {header} bytes does not fit in a frame of {frame} bytes")]
    HeaderTooLong { header: usize, frame: usize },
    #[error("unknown header serialisation {0}")]
    UnknownSerializeType(u8),
    #[error("header is not valid JSON: {0}")]
    Json(String),
    #[error("binary header: {0}")]
    Binary(&'static str),
}

/// Takes one frame from the front of `buffer`; `None` while it is not complete.
///
/// Nothing is allocated for a frame that is announced but not there yet.
///
/// # Errors
/// When the bytes cannot be a frame of at most `max_bytes`.
pub fn decode(
    buffer: &mut BytesMut,
    max_bytes: usize,
) -> Result<Option<RemotingCommand>, FrameError> {
    let Some((head, _)) = buffer.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let announced = i32::from_be_bytes(*head);
    let length = usize::try_from(announced).map_err(|_| FrameError::BadLength(announced))?;
    if length < MARK_BYTES {
        return Err(FrameError::BadLength(announced));
    }
    let total = length.saturating_add(LENGTH_BYTES);
    if total > max_bytes {
        return Err(FrameError::TooLarge { bytes: total as u64, max: max_bytes });
    }
    if buffer.len() < total {
        return Ok(None);
    }
    let mut frame = buffer.split_to(total).freeze();
    frame.advance(LENGTH_BYTES);
    let mark = frame.get_u32();
    let [serialize_type, ..] = mark.to_be_bytes();
    let header_bytes = (mark as usize) & MAX_HEADER_BYTES;
    if header_bytes > frame.len() {
        return Err(FrameError::HeaderTooLong { header: header_bytes, frame: total });
    }
    let header = frame.split_to(header_bytes);
    let mut command = match serialize_type {
        0 => header_json::decode(&header)?,
        1 => header_rocketmq::decode(&header)?,
        other => return Err(FrameError::UnknownSerializeType(other)),
    };
    command.body = frame;
    Ok(Some(command))
}

/// Appends `command` as a frame to `buffer`.
///
/// # Errors
/// When the header is larger than the 24 bits of its length field.
pub fn encode(command: &RemotingCommand, buffer: &mut BytesMut) -> Result<(), FrameError> {
    encode_head(command, command.body.len(), buffer)?;
    buffer.put_slice(&command.body);
    Ok(())
}

/// Appends everything of the frame but the body, of which `body_bytes` bytes will follow: for
/// senders that pass a body from the store to the socket without copying it.
///
/// # Errors
/// As [`encode`].
pub fn encode_head(
    command: &RemotingCommand,
    body_bytes: usize,
    buffer: &mut BytesMut,
) -> Result<(), FrameError> {
    let start = buffer.len();
    buffer.put_u64(0);
    let type_byte = match command.serialize_type {
        SerializeType::Json => {
            header_json::encode(command, buffer);
            0u8
        }
        SerializeType::RocketMq => {
            header_rocketmq::encode(command, buffer);
            1
        }
    };
    let header = buffer.len() - start - LENGTH_BYTES - MARK_BYTES;
    let length = MARK_BYTES + header + body_bytes;
    let (Ok(header_length), Ok(length)) = (u32::try_from(header), i32::try_from(length)) else {
        return Err(FrameError::TooLarge { bytes: length as u64, max: i32::MAX as usize });
    };
    if header > MAX_HEADER_BYTES {
        return Err(FrameError::HeaderTooLong { header, frame: header + body_bytes });
    }
    if let Some(space) = buffer.get_mut(start..start + LENGTH_BYTES + MARK_BYTES) {
        let mut space = space;
        space.put_i32(length);
        space.put_u32((u32::from(type_byte) << 24) | header_length);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::command::LanguageCode;
    use crate::ext_fields::ExtFields;

    fn command() -> impl Strategy<Value = RemotingCommand> {
        let head = (any::<i16>(), 0u8..14, any::<i16>(), any::<i32>(), 0..4i32);
        let fields = proptest::collection::btree_map("[a-zA-Z0-9_]{1,12}", "\\PC{1,40}", 0..20);
        let rest = (proptest::option::of("\\PC{1,80}"), fields, any::<bool>());
        let body = proptest::collection::vec(any::<u8>(), 0..200);
        (head, rest, body).prop_map(
            |((code, language, version, opaque, flag), (remark, fields, binary), body)| {
                RemotingCommand {
                    code: code.into(),
                    language: LanguageCode::from_byte(language),
                    version: version.into(),
                    opaque,
                    flag,
                    remark,
                    ext_fields: fields.into_iter().collect::<ExtFields>(),
                    body: Bytes::from(body),
                    serialize_type: if binary {
                        SerializeType::RocketMq
                    } else {
                        SerializeType::Json
                    },
                }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(commands in proptest::collection::vec(command(), 1..4)) {
            let mut buffer = BytesMut::new();
            for command in &commands {
                encode(command, &mut buffer).unwrap();
            }
            for command in &commands {
                let read = decode(&mut buffer, DEFAULT_MAX_FRAME_BYTES).unwrap().unwrap();
                prop_assert_eq!(&read, command);
            }
            prop_assert!(buffer.is_empty());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = decode(&mut buffer, 4096) {}
        }

        #[test]
        fn a_damaged_frame_never_panics(
            command in command(), at in any::<prop::sample::Index>(), byte in any::<u8>()
        ) {
            let mut buffer = BytesMut::new();
            encode(&command, &mut buffer).unwrap();
            let at = at.index(buffer.len());
            buffer[at] = byte;
            while let Ok(Some(_)) = decode(&mut buffer, DEFAULT_MAX_FRAME_BYTES) {}
        }

        #[test]
        fn a_frame_is_awaited_to_its_last_byte(command in command()) {
            let mut whole = BytesMut::new();
            encode(&command, &mut whole).unwrap();
            let mut part = BytesMut::from(&whole[..whole.len() - 1]);
            prop_assert_eq!(decode(&mut part, DEFAULT_MAX_FRAME_BYTES), Ok(None));
            prop_assert_eq!(part.len(), whole.len() - 1);
        }
    }

    #[test]
    fn a_frame_full_of_fields_is_refused_early() {
        for serialize_type in [SerializeType::Json, SerializeType::RocketMq] {
            let mut command = RemotingCommand { serialize_type, ..RemotingCommand::default() };
            for number in 0..1_024 {
                command.ext_fields.push(number.to_string(), "x");
            }
            let mut buffer = BytesMut::new();
            encode(&command, &mut buffer).unwrap();
            assert_eq!(decode(&mut buffer, usize::MAX), Ok(Some(command.clone())));
            command.ext_fields.push("more", "x");
            encode(&command, &mut buffer).unwrap();
            let error = decode(&mut buffer, usize::MAX).unwrap_err().to_string();
            assert!(error.contains("extension fields"), "{error}");
        }
    }

    #[test]
    fn wrong_lengths_are_refused() {
        let check = |bytes: &[u8]| decode(&mut BytesMut::from(bytes), 1024).unwrap_err();
        assert_eq!(check(&[0xFF; 8]), FrameError::BadLength(-1));
        assert_eq!(check(&[0, 0, 0, 3, 0, 0, 0]), FrameError::BadLength(3));
        let large = FrameError::TooLarge { bytes: 0x1000_0004, max: 1024 };
        assert_eq!(check(&[0x10, 0, 0, 0]), large);
        let header = FrameError::HeaderTooLong { header: 9, frame: 8 };
        assert_eq!(check(&[0, 0, 0, 4, 0, 0, 0, 9]), header);
        assert_eq!(check(&[0, 0, 0, 4, 7, 0, 0, 0]), FrameError::UnknownSerializeType(7));
    }
}
