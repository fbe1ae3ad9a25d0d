//! Carries out what the controller of one group decides.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use remoting::Channel;
use replication::controller::{Condition, FreezeFailure, Heartbeat, ProbeAnswer, Refusal, Token};
use replication::group_record::Version;
use replication::identity::Registration;
use replication::{
    Controller, ControllerConfig, ControllerEffect, ControllerInput, Epoch, GroupRecord, Millis,
    ReplicaId, RoleRecord, RunIdentity,
};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::group_store::{GroupStore, StoreFailure};
use super::request;

/// Requests and news that wait for one group.
const COMMANDS_MAX: usize = 256;
/// Between two looks at the time.
const TICK: Duration = Duration::from_millis(100);
/// A port that does not answer within this is silent.
const PROBE_TIMEOUT: Duration = Duration::from_millis(1_000);
/// A port that answers is dialled again so often, after such pauses.
const DIALS_AGAIN: usize = 5;
const DIAL_PAUSE: Duration = Duration::from_millis(100);
/// What an answer to a freeze takes beyond the time that the master has for it.
const FREEZE_MARGIN: Duration = Duration::from_millis(500);

/// A group as people and other parts of the operator see it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GroupView {
    /// The record, as far as it is known here.
    pub record: Arc<GroupRecord>,
    /// Replicas that are connected.
    pub connected: BTreeSet<ReplicaId>,
    /// What people should know.
    pub conditions: BTreeSet<Condition>,
}

/// What a question to a group gets.
pub(super) type Outcome = Result<Arc<GroupRecord>, Refusal>;

pub(super) enum Command {
    Ask { question: Question, answer: oneshot::Sender<Outcome> },
    Heartbeat { heartbeat: Heartbeat, channel: Channel },
    Closed { id: ReplicaId, channel: Channel },
    Tell(ControllerInput),
}

/// A request to be answered: everything of it but the token.
pub(super) enum Question {
    Register { registration: Registration, replaces: Option<RunIdentity>, channel: Channel },
    Alter(replication::controller::AlterRequest),
    Query,
    Elect(Option<ReplicaId>),
    HandOver(Option<ReplicaId>),
    AcceptLoss(ReplicaId),
    Remove(ReplicaId),
}

/// A running group.
#[derive(Clone)]
pub struct Group {
    commands: mpsc::Sender<Command>,
    view: watch::Receiver<GroupView>,
}

impl Group {
    /// Starts the driver of a group, which ends with `stop`.
    pub fn start(
        name: String,
        config: ControllerConfig,
        store: Arc<dyn GroupStore>,
        stop: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let (view, view_receiver) = watch::channel(GroupView::default());
        let driver = Driver {
            name,
            store_timeout: Duration::from_millis(config.store_timeout),
            controller: Controller::new(config),
            store,
            begin: Instant::now(),
            next_token: 0,
            waiting: HashMap::new(),
            peers: BTreeMap::new(),
            work: FuturesUnordered::new(),
            view,
        };
        let run = driver.run(receiver, stop);
        (Self { commands, view: view_receiver }, run)
    }

    /// The group as it is now and becomes.
    pub fn view(&self) -> &watch::Receiver<GroupView> {
        &self.view
    }

    /// Whether this operator begins elections.
    pub async fn lead(&self, leading: bool) {
        self.tell(ControllerInput::Leading(leading)).await;
    }

    /// The spec has changed.
    pub async fn configure(&self, config: ControllerConfig) {
        self.tell(ControllerInput::Config(config)).await;
    }

    /// The pod or process of a replica is about to go, or is not any more.
    pub async fn leaving(&self, id: ReplicaId, is_leaving: bool) {
        self.tell(ControllerInput::Leaving { id, is_leaving }).await;
    }

    /// Moves the mastership in order, away from who has it or to `target`.
    ///
    /// # Errors
    /// Why it was not moved.
    pub async fn hand_over(&self, target: Option<ReplicaId>) -> Result<Arc<GroupRecord>, Refusal> {
        self.ask(Question::HandOver(target)).await
    }

    pub(super) async fn ask(&self, question: Question) -> Outcome {
        let (answer, receiver) = oneshot::channel();
        // A driver that has ended answers nobody.
        let _ = self.commands.send(Command::Ask { question, answer }).await;
        receiver.await.unwrap_or(Err(Refusal::NotLeader))
    }

