//! A client as its heartbeats describe it.

use protocol::body::Connection;
use protocol::command::{LanguageCode, RemotingCommand};
use remoting::Channel;
use tokio::time::Instant;

/// One client of a group, on one connection.
#[derive(Debug, Clone)]
pub(crate) struct ClientChannel {
    pub(crate) channel: Channel,
    pub(crate) client_id: String,
    pub(crate) language: LanguageCode,
    /// `MQVersion` ordinal of the client.
    pub(crate) version: i32,
    /// When its last heartbeat came.
    pub(crate) last_heartbeat: Instant,
}

impl ClientChannel {
    pub(crate) fn new(channel: &Channel, client_id: &str, request: &RemotingCommand) -> Self {
        Self {
            channel: channel.clone(),
            client_id: client_id.to_owned(),
            language: request.language,
            version: request.version,
            last_heartbeat: Instant::now(),
        }
    }

    pub(crate) fn connection(&self) -> Connection {
        Connection {
            client_addr: self.channel.remote_addr().to_string(),
            client_id: self.client_id.clone(),
            language: self.language.name().to_owned(),
            version: self.version,
        }
    }
}
