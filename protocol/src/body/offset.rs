//! Consumer offsets.

use std::collections::BTreeMap;

use super::{MessageQueue, body};
use crate::data_version::DataVersion;
use crate::json::ObjectKeyMap;

body! {
    /// `consumerOffset.json`, and the answer to `GET_ALL_CONSUMER_OFFSET`: by `topic@group`, then
    /// by queue id.
    pub struct ConsumerOffsetTable {
        data_version: DataVersion,
        offset_table: BTreeMap<String, BTreeMap<i32, i64>>,
    }

    /// Answer to `INVOKE_BROKER_TO_RESET_OFFSET`: the new offsets.
    pub struct ResetOffsetBody {
        offset_table: ObjectKeyMap<MessageQueue, i64>,
    }
}
