//! Administration of one broker.

use super::header;

header! {
    /// Answer to `GET_BROKER_CONFIG`.
    pub struct GetBrokerConfigResponseHeader {
        /// A data version as JSON.
        version: String = "version",
    }

    /// `VIEW_BROKER_STATS_DATA`.
    pub struct ViewBrokerStatsDataRequestHeader {
        stats_name: String = "statsName",
        stats_key: String = "statsKey",
    }

    /// `GET_BROKER_CONSUME_STATS`.
    pub struct GetBrokerConsumeStatsRequestHeader {
        is_order: bool = "isOrder" or false,
    }
}
