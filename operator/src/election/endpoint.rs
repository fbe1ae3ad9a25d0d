//! The port on which brokers register, send heartbeats and ask for their role, and which `mqadmin`
//! asks: RocketMQ's controller protocol.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use protocol::body::BrokerReplicasInfo;
use protocol::command::RemotingCommand;
use protocol::header::HeaderError;
use protocol::header::controller::{
    AlterSyncStateSetRequestHeader, AlterSyncStateSetResponseHeader, CleanBrokerDataRequestHeader,
    ControllerMetadataResponseHeader, ElectMasterRequestHeader, GetReplicaInfoRequestHeader,
    RegisterReplicaRequestHeader, ReplicaHeader,
};
use protocol::json::{self, JsonError};
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use remoting::{Channel, Context, Limits, Processor, RemotingMetrics, Response, ServerConfig};
use replication::controller::Refusal;
use replication::{ReplicaId, RoleRecord};

use super::authority::{Authority, Denied, GroupId};
use super::group_driver::{Group, Question};
use super::request;

/// Where an endpoint listens and what it says of itself.
#[derive(Clone)]
pub struct EndpointConfig {
    /// Address of the port; port 0 picks a free one.
    pub listen: SocketAddr,
    /// Cluster whose groups these are, for `mqadmin`.
    pub cluster: String,
    /// Addresses of all endpoints, this one included.
    pub peers: Vec<String>,
    /// Version that brokers are to run.
    pub broker_version: String,
    /// Connections that are accepted.
    pub connections_max: usize,
    /// Whom it believes what.
    pub authority: Authority,
}

/// The endpoint and its groups.
pub struct Endpoint {
    server: remoting::Server<EndpointProcessor>,
    processor: Arc<EndpointProcessor>,
}

impl Endpoint {
    /// Binds the port and begins to answer; there is no group yet.
    ///
    /// # Errors
    /// When the port cannot be bound.
    pub fn start(config: EndpointConfig, metrics: RemotingMetrics) -> std::io::Result<Self> {
        let limits = Limits { connections_max: config.connections_max, ..Limits::default() };
        let server = ServerConfig { listen: vec![config.listen], limits };
        let processor = Arc::new(EndpointProcessor {
            config,
            groups: RwLock::default(),
            replicas: Mutex::default(),
        });
        let server = remoting::Server::start(server, Arc::clone(&processor), metrics)?;
        Ok(Self { server, processor })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    /// Answers for a group from now on.
    pub fn add(&self, id: GroupId, group: Group) {
        self.processor.groups.write().insert(id, group);
    }

    /// Answers for a group no more.
    pub fn remove(&self, id: &GroupId) {
        self.processor.groups.write().remove(id);
    }

    /// Ends every connection.
    pub async fn shutdown(&self) {
        self.server.shutdown().await;
    }
}

/// Why a request is not carried out.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error(transparent)]
    Body(#[from] JsonError),
    #[error("{} ({refusal:?})", refusal.sentence())]
    Refused { refusal: Refusal },
    #[error("no group with the broker name {0} here: is it in a RocketMQCluster with replicas?")]
    NoGroup(String),
    #[error("{0} namespaces have a group of that name: ask in one of them, with kubectl get rmqbg")]
    Ambiguous(usize),
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error("request type {0} is not supported by this controller: ids are the resource's to give")]
    NotSupported(i32),
}

impl RequestError {
    fn code(&self) -> ResponseCode {
        match self {
            Self::Header(_) | Self::Body(_) => ResponseCode::CONTROLLER_INVALID_REQUEST,
            Self::Refused { refusal } => refusal.code(),
            Self::NoGroup(_) | Self::Ambiguous(_) => {
                ResponseCode::CONTROLLER_BROKER_METADATA_NOT_EXIST
            }
            Self::Denied(_) => ResponseCode::NO_PERMISSION,
            Self::NotSupported(_) => ResponseCode::REQUEST_CODE_NOT_SUPPORTED,
        }
    }
}

impl From<Refusal> for RequestError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused { refusal }
    }
}

/// For whoever reads an answer.
trait Sentence {
    fn sentence(&self) -> &'static str;
}

impl Sentence for Refusal {
    fn sentence(&self) -> &'static str {
        match self {
            Self::FencedMasterEpoch => "another epoch has begun",
            Self::FencedSyncStateSetEpoch => "the in-sync set has changed meanwhile",
            Self::InvalidMaster => "the broker is not the master",
            Self::InvalidReplicas => "a member is unknown or has started anew",
            Self::MasterNotAvailable => "there is no master, and none can be elected now",
            Self::InvalidRequest => "the request makes no sense now",
            Self::BrokerNotAlive => "a broker is not alive",
            Self::NotLeader => "this controller cannot decide now: ask another one, or again",
            Self::StoreUnavailable => "the record cannot be read or written now: ask again",
            Self::NeedToRegister => "the broker has to register first",
            Self::MasterStillExists => "there is a live master",
            Self::ElectFailed => "no replica fits",
            Self::AlterFailed => "the set is what is recorded, or lacks the master",
            Self::OutdatedRun => "a newer run of this broker has registered",
        }
    }
}

