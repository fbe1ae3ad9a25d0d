//! A relay for TCP between clients and a server that behaves as badly as a network may.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Bytes that are passed on at once.
const CHUNK_BYTES: usize = 16 << 10;

/// How bytes are passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// As they come.
    Pass,
    /// Each chunk later.
    Delay(Duration),
    /// Byte by byte.
    Dribble,
    /// Not at all: connections are accepted, and nothing is ever heard.
    Silent,
    /// New connections are closed at once.
    Refuse,
}

/// How connections end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// In order (FIN).
    Close,
    /// In the middle of what is being passed on (RST).
    Reset,
    /// For the client; the server hears nothing of it.
    Vanish,
}

/// What the relay does now. The number tells one end from the next.
#[derive(Clone, Copy, Debug)]
struct Order {
    mode: Mode,
    ends: (u64, End),
}

/// See the module.
pub(crate) struct TcpFault {
    order: watch::Sender<Order>,
    accepted: Arc<AtomicUsize>,
}

impl TcpFault {
    /// Relays what connects to `listen` to `target`, until it is dropped.
    pub(crate) async fn start(listen: &str, target: &str) -> Result<Self> {
        let listener = TcpListener::bind(listen).await;
        let listener = listener.with_context(|| format!("cannot listen on {listen}"))?;
        let target: SocketAddr = target.parse()?;
        let first = Order { mode: Mode::Pass, ends: (0, End::Close) };
        let (order, orders) = watch::channel(first);
        let accepted = Arc::new(AtomicUsize::new(0));
        tokio::spawn(accept(listener, target, orders, Arc::clone(&accepted)));
        Ok(Self { order, accepted })
    }

    /// From now on bytes are passed on like this, on old and new connections.
    pub(crate) fn set(&self, mode: Mode) {
        self.order.send_modify(|order| order.mode = mode);
    }

    /// Ends all connections there are.
    pub(crate) fn end(&self, end: End) {
        self.order.send_modify(|order| order.ends = (order.ends.0 + 1, end));
    }

    /// Connections so far.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    mut orders: watch::Receiver<Order>,
    accepted: Arc<AtomicUsize>,
) {
    loop {
        let client = tokio::select! {
            client = listener.accept() => client,
            // The relay was dropped.
            _ = orders.wait_for(|_| false) => return,
        };
        let Ok((client, _)) = client else { continue };
        accepted.fetch_add(1, Ordering::Relaxed);
        if orders.borrow().mode != Mode::Refuse {
            tokio::spawn(serve(client, target, orders.clone()));
        }
    }
}

async fn serve(client: TcpStream, target: SocketAddr, orders: watch::Receiver<Order>) {
    let Ok(server) = TcpStream::connect(target).await else { return };
    for stream in [&client, &server] {
        let _ = stream.set_nodelay(true);
    }
    let born = orders.borrow().ends.0;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let relay = |from, to| Relay { from, to, orders: orders.clone(), born };
    let upwards = relay(from_client, to_server);
    let downwards = relay(from_server, to_client);
    let (up, down) = (tokio::spawn(upwards.run()), tokio::spawn(downwards.run()));
    // A half that ended keeps its sockets until the other has, too.
    let (Ok((from_client, to_server)), Ok((from_server, to_client))) = tokio::join!(up, down)
    else {
        return;
    };
    let (number, end) = orders.borrow().ends;
    if number == born || end != End::Vanish {
        return;
    }
    drop((from_client, to_client));
    hold(from_server, to_server).await;
}

/// Keeps a connection whose client is gone until the server closes it.
async fn hold(mut from_server: OwnedReadHalf, to_server: Option<OwnedWriteHalf>) {
    let mut buffer = vec![0; CHUNK_BYTES];
    while matches!(from_server.read(&mut buffer).await, Ok(1..)) {}
    drop(to_server);
}

/// One direction.
struct Relay {
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    orders: watch::Receiver<Order>,
    born: u64,
}

