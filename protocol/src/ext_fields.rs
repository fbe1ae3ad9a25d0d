//! The string map in which every typed header travels.

use std::borrow::Cow;
use std::fmt;

/// Extension fields of a frame, in the order in which they were read or added.
///
/// A frame has at most a few dozen, so a scan of a small vector beats a hash map, and the order of
/// the writer is kept. When a key occurs twice the last one counts, as in Java.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ExtFields {
    fields: Vec<(Cow<'static, str>, String)>,
}

impl ExtFields {
    /// An empty map.
    pub const fn new() -> Self {
        Self { fields: Vec::new() }
    }

    /// The value of `key`, if present.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.fields.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// Sets `key`, replacing an earlier value.
    pub fn insert(&mut self, key: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        let key = key.into();
        match self.fields.iter_mut().find(|(k, _)| *k == key) {
            Some((_, old)) => *old = value.into(),
            None => self.fields.push((key, value.into())),
        }
    }

    /// Appends a field without looking for an earlier one: for encoders, whose keys differ.
    pub fn push(&mut self, key: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        self.fields.push((key.into(), value.into()));
    }

    /// Removes `key` and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<String> {
        let at = self.fields.iter().rposition(|(k, _)| k == key)?;
        Some(self.fields.remove(at).1)
    }

    /// All fields in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(k, v)| (k.as_ref(), v.as_str()))
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

impl fmt::Debug for ExtFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Into<Cow<'static, str>>, V: Into<String>> FromIterator<(K, V)> for ExtFields {
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
