//! One connection: one end that reads and works, and one that writes, in one task.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::future::FutureExt;
use futures::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use protocol::command::{RemotingCommand, SerializeType};
use protocol::frame::{self, FrameError};
use protocol::response_code::ResponseCode;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::channel::Outgoing;
use crate::{Channel, Context, Limits, Processor, RemotingMetrics, Response};

/// Room that is made for each read.
const READ_BYTES: usize = 16 * 1024;
/// Bytes that one system call reads or writes at most. A connection with more lets the others of
/// its thread have their turn in between: a frame of 10 MiB takes long.
const BYTES_PER_TURN: usize = 128 * 1024;
/// Pieces that one system call writes at most.
const PIECES_PER_WRITE: usize = 128;
/// Frames that the writer takes at once.
const FRAMES_PER_TURN: usize = 64;
/// Requests that are begun in a row before [`Processor::before_wait`] is called although more can
/// be read.
const BEGUN_MAX: usize = 64;
/// Unit of the limit on request bytes, since a semaphore counts to 2^29 on small machines.
const BYTES_PER_PERMIT: usize = 1024;

/// What the connections of one end share.
pub(crate) struct Shared<P> {
    pub(crate) processor: Arc<P>,
    pub(crate) limits: Limits,
    pub(crate) metrics: RemotingMetrics,
    /// One permit for each KiB of requests that are being worked on.
    pub(crate) request_bytes: Arc<Semaphore>,
    /// Ends reading; requests that were read are finished.
    pub(crate) stop: CancellationToken,
    /// Does the same to the connections that there are, and not to later ones.
    present: Mutex<CancellationToken>,
}

impl<P> Shared<P> {
    pub(crate) fn new(processor: Arc<P>, limits: Limits, metrics: RemotingMetrics) -> Arc<Self> {
        let permits = limits.request_bytes_in_flight_max.div_ceil(BYTES_PER_PERMIT);
        let request_bytes = Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        let stop = CancellationToken::new();
        let present = Mutex::new(stop.child_token());
        Arc::new(Self { processor, limits, metrics, request_bytes, stop, present })
    }

    /// Ends the connections that there are.
    pub(crate) fn end_present(&self) {
        let later = self.stop.child_token();
        std::mem::replace(&mut *self.present.lock(), later).cancel();
    }
}

/// Where a connection leads.
pub(crate) struct Peer {
    /// As people wrote it.
    pub(crate) addr: String,
    pub(crate) remote: SocketAddr,
    pub(crate) local_port: u16,
}

/// Starts the tasks of a connection. The future ends when the connection has.
pub(crate) fn start<S, P>(
    stream: S,
    peer: Peer,
    shared: Arc<Shared<P>>,
) -> (Channel, impl Future<Output = ()> + Send)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    P: Processor,
{
    let (outbound, outgoing) = mpsc::channel(shared.limits.outbound_frames_max);
    let pending_max = shared.limits.pending_requests_max;
    let channel = Channel::new(peer.addr, peer.remote, outbound, pending_max);
    let (read, write) = tokio::io::split(stream);
    let writer = Writer {
        stream: write,
        outgoing,
        pieces: VecDeque::new(),
        stall: shared.limits.write_stall,
        metrics: shared.metrics.clone(),
    };
    let context = Context { channel: channel.clone(), local_port: peer.local_port };
    let reader = Reader {
        stream: read,
        buffer: BytesMut::new(),
        context,
        shared: Arc::clone(&shared),
        work: FuturesUnordered::new(),
        begun: 0,
        last_used: Instant::now(),
    };
    let closed = channel.clone();
    let run = async move {
        shared.metrics.connections.inc();
        shared.processor.connected(&closed);
        let reading = async {
            reader.run().await;
            // What was begun just before the end has never come to wait.
            shared.processor.before_wait();
            shared.processor.disconnected(&closed);
            shared.metrics.connections.dec();
            // A writer that stalls ends itself; one that has nothing left to write ends at once.
            closed.close();
            closed.fail_pending();
        };
        // In one task: an answer is written by the thread that has it, without waking another.
        futures::future::join(reading, writer.run(closed.clone())).await;
    };
    (channel, run)
}

type Work = Pin<Box<dyn Future<Output = Option<Response>> + Send>>;

