//! A name server, a broker, a load and a consumer group, and the check of what they leave behind.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use client::{Admin, ClientConfig, ClientInstance, PushConsumer};
use e2e::consumption::Consumption;
use e2e::ledger::Check;
use e2e::load::{Load, LoadConfig};
use e2e::process::wait_until;
use e2e::queue_reader::QueueReader;
use e2e::server::Server;
use protocol::body::ConsumerOffsetTable;
use protocol::topic_config::TopicConfig;
use tokio::runtime::Runtime;

pub(crate) const TOPIC: &str = "orders";
pub(crate) const GROUP: &str = "accounting";
pub(crate) const QUEUES: i32 = 4;
/// Time for a server to be ready, on a machine that does other things too.
pub(crate) const READY: Duration = Duration::from_secs(30);
/// Time for clients to send again after a fault.
const ACKED: Duration = Duration::from_secs(30);
/// Time for the group to have everything at the end.
const CONSUMED: Duration = Duration::from_secs(60);
const SEND_TIMEOUT: Duration = Duration::from_millis(1_500);

/// See the module.
pub(crate) struct Bed {
    pub(crate) runtime: Runtime,
    _directory: tempfile::TempDir,
    pub(crate) store: PathBuf,
    pub(crate) namesrv: Server,
    pub(crate) broker: Server,
}

/// The clients of a bed.
pub(crate) struct Clients {
    pub(crate) instance: ClientInstance,
    pub(crate) load: Load,
    pub(crate) consumption: Consumption,
    pub(crate) consumer: PushConsumer,
    pub(crate) reader: QueueReader,
    /// What was read so far.
    pub(crate) check: Check,
}

impl Bed {
    /// A name server that runs, and a broker that does not yet; `store` is its directory if it is
    /// not to be in the bed's own.
    pub(crate) fn make(store: Option<&Path>) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let directory = tempfile::tempdir()?;
        let store = store.map_or_else(|| directory.path().join("store"), Path::to_owned);
        let mut namesrv = Server::namesrv(directory.path())?;
        namesrv.start(READY)?;
        let mut broker = Server::broker(directory.path(), &store, namesrv.address())?;
        broker.set("mappedFileSizeCommitLog", &(16 << 20));
        broker.set("mappedFileSizeConsumeQueue", &(20 * 20_000));
        broker.set("flushConsumerOffsetInterval", &200);
        // The test's file systems are small and full on purpose.
        broker.set("cleanFileForciblyEnable", &false);
        broker.set("diskSpaceWarningLevelRatio", &98);
        for memory in ["InMemory", "InDisk"] {
            broker.set(&format!("maxTransferCountOnMessage{memory}"), &1_000);
            broker.set(&format!("maxTransferBytesOnMessage{memory}"), &(1 << 20));
        }
        Ok(Self { runtime, _directory: directory, store, namesrv, broker })
    }

    /// Makes the topic and starts the clients; the broker must be ready. `name_server` is what the
    /// clients are told.
    pub(crate) fn clients(&self, name_server: &str, rate: u32) -> Result<Clients> {
        self.runtime.block_on(async {
            let mut config = ClientConfig::new(name_server);
            config.heartbeat_interval = Duration::from_secs(1);
            config.route_refresh_interval = Duration::from_secs(1);
            let instance = ClientInstance::start(config).await?;
            let topic = TopicConfig {
                topic_name: TOPIC.to_owned(),
                read_queue_nums: QUEUES,
                write_queue_nums: QUEUES,
                ..TopicConfig::default()
            };
            Admin::new(&instance).create_topic(self.broker.address(), &topic).await?;
            let topic = TOPIC.to_owned();
            let config = LoadConfig { topic, rate, streams: 48, send_timeout: SEND_TIMEOUT };
            let consumption = Consumption::default();
            Ok(Clients {
                load: Load::start(&instance, config)?,
                consumer: consumption.start(&instance, GROUP, TOPIC).await?,
                consumption,
                reader: QueueReader::new(self.broker.address()),
                check: Check::default(),
                instance,
            })
        })
    }

    /// The offsets of the group that are in the broker's file, or its backup; the broker must not
    /// run.
    pub(crate) fn offsets_on_disk(&self) -> Result<Vec<Option<i64>>> {
        let file = self.store.join("config/consumerOffset.json");
        let read = |path: &Path| {
            let table: ConsumerOffsetTable = protocol::json::from_slice(&std::fs::read(path)?)?;
            let queues = table.offset_table.get(&format!("{TOPIC}@{GROUP}")).cloned();
            let queues = queues.unwrap_or_default();
            anyhow::Ok((0..QUEUES).map(|queue| queues.get(&queue).copied()).collect())
        };
        match read(&file).or_else(|_| read(&file.with_extension("json.bak"))) {
            Ok(offsets) => Ok(offsets),
            Err(_) if !file.exists() => Ok(vec![None; QUEUES as usize]),
            Err(error) => Err(error.context("neither consumerOffset.json nor .bak can be read")),
        }
    }

    /// Fails with the broker's last words.
    pub(crate) fn fail(&self, what: &str) -> anyhow::Error {
        anyhow::anyhow!("{what}\n--- the broker's last words:\n{}", self.broker.log_tail())
    }
}

