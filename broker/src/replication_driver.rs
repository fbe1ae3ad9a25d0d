//! Carries out what [`replication::Replica`] decides: the store, the replication port, the
//! controllers and the gate for clients' sends, in the order of the effects.
//!
//! Whoever has an input handles it, under one lock, so that an acknowledgement of a slave reaches
//! the sender that waits for it without a change of threads. Nothing that is done under the lock
//! waits for a peer.

mod controller;
mod link;
mod master_port;
mod open;
mod role_gate;
mod state_file;
mod wire;

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use daemon::shutdown::Shutdown;
use parking_lot::Mutex;
use protocol::command::RemotingCommand;
use protocol::response_code::ResponseCode;
use replication::controller::{AlterRequest, FreezeFailure};
use replication::identity::Registration;
use replication::replica::{Frame, HaltReason, Link, ReplicaInput, Serving};
use replication::{Epoch, Member, Millis, Replica, ReplicaEffect, ReplicaId, RunIdentity};
use store::MessageStore;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::{Duration, Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::controller::Controllers;
use self::link::{LinkHandle, Out};
pub(crate) use self::open::open;
pub(crate) use self::role_gate::{Admission, RoleGate};
use self::state_file::StateFile;
use crate::broker::{Broker, Identity};
use crate::config::BrokerConfig;
use crate::ha::{Growth, MasterAddress};
use crate::log_records;
use crate::refusal::Refusal;

/// Between two looks at the time.
const TICK: Duration = Duration::from_millis(50);
/// Links that slaves open have numbers from here on; those to masters are the replica's to number.
const SLAVE_LINKS: u64 = 1 << 32;
/// Marks a send that a broker has passed on.
const FORWARDED: &str = "forwarded";
/// How much of a diverged tail is copied at once.
const COPY_BYTES: usize = 1 << 20;

struct Core {
    replica: Replica,
    links: HashMap<Link, LinkHandle>,
    next_slave_link: u64,
    /// Who waits for the master to be frozen.
    freezing: Vec<oneshot::Sender<Result<i64, FreezeFailure>>>,
    /// The end of what is on the disk, and since when it has not moved though it should.
    flushed: (i64, Instant),
    /// Why nothing is done any more.
    failed: Option<String>,
}

/// An input that is being handled, and what follows from it.
struct Turn<'a> {
    broker: &'a Arc<Broker>,
    /// What came with the input.
    bytes: &'a Bytes,
    /// What is still to be handled.
    inputs: VecDeque<ReplicaInput>,
}

/// See the module.
pub(crate) struct ReplicationDriver {
    core: Mutex<Core>,
    broker: OnceLock<Weak<Broker>>,
    gate: Arc<RoleGate>,
    identity: Identity,
    state_file: StateFile,
    diverged: PathBuf,
    controllers: Controllers,
    begin: Instant,
    shutdown: Shutdown,
    tasks: TaskTracker,
    port: TaskTracker,
    /// Ends the port of the master.
    leave: CancellationToken,
    stop: CancellationToken,
    own: Weak<Self>,
}

/// What a driver begins with.
struct Start {
    replica: Replica,
    state_file: StateFile,
    identity: Identity,
    gate: Arc<RoleGate>,
    /// Directory of the store.
    root: PathBuf,
    shutdown: Shutdown,
}

impl ReplicationDriver {
    fn new(start: Start) -> Arc<Self> {
        let core = Core {
            replica: start.replica,
            links: HashMap::new(),
            next_slave_link: SLAVE_LINKS,
            freezing: Vec::new(),
            flushed: (0, Instant::now()),
            failed: None,
        };
        Arc::new_cyclic(|own: &Weak<Self>| Self {
            core: Mutex::new(core),
            broker: OnceLock::new(),
            gate: start.gate,
            identity: start.identity,
            state_file: start.state_file,
            diverged: start.root.join("diverged"),
            controllers: Controllers::new(own.clone()),
            begin: Instant::now(),
            shutdown: start.shutdown,
            tasks: TaskTracker::new(),
            port: TaskTracker::new(),
            leave: CancellationToken::new(),
            stop: CancellationToken::new(),
            own: own.clone(),
        })
    }