struct Reader<S, P> {
    stream: S,
    buffer: BytesMut,
    context: Context,
    shared: Arc<Shared<P>>,
    work: FuturesUnordered<Work>,
    /// Requests begun since the processor was told for the last time that there were many.
    begun: usize,
    last_used: Instant,
}

impl<S: AsyncRead + Unpin, P: Processor> Reader<S, P> {
    async fn run(mut self) {
        let closed = self.context.channel.closed().clone();
        let stop = self.shared.present.lock().clone();
        loop {
            self.buffer.reserve(READ_BYTES);
            let idle_at = self.last_used + self.shared.limits.idle;
            tokio::select! {
                biased;
                () = closed.cancelled() => return,
                Some(done) = self.work.next(), if !self.work.is_empty() => {
                    self.answer(done).await;
                    self.answer_ready().await;
                }
                () = std::future::ready(()), if self.begun >= BEGUN_MAX => {
                    self.begun = 0;
                    self.shared.processor.before_wait();
                }
                read = read_turn(&mut self.stream, &mut self.buffer) => {
                    let Ok(bytes @ 1..) = read else { return };
                    self.shared.metrics.bytes_read.inc_by(bytes as u64);
                    self.last_used = Instant::now();
                    if let Err(error) = self.take_frames().await {
                        self.shared.metrics.bad_frames.inc();
                        let peer = self.context.channel.remote_addr();
                        tracing::warn!(%peer, %error, "closing a connection that sent a bad frame");
                        return;
                    }
                    if self.buffer.len() >= BYTES_PER_TURN {
                        tokio::task::yield_now().await;
                    }
                }
                () = stop.cancelled() => return self.drain().await,
                () = tokio::time::sleep_until(idle_at), if self.work.is_empty() => return,
                () = before_wait(&self.shared) => {}
            }
        }
    }

    /// Answers what is ready without looking at anything else in between.
    async fn answer_ready(&mut self) {
        while let Some(Some(done)) = self.work.next().now_or_never() {
            self.answer(done).await;
        }
    }

    async fn take_frames(&mut self) -> Result<(), FrameError> {
        loop {
            let before = self.buffer.len();
            let max = self.shared.limits.frame_bytes_max;
            let Some(command) = frame::decode(&mut self.buffer, max)? else { return Ok(()) };
            if command.is_response() {
                self.context.channel.answered(command);
            } else {
                self.begin(command, before - self.buffer.len()).await;
            }
        }
    }

    async fn begin(&mut self, request: RemotingCommand, bytes: usize) {
        self.shared.metrics.requests.inc();
        if self.work.len() >= self.shared.limits.requests_in_flight_max {
            self.shared.metrics.requests_refused.inc();
            if !request.is_oneway() {
                let text = "[OVERLOAD]system busy, start flow control for a while";
                let busy = RemotingCommand::error(ResponseCode::SYSTEM_BUSY, text);
                self.answer(Some(Address::of(&request).put_on(busy.into()))).await;
            }
            return;
        }
        let permit = self.admit(bytes).await;
        self.begun += 1;
        let shared = Arc::clone(&self.shared);
        let context = self.context.clone();
        shared.metrics.requests_in_flight.inc();
        self.work.push(Box::pin(async move {
            let _permit = permit;
            let (is_oneway, address) = (request.is_oneway(), Address::of(&request));
            let response = shared.processor.process(context, request).await;
            shared.metrics.requests_in_flight.dec();
            response.filter(|_| !is_oneway).map(|response| address.put_on(response))
        }));
    }

    /// Waits for room for a request of this size. Goes on with what is in work meanwhile, for that
    /// is what makes room.
    async fn admit(&mut self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let permits = u32::try_from(bytes.div_ceil(BYTES_PER_PERMIT)).unwrap_or(u32::MAX);
        let all = self.shared.limits.request_bytes_in_flight_max.div_ceil(BYTES_PER_PERMIT);
        let permits = permits.min(u32::try_from(all).unwrap_or(u32::MAX));
        let semaphore = Arc::clone(&self.shared.request_bytes);
        let acquire = semaphore.acquire_many_owned(permits);
        tokio::pin!(acquire);
        loop {
            tokio::select! {
                biased;
                permit = &mut acquire => return permit.ok(),
                Some(done) = self.work.next(), if !self.work.is_empty() => self.answer(done).await,
                () = before_wait(&self.shared) => {}
            }
        }
    }

