//! The JSON form of a frame's header.
//!
//! Written by hand in the order in which Java writes it (sorted keys, no null members); read by
//! `serde_json`. Values of `extFields` that a foreign client wrote as numbers or booleans are taken
//! as their text, and null values as absent.

use std::borrow::Cow;
use std::fmt;

use bytes::{BufMut, BytesMut};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};

use crate::command::{LanguageCode, RemotingCommand, SerializeType};
use crate::ext_fields::{ExtFields, FIELDS_MAX};
use crate::frame::FrameError;

/// Room for the fields of a usual message.
const EXT_FIELDS_BYTES: usize = 384;

/// A text that is borrowed from the frame unless it has escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonHeader<'a> {
    code: i32,
    #[serde(borrow, default)]
    language: Option<Cow<'a, str>>,
    #[serde(default)]
    version: i32,
    #[serde(default)]
    opaque: i32,
    #[serde(default)]
    flag: i32,
    #[serde(default)]
    remark: Option<String>,
    #[serde(default, deserialize_with = "ext_fields")]
    ext_fields: ExtFields,
}

/// Puts one value into the fields under its key.
struct Value<'a> {
    key: &'a str,
    fields: &'a mut ExtFields,
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a number, true, false or null")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.fields.push_copied(self.key, text);
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.visit_str(if value { "true" } else { "false" })
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.visit_str(&value.to_string())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.visit_str(&value.to_string())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.visit_str(&value.to_string())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

fn ext_fields<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ExtFields, D::Error> {
    struct Fields;
    impl<'de> Visitor<'de> for Fields {
        type Value = ExtFields;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of strings")
        }

        fn visit_unit<E>(self) -> Result<ExtFields, E> {
            Ok(ExtFields::new())
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ExtFields, A::Error> {
            let mut fields = ExtFields::with_capacity(EXT_FIELDS_BYTES);
            while let Some(Text(key)) = map.next_key()? {
                map.next_value_seed(Value { key: &key, fields: &mut fields })?;
                if fields.len() > FIELDS_MAX {
                    let text = format!("more than {FIELDS_MAX} extension fields");
                    return Err(A::Error::custom(text));
                }
            }
            Ok(fields)
        }
    }
    deserializer.deserialize_any(Fields)
}

pub(crate) fn decode(header: &[u8]) -> Result<RemotingCommand, FrameError> {
    let header: JsonHeader<'_> =
        serde_json::from_slice(header).map_err(|error| FrameError::Json(error.to_string()))?;
    Ok(RemotingCommand {
        code: header.code,
        language: header.language.as_deref().map_or(LanguageCode::Other, LanguageCode::from_name),
        version: header.version,
        opaque: header.opaque,
        flag: header.flag,
        remark: header.remark,
        ext_fields: header.ext_fields,
        body: bytes::Bytes::new(),
        serialize_type: SerializeType::Json,
    })
}

pub(crate) fn encode(command: &RemotingCommand, out: &mut BytesMut) {
    out.put_slice(b"{\"code\":");
    put_int(out, command.code);
    if !command.ext_fields.is_empty() {
        out.put_slice(b",\"extFields\":{");
        for (at, (key, value)) in command.ext_fields.iter().enumerate() {
            if at > 0 {
                out.put_u8(b',');
            }
            put_string(out, key);
            out.put_u8(b':');
            put_string(out, value);
        }
        out.put_u8(b'}');
    }
    out.put_slice(b",\"flag\":");
    put_int(out, command.flag);
    out.put_slice(b",\"language\":\"");
    out.put_slice(command.language.name().as_bytes());
    out.put_slice(b"\",\"opaque\":");
    put_int(out, command.opaque);
    if let Some(remark) = &command.remark {
        out.put_slice(b",\"remark\":");
        put_string(out, remark);
    }
    out.put_slice(b",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
    put_int(out, command.version);
    out.put_u8(b'}');
}

fn put_int(out: &mut BytesMut, value: i32) {
    out.put_slice(value.to_string().as_bytes());
}

fn put_string(out: &mut BytesMut, text: &str) {
    out.put_u8(b'"');
    let bytes = text.as_bytes();
    let mut from = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.put_slice(bytes.get(from..at).unwrap_or_default());
        match byte {
            b'"' => out.put_slice(b"\\\""),
            b'\\' => out.put_slice(b"\\\\"),
            b'\n' => out.put_slice(b"\\n"),
            b'\r' => out.put_slice(b"\\r"),
            b'\t' => out.put_slice(b"\\t"),
            _ => {
                out.put_slice(b"\\u00");
                out.put_u8(hex(byte >> 4));
                out.put_u8(hex(byte & 0xF));
            }
        }
        from = at + 1;
    }
    out.put_slice(bytes.get(from..).unwrap_or_default());
    out.put_u8(b'"');
}

fn hex(nibble: u8) -> u8 {
    if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_java_writes() {
        let text = br#"{"code":105,"extFields":{"topic":"T","acceptStandardJsonOnly":"true"},"flag":0,"language":"JAVA","opaque":3,"serializeTypeCurrentRPC":"JSON","version":513}"#;
        let command = decode(text).unwrap();
        assert_eq!((command.code, command.opaque, command.version), (105, 3, 513));
        assert_eq!(command.language, LanguageCode::Java);
        assert_eq!(command.ext_fields.get("topic"), Some("T"));
    }

    #[test]
    fn takes_missing_members_nulls_and_plain_numbers() {
        let text = br#"{"code":1,"extFields":{"a":1,"b":true,"c":null},"remark":null}"#;
        let command = decode(text).unwrap();
        assert_eq!(command.ext_fields.get("a"), Some("1"));
        assert_eq!(command.ext_fields.get("b"), Some("true"));
        assert_eq!(command.ext_fields.get("c"), None);
        assert_eq!(command.language, LanguageCode::Other);
        assert!(decode(br#"{"code":1,"extFields":null}"#).unwrap().ext_fields.is_empty());
        assert!(matches!(decode(b"{"), Err(FrameError::Json(_))));
        assert!(matches!(decode(br#"{"flag":1}"#), Err(FrameError::Json(_))));
    }

    #[test]
    fn control_characters_are_escaped() {
        let mut out = BytesMut::new();
        put_string(&mut out, "a\"b\\c\n\u{1}\u{2}é");
        assert_eq!(&out[..], "\"a\\\"b\\\\c\\n\\u0001\\u0002é\"".as_bytes());
    }
}
