//! Both ends against each other, and a server against peers that misbehave.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use protocol::command::{RemotingCommand, SerializeType};
use protocol::frame;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use remoting::{
    Channel, Context, Limits, NoRequests, Processor, RemotingClient, RemotingError,
    RemotingMetrics, Response, Server, ServerConfig,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

const ECHO: RequestCode = RequestCode(1);
const HOLD: RequestCode = RequestCode(2);
const PARTS: RequestCode = RequestCode(3);
const CALL_BACK: RequestCode = RequestCode(4);
const SECOND: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Peer {
    release: Notify,
    held: AtomicUsize,
    /// Held since the connection last was about to wait.
    fresh: AtomicUsize,
    connected: AtomicUsize,
    disconnected: Notify,
}

impl Processor for Peer {
    async fn process(&self, context: Context, request: RemotingCommand) -> Option<Response> {
        match request.request_code() {
            ECHO => Some(RemotingCommand::success().with_body(request.body).into()),
            HOLD => {
                self.held.fetch_add(1, Ordering::SeqCst);
                self.fresh.fetch_add(1, Ordering::SeqCst);
                self.release.notified().await;
                Some(RemotingCommand::success().into())
            }
            PARTS => {
                let parts = vec![request.body.clone(), Bytes::new(), request.body];
                Some(Response::with_parts(RemotingCommand::success(), parts))
            }
            CALL_BACK => {
                let question = RemotingCommand::request_without_header(ECHO);
                let answer = context.channel.invoke(question.with_body(request.body), SECOND).await;
                Some(RemotingCommand::success().with_body(answer.ok()?.body).into())
            }
            _ => None,
        }
    }

    fn before_wait(&self) {
        self.fresh.store(0, Ordering::SeqCst);
    }

    fn connected(&self, _: &Channel) {
        self.connected.fetch_add(1, Ordering::SeqCst);
    }

    fn disconnected(&self, _: &Channel) {
        self.disconnected.notify_one();
    }
}

fn server(limits: Limits) -> (Server<Peer>, Arc<Peer>, String) {
    let peer = Arc::new(Peer::default());
    let listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let config = ServerConfig { listen, limits };
    let metrics = RemotingMetrics::default();
    let server = Server::start(config, Arc::clone(&peer), metrics).unwrap();
    let addr = server.addresses()[0].to_string();
    (server, peer, addr)
}

fn client<P: Processor>(processor: P) -> RemotingClient<P> {
    RemotingClient::new(Limits::default(), Arc::new(processor), RemotingMetrics::default())
}

fn request(code: RequestCode, body: &'static [u8]) -> RemotingCommand {
    RemotingCommand::request_without_header(code).with_body(body)
}

/// Waits for a condition that becomes true by itself.
async fn until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(SECOND, wait).await.expect("the condition came true");
}

