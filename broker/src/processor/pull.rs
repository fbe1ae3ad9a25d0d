//! `PULL_MESSAGE` and `LITE_PULL_MESSAGE`.

use std::sync::Arc;
use std::time::Duration;

use protocol::command::RemotingCommand;
use protocol::header::pull::{PullMessageRequestHeader, PullMessageResponseHeader, pull_sys_flag};
use protocol::heartbeat::MessageModel;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use protocol::route::MASTER_ID;
use protocol::subscription::{EXPRESSION_TAG, SUB_ALL, SubscriptionData, SubscriptionGroupConfig};
use protocol::topic_config::TopicConfig;
use protocol::{perm, topic_name};
use remoting::Response;
use store::{GetRequest, GetResult, GetStatus, MessageFilter};
use tokio::time::Instant;

use crate::broker::Broker;
use crate::consumer::NoSubscription;
use crate::metrics::Counted;
use crate::refusal::{Answer, Refusal};
use crate::throughput::Total;

/// A pull at most so far behind the end of its queue is read at once: what it wants was written
/// lately and is in memory. Others are read where waiting for the disk holds nobody up.
const NEAR_END: i64 = 2_000;
/// Fewest bytes that a pull may ask for.
const BYTES_MIN: usize = 100;
/// Bytes of an answer at most, the first message apart.
const BYTES_MAX: usize = 8 << 20;

/// Chooses messages by what a consumer has subscribed to.
struct BySubscription(Arc<SubscriptionData>);

impl MessageFilter for BySubscription {
    fn matches_tags_code(&self, tags_code: i64) -> bool {
        self.0.matches_tags_code(tags_code)
    }
}

/// What a pull found.
struct Found {
    code: ResponseCode,
    status: &'static str,
    next_begin_offset: i64,
    result: GetResult,
}

pub(crate) async fn pull(broker: &Arc<Broker>, request: &RemotingCommand) -> Answer {
    let header: PullMessageRequestHeader = request.header()?;
    let pull = Pull::checked(broker, request, &header).await?;
    if header.sys_flag & pull_sys_flag::COMMIT_OFFSET != 0 && header.commit_offset >= 0 {
        let (group, topic) = (&header.consumer_group, &header.topic);
        broker.offsets.commit(group, topic, header.queue_id, header.commit_offset);
    }
    let mut found = pull.look().await?;
    let may_wait = header.sys_flag & pull_sys_flag::SUSPEND != 0;
    if found.code == ResponseCode::PULL_NOT_FOUND && may_wait {
        found = pull.wait(found).await?;
    }
    Ok(pull.response(found))
}

/// A pull that may be done.
struct Pull<'a> {
    broker: &'a Arc<Broker>,
    header: &'a PullMessageRequestHeader,
    group: Arc<SubscriptionGroupConfig>,
    topic: Arc<TopicConfig>,
    subscription: Arc<SubscriptionData>,
}

impl<'a> Pull<'a> {
    /// The checks, in Apache's order.
    async fn checked(
        broker: &'a Arc<Broker>,
        request: &RemotingCommand,
        header: &'a PullMessageRequestHeader,
    ) -> Result<Self, Refusal> {
        let settings = broker.settings();
        let is_readable = settings.slave_read_enable && broker.role.reads();
        if broker.ha.is_slave() && !is_readable {
            let remark = "[REJECTREQUEST]system busy, start flow control for a while: this slave \
                          serves no pulls (slaveReadEnable)";
            return Err(Refusal::new(ResponseCode::SYSTEM_BUSY, remark));
        }
        let address = &broker.identity.address;
        if !perm::is_readable(settings.broker_permission) {
            let remark = format!("the broker[{address}] pulling message is forbidden");
            return Err(Refusal::forbidden(remark));
        }
        let is_lite = request.request_code() == RequestCode::LITE_PULL_MESSAGE;
        if is_lite && !settings.lite_pull_message_enable {
            let remark = format!("the broker[{address}] for lite pull consumer is forbidden");
            return Err(Refusal::forbidden(remark));
        }
        let group = broker.group(&header.consumer_group).await?;
        if !group.consume_enable {
            let name = &header.consumer_group;
            let remark = format!("subscription group no permission, {name}");
            return Err(Refusal::forbidden(remark));
        }
        let topic = broker.topic(&header.topic)?;
        if !perm::is_readable(topic.perm) {
            let remark = format!("the topic[{}] pulling message is forbidden", header.topic);
            return Err(Refusal::forbidden(remark));
        }
        if header.queue_id < 0 || header.queue_id >= topic.read_queue_nums {
            let (id, name, queues) = (header.queue_id, &header.topic, topic.read_queue_nums);
            return Err(Refusal::invalid(format!(
                "queueId[{id}] is illegal, topic:[{name}] topicConfig.readQueueNums:[{queues}]"
            )));
        }
        let subscription = if header.sys_flag & pull_sys_flag::SUBSCRIPTION != 0 {
            carried_subscription(header)?
        } else {
            known_subscription(broker, header, &group)?
        };
        if !subscription.is_tag_type() {
            let kind = &subscription.expression_type;
            let remark =
                format!("The broker does not support consumer to filter message by {kind}");
            return Err(Refusal::error(remark));
        }
        Ok(Self { broker, header, group, topic, subscription })
    }

