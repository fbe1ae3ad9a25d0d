//! Which function answers which request.

use std::sync::Arc;

use protocol::command::RemotingCommand;
use protocol::header::pull::pull_sys_flag;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use remoting::{Channel, Context, Processor, Response};
use tokio::time::Instant;

use crate::broker::Broker;
use crate::farewell;
use crate::metrics::Answered;
use crate::processor::{
    admin, client, connection, consume_stats, group, ha, lock, offset, pull, query, relay,
    reset_offset, send, send_back, topic,
};
use crate::refusal::{Answer, Refusal};

/// Answers all requests of all clients.
pub(crate) struct BrokerProcessor {
    pub(crate) broker: Arc<Broker>,
}

impl Processor for BrokerProcessor {
    async fn process(&self, context: Context, request: RemotingCommand) -> Option<Response> {
        if self.broker.farewell.is_said_to(&context.channel)
            && let Some(answer) = farewell::answer(&request)
        {
            return Some(answer);
        }
        let begin = Instant::now();
        let answer = answer(&self.broker, &context, &request).await;
        let response = answer.unwrap_or_else(|refusal| {
            tracing::debug!(
                request = %request.request_code(),
                peer = %context.channel.remote_addr(),
                code = %refusal.code,
                remark = refusal.remark,
                "refused"
            );
            refusal.response().into()
        });
        self.broker.metrics.answered(&Answered {
            request: request.request_code(),
            response: response.command().response_code(),
            is_long_polling: may_be_held(&request),
            is_oneway: request.is_oneway(),
            took: begin.elapsed(),
        });
        Some(response)
    }

    fn before_wait(&self) {
        self.broker.store.write_enqueued();
    }

    fn disconnected(&self, channel: &Channel) {
        self.broker.client_gone(channel);
    }
}

fn may_be_held(request: &RemotingCommand) -> bool {
    let is_pull = matches!(
        request.request_code(),
        RequestCode::PULL_MESSAGE | RequestCode::LITE_PULL_MESSAGE
    );
    let flags = request.ext_fields.get("sysFlag").and_then(|flags| flags.parse::<i32>().ok());
    is_pull && flags.is_some_and(|flags| flags & pull_sys_flag::SUSPEND != 0)
}

/// The table of requests: the frequent ones.
async fn answer(broker: &Arc<Broker>, context: &Context, request: &RemotingCommand) -> Answer {
    use RequestCode as Code;

    match request.request_code() {
        Code::SEND_MESSAGE | Code::SEND_MESSAGE_V2 | Code::SEND_BATCH_MESSAGE => {
            send::send(broker, context, request).await
        }
        Code::PULL_MESSAGE | Code::LITE_PULL_MESSAGE => pull::pull(broker, request).await,
        // Each message would otherwise move the memory that the largest of them needs.
        _ => Box::pin(answer_rare(broker, context, request)).await,
    }
}