    /// Begins to take part in the group.
    pub(crate) fn start(self: &Arc<Self>, broker: &Arc<Broker>, listener: TcpListener) {
        let _ = self.broker.set(Arc::downgrade(broker));
        let (driver, stop) = (|| Arc::clone(self), || self.stop.clone());
        self.spawn(link::accept(driver(), listener, stop()));
        self.spawn(controller::run(driver(), stop()));
        self.spawn(tell_the_time(driver(), stop()));
        self.spawn(follow_the_log(driver(), stop()));
        // Not ended by `stop` but of its own accord, after all requests were answered.
        self.port.spawn(master_port::keep(Arc::clone(broker), self.leave.clone()));
    }

    /// Takes no part any more. What was stored stays.
    pub(crate) async fn shutdown(&self) {
        // Late sends are forwarded until clients have gone. The new master may need this replica
        // to acknowledge them.
        self.leave.cancel();
        self.port.close();
        self.port.wait().await;
        self.stop.cancel();
        self.core.lock().links.drain().for_each(|(_, link)| link.close());
        self.tasks.close();
        self.controllers.shutdown().await;
        self.tasks.wait().await;
    }

    /// Asks for another master in the place of this one.
    pub(crate) async fn resign(&self) -> Result<(), String> {
        self.controllers.hand_over(self).await.map_err(|error| error.to_string())
    }

