//! Bits of the `sysFlag` fields (Java `MessageSysFlag`, `PullSysFlag`, `TopicSysFlag`).

/// Body is compressed; the kind is in [`COMPRESSION_TYPE_MASK`].
pub const COMPRESSED: i32 = 0x1;
/// Set by the broker when the topic's filter type is MULTI_TAG.
pub const MULTI_TAGS: i32 = 0x2;
/// Mask of the transaction state.
pub const TRANSACTION_MASK: i32 = 0xC;
/// Half message.
pub const TRANSACTION_PREPARED: i32 = 0x4;
/// Committed message.
pub const TRANSACTION_COMMIT: i32 = 0x8;
/// Rolled back message.
pub const TRANSACTION_ROLLBACK: i32 = 0xC;
/// `bornHost` holds an IPv6 address.
pub const BORN_HOST_V6: i32 = 0x10;
/// `storeHost` holds an IPv6 address.
pub const STORE_HOST_V6: i32 = 0x20;
/// The record is a batch which the client must unwrap.
pub const NEED_UNWRAP: i32 = 0x40;
/// The record is an inner batch (topics of kind BatchCQ).
pub const INNER_BATCH: i32 = 0x80;
/// Mask of the compression kind.
pub const COMPRESSION_TYPE_MASK: i32 = 0x700;
/// LZ4 frame format.
pub const COMPRESSION_LZ4: i32 = 0x100;
/// Zstandard.
pub const COMPRESSION_ZSTD: i32 = 0x200;
/// Zlib. Old clients leave the kind 0 and mean zlib as well.
pub const COMPRESSION_ZLIB: i32 = 0x300;

/// Bits of a pull request's `sysFlag`.
pub mod pull {
    /// The request's commitOffset is to be stored.
    pub const COMMIT_OFFSET: i32 = 0x1;
    /// The broker may hold the request until there is a message.
    pub const SUSPEND: i32 = 0x2;
    /// The request carries its own subscription.
    pub const SUBSCRIPTION: i32 = 0x4;
    /// Filter by class (no longer supported by any broker).
    pub const CLASS_FILTER: i32 = 0x8;
    /// Pull of a lite consumer.
    pub const LITE_PULL: i32 = 0x10;
}

/// Bits of a topic's `topicSysFlag`.
pub mod topic {
    /// The topic belongs to a unit.
    pub const UNIT: i32 = 0x1;
    /// The topic has a subscription of another unit.
    pub const UNIT_SUBSCRIPTION: i32 = 0x2;
}

/// The transaction bits of a message's flag: 0, prepared, commit or rollback.
#[must_use]
pub const fn transaction(sys_flag: i32) -> i32 {
    sys_flag & TRANSACTION_MASK
}

/// `sys_flag` with its transaction bits replaced.
#[must_use]
pub const fn with_transaction(sys_flag: i32, transaction: i32) -> i32 {
    (sys_flag & !TRANSACTION_MASK) | (transaction & TRANSACTION_MASK)
}

/// Whether all of `bits` are set.
#[must_use]
pub const fn has(sys_flag: i32, bits: i32) -> bool {
    sys_flag & bits == bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_bits_are_replaced_alone() {
        let flag = COMPRESSED | COMPRESSION_ZLIB | TRANSACTION_PREPARED;
        let committed = with_transaction(flag, TRANSACTION_COMMIT);
        assert_eq!(transaction(committed), TRANSACTION_COMMIT);
        assert_eq!(committed & !TRANSACTION_MASK, COMPRESSED | COMPRESSION_ZLIB);
        assert_eq!(transaction(with_transaction(committed, 0)), 0);
        assert!(has(committed, COMPRESSED));
        assert!(!has(TRANSACTION_COMMIT, TRANSACTION_ROLLBACK));
    }
}
