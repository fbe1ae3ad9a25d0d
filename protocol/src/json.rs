//! JSON bodies in fastjson's dialect.
//!
//! Java's fastjson writes maps with numeric keys unquoted (`{0:"a"}`) and maps whose keys are
//! objects with the object itself as key (`{{"topic":"t"}:1}`), and reads single-quoted strings.
//! Reading here takes strict JSON at once, and anything else after it was turned into strict JSON.
//! Writing is strict JSON, except for object keys: see [`ObjectKeyMap`].

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// Nesting that is read at most.
const MAX_DEPTH: usize = 64;

/// Written in front of a key that is to become an object; no text of ours can start with it.
const OBJECT_KEY_MARK: &str = "\u{1}";
const OBJECT_KEY_MARK_ESCAPED: &[u8] = b"\"\\u0001{";

/// Why a JSON body cannot be read or written.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("not valid JSON: {0}")]
pub struct JsonError(String);

/// Reads a body.
///
/// # Errors
/// When it is not JSON in fastjson's dialect or does not fit the type; says where.
pub fn from_slice<T: DeserializeOwned>(text: &[u8]) -> Result<T, JsonError> {
    match serde_json::from_slice(text) {
        Ok(value) => Ok(value),
        Err(error) if error.is_syntax() => {
            let strict = to_strict(text)?;
            serde_json::from_slice(&strict).map_err(|error| JsonError(error.to_string()))
        }
        Err(error) => Err(JsonError(error.to_string())),
    }
}

/// Writes a body.
///
/// # Errors
/// When a map has a key that is neither text nor number.
pub fn to_vec<T: Serialize>(value: &T) -> Result<Vec<u8>, JsonError> {
    let text = serde_json::to_vec(value).map_err(|error| JsonError(error.to_string()))?;
    Ok(unquote_object_keys(text))
}

/// Writes a body as fastjson does by default: numeric keys without quotes. Clients before 4.9.4 get
/// their routes in this form.
///
/// # Errors
/// As [`to_vec`].
pub fn to_vec_fastjson<T: Serialize>(value: &T) -> Result<Vec<u8>, JsonError> {
    Ok(unquote_numeric_keys(&to_vec(value)?))
}

/// Writes a configuration file: indented with tabs, as Java's brokers do.
///
/// # Errors
/// As [`to_vec`].
pub fn to_vec_pretty<T: Serialize>(value: &T) -> Result<Vec<u8>, JsonError> {
    let mut text = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"\t");
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
    value.serialize(&mut serializer).map_err(|error| JsonError(error.to_string()))?;
    Ok(text)
}

/// A map whose keys are objects, in fastjson's form `{{...}:value}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectKeyMap<K, V>(pub BTreeMap<K, V>);

impl<K, V> Default for ObjectKeyMap<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for ObjectKeyMap<K, V> {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(iter: T) -> Self {
        Self(iter.into_iter().collect())
    }
}

impl<K: Serialize, V: Serialize> Serialize for ObjectKeyMap<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            let key = serde_json::to_string(key).map_err(serde::ser::Error::custom)?;
            map.serialize_entry(&format!("{OBJECT_KEY_MARK}{key}"), value)?;
        }
        map.end()
    }
}

impl<'de, K, V> Deserialize<'de> for ObjectKeyMap<K, V>
where
    K: DeserializeOwned + Ord,
    V: Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<K, V>(PhantomData<(K, V)>);
        impl<'de, K: DeserializeOwned + Ord, V: Deserialize<'de>> Visitor<'de> for Entries<K, V> {
            type Value = ObjectKeyMap<K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map with objects as keys")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, V>()? {
                    let key = key.trim_start_matches(OBJECT_KEY_MARK);
                    let key = serde_json::from_str(key).map_err(serde::de::Error::custom)?;
                    entries.insert(key, value);
                }
                Ok(ObjectKeyMap(entries))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

