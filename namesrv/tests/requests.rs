//! A running name server, asked over the wire.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::Path;
use std::time::Duration;

use daemon::config::Loader;
use daemon::shutdown::Shutdown;
use namesrv::NameServer;
use namesrv::config::NamesrvConfig;
use protocol::body::{KvTable, TopicConfigTable, TopicList};
use protocol::command::RemotingCommand;
use protocol::data_version::DataVersion;
use protocol::header::route::{
    AddWritePermResponseHeader, BrokerIdentityRequestHeader, GetKvConfigResponseHeader,
    GetRouteInfoRequestHeader, KvConfigRequestHeader, KvListRequestHeader,
    PutKvConfigRequestHeader, QueryDataVersionResponseHeader, RegisterBrokerRequestHeader,
    WipeWritePermResponseHeader, WritePermRequestHeader,
};
use protocol::header::topic::{DeleteTopicFromNamesrvRequestHeader, TopicRequestHeader};
use protocol::header::{EmptyHeader, Header};
use protocol::json;
use protocol::register_broker::{RegisterBrokerBody, checksum};
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use protocol::route::{ClusterInfo, QueueData, TopicRouteData};
use protocol::topic_config::TopicConfig;
use remoting::{Limits, NoRequests, RemotingClient, RemotingMetrics};

const TIMEOUT: Duration = Duration::from_secs(20);

struct Bed {
    server: Option<NameServer>,
    shutdown: Shutdown,
    client: RemotingClient<NoRequests>,
    addr: String,
}

impl Bed {
    async fn start(dir: &Path) -> Self {
        let kv = dir.join("kvConfig.json").display().to_string();
        let loaded = Loader::<NamesrvConfig>::new()
            .flag("test", "bindAddress", "127.0.0.1")
            .flag("test", "listenPort", "0")
            .flag("test", "healthPort", "0")
            .flag("test", "kvConfigPath", &kv)
            .flag("test", "waitSecondsForService", "0")
            .load()
            .unwrap();
        let shutdown = Shutdown::new();
        let server = NameServer::start(loaded, &shutdown, None).await.unwrap();
        let addr = server.address().to_string();
        let metrics = RemotingMetrics::default();
        let client = RemotingClient::new(Limits::default(), NoRequests.into(), metrics);
        Self { server: Some(server), shutdown, client, addr }
    }

    async fn stop(&mut self) {
        self.server.take().unwrap().shutdown(&self.shutdown).await;
    }

    async fn ask(&self, request: RemotingCommand) -> RemotingCommand {
        self.client.invoke(&self.addr, request, TIMEOUT).await.unwrap()
    }

    async fn ask_for(&self, code: RequestCode, header: &impl Header) -> RemotingCommand {
        self.ask(RemotingCommand::request(code, header)).await
    }

    async fn register(&self, name: &str, id: i64, counter: i64, topics: &[&str]) {
        let answer = self.ask(registration(name, id, counter, topics)).await;
        assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{answer:?}");
    }

    async fn route(&self, topic: &str) -> Option<TopicRouteData> {
        let header = GetRouteInfoRequestHeader { topic: topic.into(), ..Default::default() };
        let answer = self.ask_for(RequestCode::GET_ROUTEINFO_BY_TOPIC, &header).await;
        match answer.response_code() {
            ResponseCode::SUCCESS => Some(json::from_slice(&answer.body).unwrap()),
            code => {
                assert_eq!(code, ResponseCode::TOPIC_NOT_EXIST);
                None
            }
        }
    }
}

fn registration(name: &str, id: i64, counter: i64, topics: &[&str]) -> RemotingCommand {
    let table = topics.iter().map(|t| ((*t).to_owned(), TopicConfig::new(*t, 4, 6))).collect();
    let data_version = DataVersion { counter, ..DataVersion::default() };
    let body = json::to_vec(&RegisterBrokerBody {
        topic_config_serialize_wrapper: TopicConfigTable {
            data_version,
            topic_config_table: table,
        },
        ..RegisterBrokerBody::default()
    })
    .unwrap();
    let header = RegisterBrokerRequestHeader {
        broker_name: name.into(),
        broker_addr: format!("{name}-{id}:10911"),
        cluster_name: "c".into(),
        ha_server_addr: format!("{name}-{id}:10912"),
        broker_id: id,
        body_crc32: checksum(&body),
        ..Default::default()
    };
    RemotingCommand::request(RequestCode::REGISTER_BROKER, &header).with_body(body)
}

