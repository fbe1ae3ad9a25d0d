//! Why a command failed, and what to do about it.

use client::{ClientError, ConsumerError, SendError};
use thiserror::Error;

#[derive(Debug, Error)]
pub(crate) enum RmqError {
    #[error(transparent)]
    Client(ClientError),
    #[error(transparent)]
    Send(SendError),
    #[error(transparent)]
    Consumer(#[from] ConsumerError),
    #[error(
        "no route for topic {topic}: create it with rmq topic create {topic}, or start a broker \
         with autoCreateTopicEnable=true, which creates topics at the first send"
    )]
    NoRoute { topic: String },
    #[error(
        "topic {topic} has no queue that may be written: allow it with rmq topic perm {topic} rw, \
         or see with rmq cluster whether its brokers have masters"
    )]
    NotWritable { topic: String },
    #[error("not exactly {expected} messages came, each once, see above")]
    NotAsExpected { expected: u64 },
    #[error("{came} of {expected} messages came before none came any more: is all of it sent?")]
    TooFew { expected: u64, came: u64 },
    #[error("not everything that was stored came once, in order and whole, see above")]
    NotIntact,
    #[error(
        "the group did not get its {queues} queues within {limit:?}: is another member in it, and \
         do all brokers of the topic run? see rmq cluster"
    )]
    NoQueues { queues: usize, limit: std::time::Duration },
    #[error("{0}")]
    Usage(String),
    #[error("standard output: {0}")]
    Output(#[from] std::io::Error),
    #[error("standard input: {0}")]
    Input(std::io::Error),
    #[error(
        "line {line} of standard input has more than {limit} bytes: no message may be so large"
    )]
    LineTooLong { line: u64, limit: usize },
    #[error("{failed} of {all} messages were not sent")]
    NotAllSent { failed: u64, all: u64 },
    #[error(
        "topic {topic} is at no broker: see rmq topic list, or make it with \
         rmq topic create {topic}"
    )]
    NoTopic { topic: String },
    #[error(
        "group {group} is at no broker: see rmq group list, or make it with \
         rmq group create {group}"
    )]
    NoGroup { group: String },
    #[error("no cluster is named {cluster}: there is {known}")]
    NoCluster { cluster: String, known: String },
    #[error("no broker is named {broker}: there is {known}; an address (host:port) will do, too")]
    NoBroker { broker: String, known: String },
    #[error(
        "no message of topic {topic} has this {what}: it may not be indexed yet, or its time is \
         over"
    )]
    NoMessage { topic: String, what: &'static str },
    #[error(
        "{id} does not say where the message is; if it is the id that the sender gave it, name the \
         topic: rmq message view {id} --topic TOPIC"
    )]
    NotOffsetId { id: String },
    #[error("{failed} of {all} brokers failed, see above")]
    SomeBrokers { failed: usize, all: usize },
    #[error(transparent)]
    Inspect(#[from] store::inspect::InspectError),
    #[error("the store cannot be read: {0}")]
    StoreRead(#[from] store::ReadError),
    #[error("the store has no queue {topic}/{queue}")]
    NoQueue { topic: String, queue: i32 },
    #[error("the store is not quite in order; the next start of its broker repairs it, see above")]
    StoreRepairable,
    #[error("the store is damaged, see above")]
    StoreDamaged,
    #[error("topic {topic} was made, but name servers do not know it yet: see rmq route {topic}")]
    NoRouteYet { topic: String },
}

impl RmqError {
    /// The exit code for it.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::StoreRepairable => 3,
            Self::StoreDamaged => 4,
            _ => 1,
        }
    }
}

impl From<store::StoreError> for RmqError {
    fn from(error: store::StoreError) -> Self {
        Self::Inspect(error.into())
    }
}

impl From<ClientError> for RmqError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::NoRoute { topic } => Self::NoRoute { topic },
            error => Self::Client(error),
        }
    }
}

impl From<SendError> for RmqError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::NoWritableQueue { topic } => Self::NotWritable { topic },
            SendError::Client(error) => error.into(),
            error => Self::Send(error),
        }
    }
}
