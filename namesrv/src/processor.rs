//! Requests to a name server.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use daemon::config::Live;
use parking_lot::{Mutex, RwLock};
use protocol::command::RemotingCommand;
use protocol::header::{Header, HeaderError};
use protocol::json::{self, JsonError};
use protocol::register_broker::RegisterBrokerError;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use remoting::{Channel, Context, Processor, Response};
use serde::Serialize;
use thiserror::Error;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use crate::config::NamesrvConfig;
use crate::kv_config::{KvConfig, KvConfigError};
use crate::metrics::Metrics;
use crate::registrar::{Registrar, Turns};
use crate::registration::RegistrationError;
use crate::route_table::{RouteTable, UnitTopics};

mod broker;
mod kv;
mod settings;
mod topic;

/// Answers requests from the route table and the settings.
pub(crate) struct NamesrvProcessor {
    pub(crate) config: Live<NamesrvConfig>,
    pub(crate) routes: Arc<RwLock<RouteTable>>,
    pub(crate) registrar: Registrar,
    pub(crate) kv_config: Arc<Mutex<KvConfig>>,
    pub(crate) metrics: Metrics,
    pub(crate) started: Instant,
    /// The same by the wall clock, milliseconds since the epoch.
    pub(crate) started_millis: i64,
    turns: Turns,
    /// One permit for each large registration that may be read at once.
    reading: Arc<Semaphore>,
    /// Told after each registration.
    pub(crate) brokers_changed: watch::Sender<()>,
}

impl NamesrvProcessor {
    pub(crate) fn new(config: Live<NamesrvConfig>, kv_config: KvConfig, metrics: Metrics) -> Self {
        let routes = Arc::new(RwLock::new(RouteTable::default()));
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            config,
            registrar: Registrar::new(Arc::clone(&routes), metrics.clone()),
            routes,
            kv_config: Arc::new(Mutex::new(kv_config)),
            metrics,
            started: Instant::now(),
            started_millis: i64::try_from(now.as_millis()).unwrap_or(i64::MAX),
            turns: Turns::default(),
            // Half of the machine is left for answers.
            reading: Arc::new(Semaphore::new((cores / 2).max(1))),
            brokers_changed: watch::Sender::new(()),
        }
    }

    /// Takes out what is left of brokers that are gone, elsewhere.
    pub(crate) fn sweep(&self) {
        let registrar = self.registrar.clone();
        drop(tokio::task::spawn_blocking(move || registrar.sweep()));
    }
}

/// Why a request is not carried out.
#[derive(Debug, Error)]
pub(crate) enum RequestError {
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error(transparent)]
    Body(#[from] JsonError),
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    #[error(transparent)]
    RegistrationBody(#[from] RegisterBrokerError),
    #[error(transparent)]
    Kv(#[from] KvConfigError),
    #[error("{0}")]
    Update(#[from] daemon::config::UpdateErrors),
    #[error(
        "No topic route info in name server for the topic: {0}. Is it created, and does a broker \
         that has it run?"
    )]
    NoRoute(String),
    #[error("name server not ready: it waits for brokers to register")]
    NotReady,
    #[error(
        "name server not ready: it has just started, and brokers may be about to register topic \
         {0}; ask again, or another name server"
    )]
    NotYet(String),
    #[error("disable: enableAllTopicList is false")]
    TopicListDisabled,
    #[error("No config item, Namespace: {namespace} Key: {key}")]
    NoKv { namespace: String, key: String },
    #[error("No config item, Namespace: {0}")]
    NoNamespace(String),
    #[error(" request type {0} not supported")]
    NotSupported(i32),
}

impl RequestError {
    pub(crate) fn code(&self) -> ResponseCode {
        match self {
            Self::NoRoute(_) => ResponseCode::TOPIC_NOT_EXIST,
            Self::NoKv { .. } | Self::NoNamespace(_) => ResponseCode::QUERY_NOT_FOUND,
            Self::NotSupported(_) => ResponseCode::REQUEST_CODE_NOT_SUPPORTED,
            Self::Header(_) | Self::Update(_) => ResponseCode::INVALID_PARAMETER,
            _ => ResponseCode::SYSTEM_ERROR,
        }
    }
}

