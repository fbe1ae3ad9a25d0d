//! One client as brokers see it: its id, connections, routes and heartbeats.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use protocol::command::RemotingCommand;
use protocol::header::client::UnregisterClientRequestHeader;
use protocol::header::route::GetRouteInfoRequestHeader;
use protocol::header::{EmptyHeader, Header};
use protocol::heartbeat::HeartbeatData;
use protocol::json;
use protocol::message_id::UniqueIdGenerator;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use protocol::route::TopicRouteData;
use protocol::topic_name::AUTO_CREATE_TOPIC;
use remoting::{Limits, RemotingClient, RemotingMetrics};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::members::Members;
use crate::name_servers::NameServers;
use crate::push_consumer::Core;
use crate::route::RouteTable;
use crate::{ClientConfig, ClientError, TopicRoute};

/// Routes, however many are found to be wrong, are read again at this distance.
const REFRESH_PAUSE: Duration = Duration::from_millis(200);
/// Heartbeats, however many connections are new, follow each other at this distance.
const HEARTBEAT_PAUSE: Duration = Duration::from_secs(1);

/// A client. Clones are the same client.
#[derive(Clone)]
pub struct ClientInstance {
    inner: Arc<Inner>,
}

struct Inner {
    config: ClientConfig,
    client_id: String,
    ids: UniqueIdGenerator,
    name_servers: NameServers,
    remoting: RemotingClient<Members>,
    routes: RouteTable,
    /// Held while a route is read that is not known yet, so that a burst of sends asks once.
    fetching: tokio::sync::Mutex<()>,
    refresh_due: Notify,
    members: Arc<Members>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl ClientInstance {
    /// Starts a client. It connects when it is first used.
    ///
    /// # Errors
    /// When the name servers are not written as they must be.
    pub async fn start(config: ClientConfig) -> Result<Self, ClientError> {
        let name_servers = NameServers::parse(&config.name_servers)?;
        let address = local_address(name_servers.addrs()).await;
        let pid = std::process::id();
        let random: u32 = rand::random();
        let name = config.instance_name.clone().unwrap_or_else(|| format!("{pid}#{random}"));
        let limits = Limits { connect_timeout: config.connect_timeout, ..Limits::default() };
        let members = Arc::new(Members::default());
        let metrics = RemotingMetrics::default();
        let inner = Inner {
            client_id: format!("{address}@{name}"),
            ids: UniqueIdGenerator::new(address, pid, random),
            name_servers,
            remoting: RemotingClient::new(limits, Arc::clone(&members), metrics),
            routes: RouteTable::new(config.topics_max, config.route_idle),
            fetching: tokio::sync::Mutex::new(()),
            refresh_due: Notify::new(),
            members,
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            config,
        };
        let inner = Arc::new(inner);
        inner.tasks.spawn(refresh_routes(Arc::downgrade(&inner), inner.stop.clone()));
        inner.tasks.spawn(send_heartbeats(Arc::downgrade(&inner), inner.stop.clone()));
        Ok(Self { inner })
    }

    /// The id under which brokers know this client.
    pub fn client_id(&self) -> &str {
        &self.inner.client_id
    }

    /// The settings.
    pub fn config(&self) -> &ClientConfig {
        &self.inner.config
    }

    /// Ends the client and its connections. Producers and consumers are to be shut down before.
    pub async fn shutdown(&self) {
        self.inner.stop.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
        self.inner.remoting.shutdown().await;
    }

    /// The next message id.
    pub(crate) fn next_message_id(&self) -> String {
        self.inner.ids.next_id(crate::epoch_millis())
    }

    pub(crate) fn name_servers(&self) -> &[String] {
        self.inner.name_servers.addrs()
    }

    pub(crate) fn routes(&self) -> &RouteTable {
        &self.inner.routes
    }

    /// Asks any name server. Any answer will do.
    pub(crate) async fn invoke_name_server(
        &self,
        request: &RemotingCommand,
    ) -> Result<(String, RemotingCommand), ClientError> {
        let Inner { name_servers, remoting, config, .. } = &*self.inner;
        name_servers.invoke(remoting, request, config.request_timeout).await
    }

    /// Asks one peer. Any answer will do.
    pub(crate) async fn invoke(
        &self,
        addr: &str,
        request: RemotingCommand,
        timeout: Duration,
    ) -> Result<RemotingCommand, ClientError> {
        if self.inner.stop.is_cancelled() {
            return Err(ClientError::ShutDown);
        }
        let remoting = &self.inner.remoting;
        let answer = remoting.invoke(addr, request.clone(), timeout).await?;
        if answer.response_code() != ResponseCode::GO_AWAY {
            return Ok(answer);
        }
        // The peer is about to end, and another one has the address.
        remoting.renew(addr);
        Ok(remoting.invoke(addr, request, timeout).await?)
    }

    /// Asks one peer, which must answer with success.
    pub(crate) async fn call(
        &self,
        addr: &str,
        request: RemotingCommand,
    ) -> Result<RemotingCommand, ClientError> {
        let code = request.request_code();
        let response = self.invoke(addr, request, self.inner.config.request_timeout).await?;
        expect_success(addr, code, response)
    }

    /// Sends without waiting for an answer.
    pub(crate) async fn oneway(
        &self,
        addr: &str,
        request: RemotingCommand,
    ) -> Result<(), ClientError> {
        if self.inner.stop.is_cancelled() {
            return Err(ClientError::ShutDown);
        }
        Ok(self.inner.remoting.oneway(addr, request).await?)
    }

    /// The route of a topic, from memory or from a name server.
    ///
    /// # Errors
    /// When there is none, or no name server answers.
    pub async fn route(&self, topic: &str) -> Result<Arc<TopicRoute>, ClientError> {
        self.route_or_default(topic, None).await
    }

    /// The route of a topic; of one that does not exist, the route it will have when the first send
    /// has created it with this many queues.
    pub(crate) async fn route_or_default(
        &self,
        topic: &str,
        default_queue_nums: Option<i32>,
    ) -> Result<Arc<TopicRoute>, ClientError> {
        if let Some(route) = self.inner.routes.get(topic) {
            return Ok(route);
        }
        let _fetching = self.inner.fetching.lock().await;
        if let Some(route) = self.inner.routes.get(topic) {
            return Ok(route);
        }
        let route = match (self.fetch_route(topic).await, default_queue_nums) {
            (Err(error), Some(queue_nums)) if is_without_route(&error) => {
                match self.fetch_route(AUTO_CREATE_TOPIC).await {
                    Ok(default) => TopicRoute::by_default(topic, default, queue_nums),
                    Err(other) if is_without_route(&other) => return Err(error),
                    Err(other) => return Err(other),
                }
            }
            (fetched, _) => TopicRoute::new(topic, fetched?),
        };
        Ok(self.inner.routes.put(topic, route).0)
    }

    /// The route of a topic as a name server tells it now.
    pub(crate) async fn fetch_route(&self, topic: &str) -> Result<TopicRouteData, ClientError> {
        let header = GetRouteInfoRequestHeader {
            topic: topic.to_owned(),
            accept_standard_json_only: Some(true),
        };
        let code = RequestCode::GET_ROUTEINFO_BY_TOPIC;
        let request = RemotingCommand::request(code, &header);
        let (addr, response) = self.invoke_name_server(&request).await?;
        if response.response_code() == ResponseCode::TOPIC_NOT_EXIST {
            return Err(ClientError::NoRoute { topic: topic.to_owned() });
        }
        let response = expect_success(&addr, code, response)?;
        read_body(&addr, code, &response)
    }

    /// Asks for routes to be read again soon, for one was wrong.
    pub(crate) fn refresh_routes_soon(&self) {
        self.inner.refresh_due.notify_one();
    }

    /// Counts a producer in: brokers are told of its group.
    pub(crate) fn join_producer(&self, group: &str) {
        self.inner.members.add_producer(group);
    }

    /// Counts a producer out, and tells the brokers if it was the last of its group.
    pub(crate) async fn leave_producer(&self, group: &str) {
        if self.inner.members.remove_producer(group) {
            self.unregister(Some(group), None).await;
        }
    }

    /// Adds a consumer; false when its group is on this instance already.
    pub(crate) fn join_consumer(&self, core: &Arc<Core>) -> bool {
        self.inner.members.add_consumer(core)
    }

    /// Removes a consumer and tells the brokers.
    pub(crate) async fn leave_consumer(&self, group: &str) {
        self.inner.members.remove_consumer(group);
        self.unregister(None, Some(group)).await;
    }

    /// Tells all brokers now who is here.
    pub(crate) async fn heartbeat(&self) {
        self.inner.heartbeat().await;
    }

    /// Has all brokers told soon who is here.
    pub(crate) fn heartbeat_soon(&self) {
        self.inner.members.heartbeat_due.notify_one();
    }

    async fn unregister(&self, producer_group: Option<&str>, consumer_group: Option<&str>) {
        let header = UnregisterClientRequestHeader {
            client_id: self.client_id().to_owned(),
            producer_group: producer_group.map(str::to_owned),
            consumer_group: consumer_group.map(str::to_owned),
        };
        let addrs = self.inner.routes.addresses(consumer_group.is_none());
        let calls = addrs.iter().map(|addr| async {
            let request = RemotingCommand::request(RequestCode::UNREGISTER_CLIENT, &header);
            if let Err(error) = self.call(addr, request).await {
                tracing::debug!(%error, "a broker was not told that a client leaves");
            }
        });
        futures::future::join_all(calls).await;
    }
}

impl Inner {
    fn heartbeat_data(&self) -> HeartbeatData {
        HeartbeatData {
            client_id: self.client_id.clone(),
            producer_data_set: self.members.producer_data(),
            consumer_data_set: self.members.consumer_data(),
            ..HeartbeatData::default()
        }
    }

