//! The listening end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connection::{self, Peer, Shared};
use crate::{Limits, Processor, RemotingMetrics};

/// Pause after a failed accept, which mostly means that file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const BACKLOG: i32 = 1024;

/// Where and within which limits a server listens.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Addresses to listen on; port 0 picks a free one.
    pub listen: Vec<SocketAddr>,
    /// Limits of the server and each of its connections.
    pub limits: Limits,
}

/// A running server.
pub struct Server<P> {
    shared: Arc<Shared<P>>,
    addresses: Vec<SocketAddr>,
    accepting: CancellationToken,
    tasks: TaskTracker,
}

impl<P: Processor> Server<P> {
    /// Binds all addresses and starts to accept.
    ///
    /// # Errors
    /// When an address cannot be bound; names it.
    pub fn start(
        config: ServerConfig,
        processor: Arc<P>,
        metrics: RemotingMetrics,
    ) -> std::io::Result<Self> {
        Self::start_with(bind, config, processor, metrics)
    }

    /// As [`Server::start`], on addresses on which other processes of this user that call this may
    /// listen, too: who connects meets one of them.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_shared(
        config: ServerConfig,
        processor: Arc<P>,
        metrics: RemotingMetrics,
    ) -> std::io::Result<Self> {
        Self::start_with(bind_shared, config, processor, metrics)
    }

    fn start_with(
        bind: fn(SocketAddr) -> std::io::Result<TcpListener>,
        config: ServerConfig,
        processor: Arc<P>,
        metrics: RemotingMetrics,
    ) -> std::io::Result<Self> {
        let connections = Arc::new(Semaphore::new(config.limits.connections_max));
        let shared = Shared::new(processor, config.limits, metrics);
        let tasks = TaskTracker::new();
        let mut addresses = Vec::new();
        let mut listeners = Vec::new();
        for address in config.listen {
            let listener = bind(address).map_err(|error| {
                std::io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
            })?;
            addresses.push(listener.local_addr()?);
            listeners.push(listener);
        }
        let accepting = shared.stop.child_token();
        for listener in listeners {
            let accept = Accept {
                listener,
                stop: accepting.clone(),
                shared: Arc::clone(&shared),
                connections: Arc::clone(&connections),
                tasks: tasks.clone(),
            };
            tasks.spawn(accept.run());
        }
        Ok(Self { shared, addresses, accepting, tasks })
    }

    /// The bound addresses, in the order of the configuration.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Gives the addresses up; who is connected stays so.
    pub fn stop_accepting(&self) {
        self.accepting.cancel();
    }

    /// Ends the connections that there are, after their requests are finished, and goes on to
    /// accept new ones.
    pub fn close_connections(&self) {
        self.shared.end_present();
    }

    /// Stops accepting and reading, lets requests finish within the limit, and ends every
    /// connection.
    pub async fn shutdown(&self) {
        self.shared.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    listen(Socket::new(Domain::for_address(address), Type::STREAM, None)?, address)
}

fn bind_shared(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_port(true)?;
    listen(socket, address)
}

fn listen(socket: Socket, address: SocketAddr) -> std::io::Result<TcpListener> {
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

struct Accept<P> {
    listener: TcpListener,
    stop: CancellationToken,
    shared: Arc<Shared<P>>,
    connections: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl<P: Processor> Accept<P> {
    async fn run(self) {
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = self.stop.cancelled() => return,
            };
            match accepted {
                Ok((stream, remote)) => self.serve(stream, remote),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn serve(&self, stream: TcpStream, remote: SocketAddr) {
        let Ok(permit) = Arc::clone(&self.connections).try_acquire_owned() else {
            self.shared.metrics.connections_refused.inc();
            tracing::warn!(peer = %remote, "too many connections, closing a new one");
            return;
        };
        let _ = stream.set_nodelay(true);
        let local_port = stream.local_addr().map_or(0, |local| local.port());
        let peer = Peer { addr: remote.to_string(), remote, local_port };
        let (_, run) = connection::start(stream, peer, Arc::clone(&self.shared));
        self.tasks.spawn(async move {
            run.await;
            drop(permit);
        });
    }
}
