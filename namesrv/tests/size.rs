//! A name server with many topics, brokers and clients, as a process of its own: while brokers
//! register everything again, clients must not wait for their routes.
//!
//! The short form runs with the other tests. `make namesrv-size` runs the long one, with optimised
//! programs: 50,000 topics on each of 10 broker names, 2,000 connections. `NAMESRV_ADDR` names
//! another name server to measure instead, for instance Apache's, whose figures are printed only.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fmt::Write as _;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use protocol::command::RemotingCommand;
use protocol::header::route::{GetRouteInfoRequestHeader, RegisterBrokerRequestHeader};
use protocol::register_broker::checksum;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use remoting::{Limits, NoRequests, RemotingClient, RemotingMetrics};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Longest time that a client may wait for a route.
const STALL: Duration = Duration::from_millis(100);
/// On a machine that does other things, too, one attempt of these must be without a stall.
const ATTEMPTS: usize = 3;
const GROUPS: usize = 10;
const TIMEOUT: Duration = Duration::from_secs(30);

/// How large it is.
#[derive(Clone, Copy)]
struct Size {
    topics: usize,
    connections: usize,
    /// Route queries a second of all connections together.
    rate: u32,
}

const SHORT: Size = Size { topics: 3_000, connections: 200, rate: 500 };
const LONG: Size = Size { topics: 50_000, connections: 2_000, rate: 2_000 };

type Client = RemotingClient<NoRequests>;

fn client() -> Client {
    RemotingClient::new(Limits::default(), NoRequests.into(), RemotingMetrics::default())
}

/// The name server that is measured.
struct NameServer {
    addr: String,
    process: Option<Child>,
    _directory: tempfile::TempDir,
}

impl NameServer {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        if let Ok(addr) = std::env::var("NAMESRV_ADDR") {
            return Self { addr, process: None, _directory: directory };
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let kv = directory.path().join("kvConfig.json");
        let process = Command::new(env!("CARGO_BIN_EXE_rocketmq-namesrv"))
            .args(["--port", &port.to_string(), "--health-port", "0"])
            .args(["--set", "bindAddress=127.0.0.1", "--set", "waitSecondsForService=0"])
            .args(["--set", &format!("kvConfigPath={}", kv.display())])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self {
            addr: format!("127.0.0.1:{port}"),
            process: Some(process),
            _directory: directory,
        };
        let began = Instant::now();
        while client().channel(&server.addr).await.is_err() {
            assert!(began.elapsed() < TIMEOUT, "it does not start");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        server
    }

