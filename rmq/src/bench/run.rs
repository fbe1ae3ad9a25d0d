//! How a benchmark runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use client::{ClientConfig, ClientInstance, ConsumeFrom, Producer, ProducerConfig};
use parking_lot::Mutex;
use protocol::topic_config::TopicConfig;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use super::ledger::{Acknowledged, Verdict};
use super::pace::Pace;
use super::receive::{Receiver, Wanted};
use super::recorder::Recorder;
use super::report::{Report, Side, cpu_seconds, progress};
use super::send::{Plan, Senders};
use super::stamp::Clock;
use super::{DURATION, Load, MixedLoad, ReceiveLoad, SendLoad, Topics};
use crate::error::RmqError;
use crate::interrupt::interrupted;
use crate::output::{Format, print, render_json};
use crate::session::Session;

/// How often progress is shown.
const PROGRESS: Duration = Duration::from_secs(1);
/// How long a group may take to get its queues.
const QUEUES_WAIT: Duration = Duration::from_secs(30);
/// How long name servers may take to tell of a topic that was made.
const ROUTE_WAIT: Duration = Duration::from_secs(10);
const ROUTE_POLL: Duration = Duration::from_millis(50);
/// Producer group that brokers are told.
const GROUP: &str = "rmq_bench";

/// A measurement under way.
struct Bench<'a> {
    session: &'a Session,
    topics: &'a Topics,
    clock: Clock,
    run: u64,
    received: Arc<Recorder>,
}

/// How the sending side went.
struct Sent {
    seconds: f64,
    cpu_seconds: f64,
    recorder: Arc<Recorder>,
    acknowledged: Vec<Acknowledged>,
}

pub(super) async fn send(session: &Session, args: &SendLoad) -> Result<(), RmqError> {
    args.load.check()?;
    let bench = Bench::start(session, &args.topics).await?;
    let sent = bench.send(&args.load, args.oneway, false).await?;
    let report = bench.report(Some((&sent, &args.load)), sent.seconds, args.load.size as usize);
    finish(session, &report)
}

pub(super) async fn mixed(session: &Session, args: &MixedLoad) -> Result<(), RmqError> {
    args.load.check()?;
    let bench = Bench::start(session, &args.topics).await?;
    let wanted = Wanted {
        topics: args.topics.names(),
        group: format!("{GROUP}_{:016x}", bench.run),
        // What is there already is of no interest.
        from: ConsumeFrom::Last,
        pull_batch: args.receive.pull_batch,
        run: Some(bench.run),
    };
    let receiver = bench.receiver(wanted).await?;
    let sent = bench.send(&args.load, false, true).await;
    let mut sent = match sent {
        Ok(sent) => sent,
        Err(error) => {
            receiver.shutdown().await;
            return Err(error);
        }
    };
    let mut report = bench.report(Some((&sent, &args.load)), sent.seconds, args.load.size as usize);
    for acknowledged in sent.acknowledged.drain(..) {
        receiver.ledger().acknowledge(acknowledged);
    }
    receiver.settle(args.idle).await;
    report.verdict = Some(receiver.ledger().verdict());
    receiver.shutdown().await;
    finish(session, &report)
}

pub(super) async fn consume(session: &Session, args: &ReceiveLoad) -> Result<(), RmqError> {
    let bench = Bench::start(session, &args.topics).await?;
    let new = || format!("{GROUP}_{:016x}", bench.run);
    let wanted = Wanted {
        topics: args.topics.names(),
        group: args.group.clone().unwrap_or_else(new),
        from: ConsumeFrom::First,
        pull_batch: args.receive.pull_batch,
        run: None,
    };
    bench.received.begin();
    let cpu = cpu_seconds();
    let receiver = bench.receiver(wanted).await?;
    let is_warm = AtomicBool::new(true);
    let enough = receiver.wait_for(args.count.unwrap_or(u64::MAX), args.idle);
    tokio::select! {
        () = enough => {}
        () = bench.show_progress(None, &is_warm) => {}
        () = interrupted() => {}
    }
    let mut report = bench.report(None, receiver.seconds(), receiver.body_bytes());
    report.cpu_seconds = cpu_seconds() - cpu;
    report.verdict = args.verify.then(|| receiver.ledger().verdict());
    let came = receiver.ledger().distinct();
    receiver.shutdown().await;
    finish(session, &report)?;
    match args.count.filter(|count| *count > came) {
        Some(expected) => Err(RmqError::TooFew { expected, came }),
        None => Ok(()),
    }
}

