//! Key-value settings.

use std::sync::Arc;

use protocol::body::KvTable;
use protocol::command::RemotingCommand;
use protocol::header::route::{
    GetKvConfigResponseHeader, KvConfigRequestHeader, KvListRequestHeader, PutKvConfigRequestHeader,
};

use super::{Answer, NamesrvProcessor, RequestError, success_with};
use crate::kv_config::{KvConfig, KvConfigError};

impl NamesrvProcessor {
    pub(super) async fn put_kv(&self, request: &RemotingCommand) -> Answer {
        let header: PutKvConfigRequestHeader = request.header()?;
        self.change_kv(move |settings| settings.put(&header.namespace, &header.key, &header.value))
            .await
    }

    pub(super) async fn delete_kv(&self, request: &RemotingCommand) -> Answer {
        let header: KvConfigRequestHeader = request.header()?;
        self.change_kv(move |settings| settings.delete(&header.namespace, &header.key)).await
    }

    /// Writes a file, so not on a thread that serves connections.
    async fn change_kv(
        &self,
        change: impl FnOnce(&mut KvConfig) -> Result<(), KvConfigError> + Send + 'static,
    ) -> Answer {
        let settings = Arc::clone(&self.kv_config);
        super::off_the_hot_path(move || change(&mut settings.lock())).await?;
        Ok(RemotingCommand::success())
    }

    pub(super) fn get_kv(&self, request: &RemotingCommand) -> Answer {
        let KvConfigRequestHeader { namespace, key } = request.header()?;
        let value = self.kv_config.lock().get(&namespace, &key).map(str::to_owned);
        match value {
            Some(value) => success_with(&GetKvConfigResponseHeader { value: Some(value) }),
            None => Err(RequestError::NoKv { namespace, key }),
        }
    }

    pub(super) fn kv_list(&self, request: &RemotingCommand) -> Answer {
        let KvListRequestHeader { namespace } = request.header()?;
        let table = self.kv_config.lock().namespace(&namespace).cloned();
        match table {
            Some(table) => super::json(&KvTable { table }),
            None => Err(RequestError::NoNamespace(namespace)),
        }
    }
}