    fn resident_bytes(&self) -> Option<u64> {
        let id = self.process.as_ref()?.id();
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn topic(number: usize) -> String {
    format!("topic-of-some-length-{number:06}")
}

/// The body of a registration, as Apache's broker writes it.
fn body(topics: impl Iterator<Item = String>, counter: usize) -> Bytes {
    let mut text =
        String::from(r#"{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":"#);
    write!(text, r#"{{"counter":{counter},"stateVersion":0,"timestamp":1}}"#).unwrap();
    text.push_str(r#","topicConfigTable":{"#);
    for (at, topic) in topics.enumerate() {
        let comma = if at == 0 { "" } else { "," };
        write!(
            text,
            r#"{comma}"{topic}":{{"attributes":{{}},"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"{topic}","topicSysFlag":0,"writeQueueNums":8}}"#
        )
        .unwrap();
    }
    text.push_str("}}}");
    text.into()
}

/// The brokers, each with its connection.
struct Brokers {
    addr: String,
    clients: Vec<Client>,
}

impl Brokers {
    /// All of them register this at once; how long the last one waited for its answer.
    async fn register(&self, body: &Bytes) -> Duration {
        let began = Instant::now();
        let crc32 = checksum(body);
        let calls = self.clients.iter().enumerate().map(async |(number, client)| {
            let header = RegisterBrokerRequestHeader {
                broker_name: format!("broker-{number}"),
                broker_addr: format!("10.0.0.{number}:10911"),
                cluster_name: "cluster".into(),
                ha_server_addr: format!("10.0.0.{number}:10912"),
                body_crc32: crc32,
                ..Default::default()
            };
            let request = RemotingCommand::request(RequestCode::REGISTER_BROKER, &header);
            let request = request.with_body(body.clone());
            let answer = client.invoke(&self.addr, request, TIMEOUT).await.unwrap();
            assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{answer:?}");
        });
        futures::future::join_all(calls).await;
        began.elapsed()
    }
}

/// Clients that ask for routes at a rate, whatever happens.
struct Clients {
    worst: Arc<AtomicU64>,
    asked: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl Clients {
    async fn start(addr: &str, size: Size) -> Self {
        let (worst, asked) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        let period = Duration::from_secs(1) * u32::try_from(size.connections).unwrap() / size.rate;
        for number in 0..size.connections {
            let client = client();
            client.channel(addr).await.unwrap();
            let (addr, worst, asked) = (addr.to_owned(), Arc::clone(&worst), Arc::clone(&asked));
            let stop = Arc::clone(&stop);
            tasks.spawn(async move {
                let share = u32::try_from(number).unwrap() * period
                    / u32::try_from(size.connections).unwrap();
                let mut due = Instant::now() + share;
                let mut next = number * 7919;
                while !stop.load(Ordering::Relaxed) {
                    tokio::time::sleep_until(due).await;
                    let asked_at = Instant::now();
                    next = (next + 104_729) % size.topics;
                    let header = GetRouteInfoRequestHeader {
                        topic: topic(next),
                        accept_standard_json_only: Some(true),
                    };
                    let code = RequestCode::GET_ROUTEINFO_BY_TOPIC;
                    let request = RemotingCommand::request(code, &header);
                    client.invoke(&addr, request, TIMEOUT).await.unwrap();
                    let micros = u64::try_from(asked_at.elapsed().as_micros()).unwrap();
                    worst.fetch_max(micros, Ordering::Relaxed);
                    asked.fetch_add(1, Ordering::Relaxed);
                    due += period;
                }
            });
        }
        Self { worst, asked, stop, tasks }
    }

    /// The worst wait while `work` was done.
    async fn worst_during(&self, what: &str, work: impl Future<Output = Duration>) -> Duration {
        self.worst.store(0, Ordering::Relaxed);
        let before = self.asked.load(Ordering::Relaxed);
        let took = work.await;
        // Who asked while it was done has its answer soon after.
        tokio::time::sleep(STALL).await;
        let worst = Duration::from_micros(self.worst.load(Ordering::Relaxed));
        let asked = self.asked.load(Ordering::Relaxed) - before;
        println!("{what:<44} {took:>10.1?}   {asked:>6} routes, the longest {worst:.1?}");
        worst
    }

    async fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
    }
}

/// One attempt; the longest wait for a route.
async fn attempt(size: Size) -> Duration {
    let server = NameServer::start().await;
    let brokers =
        Brokers { addr: server.addr.clone(), clients: (0..GROUPS).map(|_| client()).collect() };
    let all = |counter| body((0..size.topics).map(topic), counter);
    let (first, second, new) = (all(1), all(2), body(std::iter::once("new".to_owned()), 3));
    println!(
        "{} topics on {GROUPS} broker names, {:.1} MB each; {} connections",
        size.topics,
        first.len() as f64 / 1e6,
        size.connections
    );
    let clients = Clients::start(&server.addr, size).await;
    let idle = server.resident_bytes();
    let quiet = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Duration::from_secs(1)
    };
    clients.worst_during("nothing", quiet).await;
    let mut worst = clients.worst_during("all register first", brokers.register(&first)).await;
    let full = server.resident_bytes();
    for (what, body) in [
        ("all register again", &first),
        ("all register, everything changed", &second),
        ("all register one more topic", &new),
        ("all register after that", &second),
    ] {
        worst = worst.max(clients.worst_during(what, brokers.register(body)).await);
    }
    let leave = async {
        let began = Instant::now();
        brokers.clients.iter().for_each(|client| client.forget(&server.addr));
        brokers.register(&first).await;
        began.elapsed()
    };
    worst = worst.max(clients.worst_during("all leave and come back", leave).await);
    if let Some((idle, full)) = idle.zip(full) {
        let each = full.saturating_sub(idle) as f64 / size.topics as f64;
        println!(
            "resident {:.1} MiB, {:.1} MiB before: {each:.0} bytes a topic on {GROUPS} names",
            full as f64 / 1_048_576.0,
            idle as f64 / 1_048_576.0
        );
    }
    clients.stop().await;
    worst
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_are_told_while_everything_is_registered() {
    let size = if std::env::var_os("NAMESRV_SIZE").is_some() { LONG } else { SHORT };
    let mut worst = Duration::MAX;
    for _ in 0..ATTEMPTS {
        worst = worst.min(attempt(size).await);
        if worst < STALL || std::env::var_os("NAMESRV_ADDR").is_some() {
            return;
        }
    }
    panic!("a client waited {worst:?} for a route");
}
