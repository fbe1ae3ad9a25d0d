//! What can go wrong, and what to do about it.

use std::path::PathBuf;
use std::time::Duration;

use protocol::header::HeaderError;
use protocol::json::JsonError;
use protocol::message::MessageError;
use protocol::message_id::MessageIdError;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use protocol::topic_name::NameError;
use remoting::RemotingError;
use thiserror::Error;

/// Why a name server or broker could not be asked.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum ClientError {
    #[error("no name server given: name at least one as host:port")]
    NoNameServer,
    #[error("{addr:?} is no name server address: it must be host:port, for example 127.0.0.1:9876")]
    NameServerAddress { addr: String },
    #[error(
        "cannot reach name server {addrs}: is it running, and is the address right? ({source})"
    )]
    NameServerUnreachable { addrs: String, source: RemotingError },
    #[error(
        "no route for topic {topic}: create it, or start a broker that creates topics on first \
         use (autoCreateTopicEnable=true)"
    )]
    NoRoute { topic: String },
    #[error("no broker named {broker} is registered at the name server: is it running?")]
    UnknownBroker { broker: String },
    #[error("no broker is registered at the name server: start one, or look at its log")]
    NoBroker,
    #[error("broker {broker} has no master now: wait for one, or look at its replicas")]
    NoMaster { broker: String },
    #[error("{addr} refused {request}: {code}: {remark}")]
    Refused { addr: String, request: RequestCode, code: ResponseCode, remark: String },
    #[error(transparent)]
    Remoting(#[from] RemotingError),
    #[error("{addr} answered {request} with a header that cannot be read: {source}")]
    Header { addr: String, request: RequestCode, source: HeaderError },
    #[error("{addr} answered {request} with a body that cannot be read: {source}")]
    Body { addr: String, request: RequestCode, source: JsonError },
    #[error("{addr} answered with a message that cannot be read: {source}")]
    Message { addr: String, source: MessageError },
    #[error("the body of {request} cannot be written: {source}")]
    Encode { request: RequestCode, source: JsonError },
    #[error("{id} is not the id of a stored message: {source}")]
    MessageId { id: String, source: MessageIdError },
    #[error("{name} is already used by this client: give each its own group")]
    GroupInUse { name: String },
    #[error("the client was shut down")]
    ShutDown,
}

impl ClientError {
    /// The code with which a broker or name server refused, if that is what happened.
    pub fn code(&self) -> Option<ResponseCode> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// Why a message was not even tried to be sent.
#[derive(Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum MessageRefused {
    #[error(transparent)]
    Topic(#[from] NameError),
    #[error("topic {topic} is the system's own: nobody may send to it")]
    SystemTopic { topic: String },
    #[error("the body is empty: brokers do not store that")]
    EmptyBody,
    #[error("the body has {bytes} bytes, more than the {limit} of message_bytes_max")]
    TooLarge { bytes: usize, limit: usize },
    #[error("property {name:?} is the system's own: choose another name")]
    ReservedProperty { name: String },
    #[error("property {name:?} or its value is empty or holds a byte 1 or 2")]
    IllegalProperty { name: String },
    #[error("tag {tag:?} is empty or holds \"||\" or a byte 1 or 2")]
    IllegalTag { tag: String },
    #[error("key {key:?} is empty or holds a blank or a byte 1 or 2")]
    IllegalKey { key: String },
    #[error("the properties have {bytes} bytes, more than the {limit} that a record can hold")]
    PropertiesTooLarge { bytes: usize, limit: usize },
    #[error("delay level {level} is not between 1 and 18")]
    DelayLevel { level: i32 },
    #[error("a batch must have at least one message")]
    EmptyBatch,
    #[error("a batch is for one topic: it has {first} and {other}")]
    BatchTopics { first: String, other: String },
    #[error("a message with a delay or for a retry topic cannot be in a batch: send it alone")]
    BatchKind,
    #[error("a batch either waits for storage or does not: its messages differ")]
    BatchWait,
}

/// Why a message was not sent. Except for [`SendError::Refused`] it may have been stored
/// nevertheless, when only the answer was lost.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum SendError {
    #[error("the message cannot be sent: {0}")]
    Refused(#[from] MessageRefused),
    #[error(
        "topic {topic} has no queue that may be written: give it write permission, or wait for a \
         master of its brokers"
    )]
    NoWritableQueue { topic: String },
    #[error(
        "queue {queue_id} of {topic} at {broker} is not in the route: it may have been removed"
    )]
    NoSuchQueue { topic: String, broker: String, queue_id: i32 },
    #[error("not sent within {timeout:?}: {waiting} sends are under way, slow down")]
    TooManyInFlight { timeout: Duration, waiting: usize },
    #[error("not sent after {attempts} attempts in {elapsed:?}; the last: {last}")]
    Failed { attempts: u32, elapsed: Duration, last: Box<ClientError> },
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Why a consumer did not start.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum ConsumerError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("a consumer must subscribe to at least one topic")]
    NoSubscription,
    #[error("{name} is {value}: it must be at least 1")]
    TooSmall { name: &'static str, value: i64 },
    #[error("a broadcasting consumer keeps its own offsets: set broadcast_offset_directory")]
    NoOffsetDirectory,
    #[error("the offsets in {file} cannot be read: {source}")]
    OffsetFile { file: PathBuf, source: std::io::Error },
    #[error("{file} holds no offsets: {source}; delete it to begin anew")]
    OffsetFileContent { file: PathBuf, source: JsonError },
    #[error(transparent)]
    Send(#[from] SendError),
    #[error(transparent)]
    Client(#[from] ClientError),
}
