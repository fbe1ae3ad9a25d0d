//! Which messages a reader wants.

use std::collections::HashSet;

/// Chooses messages, first by what the consume queue says, then by the record itself.
pub trait MessageFilter {
    /// Whether a message with this tags code may be wanted. The code is a hash: another tag may
    /// have the same, so consumers compare the tag itself again.
    fn matches_tags_code(&self, tags_code: i64) -> bool;

    /// Whether the record is wanted; asked only after the tags code matched.
    fn matches_record(&self, _record: &[u8]) -> bool {
        true
    }
}

/// Wants every message.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllMessages;

impl MessageFilter for AllMessages {
    fn matches_tags_code(&self, _tags_code: i64) -> bool {
        true
    }
}

/// Wants messages whose tag has one of these hashes.
#[derive(Debug, Clone, Default)]
pub struct TagFilter {
    codes: HashSet<i32>,
}

impl TagFilter {
    /// A filter for these hashes (a subscription's `codeSet`).
    #[must_use]
    pub fn new(codes: impl IntoIterator<Item = i32>) -> Self {
        Self { codes: codes.into_iter().collect() }
    }
}

impl MessageFilter for TagFilter {
    fn matches_tags_code(&self, tags_code: i64) -> bool {
        // As in Java the code is narrowed to its low half, whatever the upper one says.
        let [_, _, _, _, low @ ..] = tags_code.to_be_bytes();
        self.codes.contains(&i32::from_be_bytes(low))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::tag;

    #[test]
    fn tags_match_by_hash() {
        let filter = TagFilter::new([tag::java_hash("TagA"), i32::MIN]);
        assert!(filter.matches_tags_code(tag::tags_code(Some("TagA"))));
        assert!(filter.matches_tags_code(i64::from(i32::MIN)));
        assert!(!filter.matches_tags_code(tag::tags_code(Some("TagB"))));
        assert!(!filter.matches_tags_code(0));
        assert!(filter.matches_record(b""));
        assert!(AllMessages.matches_tags_code(7));
    }
}
