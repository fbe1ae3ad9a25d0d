//! A master and its slaves.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Buf as _;
use parking_lot::Mutex;
use protocol::body::{ConsumerOffsetTable, HaRuntimeInfo, TopicConfigTable};
use protocol::command::RemotingCommand;
use protocol::ha::{TRANSFER_HEADER_BYTES, TransferHeader};
use protocol::header::offset::UpdateConsumerOffsetRequestHeader;
use protocol::header::offset::{OffsetResponseHeader, QueueOffsetRequestHeader};
use protocol::header::route::{RegisterBrokerRequestHeader, RegisterBrokerResponseHeader};
use protocol::json;
use protocol::message_codec;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use remoting::{Context, Limits, Processor, RemotingMetrics, Response, Server, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::fixture::{Client, Fixture, SUSPEND, free_port, pull_header, send_header, until};

/// A name server that tells slaves where their master is.
#[derive(Default)]
struct NameServer {
    master: Mutex<RegisterBrokerResponseHeader>,
}

impl Processor for NameServer {
    async fn process(&self, _: Context, request: RemotingCommand) -> Option<Response> {
        let Ok(header) = request.header::<RegisterBrokerRequestHeader>() else {
            return Some(RemotingCommand::success().into());
        };
        let mut master = self.master.lock();
        if header.broker_id == 0 {
            master.master_addr = Some(header.broker_addr);
            master.ha_server_addr = Some(header.ha_server_addr);
        }
        Some(RemotingCommand::success_with(&*master).into())
    }
}

fn name_server() -> (Server<NameServer>, String) {
    let config = ServerConfig {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        limits: Limits::default(),
    };
    let server = Server::start(config, Arc::<NameServer>::default(), RemotingMetrics::default());
    let server = server.expect("works in a test");
    let address = server.addresses()[0].to_string();
    (server, address)
}

async fn start(role: &str, id: &str, name_server: &str, more: &[(&str, &str)]) -> (Fixture, u16) {
    let ha_port = free_port();
    let port = ha_port.to_string();
    let mut settings = vec![
        ("brokerRole", role),
        ("brokerId", id),
        ("namesrvAddr", name_server),
        ("haListenPort", port.as_str()),
        ("slaveReadEnable", "true"),
        ("registerNameServerPeriod", "1000"),
    ];
    settings.extend_from_slice(more);
    (Fixture::start(&settings).await, ha_port)
}

async fn status(client: &Client) -> HaRuntimeInfo {
    let code = RequestCode::GET_BROKER_HA_STATUS;
    let answer = client.invoke(RemotingCommand::request_without_header(code)).await;
    json::from_slice(&answer.body).expect("works in a test")
}

async fn in_sync(client: &Client, slaves: i32) {
    until("the slaves are in sync", async || status(client).await.in_sync_slave_nums == slaves)
        .await;
}

async fn send(client: &Client, body: &str) -> RemotingCommand {
    client.try_send(send_header("t", &[]), body).await
}

async fn max_offset(client: &Client) -> i64 {
    let header = QueueOffsetRequestHeader {
        topic: "t".into(),
        queue_id: 0,
        committed: true,
        broker_name: None,
    };
    let answer = client.ask(RequestCode::GET_MAX_OFFSET, &header).await;
    answer.header::<OffsetResponseHeader>().expect("works in a test").offset
}

#[tokio::test]
async fn a_slave_has_everything_and_serves_it() {
    let (_server, names) = name_server();
    let (mut master, _) = start("SYNC_MASTER", "0", &names, &[]).await;
    let at_master = master.client();
    assert_eq!(send(&at_master, "alone").await.response_code(), ResponseCode::SLAVE_NOT_AVAILABLE);
    let (mut slave, _) = start("SLAVE", "1", &names, &[]).await;
    let at_slave = slave.client();
    in_sync(&at_master, 1).await;
    for number in 0..100 {
        let answer = send(&at_master, &number.to_string()).await;
        assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
    }
    // What is acknowledged is on the slave, and can be read there in a moment.
    until("the slave has all", async || max_offset(&at_slave).await == 101).await;
    until("the topic is there", async || {
        let code = RequestCode::GET_ALL_TOPIC_CONFIG;
        let answer = at_slave.invoke(RemotingCommand::request_without_header(code)).await;
        let table: TopicConfigTable = json::from_slice(&answer.body).expect("works in a test");
        table.topic_config_table.contains_key("t")
    })
    .await;
    let pulled = at_slave.pull(pull_header("t", 0, 0, 0)).await;
    assert_eq!(pulled.bodies()[..2], ["alone", "0"]);
    assert_eq!(pulled.header.suggest_which_broker_id, 0, "the master is there");
    let beyond = at_slave.pull(pull_header("t", 0, 500, SUSPEND)).await;
    assert_eq!(beyond.code, ResponseCode::PULL_RETRY_IMMEDIATELY);
    let refused = send(&at_slave, "no").await;
    assert_eq!(refused.response_code(), ResponseCode::SERVICE_NOT_AVAILABLE);

    let commit = UpdateConsumerOffsetRequestHeader {
        consumer_group: "g".into(),
        topic: "t".into(),
        queue_id: 0,
        commit_offset: 42,
        ..UpdateConsumerOffsetRequestHeader::default()
    };
    // A pull makes the group.
    assert_eq!(at_master.pull(pull_header("t", 0, 0, 0)).await.header.suggest_which_broker_id, 0);
    at_master.ask(RequestCode::UPDATE_CONSUMER_OFFSET, &commit).await;
    until("the offset is there", async || {
        let code = RequestCode::GET_ALL_CONSUMER_OFFSET;
        let answer = at_slave.invoke(RemotingCommand::request_without_header(code)).await;
        let table: ConsumerOffsetTable = json::from_slice(&answer.body).expect("works in a test");
        table.offset_table.get("t@g").and_then(|queues| queues.get(&0)) == Some(&42)
    })
    .await;

    let info = status(&at_master).await;
    assert!(info.master && info.ha_connection_info[0].in_sync, "{info:?}");
    let info = status(&at_slave).await;
    assert!(!info.master && info.ha_client_runtime_info.max_offset > 0, "{info:?}");

    // Away and back, the slave goes on where it ended.
    slave.stop().await;
    in_sync(&at_master, 0).await;
    assert_eq!(send(&at_master, "away").await.response_code(), ResponseCode::SLAVE_NOT_AVAILABLE);
    assert_eq!(max_offset(&at_master).await, 102, "nobody is waited for");
    let slave = slave.restart().await;
    let at_slave = slave.client();
    in_sync(&at_master, 1).await;
    until("the slave has all", async || max_offset(&at_slave).await == 102).await;

    // Without the master, consumers stay with the slave.
    master.stop().await;
    until("the master is away", async || {
        at_slave.pull(pull_header("t", 0, 0, 0)).await.header.suggest_which_broker_id == 1
    })
    .await;
    let mut beyond = pull_header("t", 0, 500, SUSPEND);
    beyond.suspend_timeout_millis = 10;
    let beyond = at_slave.pull(beyond).await;
    let found = (beyond.code, beyond.header.next_begin_offset);
    assert_eq!(found, (ResponseCode::PULL_NOT_FOUND, 500), "{}", beyond.remark);
}

/// A slave that speaks for itself.
struct RawSlave(TcpStream);

impl RawSlave {
    async fn connect(port: u16, report: i64) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("works in a test");
        let mut slave = Self(stream);
        slave.report(report).await;
        slave
    }

    async fn report(&mut self, offset: i64) {
        self.0.write_all(&offset.to_be_bytes()).await.expect("works in a test");
    }

    async fn frame(&mut self) -> (i64, Vec<u8>) {
        let mut header = [0; TRANSFER_HEADER_BYTES];
        self.0.read_exact(&mut header).await.expect("works in a test");
        let header = TransferHeader::decode(header).expect("works in a test");
        let mut body = vec![0; header.body_bytes as usize];
        self.0.read_exact(&mut body).await.expect("works in a test");
        (header.offset, body)
    }

    async fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        let read = self.0.read_to_end(&mut rest);
        tokio::time::timeout(Duration::from_secs(20), read).await.is_ok()
    }
}

