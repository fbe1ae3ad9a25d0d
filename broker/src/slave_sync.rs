//! What a slave copies from its master beside the log: topics, groups, offsets of consumers and of
//! delayed messages. Again and again, since no master tells of changes, and topics and groups at
//! once when a message of an unknown topic comes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use protocol::body::{ConsumerOffsetTable, KvTable, SubscriptionGroupWrapper, TopicConfigTable};
use protocol::command::RemotingCommand;
use protocol::header::group::GetAllSubscriptionGroupResponseHeader;
use protocol::header::topic::GetAllTopicConfigResponseHeader;
use protocol::json::{self, JsonError};
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use protocol::topic_name;
use remoting::{Limits, NoRequests, RemotingClient, RemotingError, RemotingMetrics};
use serde::de::DeserializeOwned;
use store::{DispatchRequest, Dispatcher, Records};
use thiserror::Error;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior};

use crate::broker::Broker;
use crate::json_file::SaveError;
use crate::refusal::Refusal;
use crate::schedule::DelayOffsetTable;

/// How often offsets are copied.
const OFFSETS_INTERVAL: Duration = Duration::from_secs(3);
/// How often all is copied by who may be elected: what was not is not there after a failover.
const ELECTED_INTERVAL: Duration = Duration::from_secs(1);
/// How often topics and groups are copied.
const TABLES_INTERVAL: Duration = Duration::from_secs(10);
/// Time for the master to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A topic that stays unknown does not make this slave ask all the time.
const TABLES_PAUSE_MIN: Duration = Duration::from_secs(1);
/// Topics that come together are asked for together.
const UNKNOWN_TOPIC_PAUSE: Duration = Duration::from_millis(200);

/// Why something was not copied.
#[derive(Debug, Error)]
enum SyncError {
    #[error(transparent)]
    Remoting(#[from] RemotingError),
    #[error(transparent)]
    Json(#[from] JsonError),
    #[error("it answers {code}: {remark}")]
    Refused { code: ResponseCode, remark: String },
    #[error("it answers with {found} of {total} entries")]
    Incomplete { found: usize, total: i32 },
    #[error("its log ends at {master_end}, this one at {end}: it must have lost its store")]
    ShortLog { master_end: i64, end: i64 },
    #[error("it is not the master any more")]
    NotMaster,
    #[error("{0}")]
    Save(String),
}

impl From<Refusal> for SyncError {
    fn from(refusal: Refusal) -> Self {
        Self::Save(refusal.remark)
    }
}

/// Notices what comes in the log: changes of topics, and topics before the table has them.
struct UnknownTopics {
    broker: Weak<Broker>,
    notice: Arc<Notify>,
    /// Told of changes in the log.
    changes: Arc<Notify>,
}

impl Dispatcher for UnknownTopics {
    fn dispatch(&self, requests: &[DispatchRequest], _: &Records) {
        let Some(broker) = self.broker.upgrade() else { return };
        let mut known = "";
        for request in requests.iter().filter(|request| request.is_in_queue()) {
            if request.topic() == known {
                continue;
            }
            if request.topic() == topic_name::METADATA_TOPIC {
                self.changes.notify_one();
            } else if broker.topics.get(request.topic()).is_none() {
                return self.notice.notify_one();
            }
            known = request.topic();
        }
    }
}

/// Copies until it is dropped.
pub(crate) async fn run(broker: Arc<Broker>) {
    let (notice, changes) = (Arc::clone(&broker.ha.unknown_topic), Arc::<Notify>::default());
    broker.store.add_dispatcher(Arc::new(UnknownTopics {
        broker: Arc::downgrade(&broker),
        notice: Arc::clone(&notice),
        changes: Arc::clone(&changes),
    }));
    if broker.replication.is_some() {
        tokio::join!(copy_tables(broker.clone(), notice), follow_changes(broker, changes));
    } else {
        copy_tables(broker, notice).await;
    }
}

/// Takes changes over from the log as they come.
async fn follow_changes(broker: Arc<Broker>, changes: Arc<Notify>) {
    loop {
        let take = |broker: &Broker| {
            let is_new = !broker.role.is_master() && broker.metadata_log.catch_up(broker);
            if is_new {
                broker.topics.save()?;
                broker.groups.save()?;
            }
            Ok::<_, SaveError>(is_new)
        };
        match broker.blocking(take).await {
            Ok(true) => broker.name_servers.register(None, Duration::ZERO).await,
            Ok(false) => {}
            Err(error) => tracing::error!(error = error.remark, "a table cannot be saved"),
        }
        changes.notified().await;
    }
}

async fn copy_tables(broker: Arc<Broker>, notice: Arc<Notify>) {
    let client =
        RemotingClient::new(Limits::default(), Arc::new(NoRequests), RemotingMetrics::default());
    let mut sync = Sync { broker: Arc::clone(&broker), client, last_error: String::new() };
    let mut master = broker.ha.master();
    let is_elected = broker.replication.is_some();
    let interval = if is_elected { ELECTED_INTERVAL } else { OFFSETS_INTERVAL };
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut tables_due = Instant::now();
    let mut tables_earliest = tables_due;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = notice.notified() => {
                let soon = Instant::now() + UNKNOWN_TOPIC_PAUSE;
                tokio::time::sleep_until(soon.max(tables_earliest)).await;
                tables_due = Instant::now();
            }
            changed = master.changed() => {
                if changed.is_err() {
                    return;
                }
                tables_due = Instant::now();
            }
        }
        let address = master.borrow_and_update().address.clone();
        if address.is_empty() {
            continue;
        }
        let with_tables = tables_due <= Instant::now();
        if with_tables {
            tables_due = Instant::now() + if is_elected { interval } else { TABLES_INTERVAL };
            tables_earliest = Instant::now() + TABLES_PAUSE_MIN;
        }
        let outcome = sync.copy(&address, with_tables).await;
        sync.say(&address, outcome);
    }
}