type Answer = Result<RemotingCommand, RequestError>;

struct EndpointProcessor {
    config: EndpointConfig,
    groups: RwLock<BTreeMap<GroupId, Group>>,
    /// Who speaks on which connection.
    replicas: Mutex<HashMap<u64, (GroupId, ReplicaId)>>,
}

impl Processor for EndpointProcessor {
    async fn process(&self, context: Context, request: RemotingCommand) -> Option<Response> {
        let code = request.code;
        let answer = self.answer(&context, &request).await.unwrap_or_else(|error| {
            tracing::debug!(code, %error, "request refused");
            RemotingCommand::error(error.code(), error.to_string())
        });
        Some(answer.into())
    }

    fn disconnected(&self, channel: &Channel) {
        let Some((group, id)) = self.replicas.lock().remove(&channel.id()) else { return };
        let group = self.groups.read().get(&group).cloned();
        if let Some(group) = group {
            let channel = channel.clone();
            tokio::spawn(async move { group.closed(id, channel).await });
        }
    }
}

impl EndpointProcessor {
    async fn answer(&self, context: &Context, request: &RemotingCommand) -> Answer {
        match request.request_code() {
            RequestCode::BROKER_HEARTBEAT => self.heartbeat(context, request).await,
            RequestCode::CONTROLLER_REGISTER_BROKER => self.register(context, request).await,
            RequestCode::CONTROLLER_ALTER_SYNC_STATE_SET => self.alter(request).await,
            RequestCode::CONTROLLER_ELECT_MASTER => self.elect(request).await,
            RequestCode::CONTROLLER_GET_REPLICA_INFO => self.replica_info(request).await,
            RequestCode::CONTROLLER_GET_METADATA_INFO => Ok(self.metadata()),
            RequestCode::CONTROLLER_GET_SYNC_STATE_DATA => self.sync_state_data(request),
            RequestCode::CLEAN_BROKER_DATA => self.clean(request).await,
            other => Err(RequestError::NotSupported(other.0)),
        }
    }

    fn get(&self, id: &GroupId) -> Result<Group, RequestError> {
        let groups = self.groups.read();
        groups.get(id).cloned().ok_or_else(|| RequestError::NoGroup(id.name.clone()))
    }

    /// The group of a request that only its replica `id` may make.
    async fn own_group(
        &self,
        request: &RemotingCommand,
        name: &str,
        id: ReplicaId,
    ) -> Result<(GroupId, Group), RequestError> {
        let group = self.config.authority.replica(request, name, id).await?;
        Ok((group.clone(), self.get(&group)?))
    }

    /// The only group with that name.
    fn group(&self, name: &str) -> Result<Group, RequestError> {
        let groups = self.groups.read();
        let mut found = groups.iter().filter(|(id, _)| id.name == name).map(|(_, group)| group);
        let first = found.next().ok_or_else(|| RequestError::NoGroup(name.to_owned()))?;
        match found.count() {
            0 => Ok(first.clone()),
            more => Err(RequestError::Ambiguous(more + 1)),
        }
    }

    fn speaks(&self, context: &Context, group: GroupId, id: ReplicaId) {
        let mut replicas = self.replicas.lock();
        if !context.channel.is_closed() {
            replicas.entry(context.channel.id()).or_insert((group, id));
        }
    }

    async fn heartbeat(&self, context: &Context, request: &RemotingCommand) -> Answer {
        let (header, replica): (_, ReplicaHeader) = (request.header()?, request.header()?);
        let (name, id) = (&replica.broker_name, replica.broker_id);
        let (group_id, group) = self.own_group(request, name, id).await?;
        self.speaks(context, group_id, id);
        let heartbeat = request::heartbeat(header, replica, &self.config.broker_version);
        group.heartbeat(heartbeat, context.channel.clone()).await;
        Ok(RemotingCommand::success())
    }

