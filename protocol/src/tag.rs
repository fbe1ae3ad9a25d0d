//! Tag hashes as the consume queue stores them.

/// `java.lang.String.hashCode`: `h = 31 * h + unit` over UTF-16 units, 32-bit wrapping.
#[must_use]
pub fn java_hash(text: &str) -> i32 {
    let step = |hash: i32, unit: u16| hash.wrapping_mul(31).wrapping_add(i32::from(unit));
    text.encode_utf16().fold(0, step)
}

/// The tags code of a message: the hash of its whole TAGS property, sign-extended; 0 without tags.
#[must_use]
pub fn tags_code(tags: Option<&str>) -> i64 {
    tags.map_or(0, |tags| i64::from(java_hash(tags)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_equal_those_of_java() {
        // Values printed by jshell; the pair "Aa"/"BB" is Java's classic collision.
        let table = [
            ("", 0),
            ("TagA", 2_598_919),
            ("Aa", 2112),
            ("BB", 2112),
            ("polygenelubricants", i32::MIN),
            ("订单", 1_129_459),
            ("\u{1F600}", 1_772_899),
        ];
        for (text, hash) in table {
            assert_eq!(java_hash(text), hash, "{text}");
        }
    }

    #[test]
    fn codes_are_sign_extended() {
        assert_eq!(tags_code(None), 0);
        assert_eq!(tags_code(Some("")), 0);
        assert_eq!(tags_code(Some("polygenelubricants")), i64::from(i32::MIN));
    }
}