fn unquote_object_keys(text: Vec<u8>) -> Vec<u8> {
    let mark = OBJECT_KEY_MARK_ESCAPED;
    if !text.windows(mark.len()).any(|window| window == mark) {
        return text;
    }
    rewrite_strings(&text, |string| {
        let inner = string.strip_prefix(mark)?;
        let mut key = vec![b'{'];
        let mut escaped = false;
        for &byte in inner.strip_suffix(b"\"")? {
            escaped = byte == b'\\' && !escaped;
            if !escaped {
                key.push(byte);
            }
        }
        Some(key)
    })
}

fn unquote_numeric_keys(text: &[u8]) -> Vec<u8> {
    rewrite_strings(text, |string| {
        let digits = string.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        let numeric = (1..=18).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
        numeric.then(|| digits.to_vec())
    })
}

/// Replaces keys for which `replace` has another text. `text` is strict JSON without spaces.
fn rewrite_strings(text: &[u8], replace: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.iter().position(|&byte| byte == b'"') {
        let (before, from_quote) = rest.split_at(at);
        out.extend_from_slice(before);
        let (string, after) = from_quote.split_at(string_length(from_quote));
        let is_key = after.first() == Some(&b':');
        match if is_key { replace(string) } else { None } {
            Some(other) => out.extend_from_slice(&other),
            None => out.extend_from_slice(string),
        }
        rest = after;
    }
    out.extend_from_slice(rest);
    out
}

/// Length of the string literal at the start of `text`, both quotes included.
fn string_length(text: &[u8]) -> usize {
    let mut escaped = false;
    for (at, &byte) in text.iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Turns fastjson's dialect into strict JSON.
fn to_strict(text: &[u8]) -> Result<Vec<u8>, JsonError> {
    let mut reader = DialectReader { text, at: 0, out: Vec::with_capacity(text.len() + 64) };
    reader.value(0)?;
    reader.blanks();
    match reader.peek() {
        None => Ok(reader.out),
        Some(_) => Err(reader.error("the end")),
    }
}

struct DialectReader<'a> {
    text: &'a [u8],
    at: usize,
    out: Vec<u8>,
}

impl<'a> DialectReader<'a> {
    fn error(&self, expected: &str) -> JsonError {
        JsonError(format!("expected {expected} at byte {}", self.at))
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        self.blanks();
        let found = self.peek() == Some(byte);
        if found {
            self.at += 1;
            self.out.push(byte);
        }
        found
    }

    fn value(&mut self, depth: usize) -> Result<(), JsonError> {
        if depth > MAX_DEPTH {
            return Err(self.error("less nesting"));
        }
        self.blanks();
        match self.peek() {
            Some(b'{') => self.members(b'}', depth),
            Some(b'[') => self.members(b']', depth),
            Some(b'"' | b'\'') => self.string(),
            Some(_) => {
                let word = self.word()?;
                self.out.extend_from_slice(word);
                Ok(())
            }
            None => Err(self.error("a value")),
        }
    }

    fn members(&mut self, end: u8, depth: usize) -> Result<(), JsonError> {
        self.at += 1;
        self.out.push(if end == b'}' { b'{' } else { b'[' });
        if self.take(end) {
            return Ok(());
        }
        loop {
            if end == b'}' {
                self.key(depth)?;
                if !self.take(b':') {
                    return Err(self.error("':'"));
                }
            }
            self.value(depth + 1)?;
            if self.take(end) {
                return Ok(());
            }
            if !self.take(b',') {
                return Err(self.error("',' or the end of the object or list"));
            }
        }
    }

    fn key(&mut self, depth: usize) -> Result<(), JsonError> {
        self.blanks();
        match self.peek() {
            Some(b'"' | b'\'') => self.string(),
            Some(b'{') => {
                let outer = std::mem::take(&mut self.out);
                self.value(depth + 1)?;
                let key = std::mem::replace(&mut self.out, outer);
                self.quoted(&key)
            }
            _ => {
                let word = self.word()?;
                self.quoted(word)
            }
        }
    }

    fn quoted(&mut self, text: &[u8]) -> Result<(), JsonError> {
        let text = std::str::from_utf8(text).map_err(|_| self.error("UTF-8"))?;
        let text = serde_json::to_vec(text).map_err(|_| self.error("text"))?;
        self.out.extend_from_slice(&text);
        Ok(())
    }

