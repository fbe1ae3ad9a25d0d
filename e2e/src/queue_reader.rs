//! Reads queues and offsets straight from a broker, past the consumers whose work is checked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use protocol::command::RemotingCommand;
use protocol::header::Header;
use protocol::header::offset::{
    OffsetResponseHeader, QueryConsumerOffsetRequestHeader, QueueOffsetRequestHeader,
};
use protocol::header::pull::{PullMessageRequestHeader, PullMessageResponseHeader, pull_sys_flag};
use protocol::message::MessageExt;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use remoting::{Limits, NoRequests, RemotingClient, RemotingMetrics};

use crate::ledger::{Check, Ledger};

const TIMEOUT: Duration = Duration::from_secs(10);
/// Time for what is acknowledged to be readable.
const READABLE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(10);
const BODY_BYTES_MAX: usize = 16 << 20;
/// Messages that one pull asks for.
const PULL_MESSAGES: i32 = 1_000;
/// The group in whose name is read.
const GROUP: &str = "reader";

/// See the module.
pub struct QueueReader {
    remoting: RemotingClient<NoRequests>,
    address: String,
}

impl QueueReader {
    /// A reader at this broker; it connects with the first question.
    pub fn new(address: &str) -> Self {
        let metrics = RemotingMetrics::default();
        let remoting = RemotingClient::new(Limits::default(), Arc::new(NoRequests), metrics);
        Self { remoting, address: address.to_owned() }
    }

    /// Ends its connection.
    pub async fn end(self) {
        self.remoting.shutdown().await;
    }

    async fn ask(&self, code: RequestCode, header: &impl Header) -> Result<RemotingCommand> {
        let request = RemotingCommand::request(code, header);
        Ok(self.remoting.invoke(&self.address, request, TIMEOUT).await?)
    }

    /// The end of a queue.
    pub async fn max_offset(&self, topic: &str, queue_id: i32) -> Result<i64> {
        let header = QueueOffsetRequestHeader {
            topic: topic.to_owned(),
            queue_id,
            committed: true,
            broker_name: None,
        };
        let response = self.ask(RequestCode::GET_MAX_OFFSET, &header).await?;
        ensure!(response.response_code() == ResponseCode::SUCCESS, "{response:?}");
        Ok(response.header::<OffsetResponseHeader>()?.offset)
    }

    /// The offset that a group has in a queue, if it has one.
    pub async fn committed(&self, group: &str, topic: &str, queue_id: i32) -> Result<Option<i64>> {
        let header = QueryConsumerOffsetRequestHeader {
            consumer_group: group.to_owned(),
            topic: topic.to_owned(),
            queue_id,
            set_zero_if_not_found: Some(false),
            broker_name: None,
        };
        let response = self.ask(RequestCode::QUERY_CONSUMER_OFFSET, &header).await?;
        match response.response_code() {
            ResponseCode::SUCCESS => Ok(Some(response.header::<OffsetResponseHeader>()?.offset)),
            ResponseCode::QUERY_NOT_FOUND => Ok(None),
            _ => bail!("{response:?}"),
        }
    }

    /// Reads on in a queue from where `check` is to its end.
    pub async fn read_on(
        &self,
        topic: &str,
        queue_id: i32,
        ledger: &Ledger,
        check: &mut Check,
    ) -> Result<()> {
        let end = self.readable_end(topic, queue_id, ledger.acked_end(queue_id)).await?;
        while check.next_offset(queue_id) < end {
            let from = check.next_offset(queue_id);
            let messages = self.pull(topic, queue_id, from).await;
            let messages = messages.with_context(|| format!("reading {queue_id}/{from}"))?;
            ensure!(!messages.is_empty(), "{queue_id}/{from} cannot be read, the end is {end}");
            for message in messages {
                check.message(ledger, queue_id, message.queue_offset, &message.body);
            }
        }
        check.end(ledger, queue_id);
        Ok(())
    }

    /// The end of a queue, once it is at `least` or some time has passed: a message is acknowledged
    /// a moment before it can be read.
    async fn readable_end(&self, topic: &str, queue_id: i32, least: i64) -> Result<i64> {
        let began = Instant::now();
        loop {
            let end = self.max_offset(topic, queue_id).await?;
            if end >= least || began.elapsed() > READABLE {
                return Ok(end);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn pull(&self, topic: &str, queue_id: i32, offset: i64) -> Result<Vec<MessageExt>> {
        let header = PullMessageRequestHeader {
            consumer_group: GROUP.to_owned(),
            topic: topic.to_owned(),
            queue_id,
            queue_offset: offset,
            max_msg_nums: PULL_MESSAGES,
            sys_flag: pull_sys_flag::SUBSCRIPTION,
            subscription: Some("*".to_owned()),
            expression_type: Some("TAG".to_owned()),
            ..PullMessageRequestHeader::default()
        };
        let response = self.ask(RequestCode::PULL_MESSAGE, &header).await?;
        if response.response_code() != ResponseCode::SUCCESS {
            let header = response.header::<PullMessageResponseHeader>();
            bail!("{} {:?} {header:?}", response.response_code(), response.remark);
        }
        Ok(MessageExt::decode_all(&response.body, BODY_BYTES_MAX)?)
    }
}
