//! The slave's end of the connection to its master.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use protocol::body::HaClientRuntimeInfo;
use protocol::ha::{TRANSFER_HEADER_BYTES, TransferHeader, TransferHeaderError};
use store::ReplicationError;
use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Instant, timeout};

use crate::broker::Broker;
use crate::clock::now_ms;
use crate::config::FlushDiskType;
use crate::ha::speed::Speed;

/// Bytes that are read from the socket at once.
const READ_BYTES: usize = 1 << 20;
/// Pause before the master is connected to again.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
/// Time for a connection to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Figures of the connection to the master.
#[derive(Debug, Default)]
pub(crate) struct Following {
    is_connected: AtomicBool,
    last_read_ms: AtomicI64,
    last_write_ms: AtomicI64,
    /// End of the master's log when it was last asked.
    master_end: AtomicI64,
    speed: Speed,
}

impl Following {
    pub(crate) fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Acquire)
    }

    /// When the master was last heard of, epoch milliseconds; 0 for never.
    pub(crate) fn last_read_ms(&self) -> i64 {
        self.last_read_ms.load(Ordering::Acquire)
    }

    pub(crate) fn set_master_end(&self, offset: i64) {
        self.master_end.store(offset, Ordering::Release);
    }

    /// Bytes that this slave, whose log ends at `end`, lacked when the master was last asked.
    pub(crate) fn behind(&self, end: i64) -> i64 {
        (self.master_end.load(Ordering::Acquire) - end).max(0)
    }

    pub(crate) fn info(&self) -> HaClientRuntimeInfo {
        HaClientRuntimeInfo {
            transferred_byte_in_second: self.speed.bytes_in_second(),
            last_read_timestamp: self.last_read_ms(),
            last_write_timestamp: self.last_write_ms.load(Ordering::Acquire),
            activated: self.is_connected(),
            ..HaClientRuntimeInfo::default()
        }
    }
}

/// Why a connection ended.
#[derive(Debug, Error)]
enum Ended {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] TransferHeaderError),
    #[error(transparent)]
    Log(#[from] ReplicationError),
    #[error("it sends what lies at {offset}, but this log ends at {end}")]
    OtherOffset { offset: i64, end: i64 },
    #[error("it said nothing for {0:?}")]
    Silent(Duration),
    #[error("it took nothing for {0:?}")]
    Stuck(Duration),
    #[error("this slave's log was not flushed within {0:?}")]
    NotFlushed(Duration),
    #[error("the master is somewhere else now")]
    Moved,
}