fn finish(session: &Session, report: &Report) -> Result<(), RmqError> {
    match session.format {
        Format::Table => print(&report.text())?,
        Format::Json => print(&render_json(report))?,
    }
    match report.verdict.as_ref().filter(|verdict| !Verdict::is_good(verdict)) {
        Some(_) => Err(RmqError::NotIntact),
        None => Ok(()),
    }
}

impl<'a> Bench<'a> {
    async fn start(session: &'a Session, topics: &'a Topics) -> Result<Self, RmqError> {
        let (clock, received) = (Clock::new(), Arc::new(Recorder::new()));
        // Unique enough to tell runs apart, and it orders them.
        let run = u64::try_from(clock.nanos(Instant::now())).unwrap_or(0);
        let bench = Self { session, topics, clock, run, received };
        if let Some(queues) = topics.queues {
            bench.make_topics(queues).await?;
        }
        Ok(bench)
    }

    async fn make_topics(&self, queues: i32) -> Result<(), RmqError> {
        let masters = self.session.masters(None).await?;
        for topic in self.topics.names() {
            let perm = protocol::perm::READ | protocol::perm::WRITE;
            let config = TopicConfig::new(&topic, queues, perm);
            for broker in &masters {
                self.session.admin.create_topic(&broker.addr, &config).await?;
            }
            let deadline = Instant::now() + ROUTE_WAIT;
            let known = async || {
                let route = self.session.admin.route(&topic).await;
                route.is_ok_and(|route| route.queue_datas.len() >= masters.len())
            };
            while !known().await {
                if Instant::now() >= deadline {
                    return Err(RmqError::NoRouteYet { topic });
                }
                tokio::time::sleep(ROUTE_POLL).await;
            }
        }
        Ok(())
    }

    async fn receiver(&self, wanted: Wanted) -> Result<Receiver, RmqError> {
        let mut queues = 0;
        for topic in &wanted.topics {
            // Says so at once when there is no such topic, rather than wait for one.
            queues += self.session.instance.route(topic).await?.read_queues.len();
        }
        let recorder = Arc::clone(&self.received);
        let instance = &self.session.instance;
        let receiver = Receiver::start(instance, wanted, recorder, self.clock).await?;
        if !receiver.wait_for_queues(queues, QUEUES_WAIT).await {
            receiver.shutdown().await;
            return Err(RmqError::NoQueues { queues, limit: QUEUES_WAIT });
        }
        Ok(receiver)
    }

    /// Sends as `load` says; `verify` keeps track of what was stored.
    async fn send(&self, load: &Load, oneway: bool, verify: bool) -> Result<Sent, RmqError> {
        let (instances, producers) = self.producers(load).await?;
        let callers = load.callers();
        let recorder = Arc::new(Recorder::new());
        let requests = load.rate.map(|rate| rate / f64::from(load.batch));
        let senders = Arc::new(Senders {
            plan: Plan {
                topics: self.topics.names(),
                filling: vec![b'.'; load.size as usize].into(),
                batch: load.batch as usize,
                keys: load.keys,
                oneway,
                verify,
            },
            producers,
            recorder: Arc::clone(&recorder),
            clock: self.clock,
            run: self.run,
            pace: requests.map(Pace::start),
            left: AtomicU64::new(load.count.unwrap_or(u64::MAX)),
            stop: AtomicBool::new(false),
            hopeless: Mutex::default(),
            gave_up: Notify::new(),
        });
        let mut tasks: JoinSet<Acknowledged> = JoinSet::new();
        for caller in 0..callers {
            tasks.spawn(Arc::clone(&senders).send(caller, callers));
        }
        let sent = self.measure(load, &senders, &mut tasks).await;
        for producer in &senders.producers {
            producer.shutdown().await;
        }
        for instance in instances {
            instance.shutdown().await;
        }
        if let Some(error) = senders.hopeless.lock().take() {
            return Err(error.into());
        }
        Ok(sent)
    }

