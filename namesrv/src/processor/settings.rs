//! The name server's own settings.

use protocol::command::RemotingCommand;

use super::{Answer, NamesrvProcessor};

impl NamesrvProcessor {
    pub(super) fn update_config(&self, request: &RemotingCommand) -> Answer {
        for change in self.config.update(&request.body)? {
            tracing::info!(key = change.key, from = change.from, to = change.to, "setting changed");
        }
        Ok(RemotingCommand::success())
    }
}
