//! What can go wrong, one closed enum per operation.

use std::io;
use std::path::{Path, PathBuf};

use protocol::message_codec::EncodeError;

/// Why a store could not be opened, cleaned or shut down.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk refused an operation.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, such as `create`.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// Another process has the store open.
    #[error("store {} is locked by another broker process", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// A file has another size than the configuration says.
    #[error(
        "{} has {found} bytes but {key} is {expected}; set {key} to the size that the store was \
         written with", path.display()
    )]
    SegmentSize {
        /// The file.
        path: PathBuf,
        /// Its size.
        found: u64,
        /// The configured size.
        expected: u64,
        /// The key of broker.conf that sets it.
        key: &'static str,
    },
    /// A file between two others is missing.
    #[error(
        "commit log file {} follows one that ends at {expected}: a file between is missing",
        path.display()
    )]
    SegmentGap {
        /// The file after the gap.
        path: PathBuf,
        /// Offset at which a file should begin.
        expected: i64,
    },
    /// The commit log is damaged below what was certainly on the disk.
    #[error(
        "{} is damaged at offset {offset} ({reason}), but messages up to offset {expected} had \
         been stored; restore the file, or start with recoveryCutDamagedLog=true to keep what lies \
         before the damage and move the rest to the directory `truncated`", path.display()
    )]
    Damaged {
        /// The commit log.
        path: PathBuf,
        /// Where the valid part ends.
        offset: i64,
        /// Where it should end at least.
        expected: i64,
        /// What is wrong there.
        reason: String,
    },
    /// A kind of store that this broker does not read.
    #[error("{} cannot be opened: {reason}", path.display())]
    Unsupported {
        /// What was found.
        path: PathBuf,
        /// Why it cannot be used, and what to do.
        reason: &'static str,
    },
    /// A configuration value is out of range.
    #[error("{key} = {value}: {reason}")]
    Config {
        /// Key of broker.conf.
        key: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        reason: &'static str,
    },
}

impl StoreError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}

/// Why a message was not stored. Nothing of it will ever be read, unless the error says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// The message breaks a rule (MESSAGE_ILLEGAL).
    #[error(transparent)]
    Illegal(#[from] IllegalMessage),
    /// The store takes no messages at present (SERVICE_NOT_AVAILABLE).
    #[error("the store is not writable: {0}")]
    NotWritable(String),
    /// More is waiting to be written than the limits allow (SYSTEM_BUSY).
    #[error(
        "{waiting_bytes} bytes in {waiting_messages} messages are waiting to be stored, the limit \
         is {bytes_max} bytes and {messages_max} messages"
    )]
    Busy {
        /// Bytes accepted but not yet readable.
        waiting_bytes: usize,
        /// Messages accepted but not yet readable.
        waiting_messages: usize,
        /// Limit of bytes.
        bytes_max: usize,
        /// Limit of messages.
        messages_max: usize,
    },
    /// Writing or flushing failed. The message may or may not be there after a restart; nothing
    /// more is accepted until then.
    #[error("the store failed while the message was being stored: {0}")]
    Failed(String),
    /// The store was shut down before the message was written.
    #[error("the store is shut down")]
    Shutdown,
    /// The broker ceased to be master before the message was confirmed. It may or may not be in
    /// the log that the next master keeps.
    #[error("the broker ceased to be master before the message was confirmed")]
    Demoted,
}

/// Why a log could not be read, appended to or cut for replication.
#[derive(Debug, thiserror::Error)]
pub enum ReplicationError {
    /// The bytes do not belong at the end of the log.
    #[error("the log ends at {end}, not at {offset}")]
    NotAtEnd {
        /// Offset of the bytes.
        offset: i64,
        /// End of the log.
        end: i64,
    },
    /// The bytes are no records.
    #[error("what should be a record at {offset} is none: {reason}")]
    Malformed {
        /// Where the first wrong record should lie.
        offset: i64,
        /// What is wrong.
        reason: String,
    },
    /// The log has no such offset.
    #[error("offset {offset} is not in the log, which reaches from {min} to {end}")]
    OutOfRange {
        /// Offset asked for.
        offset: i64,
        /// First byte of the log.
        min: i64,
        /// End of the log.
        end: i64,
    },
    /// Only a slave's log is appended to and cut.
    #[error("the broker is master")]
    NotSlave,
    /// What is confirmed or readable is never cut.
    #[error("the log cannot be cut at {to}, it is confirmed up to {confirmed}")]
    Confirmed {
        /// Where it was to be cut.
        to: i64,
        /// Where it may be cut at the earliest.
        confirmed: i64,
    },
    /// No record begins or ends there.
    #[error("the log cannot be cut at {to}, in the middle of a record")]
    NotBoundary {
        /// Where it was to be cut.
        to: i64,
    },
    /// The store takes nothing at present.
    #[error("the store is not writable: {0}")]
    NotWritable(String),
    /// The disk refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The disk refuses.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Which rule a message breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IllegalMessage {
    /// A part is too long for its length field.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// More body than maxMessageSize.
    #[error("message body of {bytes} bytes is larger than maxMessageSize {limit}")]
    BodyTooLarge {
        /// Bytes of the body, of all bodies for a batch.
        bytes: usize,
        /// maxMessageSize.
        limit: usize,
    },
    /// The record does not fit a commit log file.
    #[error("record of {bytes} bytes does not fit a commit log file of {limit} bytes")]
    RecordTooLarge {
        /// Bytes of the record, of all records for a batch.
        bytes: usize,
        /// What fits.
        limit: usize,
    },
    /// No topic, or more than 127 bytes (255 for retry topics).
    #[error("topic has {bytes} bytes, between 1 and {limit} are allowed")]
    TopicLength {
        /// Bytes of the topic.
        bytes: usize,
        /// Limit for this kind of topic.
        limit: usize,
    },
    /// A topic that cannot be the name of a directory.
    #[error("topic {0:?} cannot be stored: it would not be one directory below consumequeue")]
    TopicName(String),
    /// A negative queue.
    #[error("queue id {0} is negative")]
    QueueId(i32),
    /// A batch without messages.
    #[error("the batch is empty")]
    EmptyBatch,
    /// A batch whose messages go to different queues.
    #[error("the messages of a batch go to different topics or queues")]
    MixedBatch,
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The disk refused, or a file is shorter than it should be.
    #[error("cannot read {bytes} bytes at {offset} of {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Position in the file.
        offset: u64,
        /// Bytes wanted.
        bytes: usize,
        /// What the disk said.
        source: io::Error,
    },
}
