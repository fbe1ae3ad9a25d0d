//! Servers on loopback that answer as a test says.

use std::sync::Arc;

use bytes::BytesMut;
use parking_lot::Mutex;
use protocol::command::RemotingCommand;
use protocol::header::route::GetRouteInfoRequestHeader;
use protocol::json;
use protocol::message::Message;
use protocol::message_codec::{encode_record, set_position};
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use protocol::route::{BrokerData, QueueData, TopicRouteData};
use remoting::{
    Channel, Context, Limits, Processor, RemotingMetrics, Response, Server, ServerConfig,
};

use crate::{ClientConfig, ClientInstance};

type Answer = Box<dyn Fn(&RemotingCommand) -> Option<RemotingCommand> + Send + Sync>;

/// What a server answers, and what it was asked.
pub(crate) struct Script {
    answer: Answer,
    requests: Mutex<Vec<RemotingCommand>>,
    channels: Mutex<Vec<Channel>>,
}

impl Processor for Script {
    async fn process(&self, context: Context, request: RemotingCommand) -> Option<Response> {
        self.requests.lock().push(request.clone());
        if request.request_code() == RequestCode::HEART_BEAT {
            self.channels.lock().push(context.channel);
            return Some(RemotingCommand::success().into());
        }
        (self.answer)(&request).map(Response::from)
    }
}

/// A server. It may be asked as name server, broker, or both.
pub(crate) struct Fake {
    pub(crate) addr: String,
    script: Arc<Script>,
    _server: Server<Script>,
}

impl Fake {
    /// Heartbeats are answered; for all else `answer` is asked, where `None` is silence.
    pub(crate) fn start(
        answer: impl Fn(&RemotingCommand) -> Option<RemotingCommand> + Send + Sync + 'static,
    ) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), answer)
    }

    /// As [`Self::start`], at this address.
    pub(crate) fn start_at(
        address: std::net::SocketAddr,
        answer: impl Fn(&RemotingCommand) -> Option<RemotingCommand> + Send + Sync + 'static,
    ) -> Self {
        let script = Arc::new(Script {
            answer: Box::new(answer),
            requests: Mutex::default(),
            channels: Mutex::default(),
        });
        let config = ServerConfig { listen: vec![address], limits: Limits::default() };
        let metrics = RemotingMetrics::default();
        let server = Server::start(config, Arc::clone(&script), metrics).unwrap();
        let addr = server.addresses()[0].to_string();
        Self { addr, script, _server: server }
    }

    /// The requests with this code so far.
    pub(crate) fn requests(&self, code: RequestCode) -> Vec<RemotingCommand> {
        let requests = self.script.requests.lock();
        requests.iter().filter(|request| request.request_code() == code).cloned().collect()
    }

    /// Waits until there were so many requests with this code.
    pub(crate) async fn wait_for(&self, code: RequestCode, count: usize) -> Vec<RemotingCommand> {
        let found = async {
            loop {
                let requests = self.requests(code);
                if requests.len() >= count {
                    return requests;
                }
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
        };
        let limit = std::time::Duration::from_secs(20);
        tokio::time::timeout(limit, found).await.unwrap_or_else(|_| panic!("no {code} came"))
    }

    /// Asks the client that sent a heartbeat last.
    pub(crate) async fn ask_client(&self, request: RemotingCommand) -> RemotingCommand {
        let channel = self.script.channels.lock().last().cloned().expect("a client is there");
        channel.invoke(request, std::time::Duration::from_secs(10)).await.unwrap()
    }
}

/// A route: brokers by name and address, each with so many queues.
pub(crate) fn route(brokers: &[(&str, &str)], queues: i32) -> TopicRouteData {
    let broker = |(name, addr): &(&str, &str)| BrokerData {
        broker_name: (*name).to_owned(),
        broker_addrs: [(0, (*addr).to_owned())].into(),
        cluster: "c".into(),
        ..Default::default()
    };
    let queue = |(name, _): &(&str, &str)| QueueData {
        broker_name: (*name).to_owned(),
        perm: 6,
        read_queue_nums: queues,
        write_queue_nums: queues,
        topic_sys_flag: 0,
    };
    TopicRouteData {
        broker_datas: brokers.iter().map(broker).collect(),
        queue_datas: brokers.iter().map(queue).collect(),
        ..Default::default()
    }
}

/// An answer with a JSON body.
pub(crate) fn with_json<T: serde::Serialize>(body: &T) -> Option<RemotingCommand> {
    Some(RemotingCommand::success().with_body(json::to_vec(body).unwrap()))
}

/// A name server for one topic whose route is found out at each request.
pub(crate) fn name_server(
    topic: &'static str,
    route: impl Fn() -> TopicRouteData + Send + Sync + 'static,
) -> Fake {
    Fake::start(move |request| {
        let header: GetRouteInfoRequestHeader = request.header().unwrap();
        if header.topic == topic {
            return with_json(&route());
        }
        Some(RemotingCommand::error(ResponseCode::TOPIC_NOT_EXIST, "no such topic"))
    })
}

/// A client of a name server.
pub(crate) async fn client(name_server: &Fake) -> ClientInstance {
    let mut config = ClientConfig::new(&name_server.addr);
    config.request_timeout = std::time::Duration::from_secs(20);
    ClientInstance::start(config).await.unwrap()
}

/// A stored record of topic `t`, queue 0.
pub(crate) fn record(offset: i64, body: &[u8], properties: &str, sys_flag: i32) -> Vec<u8> {
    let message = Message {
        topic: "t",
        queue_id: 0,
        flag: 0,
        sys_flag,
        born_timestamp: 1,
        born_host: "127.0.0.1:1".parse().unwrap(),
        store_host: "127.0.0.1:10911".parse().unwrap(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        properties,
    };
    let mut bytes = BytesMut::new();
    encode_record(&message, &mut bytes).unwrap();
    set_position(&mut bytes, offset, offset * 1_000, 1);
    bytes.to_vec()
}