    /// Lets the new master answer a send that came late.
    pub(crate) async fn forward(
        &self,
        master: &Member,
        request: &RemotingCommand,
    ) -> Result<RemotingCommand, Refusal> {
        if request.ext_fields.get(FORWARDED).is_some() {
            // Two brokers that take each other for the master must not send it back and forth.
            return Err(Refusal::not_master());
        }
        let mut forwarded = request.clone();
        forwarded.ext_fields.insert(FORWARDED, "true");
        let forwarded = self.controllers.forward(&master.address, forwarded);
        forwarded.await.map_err(|error| {
            let remark = format!("the new master does not answer: {error}");
            Refusal::new(ResponseCode::SERVICE_NOT_AVAILABLE, remark)
        })
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            stop.run_until_cancelled(task).await;
        });
    }

    fn controllers(&self) -> &Controllers {
        &self.controllers
    }

    fn settings(&self) -> Option<Arc<BrokerConfig>> {
        Some(self.broker.get()?.upgrade()?.settings())
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn registration(&self) -> Registration {
        self.core.lock().replica.registration()
    }

    fn heard_master(&self) -> Option<Millis> {
        self.core.lock().replica.heard_master(self.now())
    }

    /// How long the oldest append has waited for the disk, at least.
    fn disk_stall(&self) -> Millis {
        Millis::try_from(self.core.lock().flushed.1.elapsed().as_millis()).unwrap_or(Millis::MAX)
    }

    /// Members of the in-sync set besides this one.
    pub(crate) fn slaves_in_sync(&self) -> usize {
        self.core.lock().replica.sync_state_set().0.len().saturating_sub(1)
    }

    /// Why this replica does nothing any more, in words for people.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.core.lock().failed.clone().map_or(Ok(()), Err)
    }

    fn now(&self) -> Millis {
        Millis::try_from(self.begin.elapsed().as_millis()).unwrap_or(Millis::MAX)
    }

    /// What tells of changes of the log; none at the broker's end.
    fn growth(&self) -> Option<Arc<Growth>> {
        Some(self.broker.get()?.upgrade()?.ha.growth())
    }

    fn add_link(&self, link: LinkHandle) -> Link {
        let mut core = self.core.lock();
        let number = Link(core.next_slave_link);
        core.next_slave_link += 1;
        core.links.insert(number, link);
        number
    }

    fn remove_link(&self, link: Link) {
        if let Some(link) = self.core.lock().links.remove(&link) {
            link.close();
        }
    }

    /// Stops the master and lets a slave catch up; the outcome.
    fn freeze(
        &self,
        epoch: Epoch,
        target: ReplicaId,
        budget: Millis,
    ) -> oneshot::Receiver<Result<i64, FreezeFailure>> {
        let (report, outcome) = oneshot::channel();
        self.core.lock().freezing.push(report);
        self.handle(ReplicaInput::Freeze { epoch, target, budget });
        outcome
    }

    /// The next piece of the log for a slave that has everything below `from`, of whole records.
    fn next_frame(&self, from: i64) -> Option<(Frame, Bytes)> {
        let broker = self.broker.get()?.upgrade()?;
        if broker.store.log_end() > self.core.lock().replica.log().end {
            self.handle_with(&Bytes::new(), appended);
        }
        let length_max = i64::try_from(wire::DATA_BYTES_MAX).unwrap_or(i64::MAX);
        let mut frame = self.core.lock().replica.frame(self.now(), from, length_max)?;
        match log_records::read(&broker.store, from, usize::try_from(frame.length).unwrap_or(0)) {
            Ok(bytes) => {
                frame.length = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
                Some((frame, bytes))
            }
            Err(error) => {
                tracing::error!(%error, from, "the log cannot be read for a slave");
                None
            }
        }
    }

    /// Takes an input and carries out what follows from it.
    pub(crate) fn handle(&self, input: ReplicaInput) {
        self.handle_with(&Bytes::new(), |_| input);
    }

    fn handle_data(&self, link: Link, frame: Frame, bytes: &Bytes) {
        self.handle_with(bytes, |_| ReplicaInput::MasterData { link, frame });
    }

    /// The input is made under the lock: what it says of the log is true when it is handled.
    fn handle_with(&self, bytes: &Bytes, input: impl FnOnce(&MessageStore) -> ReplicaInput) {
        let Some(broker) = self.broker.get().and_then(Weak::upgrade) else { return };
        let mut core = self.core.lock();
        let inputs = VecDeque::from([input(&broker.store)]);
        let mut turn = Turn { broker: &broker, bytes, inputs };
        while let Some(input) = turn.inputs.pop_front() {
            if core.failed.is_some() {
                return;
            }
            for effect in core.replica.handle(self.now(), input) {
                if let Err(reason) = self.carry_out(&mut core, &mut turn, effect) {
                    self.fail(&mut core, reason);
                    return;
                }
            }
        }
    }

    /// What no listener tells of: retention, a disk that has failed or does not come to an end.
    fn look_at_the_log(&self) {
        let Some(broker) = self.broker.get().and_then(Weak::upgrade) else { return };
        let store = &broker.store;
        let mut core = self.core.lock();
        let flushed = store.log_flushed();
        if flushed != core.flushed.0 || flushed >= store.log_end() {
            core.flushed = (flushed, Instant::now());
        }
        if let Some(reason) = store.failure().filter(|_| core.failed.is_none()) {
            self.fail(&mut core, reason);
        }
        let begin = store.log_min_offset();
        let is_trimmed = begin > core.replica.log().start;
        drop(core);
        if is_trimmed {
            self.handle(ReplicaInput::Trimmed { begin });
        }
    }

    /// A disk that does not do what it is told leaves nothing that could be relied on: the process
    /// ends, so that another replica is elected at once; its next start finds out what is left.
    fn fail(&self, core: &mut Core, reason: String) {
        tracing::error!(reason, "this replica cannot take part any more, the broker ends");
        self.gate.set(&Serving {
            master_epoch: None,
            reads: false,
            sends: replication::replica::Sends::Refuse,
        });
        core.links.drain().for_each(|(_, link)| link.close());
        core.failed = Some(reason);
        self.shutdown.fail();
    }

    fn carry_out(
        &self,
        core: &mut Core,
        turn: &mut Turn<'_>,
        effect: ReplicaEffect,
    ) -> Result<(), String> {
        let broker = turn.broker;
        let store = &broker.store;
        match effect {
            ReplicaEffect::Persist(state) => {
                self.state_file.store(&state).map_err(|error| error.to_string())?;
            }
            ReplicaEffect::BecomeMaster { epoch, start } => {
                tracing::info!(epoch, start, "this broker is master");
                broker.ha.follow(MasterAddress::default());
                broker.take_over(epoch);
                store.become_master().map_err(|error| error.to_string())?;
            }
            ReplicaEffect::BecomeSlave { epoch, master } => {
                tracing::info!(epoch, master = master.id, "this broker is a slave");
                let Member { address, ha_address, .. } = master;
                broker.ha.follow(MasterAddress { address, ha_address });
                self.stop_appending(turn);
            }
            ReplicaEffect::BecomeFenced => {
                tracing::info!("this broker has no role");
                broker.ha.follow(MasterAddress::default());
                self.stop_appending(turn);
            }
            ReplicaEffect::ConnectTo { link, master } => self.connect(core, link, master),
            ReplicaEffect::SendHello { link, hello } => {
                let hello = wire::slave_hello(&self.identity.broker, &hello);
                send(core, link, Out::Frame(hello));
            }
            ReplicaEffect::SendAck { link, ack } => send(core, link, Out::Frame(wire::ack(&ack))),
            ReplicaEffect::AnswerHello { link, hello } => {
                send(core, link, Out::Frame(wire::master_hello(&hello)));
            }
            ReplicaEffect::Stream { link, from } => send(core, link, Out::Stream(from)),
            ReplicaEffect::Close { link } => {
                if let Some(link) = core.links.remove(&link) {
                    link.close();
                }
            }
            ReplicaEffect::SaveDiverged { epoch, from, to } => {
                self.save_diverged(store, epoch, from, to)?;
            }
            ReplicaEffect::Truncate { to } => {
                store.truncate(to).map_err(|error| error.to_string())?;
            }
            ReplicaEffect::Refill { from } => refill(store, from)?,
            ReplicaEffect::Append { offset, length } => append(store, offset, length, turn.bytes)?,
            // One gate for both: they differ in the asynchronous profile only.
            ReplicaEffect::Confirm { offset, acknowledged: _ } => store.set_confirm(offset),
            ReplicaEffect::AskAlter(wanted) => self.ask_alter(wanted),
            ReplicaEffect::AskRole => self.ask_role(),
            ReplicaEffect::Register { replaces } => self.register(replaces),
            ReplicaEffect::Serve(serving) => self.serve(turn, &serving),
            ReplicaEffect::ReportFrozen { epoch: _, result } => {
                for report in core.freezing.drain(..) {
                    // The controller may have given it up.
                    let _ = report.send(result);
                }
            }
            ReplicaEffect::Halt(reason) => return Err(halted(reason)),
        }
        Ok(())
    }

    fn stop_appending(&self, turn: &mut Turn<'_>) {
        let store = &turn.broker.store;
        store.become_slave();
        turn.inputs.push_front(ReplicaInput::Appended { end: store.log_end() });
    }

    fn connect(&self, core: &mut Core, link: Link, master: Member) {
        let (handle, out) = LinkHandle::new();
        let stop = handle.stopped();
        core.links.insert(link, handle);
        let Some(driver) = self.own.upgrade() else { return };
        self.spawn(async move {
            let following = link::follow(&driver, link, &master.ha_address, out);
            if let Some(Err(error)) = stop.run_until_cancelled(following).await {
                let (id, address) = (master.id, &master.ha_address);
                tracing::info!(master = id, address, %error, "no connection to the master");
            }
            driver.remove_link(link);
            driver.handle(ReplicaInput::MasterGone { link });
        });
    }

    fn ask_alter(&self, wanted: AlterRequest) {
        let Some(driver) = self.own.upgrade() else { return };
        self.spawn(async move { driver.controllers.ask_alter(&driver, wanted).await });
    }

    fn ask_role(&self) {
        let Some(driver) = self.own.upgrade() else { return };
        self.spawn(async move { driver.controllers.ask_role(&driver).await });
    }

    fn register(&self, replaces: Option<RunIdentity>) {
        let Some(driver) = self.own.upgrade() else { return };
        self.spawn(async move { driver.controllers.register(&driver, replaces).await });
    }

    fn serve(&self, turn: &mut Turn<'_>, serving: &Serving) {
        let broker = turn.broker;
        tracing::debug!(?serving, "serving changes");
        let is_other = self.gate.set(serving);
        if serving.sends != replication::replica::Sends::Accept {
            let end = broker.store.drain_appends();
            turn.inputs.push_back(ReplicaInput::Drained { end });
        }
        if is_other {
            broker.role_changed();
        }
    }

    /// Keeps what is about to be cut: it was never acknowledged, but somebody may miss it.
    fn save_diverged(
        &self,
        store: &MessageStore,
        epoch: Epoch,
        from: i64,
        to: i64,
    ) -> Result<(), String> {
        let path = self.diverged.join(format!("{epoch}-{from}"));
        copy_log(store, from, to, &path)
            .map_err(|error| format!("cannot save what is cut in {}: {error}", path.display()))?;
        tracing::warn!(
            epoch, from, to, path = %path.display(),
            "the end of the log was never acknowledged and is not in the master's log: it is cut"
        );
        Ok(())
    }
}