    /// Waits for the warm-up and the end, and takes the figures.
    async fn measure(
        &self,
        load: &Load,
        senders: &Senders,
        tasks: &mut JoinSet<Acknowledged>,
    ) -> Sent {
        let is_warm = AtomicBool::new(false);
        let mut acknowledged = Vec::new();
        let (mut began, mut cpu) = (Instant::now(), cpu_seconds());
        let work = async {
            tokio::time::sleep(load.warm_up()).await;
            senders.recorder.begin();
            self.received.begin();
            is_warm.store(true, Ordering::Relaxed);
            (began, cpu) = (Instant::now(), cpu_seconds());
            let all_done = async {
                while let Some(done) = tasks.join_next().await {
                    acknowledged.push(done.expect("sending does not panic"));
                }
            };
            match load.count {
                Some(_) => all_done.await,
                None => {
                    let duration = load.duration.unwrap_or(DURATION);
                    let _ = tokio::time::timeout(duration, all_done).await;
                }
            }
        };
        tokio::select! {
            () = work => {}
            () = self.show_progress(Some(&senders.recorder), &is_warm) => {}
            () = senders.gave_up.notified() => {}
            () = interrupted() => {}
        }
        senders.recorder.end();
        self.received.end();
        let seconds = began.elapsed().as_secs_f64();
        let cpu_seconds = cpu_seconds() - cpu;
        senders.stop.store(true, Ordering::Relaxed);
        // Callers that wait until they are due are of no use any more.
        if let Some(pace) = &senders.pace {
            pace.end();
        }
        while let Some(done) = tasks.join_next().await {
            acknowledged.push(done.expect("sending does not panic"));
        }
        Sent { seconds, cpu_seconds, recorder: Arc::clone(&senders.recorder), acknowledged }
    }

    async fn producers(
        &self,
        load: &Load,
    ) -> Result<(Vec<ClientInstance>, Vec<Producer>), RmqError> {
        let (mut instances, mut producers) = (Vec::new(), Vec::new());
        for number in 0..load.connections {
            let mut config = ProducerConfig::new(GROUP);
            if let Some(timeout) = self.session.timeout {
                (config.send_timeout, config.attempt_timeout) = (timeout, timeout);
            }
            config.retries = load.retries;
            config.in_flight_max = load.callers();
            // What is sent is what was asked for.
            config.compress_over_bytes = usize::MAX;
            if number == 0 {
                producers.push(Producer::start(&self.session.instance, config)?);
                continue;
            }
            let other =
                ClientConfig { instance_name: None, ..self.session.instance.config().clone() };
            let instance = ClientInstance::start(other).await?;
            producers.push(Producer::start(&instance, config)?);
            instances.push(instance);
        }
        Ok((instances, producers))
    }

    /// A line each second; never ends.
    async fn show_progress(&self, send: Option<&Recorder>, is_warm: &AtomicBool) {
        let began = Instant::now();
        let mut ticks = tokio::time::interval_at(began + PROGRESS, PROGRESS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let warm = is_warm.load(Ordering::Relaxed);
            eprintln!("{}", progress(began.elapsed(), warm, send, &self.received));
        }
    }

    fn report(&self, sent: Option<(&Sent, &Load)>, seconds: f64, size: usize) -> Report {
        let received = self.received.whole();
        Report {
            seconds,
            size,
            batch: sent.map_or(1, |(_, load)| load.batch as usize),
            in_flight: sent.map_or(0, |(_, load)| load.callers()),
            rate: sent.and_then(|(_, load)| load.rate),
            send: sent.map(|(sent, _)| Side::new(&sent.recorder.whole(), seconds, size)),
            receive: (received.messages > 0 || sent.is_none())
                .then(|| Side::new(&received, seconds, size)),
            verdict: None,
            cpu_seconds: sent.map_or(0.0, |(sent, _)| sent.cpu_seconds),
            errors: sent.map(|(sent, _)| sent.recorder.errors()).unwrap_or_default(),
        }
    }
}