    /// Tells all brokers who is here; masters only, if there are only producers.
    async fn heartbeat(&self) {
        let data = self.heartbeat_data();
        if data.producer_data_set.is_empty() && data.consumer_data_set.is_empty() {
            return;
        }
        let masters_only = data.consumer_data_set.is_empty();
        let body = match json::to_vec(&data) {
            Ok(body) => bytes::Bytes::from(body),
            Err(error) => return tracing::error!(%error, "the heartbeat cannot be written"),
        };
        let addrs = self.routes.addresses(masters_only);
        let beats = addrs.iter().map(|addr| async {
            let request = RemotingCommand::request(RequestCode::HEART_BEAT, &EmptyHeader);
            let request = request.with_body(body.clone());
            let timeout = self.config.request_timeout;
            if let Err(error) = self.remoting.invoke(addr, request, timeout).await {
                tracing::debug!(%error, "a heartbeat was not answered");
            }
        });
        futures::future::join_all(beats).await;
    }
}

/// Reads all routes again, at intervals and when one was found to be wrong.
async fn refresh_routes(inner: Weak<Inner>, stop: CancellationToken) {
    while let Some(inner) = inner.upgrade() {
        let instance = ClientInstance { inner };
        let interval = instance.inner.config.route_refresh_interval;
        let work = async {
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                () = instance.inner.refresh_due.notified() => {}
            }
            let (topics, gone) = instance.inner.routes.expire();
            gone.iter().for_each(|addr| instance.inner.remoting.forget(addr));
            for topic in topics {
                instance.refresh_route(&topic).await;
            }
            tokio::time::sleep(REFRESH_PAUSE).await;
        };
        tokio::select! {
            () = work => {}
            () = stop.cancelled() => return,
        }
    }
}

