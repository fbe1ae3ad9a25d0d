//! Topics, as administrators see them.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::body::{
    CreateTopicList, MessageQueue, TopicConfigTable, TopicList, TopicOffset, TopicStatsTable,
};
use protocol::command::RemotingCommand;
use protocol::header::topic::{
    CreateTopicRequestHeader, GetAllTopicConfigRequestHeader, GetAllTopicConfigResponseHeader,
    TopicRequestHeader,
};
use protocol::json::{self, ObjectKeyMap};
use protocol::topic_config::{TopicConfig, TopicFilterType};
use protocol::{perm, topic_name};

use crate::broker::Broker;
use crate::processor::{Page, json_body, success, with_json};
use crate::refusal::{Answer, Refusal};
use crate::topic_attribute::{self, Change};

/// Queues that a topic may have.
pub(super) const QUEUES_MAX: i32 = 65_536;

pub(crate) async fn update(broker: &Arc<Broker>, request: &RemotingCommand) -> Answer {
    let header: CreateTopicRequestHeader = request.header()?;
    let filter = TopicFilterType::from_name(&header.topic_filter_type).ok_or_else(|| {
        let name = &header.topic_filter_type;
        Refusal::error(format!("topicFilterType is {name}, but must be SINGLE_TAG or MULTI_TAG"))
    })?;
    let attributes = header.attributes.as_deref().unwrap_or_default();
    let changes =
        topic_attribute::parse(attributes).map_err(|error| Refusal::invalid(error.to_string()))?;
    let config = TopicConfig {
        topic_name: header.topic,
        read_queue_nums: header.read_queue_nums,
        write_queue_nums: header.write_queue_nums,
        perm: header.perm,
        topic_filter_type: filter,
        topic_sys_flag: header.topic_sys_flag.unwrap_or_default(),
        order: header.order,
        ..TopicConfig::default()
    };
    if apply(broker, config.clone(), &changes)? {
        broker.publish_topic(&config.topic_name).await?;
        broker.metadata_log.settled().await?;
    }
    success()
}

pub(crate) async fn update_list(broker: &Arc<Broker>, request: &RemotingCommand) -> Answer {
    let body: CreateTopicList = json_body(request)?;
    let mut changed = Vec::new();
    for config in &body.topic_config_list {
        check(broker, config)?;
    }
    for config in body.topic_config_list {
        let wanted = config.attributes.iter();
        let changes = wanted
            .map(|(name, value)| {
                let name = name.strip_prefix('+').unwrap_or(name);
                (name.to_owned(), Change::Set(value.clone()))
            })
            .collect();
        let name = config.topic_name.clone();
        if apply(broker, TopicConfig { attributes: BTreeMap::new(), ..config }, &changes)? {
            changed.push(name);
        }
    }
    for topic in changed {
        broker.publish_topic(&topic).await?;
    }
    broker.metadata_log.settled().await?;
    success()
}

/// Makes or changes a topic in memory; whether anything is different now.
fn apply(
    broker: &Broker,
    config: TopicConfig,
    changes: &BTreeMap<String, Change>,
) -> Result<bool, Refusal> {
    check(broker, &config)?;
    let is_mixed = changes.get("message.type") == Some(&Change::Set("MIXED".to_owned()));
    if is_mixed && !broker.settings().enable_mixed_message_type {
        return Err(Refusal::invalid("MIXED message type is not supported."));
    }
    let topic = config.topic_name.clone();
    let is_changed = broker
        .topics
        .update(config, changes)
        .map_err(|error| Refusal::invalid(error.to_string()))?;
    if is_changed {
        tracing::info!(topic, "topic was made or changed by an administrator");
    }
    Ok(is_changed)
}

fn check(broker: &Broker, config: &TopicConfig) -> Result<(), Refusal> {
    let topic = &config.topic_name;
    topic_name::validate_topic(topic)?;
    check_not_system(broker, topic)?;
    if !perm::is_valid(config.perm) {
        return Err(Refusal::invalid(format!("perm is {}, but must be 0 to 7", config.perm)));
    }
    for (name, queues) in
        [("readQueueNums", config.read_queue_nums), ("writeQueueNums", config.write_queue_nums)]
    {
        if !(0..=QUEUES_MAX).contains(&queues) {
            let remark = format!("{name} is {queues}, but must be 0 to {QUEUES_MAX}");
            return Err(Refusal::invalid(remark));
        }
    }
    Ok(())
}

fn check_not_system(broker: &Broker, topic: &str) -> Result<(), Refusal> {
    if broker.settings().validate_system_topic && broker.topics.is_system(topic) {
        let remark = format!("The topic[{topic}] is conflict with system topic.");
        return Err(Refusal::invalid(remark));
    }
    Ok(())
}