    pub(super) async fn heartbeat(&self, heartbeat: Heartbeat, channel: Channel) {
        let _ = self.commands.send(Command::Heartbeat { heartbeat, channel }).await;
    }

    pub(super) async fn closed(&self, id: ReplicaId, channel: Channel) {
        let _ = self.commands.send(Command::Closed { id, channel }).await;
    }

    async fn tell(&self, input: ControllerInput) {
        let _ = self.commands.send(Command::Tell(input)).await;
    }
}

/// Where a replica is reached.
struct Peer {
    channel: Channel,
    address: String,
}

struct Driver {
    name: String,
    store_timeout: Duration,
    controller: Controller,
    store: Arc<dyn GroupStore>,
    begin: Instant,
    next_token: Token,
    waiting: HashMap<Token, oneshot::Sender<Outcome>>,
    peers: BTreeMap<ReplicaId, Peer>,
    /// What is under way, with what the controller is told at its end.
    work: FuturesUnordered<BoxFuture<'static, Option<ControllerInput>>>,
    view: watch::Sender<GroupView>,
}

impl Driver {
    async fn run(mut self, mut commands: mpsc::Receiver<Command>, stop: CancellationToken) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let input = tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => ControllerInput::Tick,
                Some(done) = self.work.next() => match done {
                    Some(input) => input,
                    None => continue,
                },
                command = commands.recv() => match command.map(|command| self.input(command)) {
                    Some(Some(input)) => input,
                    Some(None) => continue,
                    None => return,
                },
            };
            self.handle(input);
        }
    }

    fn input(&mut self, command: Command) -> Option<ControllerInput> {
        Some(match command {
            Command::Tell(input) => input,
            Command::Closed { id, channel } => {
                // It may have come back on another connection meanwhile.
                self.peers.get(&id).filter(|peer| peer.channel == channel)?;
                ControllerInput::Disconnected { id }
            }
            Command::Heartbeat { heartbeat, channel } => {
                let registration = &heartbeat.registration;
                self.reached(registration.id, &registration.address, channel);
                ControllerInput::Heartbeat(heartbeat)
            }
            Command::Ask { question, answer } => {
                let token = self.next_token;
                self.next_token += 1;
                self.waiting.insert(token, answer);
                self.question(token, question)
            }
        })
    }

    fn question(&mut self, token: Token, question: Question) -> ControllerInput {
        match question {
            Question::Register { registration, replaces, channel } => {
                self.reached(registration.id, &registration.address, channel);
                ControllerInput::Register { token, registration, replaces }
            }
            Question::Alter(request) => ControllerInput::Alter { token, request },
            Question::Query => ControllerInput::Query { token },
            Question::Elect(target) => ControllerInput::Elect { token, target },
            Question::HandOver(target) => ControllerInput::HandOver { token, target },
            Question::AcceptLoss(id) => ControllerInput::AcceptLoss { token, id },
            Question::Remove(id) => ControllerInput::Remove { token, id },
        }
    }

    fn reached(&mut self, id: ReplicaId, address: &str, channel: Channel) {
        match self.peers.get_mut(&id) {
            Some(peer) if peer.channel == channel && peer.address == address => {}
            _ => {
                self.peers.insert(id, Peer { channel, address: address.to_owned() });
            }
        }
    }

    fn handle(&mut self, input: ControllerInput) {
        let now = Millis::try_from(self.begin.elapsed().as_millis()).unwrap_or(Millis::MAX);
        for effect in self.controller.handle(now, input) {
            self.carry_out(effect);
        }
        self.publish();
    }

    fn carry_out(&mut self, effect: ControllerEffect) {
        match effect {
            ControllerEffect::Read => self.read(),
            ControllerEffect::Write { expected, record } => self.write(expected, record),
            ControllerEffect::Reply { token, outcome } => {
                if let Some(answer) = self.waiting.remove(&token) {
                    // Who asked may have gone.
                    let _ = answer.send(outcome);
                }
            }
            ControllerEffect::Notify { id, record } => {
                self.send(id, &request::role_notice(&RoleRecord::of(&record, id)));
            }
            ControllerEffect::Freeze { master, epoch, target, budget } => {
                self.freeze(master, epoch, target, budget);
            }
            ControllerEffect::Unfreeze { master, epoch } => {
                self.send(master, &request::unfreeze(epoch));
            }
            ControllerEffect::Probe { id } => self.probe(id),
            ControllerEffect::Raise(condition) => {
                tracing::warn!(group = self.name, ?condition, "condition holds");
                self.view.send_modify(|view| {
                    view.conditions.insert(condition);
                });
            }
            ControllerEffect::Clear(condition) => {
                tracing::info!(group = self.name, ?condition, "condition holds no more");
                self.view.send_modify(|view| {
                    view.conditions.remove(&condition);
                });
            }
        }
    }

    fn publish(&self) {
        let record = self.controller.record();
        let connected = self.peers.iter().filter(|(_, peer)| !peer.channel.is_closed());
        let connected: BTreeSet<ReplicaId> = connected.map(|(id, _)| *id).collect();
        self.view.send_if_modified(|view| {
            let is_same = record.is_none_or(|record| *view.record == *record);
            if is_same && view.connected == connected {
                return false;
            }
            if let Some(record) = record.filter(|_| !is_same) {
                view.record = Arc::new(record.clone());
            }
            view.connected = connected;
            true
        });
    }

    fn read(&self) {
        let (store, name, limit) = (Arc::clone(&self.store), self.name.clone(), self.store_timeout);
        self.work.push(Box::pin(async move {
            Some(match answer(limit, store.read()).await {
                Ok((version, record)) => ControllerInput::Record { version, record },
                Err(error) => unavailable(&name, "read", &error),
            })
        }));
    }

    fn write(&self, expected: Version, record: Arc<GroupRecord>) {
        let (store, name, limit) = (Arc::clone(&self.store), self.name.clone(), self.store_timeout);
        self.work.push(Box::pin(async move {
            Some(match answer(limit, store.write(expected, record)).await {
                Ok(version) => ControllerInput::Written { version },
                Err(StoreFailure::Conflict) => ControllerInput::Conflict,
                Err(error) => unavailable(&name, "write", &error),
            })
        }));
    }

    fn send(&self, id: ReplicaId, notice: &protocol::command::RemotingCommand) {
        let Some(peer) = self.peers.get(&id) else { return };
        if let Err(error) = peer.channel.try_send(notice.clone().oneway()) {
            // It asks every few seconds by itself.
            tracing::debug!(group = self.name, replica = id, %error, "cannot tell a replica");
        }
    }

    fn freeze(&self, master: ReplicaId, epoch: Epoch, target: ReplicaId, budget: Millis) {
        let channel = self.peers.get(&master).map(|peer| peer.channel.clone());
        self.work.push(Box::pin(async move {
            let not_there = Err(FreezeFailure::NotMaster);
            let Some(channel) = channel else {
                return Some(ControllerInput::Frozen { epoch, result: not_there });
            };
            let limit = Duration::from_millis(budget) + FREEZE_MARGIN;
            let answer = channel.invoke(request::freeze(epoch, target, budget), limit).await;
            let result = match answer {
                Ok(answer) => request::frozen(&answer),
                Err(_) => Err(FreezeFailure::TooSlow),
            };
            Some(ControllerInput::Frozen { epoch, result })
        }));
    }

    fn probe(&self, id: ReplicaId) {
        let Some(address) = self.peers.get(&id).map(|peer| peer.address.clone()) else { return };
        self.work.push(Box::pin(async move {
            let mut answer = dial(&address).await;
            for _ in 0..DIALS_AGAIN {
                if answer != ProbeAnswer::Connected {
                    break;
                }
                // A process that is being killed closes its connections before its port.
                sleep(DIAL_PAUSE).await;
                answer = dial(&address).await;
            }
            Some(ControllerInput::Probed { id, answer })
        }));
    }
}

async fn dial(address: &str) -> ProbeAnswer {
    let Ok(connected) = timeout(PROBE_TIMEOUT, TcpStream::connect(address)).await else {
        return ProbeAnswer::Silent;
    };
    match connected.map_err(|error| error.kind()) {
        Err(io::ErrorKind::ConnectionRefused) => ProbeAnswer::Refused,
        // Something was there to end the connection.
        Ok(_) | Err(io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted) => {
            ProbeAnswer::Connected
        }
        Err(_) => ProbeAnswer::Silent,
    }
}

async fn answer<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, StoreFailure>>,
) -> Result<T, StoreFailure> {
    let late = || StoreFailure::Unavailable(format!("no answer in {limit:?}"));
    timeout(limit, work).await.unwrap_or_else(|_| Err(late()))
}

fn unavailable(group: &str, what: &str, error: &StoreFailure) -> ControllerInput {
    tracing::warn!(group, %error, "cannot {what} the record");
    ControllerInput::Unavailable
}