/// The table of requests: all others.
async fn answer_rare(broker: &Arc<Broker>, context: &Context, request: &RemotingCommand) -> Answer {
    use RequestCode as Code;

    match request.request_code() {
        Code::CONSUMER_SEND_MSG_BACK => send_back::send_back(broker, request).await,
        Code::END_TRANSACTION => send::end_transaction(),

        Code::QUERY_CONSUMER_OFFSET => offset::query(broker, request),
        Code::UPDATE_CONSUMER_OFFSET => offset::update(broker, request),
        Code::GET_MAX_OFFSET => offset::max(broker, request),
        Code::GET_MIN_OFFSET => offset::min(broker, request),
        Code::SEARCH_OFFSET_BY_TIMESTAMP => offset::search(broker, request).await,
        Code::GET_EARLIEST_MSG_STORETIME => offset::earliest(broker, request).await,
        Code::INVOKE_BROKER_TO_RESET_OFFSET => reset_offset::reset(broker, request).await,
        Code::CLONE_GROUP_OFFSET => reset_offset::clone(broker, request),
        Code::GET_ALL_CONSUMER_OFFSET => offset::all(broker),
        Code::GET_ALL_DELAY_OFFSET => offset::all_delayed(broker),

        Code::HEART_BEAT => client::heartbeat(broker, context, request),
        Code::UNREGISTER_CLIENT => client::unregister(broker, context, request),
        Code::GET_CONSUMER_LIST_BY_GROUP => client::consumer_list(broker, request),
        Code::CHECK_CLIENT_CONFIG => client::check_config(request),
        Code::LOCK_BATCH_MQ => lock::lock(broker, request),
        Code::UNLOCK_BATCH_MQ => lock::unlock(broker, request),

        Code::VIEW_MESSAGE_BY_ID => query::view(broker, request).await,
        Code::QUERY_MESSAGE => query::by_key(broker, request).await,
        Code::QUERY_CONSUME_QUEUE => query::consume_queue(broker, request).await,

        Code::UPDATE_AND_CREATE_TOPIC => topic::update(broker, request).await,
        Code::UPDATE_AND_CREATE_TOPIC_LIST => topic::update_list(broker, request).await,
        Code::DELETE_TOPIC_IN_BROKER => topic::delete(broker, request).await,
        Code::GET_ALL_TOPIC_CONFIG => topic::all(broker, request),
        Code::GET_TOPIC_CONFIG => topic::get(broker, request),
        Code::GET_TOPIC_STATS_INFO => topic::stats(broker, request).await,
        Code::GET_SYSTEM_TOPIC_LIST_FROM_BROKER => topic::system_list(broker),
        Code::CLEAN_UNUSED_TOPIC => topic::clean_unused(broker).await,

        Code::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP => group::update(broker, request).await,
        Code::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST => group::update_list(broker, request).await,
        Code::DELETE_SUBSCRIPTIONGROUP => group::delete(broker, request).await,
        Code::GET_ALL_SUBSCRIPTIONGROUP_CONFIG => group::all(broker, request),
        Code::GET_SUBSCRIPTIONGROUP_CONFIG => group::get(broker, request).await,
        Code::UPDATE_AND_GET_GROUP_FORBIDDEN => group::forbid(broker, request).await,

        Code::GET_CONSUME_STATS => consume_stats::of_group(broker, request).await,
        Code::GET_BROKER_CONSUME_STATS => consume_stats::of_broker(broker, request).await,
        Code::QUERY_CONSUME_TIME_SPAN => consume_stats::time_span(broker, request).await,
        Code::QUERY_TOPIC_CONSUME_BY_WHO => consume_stats::groups_of(broker, request),
        Code::QUERY_TOPICS_BY_CONSUMER => consume_stats::topics_of(broker, request),
        Code::QUERY_SUBSCRIPTION_BY_CONSUMER => connection::subscription(broker, request),
        Code::GET_CONSUMER_CONNECTION_LIST => connection::consumers(broker, request),
        Code::GET_PRODUCER_CONNECTION_LIST => connection::producers(broker, request),
        Code::GET_ALL_PRODUCER_INFO => connection::all_producers(broker),
        Code::GET_CONSUMER_RUNNING_INFO => relay::running_info(broker, request).await,
        Code::CONSUME_MESSAGE_DIRECTLY => relay::consume_directly(broker, request).await,
        Code::INVOKE_BROKER_TO_GET_CONSUMER_STATUS => relay::consumer_status(broker, request).await,

        Code::GET_BROKER_CONFIG => admin::config(broker),
        Code::UPDATE_BROKER_CONFIG => admin::update_config(broker, request).await,
        Code::GET_BROKER_RUNTIME_INFO => admin::runtime_info(broker).await,
        Code::GET_BROKER_HA_STATUS => ha::status(broker),
        Code::EXCHANGE_BROKER_HA_INFO => ha::exchange(broker),
        Code::CLEAN_EXPIRED_CONSUMEQUEUE | Code::DELETE_EXPIRED_COMMITLOG => {
            admin::clean(broker).await
        }
        _ => Err(Refusal::new(
            ResponseCode::REQUEST_CODE_NOT_SUPPORTED,
            format!(" request type {} not supported", request.code),
        )),
    }
}
