//! The HTTP endpoint of a server: `/metrics`, `/healthz`, `/readyz`, `/loglevel`.
//!
//! HTTP/1 only, every limit named below. `/loglevel` answers to this machine only (a port
//! forward counts), because everything that can reach a metrics port should not change a server.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::RwLock;
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::telemetry::LogLevel;

/// Connections served at once; more wait in the listen queue.
pub const CONNECTIONS_MAX: usize = 32;
/// A client has this long to send a request's header.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// No connection is served longer than this, busy or not.
pub const CONNECTION_LIFETIME_MAX: Duration = Duration::from_secs(300);
/// Bytes of the one body that is read (`PUT /loglevel`).
pub const BODY_SIZE_MAX: usize = 1024;
/// Pause after a failed accept: out of file descriptors is not cured by trying at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Open requests have this long to end when the endpoint stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Named conditions, each true or false with a reason, asked at every request.
///
/// Clones share their checks.
#[derive(Clone, Default)]
pub struct Checks {
    checks: Arc<RwLock<Vec<(&'static str, Check)>>>,
}

impl Checks {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a condition. The error is the reason, in words for whoever looks at the pod. The
    /// function must neither block nor take long.
    pub fn add(
        &self,
        name: &'static str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.checks.write().push((name, Box::new(check)));
    }