struct Sync {
    broker: Arc<Broker>,
    client: RemotingClient<NoRequests>,
    last_error: String,
}

impl Sync {
    async fn copy(&self, master: &str, with_tables: bool) -> Result<(), SyncError> {
        if with_tables {
            self.check_log(master).await?;
            self.topics(master).await?;
            self.groups(master).await?;
        }
        let (offsets, _): (ConsumerOffsetTable, _) =
            self.ask(master, RequestCode::GET_ALL_CONSUMER_OFFSET).await?;
        self.check_master(master)?;
        self.broker.offsets.merge(offsets);
        let (delayed, _): (DelayOffsetTable, _) =
            self.ask(master, RequestCode::GET_ALL_DELAY_OFFSET).await?;
        self.check_master(master)?;
        self.broker.schedule.replace(delayed);
        Ok(())
    }

    /// What somebody says who is not the master any more must not replace what the master knows,
    /// who may be this broker by now.
    fn check_master(&self, asked: &str) -> Result<(), SyncError> {
        if self.broker.ha.is_slave() && self.broker.ha.master().borrow().address == asked {
            return Ok(());
        }
        Err(SyncError::NotMaster)
    }

    fn say(&mut self, master: &str, outcome: Result<(), SyncError>) {
        let text = outcome.err().map(|error| error.to_string()).unwrap_or_default();
        if text == self.last_error {
            return;
        }
        if text.is_empty() {
            tracing::info!(master, "topics, groups and offsets are copied from the master");
        } else {
            tracing::warn!(master, error = text, "cannot copy from the master, trying again");
        }
        self.last_error = text;
    }

    /// A master that has lost its log has lost its topics, too: its slave is then the only copy.
    async fn check_log(&self, master: &str) -> Result<(), SyncError> {
        let end = self.broker.store.log_end();
        let (figures, _): (KvTable, _) =
            self.ask(master, RequestCode::GET_BROKER_RUNTIME_INFO).await?;
        let theirs = figures.table.get("commitLogMaxOffset").and_then(|end| end.parse().ok());
        let master_end: i64 = theirs.unwrap_or_default();
        self.broker.ha.following.set_master_end(master_end);
        if master_end < end {
            return Err(SyncError::ShortLog { master_end, end });
        }
        Ok(())
    }

    async fn topics(&self, master: &str) -> Result<(), SyncError> {
        let (table, answer): (TopicConfigTable, _) =
            self.ask(master, RequestCode::GET_ALL_TOPIC_CONFIG).await?;
        let total = answer.header::<GetAllTopicConfigResponseHeader>();
        let total = total.ok().and_then(|header| header.total_topic_num);
        check_complete(table.topic_config_table.len(), total)?;
        self.check_master(master)?;
        if !self.broker.topics.replace(table) {
            return Ok(());
        }
        self.broker.blocking(|broker| broker.topics.save()).await?;
        self.broker.name_servers.register(None, Duration::ZERO).await;
        Ok(())
    }

    async fn groups(&self, master: &str) -> Result<(), SyncError> {
        let (table, answer): (SubscriptionGroupWrapper, _) =
            self.ask(master, RequestCode::GET_ALL_SUBSCRIPTIONGROUP_CONFIG).await?;
        let total = answer.header::<GetAllSubscriptionGroupResponseHeader>();
        let total = total.ok().and_then(|header| header.total_group_num);
        check_complete(table.subscription_group_table.len(), total)?;
        self.check_master(master)?;
        if self.broker.groups.replace(table) {
            self.broker.blocking(|broker| broker.groups.save()).await?;
        }
        Ok(())
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        master: &str,
        code: RequestCode,
    ) -> Result<(T, RemotingCommand), SyncError> {
        let request = RemotingCommand::request_without_header(code);
        let answer = self.client.invoke(master, request, TIMEOUT).await?;
        if answer.response_code() != ResponseCode::SUCCESS {
            let remark = answer.remark.clone().unwrap_or_default();
            return Err(SyncError::Refused { code: answer.response_code(), remark });
        }
        Ok((json::from_slice(&answer.body)?, answer))
    }
}

/// What is missing in an answer must not be taken for deleted.
fn check_complete(found: usize, total: Option<i32>) -> Result<(), SyncError> {
    match total {
        Some(total) if usize::try_from(total).is_ok_and(|total| found < total) => {
            Err(SyncError::Incomplete { found, total })
        }
        _ => Ok(()),
    }
}
