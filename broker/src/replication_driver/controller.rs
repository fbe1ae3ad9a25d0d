//! The broker's end of the controller protocol: registration, heartbeats, questions, and what a
//! controller says by itself.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future;
use parking_lot::RwLock;
use protocol::body::{AlterSyncStateSet, ReplicaRun, SyncStateSet};
use protocol::command::RemotingCommand;
use protocol::header::HeaderError;
use protocol::header::controller::{
    AlterSyncStateSetRequestHeader, ElectMasterRequestHeader, FreezeMasterRequestHeader,
    FreezeMasterResponseHeader, GetReplicaInfoRequestHeader, MasterHeader,
    RegisterReplicaRequestHeader, ReplicaHeader, ReplicaHeartbeatRequestHeader, TOKEN_FIELD,
    UnfreezeMasterRequestHeader,
};
use protocol::json::{self, JsonError};
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use remoting::{
    Context, Limits, Processor, RemotingClient, RemotingError, RemotingMetrics, Response,
};
use replication::controller::{AlterRequest, FreezeFailure, Refusal};
use replication::identity::Registration;
use replication::replica::ReplicaInput;
use replication::{Member, Millis, RoleRecord, RunIdentity};
use thiserror::Error;
use tokio::net::lookup_host;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::ReplicationDriver;
use crate::config;

/// Between two looks at the names of controllers.
const FIND_INTERVAL: Duration = Duration::from_secs(2);
/// Between two heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
/// A controller that does not answer within this is asked again, or another one.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// What a freeze may take beyond its budget.
const FREEZE_MARGIN: Duration = Duration::from_millis(250);

/// Why a controller did not do what it was asked.
#[derive(Debug, Error)]
pub(super) enum ControllerError {
    #[error(transparent)]
    Remoting(#[from] RemotingError),
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error(transparent)]
    Json(#[from] JsonError),
    #[error("it answers {code}: {remark}")]
    Refused { code: ResponseCode, remark: String },
    #[error("controllerAddr names no controller")]
    NoController,
    #[error("`controllerTokenFile` {path} cannot be read: {source}")]
    Token { path: String, source: std::io::Error },
}

/// See the module.
pub(super) struct Controllers {
    client: RemotingClient<FromController>,
    /// Every address of every controller.
    addresses: RwLock<Vec<String>>,
    /// Which of the addresses answered last.
    preferred: AtomicUsize,
    is_asking_role: AtomicBool,
    is_registering: AtomicBool,
    is_asking_alter: AtomicBool,
}

impl Controllers {
    pub(super) fn new(driver: Weak<ReplicationDriver>) -> Self {
        let processor = Arc::new(FromController { driver });
        Self {
            client: RemotingClient::new(Limits::default(), processor, RemotingMetrics::default()),
            addresses: RwLock::default(),
            preferred: AtomicUsize::new(0),
            is_asking_role: AtomicBool::new(false),
            is_registering: AtomicBool::new(false),
            is_asking_alter: AtomicBool::new(false),
        }
    }

    /// Asks for the role; what comes is handled.
    pub(super) async fn ask_role(&self, driver: &ReplicationDriver) {
        let Some(_turn) = Turn::take(&self.is_asking_role) else { return };
        match self.ask(driver, &role_question(driver)).await {
            Ok(answer) => role_came(driver, &answer),
            Err(error) => {
                tracing::debug!(%error, "no controller says which role this broker has");
            }
        }
    }

    /// Registers this run; what comes is handled.
    pub(super) async fn register(&self, driver: &ReplicationDriver, replaces: Option<RunIdentity>) {
        let Some(_turn) = Turn::take(&self.is_registering) else { return };
        match self.ask(driver, &registration(driver, replaces)).await {
            Ok(answer) => role_came(driver, &answer),
            Err(error) => tracing::info!(%error, "no controller takes the registration"),
        }
    }

    /// Asks for another in-sync set; what comes is handled.
    pub(super) async fn ask_alter(&self, driver: &ReplicationDriver, wanted: AlterRequest) {
        let Some(_turn) = Turn::take(&self.is_asking_alter) else { return };
        match self.ask(driver, &alteration(driver, wanted)).await {
            Ok(answer) => role_came(driver, &answer),
            Err(ControllerError::Refused { code, remark }) => {
                tracing::info!(%code, remark, "the in-sync set was not changed");
                let refusal = refusal(code);
                driver.handle(ReplicaInput::AlterRefused { refusal });
            }
            Err(error) => {
                tracing::warn!(%error, "no controller takes the in-sync set");
                let refusal = Refusal::StoreUnavailable;
                driver.handle(ReplicaInput::AlterRefused { refusal });
            }
        }
    }