    /// One line a check, and whether all hold.
    pub fn report(&self) -> (bool, String) {
        let mut all_hold = true;
        let mut text = String::new();
        for (name, check) in self.checks.read().iter() {
            match check() {
                Ok(()) => text.push_str(&format!("{name}: ok\n")),
                Err(reason) => {
                    all_hold = false;
                    text.push_str(&format!("{name}: not ok: {reason}\n"));
                }
            }
        }
        (all_hold, text)
    }
}

/// What the endpoint shows.
#[derive(Clone)]
pub struct Health {
    pub registry: Arc<Registry>,
    /// `/healthz`: what only a restart cures.
    pub live: Checks,
    /// `/readyz`: whether clients should come here now.
    pub ready: Checks,
    /// `/loglevel`; without it there is no such path (a server inside another process).
    pub log_level: Option<LogLevel>,
}

/// The bound endpoint; it answers once [`HealthServer::serve`] runs.
pub struct HealthServer {
    listener: TcpListener,
    health: Health,
}

impl HealthServer {
    pub async fn bind(address: SocketAddr, health: Health) -> std::io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(address).await?, health })
    }

    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`. Stop it last: while a server drains, its readiness must be seen to
    /// fail.
    pub async fn serve(self, stop: CancellationToken) {
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let connections = TaskTracker::new();
        loop {
            let accepted = async {
                let slot = slots.clone().acquire_owned().await;
                (slot, self.listener.accept().await)
            };
            let (slot, accepted) = tokio::select! {
                () = stop.cancelled() => break,
                accepted = accepted => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let (health, stop) = (self.health.clone(), stop.clone());
                    connections.spawn(async move {
                        serve_connection(stream, peer, health, stop).await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "health endpoint cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        connections.close();
        if timeout(STOP_TIMEOUT, connections.wait()).await.is_err() {
            tracing::debug!("health endpoint leaves open requests behind");
        }
    }
}

async fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    health: Health,
    stop: CancellationToken,
) {
    let answer = service_fn(|request| {
        let health = health.clone();
        async move { Ok::<_, Infallible>(health.answer(request, peer).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = std::pin::pin!(connection);
    let served = timeout(CONNECTION_LIFETIME_MAX, async {
        tokio::select! {
            result = connection.as_mut() => result,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    });
    match served.await {
        Ok(Ok(())) => {}
        // Scanners and half-sent requests are the network's business, not ours.
        Ok(Err(error)) => tracing::debug!(%peer, %error, "health connection ended"),
        Err(_) => tracing::debug!(%peer, "health connection was open too long"),
    }
}

impl Health {
    async fn answer(&self, request: Request<Incoming>, peer: SocketAddr) -> Response<Full<Bytes>> {
        let method = request.method().clone();
        match (request.uri().path(), method) {
            ("/metrics", Method::GET | Method::HEAD) => self.metrics(),
            ("/healthz", Method::GET | Method::HEAD) => report(&self.live),
            ("/readyz", Method::GET | Method::HEAD) => report(&self.ready),
            ("/loglevel", method) if let Some(level) = &self.log_level => {
                log_level(level, &method, peer, request.into_body()).await
            }
            ("/metrics" | "/healthz" | "/readyz", _) => not_allowed("GET, HEAD"),
            (path, _) => text(
                StatusCode::NOT_FOUND,
                format!("no {path} here; there are /metrics /healthz /readyz /loglevel\n"),
            ),
        }
    }

    fn metrics(&self) -> Response<Full<Bytes>> {
        let mut body = String::new();
        match prometheus_client::encoding::text::encode(&mut body, &self.registry) {
            Ok(()) => response(
                StatusCode::OK,
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
                body,
            ),
            Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be encoded\n"),
        }
    }
}

async fn log_level(
    level: &LogLevel,
    method: &Method,
    peer: SocketAddr,
    body: Incoming,
) -> Response<Full<Bytes>> {
    if !peer.ip().to_canonical().is_loopback() {
        return text(StatusCode::FORBIDDEN, "only from this machine (or a port forward to it)\n");
    }
    if *method == Method::GET {
        return text(StatusCode::OK, format!("{}\n", level.current()));
    }
    if *method != Method::PUT {
        return not_allowed("GET, PUT");
    }
    let read = timeout(HEADER_TIMEOUT, Limited::new(body, BODY_SIZE_MAX).collect()).await;
    let Ok(Ok(body)) = read else {
        return text(StatusCode::BAD_REQUEST, "the body must be a short log filter\n");
    };
    let body = body.to_bytes();
    let filter = String::from_utf8_lossy(&body);
    match level.set(filter.trim()) {
        Ok(()) => {
            tracing::info!(filter = filter.trim(), "log level changed");
            text(StatusCode::OK, format!("{}\n", level.current()))
        }
        Err(error) => text(StatusCode::BAD_REQUEST, format!("{error}\n")),
    }
}

fn report(checks: &Checks) -> Response<Full<Bytes>> {
    let (all_hold, mut report) = checks.report();
    if report.is_empty() {
        report.push_str("ok\n");
    }
    let status = if all_hold { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    text(status, report)
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    response(status, "text/plain; charset=utf-8", body)
}

fn not_allowed(methods: &'static str) -> Response<Full<Bytes>> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, format!("allowed: {methods}\n"));
    response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static(methods));
    response
}

fn response(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let content_type = hyper::header::HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::task::JoinHandle;

    use super::*;

    struct Endpoint {
        address: SocketAddr,
        stop: CancellationToken,
        server: JoinHandle<()>,
        _logs: Box<dyn std::any::Any>,
    }

    async fn start(ready: Checks) -> Endpoint {
        let mut registry = Registry::default();
        crate::build_info::register(&mut registry, "test");
        let (level, logs) = crate::telemetry::detached_level("info");
        let registry = Arc::new(registry);
        let health = Health { registry, live: Checks::new(), ready, log_level: Some(level) };
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = HealthServer::bind(address, health).await.expect("bound");
        let address = server.local_addr().expect("an address");
        let stop = CancellationToken::new();
        let server = tokio::spawn(server.serve(stop.clone()));
        Endpoint { address, stop, server, _logs: Box::new(logs) }
    }

    async fn ask(endpoint: &Endpoint, request: &str) -> String {
        let mut stream = TcpStream::connect(endpoint.address).await.expect("connected");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answered");
        answer
    }

    async fn get(endpoint: &Endpoint, path: &str) -> String {
        ask(endpoint, &format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await
    }

    #[tokio::test]
    async fn metrics_health_and_unknown_paths() {
        let endpoint = start(Checks::new()).await;
        let metrics = get(&endpoint, "/metrics").await;
        assert!(metrics.contains("application/openmetrics-text"), "{metrics}");
        assert!(metrics.contains("rocketmq_build_info{program=\"test\""), "{metrics}");
        assert!(metrics.ends_with("# EOF\n"), "{metrics}");
        assert!(get(&endpoint, "/healthz").await.ends_with("\r\n\r\nok\n"));
        assert!(get(&endpoint, "/x").await.starts_with("HTTP/1.1 404"));
        let posted = "POST /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        let refused = ask(&endpoint, posted).await;
        assert!(refused.starts_with("HTTP/1.1 405"), "{refused}");
        assert!(ask(&endpoint, "\u{0}garbage\r\n\r\n").await.starts_with("HTTP/1.1 400"));
    }

    #[tokio::test]
    async fn readiness_says_why() {
        let registered = Arc::new(AtomicBool::new(false));
        let checks = Checks::new();
        let seen = registered.clone();
        checks.add("name server", move || match seen.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err("not registered yet".to_owned()),
        });
        checks.add("store", || Ok(()));
        let endpoint = start(checks).await;
        let answer = get(&endpoint, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.ends_with("name server: not ok: not registered yet\nstore: ok\n"));
        registered.store(true, Ordering::Relaxed);
        let answer = get(&endpoint, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    #[tokio::test]
    async fn log_level_is_read_and_set() {
        let endpoint = start(Checks::new()).await;
        let put = |body: &str| {
            format!(
                "PUT /loglevel HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\
                 \r\n{body}",
                body.len()
            )
        };
        let changed = ask(&endpoint, &put("debug")).await;
        assert!(changed.starts_with("HTTP/1.1 200") && changed.ends_with("debug\n"), "{changed}");
        let refused = ask(&endpoint, &put("loud")).await;
        assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
        let too_long = ask(&endpoint, &put(&"x".repeat(BODY_SIZE_MAX + 1))).await;
        assert!(too_long.starts_with("HTTP/1.1 400"), "{too_long}");
        assert!(get(&endpoint, "/loglevel").await.ends_with("debug\n"));
    }

    #[tokio::test]
    async fn connections_are_bounded_and_end_with_the_endpoint() {
        let endpoint = start(Checks::new()).await;
        let mut idle = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            let mut stream = TcpStream::connect(endpoint.address).await.expect("connected");
            stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
            assert!(stream.read(&mut [0; 256]).await.expect("answered") > 0);
            idle.push(stream);
        }
        let mut waiting = TcpStream::connect(endpoint.address).await.expect("queued");
        waiting.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
        let mut buffer = [0; 256];
        let unanswered = timeout(Duration::from_millis(50), waiting.read(&mut buffer)).await;
        assert!(unanswered.is_err(), "one connection too many was served");
        drop(idle.pop());
        assert!(waiting.read(&mut buffer).await.expect("answered") > 0);
        endpoint.stop.cancel();
        endpoint.server.await.expect("ended");
        assert_eq!(waiting.read(&mut buffer).await.expect("closed"), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_cut_off() {
        let endpoint = start(Checks::new()).await;
        let mut stream = TcpStream::connect(endpoint.address).await.expect("connected");
        stream.write_all(b"GET /healthz HT").await.expect("sent");
        let mut answer = Vec::new();
        let closed = timeout(HEADER_TIMEOUT * 2, stream.read_to_end(&mut answer)).await;
        assert!(closed.is_ok(), "still open");
    }
}
