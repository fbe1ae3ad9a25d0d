//! Requests to a name server.

use std::sync::Arc;

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
use tokio::time::Instant;

use crate::config::NamesrvConfig;
use crate::kv_config::{KvConfig, KvConfigError};
use crate::metrics::Metrics;
use crate::registration::RegistrationError;
use crate::route_table::{RouteTable, UnitTopics};

mod broker;
mod kv;
mod settings;
mod topic;

/// Answers requests from the route table and the settings.
pub(crate) struct NamesrvProcessor {
    pub(crate) config: Live<NamesrvConfig>,
    pub(crate) routes: RwLock<RouteTable>,
    pub(crate) kv_config: Arc<Mutex<KvConfig>>,
    pub(crate) metrics: Metrics,
    pub(crate) started: Instant,
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
    fn code(&self) -> ResponseCode {
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
        let answer = self.answer(&context, &request).await.unwrap_or_else(|error| {
            tracing::debug!(code = request.code, %error, "request refused");
            RemotingCommand::error(error.code(), error.to_string())
        });
        Some(answer.into())
    }

    fn disconnected(&self, channel: &Channel) {
        let mut routes = self.routes.write();
        let gone = routes.disconnected(channel.id());
        self.metrics.sizes(routes.sizes());
        drop(routes);
        self.metrics.brokers_expired.inc_by(gone.len() as u64);
        for broker in gone {
            tracing::warn!(cluster = broker.cluster, addr = broker.addr, "broker connection lost");
        }
    }
}

impl NamesrvProcessor {
    async fn answer(&self, context: &Context, request: &RemotingCommand) -> Answer {
        match request.request_code() {
            RequestCode::GET_ROUTEINFO_BY_TOPIC => self.route(request),
            RequestCode::REGISTER_BROKER => self.register(context, request),
            RequestCode::UNREGISTER_BROKER => self.unregister(request),
            RequestCode::BROKER_HEARTBEAT => self.heartbeat(request),
            RequestCode::QUERY_DATA_VERSION => self.query_data_version(request),
            RequestCode::GET_BROKER_CLUSTER_INFO => json(&self.routes.read().cluster_info()),
            RequestCode::GET_BROKER_MEMBER_GROUP => self.member_group(request),
            RequestCode::WIPE_WRITE_PERM_OF_BROKER => self.wipe_write_perm(request),
            RequestCode::ADD_WRITE_PERM_OF_BROKER => self.add_write_perm(request),
            RequestCode::GET_ALL_TOPIC_LIST_FROM_NAMESERVER => self.all_topics(),
            RequestCode::GET_TOPICS_BY_CLUSTER => self.topics_of_cluster(request),
            RequestCode::GET_SYSTEM_TOPIC_LIST_FROM_NS => {
                json(&self.routes.read().system_topic_list())
            }
            RequestCode::GET_UNIT_TOPIC_LIST => self.unit_topics(UnitTopics::Unit),
            RequestCode::GET_HAS_UNIT_SUB_TOPIC_LIST => self.unit_topics(UnitTopics::UnitSub),
            RequestCode::GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST => {
                self.unit_topics(UnitTopics::UnitSubUnUnit)
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

fn json(body: &impl Serialize) -> Answer {
    Ok(RemotingCommand::success().with_body(json::to_vec(body)?))
}

fn success_with(header: &impl Header) -> Answer {
    Ok(RemotingCommand::success_with(header))
}