    /// Asks the controllers in turn, beginning with the one that answered last.
    async fn ask(
        &self,
        driver: &ReplicationDriver,
        request: &RemotingCommand,
    ) -> Result<RemotingCommand, ControllerError> {
        let addresses = self.addresses.read().clone();
        let mut outcome = Err(ControllerError::NoController);
        let first = self.preferred.load(Ordering::Relaxed);
        for at in 0..addresses.len() {
            let at = (first + at) % addresses.len();
            outcome = self.ask_at(driver, &addresses[at], request.clone()).await;
            let is_other_better = match &outcome {
                Ok(_) => false,
                Err(ControllerError::Refused { code, .. }) => {
                    *code == ResponseCode::CONTROLLER_NOT_LEADER
                }
                Err(_) => true,
            };
            if !is_other_better {
                self.preferred.store(at, Ordering::Relaxed);
                break;
            }
        }
        outcome
    }

    /// Asks for a hand-over to the best other replica; the role comes as always.
    pub(super) async fn hand_over(
        &self,
        driver: &ReplicationDriver,
    ) -> Result<(), ControllerError> {
        let identity = driver.identity();
        let header = ElectMasterRequestHeader {
            cluster_name: identity.cluster.clone(),
            broker_name: identity.broker.clone(),
            broker_id: identity.id,
            hand_over: true,
            ..ElectMasterRequestHeader::default()
        };
        let request = RemotingCommand::request(RequestCode::CONTROLLER_ELECT_MASTER, &header);
        self.ask(driver, &request).await.map(drop)
    }

    async fn ask_at(
        &self,
        driver: &ReplicationDriver,
        address: &str,
        mut request: RemotingCommand,
    ) -> Result<RemotingCommand, ControllerError> {
        if let Some(token) = token(driver).await? {
            request.ext_fields.insert(TOKEN_FIELD, token);
        }
        let answer = self.client.invoke(address, request, REQUEST_TIMEOUT).await?;
        if answer.response_code() == ResponseCode::SUCCESS {
            return Ok(answer);
        }
        let remark = answer.remark.clone().unwrap_or_default();
        Err(ControllerError::Refused { code: answer.response_code(), remark })
    }

    /// Passes a client's request on.
    pub(super) async fn forward(
        &self,
        address: &str,
        request: RemotingCommand,
    ) -> Result<RemotingCommand, RemotingError> {
        let opaque = request.opaque;
        let mut answer = self.client.invoke(address, request, REQUEST_TIMEOUT).await?;
        answer.opaque = opaque;
        Ok(answer)
    }

    pub(super) async fn shutdown(&self) {
        self.client.shutdown().await;
    }
}

fn role_came(driver: &ReplicationDriver, answer: &RemotingCommand) {
    match role(answer) {
        Ok(role) => driver.handle(ReplicaInput::Role(role)),
        Err(error) => tracing::warn!(%error, "a controller's answer is not understood"),
    }
}

/// One question of a kind at a time.
struct Turn<'a>(&'a AtomicBool);

