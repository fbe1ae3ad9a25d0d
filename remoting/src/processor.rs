//! What answers requests.

use std::future::Future;

use bytes::Bytes;
use protocol::command::RemotingCommand;
use protocol::response_code::ResponseCode;

use crate::Channel;

/// Where a request came from.
#[derive(Clone, Debug)]
pub struct Context {
    /// The connection, also for requests towards the peer.
    pub channel: Channel,
    /// Port on which the peer connected.
    pub local_port: u16,
}

/// An answer, whose body may be in several pieces that are written without being joined first.
#[derive(Clone, Debug)]
pub struct Response {
    pub(crate) command: RemotingCommand,
    pub(crate) parts: Vec<Bytes>,
}

impl Response {
    /// An answer whose body is the pieces in `parts` one after the other.
    pub fn with_parts(command: RemotingCommand, parts: Vec<Bytes>) -> Self {
        Self { command, parts }
    }

    /// The command, without the pieces of the body.
    pub fn command(&self) -> &RemotingCommand {
        &self.command
    }

    /// The whole body, joined.
    pub fn body(&self) -> Bytes {
        if self.parts.is_empty() { self.command.body.clone() } else { self.parts.concat().into() }
    }
}

impl From<RemotingCommand> for Response {
    fn from(command: RemotingCommand) -> Self {
        Self { command, parts: Vec::new() }
    }
}

/// Answers the requests of all connections of one end.
pub trait Processor: Send + Sync + 'static {
    /// Answers one request; `None` when there is nothing to say. The answer to a one-way request is
    /// dropped. Work that blocks a thread must not be done here.
    fn process(
        &self,
        context: Context,
        request: RemotingCommand,
    ) -> impl Future<Output = Option<Response>> + Send;

    /// The connection has begun to work on all requests that it has read, and would now wait. What
    /// is cheaper for many requests together than for each can be done here; it must not take long.
    fn before_wait(&self) {}

    /// A peer connected.
    fn connected(&self, _channel: &Channel) {}

    /// A peer is gone. Called once for each that connected.
    fn disconnected(&self, _channel: &Channel) {}
}

/// The processor of a client to which nobody sends requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRequests;

impl Processor for NoRequests {
    async fn process(&self, _: Context, request: RemotingCommand) -> Option<Response> {
        Some(not_supported(&request).into())
    }
}

/// The answer to a request code that nobody knows, in Java's words.
pub(crate) fn not_supported(request: &RemotingCommand) -> RemotingCommand {
    RemotingCommand::error(
        ResponseCode::REQUEST_CODE_NOT_SUPPORTED,
        format!(" request type {} not supported", request.code),
    )
}
