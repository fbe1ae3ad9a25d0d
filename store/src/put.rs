//! From a message to a request to the writer: rules, encoding, and what the queue has to know.
//!
//! Runs on the sender's thread, so that the writer only numbers and copies.

use std::sync::Arc;

use bytes::BytesMut;
use protocol::message::Message;
use protocol::{message_codec, property, tag, topic_name};

use crate::commit_log::BLANK_BYTES;
use crate::commit_log::append::{AppendRequest, RecordMeta, TagsCode};
use crate::completion::PutFuture;
use crate::config::{FlushDiskType, StoreConfig};
use crate::consume_queue_table::ConsumeQueueTable;
use crate::error::{IllegalMessage, PutError};
use crate::pending::Pending;

/// Longest topic in bytes.
const TOPIC_BYTES_MAX: usize = 127;
/// Longest retry topic in bytes.
const RETRY_TOPIC_BYTES_MAX: usize = 255;

/// Makes requests. See the module.
#[derive(Debug)]
pub(crate) struct Put<'a> {
    pub(crate) config: &'a StoreConfig,
    pub(crate) queues: &'a ConsumeQueueTable,
    pub(crate) pending: &'a Arc<Pending>,
    /// Messages are confirmed only when others have them too.
    pub(crate) is_confirmed_later: bool,
}

/// The properties of which the store itself takes notice.
#[derive(Debug, Default)]
struct Noticed<'a> {
    tags: Option<&'a str>,
    delay: Option<&'a str>,
    wait: Option<&'a str>,
}

impl<'a> Noticed<'a> {
    fn of(properties: &'a str) -> Self {
        let mut noticed = Self::default();
        for (name, value) in property::entries(properties) {
            match name {
                property::TAGS => noticed.tags = Some(value),
                property::DELAY => noticed.delay = Some(value),
                property::WAIT => noticed.wait = Some(value),
                _ => {}
            }
        }
        noticed
    }
}

impl Put<'_> {
    /// Checks and encodes messages that stay together, all for one queue.
    pub(crate) fn request(
        &self,
        messages: &[Message<'_>],
    ) -> Result<(AppendRequest, PutFuture), PutError> {
        let Some((first, rest)) = messages.split_first() else {
            return Err(IllegalMessage::EmptyBatch.into());
        };
        let is_mixed = |message: &Message<'_>| {
            (message.topic, message.queue_id, message.sys_flag)
                != (first.topic, first.queue_id, first.sys_flag)
        };
        if rest.iter().any(is_mixed) {
            return Err(IllegalMessage::MixedBatch.into());
        }
        check_names(first)?;
        let bodies = messages.iter().map(|message| message.body.len()).sum();
        let limit = self.config.max_message_size;
        if bodies > limit {
            return Err(IllegalMessage::BodyTooLarge { bytes: bodies, limit }.into());
        }
        let bytes = messages.iter().map(message_codec::record_bytes).sum();
        let limit = self.config.mapped_file_size_commit_log.cast_signed() - BLANK_BYTES;
        let limit = usize::try_from(limit).expect("a commit log file has at least 4096 bytes");
        if bytes > limit {
            return Err(IllegalMessage::RecordTooLarge { bytes, limit }.into());
        }
        let permit = self.pending.admit(bytes, messages.len())?;
        let mut records = BytesMut::with_capacity(bytes);
        let (first_meta, is_waiting) = self.encode(first, &mut records)?;
        let mut others = Vec::with_capacity(rest.len());
        for message in rest {
            others.push(self.encode(message, &mut records)?.0);
        }
        let (future, completion) = PutFuture::new();
        let request = AppendRequest {
            records,
            first: first_meta,
            others,
            queue: self.queues.get_or_create(first.topic, first.queue_id),
            sys_flag: first.sys_flag,
            is_waiting: is_waiting
                || (!self.is_confirmed_later
                    && self.config.flush_disk_type == FlushDiskType::AsyncFlush),
            completion,
            permit,
        };
        Ok((request, future))
    }

    /// Encodes one record; also says whether its sender waits for the flush.
    fn encode(
        &self,
        message: &Message<'_>,
        records: &mut BytesMut,
    ) -> Result<(RecordMeta, bool), PutError> {
        let noticed = Noticed::of(message.properties);
        let bytes =
            message_codec::encode_record(message, records).map_err(IllegalMessage::Encode)?;
        let tags = tags_code(message.topic, &noticed, self.config);
        Ok((RecordMeta { bytes, tags }, noticed.wait != Some("false")))
    }
}

fn tags_code(topic: &str, noticed: &Noticed<'_>, config: &StoreConfig) -> TagsCode {
    if topic == topic_name::SCHEDULE_TOPIC
        && let Some(level) = noticed.delay.and_then(|level| level.parse().ok())
        && let Some(delay_ms) = config.message_delay_level.delay_ms(level)
    {
        return TagsCode::Delay(delay_ms);
    }
    TagsCode::Hash(tag::tags_code(noticed.tags))
}

/// The tags code of a record that is in the log.
pub(crate) fn tags_code_of_record(
    view: &message_codec::RecordView<'_>,
    config: &StoreConfig,
) -> i64 {
    match tags_code(view.topic, &Noticed::of(view.properties()), config) {
        TagsCode::Hash(code) => code,
        TagsCode::Delay(delay_ms) => view.store_timestamp.saturating_add(delay_ms),
    }
}

/// Whether a topic can be the name of one directory.
pub(crate) fn is_directory_name(topic: &str) -> bool {
    !topic.is_empty() && topic != "." && topic != ".." && !topic.contains(['/', '\0'])
}

fn check_names(message: &Message<'_>) -> Result<(), IllegalMessage> {
    let topic = message.topic;
    let limit = if topic_name::is_retry(topic) { RETRY_TOPIC_BYTES_MAX } else { TOPIC_BYTES_MAX };
    if topic.is_empty() || topic.len() > limit {
        return Err(IllegalMessage::TopicLength { bytes: topic.len(), limit });
    }
    if !is_directory_name(topic) {
        return Err(IllegalMessage::TopicName(topic.to_owned()));
    }
    if message.queue_id < 0 {
        return Err(IllegalMessage::QueueId(message.queue_id));
    }
    Ok(())
}
