//! Why a command failed, and what to do about it.

use client::{ClientError, SendError};
use thiserror::Error;

#[derive(Debug, Error)]
pub(crate) enum RmqError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Send(#[from] SendError),
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
        "topic {topic} is at no broker: see rmq topic list, or make it with rmq topic create {topic}"
    )]
    NoTopic { topic: String },
    #[error(
        "group {group} is at no broker: see rmq group list, or make it with rmq group create {group}"
    )]
    NoGroup { group: String },
    #[error("no cluster is named {cluster}: there is {known}")]
    NoCluster { cluster: String, known: String },
    #[error("no broker is named {broker}: there is {known}; an address (host:port) will do, too")]
    NoBroker { broker: String, known: String },
    #[error(
        "no message of topic {topic} has this {what}: it may not be indexed yet, or its time is over"
    )]
    NoMessage { topic: String, what: &'static str },
    #[error(
        "{id} does not say where the message is, as the id does that its sender gave it: name the \
         topic, too: rmq message view {id} --topic TOPIC"
    )]
    NotOffsetId { id: String },
    #[error("{failed} of {all} brokers failed, see above")]
    SomeBrokers { failed: usize, all: usize },
    #[error("topic {topic} was made, but name servers do not know it yet: see rmq route {topic}")]
    NoRouteYet { topic: String },
}