    /// Reads what there is.
    async fn look(&self) -> Result<Found, Refusal> {
        let header = self.header;
        let (group, topic) = (&header.consumer_group, &header.topic);
        let offsets = &self.broker.offsets;
        if let Some(offset) = offsets.take_reset(group, topic, header.queue_id) {
            return Ok(self.moved_to(offset));
        }
        let max_offset = self.broker.store.max_offset(topic, header.queue_id);
        let result = if max_offset.saturating_sub(header.queue_offset) <= NEAR_END {
            read(self.broker, header, &self.subscription)?
        } else {
            let (header, subscription) = (header.clone(), Arc::clone(&self.subscription));
            self.broker.blocking(move |broker| read(broker, &header, &subscription)).await?
        };
        offsets.pulled(group, topic, header.queue_id, header.queue_offset);
        let code = match result.status {
            GetStatus::Found => ResponseCode::SUCCESS,
            GetStatus::NoMatchedMessage | GetStatus::MessageWasRemoving => {
                ResponseCode::PULL_RETRY_IMMEDIATELY
            }
            GetStatus::OffsetFoundNull | GetStatus::OffsetOverflowOne => {
                ResponseCode::PULL_NOT_FOUND
            }
            GetStatus::NoMatchedLogicQueue | GetStatus::NoMessageInQueue
                if header.queue_offset == 0 =>
            {
                ResponseCode::PULL_NOT_FOUND
            }
            GetStatus::NoMatchedLogicQueue
            | GetStatus::NoMessageInQueue
            | GetStatus::OffsetOverflowBadly
            | GetStatus::OffsetTooSmall => ResponseCode::PULL_OFFSET_MOVED,
        };
        let (status, next_begin_offset) = (result.status.name(), result.next_begin_offset);
        let found = Found { code, status, next_begin_offset, result };
        Ok(if self.broker.ha.is_slave() { self.as_slave(found) } else { found })
    }

    /// What a slave does not have the master may have: while it is there the consumer is sent to
    /// it, and while it is away nobody is sent back, since the slave may lack the last messages.
    fn as_slave(&self, found: Found) -> Found {
        let is_found = found.code == ResponseCode::SUCCESS;
        if is_found || self.broker.settings().offset_check_in_slave {
            return found;
        }
        let queue_offset = self.header.queue_offset;
        if self.broker.ha.has_master() {
            let code = ResponseCode::PULL_RETRY_IMMEDIATELY;
            let next_begin_offset = match found.code {
                ResponseCode::PULL_OFFSET_MOVED => queue_offset,
                _ => found.next_begin_offset,
            };
            return Found { code, next_begin_offset, ..found };
        }
        if found.code == ResponseCode::PULL_OFFSET_MOVED
            && found.result.status != GetStatus::OffsetTooSmall
        {
            let code = ResponseCode::PULL_NOT_FOUND;
            return Found { code, next_begin_offset: queue_offset, ..found };
        }
        found
    }

    /// The broker that the consumer had better pull from next.
    fn suggestion(&self, found: &Found) -> i64 {
        let ha = &self.broker.ha;
        let is_enabled = self.broker.settings().slave_read_enable;
        if ha.is_slave() && !ha.has_master() {
            return self.broker.identity.id;
        }
        match (is_enabled, found.result.suggest_slave) {
            (true, true) => self.group.which_broker_when_consume_slowly,
            (true, false) if !ha.is_slave() => self.group.broker_id,
            _ => MASTER_ID,
        }
    }

    /// Sends the consumer to the offset that an administrator has set.
    fn moved_to(&self, offset: i64) -> Found {
        let (topic, queue_id) = (&self.header.topic, self.header.queue_id);
        let result = GetResult {
            status: GetStatus::NoMatchedMessage,
            next_begin_offset: offset,
            min_offset: self.broker.store.min_offset(topic, queue_id),
            max_offset: self.broker.store.max_offset(topic, queue_id),
            segments: Vec::new(),
            message_count: 0,
            total_bytes: 0,
            suggest_slave: false,
        };
        let code = ResponseCode::PULL_OFFSET_MOVED;
        Found { code, status: "OFFSET_RESET", next_begin_offset: offset, result }
    }

    /// Waits for a message, but not longer than the consumer wants, and looks again.
    async fn wait(&self, found: Found) -> Result<Found, Refusal> {
        let header = self.header;
        let settings = self.broker.settings();
        let limit = if settings.long_polling_enable {
            Duration::from_millis(u64::try_from(header.suspend_timeout_millis).unwrap_or_default())
        } else {
            settings.short_polling_time
        };
        let deadline = Instant::now() + limit.min(self.broker.settings().channel_expired_timeout);
        let (topic, queue_id) = (&header.topic, header.queue_id);
        let offset = found.next_begin_offset;
        let subscription = Arc::clone(&self.subscription);
        let held = self.broker.hold.hold(topic, queue_id, offset, subscription);
        let held = held.map_err(|_| {
            Refusal::new(
                ResponseCode::SYSTEM_BUSY,
                "[PULL_HOLD_FULL]system busy, too many pulls are held",
            )
        })?;
        let is_late = self.broker.store.max_offset(topic, queue_id) > offset
            || self.broker.offsets.has_reset(&header.consumer_group, topic, queue_id);
        if !is_late {
            let _ = tokio::time::timeout_at(deadline, held.woken()).await;
        }
        drop(held);
        self.look().await
    }

