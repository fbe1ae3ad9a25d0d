//! Requests of administrators that are passed on to a client.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::body::MessageQueue;
use protocol::command::RemotingCommand;
use protocol::header::client::{
    ConsumeMessageDirectlyRequestHeader, ConsumerRunningInfoRequestHeader,
    ConsumerStatusRequestHeader,
};
use protocol::json::ObjectKeyMap;
use protocol::message_id;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use remoting::RemotingError;
use serde::{Deserialize, Serialize};

use crate::broker::Broker;
use crate::client_channel::ClientChannel;
use crate::processor::with_json;
use crate::refusal::{Answer, Refusal};

/// How long a client may take.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
/// First version whose clients can be asked (`V3_1_8_SNAPSHOT`).
const FIRST_VERSION_THAT_ANSWERS: i32 = 68;

pub(crate) async fn running_info(broker: &Arc<Broker>, request: &RemotingCommand) -> Answer {
    let header: ConsumerRunningInfoRequestHeader = request.header()?;
    let client = broker.online_client(&header.consumer_group, &header.client_id)?;
    let passed = RemotingCommand {
        ext_fields: request.ext_fields.clone(),
        ..RemotingCommand::request_without_header(RequestCode::GET_CONSUMER_RUNNING_INFO)
    };
    pass_on(&client, passed).await
}

pub(crate) async fn consume_directly(broker: &Arc<Broker>, request: &RemotingCommand) -> Answer {
    let header: ConsumeMessageDirectlyRequestHeader = request.header()?;
    let client_id = header.client_id.as_deref().unwrap_or_default();
    let client = broker.online_client(&header.consumer_group, client_id)?;
    let id = header.msg_id.as_deref().unwrap_or_default();
    let (_, offset) = message_id::parse_offset_message_id(id)
        .map_err(|error| Refusal::error(format!("msgId {id}: {error}")))?;
    let record = broker.blocking(move |broker| broker.store.look_up(offset)).await?;
    let record =
        record.ok_or_else(|| Refusal::error(format!("there is no message at offset {offset}")))?;
    let mut passed = RemotingCommand {
        ext_fields: request.ext_fields.clone(),
        ..RemotingCommand::request_without_header(RequestCode::CONSUME_MESSAGE_DIRECTLY)
    };
    passed.ext_fields.insert("brokerName", broker.identity.broker.clone());
    pass_on(&client, passed.with_body(record)).await
}

async fn pass_on(client: &ClientChannel, request: RemotingCommand) -> Answer {
    let id = &client.client_id;
    if client.version < FIRST_VERSION_THAT_ANSWERS {
        let version = client.version;
        let remark = format!("The Consumer <{id}> Version <{version}> too low to finish");
        return Err(Refusal::error(remark));
    }
    match client.channel.invoke(request, CLIENT_TIMEOUT).await {
        Ok(answer) => {
            let code = ResponseCode(answer.code);
            let mut response = RemotingCommand::response(code, answer.remark);
            response.ext_fields = answer.ext_fields;
            Ok(response.with_body(answer.body).into())
        }
        Err(error @ RemotingError::Timeout { .. }) => {
            let remark = format!("consumer <{id}> Timeout: {error}");
            Err(Refusal::new(ResponseCode::CONSUME_MSG_TIMEOUT, remark))
        }
        Err(error) => Err(Refusal::error(format!("invoke consumer <{id}> Exception: {error}"))),
    }
}

/// A client's answer to `GET_CONSUMER_STATUS_FROM_CLIENT`, and ours for all clients.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ConsumerStatusBody {
    message_queue_table: ObjectKeyMap<MessageQueue, i64>,
    consumer_table: BTreeMap<String, ObjectKeyMap<MessageQueue, i64>>,
}

pub(crate) async fn consumer_status(broker: &Arc<Broker>, request: &RemotingCommand) -> Answer {
    let header: ConsumerStatusRequestHeader = request.header()?;
    let wanted = header.client_addr.as_deref().filter(|id| !id.trim().is_empty());
    let mut clients = broker.consumers.clients(&header.group);
    clients.retain(|client| wanted.is_none_or(|id| id == client.client_id));
    if clients.is_empty() {
        return Err(Refusal::error(format!(
            "No Any Consumer online in the group {}",
            header.group
        )));
    }
    let mut body = ConsumerStatusBody::default();
    let asked = ConsumerStatusRequestHeader { client_addr: None, ..header };
    for client in clients {
        let request =
            RemotingCommand::request(RequestCode::GET_CONSUMER_STATUS_FROM_CLIENT, &asked);
        let answer = pass_on(&client, request).await?;
        let offsets: ConsumerStatusBody = protocol::json::from_slice(&answer.body())?;
        body.consumer_table.insert(client.client_id, offsets.message_queue_table);
    }
    with_json(&body)
}