fn send(core: &Core, link: Link, out: Out) {
    if let Some(link) = core.links.get(&link) {
        link.send(out);
    }
}

fn append(store: &MessageStore, offset: i64, length: i64, bytes: &Bytes) -> Result<(), String> {
    let length = usize::try_from(length).unwrap_or(0);
    let new = &bytes[bytes.len().saturating_sub(length)..];
    let appended = store.append_replicated(offset, new).map_err(|error| error.to_string())?;
    if appended == new.len() {
        return Ok(());
    }
    Err(format!("the master sent {} bytes of records at {offset}, whole are {appended}", new.len()))
}

/// An empty log takes the begin of any file; another has to be emptied first.
fn refill(store: &MessageStore, from: i64) -> Result<(), String> {
    if store.log_end() == store.log_min_offset() {
        return Ok(());
    }
    Err(format!(
        "the master's log begins at {from}, where this one has something else: empty the store's \
         directory, the replica then gets everything from the master"
    ))
}

fn halted(reason: HaltReason) -> String {
    match reason {
        HaltReason::WouldCutConfirmed { common, confirm } => format!(
            "the master's log agrees with this one up to {common} only, but {confirm} bytes were \
             confirmed: acknowledged messages would be lost by following it"
        ),
        HaltReason::Outdated => "a newer process of this replica has registered".to_owned(),
    }
}

