//! Queue locks of orderly consumers.

use protocol::body::{LockBatchRequest, LockBatchResponse};
use protocol::command::RemotingCommand;

use crate::broker::Broker;
use crate::processor::{json_body, success, with_json};
use crate::refusal::Answer;

pub(crate) fn lock(broker: &Broker, request: &RemotingCommand) -> Answer {
    let body: LockBatchRequest = json_body(request)?;
    let lock_ok_mq_set = broker.locks.lock(&body.consumer_group, &body.client_id, body.mq_set);
    with_json(&LockBatchResponse { lock_ok_mq_set })
}

pub(crate) fn unlock(broker: &Broker, request: &RemotingCommand) -> Answer {
    let body: LockBatchRequest = json_body(request)?;
    broker.locks.unlock(&body.consumer_group, &body.client_id, &body.mq_set);
    success()
}
