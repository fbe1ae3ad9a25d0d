//! How far a group is: at the brokers, or in a file for consumers that broadcast.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use protocol::body::{MessageQueue, ResetOffsetBody};
use protocol::command::RemotingCommand;
use protocol::header::offset::{
    OffsetResponseHeader, QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader,
};
use protocol::json;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;

use crate::instance::read_header;
use crate::{ClientError, ClientInstance, ConsumerError};

/// Offsets of one group.
pub(crate) struct OffsetStore {
    group: String,
    /// The file, for broadcasting.
    file: Option<PathBuf>,
    offsets: Mutex<BTreeMap<MessageQueue, Entry>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    offset: i64,
    stored: Option<i64>,
}

impl OffsetStore {
    /// Offsets at the brokers.
    pub(crate) fn remote(group: &str) -> Self {
        Self { group: group.to_owned(), file: None, offsets: Mutex::default() }
    }

    /// Offsets in `directory/group/offsets.json`, in the form of Java's client.
    pub(crate) async fn local(directory: &Path, group: &str) -> Result<Self, ConsumerError> {
        let file = directory.join(group).join("offsets.json");
        let error = |source| ConsumerError::OffsetFile { file: file.clone(), source };
        let table: ResetOffsetBody = match tokio::fs::read(&file).await {
            Ok(text) => json::from_slice(&text).map_err(|source| {
                ConsumerError::OffsetFileContent { file: file.clone(), source }
            })?,
            Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => {
                ResetOffsetBody::default()
            }
            Err(other) => return Err(error(other)),
        };
        let entry = |(queue, offset)| (queue, Entry { offset, stored: Some(offset) });
        let offsets = Mutex::new(table.offset_table.0.into_iter().map(entry).collect());
        Ok(Self { group: group.to_owned(), file: Some(file), offsets })
    }

    /// Sets an offset; a smaller one than there is does not count.
    pub(crate) fn update(&self, queue: &MessageQueue, offset: i64) {
        let mut offsets = self.offsets.lock();
        match offsets.get_mut(queue) {
            Some(entry) => entry.offset = entry.offset.max(offset),
            None => drop(offsets.insert(queue.clone(), Entry { offset, stored: None })),
        }
    }

    /// Sets an offset, forwards or backwards.
    pub(crate) fn reset(&self, queue: &MessageQueue, offset: i64) {
        self.offsets.lock().insert(queue.clone(), Entry { offset, stored: None });
    }

    /// The offset as this consumer knows it.
    pub(crate) fn get(&self, queue: &MessageQueue) -> Option<i64> {
        self.offsets.lock().get(queue).map(|entry| entry.offset)
    }

    /// Forgets a queue that went to another consumer.
    pub(crate) fn remove(&self, queue: &MessageQueue) {
        if self.file.is_none() {
            self.offsets.lock().remove(queue);
        }
    }