impl Clients {
    /// Reads on in the log and compares it with what was acknowledged; the load must be closed and
    /// the broker ready.
    pub(crate) async fn verify(&mut self) -> Result<()> {
        let ledger = self.load.ledger().clone();
        read_on(&self.reader, &ledger, &mut self.check).await
    }

    /// Reads the whole log anew.
    pub(crate) async fn verify_all(&mut self) -> Result<()> {
        self.check = Check::default();
        self.verify().await
    }

    /// The offsets of the group are not below `least`, and nothing is skipped that was not
    /// delivered.
    pub(crate) async fn verify_offsets(&self, least: &[Option<i64>]) -> Result<Vec<Option<i64>>> {
        let mut offsets = Vec::new();
        for (queue, least) in (0..QUEUES).zip(least) {
            let offset = self.reader.committed(GROUP, TOPIC, queue).await?;
            let delivered = self.consumption.delivered_to(queue);
            let end = self.reader.max_offset(TOPIC, queue).await?;
            ensure!(
                offset >= *least,
                "the group is at {offset:?} of queue {queue}, but was at {least:?} on the disk"
            );
            ensure!(
                offset.unwrap_or(0) <= delivered.min(end),
                "the group is at {offset:?} of queue {queue}, but was given what is below \
                 {delivered} and the queue ends at {end}"
            );
            offsets.push(offset);
        }
        Ok(offsets)
    }

    /// Waits until so many more messages are acknowledged; returns how long that took.
    pub(crate) fn await_acked(&self, more: usize) -> Result<Duration> {
        let acked = self.load.acked();
        let outcome =
            wait_until(
                "messages are acknowledged",
                ACKED,
                || Ok(self.load.acked() >= acked + more),
            );
        outcome.with_context(|| format!("the last refusal: {:?}", self.load.take_error()))
    }

    /// Waits until the group was given everything.
    pub(crate) fn await_consumed(&self, bed: &Bed) -> Result<Duration> {
        wait_until("everything is consumed", CONSUMED, || {
            bed.runtime.block_on(async {
                for queue in 0..QUEUES {
                    let end = self.reader.max_offset(TOPIC, queue).await?;
                    let delivered = self.consumption.delivered_to(queue);
                    ensure!(delivered == end, "queue {queue}: {delivered} of {end}");
                }
                Ok(true)
            })
        })
    }

    /// Ends the clients in order.
    pub(crate) async fn end(self) -> Result<()> {
        self.load.end().await?;
        self.consumer.shutdown().await;
        self.instance.shutdown().await;
        self.reader.end().await;
        let wrong = self.consumption.wrong();
        ensure!(wrong.count == 0, "{} wrong deliveries: {:#?}", wrong.count, wrong.words);
        Ok(())
    }
}

async fn read_on(
    reader: &QueueReader,
    ledger: &e2e::ledger::Ledger,
    check: &mut Check,
) -> Result<()> {
    for queue in 0..QUEUES {
        let read = reader.read_on(TOPIC, queue, ledger, check).await;
        read.with_context(|| format!("reading queue {queue}"))?;
    }
    match check.wrong(ledger) {
        (0, _) => Ok(()),
        (count, words) => bail!("{count} faults: {words:#?}"),
    }
}
