//! A broker whose role a controller decides.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use protocol::body::SyncStateSet;
use protocol::command::RemotingCommand;
use protocol::header::controller::{
    AlterSyncStateSetResponseHeader, MasterHeader, RegisterReplicaRequestHeader, ReplicaHeader,
};
use protocol::header::group::GroupRequestHeader;
use protocol::header::topic::{CreateTopicRequestHeader, TopicRequestHeader};
use protocol::json;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use protocol::subscription::SubscriptionGroupConfig;
use protocol::topic_config::TopicConfig;
use remoting::{Context, Limits, Processor, RemotingMetrics, Response, Server, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::fixture::{Client, Fixture, free_port, send_header, until};

/// A controller with one group, which says what the test wants.
#[derive(Default)]
struct Controller {
    role: Mutex<MasterHeader>,
    set: Mutex<SyncStateSet>,
    heartbeats: Mutex<u64>,
}

impl Controller {
    fn answer(&self) -> RemotingCommand {
        let set = json::to_vec(&*self.set.lock()).expect("works in a test");
        RemotingCommand::success_with(&*self.role.lock()).with_body(set)
    }

    /// This replica, with the run that has registered, is master of a higher epoch from now on.
    fn elect(&self, id: i64, address: &str) {
        let mut role = self.role.lock();
        role.master_epoch = Some(role.master_epoch.unwrap_or(0) + 1);
        role.master_broker_id = Some(id);
        role.master_address = Some(address.to_owned());
        role.master_ha_address = Some("127.0.0.1:1".to_owned());
        let mut set = self.set.lock();
        set.sync_state_set = [id].into();
        set.sync_state_set_epoch += 1;
        role.sync_state_set_epoch = Some(set.sync_state_set_epoch);
    }

    fn registered(&self) -> bool {
        self.role.lock().own_store_id.is_some()
    }
}

impl Processor for Controller {
    async fn process(&self, _: Context, request: RemotingCommand) -> Option<Response> {
        let answer = match request.request_code() {
            RequestCode::CONTROLLER_REGISTER_BROKER => {
                let replica: ReplicaHeader = request.header().expect("works in a test");
                request.header::<RegisterReplicaRequestHeader>().expect("works in a test");
                let mut role = self.role.lock();
                role.own_store_id = Some(replica.store_id);
                role.own_open_count = Some(replica.open_count);
                role.own_incarnation = Some(replica.incarnation);
                drop(role);
                self.answer()
            }
            RequestCode::CONTROLLER_GET_REPLICA_INFO => self.answer(),
            RequestCode::CONTROLLER_ALTER_SYNC_STATE_SET => {
                let new_sync_state_set_epoch = self.set.lock().sync_state_set_epoch;
                self.answer()
                    .with_header(&AlterSyncStateSetResponseHeader { new_sync_state_set_epoch })
            }
            RequestCode::CONTROLLER_ELECT_MASTER => {
                let code = ResponseCode::CONTROLLER_ELECT_MASTER_FAILED;
                RemotingCommand::error(code, "there is no other replica")
            }
            RequestCode::BROKER_HEARTBEAT => {
                request.header::<ReplicaHeader>().expect("works in a test");
                *self.heartbeats.lock() += 1;
                RemotingCommand::success()
            }
            other => panic!("a broker asks its controller for {other}"),
        };
        Some(answer.into())
    }
}

struct Bed {
    controller: Arc<Controller>,
    _server: Server<Controller>,
    fixture: Fixture,
    ha_port: u16,
}

impl Bed {
    async fn start(more: &[(&str, &str)]) -> Self {
        let config = ServerConfig {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            limits: Limits::default(),
        };
        let controller = Arc::<Controller>::default();
        let server = Server::start(config, Arc::clone(&controller), RemotingMetrics::default());
        let server = server.expect("works in a test");
        let address = server.addresses()[0].to_string();
        let ha_port = free_port();
        let port = ha_port.to_string();
        let mut settings = vec![
            ("enableControllerMode", "true"),
            ("brokerId", "1"),
            ("controllerAddr", &address),
            ("haListenPort", &port),
        ];
        settings.extend(more);
        let fixture = Fixture::start(&settings).await;
        let bed = Self { controller, _server: server, fixture, ha_port };
        until("registered", async || bed.controller.registered()).await;
        bed
    }

    async fn elected(more: &[(&str, &str)]) -> (Self, Client) {
        let bed = Self::start(more).await;
        bed.controller.elect(1, &bed.fixture.address);
        let client = bed.fixture.client();
        bed.wait_for(&client, ResponseCode::SUCCESS).await;
        (bed, client)
    }

    /// Sends until the answer is this one.
    async fn wait_for(&self, client: &Client, code: ResponseCode) -> String {
        loop {
            let (found, remark) = self.send(client).await;
            if found == code {
                return remark;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn send(&self, client: &Client) -> (ResponseCode, String) {
        let request = RemotingCommand::request(RequestCode::SEND_MESSAGE, &send_header("t", &[]));
        let answer = client.invoke(request.with_body("hello")).await;
        (answer.response_code(), answer.remark.unwrap_or_default())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_takes_messages_once_it_is_elected_and_none_as_a_slave() {
    let (mut bed, client) = Bed::elected(&[]).await;
    // The new master is not there: what is forwarded to it fails, with a code that clients retry.
    bed.controller.elect(2, "127.0.0.1:1");
    bed.wait_for(&client, ResponseCode::SERVICE_NOT_AVAILABLE).await;
    bed.controller.elect(1, &bed.fixture.address);
    bed.wait_for(&client, ResponseCode::SUCCESS).await;
    assert!(*bed.controller.heartbeats.lock() > 0);
    bed.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_brokers_that_take_each_other_for_the_master_do_not_send_forever() {
    let (mut bed, client) = Bed::elected(&[]).await;
    // It forwards to itself, where the send arrives marked.
    bed.controller.elect(2, &bed.fixture.address);
    // The first may be one that was under way when the master ceased to be it.
    let refused = async || {
        let remark = bed.wait_for(&client, ResponseCode::SERVICE_NOT_AVAILABLE).await;
        remark.contains("takes no messages at present")
    };
    until("refused by itself", refused).await;
    bed.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_few_in_sync_is_said_in_words() {
    let mut bed = Bed::start(&[("minInSyncReplicas", "2")]).await;
    bed.controller.elect(1, &bed.fixture.address);
    let client = bed.fixture.client();
    let (code, remark) = bed.send(&client).await;
    assert_eq!(code, ResponseCode::SERVICE_NOT_AVAILABLE, "{remark}");
    assert!(remark.contains("minInSyncReplicas"), "{remark}");
    bed.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_on_the_replication_port_ends_a_connection_and_nothing_else() {
    let (mut bed, client) = Bed::elected(&[]).await;
    for garbage in [&[0xff; 64][..], &[0, 0, 0, 1, 9], b"GET / HTTP/1.1\r\n\r\n", &[0; 16]] {
        let mut stream = TcpStream::connect(("127.0.0.1", bed.ha_port)).await.expect("listens");
        stream.write_all(garbage).await.expect("works in a test");
        let ended = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut [0; 16])).await;
        assert!(matches!(ended, Ok(Ok(0) | Err(_))), "{garbage:?} is answered: {ended:?}");
    }
    bed.wait_for(&client, ResponseCode::SUCCESS).await;
    bed.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_when_a_later_run_has_registered() {
    let (mut bed, _client) = Bed::elected(&[]).await;
    {
        let mut role = bed.controller.role.lock();
        role.own_open_count = role.own_open_count.map(|count| count + 1);
        role.own_incarnation = Some("another".to_owned());
        role.master_epoch = role.master_epoch.map(|epoch| epoch + 1);
    }
    let ended = tokio::time::timeout(Duration::from_secs(30), bed.fixture.shutdown.requested());
    ended.await.expect("the broker asks for its end");
    bed.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_when_its_promise_cannot_be_written() {
    let mut bed = Bed::start(&[]).await;
    // In the place of the file that the next epoch is to be written to.
    let table = bed.fixture.dir.path().join("epochFileCheckpoint");
    std::fs::remove_file(&table).expect("works in a test");
    std::fs::create_dir_all(table.join("in the way")).expect("works in a test");
    bed.controller.elect(1, &bed.fixture.address);
    let ended = tokio::time::timeout(Duration::from_secs(30), bed.fixture.shutdown.requested());
    ended.await.expect("the broker asks for its end");
    bed.fixture.stop().await;
}

fn topic(name: &str, queues: i32) -> CreateTopicRequestHeader {
    CreateTopicRequestHeader {
        topic: name.to_owned(),
        default_topic: "TBW102".to_owned(),
        read_queue_nums: queues,
        write_queue_nums: queues,
        perm: 6,
        topic_filter_type: "SINGLE_TAG".to_owned(),
        ..CreateTopicRequestHeader::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_knows_topics_and_groups_from_the_log() {
    let (mut bed, client) = Bed::elected(&[]).await;
    for (name, queues) in [("nine", 3), ("nine", 9), ("gone", 1)] {
        client.ask(RequestCode::UPDATE_AND_CREATE_TOPIC, &topic(name, queues)).await;
    }
    let gone = TopicRequestHeader { topic: "gone".to_owned() };
    client.ask(RequestCode::DELETE_TOPIC_IN_BROKER, &gone).await;
    let group = SubscriptionGroupConfig {
        group_name: "g".to_owned(),
        retry_max_times: 3,
        ..SubscriptionGroupConfig::default()
    };
    client.ask_json(RequestCode::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, &group).await;
    bed.fixture.stop().await;
    for table in ["topics.json", "subscriptionGroup.json"] {
        for name in [table.to_owned(), format!("{table}.bak")] {
            let _ = std::fs::remove_file(bed.fixture.dir.path().join("config").join(name));
        }
    }
    bed.fixture = bed.fixture.restart().await;
    let (role, address) = (&bed.controller, bed.fixture.address.clone());
    let client = bed.fixture.client();
    let elect = async || {
        role.elect(1, &address);
        bed.send(&client).await.0 == ResponseCode::SUCCESS
    };
    until("elected again", elect).await;
    let nine = TopicRequestHeader { topic: "nine".to_owned() };
    let answer = client.ask(RequestCode::GET_TOPIC_CONFIG, &nine).await;
    let nine: TopicConfig = json::from_slice(&answer.body).expect("works in a test");
    assert_eq!(nine.write_queue_nums, 9);
    let (code, _) = client.refused(RequestCode::GET_TOPIC_CONFIG, &gone).await;
    assert_eq!(code, ResponseCode::TOPIC_NOT_EXIST);
    let header = GroupRequestHeader { group: "g".to_owned() };
    let answer = client.ask(RequestCode::GET_SUBSCRIPTIONGROUP_CONFIG, &header).await;
    let group: SubscriptionGroupConfig = json::from_slice(&answer.body).expect("works in a test");
    assert_eq!(group.retry_max_times, 3);
    bed.fixture.stop().await;
}