impl ClientInstance {
    async fn refresh_route(&self, topic: &str) {
        match self.fetch_route(topic).await {
            Ok(data) => {
                let (_, changed) = self.inner.routes.put(topic, TopicRoute::new(topic, data));
                if changed {
                    tracing::info!(topic, "the route changed");
                    self.inner.members.rebalance_all();
                }
            }
            // It may be created yet, or a name server that has just started may not know it yet.
            Err(ClientError::NoRoute { .. }) => tracing::debug!(topic, "no route now"),
            Err(error) => tracing::warn!(topic, %error, "the route could not be read"),
        }
    }
}

/// Sends heartbeats, at intervals and when someone joined or connected.
async fn send_heartbeats(inner: Weak<Inner>, stop: CancellationToken) {
    while let Some(inner) = inner.upgrade() {
        let work = async {
            tokio::select! {
                () = tokio::time::sleep(inner.config.heartbeat_interval) => {}
                () = inner.members.heartbeat_due.notified() => {}
            }
            inner.heartbeat().await;
            tokio::time::sleep(HEARTBEAT_PAUSE).await;
        };
        tokio::select! {
            () = work => {}
            () = stop.cancelled() => return,
        }
    }
}

/// The address from which name servers are reached; nothing is sent to find it out.
async fn local_address(name_servers: &[String]) -> IpAddr {
    for addr in name_servers {
        for any in ["0.0.0.0:0", "[::]:0"] {
            let Ok(socket) = tokio::net::UdpSocket::bind(any).await else { continue };
            if socket.connect(addr).await.is_ok()
                && let Ok(local) = socket.local_addr()
            {
                return local.ip();
            }
        }
    }
    Ipv4Addr::LOCALHOST.into()
}