/// Follows the master until it is dropped.
pub(crate) async fn follow(broker: Arc<Broker>) {
    let mut master = broker.ha.master();
    let mut last_error = String::new();
    loop {
        let known = master.wait_for(|master| !master.ha_address.is_empty()).await;
        let Ok(address) = known.map(|master| master.ha_address.clone()) else { return };
        let connecting = timeout(CONNECT_TIMEOUT, TcpStream::connect(&address)).await;
        let connected = connecting.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let ended = match connected {
            Ok(stream) => {
                let moved = async {
                    let _ = master.wait_for(|master| master.ha_address != address).await;
                    Ended::Moved
                };
                let ended = tokio::select! {
                    ended = Connection::run(&broker, stream) => ended,
                    ended = moved => ended,
                };
                if broker.ha.following.is_connected.swap(false, Ordering::AcqRel) {
                    last_error.clear();
                }
                ended
            }
            Err(error) => error.into(),
        };
        let text = ended.to_string();
        if last_error != text {
            tracing::warn!(address, reason = text, "the master's log does not come, trying again");
            last_error = text;
        }
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

/// A connection to the master.
struct Connection<'a> {
    broker: &'a Arc<Broker>,
    /// Where the next bytes to be appended lie: the end of the log, unless it is empty.
    at: i64,
    /// Those of them that have come but are not yet a whole record.
    rest: BytesMut,
    /// Bytes of the frame at hand that have not come yet.
    frame_rest: usize,
    /// What was reported last.
    reported: i64,
}

impl Connection<'_> {
    async fn run(broker: &Arc<Broker>, stream: TcpStream) -> Ended {
        let _ = stream.set_nodelay(true);
        let (reader, writer) = stream.into_split();
        let at = broker.store.log_end();
        let rest = BytesMut::new();
        let mut connection = Connection { broker, at, rest, frame_rest: 0, reported: -1 };
        connection.exchange(reader, writer).await.err().unwrap_or(Ended::Moved)
    }

    async fn exchange(
        &mut self,
        mut reader: OwnedReadHalf,
        mut writer: OwnedWriteHalf,
    ) -> Result<(), Ended> {
        self.wait_for_flush().await?;
        self.report(&mut writer).await?;
        let following = &self.broker.ha.following;
        let mut buffer = BytesMut::with_capacity(READ_BYTES);
        let mut last_read = Instant::now();
        let mut last_report = Instant::now();
        loop {
            let settings = self.broker.settings();
            let growth = self.broker.ha.growth();
            let mut flushed = pin!(growth.next());
            flushed.as_mut().enable();
            if self.acknowledged() > self.reported {
                self.report(&mut writer).await?;
                last_report = Instant::now();
            }
            tokio::select! {
                biased;
                read = reader.read_buf(&mut buffer) => {
                    let bytes = read?;
                    if bytes == 0 {
                        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                    }
                    last_read = Instant::now();
                    // A master that does not want this slave says nothing.
                    if !following.is_connected.swap(true, Ordering::AcqRel) {
                        tracing::info!(offset = self.at, "the master sends its log from here");
                    }
                    following.last_read_ms.store(now_ms(), Ordering::Release);
                    following.speed.add(bytes);
                    self.take(&mut buffer)?;
                    buffer.reserve(READ_BYTES);
                }
                () = flushed => {}
                () = tokio::time::sleep_until(last_report + settings.ha_send_heartbeat_interval) =>
                {
                    self.report(&mut writer).await?;
                    last_report = Instant::now();
                }
                () = tokio::time::sleep_until(last_read + settings.ha_housekeeping_interval) => {
                    return Err(Ended::Silent(settings.ha_housekeeping_interval));
                }
            }
        }
    }

    /// What the slave asks for counts as acknowledged, so all of its log has to be stored before.
    async fn wait_for_flush(&self) -> Result<(), Ended> {
        let limit = self.broker.settings().ha_housekeeping_interval;
        let growth = self.broker.ha.growth();
        let flushed = async {
            loop {
                let mut next = pin!(growth.next());
                next.as_mut().enable();
                if self.acknowledged() >= self.broker.store.log_end() {
                    return;
                }
                next.await;
            }
        };
        timeout(limit, flushed).await.map_err(|_| Ended::NotFlushed(limit))
    }

    /// What this slave has as `flushDiskType` says.
    fn acknowledged(&self) -> i64 {
        match self.broker.settings().flush_disk_type {
            FlushDiskType::Async => self.broker.store.log_end(),
            FlushDiskType::Sync => self.broker.store.log_flushed(),
        }
    }

    async fn report(&mut self, writer: &mut OwnedWriteHalf) -> Result<(), Ended> {
        self.reported = self.acknowledged();
        let limit = self.broker.settings().ha_housekeeping_interval;
        let report = self.reported.to_be_bytes();
        timeout(limit, writer.write_all(&report)).await.map_err(|_| Ended::Stuck(limit))??;
        self.broker.ha.following.last_write_ms.store(now_ms(), Ordering::Release);
        Ok(())
    }

    /// Takes what has come of frames: bytes of the log are appended as soon as records are whole.
    fn take(&mut self, buffer: &mut BytesMut) -> Result<(), Ended> {
        loop {
            if self.frame_rest == 0 {
                let Some(header) = buffer.first_chunk::<TRANSFER_HEADER_BYTES>() else {
                    return Ok(());
                };
                let TransferHeader { offset, body_bytes } = TransferHeader::decode(*header)?;
                buffer.advance(TRANSFER_HEADER_BYTES);
                self.frame_rest = usize::try_from(body_bytes).unwrap_or(usize::MAX);
                self.check_offset(offset)?;
            }
            if buffer.is_empty() {
                return Ok(());
            }
            let length = self.frame_rest.min(buffer.len());
            self.frame_rest -= length;
            self.append(buffer.split_to(length))?;
        }
    }

    /// The master goes on behind what has come. An empty log begins where the master likes.
    fn check_offset(&mut self, offset: i64) -> Result<(), Ended> {
        let store = &self.broker.store;
        if self.rest.is_empty() && store.log_end() == store.log_min_offset() {
            self.at = offset;
        }
        let end = self.at + i64::try_from(self.rest.len()).unwrap_or(i64::MAX);
        if offset == end { Ok(()) } else { Err(Ended::OtherOffset { offset, end }) }
    }

    fn append(&mut self, bytes: BytesMut) -> Result<(), Ended> {
        if self.rest.is_empty() {
            self.rest = bytes;
        } else {
            self.rest.extend_from_slice(&bytes);
        }
        let done = self.broker.store.append_replicated(self.at, &self.rest)?;
        self.rest.advance(done);
        self.at += i64::try_from(done).unwrap_or(0);
        Ok(())
    }
}