fn topic_header(topic: &str) -> TopicRequestHeader {
    TopicRequestHeader { topic: topic.into() }
}

#[tokio::test]
async fn brokers_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let bed = Bed::start(dir.path()).await;
    assert_eq!(bed.route("t").await, None);
    bed.register("b", 0, 1, &["t", "u"]).await;
    bed.register("d", 0, 1, &["t", "v"]).await;
    let route = bed.route("t").await.unwrap();
    assert_eq!((route.broker_datas.len(), route.queue_datas.len()), (2, 2));
    let info = bed.ask_for(RequestCode::GET_BROKER_CLUSTER_INFO, &EmptyHeader).await;
    let info: ClusterInfo = json::from_slice(&info.body).unwrap();
    assert_eq!(info.cluster_addr_table["c"].len(), 2);

    let gone = BrokerIdentityRequestHeader {
        broker_name: "d".into(),
        broker_addr: "d-0:10911".into(),
        cluster_name: "c".into(),
        broker_id: 0,
    };
    bed.ask_for(RequestCode::UNREGISTER_BROKER, &gone).await;
    assert_eq!(bed.route("t").await.unwrap().broker_datas.len(), 1);
    assert_eq!(bed.route("v").await, None);
    let query = RemotingCommand::request(RequestCode::QUERY_DATA_VERSION, &gone)
        .with_body(json::to_vec(&DataVersion::default()).unwrap());
    let answer = bed.ask(query).await;
    assert!(answer.header::<QueryDataVersionResponseHeader>().unwrap().changed);

    // The connection of the one that is left breaks.
    bed.client.forget(&bed.addr);
    let wait = async {
        while bed.route("t").await.is_some() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, wait).await.expect("its topics go with the connection");
}

#[tokio::test]
async fn old_clients_get_numeric_keys_without_quotes() {
    let dir = tempfile::tempdir().unwrap();
    let bed = Bed::start(dir.path()).await;
    bed.register("b", 0, 1, &["t", "u"]).await;
    let mut header = GetRouteInfoRequestHeader { topic: "t".into(), ..Default::default() };
    for (version, standard, part) in
        [(513, None, "{\"0\":"), (393, None, "{0:"), (393, Some(true), "{\"0\":")]
    {
        header.accept_standard_json_only = standard;
        let request = RemotingCommand::request(RequestCode::GET_ROUTEINFO_BY_TOPIC, &header);
        let answer = bed.ask(RemotingCommand { version, ..request }).await;
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        assert!(text.contains(part), "{version}: {text}");
        json::from_slice::<TopicRouteData>(&answer.body).unwrap();
    }
}

#[tokio::test]
async fn write_permission_is_taken_and_given() {
    let dir = tempfile::tempdir().unwrap();
    let bed = Bed::start(dir.path()).await;
    bed.register("b", 0, 1, &["t", "u"]).await;
    let header = WritePermRequestHeader { broker_name: "b".into() };
    let wiped = bed.ask_for(RequestCode::WIPE_WRITE_PERM_OF_BROKER, &header).await;
    assert_eq!(wiped.header::<WipeWritePermResponseHeader>().unwrap().wipe_topic_count, 2);
    bed.register("b", 0, 1, &["t", "u"]).await;
    assert_eq!(bed.route("t").await.unwrap().queue_datas[0].perm, 4);
    let added = bed.ask_for(RequestCode::ADD_WRITE_PERM_OF_BROKER, &header).await;
    assert_eq!(added.header::<AddWritePermResponseHeader>().unwrap().add_topic_count, 2);
    assert_eq!(bed.route("t").await.unwrap().queue_datas[0].perm, 6);
}