/// Whether there is no route, or none that a name server that has just started knows of. Producers
/// do the same about both, as Java's do.
fn is_without_route(error: &ClientError) -> bool {
    match error {
        ClientError::NoRoute { .. } => true,
        ClientError::Refused { code, .. } => *code == ResponseCode::SYSTEM_ERROR,
        _ => false,
    }
}

/// An answer that must be a success.
pub(crate) fn expect_success(
    addr: &str,
    request: RequestCode,
    response: RemotingCommand,
) -> Result<RemotingCommand, ClientError> {
    let code = response.response_code();
    if code == ResponseCode::SUCCESS {
        return Ok(response);
    }
    let remark = response.remark.unwrap_or_default();
    Err(ClientError::Refused { addr: addr.to_owned(), request, code, remark })
}

/// The typed header of an answer.
pub(crate) fn read_header<H: Header>(
    addr: &str,
    request: RequestCode,
    response: &RemotingCommand,
) -> Result<H, ClientError> {
    let error = |source| ClientError::Header { addr: addr.to_owned(), request, source };
    response.header().map_err(error)
}

/// The JSON body of an answer.
pub(crate) fn read_body<T: DeserializeOwned>(
    addr: &str,
    request: RequestCode,
    response: &RemotingCommand,
) -> Result<T, ClientError> {
    let error = |source| ClientError::Body { addr: addr.to_owned(), request, source };
    json::from_slice(&response.body).map_err(error)
}

/// A request with a JSON body.
pub(crate) fn json_request<T: serde::Serialize>(
    code: RequestCode,
    body: &T,
) -> Result<RemotingCommand, ClientError> {
    let body =
        json::to_vec(body).map_err(|source| ClientError::Encode { request: code, source })?;
    Ok(RemotingCommand::request_without_header(code).with_body(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{name_server, route};

    #[tokio::test]
    async fn another_name_server_is_asked_when_one_is_gone() {
        let names = name_server("t", || route(&[("a", "127.0.0.1:1")], 1));
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let gone_addr = gone.local_addr().unwrap();
        drop(gone);
        for _ in 0..4 {
            let both = format!("{gone_addr};{}", names.addr);
            let instance = ClientInstance::start(ClientConfig::new(both)).await.unwrap();
            assert_eq!(instance.route("t").await.unwrap().write_queues.len(), 1);
            instance.shutdown().await;
        }
        let only_gone = ClientConfig::new(gone_addr.to_string());
        let instance = ClientInstance::start(only_gone).await.unwrap();
        let error = instance.route("t").await.unwrap_err();
        assert!(matches!(error, ClientError::NameServerUnreachable { .. }), "{error}");
    }

    #[tokio::test]
    async fn another_name_server_is_asked_when_one_is_not_ready() {
        let names = name_server("t", || route(&[("a", "127.0.0.1:1")], 1));
        let starting = crate::fake::Fake::start(|_| {
            Some(RemotingCommand::error(ResponseCode::SYSTEM_ERROR, "name server not ready"))
        });
        for _ in 0..4 {
            let both = format!("{};{}", starting.addr, names.addr);
            let instance = ClientInstance::start(ClientConfig::new(both)).await.unwrap();
            assert_eq!(instance.route("t").await.unwrap().write_queues.len(), 1);
            instance.shutdown().await;
        }
        let only = ClientConfig::new(starting.addr.clone());
        let instance = ClientInstance::start(only).await.unwrap();
        let error = instance.route_or_default("t", Some(4)).await.unwrap_err();
        assert_eq!(error.code(), Some(ResponseCode::SYSTEM_ERROR), "{error}");
    }

    #[tokio::test]
    async fn a_burst_asks_for_a_route_once() {
        let names = name_server("t", || route(&[("a", "127.0.0.1:1")], 1));
        let instance = crate::fake::client(&names).await;
        let calls = (0..50).map(|_| instance.route("t"));
        assert!(futures::future::join_all(calls).await.iter().all(Result::is_ok));
        assert_eq!(names.requests(RequestCode::GET_ROUTEINFO_BY_TOPIC).len(), 1);
        instance.shutdown().await;
        let error = instance.call(&names.addr, RemotingCommand::default()).await.unwrap_err();
        assert!(matches!(error, ClientError::ShutDown), "{error}");
    }
}
