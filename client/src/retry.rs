//! Messages that a listener failed at: back to the broker, which delivers them later.

use protocol::command::RemotingCommand;
use protocol::header::send::ConsumerSendMsgBackRequestHeader;
use protocol::message::MessageExt;
use protocol::property;
use protocol::request_code::RequestCode;
use protocol::topic_name::retry_topic;

use crate::producer::RetryMessage;
use crate::push_consumer::Core;
use crate::{ClientError, SendError};

/// Delay levels of retries begin with this one, 10 s.
const FIRST_DELAY_LEVEL: i32 = 3;
/// Deliveries before a message goes to the dead letters, unless set otherwise.
const MAX_RECONSUME_TIMES: i32 = 16;

impl Core {
    /// Deliveries before a message goes to the dead letters. The order of a queue waits for its
    /// messages without end, unless set otherwise.
    pub(crate) fn max_reconsume_times(&self) -> i32 {
        let default = if self.listener.is_orderly() { i32::MAX } else { MAX_RECONSUME_TIMES };
        self.config.max_reconsume_times.unwrap_or(default)
    }

    /// Sends a message back to the broker that stored it. If that fails, sends a copy to the retry
    /// topic by way of any broker.
    pub(crate) async fn send_back(
        &self,
        message: &MessageExt,
        broker_name: &str,
        delay_level: i32,
    ) -> Result<(), SendError> {
        let error = match self.send_back_in_place(message, broker_name, delay_level).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        tracing::warn!(group = self.config.group, %error, "a message is sent back by a detour");
        self.send_copy(message, delay_level).await
    }

    async fn send_back_in_place(
        &self,
        message: &MessageExt,
        broker_name: &str,
        delay_level: i32,
    ) -> Result<(), ClientError> {
        let header = ConsumerSendMsgBackRequestHeader {
            offset: message.commit_log_offset,
            group: self.config.group.clone(),
            delay_level,
            origin_msg_id: Some(message.msg_id()),
            origin_topic: Some(message.topic.clone()),
            unit_mode: false,
            max_reconsume_times: Some(self.max_reconsume_times()),
        };
        let request = RemotingCommand::request(RequestCode::CONSUMER_SEND_MSG_BACK, &header);
        // The master has the message; where it is not known, the one that gave it to us may.
        let master = self.instance.routes().master(broker_name);
        let addr = master.unwrap_or_else(|| message.store_host.to_string());
        self.instance.call(&addr, request).await.map(drop)
    }

    /// Sends a copy to the retry topic, where the broker turns it into a dead letter if its time
    /// has come.
    pub(crate) async fn send_copy(
        &self,
        message: &MessageExt,
        delay_level: i32,
    ) -> Result<(), SendError> {
        let max_reconsume_times = self.max_reconsume_times();
        // No way to say "dead letter" but to have been consumed too often.
        let reconsume_times = match delay_level {
            ..0 => max_reconsume_times.saturating_add(1),
            _ => message.reconsume_times.saturating_add(1),
        };
        let delay_level = match delay_level {
            1.. => delay_level,
            _ => FIRST_DELAY_LEVEL.saturating_add(message.reconsume_times).min(18),
        };
        let mut properties = message.properties.clone();
        let mut set = |name: &str, value: String| properties.insert(name.to_owned(), value);
        set(property::DELAY, delay_level.to_string());
        set(property::RETRY_TOPIC, message.topic.clone());
        let origin = message.properties.get(property::ORIGIN_MESSAGE_ID).cloned();
        let msg_id = message.msg_id();
        set(property::ORIGIN_MESSAGE_ID, origin.unwrap_or_else(|| msg_id.clone()));
        properties.remove(property::TRANSACTION_PREPARED);
        let properties = properties.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let copy = RetryMessage {
            topic: &retry_topic(&self.config.group),
            body: &message.body,
            properties: property::encode(properties),
            flag: message.flag,
            msg_id: &msg_id,
            reconsume_times,
            max_reconsume_times,
        };
        self.producer.send_to_retry_topic(copy).await.map(drop)
    }
}
