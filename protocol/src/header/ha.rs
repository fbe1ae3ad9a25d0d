//! What a slave and its master tell each other.

use super::header;

header! {
    /// Question and answer of `EXCHANGE_BROKER_HA_INFO`.
    pub struct ExchangeHaInfoHeader {
        master_ha_address: Option<String> = "masterHaAddress",
        master_flush_offset: Option<i64> = "masterFlushOffset",
        master_address: Option<String> = "masterAddress",
    }
}
