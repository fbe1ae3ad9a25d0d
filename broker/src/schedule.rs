//! Delayed messages: each level is a queue of `SCHEDULE_TOPIC_XXXX`, delivered in order by a task
//! that sleeps until the next message is due. `config/delayOffset.json` keeps how far each is.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::data_version::DataVersion;
use protocol::message::Message;
use protocol::message_codec::{self, RecordError, RecordView};
use protocol::{property, topic_name};
use serde::{Deserialize, Serialize};
use store::delay_level::DelayLevels;
use store::{AllMessages, GetRequest, GetStatus, PutError, PutFuture, ReadError};
use thiserror::Error;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::broker::Broker;
use crate::clock::now_ms;
use crate::json_file::{JsonFile, LoadTableError, SaveError};

/// Messages that are delivered together.
const DELIVERIES: usize = 32;
/// Bytes of messages that are read together.
const DELIVERY_BYTES: usize = 1 << 20;
/// Longest sleep, so that a step of the wall clock is noticed.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// Pause after the store refused a message.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// `delayOffset.json`, and the answer to `GET_ALL_DELAY_OFFSET`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DelayOffsetTable {
    data_version: DataVersion,
    /// Offset of the next message by level.
    offset_table: BTreeMap<i32, i64>,
}

#[derive(Default)]
struct State {
    table: DelayOffsetTable,
    is_dirty: bool,
}

/// Why a message is not delivered and never will be.
#[derive(Debug, Error)]
enum BadMessage {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("it has no REAL_TOPIC and REAL_QID")]
    NoDestination,
}

/// Why messages are not delivered now.
#[derive(Debug, Error)]
enum DeliverError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Put(#[from] PutError),
}

/// What is next for a level.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// To look again at once.
    Again,
    /// To wait for a message.
    Arrival,
    /// To wait until the first message is due.
    Due(Duration),
}

/// See the module.
pub(crate) struct Schedule {
    file: JsonFile,
    levels: DelayLevels,
    state: Mutex<State>,
    arrivals: Arc<Arrivals>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Tells the levels of messages that came.
pub(crate) struct Arrivals(Vec<Notify>);

impl Arrivals {
    pub(crate) fn arrived(&self, queue_id: i32) {
        let level = usize::try_from(queue_id).ok().and_then(|queue| self.0.get(queue));
        if let Some(level) = level {
            level.notify_one();
        }
    }
}

impl Schedule {
    pub(crate) fn load(root: &Path, levels: DelayLevels) -> Result<Self, LoadTableError> {
        let file = JsonFile::new(root, "delayOffset.json");
        let table = file.load()?;
        let count = usize::try_from(levels.max_level()).unwrap_or_default();
        Ok(Self {
            file,
            levels,
            state: Mutex::new(State { table, is_dirty: false }),
            arrivals: Arc::new(Arrivals((0..count).map(|_| Notify::new()).collect())),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        })
    }

    pub(crate) fn levels(&self) -> &DelayLevels {
        &self.levels
    }

    pub(crate) fn arrivals(&self) -> Arc<Arrivals> {
        Arc::clone(&self.arrivals)
    }

    pub(crate) fn table(&self) -> DelayOffsetTable {
        self.state.lock().table.clone()
    }

    /// Offsets of the next messages by level.
    pub(crate) fn offsets(&self) -> BTreeMap<i32, i64> {
        self.state.lock().table.offset_table.clone()
    }

    /// Blocks until the offsets are on the disk, if they changed since they were last there.
    pub(crate) fn save_if_changed(&self) -> Result<(), SaveError> {
        if !std::mem::take(&mut self.state.lock().is_dirty) {
            return Ok(());
        }
        let saved = self.file.save(|| self.table());
        if saved.is_err() {
            self.state.lock().is_dirty = true;
        }
        saved
    }

    /// Takes over the offsets of the master.
    pub(crate) fn replace(&self, table: DelayOffsetTable) {
        let mut state = self.state.lock();
        state.is_dirty |= state.table != table;
        state.table = table;
    }

    /// Starts to deliver.
    pub(crate) fn start(&self, broker: &Arc<Broker>) {
        for level in 1..=self.levels.max_level() {
            let level = Level { broker: Arc::clone(broker), level };
            self.tasks.spawn(level.run(self.stop.clone()));
        }
    }

