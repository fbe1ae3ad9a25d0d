//! The master's end of a connection to a slave.
//!
//! At most one piece of the log is in memory for each slave, however slow it is; one that takes
//! nothing, or says nothing, for `haHousekeepingInterval` loses its connection.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use protocol::ha::{REPORT_BYTES, TransferHeader};
use store::ReplicationError;
use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::broker::Broker;
use crate::ha::speed::Speed;

/// Bytes of reports that are read at once.
const REPORTS_BYTES: usize = 4_096;
/// What lies further before the end of the log is read away from the threads that serve clients.
const NEAR_END_BYTES: i64 = 64 << 20;
/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a connection ended.
#[derive(Debug, Error)]
enum Ended {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Log(#[from] ReplicationError),
    #[error("it said nothing for {0:?}")]
    Silent(Duration),
    #[error("it took nothing for {0:?}")]
    Stuck(Duration),
    #[error("its log ends at {ack}, this one at {end}: it has followed another master")]
    Ahead { ack: i64, end: i64 },
    #[error("the broker is stopping")]
    Stopping,
}

/// A slave that is connected.
struct Slave {
    broker: Arc<Broker>,
    id: u64,
    speed: Arc<Speed>,
}

/// Takes connections until it is dropped.
pub(crate) async fn accept(broker: Arc<Broker>, listener: TcpListener, tasks: TaskTracker) {
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a slave's connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if broker.ha.is_slave() {
            tracing::warn!(%address, "a slave wants to follow this one, but only masters serve");
            continue;
        }
        let Some((id, speed)) = broker.ha.slaves.add(address) else {
            tracing::warn!(%address, "too many slaves are connected, this one is refused");
            continue;
        };
        let stop = broker.ha.stop.clone();
        let slave = Slave { broker: Arc::clone(&broker), id, speed };
        tasks.spawn(async move {
            tracing::info!(%address, "slave is connected");
            let ended = stop.run_until_cancelled(slave.serve(stream, address)).await;
            let reason = ended.unwrap_or(Ended::Stopping);
            tracing::info!(%address, %reason, "slave is gone");
        });
    }
}

impl Drop for Slave {
    fn drop(&mut self) {
        self.broker.ha.slaves.remove(self.id, &self.broker.store);
    }
}

impl Slave {
    async fn serve(&self, stream: TcpStream, address: SocketAddr) -> Ended {
        let _ = stream.set_nodelay(true);
        let (reader, writer) = stream.into_split();
        let (first, asked) = watch::channel(None);
        let ended = tokio::select! {
            ended = self.read(reader, first) => ended,
            ended = self.write(writer, asked, address) => ended,
        };
        ended.err().unwrap_or(Ended::Stopping)
    }

    /// Reads reports; the first one is also what the slave asks for.
    async fn read(
        &self,
        mut reader: OwnedReadHalf,
        first: watch::Sender<Option<i64>>,
    ) -> Result<(), Ended> {
        let mut buffer = [0; REPORTS_BYTES];
        let mut length = 0;
        loop {
            let limit = self.broker.settings().ha_housekeeping_interval;
            let read = timeout(limit, reader.read(&mut buffer[length..])).await;
            match read.map_err(|_| Ended::Silent(limit))?? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                count => length += count,
            }
            let whole = length - length % REPORT_BYTES;
            let Some((_, mut last)) = buffer[..whole].split_at_checked(whole.wrapping_sub(8))
            else {
                continue;
            };
            // Each one says more than those before.
            let ack = last.get_i64();
            buffer.copy_within(whole..length, 0);
            length -= whole;
            let end = self.broker.store.log_end();
            if ack < 0 || ack > end {
                return Err(Ended::Ahead { ack, end });
            }
            self.broker.ha.slaves.acknowledged(self.id, ack, &self.broker.store);
            if first.borrow().is_none() {
                first.send_replace(Some(ack));
            }
        }
    }

    /// Sends the log from where the slave wants it.
    async fn write(
        &self,
        mut writer: OwnedWriteHalf,
        mut asked: watch::Receiver<Option<i64>>,
        address: SocketAddr,
    ) -> Result<(), Ended> {
        let asked = asked.wait_for(Option::is_some).await.ok().and_then(|first| *first);
        let mut next = self.start(asked.unwrap_or_default());
        tracing::info!(%address, offset = next, "slave gets the log from here");
        // First an empty piece, by which the slave knows that it is served, unless the log does not
        // have what it wants any more.
        let mut bytes = self.broker.store.read_log(next, 0)?;
        loop {
            self.broker.ha.slaves.set_next(self.id, next);
            let length = bytes.len();
            let body_bytes = u32::try_from(length).expect("a batch has at most a few MiB");
            let header = TransferHeader { offset: next, body_bytes }.encode();
            let limit = self.broker.settings().ha_housekeeping_interval;
            let mut frame = Bytes::from(header.to_vec()).chain(bytes);
            let written = timeout(limit, writer.write_all_buf(&mut frame)).await;
            written.map_err(|_| Ended::Stuck(limit))??;
            self.speed.add(length);
            next += i64::from(body_bytes);
            bytes = self.next_bytes(next).await?;
        }
    }

    /// A slave without a log gets the last file only, as from Apache's master.
    fn start(&self, asked: i64) -> i64 {
        let store = &self.broker.store;
        if asked > 0 {
            return asked;
        }
        store.log_file_start(store.log_end()).max(store.log_min_offset())
    }

    /// Bytes that the slave may get now, after a pause if there are none.
    async fn room(&self, bytes_in_second: u64) -> usize {
        loop {
            match self.speed.room(bytes_in_second) {
                Ok(room) => return room,
                Err(pause) => tokio::time::sleep(pause).await,
            }
        }
    }

    /// The next piece of the log; nothing for a heartbeat.
    async fn next_bytes(&self, next: i64) -> Result<Bytes, Ended> {
        let settings = self.broker.settings();
        let store = &self.broker.store;
        let mut size = settings.ha_transfer_batch_size;
        if settings.ha_flow_control_enable {
            size = size.min(self.room(settings.max_ha_transfer_byte_in_second).await);
        }
        let deadline = tokio::time::Instant::now() + settings.ha_send_heartbeat_interval;
        loop {
            let growth = self.broker.ha.growth();
            let mut grown = pin!(growth.next());
            grown.as_mut().enable();
            let behind = store.log_end() - next;
            if behind > NEAR_END_BYTES {
                let broker = Arc::clone(&self.broker);
                let read = move || broker.store.read_log(next, size);
                let read = tokio::task::spawn_blocking(read).await;
                return Ok(read.map_err(|_| Ended::Stopping)??);
            }
            if behind != 0 {
                return Ok(store.read_log(next, size)?);
            }
            if tokio::time::timeout_at(deadline, grown).await.is_err() {
                return Ok(Bytes::new());
            }
        }
    }
}
