//! Consumer groups, as administrators see them.

use std::sync::Arc;

use protocol::body::{SubscriptionGroupList, SubscriptionGroupWrapper};
use protocol::command::RemotingCommand;
use protocol::header::group::{
    DeleteSubscriptionGroupRequestHeader, GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader, GroupRequestHeader,
};
use protocol::subscription::SubscriptionGroupConfig;
use protocol::{json, topic_name};
use serde::Serialize;

use crate::broker::Broker;
use crate::processor::{Page, json_body, success, with_json};
use crate::refusal::{Answer, Refusal};

/// Queues that a retry topic may have.
const RETRY_QUEUES_MAX: i32 = 1_024;

pub(crate) async fn update(broker: &Arc<Broker>, request: &RemotingCommand) -> Answer {
    let config: SubscriptionGroupConfig = json_body(request)?;
    check(&config)?;
    update_all(broker, vec![config]).await
}

pub(crate) async fn update_list(broker: &Arc<Broker>, request: &RemotingCommand) -> Answer {
    let body: SubscriptionGroupList = json_body(request)?;
    body.group_config_list.iter().try_for_each(check)?;
    update_all(broker, body.group_config_list).await
}

async fn update_all(broker: &Arc<Broker>, configs: Vec<SubscriptionGroupConfig>) -> Answer {
    for config in configs {
        tracing::info!(group = config.group_name, "group was made or changed by an administrator");
        broker.groups.update(config);
    }
    broker.blocking(|broker| broker.groups.save()).await?;
    broker.metadata_log.settled().await?;
    success()
}

fn check(config: &SubscriptionGroupConfig) -> Result<(), Refusal> {
    topic_name::validate_group(&config.group_name)?;
    if !(0..=RETRY_QUEUES_MAX).contains(&config.retry_queue_nums) {
        let queues = config.retry_queue_nums;
        let remark = format!("retryQueueNums is {queues}, but must be 0 to {RETRY_QUEUES_MAX}");
        return Err(Refusal::invalid(remark));
    }
    Ok(())
}

pub(crate) async fn delete(broker: &Arc<Broker>, request: &RemotingCommand) -> Answer {
    let header: DeleteSubscriptionGroupRequestHeader = request.header()?;
    let group = header.group_name;
    tracing::info!(group, "group is deleted by an administrator");
    let forget = move |broker: &Broker| {
        for topic in broker.offsets.topics_of(&group) {
            broker.metrics.remove_group(&topic, &group, broker.topics.is_system(&topic));
        }
        broker.throughput.groups.retain(|known| known.split('@').nth(1) != Some(group.as_str()));
        broker.groups.remove(&group);
        broker.groups.save()?;
        if header.clean_offset {
            broker.offsets.remove_group(&group);
            broker.offsets.save_if_changed()?;
        }
        Ok::<_, crate::json_file::SaveError>(())
    };
    broker.blocking(forget).await?;
    broker.metadata_log.settled().await?;
    success()
}

pub(crate) fn all(broker: &Broker, request: &RemotingCommand) -> Answer {
    let header: GetAllSubscriptionGroupRequestHeader = request.header()?;
    let table = broker.groups.table();
    let page = Page::new(
        (header.group_seq, header.max_group_num),
        header.data_version.as_deref(),
        table.data_version,
        broker.settings().split_metadata_size,
    );
    let total_group_num = i32::try_from(table.subscription_group_table.len()).ok();
    let subscription_group_table = Page::cut(page.as_ref(), table.subscription_group_table);
    let body = SubscriptionGroupWrapper { subscription_group_table, ..table };
    let header = GetAllSubscriptionGroupResponseHeader { total_group_num };
    Ok(RemotingCommand::success_with(&header).with_body(json::to_vec(&body)?).into())
}

pub(crate) async fn get(broker: &Arc<Broker>, request: &RemotingCommand) -> Answer {
    let header: GroupRequestHeader = request.header()?;
    with_json(broker.group(&header.group).await?.as_ref())
}

/// Answer to `UPDATE_AND_GET_GROUP_FORBIDDEN`.
#[derive(Serialize)]
struct GroupForbidden<'a> {
    group: &'a str,
    readable: bool,
    topic: &'a str,
}

pub(crate) async fn forbid(broker: &Arc<Broker>, request: &RemotingCommand) -> Answer {
    let header: protocol::header::group::TopicAndGroupRequestHeader = request.header()?;
    let (topic, group) = (header.topic.as_str(), header.group.as_str());
    if let Some(readable) = request.ext_fields.get("readable") {
        let is_forbidden = !readable.eq_ignore_ascii_case("true");
        broker.groups.set_read_forbidden(group, topic, is_forbidden);
        broker.blocking(|broker| broker.groups.save()).await?;
        broker.metadata_log.settled().await?;
    }
    let readable = !broker.groups.is_read_forbidden(group, topic);
    with_json(&GroupForbidden { group, readable, topic })
}
