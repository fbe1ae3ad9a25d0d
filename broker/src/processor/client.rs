//! Heartbeats and membership.

use std::sync::Arc;

use protocol::body::{CheckClientRequest, ConsumerList};
use protocol::command::RemotingCommand;
use protocol::header::client::{ConsumerGroupRequestHeader, UnregisterClientRequestHeader};
use protocol::heartbeat::{ConsumerData, HeartbeatData};
use protocol::topic_config::TopicConfig;
use protocol::{perm, topic_name};
use remoting::Context;

use crate::broker::Broker;
use crate::client_channel::ClientChannel;
use crate::processor::{json_body, success, with_json};
use crate::refusal::{Answer, Refusal};

/// Tells clients that they may leave out their subscriptions while these do not change.
const SUPPORTS_V2: &str = "IS_SUPPORT_HEART_BEAT_V2";
/// Tells a client to send its subscriptions again.
const SUBSCRIPTIONS_CHANGED: &str = "IS_SUB_CHANGE";

pub(crate) fn heartbeat(
    broker: &Arc<Broker>,
    context: &Context,
    request: &RemotingCommand,
) -> Answer {
    let data: HeartbeatData = json_body(request)?;
    let client = ClientChannel::new(&context.channel, &data.client_id, request);
    let mut needs_subscriptions = false;
    for consumer in &data.consumer_data_set {
        needs_subscriptions |= consumer_heartbeat(broker, &data, consumer, client.clone());
    }
    for producer in &data.producer_data_set {
        broker.producers.register(&producer.group_name, client.clone());
    }
    let mut response = RemotingCommand::success();
    response.ext_fields.insert(SUPPORTS_V2, "true");
    response.ext_fields.insert(SUBSCRIPTIONS_CHANGED, needs_subscriptions.to_string());
    Ok(response.into())
}

/// Whether the client must send its subscriptions again. A new group and its retry topic are saved
/// and made known meanwhile: a client that had to wait for a slow disk would give up, close its
/// connection, which undoes the heartbeat, and come back only after 30 s.
fn consumer_heartbeat(
    broker: &Arc<Broker>,
    data: &HeartbeatData,
    consumer: &ConsumerData,
    client: ClientChannel,
) -> bool {
    let Ok(group) = broker.find_group(&consumer.group_name) else {
        // As Apache's broker: the pulls of this group will be told.
        return false;
    };
    let mut subscribed = consumer.subscription_data_set.iter();
    let is_ordered = subscribed.any(|data| broker.topics.is_order(&data.topic));
    let retry = TopicConfig {
        order: is_ordered,
        ..TopicConfig::new(
            topic_name::retry_topic(&group.config.group_name),
            group.config.retry_queue_nums.max(0),
            perm::READ | perm::WRITE,
        )
    };
    let retry = broker.topics.get_or_make(retry).filter(|retry| retry.is_new);
    if retry.is_some() || group.is_new {
        let broker = Arc::clone(broker);
        tokio::spawn(async move {
            if group.is_new {
                broker.save_groups().await;
            }
            if let Some(retry) = retry {
                broker.publish_if_new(retry).await;
            }
        });
    }
    let fingerprint = Some(data.heartbeat_fingerprint).filter(|fingerprint| *fingerprint != 0);
    let outcome = broker.consumers.register(consumer, client, fingerprint, data.without_sub);
    if let Some(change) = &outcome.change {
        broker.notify(change);
    }
    outcome.needs_subscriptions
}

pub(crate) fn unregister(broker: &Broker, context: &Context, request: &RemotingCommand) -> Answer {
    let header: UnregisterClientRequestHeader = request.header()?;
    if let Some(group) = &header.producer_group {
        broker.producers.unregister(group, &context.channel);
    }
    if let Some(group) = &header.consumer_group
        && let Some(change) = broker.consumers.unregister(group, &context.channel)
    {
        broker.notify(&change);
    }
    success()
}

pub(crate) fn consumer_list(broker: &Broker, request: &RemotingCommand) -> Answer {
    let header: ConsumerGroupRequestHeader = request.header()?;
    let consumer_id_list = broker.consumers.client_ids(&header.consumer_group);
    if consumer_id_list.is_empty() {
        let group = &header.consumer_group;
        return Err(Refusal::error(format!("no consumer for this group, {group}")));
    }
    with_json(&ConsumerList { consumer_id_list })
}

/// Clients ask this before they subscribe with anything but tags.
pub(crate) fn check_config(request: &RemotingCommand) -> Answer {
    if request.body.is_empty() {
        return success();
    }
    let body: CheckClientRequest = json_body(request)?;
    let subscription = body.subscription_data;
    if subscription.is_tag_type() {
        return success();
    }
    let kind = &subscription.expression_type;
    let remark = format!("The broker does not support consumer to filter message by {kind}");
    Err(Refusal::error(remark))
}