impl Relay {
    /// Passes bytes on until there are no more or the connection is to end.
    async fn run(mut self) -> (OwnedReadHalf, Option<OwnedWriteHalf>) {
        let mut buffer = vec![0; CHUNK_BYTES];
        let born = self.born;
        let mut ends = self.orders.clone();
        loop {
            let read = tokio::select! {
                read = self.from.read(&mut buffer) => read,
                _ = ends.wait_for(|order| order.ends.0 != born) => break,
            };
            let Ok(bytes @ 1..) = read else {
                let _ = self.to.shutdown().await;
                break;
            };
            let chunk = buffer.get(..bytes).unwrap_or_default();
            let passed = tokio::select! {
                passed = pass(&mut self.to, chunk, &self.orders) => passed,
                _ = ends.wait_for(|order| order.ends.0 != born) => break,
            };
            if passed.is_err() {
                break;
            }
        }
        let (number, end) = self.orders.borrow().ends;
        if number != born && end == End::Reset {
            let _ = self.to.as_ref().set_zero_linger();
            // Dropped, it would say an orderly goodbye first.
            self.to.forget();
            return (self.from, None);
        }
        (self.from, Some(self.to))
    }
}

async fn pass(
    to: &mut OwnedWriteHalf,
    chunk: &[u8],
    orders: &watch::Receiver<Order>,
) -> std::io::Result<()> {
    let mode = orders.borrow().mode;
    match mode {
        Mode::Pass | Mode::Refuse => to.write_all(chunk).await,
        Mode::Silent => Ok(()),
        Mode::Delay(delay) => {
            tokio::time::sleep(delay).await;
            to.write_all(chunk).await
        }
        Mode::Dribble => {
            for (at, byte) in chunk.iter().enumerate() {
                // Until the order changes in the middle of a chunk.
                if orders.borrow().mode != Mode::Dribble {
                    return to.write_all(chunk.get(at..).unwrap_or_default()).await;
                }
                to.write_all(&[*byte]).await?;
                tokio::task::yield_now().await;
            }
            Ok(())
        }
    }
}

#[tokio::test]
async fn faults_are_as_ordered() -> Result<()> {
    let server = TcpListener::bind("127.0.0.1:0").await?;
    let target = server.local_addr()?.to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = server.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    let listen = format!("127.0.0.1:{}", e2e::server::free_port()?);
    let relay = TcpFault::start(&listen, &target).await?;
    let mut buffer = [0; 5];
    let mut stream = TcpStream::connect(&listen).await?;
    for mode in [Mode::Pass, Mode::Delay(Duration::from_millis(5)), Mode::Dribble] {
        relay.set(mode);
        stream.write_all(b"hello").await?;
        stream.read_exact(&mut buffer).await?;
        anyhow::ensure!(&buffer == b"hello", "{mode:?}");
    }
    relay.end(End::Close);
    anyhow::ensure!(stream.read(&mut buffer).await? == 0, "closed in order");
    let mut stream = TcpStream::connect(&listen).await?;
    stream.write_all(b"hello").await?;
    stream.read_exact(&mut buffer).await?;
    relay.end(End::Reset);
    let error = stream.read(&mut buffer).await.err().map(|error| error.kind());
    anyhow::ensure!(error == Some(std::io::ErrorKind::ConnectionReset), "{error:?}");
    relay.set(Mode::Silent);
    let mut stream = TcpStream::connect(&listen).await?;
    stream.write_all(b"hello").await?;
    let read = tokio::time::timeout(Duration::from_millis(50), stream.read(&mut buffer)).await;
    anyhow::ensure!(read.is_err(), "nothing is heard");
    relay.set(Mode::Refuse);
    let mut stream = TcpStream::connect(&listen).await?;
    anyhow::ensure!(stream.read(&mut buffer).await? == 0, "closed at once");
    anyhow::ensure!(relay.accepted() == 4);
    Ok(())
}
