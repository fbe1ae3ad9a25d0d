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

/// Connections to nobody in particular.
#[cfg(test)]
pub(crate) async fn test_channels(count: usize) -> Vec<Channel> {
    use std::sync::Arc;

    use remoting::{Limits, NoRequests, RemotingClient, RemotingMetrics, Server, ServerConfig};

    let metrics = RemotingMetrics::default();
    let listen = vec!["127.0.0.1:0".parse().expect("an address")];
    let config = ServerConfig { listen, limits: Limits::default() };
    let server = Server::start(config, Arc::new(NoRequests), metrics.clone()).expect("a port");
    let address = server.addresses()[0].to_string();
    let mut channels = Vec::new();
    for _ in 0..count {
        let client = RemotingClient::new(Limits::default(), Arc::new(NoRequests), metrics.clone());
        channels.push(client.channel(&address).await.expect("a connection"));
    }
    channels
}
