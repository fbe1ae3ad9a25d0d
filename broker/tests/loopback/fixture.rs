//! A broker in this process and a client that speaks to it over loopback.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use broker::config::{BrokerConfig, NO_EFFECT, check};
use broker::{RunningBroker, StartError};
use bytes::Bytes;
use daemon::config::Loader;
use daemon::shutdown::Shutdown;
use protocol::command::RemotingCommand;
use protocol::header::Header;
use protocol::header::offset::{OffsetResponseHeader, QueueOffsetRequestHeader};
use protocol::header::pull::{PullMessageRequestHeader, PullMessageResponseHeader};
use protocol::header::send::{
    SendMessageRequestHeader, SendMessageRequestHeaderV2, SendMessageResponseHeader,
};
use protocol::heartbeat::{ConsumerData, HeartbeatData, ProducerData};
use protocol::message::MessageExt;
use protocol::property;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use protocol::subscription::SubscriptionData;
use remoting::{Context, Limits, Processor, RemotingClient, RemotingMetrics, Response};
use serde::Serialize;
use tempfile::TempDir;
use tokio::sync::mpsc;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
pub(crate) const SUSPEND: i32 = 2;
pub(crate) const WITH_SUBSCRIPTION: i32 = 4;

/// A port that is free at present.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .expect("works in a test")
        .local_addr()
        .expect("works in a test")
        .port()
}

/// A broker of its own.
pub(crate) struct Fixture {
    pub(crate) running: Option<RunningBroker>,
    pub(crate) shutdown: Shutdown,
    pub(crate) address: String,
    pub(crate) dir: TempDir,
    settings: Vec<(String, String)>,
}

impl Fixture {
    pub(crate) async fn start(settings: &[(&str, &str)]) -> Self {
        let settings =
            settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Self::open(tempfile::tempdir().expect("works in a test"), settings).await
    }

