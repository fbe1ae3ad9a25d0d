//! The groups that live on an instance, and what answers the requests of brokers for them.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use protocol::command::RemotingCommand;
use protocol::header::HeaderError;
use protocol::header::client::{
    ConsumeMessageDirectlyRequestHeader, ConsumerGroupRequestHeader,
    ConsumerRunningInfoRequestHeader, ConsumerStatusRequestHeader,
};
use protocol::header::offset::ResetOffsetRequestHeader;
use protocol::heartbeat::{ConsumerData, ProducerData};
use protocol::json;
use protocol::message::MessageExt;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use remoting::{Channel, Context, Processor, Response};
use serde::Serialize;
use tokio::sync::Notify;

use crate::push_consumer::Core;

/// The groups of an instance.
#[derive(Default)]
pub(crate) struct Members {
    /// Producers by group.
    producers: Mutex<BTreeMap<String, usize>>,
    consumers: Mutex<BTreeMap<String, Weak<Core>>>,
    pub(crate) heartbeat_due: Notify,
}

impl Members {
    /// Counts a producer in.
    pub(crate) fn add_producer(&self, group: &str) {
        *self.producers.lock().entry(group.to_owned()).or_default() += 1;
        self.heartbeat_due.notify_one();
    }

    /// Counts a producer out. True when it was the last of its group.
    pub(crate) fn remove_producer(&self, group: &str) -> bool {
        let mut producers = self.producers.lock();
        let Some(count) = producers.get_mut(group) else { return false };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            producers.remove(group);
        }
        is_last
    }

    /// Adds a consumer. False when its group is there already.
    pub(crate) fn add_consumer(&self, core: &Arc<Core>) -> bool {
        let mut consumers = self.consumers.lock();
        let group = &core.config.group;
        if consumers.get(group).is_some_and(|other| other.strong_count() > 0) {
            return false;
        }
        consumers.insert(group.clone(), Arc::downgrade(core));
        true
    }

    pub(crate) fn remove_consumer(&self, group: &str) {
        self.consumers.lock().remove(group);
    }

    pub(crate) fn producer_data(&self) -> Vec<ProducerData> {
        let producers = self.producers.lock();
        producers.keys().map(|group| ProducerData { group_name: group.clone() }).collect()
    }

    pub(crate) fn consumer_data(&self) -> Vec<ConsumerData> {
        self.all_consumers().iter().map(|core| core.heartbeat_data()).collect()
    }

    pub(crate) fn rebalance_all(&self) {
        self.all_consumers().iter().for_each(|core| core.rebalance_soon());
    }

    fn all_consumers(&self) -> Vec<Arc<Core>> {
        self.consumers.lock().values().filter_map(Weak::upgrade).collect()
    }

    fn consumer(&self, group: &str) -> Option<Arc<Core>> {
        self.consumers.lock().get(group)?.upgrade()
    }

    /// Does what a broker asks of a consumer.
    async fn answer(&self, request: &RemotingCommand) -> Result<RemotingCommand, Refusal> {
        match request.request_code() {
            RequestCode::NOTIFY_CONSUMER_IDS_CHANGED => {
                let header: ConsumerGroupRequestHeader = request.header()?;
                self.find(&header.consumer_group)?.rebalance_soon();
                Ok(RemotingCommand::success())
            }
            RequestCode::RESET_CONSUMER_CLIENT_OFFSET => {
                let header: ResetOffsetRequestHeader = request.header()?;
                let body = json::from_slice(&request.body)?;
                self.find(&header.group)?.reset_offsets(&header.topic, body).await;
                Ok(RemotingCommand::success())
            }
            RequestCode::GET_CONSUMER_STATUS_FROM_CLIENT => {
                let header: ConsumerStatusRequestHeader = request.header()?;
                let core = self.find(&header.group)?;
                success_with_body(&core.offset_status(&header.topic))
            }
            RequestCode::GET_CONSUMER_RUNNING_INFO => {
                let header: ConsumerRunningInfoRequestHeader = request.header()?;
                let core = self.find(&header.consumer_group)?;
                success_with_body(&core.running_info())
            }
            RequestCode::CONSUME_MESSAGE_DIRECTLY => {
                let header: ConsumeMessageDirectlyRequestHeader = request.header()?;
                let core = self.find(&header.consumer_group)?;
                let message = MessageExt::decode(&request.body, core.config.message_bytes_max)?;
                let broker = header.broker_name.unwrap_or_default();
                success_with_body(&core.consume_directly(message, broker).await)
            }
            _ => Err(Refusal::NotSupported(request.code)),
        }
    }

    fn find(&self, group: &str) -> Result<Arc<Core>, Refusal> {
        self.consumer(group).ok_or_else(|| Refusal::NoConsumer(group.to_owned()))
    }
}

/// Why a request of a broker was not done.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(" request type {0} not supported")]
    NotSupported(i32),
    #[error("The Consumer Group <{0}> not exist in this consumer")]
    NoConsumer(String),
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error(transparent)]
    Json(#[from] json::JsonError),
    #[error(transparent)]
    Message(#[from] protocol::message::MessageError),
}

fn success_with_body<T: Serialize>(body: &T) -> Result<RemotingCommand, Refusal> {
    Ok(RemotingCommand::success().with_body(json::to_vec(body)?))
}

impl Processor for Members {
    async fn process(&self, context: Context, request: RemotingCommand) -> Option<Response> {
        let answer = self.answer(&request).await.unwrap_or_else(|refusal| {
            let broker = context.channel.remote_addr();
            tracing::debug!(%broker, %refusal, "a broker's request was refused");
            let code = match refusal {
                Refusal::NotSupported(_) => ResponseCode::REQUEST_CODE_NOT_SUPPORTED,
                _ => ResponseCode::SYSTEM_ERROR,
            };
            RemotingCommand::error(code, refusal.to_string())
        });
        Some(answer.into())
    }

    /// A broker that restarted knows nobody, so it is told at once.
    fn connected(&self, _: &Channel) {
        self.heartbeat_due.notify_one();
    }
}