    /// Ends delivering; what is being delivered is finished.
    pub(crate) async fn shutdown(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn offset(&self, level: i32) -> i64 {
        self.state.lock().table.offset_table.get(&level).copied().unwrap_or_default()
    }

    fn set_offset(&self, level: i32, offset: i64) {
        let mut state = self.state.lock();
        state.table.offset_table.insert(level, offset);
        state.table.data_version = state.table.data_version.next(now_ms());
        state.is_dirty = true;
    }
}

struct Level {
    broker: Arc<Broker>,
    level: i32,
}

impl Level {
    async fn run(self, stop: CancellationToken) {
        let index = usize::try_from(self.level - 1).unwrap_or_default();
        let Some(arrival) = self.broker.schedule.arrivals.0.get(index) else { return };
        let mut roles = self.broker.role.subscribe();
        loop {
            roles.borrow_and_update();
            if !self.broker.role.is_master() {
                tokio::select! {
                    () = stop.cancelled() => return,
                    _ = roles.changed() => continue,
                }
            }
            let pause = match self.step().await {
                Ok(Next::Again) if stop.is_cancelled() => return,
                Ok(Next::Again) => continue,
                Ok(Next::Arrival) => None,
                Ok(Next::Due(pause)) => Some(pause.min(SLEEP_MAX)),
                Err(error) => {
                    tracing::warn!(level = self.level, %error, "delayed messages wait");
                    Some(RETRY_PAUSE)
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = arrival.notified(), if pause.is_none() => {}
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
        }
    }

    /// Delivers what is due at the head of the queue.
    async fn step(&self) -> Result<Next, DeliverError> {
        let schedule = &self.broker.schedule;
        let offset = schedule.offset(self.level);
        let request = GetRequest {
            topic: topic_name::SCHEDULE_TOPIC,
            queue_id: self.level - 1,
            offset,
            max_messages: DELIVERIES,
            max_bytes: DELIVERY_BYTES,
        };
        let result = self.broker.store.get(&request, &AllMessages)?;
        match result.status {
            GetStatus::Found => {
                let records: Vec<Bytes> = result.records().collect();
                return self.deliver(offset, &records).await;
            }
            GetStatus::NoMatchedLogicQueue
            | GetStatus::NoMessageInQueue
            | GetStatus::OffsetOverflowOne => return Ok(Next::Arrival),
            GetStatus::OffsetTooSmall | GetStatus::OffsetOverflowBadly => tracing::warn!(
                level = self.level,
                offset,
                min = result.min_offset,
                max = result.max_offset,
                "the next delayed message is not there, going on at the nearest one"
            ),
            GetStatus::NoMatchedMessage
            | GetStatus::MessageWasRemoving
            | GetStatus::OffsetFoundNull => {}
        }
        if result.next_begin_offset == offset {
            return Ok(Next::Arrival);
        }
        schedule.set_offset(self.level, result.next_begin_offset);
        Ok(Next::Again)
    }

    /// Delivers the records that are due, which begin at `offset` of the queue.
    async fn deliver(&self, offset: i64, records: &[Bytes]) -> Result<Next, DeliverError> {
        let schedule = &self.broker.schedule;
        let now = now_ms();
        let delay = schedule.levels.delay_ms(self.level).unwrap_or_default();
        let mut puts: Vec<(i64, Option<PutFuture>)> = Vec::with_capacity(records.len());
        let mut first_not_due = None;
        for (at, record) in (offset..).zip(records) {
            match self.put_if_due(record, now, delay) {
                Ok(Ok(put)) => puts.push((at, Some(put))),
                Ok(Err(wait)) => {
                    first_not_due = Some(wait);
                    break;
                }
                Err(error) => {
                    tracing::error!(level = self.level, offset = at, %error, "message is dropped");
                    puts.push((at, None));
                }
            }
        }
        for (at, put) in puts {
            if let Some(put) = put {
                put.await?;
            }
            schedule.set_offset(self.level, at + 1);
        }
        Ok(first_not_due.map_or(Next::Again, Next::Due))
    }

    /// Puts the message of a record where it is meant to go, or says how long that has to wait.
    fn put_if_due(
        &self,
        record: &[u8],
        now: i64,
        delay: i64,
    ) -> Result<Result<PutFuture, Duration>, BadMessage> {
        let view = message_codec::decode_record(record)?;
        // A clock that was set back must not hold messages longer than their delay.
        let wait = view.store_timestamp.saturating_add(delay).saturating_sub(now).min(delay);
        if let Ok(wait @ 1..) = u64::try_from(wait) {
            return Ok(Err(Duration::from_millis(wait)));
        }
        Ok(Ok(self.put(&view)?))
    }

    fn put(&self, view: &RecordView<'_>) -> Result<PutFuture, BadMessage> {
        let topic = view.property(property::REAL_TOPIC).ok_or(BadMessage::NoDestination)?;
        let queue_id = view.property(property::REAL_QUEUE_ID).and_then(|id| id.parse().ok());
        let queue_id = queue_id.ok_or(BadMessage::NoDestination)?;
        let internal = [property::DELAY, property::TIMER_DELIVER_MS, property::TIMER_DELAY_SEC];
        let kept =
            property::entries(view.properties()).filter(|(name, _)| !internal.contains(name));
        let properties = property::encode(kept);
        let message = Message {
            topic,
            queue_id,
            flag: view.flag,
            sys_flag: view.sys_flag,
            born_timestamp: view.born_timestamp,
            born_host: view.born_host()?,
            store_host: self.broker.identity.store_host,
            reconsume_times: view.reconsume_times,
            prepared_transaction_offset: view.prepared_transaction_offset,
            body: view.body,
            properties: &properties,
        };
        Ok(self.broker.put(&message))
    }
}