type Answer = Result<RemotingCommand, RequestError>;

impl Processor for NamesrvProcessor {
    async fn process(&self, context: Context, request: RemotingCommand) -> Option<Response> {
        let code = request.code;
        let answer = self.answer(&context, request).await.unwrap_or_else(|error| {
            tracing::debug!(code, %error, "request refused");
            RemotingCommand::error(error.code(), error.to_string())
        });
        Some(answer.into())
    }

    fn disconnected(&self, channel: &Channel) {
        let mut routes = self.routes.write();
        let gone = routes.disconnected(channel.id());
        drop(routes);
        if gone.is_empty() {
            return;
        }
        self.sweep();
        self.metrics.brokers_expired.inc_by(gone.len() as u64);
        for broker in gone {
            tracing::warn!(cluster = broker.cluster, addr = broker.addr, "broker connection lost");
        }
    }
}

impl NamesrvProcessor {
    async fn answer(&self, context: &Context, request: RemotingCommand) -> Answer {
        if request.request_code() == RequestCode::REGISTER_BROKER {
            return self.register(context, request).await;
        }
        let request = &request;
        match request.request_code() {
            RequestCode::GET_ROUTEINFO_BY_TOPIC => self.route(request).await,
            RequestCode::UNREGISTER_BROKER => self.unregister(request),
            RequestCode::BROKER_HEARTBEAT => self.heartbeat(request),
            RequestCode::QUERY_DATA_VERSION => self.query_data_version(request),
            RequestCode::GET_BROKER_CLUSTER_INFO => json(&self.routes.read().cluster_info()),
            RequestCode::GET_BROKER_MEMBER_GROUP => self.member_group(request),
            RequestCode::WIPE_WRITE_PERM_OF_BROKER => self.wipe_write_perm(request),
            RequestCode::ADD_WRITE_PERM_OF_BROKER => self.add_write_perm(request),
            RequestCode::GET_ALL_TOPIC_LIST_FROM_NAMESERVER => self.all_topics().await,
            RequestCode::GET_TOPICS_BY_CLUSTER => self.topics_of_cluster(request).await,
            RequestCode::GET_SYSTEM_TOPIC_LIST_FROM_NS => {
                json(&self.routes.read().system_topic_list())
            }
            RequestCode::GET_UNIT_TOPIC_LIST => self.unit_topics(UnitTopics::Unit).await,
            RequestCode::GET_HAS_UNIT_SUB_TOPIC_LIST => self.unit_topics(UnitTopics::UnitSub).await,
            RequestCode::GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST => {
                self.unit_topics(UnitTopics::UnitSubUnUnit).await
            }
            RequestCode::DELETE_TOPIC_IN_NAMESRV => self.delete_topic(request),
            RequestCode::REGISTER_TOPIC_IN_NAMESRV => self.add_topic(request),
            RequestCode::PUT_KV_CONFIG => self.put_kv(request).await,
            RequestCode::GET_KV_CONFIG => self.get_kv(request),
            RequestCode::DELETE_KV_CONFIG => self.delete_kv(request).await,
            RequestCode::GET_KVLIST_BY_NAMESPACE => self.kv_list(request),
            RequestCode::UPDATE_NAMESRV_CONFIG => self.update_config(request),
            RequestCode::GET_NAMESRV_CONFIG => {
                Ok(RemotingCommand::success().with_body(self.config.print()))
            }
            other => Err(RequestError::NotSupported(other.0)),
        }
    }
}

/// Does work that would hold up the answers to others.
async fn off_the_hot_path<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

fn json(body: &impl Serialize) -> Answer {
    Ok(RemotingCommand::success().with_body(json::to_vec(body)?))
}

fn success_with(header: &impl Header) -> Answer {
    Ok(RemotingCommand::success_with(header))
}
