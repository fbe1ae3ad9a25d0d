//! Topic and broker permission bits (Java `PermName`).

/// Routes of the topic carry a priority queue (bit 3).
pub const PRIORITY: i32 = 8;
/// Consumers may read.
pub const READ: i32 = 4;
/// Producers may write.
pub const WRITE: i32 = 2;
/// New topics may be created from this one (only `TBW102` has it).
pub const INHERIT: i32 = 1;

/// Whether consumers may read.
#[must_use]
pub const fn is_readable(perm: i32) -> bool {
    perm & READ == READ
}

/// Whether producers may write.
#[must_use]
pub const fn is_writable(perm: i32) -> bool {
    perm & WRITE == WRITE
}

/// Whether topics may be created from a topic with this permission.
#[must_use]
pub const fn is_inherited(perm: i32) -> bool {
    perm & INHERIT == INHERIT
}

/// Whether `perm` is a value that Apache's broker accepts for a topic: 0 to 7.
#[must_use]
pub const fn is_valid(perm: i32) -> bool {
    perm >= 0 && perm < PRIORITY
}

/// The three letters that `mqadmin` prints: `RWX`, `RW-`, `R--`, ...
#[must_use]
pub fn to_letters(perm: i32) -> String {
    let letter = |set: bool, letter: char| if set { letter } else { '-' };
    [
        letter(is_readable(perm), 'R'),
        letter(is_writable(perm), 'W'),
        letter(is_inherited(perm), 'X'),
    ]
    .into_iter()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_and_bits_agree() {
        for (perm, letters) in [(0, "---"), (2, "-W-"), (4, "R--"), (6, "RW-"), (7, "RWX")] {
            assert_eq!(to_letters(perm), letters);
            assert!(is_valid(perm));
        }
        assert!(!is_valid(8));
        assert!(!is_valid(-1));
    }
}
