//! The compact binary form of a frame's header.
//!
//! `code i16 | language i8 | version i16 | opaque i32 | flag i32 | remark (i32 + text) |
//! ext length i32 | (key i16 + text, value i32 + text)*`. An empty text reads as absent, as in
//! Java. The code has 16 bits only: Java cuts off larger ones (the pop family), so those must be
//! sent as JSON.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::command::{LanguageCode, RemotingCommand, SerializeType};
use crate::ext_fields::{ExtFields, FIELDS_MAX};
use crate::frame::FrameError;

const FIXED_BYTES: usize = 17;

pub(crate) fn decode(header: &[u8]) -> Result<RemotingCommand, FrameError> {
    let mut input = header;
    if input.len() < FIXED_BYTES {
        return Err(FrameError::Binary("shorter than its fixed part"));
    }
    let code = i32::from(input.get_i16());
    let language = LanguageCode::from_byte(input.get_u8());
    let version = i32::from(input.get_i16());
    let opaque = input.get_i32();
    let flag = input.get_i32();
    let remark = text(take_i32(&mut input, "remark length does not fit")?, "remark")?;
    let remark = remark.map(str::to_owned);
    let mut fields = take_i32(&mut input, "length of the extension fields does not fit")?;
    let mut ext_fields = ExtFields::with_capacity(fields.len());
    while !fields.is_empty() {
        let key = text(take_i16(&mut fields, "key length does not fit")?, "key")?;
        let value = text(take_i32(&mut fields, "value length does not fit")?, "value")?;
        if let (Some(key), Some(value)) = (key, value) {
            ext_fields.push_copied(key, value);
        }
        if ext_fields.len() > FIELDS_MAX {
            return Err(FrameError::Binary("more than 1,024 extension fields"));
        }
    }
    Ok(RemotingCommand {
        code,
        language,
        version,
        opaque,
        flag,
        remark,
        ext_fields,
        body: Bytes::new(),
        serialize_type: SerializeType::RocketMq,
    })
}

fn take_i32<'a>(input: &mut &'a [u8], error: &'static str) -> Result<&'a [u8], FrameError> {
    let length = if input.len() < 4 { return Ok(&[]) } else { input.get_i32() };
    take(input, usize::try_from(length).map_err(|_| FrameError::Binary(error))?, error)
}

fn take_i16<'a>(input: &mut &'a [u8], error: &'static str) -> Result<&'a [u8], FrameError> {
    if input.len() < 2 {
        return Err(FrameError::Binary(error));
    }
    let length = input.get_i16();
    take(input, usize::try_from(length).map_err(|_| FrameError::Binary(error))?, error)
}

fn take<'a>(
    input: &mut &'a [u8],
    length: usize,
    error: &'static str,
) -> Result<&'a [u8], FrameError> {
    let (taken, rest) = input.split_at_checked(length).ok_or(FrameError::Binary(error))?;
    *input = rest;
    Ok(taken)
}

fn text<'a>(bytes: &'a [u8], what: &'static str) -> Result<Option<&'a str>, FrameError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let error = match what {
        "remark" => "remark is not UTF-8",
        "key" => "a key is not UTF-8",
        _ => "a value is not UTF-8",
    };
    std::str::from_utf8(bytes).map(Some).map_err(|_| FrameError::Binary(error))
}

pub(crate) fn encode(command: &RemotingCommand, out: &mut BytesMut) {
    // Java narrows in the same way; see the module's doc.
    #[allow(clippy::cast_possible_truncation)]
    {
        out.put_i16(command.code as i16);
        out.put_u8(command.language.to_byte());
        out.put_i16(command.version as i16);
    }
    out.put_i32(command.opaque);
    out.put_i32(command.flag);
    put_i32_text(out, command.remark.as_deref().unwrap_or_default());
    let at = out.len();
    out.put_i32(0);
    for (key, value) in command.ext_fields.iter() {
        let Ok(key_length) = i16::try_from(key.len()) else { continue };
        out.put_i16(key_length);
        out.put_slice(key.as_bytes());
        put_i32_text(out, value);
    }
    let length = i32::try_from(out.len() - at - 4).unwrap_or(i32::MAX);
    if let Some(space) = out.get_mut(at..at + 4) {
        space.copy_from_slice(&length.to_be_bytes());
    }
}

fn put_i32_text(out: &mut BytesMut, text: &str) {
    out.put_i32(i32::try_from(text.len()).unwrap_or(i32::MAX));
    out.put_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_beyond_the_header_are_refused() {
        let mut good = BytesMut::new();
        let mut command = RemotingCommand { remark: Some("why".into()), ..Default::default() };
        command.ext_fields.insert("topic", "T");
        encode(&command, &mut good);
        assert_eq!(decode(&good).unwrap().ext_fields.get("topic"), Some("T"));
        for end in 0..good.len() {
            let _ = decode(&good[..end]);
        }
        let mut bad = good.clone();
        bad[13..17].copy_from_slice(&i32::MAX.to_be_bytes());
        assert_eq!(decode(&bad), Err(FrameError::Binary("remark length does not fit")));
        assert!(matches!(decode(&good[..3]), Err(FrameError::Binary(_))));
    }
}
