//! The string map in which every typed header travels.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// Fields that a frame may have. Java sends a few dozen. A field takes several times its bytes, and
/// who sets or looks for one compares it with all others.
pub const FIELDS_MAX: usize = 1_024;

/// Extension fields of a frame, in the order in which they were read or added.
///
/// A frame has at most a few dozen, so a scan of a small vector beats a hash map, and the order of
/// the writer is kept. When a key occurs twice the last one counts, as in Java. All texts lie in
/// one buffer: a message has some fifteen fields, and as many pairs of strings would be most of
/// what a broker allocates for it.
#[derive(Clone, Default)]
pub struct ExtFields {
    text: String,
    fields: Vec<(Key, Range<usize>)>,
}

#[derive(Clone)]
enum Key {
    Static(&'static str),
    Text(Range<usize>),
}

impl ExtFields {
    /// An empty map.
    pub const fn new() -> Self {
        Self { text: String::new(), fields: Vec::new() }
    }

    /// Room for a header of this many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        const FIELD_BYTES: usize = 16;
        Self {
            text: String::with_capacity(bytes),
            fields: Vec::with_capacity(bytes.div_ceil(FIELD_BYTES).min(16)),
        }
    }

    fn text(&self, range: &Range<usize>) -> &str {
        self.text.get(range.clone()).unwrap_or_default()
    }

    fn key<'a>(&'a self, key: &'a Key) -> &'a str {
        match key {
            Key::Static(key) => key,
            Key::Text(range) => self.text(range),
        }
    }

    fn add(&mut self, text: &str) -> Range<usize> {
        let start = self.text.len();
        self.text.push_str(text);
        start..self.text.len()
    }

    /// The value of `key`, if present.
    pub fn get(&self, key: &str) -> Option<&str> {
        let field = self.fields.iter().rev().find(|(k, _)| self.key(k) == key);
        field.map(|(_, value)| self.text(value))
    }

    /// Sets `key`, replacing an earlier value.
    pub fn insert(&mut self, key: impl Into<Cow<'static, str>>, value: impl AsRef<str>) {
        let key = key.into();
        match self.fields.iter().rposition(|(k, _)| self.key(k) == key) {
            Some(at) => {
                let value = self.add(value.as_ref());
                if let Some(field) = self.fields.get_mut(at) {
                    field.1 = value;
                }
            }
            None => self.push(key, value),
        }
    }

    /// Appends a field without looking for an earlier one: for encoders, whose keys differ, and
    /// decoders, for which the last one counts.
    pub fn push(&mut self, key: impl Into<Cow<'static, str>>, value: impl AsRef<str>) {
        let key = match key.into() {
            Cow::Borrowed(key) => Key::Static(key),
            Cow::Owned(key) => Key::Text(self.add(&key)),
        };
        let value = self.add(value.as_ref());
        self.fields.push((key, value));
    }

    /// As [`Self::push`], with a key that need not outlive the call.
    pub(crate) fn push_copied(&mut self, key: &str, value: &str) {
        let key = Key::Text(self.add(key));
        let value = self.add(value);
        self.fields.push((key, value));
    }

    /// Appends a field whose value `write` appends to the text that it gets; none when it returns
    /// false.
    pub(crate) fn push_with(&mut self, key: &'static str, write: impl FnOnce(&mut String) -> bool) {
        let start = self.text.len();
        if write(&mut self.text) {
            self.fields.push((Key::Static(key), start..self.text.len()));
        }
    }

    /// Removes `key` and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<String> {
        let at = self.fields.iter().rposition(|(k, _)| self.key(k) == key)?;
        let (_, value) = self.fields.remove(at);
        Some(self.text(&value).to_owned())
    }

    /// All fields in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(key, value)| (self.key(key), self.text(value)))
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }
}

impl PartialEq for ExtFields {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for ExtFields {}

impl fmt::Debug for ExtFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Into<Cow<'static, str>>, V: AsRef<str>> FromIterator<(K, V)> for ExtFields {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(iter: T) -> Self {
        let mut fields = Self::new();
        for (key, value) in iter {
            fields.insert(key, value);
        }
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_two_equal_keys_counts() {
        let mut fields = ExtFields::new();
        fields.push("a", "1");
        fields.push("a", "2");
        assert_eq!(fields.get("a"), Some("2"));
        fields.insert("b", "3");
        fields.insert("b", "4");
        assert_eq!((fields.len(), fields.get("b")), (3, Some("4")));
        assert_eq!(fields.remove("b").as_deref(), Some("4"));
        assert_eq!(fields.get("b"), None);
    }
}