async fn raw(addr: &str, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

async fn read_frame(stream: &mut TcpStream) -> RemotingCommand {
    let mut buffer = BytesMut::new();
    loop {
        if let Some(command) = frame::decode(&mut buffer, 1 << 20).unwrap() {
            return command;
        }
        assert_ne!(stream.read_buf(&mut buffer).await.unwrap(), 0, "closed");
    }
}

#[tokio::test]
async fn many_requests_share_a_connection() {
    let (_server, peer, addr) = server(Limits::default());
    let client = Arc::new(client(NoRequests));
    let mut tasks = Vec::new();
    for at in 0..200 {
        let (client, addr) = (Arc::clone(&client), addr.clone());
        tasks.push(tokio::spawn(async move {
            let body = vec![at; 3_000];
            let command = RemotingCommand::request_without_header(ECHO).with_body(body.clone());
            assert_eq!(client.invoke(&addr, command, SECOND).await.unwrap().body, body);
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(peer.connected.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn answers_come_in_the_serialisation_of_the_request_and_in_pieces() {
    let (_server, _, addr) = server(Limits::default());
    let client = client(NoRequests);
    let mut command = request(PARTS, b"half");
    command.serialize_type = SerializeType::RocketMq;
    let answer = client.invoke(&addr, command, SECOND).await.unwrap();
    assert_eq!(answer.body, "halfhalf");
    assert_eq!(answer.serialize_type, SerializeType::RocketMq);
    assert!(answer.is_response());
}

#[tokio::test]
async fn both_sides_may_ask() {
    let (_server, _, addr) = server(Limits::default());
    let client = client(Peer::default());
    let answer = client.invoke(&addr, request(CALL_BACK, b"you"), SECOND).await.unwrap();
    assert_eq!(answer.body, "you");
}

#[tokio::test]
async fn a_held_request_blocks_no_other_and_ends_with_its_connection() {
    let (_server, peer, addr) = server(Limits::default());
    let client = client(NoRequests);
    let held = client.invoke(&addr, request(HOLD, b""), Duration::from_millis(50)).await;
    assert!(matches!(held, Err(RemotingError::Timeout { .. })), "{held:?}");
    client.invoke(&addr, request(ECHO, b"x"), SECOND).await.unwrap();
    let channel = client.channel(&addr).await.unwrap();
    let waiting = channel.invoke(request(HOLD, b""), SECOND);
    let close = async {
        until(|| peer.held.load(Ordering::SeqCst) == 2).await;
        channel.close();
    };
    let (waited, ()) = tokio::join!(waiting, close);
    assert!(matches!(waited, Err(RemotingError::Closed { .. })), "{waited:?}");
    peer.disconnected.notified().await;
    client.invoke(&addr, request(ECHO, b"x"), SECOND).await.expect("it connects again");
}

#[tokio::test]
async fn garbage_costs_its_sender_the_connection_and_nobody_else() {
    let (_server, _, addr) = server(Limits::default());
    let client = client(NoRequests);
    client.invoke(&addr, request(ECHO, b"x"), SECOND).await.unwrap();
    let frames: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x00\xa5",
        &[0x7F, 0xFF, 0xFF, 0xFF],
        &[0, 0, 0, 8, 0, 0, 0, 4, b'{', b'}', b'}', b'}'],
        &[0, 0, 0, 4, 9, 0, 0, 0],
    ];
    for bytes in frames {
        let mut stream = raw(&addr, bytes).await;
        let mut rest = Vec::new();
        // A reset counts as closed, too: it comes when the peer left bytes unread.
        let _ = tokio::time::timeout(SECOND, stream.read_to_end(&mut rest)).await.unwrap();
        assert!(rest.is_empty());
    }
    client.invoke(&addr, request(ECHO, b"x"), SECOND).await.unwrap();
}

#[tokio::test]
async fn requests_beyond_the_limit_are_refused_and_oneway_gets_no_answer() {
    let (_server, peer, addr) = server(Limits { requests_in_flight_max: 1, ..Limits::default() });
    let mut stream = TcpStream::connect(&addr).await.unwrap();
    let mut bytes = BytesMut::new();
    let oneway = RemotingCommand { opaque: 9, ..request(ECHO, b"") }.oneway();
    for command in [
        RemotingCommand { opaque: 1, ..request(HOLD, b"") },
        oneway,
        RemotingCommand { opaque: 2, ..request(ECHO, b"") },
    ] {
        frame::encode(&command, &mut bytes).unwrap();
    }
    stream.write_all(&bytes).await.unwrap();
    let refused = read_frame(&mut stream).await;
    assert_eq!((refused.opaque, refused.response_code()), (2, ResponseCode::SYSTEM_BUSY));
    until(|| peer.held.load(Ordering::SeqCst) == 1).await;
    peer.release.notify_one();
    assert_eq!(read_frame(&mut stream).await.opaque, 1);
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed() {
    let (_server, _, addr) = server(Limits { connections_max: 1, ..Limits::default() });
    let client = client(NoRequests);
    client.invoke(&addr, request(ECHO, b"x"), SECOND).await.unwrap();
    let mut second = TcpStream::connect(&addr).await.unwrap();
    assert_eq!(second.read(&mut [0; 8]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn a_silent_connection_is_closed_but_not_while_a_request_is_held() {
    let (_server, peer, addr) =
        server(Limits { idle: Duration::from_millis(40), ..Limits::default() });
    let mut silent = TcpStream::connect(&addr).await.unwrap();
    let client = client(NoRequests);
    let channel = client.channel(&addr).await.unwrap();
    let waiting = channel.invoke(request(HOLD, b""), SECOND);
    let release = async {
        assert_eq!(silent.read(&mut [0; 8]).await.unwrap_or(0), 0);
        until(|| peer.held.load(Ordering::SeqCst) == 1).await;
        peer.release.notify_one();
    };
    let (answer, ()) = tokio::join!(waiting, release);
    assert_eq!(answer.unwrap().response_code(), ResponseCode::SUCCESS);
}

#[tokio::test]
async fn a_stopping_server_finishes_what_it_began() {
    let (server, peer, addr) = server(Limits::default());
    let client = client(NoRequests);
    let channel = client.channel(&addr).await.unwrap();
    let waiting = channel.invoke(request(HOLD, b""), SECOND);
    let stop = async {
        until(|| peer.held.load(Ordering::SeqCst) == 1).await;
        let release = async {
            tokio::task::yield_now().await;
            peer.release.notify_one();
        };
        tokio::join!(server.shutdown(), release);
    };
    let (answer, ()) = tokio::join!(waiting, stop);
    assert_eq!(answer.unwrap().response_code(), ResponseCode::SUCCESS);
    let refused = client.invoke(&addr, request(ECHO, b""), SECOND).await;
    assert!(matches!(refused, Err(RemotingError::Connect { .. })), "{refused:?}");
}

#[tokio::test]
async fn what_a_peer_sends_before_it_goes_is_not_left_behind() {
    let (_server, peer, addr) = server(Limits::default());
    for round in 1..=20 {
        let mut stream = TcpStream::connect(&addr).await.unwrap();
        let mut request = BytesMut::new();
        let last = RemotingCommand::request_without_header(HOLD).oneway();
        frame::encode(&last, &mut request).unwrap();
        // More than one read takes, and at its end what closes the connection.
        let large = RemotingCommand::request_without_header(ECHO).oneway();
        frame::encode(&large.with_body(vec![0; 64 << 10]), &mut request).unwrap();
        request.extend_from_slice(&[0xFF; 8]);
        stream.write_all(&request).await.unwrap();
        tokio::time::timeout(SECOND, peer.disconnected.notified()).await.unwrap();
        assert_eq!(peer.held.load(Ordering::SeqCst), round);
        assert_eq!(peer.fresh.load(Ordering::SeqCst), 0, "before_wait was called");
    }
}
