//! `NOTIFY_CONSUMER_IDS_CHANGED`: members of a group share its queues anew when one comes or goes.

use protocol::command::RemotingCommand;
use protocol::header::client::ConsumerGroupRequestHeader;
use protocol::heartbeat::MessageModel;
use protocol::request_code::RequestCode;

use crate::consumer::GroupChange;

/// Tells all members. Members that broadcast share nothing; one that does not take its frames will
/// find out at its next look, so nothing is waited for.
pub(crate) fn send(change: &GroupChange) {
    if change.message_model == MessageModel::Broadcasting {
        return;
    }
    let header = ConsumerGroupRequestHeader { consumer_group: change.group.clone() };
    let notice = RemotingCommand::request(RequestCode::NOTIFY_CONSUMER_IDS_CHANGED, &header);
    let notice = notice.oneway();
    for channel in &change.channels {
        if let Err(error) = channel.try_send(notice.clone()) {
            tracing::debug!(group = change.group, %error, "cannot tell of a change in the group");
        }
    }
}