    /// A number, `true`, `null` or an unquoted key.
    fn word(&mut self) -> Result<&'a [u8], JsonError> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let in_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-._$".contains(byte);
        let length = rest.iter().take_while(|byte| in_word(byte)).count();
        if length == 0 {
            return Err(self.error("a value or key"));
        }
        self.at += length;
        Ok(rest.get(..length).unwrap_or_default())
    }

    /// A string in either kind of quotes, written in double ones.
    fn string(&mut self) -> Result<(), JsonError> {
        let Some(quote) = self.peek() else { return Err(self.error("a string")) };
        self.at += 1;
        self.out.push(b'"');
        loop {
            let byte = self.peek().ok_or_else(|| self.error("the end of a string"))?;
            self.at += 1;
            match byte {
                b'\\' => {
                    let next = self.peek().ok_or_else(|| self.error("an escape"))?;
                    self.at += 1;
                    match next {
                        b'\'' => self.out.push(b'\''),
                        b'x' => self.out.extend_from_slice(b"\\u00"),
                        _ => self.out.extend_from_slice(&[b'\\', next]),
                    }
                }
                _ if byte == quote => break,
                b'"' => self.out.extend_from_slice(b"\\\""),
                _ => self.out.push(byte),
            }
        }
        self.out.push(b'"');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    struct Key {
        topic: String,
        id: i32,
    }

    fn check(text: &str, expected: Value) {
        assert_eq!(from_slice::<Value>(text.as_bytes()), Ok(expected), "{text}");
    }

    #[test]
    fn reads_the_dialect() {
        check(
            r#"{0:"a",1:{"b":[1,-2.5e3,true,null]}}"#,
            json!({"0": "a", "1": {"b": [1, -2500.0, true, null]}}),
        );
        check(
            r#"{ 'a' : 'it\'s "so"' , b:{} , c:[] }"#,
            json!({"a": "it's \"so\"", "b": {}, "c": []}),
        );
        check(r#"{{"topic":"t","id":1}:5}"#, json!({"{\"topic\":\"t\",\"id\":1}": 5}));
        check(r#"["\u00e9\n"]"#, json!(["é\n"]));
    }

    #[test]
    fn wrong_text_is_refused_with_its_place() {
        let check = |text: &str, part: &str| {
            let error = from_slice::<Value>(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        };
        check("{0:1", "',' or the end of the object or list at byte 4");
        check("{0 1}", "':' at byte 3");
        check("{0:1} x", "the end at byte 6");
        check("{0:'a", "the end of a string at byte 5");
        check(&"{0:".repeat(100), "less nesting");
        check("", "EOF");
    }

    #[test]
    fn object_keys_survive_the_way() {
        let key = |topic: &str, id| Key { topic: topic.into(), id };
        let map: ObjectKeyMap<Key, i32> =
            [(key("a", 1), 1), (key("q\"\\x", 2), 2)].into_iter().collect();
        let text = to_vec(&json!({ "table": map })).unwrap();
        let start = r#"{"table":{{"topic":"a","id":1}:1,{"#;
        assert!(text.starts_with(start.as_bytes()), "{}", String::from_utf8_lossy(&text));
        #[derive(Deserialize)]
        struct Body {
            table: ObjectKeyMap<Key, i32>,
        }
        assert_eq!(from_slice::<Body>(&text).unwrap().table, map);
    }

    #[test]
    fn numeric_keys_lose_their_quotes_for_old_clients() {
        let text = to_vec_fastjson(&json!({"0": "1", "a": {"12": ["3"]}})).unwrap();
        assert_eq!(text, br#"{0:"1","a":{12:["3"]}}"#);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[{}\\[\\]:,'\"a0\\\\ ]{0,40}") {
            let _ = from_slice::<Value>(text.as_bytes());
        }

        #[test]
        fn strict_text_is_unchanged_in_meaning(text in "\\PC{0,20}", number in any::<i64>()) {
            let value = json!({"t": text, "n": [number], "o": {"x": null}});
            let written = serde_json::to_vec(&value).unwrap();
            let strict = to_strict(&written).unwrap();
            prop_assert_eq!(serde_json::from_slice::<Value>(&strict).unwrap(), value);
        }
    }
}
