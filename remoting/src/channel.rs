//! The handle on a connection.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use protocol::command::RemotingCommand;
use protocol::frame;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{RemotingError, Response};

/// A frame that is ready to be written, in pieces.
pub(crate) type Outgoing = Vec<Bytes>;

/// A connection to a peer. Clones are the same connection; equality is by connection.
#[derive(Clone)]
pub struct Channel {
    inner: Arc<Inner>,
}

struct Inner {
    id: u64,
    addr: String,
    remote: SocketAddr,
    outbound: mpsc::Sender<Outgoing>,
    pending: Mutex<HashMap<i32, oneshot::Sender<RemotingCommand>>>,
    pending_max: usize,
    next_opaque: AtomicI32,
    closed: CancellationToken,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Channel {
    pub(crate) fn new(
        addr: String,
        remote: SocketAddr,
        outbound: mpsc::Sender<Outgoing>,
        pending_max: usize,
    ) -> Self {
        let inner = Inner {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            addr,
            remote,
            outbound,
            pending: Mutex::new(HashMap::new()),
            pending_max,
            next_opaque: AtomicI32::new(0),
            closed: CancellationToken::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// A number that no other connection of this process has; it rises with each.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// The number that the next connection of this process will have at least.
    pub fn next_id() -> u64 {
        NEXT_ID.load(Ordering::Relaxed)
    }

    /// The peer's address.
    pub fn remote_addr(&self) -> SocketAddr {
        self.inner.remote
    }

    /// Ends the connection: what was not written yet is dropped, what waits for an answer fails.
    pub fn close(&self) {
        self.inner.closed.cancel();
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.inner.closed.is_cancelled()
    }

    pub(crate) fn closed(&self) -> &CancellationToken {
        &self.inner.closed
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// When the connection ends or is overloaded, or there is no answer in time.
    pub async fn invoke(
        &self,
        mut request: RemotingCommand,
        timeout: Duration,
    ) -> Result<RemotingCommand, RemotingError> {
        let (sender, receiver) = oneshot::channel();
        let opaque = self.inner.next_opaque.fetch_add(1, Ordering::Relaxed);
        request.opaque = opaque;
        let entry = self.await_answer(opaque, sender)?;
        let exchange = async {
            self.send_frame(self.encode(&request.into())?).await?;
            // At the end of the connection nobody is left who could answer.
            receiver.await.map_err(|_| self.closed_error())
        };
        match tokio::time::timeout(timeout, exchange).await {
            Ok(answer) => {
                // It has been taken out of the table by now.
                if answer.is_ok() {
                    std::mem::forget(entry);
                }
                answer
            }
            Err(_) => Err(RemotingError::Timeout { addr: self.inner.addr.clone(), timeout }),
        }
    }

    /// Sends a request that wants no answer, or an answer that was not given at once. Waits while
    /// the peer is slow to read.
    ///
    /// # Errors
    /// When the connection has ended.
    pub async fn send(&self, command: RemotingCommand) -> Result<(), RemotingError> {
        self.send_frame(self.encode(&self.numbered(command).into())?).await
    }

    /// As [`Self::send`] without waiting.
    ///
    /// # Errors
    /// When the connection has ended, or too many frames wait for this peer.
    pub fn try_send(&self, command: RemotingCommand) -> Result<(), RemotingError> {
        let frame = self.encode(&self.numbered(command).into())?;
        self.inner.outbound.try_send(frame).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => self.overloaded_error(),
            mpsc::error::TrySendError::Closed(_) => self.closed_error(),
        })
    }

    pub(crate) fn encode(&self, response: &Response) -> Result<Outgoing, RemotingError> {
        let Response { command, parts } = response;
        let body: usize = parts.iter().map(Bytes::len).sum();
        let mut head =
            BytesMut::with_capacity(256 + if parts.is_empty() { command.body.len() } else { 0 });
        let written = if parts.is_empty() {
            frame::encode(command, &mut head)
        } else {
            frame::encode_head(command, body, &mut head)
        };
        let frame_error = |source| RemotingError::Frame { addr: self.inner.addr.clone(), source };
        written.map_err(frame_error)?;
        let mut outgoing = Vec::with_capacity(1 + parts.len());
        outgoing.push(head.freeze());
        outgoing.extend(parts.iter().cloned());
        Ok(outgoing)
    }

    pub(crate) async fn send_frame(&self, frame: Outgoing) -> Result<(), RemotingError> {
        self.inner.outbound.send(frame).await.map_err(|_| self.closed_error())
    }

    /// Gives an answer of the peer to the request that waits for it.
    pub(crate) fn answered(&self, response: RemotingCommand) {
        let waiting = self.inner.pending.lock().remove(&response.opaque);
        if let Some(waiting) = waiting {
            // The one who asked may have given up meanwhile.
            let _ = waiting.send(response);
        }
    }

    /// After the end of the connection: nothing will be answered any more.
    pub(crate) fn fail_pending(&self) {
        self.inner.pending.lock().clear();
    }

    fn numbered(&self, mut command: RemotingCommand) -> RemotingCommand {
        if !command.is_response() {
            command.opaque = self.inner.next_opaque.fetch_add(1, Ordering::Relaxed);
        }
        command
    }

    fn await_answer(
        &self,
        opaque: i32,
        sender: oneshot::Sender<RemotingCommand>,
    ) -> Result<PendingEntry<'_>, RemotingError> {
        let mut pending = self.inner.pending.lock();
        // Under the lock: what comes into the table before the end is failed at the end.
        if self.is_closed() {
            return Err(self.closed_error());
        }
        if pending.len() >= self.inner.pending_max {
            return Err(self.overloaded_error());
        }
        pending.insert(opaque, sender);
        Ok(PendingEntry { channel: self, opaque })
    }

    fn closed_error(&self) -> RemotingError {
        RemotingError::Closed { addr: self.inner.addr.clone() }
    }

    fn overloaded_error(&self) -> RemotingError {
        RemotingError::Overloaded { addr: self.inner.addr.clone() }
    }
}

/// Takes a request out of the table of those that wait, however the wait ends.
struct PendingEntry<'a> {
    channel: &'a Channel,
    opaque: i32,
}

impl Drop for PendingEntry<'_> {
    fn drop(&mut self) {
        self.channel.inner.pending.lock().remove(&self.opaque);
    }
}

impl PartialEq for Channel {
    fn eq(&self, other: &Self) -> bool {
        self.inner.id == other.inner.id
    }
}

impl Eq for Channel {}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Channel({} {})", self.inner.id, self.inner.addr)
    }
}