    async fn answer(&mut self, done: Option<Response>) {
        self.last_used = Instant::now();
        let Some(response) = done else { return };
        let channel = &self.context.channel;
        let sent = match channel.encode(&response) {
            Ok(frame) => tokio::select! {
                biased;
                sent = channel.send_frame(frame) => sent,
                () = before_wait(&self.shared) => return,
            },
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "an answer was not sent");
            channel.close();
        }
    }

    /// Finishes what was begun, within the limit.
    async fn drain(mut self) {
        let limit = tokio::time::sleep(self.shared.limits.drain);
        let closed = self.context.channel.closed().clone();
        tokio::pin!(limit);
        while !self.work.is_empty() {
            tokio::select! {
                biased;
                Some(done) = self.work.next() => self.answer(done).await,
                () = &mut limit => return,
                () = closed.cancelled() => return,
                () = before_wait(&self.shared) => {}
            }
        }
    }
}

/// Never ends. As the last of several futures of which one is waited for it is polled when the task
/// is about to wait.
fn before_wait<P: Processor>(shared: &Shared<P>) -> impl Future<Output = ()> {
    std::future::poll_fn(|_| {
        shared.processor.before_wait();
        Poll::Pending
    })
}

async fn read_turn<S: AsyncRead + Unpin>(
    stream: &mut S,
    buffer: &mut BytesMut,
) -> std::io::Result<usize> {
    stream.read_buf(&mut buffer.limit(BYTES_PER_TURN)).await
}

impl<S, P> Drop for Reader<S, P> {
    fn drop(&mut self) {
        let unfinished = i64::try_from(self.work.len()).unwrap_or(i64::MAX);
        self.shared.metrics.requests_in_flight.dec_by(unfinished);
    }
}

/// What makes a response the answer to a request.
struct Address {
    opaque: i32,
    serialize_type: SerializeType,
}

impl Address {
    fn of(request: &RemotingCommand) -> Self {
        Self { opaque: request.opaque, serialize_type: request.serialize_type }
    }

    fn put_on(self, mut response: Response) -> Response {
        response.command.opaque = self.opaque;
        response.command.flag |= 1;
        response.command.serialize_type = self.serialize_type;
        response
    }
}

struct Writer<S> {
    stream: S,
    outgoing: mpsc::Receiver<Outgoing>,
    pieces: VecDeque<Bytes>,
    stall: Duration,
    metrics: RemotingMetrics,
}

impl<S: AsyncWrite + Unpin> Writer<S> {
    async fn run(mut self, channel: Channel) {
        let closed = channel.closed().clone();
        drop(channel);
        let mut frames = Vec::with_capacity(FRAMES_PER_TURN);
        loop {
            let count = tokio::select! {
                biased;
                count = self.outgoing.recv_many(&mut frames, FRAMES_PER_TURN) => count,
                () = closed.cancelled() => break,
            };
            if count == 0 {
                break;
            }
            self.pieces.extend(frames.drain(..).flatten().filter(|piece| !piece.is_empty()));
            if self.write_pieces().await.is_err() {
                break;
            }
        }
        closed.cancel();
        let _ = tokio::time::timeout(self.stall, self.stream.shutdown()).await;
    }

    async fn write_pieces(&mut self) -> std::io::Result<()> {
        while !self.pieces.is_empty() {
            let mut slices = [IoSlice::new(&[]); PIECES_PER_WRITE];
            let (mut count, mut room) = (0, BYTES_PER_TURN);
            for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
                let part = piece.get(..room.min(piece.len())).unwrap_or_default();
                *slice = IoSlice::new(part);
                count += 1;
                room -= part.len();
                if room == 0 {
                    break;
                }
            }
            let slices = slices.get(..count).unwrap_or_default();
            let write = self.stream.write_vectored(slices);
            let written = tokio::time::timeout(self.stall, write).await??;
            if written == 0 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            self.metrics.bytes_written.inc_by(written as u64);
            self.written(written);
            if room == 0 && !self.pieces.is_empty() {
                tokio::task::yield_now().await;
            }
        }
        self.stream.flush().await
    }

    fn written(&mut self, mut bytes: usize) {
        while let Some(piece) = self.pieces.front_mut() {
            if piece.len() > bytes {
                piece.advance(bytes);
                return;
            }
            bytes -= piece.len();
            self.pieces.pop_front();
        }
    }
}