impl<'a> Turn<'a> {
    fn take(is_taken: &'a AtomicBool) -> Option<Self> {
        (!is_taken.swap(true, Ordering::AcqRel)).then_some(Self(is_taken))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Sends heartbeats to every controller; a silent one does not keep others waiting.
async fn send_heartbeats(driver: &Arc<ReplicationDriver>) {
    let mut ticks = interval(HEARTBEAT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for address in driver.controllers().addresses.read().clone() {
            let driver = Arc::clone(driver);
            driver.clone().spawn(async move {
                let request = heartbeat(&driver);
                let sent = driver.controllers().ask_at(&driver, &address, request);
                if let Ok(Err(error)) = timeout(HEARTBEAT_INTERVAL * 2, sent).await {
                    tracing::debug!(controller = address, %error, "no heartbeat");
                }
            });
        }
    }
}

/// What this replica says of itself, and where clients reach it.
fn replica(driver: &ReplicationDriver) -> (ReplicaHeader, String) {
    let identity = driver.identity();
    let Registration { id, address, ha_address, run, is_whole, log } = driver.registration();
    let header = ReplicaHeader {
        cluster_name: identity.cluster.clone(),
        broker_name: identity.broker.clone(),
        broker_id: id,
        ha_address,
        store_id: run.store_id,
        open_count: signed(run.open_count),
        incarnation: run.incarnation,
        epoch: log.last_epoch,
        promised_epoch: log.promised,
        max_offset: log.end,
        confirm_offset: log.confirm,
        sync_state_set_epoch: log.sync_state_set_epoch,
        is_master: log.is_master,
        is_whole,
    };
    (header, address)
}

fn registration(driver: &ReplicationDriver, replaces: Option<RunIdentity>) -> RemotingCommand {
    let (replica, broker_address) = replica(driver);
    let header = RegisterReplicaRequestHeader {
        broker_address,
        invoke_time: None,
        replaces_open_count: replaces.as_ref().map(|run| signed(run.open_count)),
        replaces_incarnation: replaces.as_ref().map(|run| run.incarnation.clone()),
        replaces_store_id: replaces.map(|run| run.store_id),
    };
    let request = RemotingCommand::request(RequestCode::CONTROLLER_REGISTER_BROKER, &header);
    request.with_header(&replica)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn heartbeat(driver: &ReplicationDriver) -> RemotingCommand {
    let (replica, broker_addr) = replica(driver);
    let header = ReplicaHeartbeatRequestHeader {
        broker_addr,
        heartbeat_timeout_millis: None,
        election_priority: None,
        heard_master: driver.heard_master().map(signed),
        disk_stall: signed(driver.disk_stall()),
        broker_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
    };
    RemotingCommand::request(RequestCode::BROKER_HEARTBEAT, &header).with_header(&replica)
}

fn role_question(driver: &ReplicationDriver) -> RemotingCommand {
    let identity = driver.identity();
    let header = GetReplicaInfoRequestHeader {
        broker_name: identity.broker.clone(),
        broker_id: Some(identity.id),
    };
    RemotingCommand::request(RequestCode::CONTROLLER_GET_REPLICA_INFO, &header)
}

fn alteration(driver: &ReplicationDriver, wanted: AlterRequest) -> RemotingCommand {
    let header = AlterSyncStateSetRequestHeader {
        broker_name: driver.identity().broker.clone(),
        master_broker_id: wanted.master,
        master_epoch: wanted.master_epoch,
        confirm_offset: wanted.confirm,
        invoke_time: None,
    };
    let body = AlterSyncStateSet {
        sync_state_set: wanted.set,
        sync_state_set_epoch: wanted.sync_state_set_epoch,
        runs: wanted.runs.into_iter().map(|(id, run)| (id, replica_run(run))).collect(),
    };
    let request = RemotingCommand::request(RequestCode::CONTROLLER_ALTER_SYNC_STATE_SET, &header);
    request.with_body(json::to_vec(&body).unwrap_or_default())
}

fn replica_run(run: RunIdentity) -> ReplicaRun {
    let RunIdentity { store_id, open_count, incarnation } = run;
    ReplicaRun { store_id, open_count, incarnation }
}

/// The role that an answer or a notice of a controller says.
fn role(command: &RemotingCommand) -> Result<RoleRecord, ControllerError> {
    let header: MasterHeader = command.header()?;
    let set: SyncStateSet = json::from_slice(&command.body)?;
    let master = header.master_broker_id.map(|id| Member {
        id,
        address: header.master_address.unwrap_or_default(),
        ha_address: header.master_ha_address.unwrap_or_default(),
    });
    let own_run = header.own_store_id.map(|store_id| RunIdentity {
        store_id,
        open_count: header.own_open_count.and_then(|n| u64::try_from(n).ok()).unwrap_or(0),
        incarnation: header.own_incarnation.unwrap_or_default(),
    });
    Ok(RoleRecord {
        epoch: header.master_epoch.unwrap_or(0),
        master,
        sync_state_set: set.sync_state_set,
        sync_state_set_epoch: set.sync_state_set_epoch,
        own_run,
        is_tail_in_doubt: header.own_tail_in_doubt,
        loss_epoch: header.loss_epoch.unwrap_or(0),
    })
}

/// What a refusal on the wire means here. Codes that stand for several mean "ask again".
fn refusal(code: ResponseCode) -> Refusal {
    match code {
        ResponseCode::CONTROLLER_FENCED_MASTER_EPOCH => Refusal::FencedMasterEpoch,
        ResponseCode::CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH => Refusal::FencedSyncStateSetEpoch,
        ResponseCode::CONTROLLER_INVALID_MASTER => Refusal::InvalidMaster,
        ResponseCode::CONTROLLER_INVALID_REPLICAS => Refusal::InvalidReplicas,
        ResponseCode::CONTROLLER_BROKER_NOT_ALIVE => Refusal::BrokerNotAlive,
        ResponseCode::CONTROLLER_BROKER_NEED_TO_BE_REGISTERED => Refusal::NeedToRegister,
        ResponseCode::CONTROLLER_ALTER_SYNC_STATE_SET_FAILED => Refusal::AlterFailed,
        _ => Refusal::StoreUnavailable,
    }
}

/// Answers what a controller asks of this broker.
struct FromController {
    driver: Weak<ReplicationDriver>,
}

impl Processor for FromController {
    async fn process(&self, _: Context, request: RemotingCommand) -> Option<Response> {
        let Some(driver) = self.driver.upgrade() else {
            let remark = "the broker is stopping";
            return Some(RemotingCommand::error(ResponseCode::SYSTEM_ERROR, remark).into());
        };
        let answer = answer(&driver, &request).await.unwrap_or_else(|error| {
            RemotingCommand::error(ResponseCode::INVALID_PARAMETER, error.to_string())
        });
        Some(answer.into())
    }
}

async fn answer(
    driver: &ReplicationDriver,
    request: &RemotingCommand,
) -> Result<RemotingCommand, ControllerError> {
    match request.request_code() {
        RequestCode::NOTIFY_BROKER_ROLE_CHANGED => {
            driver.handle(ReplicaInput::Role(role(request)?));
        }
        RequestCode::FREEZE_MASTER => return freeze(driver, request).await,
        RequestCode::UNFREEZE_MASTER => {
            let header: UnfreezeMasterRequestHeader = request.header()?;
            driver.handle(ReplicaInput::Unfreeze { epoch: header.master_epoch });
        }
        other => {
            let remark = format!("request type {} not supported", other.0);
            let code = ResponseCode::REQUEST_CODE_NOT_SUPPORTED;
            return Ok(RemotingCommand::error(code, remark));
        }
    }
    Ok(RemotingCommand::success())
}

async fn freeze(
    driver: &ReplicationDriver,
    request: &RemotingCommand,
) -> Result<RemotingCommand, ControllerError> {
    let header: FreezeMasterRequestHeader = request.header()?;
    let budget = Millis::try_from(header.budget).unwrap_or(0);
    let report = driver.freeze(header.master_epoch, header.target_broker_id, budget);
    let limit = Duration::from_millis(budget) + FREEZE_MARGIN;
    let result = match timeout(limit, report).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) | Err(_) => Err(FreezeFailure::TooSlow),
    };
    Ok(match result {
        Ok(max_offset) => RemotingCommand::success_with(&FreezeMasterResponseHeader { max_offset }),
        Err(FreezeFailure::NotMaster) => {
            let remark = "this broker is not master of that epoch";
            RemotingCommand::error(ResponseCode::CONTROLLER_INVALID_MASTER, remark)
        }
        Err(FreezeFailure::TooSlow) => {
            let remark = "the target did not have everything in time";
            RemotingCommand::error(ResponseCode::CONTROLLER_BROKER_NOT_ALIVE, remark)
        }
    })
}

/// What proves to controllers who this broker is; nothing where they trust everybody.
async fn token(driver: &ReplicationDriver) -> Result<Option<String>, ControllerError> {
    let settings = driver.settings();
    let path = settings.as_ref().map_or("", |settings| settings.controller_token_file.trim());
    if path.is_empty() {
        return Ok(None);
    }
    match tokio::fs::read_to_string(path).await {
        Ok(token) => Ok(Some(token.trim().to_owned())),
        Err(source) => Err(ControllerError::Token { path: path.to_owned(), source }),
    }
}

/// Keeps in touch with every controller until `stop`.
pub(super) async fn run(driver: Arc<ReplicationDriver>, stop: CancellationToken) {
    find(&driver).await;
    let looks = async {
        let mut ticks = interval(FIND_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            find(&driver).await;
        }
    };
    stop.run_until_cancelled(future::join(looks, send_heartbeats(&driver))).await;
}

/// Looks at the names of controllers again: their addresses come and go.
async fn find(driver: &ReplicationDriver) {
    let Some(settings) = driver.settings() else { return };
    let mut found = Vec::new();
    for name in config::name_servers(&settings.controller_addr) {
        match timeout(REQUEST_TIMEOUT, lookup_host(name)).await {
            Ok(Ok(addresses)) => found.extend(addresses.map(|address| address.to_string())),
            Ok(Err(error)) => tracing::debug!(name, %error, "a controller has no address"),
            Err(_) => tracing::debug!(name, "no answer about the address of a controller"),
        }
    }
    found.sort_unstable();
    found.dedup();
    let known = &driver.controllers().addresses;
    if !found.is_empty() && *known.read() != found {
        tracing::info!(controllers = found.join(" "), "controllers are at these addresses");
        *known.write() = found;
    }
}