    async fn register(&self, context: &Context, request: &RemotingCommand) -> Answer {
        let header: RegisterReplicaRequestHeader = request.header()?;
        let replica: ReplicaHeader = request.header()?;
        let id = replica.broker_id;
        let (group_id, group) = self.own_group(request, &replica.broker_name, id).await?;
        self.speaks(context, group_id, id);
        let replaces = request::replaced(&header);
        let registration = request::registration(replica, header.broker_address);
        let channel = context.channel.clone();
        let record = group.ask(Question::Register { registration, replaces, channel }).await?;
        Ok(request::role_answer(&RoleRecord::of(&record, id)))
    }

    async fn alter(&self, request: &RemotingCommand) -> Answer {
        let header: AlterSyncStateSetRequestHeader = request.header()?;
        let id = header.master_broker_id;
        let (_, group) = self.own_group(request, &header.broker_name, id).await?;
        let wanted = request::alteration(&header, &request.body)?;
        let record = group.ask(Question::Alter(wanted)).await?;
        let answer = request::role_answer(&RoleRecord::of(&record, header.master_broker_id));
        Ok(answer.with_header(&AlterSyncStateSetResponseHeader {
            new_sync_state_set_epoch: record.sync_state_set_epoch,
        }))
    }

    async fn elect(&self, request: &RemotingCommand) -> Answer {
        let header: ElectMasterRequestHeader = request.header()?;
        let name = &header.broker_name;
        // A broker that ends asks for a successor; everything else is for people.
        let is_own = header.hand_over && !header.designate_elect && !header.accept_loss;
        let group = if is_own {
            self.own_group(request, name, header.broker_id).await?.1
        } else {
            self.config.authority.person()?;
            self.group(name)?
        };
        let target = header.designate_elect.then_some(header.broker_id);
        let question = if header.accept_loss {
            Question::AcceptLoss(header.broker_id)
        } else if header.hand_over {
            Question::HandOver(target)
        } else {
            Question::Elect(target)
        };
        let record = group.ask(question).await?;
        let role = RoleRecord::of(&record, header.broker_id);
        let body = request::elected(&record, &self.config.cluster, name);
        let answer = RemotingCommand::success_with(&request::master_header(&role));
        Ok(answer.with_body(json::to_vec(&body)?))
    }

    async fn replica_info(&self, request: &RemotingCommand) -> Answer {
        let header: GetReplicaInfoRequestHeader = request.header()?;
        let (name, id) = (&header.broker_name, header.broker_id);
        let group = match id {
            Some(id) => self.own_group(request, name, id).await?.1,
            None => self.group(name)?,
        };
        let record = group.ask(Question::Query).await?;
        Ok(request::role_answer(&RoleRecord::of(&record, header.broker_id.unwrap_or_default())))
    }

    /// Every endpoint decides, so each may call itself the leader: `mqadmin` then asks it.
    fn metadata(&self) -> RemotingCommand {
        let peers = &self.config.peers;
        let own = peers.first().cloned().unwrap_or_default();
        let listed = peers.iter().enumerate().map(|(id, address)| format!("n{id}:{address};"));
        RemotingCommand::success_with(&ControllerMetadataResponseHeader {
            group: Some(self.config.cluster.clone()),
            controller_leader_id: Some("n0".to_owned()),
            controller_leader_address: Some(own),
            is_leader: true,
            peers: Some(listed.collect()),
        })
    }

    fn sync_state_data(&self, request: &RemotingCommand) -> Answer {
        let names: Vec<String> = json::from_slice(&request.body)?;
        let groups = self.groups.read();
        let is_wanted = |id: &GroupId| names.is_empty() || names.contains(&id.name);
        let known = groups.iter().filter(|(id, _)| is_wanted(id));
        let infos = known.map(|(GroupId { name, .. }, group)| {
            let view = group.view().borrow().clone();
            (name.clone(), request::replicas_info(&view.record, &view.connected, name))
        });
        let info = BrokerReplicasInfo { replicas_info_table: infos.collect() };
        Ok(RemotingCommand::success().with_body(json::to_vec(&info)?))
    }

    async fn clean(&self, request: &RemotingCommand) -> Answer {
        let header: CleanBrokerDataRequestHeader = request.header()?;
        self.config.authority.person()?;
        let group = self.group(&header.broker_name)?;
        let given = header.broker_controller_ids_to_clean.unwrap_or_default();
        for id in given.split(';').filter(|id| !id.is_empty()) {
            let id: ReplicaId = id.trim().parse().map_err(|_| HeaderError::Invalid {
                field: "brokerControllerIdsToClean",
                value: id.to_owned(),
                expected: "numbers with `;` between them",
            })?;
            let is_alive = group.view().borrow().connected.contains(&id);
            if is_alive && !header.is_clean_living_broker {
                return Err(Refusal::InvalidRequest.into());
            }
            group.ask(Question::Remove(id)).await?;
        }
        Ok(RemotingCommand::success())
    }
}