pub(crate) async fn delete(broker: &Arc<Broker>, request: &RemotingCommand) -> Answer {
    let header: TopicRequestHeader = request.header()?;
    let topic = header.topic;
    if topic.trim().is_empty() {
        return Err(Refusal::invalid("The specified topic is blank."));
    }
    check_not_system(broker, &topic)?;
    tracing::info!(topic, "topic is deleted by an administrator");
    broker.blocking(move |broker| forget(broker, &topic)).await?;
    broker.metadata_log.settled().await?;
    success()
}

/// Deletes a topic with all that is known of it.
fn forget(broker: &Broker, topic: &str) -> Result<(), Refusal> {
    let is_system = broker.topics.is_system(topic);
    for group in broker.offsets.groups_of(topic) {
        broker.metrics.remove_group(topic, &group, is_system);
        let retry = topic_name::pop_retry_topic(&group, topic);
        if broker.topics.remove(&retry) {
            broker.offsets.remove_topic(&retry);
            broker.store.delete_topic(&retry)?;
        }
    }
    broker.metrics.remove_topic(topic, is_system);
    broker.throughput.topics.retain(|known| known != topic);
    broker.throughput.groups.retain(|known| known.split('@').next() != Some(topic));
    broker.topics.remove(topic);
    broker.topics.save()?;
    broker.offsets.remove_topic(topic);
    broker.offsets.save_if_changed()?;
    broker.store.delete_topic(topic)?;
    Ok(())
}

/// Deletes queues of topics that are not in the table.
pub(crate) async fn clean_unused(broker: &Arc<Broker>) -> Answer {
    let clean = |broker: &Broker| {
        for topic in broker.store.topics() {
            if broker.topics.get(&topic).is_none() && !broker.topics.is_system(&topic) {
                broker.store.delete_topic(&topic)?;
            }
        }
        Ok::<_, store::StoreError>(())
    };
    broker.blocking(clean).await?;
    success()
}

pub(crate) fn all(broker: &Broker, request: &RemotingCommand) -> Answer {
    let header: GetAllTopicConfigRequestHeader = request.header()?;
    let TopicConfigTable { data_version, topic_config_table } = broker.topics.table();
    let page = Page::new(
        (header.topic_seq, header.max_topic_num),
        header.data_version.as_deref(),
        data_version,
        broker.settings().split_metadata_size,
    );
    let total_topic_num = i32::try_from(topic_config_table.len()).ok();
    let topic_config_table = Page::cut(page.as_ref(), topic_config_table);
    let body = json::to_vec(&TopicConfigTable { data_version, topic_config_table })?;
    let header = GetAllTopicConfigResponseHeader { total_topic_num };
    Ok(RemotingCommand::success_with(&header).with_body(body).into())
}

pub(crate) fn get(broker: &Broker, request: &RemotingCommand) -> Answer {
    let header: TopicRequestHeader = request.header()?;
    with_json(broker.topic(&header.topic)?.as_ref())
}

pub(crate) async fn stats(broker: &Arc<Broker>, request: &RemotingCommand) -> Answer {
    let header: TopicRequestHeader = request.header()?;
    let config = broker.topic(&header.topic)?;
    let body = broker.blocking(move |broker| offsets(broker, &config)).await?;
    with_json(&body)
}

fn offsets(broker: &Broker, config: &TopicConfig) -> Result<TopicStatsTable, store::ReadError> {
    let topic = &config.topic_name;
    let mut table = BTreeMap::new();
    for queue_id in 0..config.write_queue_nums.max(config.read_queue_nums) {
        let max_offset = broker.store.max_offset(topic, queue_id).max(0);
        let last_update_timestamp = broker.consumed_until(topic, queue_id, max_offset)?;
        let min_offset = broker.store.min_offset(topic, queue_id).max(0);
        let queue = message_queue(broker, topic, queue_id);
        table.insert(queue, TopicOffset { last_update_timestamp, max_offset, min_offset });
    }
    let topic_put_tps = broker.throughput.topics.per_second(topic.as_str());
    Ok(TopicStatsTable { offset_table: ObjectKeyMap(table), topic_put_tps })
}

/// A queue of this broker.
pub(super) fn message_queue(broker: &Broker, topic: &str, queue_id: i32) -> MessageQueue {
    let broker_name = broker.identity.broker.clone();
    MessageQueue { topic: topic.to_owned(), broker_name, queue_id }
}

pub(crate) fn system_list(broker: &Broker) -> Answer {
    let topic_list = broker.topics.system_topics().clone();
    with_json(&TopicList { broker_addr: None, topic_list })
}