fn copy_log(
    store: &MessageStore,
    from: i64,
    to: i64,
    path: &std::path::Path,
) -> Result<(), Box<dyn std::error::Error>> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut file = std::fs::File::create(path)?;
    let mut at = from;
    while at < to {
        let left = usize::try_from(to - at)?;
        let bytes = store.read_log(at, left.min(COPY_BYTES))?;
        std::io::Write::write_all(&mut file, &bytes)?;
        at += i64::try_from(bytes.len())?;
    }
    file.sync_all()?;
    Ok(())
}

async fn tell_the_time(driver: Arc<ReplicationDriver>, stop: CancellationToken) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        driver.look_at_the_log();
        driver.handle(ReplicaInput::Tick);
    }
}

async fn follow_the_log(driver: Arc<ReplicationDriver>, stop: CancellationToken) {
    while let Some(growth) = driver.growth() {
        let mut grown = pin!(growth.next());
        grown.as_mut().enable();
        driver.handle_with(&Bytes::new(), appended);
        driver.handle_with(&Bytes::new(), flushed);
        if stop.run_until_cancelled(grown).await.is_none() {
            return;
        }
    }
}

fn appended(store: &MessageStore) -> ReplicaInput {
    ReplicaInput::Appended { end: store.log_end() }
}

fn flushed(store: &MessageStore) -> ReplicaInput {
    ReplicaInput::Flushed { end: store.log_flushed() }
}
