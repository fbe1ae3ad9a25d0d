//! Replication connections: a master's to its slaves, and a slave's to its master.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use replication::replica::{Link, ReplicaInput};
use thiserror::Error;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::ReplicationDriver;
use super::wire::{self, Said, WireError};

/// Slaves that may be connected at a time, with those that a broken network has left behind.
const SLAVES_MAX: usize = 64;
/// Frames that wait for one peer at most, streamed data not counted.
const OUTGOING_MAX: usize = 1024;
/// A slave says hello within this.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A peer that takes nothing for so long is gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// A master that has nothing to send says so this often.
const IDLE_INTERVAL: Duration = Duration::from_millis(300);
/// Slaves hear of a higher confirm offset with the next data, or after this.
const CONFIRM_DELAY: Duration = Duration::from_millis(5);
/// Pause after a failed accept, which mostly means that file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const READ_BUFFER_BYTES: usize = 64 << 10;

/// Why a connection ended.
#[derive(Debug, Error)]
pub(super) enum LinkError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("no hello within {HELLO_TIMEOUT:?}")]
    NoHello,
    #[error("the peer takes nothing")]
    Stuck,
    #[error("no connection within {CONNECT_TIMEOUT:?}")]
    NotConnected,
    #[error("the slave is of the group {theirs}, this one is {ours}")]
    OtherGroup { ours: String, theirs: String },
    #[error("a frame that makes no sense here")]
    Unexpected,
}

/// What a connection is to send.
pub(super) enum Out {
    Frame(Bytes),
    /// The log from here on, for good.
    Stream(i64),
}

/// The driver's end of a connection.
pub(super) struct LinkHandle {
    out: mpsc::Sender<Out>,
    stop: CancellationToken,
}

impl LinkHandle {
    pub(super) fn new() -> (Self, mpsc::Receiver<Out>) {
        let (out, receiver) = mpsc::channel(OUTGOING_MAX);
        (Self { out, stop: CancellationToken::new() }, receiver)
    }

    pub(super) fn stopped(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// A peer that does not take what is said is given up: it connects again.
    pub(super) fn send(&self, out: Out) {
        if self.out.try_send(out).is_err() {
            self.stop.cancel();
        }
    }

    pub(super) fn close(&self) {
        self.stop.cancel();
    }
}

/// Accepts slaves until `stop`.
pub(super) async fn accept(
    driver: Arc<ReplicationDriver>,
    listener: TcpListener,
    stop: CancellationToken,
) {
    let slaves = Arc::new(Semaphore::new(SLAVES_MAX));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a slave");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&slaves).try_acquire_owned() else {
            tracing::warn!(%peer, "too many replication connections");
            continue;
        };
        let (driver, stop) = (Arc::clone(&driver), stop.clone());
        driver.clone().spawn(async move {
            let served = stop.run_until_cancelled(serve_slave(&driver, stream, peer)).await;
            if let Some(Err(error)) = served {
                tracing::warn!(%peer, %error, "the connection of a slave has ended");
            }
            drop(permit);
        });
    }
}

async fn serve_slave(
    driver: &Arc<ReplicationDriver>,
    stream: TcpStream,
    peer: SocketAddr,
) -> Result<(), LinkError> {
    let (mut reading, writing) = split(stream)?;
    let hello = timeout(HELLO_TIMEOUT, wire::read(&mut reading));
    let Some(said) = hello.await.map_err(|_| LinkError::NoHello)?? else { return Ok(()) };
    let Said::SlaveHello { group, hello } = said else { return Err(LinkError::Unexpected) };
    let ours = &driver.identity().broker;
    if group != *ours {
        return Err(LinkError::OtherGroup { ours: ours.clone(), theirs: group });
    }
    tracing::info!(%peer, replica = hello.id, end = hello.end, "a slave has connected");
    let (handle, out) = LinkHandle::new();
    let stop = handle.stopped();
    let link = driver.add_link(handle);
    driver.handle(ReplicaInput::SlaveHello { link, hello });
    let outcome = tokio::select! {
        () = stop.cancelled() => Ok(()),
        outcome = hear_slave(driver, link, reading) => outcome,
        outcome = tell(driver, writing, out) => outcome,
    };
    driver.remove_link(link);
    driver.handle(ReplicaInput::SlaveGone { link });
    outcome
}