#[tokio::test]
async fn administrators_list_add_and_delete_topics() {
    let dir = tempfile::tempdir().unwrap();
    let bed = Bed::start(dir.path()).await;
    bed.register("b", 0, 1, &["t", "u"]).await;
    let queue = QueueData {
        broker_name: "b".into(),
        perm: 6,
        read_queue_nums: 2,
        write_queue_nums: 2,
        topic_sys_flag: 0,
    };
    let body = TopicRouteData { queue_datas: vec![queue], ..Default::default() };
    let add = RemotingCommand::request(RequestCode::REGISTER_TOPIC_IN_NAMESRV, &topic_header("w"))
        .with_body(json::to_vec(&body).unwrap());
    bed.ask(add).await;
    let list = async |code| {
        let answer = bed.ask_for(code, &EmptyHeader).await;
        let list: TopicList = json::from_slice(&answer.body).unwrap();
        list.topic_list.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(list(RequestCode::GET_ALL_TOPIC_LIST_FROM_NAMESERVER).await, ["t", "u", "w"]);
    assert_eq!(list(RequestCode::GET_SYSTEM_TOPIC_LIST_FROM_NS).await, ["b", "c"]);
    let delete = |topic: &str, cluster: Option<&str>| DeleteTopicFromNamesrvRequestHeader {
        topic: topic.into(),
        cluster_name: cluster.map(str::to_owned),
    };
    bed.ask_for(RequestCode::DELETE_TOPIC_IN_NAMESRV, &delete("t", Some("other"))).await;
    bed.ask_for(RequestCode::DELETE_TOPIC_IN_NAMESRV, &delete("u", Some("c"))).await;
    bed.ask_for(RequestCode::DELETE_TOPIC_IN_NAMESRV, &delete("w", None)).await;
    assert_eq!(list(RequestCode::GET_ALL_TOPIC_LIST_FROM_NAMESERVER).await, ["t"]);
}

#[tokio::test]
async fn settings_are_kept_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut bed = Bed::start(dir.path()).await;
    let (namespace, key) = ("ORDER_TOPIC_CONFIG".to_owned(), "t".to_owned());
    let put = PutKvConfigRequestHeader {
        namespace: namespace.clone(),
        key: key.clone(),
        value: "b:4".into(),
    };
    bed.ask_for(RequestCode::PUT_KV_CONFIG, &put).await;
    bed.stop().await;

    let bed = Bed::start(dir.path()).await;
    let get = KvConfigRequestHeader { namespace: namespace.clone(), key };
    let answer = bed.ask_for(RequestCode::GET_KV_CONFIG, &get).await;
    let value = answer.header::<GetKvConfigResponseHeader>().unwrap().value;
    assert_eq!(value.as_deref(), Some("b:4"));
    let answer = bed.ask(registration("b", 0, 1, &["t", "u"])).await;
    let told: KvTable = json::from_slice(&answer.body).unwrap();
    assert_eq!(told.table["t"], "b:4");
    bed.ask(
        RemotingCommand::request_without_header(RequestCode::UPDATE_NAMESRV_CONFIG)
            .with_body("orderMessageEnable=true"),
    )
    .await;
    assert_eq!(bed.route("t").await.unwrap().order_topic_conf.as_deref(), Some("b:4"));
    bed.ask_for(RequestCode::DELETE_KV_CONFIG, &get).await;
    let absent = bed.ask_for(RequestCode::GET_KV_CONFIG, &get).await;
    assert_eq!(absent.response_code(), ResponseCode::QUERY_NOT_FOUND);
    let list = KvListRequestHeader { namespace: "none".into() };
    let absent = bed.ask_for(RequestCode::GET_KVLIST_BY_NAMESPACE, &list).await;
    assert_eq!(absent.response_code(), ResponseCode::QUERY_NOT_FOUND);
}

#[tokio::test]
async fn bad_requests_get_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let bed = Bed::start(dir.path()).await;
    let check = async |request: RemotingCommand, code: ResponseCode, part: &str| {
        let answer = bed.ask(request).await;
        assert_eq!(answer.response_code(), code, "{answer:?}");
        let remark = answer.remark.unwrap_or_default();
        assert!(remark.contains(part), "{remark}");
    };
    let plain = RemotingCommand::request_without_header;
    let missing = plain(RequestCode::GET_ROUTEINFO_BY_TOPIC);
    check(missing, ResponseCode::INVALID_PARAMETER, "topic is missing").await;
    let unknown = plain(RequestCode(31_999));
    check(unknown, ResponseCode::REQUEST_CODE_NOT_SUPPORTED, "31999 not supported").await;
    let mut damaged = registration("b", 0, 1, &["t", "u"]);
    damaged.body = "{}".into();
    check(damaged, ResponseCode::SYSTEM_ERROR, "crc32 not match").await;
    let incremental = registration("b", 0, 1, &["t"]);
    check(incremental, ResponseCode::SYSTEM_ERROR, "register broker failed").await;
    let update = |text: &'static str| plain(RequestCode::UPDATE_NAMESRV_CONFIG).with_body(text);
    check(update("listenPort=1"), ResponseCode::INVALID_PARAMETER, "restart only").await;
    check(update("orderMessageEnabel=true"), ResponseCode::INVALID_PARAMETER, "unknown key").await;
}