    fn response(&self, found: Found) -> Response {
        let header = PullMessageResponseHeader {
            suggest_which_broker_id: self.suggestion(&found),
            next_begin_offset: found.next_begin_offset,
            min_offset: found.result.min_offset,
            max_offset: found.result.max_offset,
            topic_sys_flag: Some(self.topic.topic_sys_flag),
            group_sys_flag: Some(self.group.group_sys_flag),
            forbidden_type: None,
        };
        self.count(&found.result);
        let command = RemotingCommand::response(found.code, Some(found.status.to_owned()));
        Response::with_parts(command.with_header(&header), found.result.segments)
    }

    fn count(&self, result: &GetResult) {
        let throughput = &self.broker.throughput;
        if result.message_count == 0 {
            throughput.add(Total::GetMiss, 1);
            return;
        }
        let (topic, group) = (self.header.topic.as_str(), self.header.consumer_group.as_str());
        let counted = Counted {
            topic,
            messages: result.message_count,
            bytes: result.total_bytes,
            is_system: self.broker.topics.is_system(topic),
        };
        self.broker.metrics.consumed(&counted, group);
        throughput.add(Total::GetFound, 1);
        throughput.add(Total::Get, result.message_count);
        throughput.add(Total::GetBytes, result.total_bytes);
        throughput.groups.add(format!("{topic}@{group}").as_str(), result.message_count);
    }
}

/// The subscription that the request itself has.
fn carried_subscription(
    header: &PullMessageRequestHeader,
) -> Result<Arc<SubscriptionData>, Refusal> {
    let expression = header.subscription.as_deref().unwrap_or(SUB_ALL);
    let kind = header.expression_type.as_deref().unwrap_or(EXPRESSION_TAG);
    let mut data = SubscriptionData::by_tags(header.topic.as_str(), expression, header.sub_version);
    if expression.trim() != SUB_ALL && !expression.trim().is_empty() && data.tags_set.is_empty() {
        return Err(Refusal::new(
            ResponseCode::SUBSCRIPTION_PARSE_FAILED,
            "parse the consumer's subscription failed",
        ));
    }
    data.expression_type = kind.to_owned();
    Ok(Arc::new(data))
}

/// The subscription that the group's heartbeats have named.
fn known_subscription(
    broker: &Broker,
    header: &PullMessageRequestHeader,
    group: &SubscriptionGroupConfig,
) -> Result<Arc<SubscriptionData>, Refusal> {
    let (name, topic) = (header.consumer_group.as_str(), header.topic.as_str());
    let unknown = |what: &str| {
        let remark = format!("the consumer's {what} not exist, {name} {topic}");
        Refusal::new(ResponseCode::SUBSCRIPTION_NOT_EXIST, remark)
    };
    let Some(model) = broker.consumers.message_model(name) else {
        return Err(unknown("group info"));
    };
    if model == MessageModel::Broadcasting && !group.consume_broadcast_enable {
        let remark = format!("the consumer group[{name}] can not consume by broadcast way");
        return Err(Refusal::forbidden(remark));
    }
    if broker.groups.is_read_forbidden(name, topic) {
        let remark = format!("the consumer group[{name}] is forbidden for topic[{topic}]");
        return Err(Refusal::forbidden(remark));
    }
    let (subscription, _) =
        broker.consumers.subscription(name, topic).map_err(|none| match none {
            NoSubscription::Group => unknown("group info"),
            NoSubscription::Topic => unknown("subscription"),
        })?;
    if subscription.sub_version < header.sub_version {
        return Err(Refusal::new(
            ResponseCode::SUBSCRIPTION_NOT_LATEST,
            "the consumer's subscription not latest",
        ));
    }
    Ok(subscription)
}

fn read(
    broker: &Broker,
    header: &PullMessageRequestHeader,
    subscription: &Arc<SubscriptionData>,
) -> Result<GetResult, store::ReadError> {
    let bytes = header.max_msg_bytes.and_then(|bytes| usize::try_from(bytes).ok());
    let request = GetRequest {
        topic: &header.topic,
        queue_id: header.queue_id,
        offset: header.queue_offset,
        max_messages: usize::try_from(header.max_msg_nums).unwrap_or_default().max(1),
        max_bytes: bytes.map_or(BYTES_MAX, |bytes| bytes.clamp(BYTES_MIN, BYTES_MAX)),
    };
    // Delayed messages have a time where others have the hash of their tag.
    let filter = if topic_name::SCHEDULE_TOPIC == header.topic {
        BySubscription(Arc::new(SubscriptionData::default()))
    } else {
        BySubscription(Arc::clone(subscription))
    };
    broker.store.get(&request, &filter)
}