fn split(stream: TcpStream) -> std::io::Result<(BufReader<OwnedReadHalf>, OwnedWriteHalf)> {
    stream.set_nodelay(true)?;
    let (reading, writing) = stream.into_split();
    Ok((BufReader::with_capacity(READ_BUFFER_BYTES, reading), writing))
}

async fn hear_slave(
    driver: &ReplicationDriver,
    link: Link,
    mut reading: BufReader<OwnedReadHalf>,
) -> Result<(), LinkError> {
    while let Some(said) = wire::read(&mut reading).await? {
        let Said::Ack(ack) = said else { return Err(LinkError::Unexpected) };
        driver.handle(ReplicaInput::SlaveAck { link, ack });
    }
    Ok(())
}

/// Sends what the driver says, for as long as it says anything.
async fn tell(
    driver: &ReplicationDriver,
    mut writing: OwnedWriteHalf,
    mut out: mpsc::Receiver<Out>,
) -> Result<(), LinkError> {
    while let Some(next) = out.recv().await {
        match next {
            Out::Frame(frame) => write(&mut writing, &[frame]).await?,
            Out::Stream(from) => return stream(driver, &mut writing, from).await,
        }
    }
    Ok(())
}

/// Sends the log from an offset on for as long as this broker is master of it.
async fn stream(
    driver: &ReplicationDriver,
    writing: &mut OwnedWriteHalf,
    from: i64,
) -> Result<(), LinkError> {
    let (mut at, mut confirm_told) = (from, -1);
    while let Some(growth) = driver.growth() {
        let mut grown = pin!(growth.next());
        grown.as_mut().enable();
        let Some((mut frame, mut bytes)) = driver.next_frame(at) else { break };
        if bytes.is_empty() {
            let is_told = frame.confirm == confirm_told;
            let pause = if is_told { IDLE_INTERVAL } else { CONFIRM_DELAY };
            if timeout(pause, grown).await.is_ok() {
                continue;
            }
            // Made anew: a frame's stamp is the time of its sending.
            let Some(later) = driver.next_frame(at) else { break };
            (frame, bytes) = later;
        }
        confirm_told = frame.confirm;
        at += i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        write(writing, &[wire::data_head(&frame, bytes.len()), bytes]).await?;
    }
    Ok(())
}

async fn write(writing: &mut OwnedWriteHalf, parts: &[Bytes]) -> Result<(), LinkError> {
    for part in parts {
        timeout(WRITE_TIMEOUT, writing.write_all(part)).await.map_err(|_| LinkError::Stuck)??;
    }
    Ok(())
}

/// Connects to a master, and hears it until the connection ends.
pub(super) async fn follow(
    driver: &ReplicationDriver,
    link: Link,
    address: &str,
    out: mpsc::Receiver<Out>,
) -> Result<(), LinkError> {
    let connecting = timeout(CONNECT_TIMEOUT, TcpStream::connect(address));
    let stream = connecting.await.map_err(|_| LinkError::NotConnected)??;
    let (reading, writing) = split(stream)?;
    tokio::select! {
        outcome = hear_master(driver, link, reading) => outcome,
        outcome = tell(driver, writing, out) => outcome,
    }
}

async fn hear_master(
    driver: &ReplicationDriver,
    link: Link,
    mut reading: BufReader<OwnedReadHalf>,
) -> Result<(), LinkError> {
    while let Some(said) = wire::read(&mut reading).await? {
        match said {
            Said::MasterHello(hello) => driver.handle(ReplicaInput::MasterHello { link, hello }),
            Said::Data { frame, bytes } => driver.handle_data(link, frame, &bytes),
            Said::SlaveHello { .. } | Said::Ack(_) => return Err(LinkError::Unexpected),
        }
    }
    Ok(())
}