#[tokio::test]
async fn a_message_is_seen_only_when_the_slave_has_it() {
    let more = [("slaveTimeout", "200"), ("haSendHeartbeatInterval", "100")];
    let (master, port) = start("SYNC_MASTER", "0", "", &more).await;
    let client = master.client();
    let mut slave = RawSlave::connect(port, 0).await;
    assert_eq!(slave.frame().await, (0, Vec::new()), "it is served");
    assert_eq!(slave.frame().await, (0, Vec::new()), "a heartbeat");
    in_sync(&client, 1).await;
    let late = send(&client, "slow").await;
    assert_eq!(late.response_code(), ResponseCode::FLUSH_SLAVE_TIMEOUT);
    assert_eq!(max_offset(&client).await, 0);
    let unwaited = client.try_send(send_header("t", &[("WAIT", "false")]), "quick").await;
    assert_eq!(unwaited.response_code(), ResponseCode::SUCCESS);
    assert_eq!(max_offset(&client).await, 0);
    let mut log = Vec::new();
    while message_codec::decode_record(&log).is_err() || log.len() < 300 {
        let (offset, bytes) = slave.frame().await;
        assert_eq!(offset, log.len() as i64);
        log.extend(bytes);
    }
    let first = message_codec::decode_record(&log).expect("works in a test");
    assert_eq!(first.body, b"slow");
    slave.report(first.bytes.len() as i64 - 1).await;
    slave.report(first.bytes.len() as i64).await;
    until("the first is readable", async || max_offset(&client).await == 1).await;
    let mut rest = &log[first.bytes.len()..];
    assert!(rest.get_i32() > 0);
    drop(slave);
    until("nobody is waited for", async || max_offset(&client).await == 2).await;
    // A slave with more than the master has followed another one.
    let mut other = RawSlave::connect(port, 1 << 40).await;
    assert!(other.is_closed().await);
}

