//! Queue locks of orderly consumers.

use super::{MessageQueue, body};

body! {
    /// Body of `LOCK_BATCH_MQ` and `UNLOCK_BATCH_MQ`.
    pub struct LockBatchRequest {
        client_id: String,
        consumer_group: String,
        mq_set: Vec<MessageQueue>,
        only_this_broker: bool,
    }

    /// Answer to `LOCK_BATCH_MQ`: the queues that are held.
    pub struct LockBatchResponse {
        #[serde(rename = "lockOKMQSet")]
        lock_ok_mq_set: Vec<MessageQueue>,
    }
}