    /// The stored offset of a queue, `None` when the group has none yet.
    pub(crate) async fn load(
        &self,
        instance: &ClientInstance,
        queue: &MessageQueue,
    ) -> Result<Option<i64>, ClientError> {
        if self.file.is_some() {
            return Ok(self.get(queue));
        }
        let code = RequestCode::QUERY_CONSUMER_OFFSET;
        let header = QueryConsumerOffsetRequestHeader {
            consumer_group: self.group.clone(),
            topic: queue.topic.clone(),
            queue_id: queue.queue_id,
            set_zero_if_not_found: Some(false),
            broker_name: Some(queue.broker_name.clone()),
        };
        let addr = address(instance, queue)?;
        match instance.call(&addr, RemotingCommand::request(code, &header)).await {
            Ok(response) => {
                let header: OffsetResponseHeader = read_header(&addr, code, &response)?;
                Ok(Some(header.offset))
            }
            Err(error) if error.code() == Some(ResponseCode::QUERY_NOT_FOUND) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores what changed. What fails is tried again the next time.
    pub(crate) async fn persist(&self, instance: &ClientInstance) {
        if let Some(file) = &self.file {
            if let Err(error) = self.write_file(file).await {
                tracing::error!(file = %file.display(), %error, "offsets were not stored");
            }
            return;
        }
        let changed: Vec<_> = {
            let offsets = self.offsets.lock();
            let changed = offsets.iter().filter(|(_, entry)| entry.stored != Some(entry.offset));
            changed.map(|(queue, entry)| (queue.clone(), entry.offset)).collect()
        };
        let stores = changed.iter().map(|(queue, offset)| self.store(instance, queue, *offset));
        futures::future::join_all(stores).await;
    }

    /// Stores the offset of one queue at its broker.
    pub(crate) async fn persist_queue(&self, instance: &ClientInstance, queue: &MessageQueue) {
        if self.file.is_none()
            && let Some(offset) = self.get(queue)
        {
            self.store(instance, queue, offset).await;
        }
    }

    async fn store(&self, instance: &ClientInstance, queue: &MessageQueue, offset: i64) {
        let header = UpdateConsumerOffsetRequestHeader {
            consumer_group: self.group.clone(),
            topic: queue.topic.clone(),
            queue_id: queue.queue_id,
            commit_offset: offset,
            broker_name: Some(queue.broker_name.clone()),
        };
        let request = RemotingCommand::request(RequestCode::UPDATE_CONSUMER_OFFSET, &header);
        let stored = match address(instance, queue) {
            Ok(addr) => instance.call(&addr, request).await.map(drop),
            Err(error) => Err(error),
        };
        match stored {
            Ok(()) => {
                if let Some(entry) = self.offsets.lock().get_mut(queue) {
                    entry.stored = Some(offset);
                }
            }
            Err(error) => tracing::warn!(%error, group = self.group, "an offset was not stored"),
        }
    }

    async fn write_file(&self, file: &Path) -> std::io::Result<()> {
        let table = {
            let mut offsets = self.offsets.lock();
            if offsets.values().all(|entry| entry.stored == Some(entry.offset)) {
                return Ok(());
            }
            offsets.values_mut().for_each(|entry| entry.stored = Some(entry.offset));
            let table = offsets.iter().map(|(queue, entry)| (queue.clone(), entry.offset));
            ResetOffsetBody { offset_table: table.collect() }
        };
        let text = json::to_vec(&table).map_err(std::io::Error::other)?;
        if let Some(directory) = file.parent() {
            tokio::fs::create_dir_all(directory).await?;
        }
        // Whole or not at all.
        let temporary = file.with_extension("json.tmp");
        let written = async {
            tokio::fs::write(&temporary, text).await?;
            tokio::fs::rename(&temporary, file).await
        };
        let written = written.await;
        if written.is_err() {
            self.offsets.lock().values_mut().for_each(|entry| entry.stored = None);
        }
        written
    }
}

/// Where the offsets of a queue are kept: at the master, or at any member while there is none.
fn address(instance: &ClientInstance, queue: &MessageQueue) -> Result<String, ClientError> {
    let member = instance.routes().member(&queue.broker_name, protocol::route::MASTER_ID);
    let unknown = || ClientError::UnknownBroker { broker: queue.broker_name.clone() };
    member.map(|(_, addr)| addr).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(queue_id: i32) -> MessageQueue {
        MessageQueue { topic: "t".into(), broker_name: "b".into(), queue_id }
    }

    #[tokio::test]
    async fn a_broadcasting_consumer_finds_its_offsets_again() {
        let directory = tempfile::tempdir().unwrap();
        let instance =
            ClientInstance::start(crate::ClientConfig::new("127.0.0.1:1")).await.unwrap();
        let store = OffsetStore::local(directory.path(), "g").await.unwrap();
        assert_eq!(store.load(&instance, &queue(0)).await.unwrap(), None);
        store.update(&queue(0), 7);
        store.update(&queue(0), 3);
        store.reset(&queue(1), 9);
        store.reset(&queue(1), 2);
        store.persist(&instance).await;
        store.remove(&queue(0));
        let again = OffsetStore::local(directory.path(), "g").await.unwrap();
        assert_eq!(again.load(&instance, &queue(0)).await.unwrap(), Some(7));
        assert_eq!(again.load(&instance, &queue(1)).await.unwrap(), Some(2));
        let file = directory.path().join("g/offsets.json");
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(
            text,
            r#"{"offsetTable":{{"topic":"t","brokerName":"b","queueId":0}:7,{"topic":"t","brokerName":"b","queueId":1}:2}}"#
        );
        std::fs::write(&file, "{").unwrap();
        let error = OffsetStore::local(directory.path(), "g").await.err().unwrap();
        assert!(matches!(error, ConsumerError::OffsetFileContent { .. }), "{error}");
    }
}
