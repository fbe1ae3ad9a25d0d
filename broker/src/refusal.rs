//! Why a request is not done: the code and the remark of the answer.

use protocol::command::RemotingCommand;
use protocol::header::HeaderError;
use protocol::json::JsonError;
use protocol::response_code::ResponseCode;
use protocol::topic_name::NameError;
use remoting::Response;
use store::{PutError, ReadError, StoreError};

/// Appended to refusals that people meet first, as Apache's broker does.
const FAQ: &str = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.";

/// A request that is not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: ResponseCode,
    pub(crate) remark: String,
}

/// What a processor says to a request.
pub(crate) type Answer = Result<Response, Refusal>;

impl Refusal {
    pub(crate) fn new(code: ResponseCode, remark: impl Into<String>) -> Self {
        Self { code, remark: remark.into() }
    }

    pub(crate) fn error(remark: impl Into<String>) -> Self {
        Self::new(ResponseCode::SYSTEM_ERROR, remark)
    }

    pub(crate) fn invalid(remark: impl Into<String>) -> Self {
        Self::new(ResponseCode::INVALID_PARAMETER, remark)
    }

    pub(crate) fn forbidden(remark: impl Into<String>) -> Self {
        Self::new(ResponseCode::NO_PERMISSION, remark)
    }

    pub(crate) fn no_topic(topic: &str) -> Self {
        let remark = format!("topic[{topic}] not exist, apply first please!{FAQ}");
        Self::new(ResponseCode::TOPIC_NOT_EXIST, remark)
    }

    pub(crate) fn no_group(group: &str) -> Self {
        let remark = format!("subscription group [{group}] does not exist{FAQ}");
        Self::new(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    }

    /// A send that came to a broker that is not master, or has too few slaves.
    pub(crate) fn not_master() -> Self {
        let remark = "this broker takes no messages at present: it is not the master of its \
                      brokerName, or fewer replicas than minInSyncReplicas are in sync";
        Self::new(ResponseCode::SERVICE_NOT_AVAILABLE, remark)
    }

    pub(crate) fn response(self) -> RemotingCommand {
        RemotingCommand::error(self.code, self.remark)
    }
}

impl From<HeaderError> for Refusal {
    fn from(error: HeaderError) -> Self {
        Self::error(error.to_string())
    }
}

impl From<JsonError> for Refusal {
    fn from(error: JsonError) -> Self {
        Self::error(error.to_string())
    }
}

impl From<NameError> for Refusal {
    fn from(error: NameError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Self {
        tracing::error!(%error, "cannot read from the store");
        Self::error(error.to_string())
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "the store refuses");
        Self::error(error.to_string())
    }
}

impl From<PutError> for Refusal {
    fn from(error: PutError) -> Self {
        let code = match &error {
            PutError::Illegal(_) => ResponseCode::MESSAGE_ILLEGAL,
            PutError::Busy { .. } => ResponseCode::SYSTEM_BUSY,
            PutError::NotWritable(_)
            | PutError::Failed(_)
            | PutError::Shutdown
            | PutError::Demoted => ResponseCode::SERVICE_NOT_AVAILABLE,
        };
        Self::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_put_that_failed_has_the_code_by_which_clients_decide() {
        let busy =
            PutError::Busy { waiting_bytes: 1, waiting_messages: 1, bytes_max: 1, messages_max: 1 };
        let table = [
            (busy, ResponseCode::SYSTEM_BUSY),
            (PutError::NotWritable("disk".into()), ResponseCode::SERVICE_NOT_AVAILABLE),
            (PutError::Failed("disk".into()), ResponseCode::SERVICE_NOT_AVAILABLE),
            (PutError::Shutdown, ResponseCode::SERVICE_NOT_AVAILABLE),
            (PutError::Demoted, ResponseCode::SERVICE_NOT_AVAILABLE),
        ];
        for (error, code) in table {
            assert_eq!(Refusal::from(error.clone()).code, code, "{error}");
        }
    }
}
