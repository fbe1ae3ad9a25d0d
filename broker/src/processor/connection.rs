//! Who is connected.

use protocol::body::{ProducerConnection, QuerySubscriptionResponse};
use protocol::command::RemotingCommand;
use protocol::header::client::{ConsumerGroupRequestHeader, ProducerGroupRequestHeader};
use protocol::header::group::TopicAndGroupRequestHeader;
use protocol::response_code::ResponseCode;

use crate::broker::Broker;
use crate::processor::with_json;
use crate::refusal::{Answer, Refusal};

pub(crate) fn consumers(broker: &Broker, request: &RemotingCommand) -> Answer {
    let header: ConsumerGroupRequestHeader = request.header()?;
    let group = &header.consumer_group;
    let connection = broker.consumers.connection(group).ok_or_else(|| {
        let remark = format!("the consumer group[{group}] not online");
        Refusal::new(ResponseCode::CONSUMER_NOT_ONLINE, remark)
    })?;
    with_json(&connection)
}

pub(crate) fn producers(broker: &Broker, request: &RemotingCommand) -> Answer {
    let header: ProducerGroupRequestHeader = request.header()?;
    let group = &header.producer_group;
    let connection_set = broker.producers.connections(group);
    if connection_set.is_empty() {
        return Err(Refusal::error(format!("the producer group[{group}] not exist")));
    }
    with_json(&ProducerConnection { connection_set })
}

pub(crate) fn all_producers(broker: &Broker) -> Answer {
    with_json(&broker.producers.table())
}

pub(crate) fn subscription(broker: &Broker, request: &RemotingCommand) -> Answer {
    let header: TopicAndGroupRequestHeader = request.header()?;
    let found = broker.consumers.subscription(&header.group, &header.topic);
    with_json(&QuerySubscriptionResponse {
        subscription_data: found.ok().map(|(data, _)| data.as_ref().clone()),
        group: header.group,
        topic: header.topic,
    })
}