#[tokio::test]
async fn too_few_slaves_are_a_refusal_if_that_is_wanted() {
    let more = [("minInSyncReplicas", "2"), ("inSyncReplicas", "2")];
    let (master, port) = start("SYNC_MASTER", "0", "", &more).await;
    let client = master.client();
    let refused = send(&client, "no").await;
    assert_eq!(refused.response_code(), ResponseCode::SYSTEM_ERROR);
    assert_eq!(refused.remark.as_deref(), Some("in-sync replicas not enough"));
    assert_eq!(max_offset(&client).await, 0);
    let mut slave = RawSlave::connect(port, 0).await;
    in_sync(&client, 1).await;
    let answering = send(&client, "yes");
    let follow = async {
        loop {
            let (offset, bytes) = slave.frame().await;
            slave.report(offset + bytes.len() as i64).await;
        }
    };
    tokio::select! {
        answer = answering => assert_eq!(answer.response_code(), ResponseCode::SUCCESS),
        () = follow => {}
    }
}

#[tokio::test]
async fn slaves_do_not_slow_an_asynchronous_master() {
    let more = [("haHousekeepingInterval", "300"), ("haTransferBatchSize", "1024")];
    let (master, port) = start("ASYNC_MASTER", "0", "", &more).await;
    let client = master.client();
    let mut slave = RawSlave::connect(port, 0).await;
    for number in 0..50 {
        let sent = send(&client, &format!("{number}{}", "x".repeat(1_000))).await;
        assert_eq!(sent.response_code(), ResponseCode::SUCCESS);
    }
    assert_eq!(slave.frame().await, (0, Vec::new()), "it is served");
    assert_eq!(slave.frame().await.1.len(), 1_024, "no more than a batch at once");
    // It says nothing more and loses its connection.
    assert!(slave.is_closed().await);
    until("the slave is gone", async || status(&client).await.ha_connection_info.is_empty()).await;
}
