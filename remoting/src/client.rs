//! The connecting end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use protocol::command::RemotingCommand;
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;

use crate::connection::{self, Peer, Shared};
use crate::{Channel, Limits, Processor, RemotingError, RemotingMetrics};

/// One connection to each address, made when first needed and again after it was lost.
pub struct RemotingClient<P> {
    shared: Arc<Shared<P>>,
    slots: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Option<Channel>>>>>,
    tasks: TaskTracker,
}

impl<P: Processor> RemotingClient<P> {
    /// A client whose peers' requests `processor` answers. Needs no connection yet.
    pub fn new(limits: Limits, processor: Arc<P>, metrics: RemotingMetrics) -> Self {
        Self {
            shared: Shared::new(processor, limits, metrics),
            slots: Mutex::new(HashMap::new()),
            tasks: TaskTracker::new(),
        }
    }

    /// Sends a request to `addr` (`host:port`) and waits for its answer, connecting first when
    /// there is no connection. `timeout` covers all of it.
    ///
    /// # Errors
    /// When there is no connection or no answer in time.
    pub async fn invoke(
        &self,
        addr: &str,
        request: RemotingCommand,
        timeout: Duration,
    ) -> Result<RemotingCommand, RemotingError> {
        if let Some(channel) = self.open_channel(addr) {
            return channel.invoke(request, timeout).await;
        }
        let exchange = async { self.channel(addr).await?.invoke(request, timeout).await };
        tokio::time::timeout(timeout, exchange)
            .await
            .unwrap_or_else(|_| Err(RemotingError::Timeout { addr: addr.to_owned(), timeout }))
    }

    /// Sends a request to `addr` that wants no answer.
    ///
    /// # Errors
    /// When there is no connection.
    pub async fn oneway(&self, addr: &str, request: RemotingCommand) -> Result<(), RemotingError> {
        let channel = match self.open_channel(addr) {
            Some(channel) => channel,
            None => self.channel(addr).await?,
        };
        channel.send(request.oneway()).await
    }

    /// The connection to `addr`, made now if there is none.
    ///
    /// # Errors
    /// When the address cannot be resolved or connected to in time.
    pub async fn channel(&self, addr: &str) -> Result<Channel, RemotingError> {
        let slot = Arc::clone(self.slots.lock().entry(addr.to_owned()).or_default());
        let mut slot = slot.lock().await;
        if let Some(channel) = slot.as_ref().filter(|channel| !channel.is_closed()) {
            return Ok(channel.clone());
        }
        let channel = self.connect(addr).await?;
        *slot = Some(channel.clone());
        Ok(channel)
    }

    /// The connection to `addr` if there is one and nobody is about to replace it.
    fn open_channel(&self, addr: &str) -> Option<Channel> {
        let slots = self.slots.lock();
        let slot = slots.get(addr)?.try_lock().ok()?;
        slot.as_ref().filter(|channel| !channel.is_closed()).cloned()
    }

    /// Makes a new connection to `addr` for the next request. What waits for an answer on the one
    /// before still gets it, until the peer ends that.
    pub fn renew(&self, addr: &str) {
        self.slots.lock().remove(addr);
    }

    /// Ends the connection to `addr` and forgets the address.
    pub fn forget(&self, addr: &str) {
        let slot = self.slots.lock().remove(addr);
        if let Some(channel) = slot.and_then(|slot| slot.try_lock().ok()?.take()) {
            channel.close();
        }
    }

    /// Ends every connection.
    pub async fn shutdown(&self) {
        self.shared.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn connect(&self, addr: &str) -> Result<Channel, RemotingError> {
        let timeout = self.shared.limits.connect_timeout;
        let stream = tokio::time::timeout(timeout, TcpStream::connect(addr))
            .await
            .map_err(|_| RemotingError::ConnectTimeout { addr: addr.to_owned(), timeout })?
            .and_then(|stream| Ok((stream.peer_addr()?, stream.local_addr()?.port(), stream)));
        let connect_error = |source| RemotingError::Connect { addr: addr.to_owned(), source };
        let (remote, local_port, stream) = stream.map_err(connect_error)?;
        let _ = stream.set_nodelay(true);
        let peer = Peer { addr: addr.to_owned(), remote, local_port };
        let (channel, run) = connection::start(stream, peer, Arc::clone(&self.shared));
        self.tasks.spawn(run);
        Ok(channel)
    }
}
