//! Registration with name servers, and the orderly end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::fixture::{Fixture, TIMEOUT, consumer, free_port, until};
use parking_lot::Mutex;
use protocol::body::KvTable;
use protocol::command::RemotingCommand;
use protocol::header::route::{BrokerIdentityRequestHeader, RegisterBrokerRequestHeader};
use protocol::json;
use protocol::register_broker::RegisterBrokerBody;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use remoting::{Context, Limits, Processor, RemotingMetrics, Response, Server, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// A name server that tells of what it is told.
struct NameServer {
    requests: mpsc::Sender<RemotingCommand>,
    /// Registrations that are refused before one is taken.
    refusals: Mutex<usize>,
    /// It answers nothing any more.
    is_silent: Arc<AtomicBool>,
}

impl Processor for NameServer {
    async fn process(&self, _: Context, request: RemotingCommand) -> Option<Response> {
        let is_refused = {
            let mut refusals = self.refusals.lock();
            let is_refused = *refusals > 0;
            *refusals = refusals.saturating_sub(1);
            is_refused
        };
        let _ = self.requests.send(request).await;
        if self.is_silent.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if is_refused {
            return Some(RemotingCommand::error(ResponseCode::SYSTEM_ERROR, "not now").into());
        }
        let ordered = KvTable { table: BTreeMap::from([("o".to_owned(), "broker-a:1".into())]) };
        let body = json::to_vec(&ordered).expect("works in a test");
        Some(RemotingCommand::success().with_body(body).into())
    }
}

struct Fake {
    address: String,
    server: Server<NameServer>,
    requests: mpsc::Receiver<RemotingCommand>,
    is_silent: Arc<AtomicBool>,
}

impl Fake {
    fn start(refusals: usize) -> Self {
        Self::start_at("127.0.0.1:0", refusals)
    }

    fn start_at(address: &str, refusals: usize) -> Self {
        let (sender, requests) = mpsc::channel(256);
        let is_silent = Arc::new(AtomicBool::new(false));
        let processor = NameServer {
            requests: sender,
            refusals: Mutex::new(refusals),
            is_silent: Arc::clone(&is_silent),
        };
        let config = ServerConfig {
            listen: vec![address.parse().expect("works in a test")],
            limits: Limits::default(),
        };
        let metrics = RemotingMetrics::default();
        let server = Server::start(config, Arc::new(processor), metrics).expect("works in a test");
        Self { address: server.addresses()[0].to_string(), server, requests, is_silent }
    }

    async fn told(&mut self, code: RequestCode) -> RemotingCommand {
        let wait = async {
            loop {
                let request = self.requests.recv().await.expect("the name server is there");
                if request.request_code() == code {
                    return request;
                }
            }
        };
        tokio::time::timeout(TIMEOUT, wait).await.unwrap_or_else(|_| panic!("no {code}"))
    }

    /// The next registration: who, and the topics in it.
    async fn registration(&mut self) -> (RegisterBrokerRequestHeader, RegisterBrokerBody) {
        let request = self.told(RequestCode::REGISTER_BROKER).await;
        let header: RegisterBrokerRequestHeader = request.header().expect("works in a test");
        let crc = header.body_crc32;
        (
            header,
            RegisterBrokerBody::decode(&request.body, request.version, crc)
                .expect("works in a test"),
        )
    }
}

fn topics(body: &RegisterBrokerBody) -> Vec<&str> {
    let table = &body.topic_config_serialize_wrapper.topic_config_table;
    table.keys().map(String::as_str).collect()
}

#[tokio::test]
async fn every_name_server_learns_of_everything() {
    let (mut first, mut second) = (Fake::start(0), Fake::start(0));
    let servers = format!("{};{}", first.address, second.address);
    let settings = [("namesrvAddr", servers.as_str()), ("brokerIP1", "localhost")];
    let mut broker = Fixture::start(&settings).await;
    let port = broker.address.rsplit_once(':').unwrap().1;
    for server in [&mut first, &mut second] {
        let (header, body) = server.registration().await;
        assert_eq!((header.broker_name.as_str(), header.broker_id), ("broker-a", 0));
        assert_eq!(header.broker_addr, format!("localhost:{port}"), "the name as it was given");
        assert!(topics(&body).contains(&"TBW102"));
    }
    let client = broker.client();
    client.send("o", "x", &[]).await;
    for server in [&mut first, &mut second] {
        let (_, body) = server.registration().await;
        assert_eq!(topics(&body), ["o"], "only what is new");
        assert!(body.topic_config_serialize_wrapper.data_version.counter > 0);
    }
    let request = RemotingCommand::request_without_header(RequestCode::UPDATE_BROKER_CONFIG);
    client.invoke(request.with_body("brokerPermission=4")).await;
    let (_, body) = first.registration().await;
    let topic = &body.topic_config_serialize_wrapper.topic_config_table["o"];
    assert_eq!(topic.perm, 4, "all topics, with the permission of the broker");
    assert!(topic.order, "as the name server said");
    broker.stop().await;
    for server in [&mut first, &mut second] {
        let goodbye = server.told(RequestCode::UNREGISTER_BROKER).await;
        let header: BrokerIdentityRequestHeader = goodbye.header().unwrap();
        assert_eq!(header.broker_name, "broker-a");
    }
}

#[tokio::test]
async fn a_refused_or_lost_registration_is_made_again() {
    let mut server = Fake::start(1);
    let broker = Fixture::start(&[("namesrvAddr", &server.address)]).await;
    let (_, refused) = server.registration().await;
    let (_, taken) = server.registration().await;
    assert_eq!(topics(&refused), topics(&taken));
    server.server.shutdown().await;
    let mut server = Fake::start_at(&server.address, 0);
    let begin = std::time::Instant::now();
    let (_, again) = server.registration().await;
    assert_eq!(topics(&again), topics(&taken));
    assert!(begin.elapsed() < Duration::from_secs(20), "long before the period is over");
    drop(broker);
}

/// Java's client gives a heartbeat 3 s, then closes the connection and with it undoes the
/// heartbeat; the next one comes 30 s later.
#[tokio::test]
async fn a_heartbeat_waits_for_no_name_server() {
    let mut server = Fake::start(0);
    let broker = Fixture::start(&[("namesrvAddr", &server.address)]).await;
    server.registration().await;
    server.is_silent.store(true, Ordering::SeqCst);
    let client = broker.client();
    let beat = consumer("c", "new", "t", "*");
    let heartbeat = client.heartbeat(&beat);
    let answer = tokio::time::timeout(Duration::from_secs(2), heartbeat).await;
    assert_eq!(answer.expect("an answer").response_code(), ResponseCode::SUCCESS);
    let (_, body) = server.registration().await;
    assert_eq!(topics(&body), ["%RETRY%new"]);
    until("the group is saved", async || {
        let groups = broker.dir.path().join("config/subscriptionGroup.json");
        std::fs::read_to_string(groups).is_ok_and(|text| text.contains("\"new\""))
    })
    .await;
}

#[tokio::test]
async fn an_idle_broker_ends_at_once_and_leaves_no_trace_of_a_crash() {
    let mut broker = Fixture::start(&[]).await;
    let client = broker.client();
    client.send("t", "x", &[]).await;
    let abort = broker.dir.path().join("abort");
    assert!(abort.exists());
    let begin = std::time::Instant::now();
    broker.stop().await;
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    assert!(!abort.exists());
    let broker = broker.restart().await;
    assert_eq!(crate::fixture::bodies(&broker.client().pull_some("t", 0).await), ["x"]);
}

/// Status and body of a GET.
async fn get(port: u16, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("works in a test");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("works in a test");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("works in a test");
    let (head, body) = answer.split_once("\r\n\r\n").expect("head and body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.expect("a status"), body.to_owned())
}

#[tokio::test]
async fn a_broker_is_ready_when_a_name_server_knows_it() {
    let (port, server) = (free_port(), format!("127.0.0.1:{}", free_port()));
    let port_text = port.to_string();
    let settings = [("metricsPromExporterPort", port_text.as_str()), ("namesrvAddr", &server)];
    let broker = Fixture::start(&settings).await;
    assert_eq!(get(port, "/healthz").await.0, 200);
    let (status, reason) = get(port, "/readyz").await;
    assert_eq!(status, 503);
    assert!(reason.contains(&format!("no name server of `{server}`")), "{reason}");
    let _name_server = Fake::start_at(&server, 0);
    until("ready", async || get(port, "/readyz").await.0 == 200).await;
    let metrics = get(port, "/metrics").await.1;
    assert!(metrics.contains("rocketmq_registered_name_servers{"), "{metrics}");
    broker.shutdown.stop();
    assert_eq!(get(port, "/readyz").await.0, 503, "not when it is about to end");
}