    async fn open(dir: TempDir, settings: Vec<(String, String)>) -> Self {
        let shutdown = Shutdown::new();
        loop {
            let ports = (free_port(), free_port());
            match start(dir.path(), ports, &settings, &shutdown).await {
                Ok(running) => {
                    let address = format!("127.0.0.1:{}", ports.0);
                    return Self { running: Some(running), shutdown, address, dir, settings };
                }
                // Another test may have taken a port meanwhile.
                Err(StartError::Listen(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(crate) async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.shutdown(&self.shutdown).await;
        }
    }

    /// Ends the broker in order and starts it again on the same files.
    pub(crate) async fn restart(mut self) -> Self {
        self.stop().await;
        Self::open(self.dir, self.settings).await
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.address)
    }
}

async fn start(
    root: &Path,
    (port, fast_port): (u16, u16),
    settings: &[(String, String)],
    shutdown: &Shutdown,
) -> Result<RunningBroker, StartError> {
    let mut loader = Loader::<BrokerConfig>::new().no_effect(NO_EFFECT).check(check);
    for (key, value) in [
        ("brokerName", "broker-a"),
        ("bindAddress", "127.0.0.1"),
        ("brokerIP1", "127.0.0.1"),
        ("listenPort", &port.to_string()),
        ("fastListenPort", &fast_port.to_string()),
        ("metricsPromExporterPort", "0"),
        ("mappedFileSizeCommitLog", "4194304"),
        ("storePathRootDir", &root.display().to_string()),
    ] {
        loader = loader.flag("test", key, value);
    }
    for (key, value) in settings {
        loader = loader.flag("test", key, value);
    }
    let loaded = loader.load().unwrap_or_else(|errors| panic!("{errors}"));
    RunningBroker::start(loaded, shutdown, None).await
}

/// Keeps what the broker asks of its client, and answers some of it.
struct Inbox {
    requests: mpsc::Sender<RemotingCommand>,
}

impl Processor for Inbox {
    async fn process(&self, _: Context, request: RemotingCommand) -> Option<Response> {
        let answer = RemotingCommand::success().with_body(request.body.clone());
        let _ = self.requests.send(request).await;
        Some(answer.into())
    }
}

/// One connection to a broker.
pub(crate) struct Client {
    remoting: RemotingClient<Inbox>,
    address: String,
    inbox: tokio::sync::Mutex<mpsc::Receiver<RemotingCommand>>,
}

impl Client {
    pub(crate) fn new(address: &str) -> Self {
        let (requests, inbox) = mpsc::channel(64);
        let inbox_processor = Arc::new(Inbox { requests });
        let metrics = RemotingMetrics::default();
        let remoting = RemotingClient::new(Limits::default(), inbox_processor, metrics);
        Self { remoting, address: address.to_owned(), inbox: tokio::sync::Mutex::new(inbox) }
    }

    pub(crate) async fn invoke(&self, request: RemotingCommand) -> RemotingCommand {
        let answer = self.remoting.invoke(&self.address, request, TIMEOUT).await;
        answer.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Ends the connection.
    pub(crate) async fn close(self) {
        self.remoting.shutdown().await;
    }

    pub(crate) async fn oneway(&self, request: RemotingCommand) {
        self.remoting.oneway(&self.address, request).await.expect("works in a test");
    }

    /// A request with a header; the answer must be a success.
    pub(crate) async fn ask(&self, code: RequestCode, header: &impl Header) -> RemotingCommand {
        let answer = self.invoke(RemotingCommand::request(code, header)).await;
        assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{code}: {:?}", answer.remark);
        answer
    }

    /// A request with a JSON body; the answer must be a success.
    pub(crate) async fn ask_json(
        &self,
        code: RequestCode,
        body: &impl Serialize,
    ) -> RemotingCommand {
        let body = protocol::json::to_vec(body).expect("works in a test");
        let request = RemotingCommand::request_without_header(code).with_body(body);
        let answer = self.invoke(request).await;
        assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{code}: {:?}", answer.remark);
        answer
    }

    /// The code and remark of a request that is refused.
    pub(crate) async fn refused(
        &self,
        code: RequestCode,
        header: &impl Header,
    ) -> (ResponseCode, String) {
        let answer = self.invoke(RemotingCommand::request(code, header)).await;
        (answer.response_code(), answer.remark.unwrap_or_default())
    }

    /// The next request of the broker with this code.
    pub(crate) async fn asked(&self, code: RequestCode) -> RemotingCommand {
        let mut inbox = self.inbox.lock().await;
        let wait = async {
            loop {
                let request = inbox.recv().await.expect("the broker is there");
                if request.request_code() == code {
                    return request;
                }
            }
        };
        tokio::time::timeout(TIMEOUT, wait).await.unwrap_or_else(|_| panic!("no {code}"))
    }

    /// Sends a message; it must be stored.
    /// Sends, and waits until the message can be read: that is a moment after the answer.
    pub(crate) async fn send(&self, topic: &str, body: &str, properties: &[(&str, &str)]) -> Sent {
        let answer = self.try_send(send_header(topic, properties), body).await;
        let remark = answer.remark.clone();
        assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{remark:?}");
        let header: SendMessageResponseHeader = answer.header().expect("works in a test");
        let goes_elsewhere = topic.starts_with('%') || properties.iter().any(|p| p.0 == "DELAY");
        if !goes_elsewhere {
            self.wait_readable(topic, header.queue_id, header.queue_offset).await;
        }
        Sent { msg_id: header.msg_id, queue_id: header.queue_id, offset: header.queue_offset }
    }

    async fn wait_readable(&self, topic: &str, queue_id: i32, offset: i64) {
        let header = QueueOffsetRequestHeader {
            topic: topic.to_owned(),
            queue_id,
            committed: true,
            broker_name: None,
        };
        let begin = std::time::Instant::now();
        loop {
            let request = RemotingCommand::request(RequestCode::GET_MAX_OFFSET, &header);
            let end: OffsetResponseHeader =
                self.invoke(request).await.header().expect("works in a test");
            if end.offset > offset {
                return;
            }
            assert!(begin.elapsed() < TIMEOUT, "{topic} has nothing at {offset}");
        }
    }

    pub(crate) async fn try_send(
        &self,
        header: SendMessageRequestHeader,
        body: &str,
    ) -> RemotingCommand {
        let header = SendMessageRequestHeaderV2(header);
        let request = RemotingCommand::request(RequestCode::SEND_MESSAGE_V2, &header);
        self.invoke(request.with_body(Bytes::from(body.to_owned()))).await
    }

    pub(crate) async fn pull(&self, header: PullMessageRequestHeader) -> Pulled {
        let request = RemotingCommand::request(RequestCode::PULL_MESSAGE, &header);
        let answer = self.invoke(request).await;
        Pulled {
            code: answer.response_code(),
            remark: answer.remark.clone().unwrap_or_default(),
            header: answer.header().unwrap_or_default(),
            messages: MessageExt::decode_all(&answer.body, 1 << 20).expect("works in a test"),
        }
    }

    /// Pulls until there are messages.
    pub(crate) async fn pull_some(&self, topic: &str, offset: i64) -> Vec<MessageExt> {
        let begin = std::time::Instant::now();
        while begin.elapsed() < TIMEOUT {
            let pulled = self.pull(pull_header(topic, 0, offset, SUSPEND)).await;
            if !pulled.messages.is_empty() {
                return pulled.messages;
            }
        }
        panic!("nothing came to {topic}");
    }

    pub(crate) async fn heartbeat(&self, data: &HeartbeatData) -> RemotingCommand {
        self.ask_json(RequestCode::HEART_BEAT, data).await
    }
}

pub(crate) struct Sent {
    pub(crate) msg_id: String,
    pub(crate) queue_id: i32,
    pub(crate) offset: i64,
}

pub(crate) struct Pulled {
    pub(crate) code: ResponseCode,
    pub(crate) remark: String,
    pub(crate) header: PullMessageResponseHeader,
    pub(crate) messages: Vec<MessageExt>,
}

impl Pulled {
    pub(crate) fn bodies(&self) -> Vec<String> {
        bodies(&self.messages)
    }
}

pub(crate) fn bodies(messages: &[MessageExt]) -> Vec<String> {
    messages.iter().map(|message| String::from_utf8_lossy(&message.body).into_owned()).collect()
}

/// A send to queue 0 of a topic that is made if need be.
pub(crate) fn send_header(topic: &str, properties: &[(&str, &str)]) -> SendMessageRequestHeader {
    SendMessageRequestHeader {
        producer_group: "p".into(),
        topic: topic.into(),
        default_topic: "TBW102".into(),
        default_topic_queue_nums: 4,
        queue_id: 0,
        born_timestamp: 1,
        properties: Some(property::encode(properties.iter().copied())),
        ..SendMessageRequestHeader::default()
    }
}

/// A pull of everything, with a subscription of its own.
pub(crate) fn pull_header(
    topic: &str,
    queue_id: i32,
    offset: i64,
    flags: i32,
) -> PullMessageRequestHeader {
    PullMessageRequestHeader {
        consumer_group: "g".into(),
        topic: topic.into(),
        queue_id,
        queue_offset: offset,
        max_msg_nums: 32,
        sys_flag: flags | WITH_SUBSCRIPTION,
        suspend_timeout_millis: 15_000,
        subscription: Some("*".into()),
        ..PullMessageRequestHeader::default()
    }
}

/// A consumer of one topic.
pub(crate) fn consumer(client: &str, group: &str, topic: &str, expression: &str) -> HeartbeatData {
    HeartbeatData {
        client_id: client.into(),
        consumer_data_set: vec![ConsumerData {
            group_name: group.into(),
            subscription_data_set: vec![SubscriptionData::by_tags(topic, expression, 1)],
            ..ConsumerData::default()
        }],
        ..HeartbeatData::default()
    }
}

pub(crate) fn producer(client: &str, group: &str) -> HeartbeatData {
    HeartbeatData {
        client_id: client.into(),
        producer_data_set: vec![ProducerData { group_name: group.into() }],
        ..HeartbeatData::default()
    }
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !holds().await {
        assert!(begin.elapsed() < TIMEOUT, "still not: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
