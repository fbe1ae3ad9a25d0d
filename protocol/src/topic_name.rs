//! Names of topics and groups: what is legal, what the system reserves, how derived names are made.

/// Longest topic name in characters.
pub const TOPIC_LENGTH_MAX: usize = 127;
/// Longest name of a retry or dead letter topic in characters.
pub const RETRY_TOPIC_LENGTH_MAX: usize = 255;
/// Longest group name in characters.
pub const GROUP_LENGTH_MAX: usize = 120;

/// Prefix of retry topics.
pub const RETRY_PREFIX: &str = "%RETRY%";
/// Prefix of dead letter topics.
pub const DLQ_PREFIX: &str = "%DLQ%";
/// Prefix of light message queues.
pub const LMQ_PREFIX: &str = "%LMQ%";
/// Prefix of system topics.
pub const SYSTEM_PREFIX: &str = "rmq_sys_";
/// Prefix of system consumer groups.
pub const SYSTEM_GROUP_PREFIX: &str = "CID_RMQ_SYS_";
/// Suffix of a cluster's reply topic.
pub const REPLY_SUFFIX: &str = "REPLY_TOPIC";

/// The topic from which others are created on first use.
pub const AUTO_CREATE_TOPIC: &str = "TBW102";
/// Delayed messages, one queue per level.
pub const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";
/// Topic of `BenchmarkTest`.
pub const BENCHMARK_TOPIC: &str = "BenchmarkTest";
/// Half messages.
pub const TRANS_HALF_TOPIC: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
/// What became of half messages.
pub const TRANS_OP_HALF_TOPIC: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
/// Half messages that were checked too often.
pub const TRANS_CHECK_MAX_TIME_TOPIC: &str = "TRANS_CHECK_MAX_TIME_TOPIC";
/// Message traces.
pub const TRACE_TOPIC: &str = "RMQ_SYS_TRACE_TOPIC";
/// Self test.
pub const SELF_TEST_TOPIC: &str = "SELF_TEST_TOPIC";
/// Offsets moved by the broker.
pub const OFFSET_MOVED_EVENT: &str = "OFFSET_MOVED_EVENT";
/// Used by the RocksDB store of Apache's broker.
pub const CHECKPOINT_TOPIC: &str = "CHECKPOINT_TOPIC";
/// Timed messages.
pub const TIMER_TOPIC: &str = "rmq_sys_wheel_timer";
/// Changes of topics and groups in an elected group. Not a topic of Apache's broker, whose rules
/// for names make it a system topic all the same.
pub const METADATA_TOPIC: &str = "rmq_sys_METADATA";
/// Prefix of the topic that keeps pop checkpoints; the cluster name follows.
pub const REVIVE_PREFIX: &str = "rmq_sys_REVIVE_LOG_";
/// Prefix of the topic by which brokers of a group learn of each other; the broker name follows.
pub const SYNC_BROKER_MEMBER_PREFIX: &str = "rmq_sys_SYNC_BROKER_MEMBER_";

const SYSTEM_TOPICS: &[&str] = &[
    AUTO_CREATE_TOPIC,
    SCHEDULE_TOPIC,
    BENCHMARK_TOPIC,
    TRANS_HALF_TOPIC,
    TRACE_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_EVENT,
    CHECKPOINT_TOPIC,
];

const NOT_ALLOWED_TO_SEND: &[&str] = &[
    SCHEDULE_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_EVENT,
    METADATA_TOPIC,
];

const SYSTEM_GROUPS: &[&str] = &[
    "DEFAULT_PRODUCER",
    "DEFAULT_CONSUMER",
    "TOOLS_CONSUMER",
    "SCHEDULE_CONSUMER",
    "FILTERSRV_CONSUMER",
    "__MONITOR_CONSUMER",
    "CLIENT_INNER_PRODUCER",
    "SELF_TEST_P_GROUP",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_ONSAPI_PULL",
];

/// Why a topic or group name is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Empty or blank.
    #[error("the specified {kind} is blank")]
    Blank {
        /// `topic` or `group`.
        kind: &'static str,
    },
    /// A character outside `%|a-zA-Z0-9_-`.
    #[error("the specified {kind} {name:?} contains {illegal:?}, allowing only ^[%|a-zA-Z0-9_-]+$")]
    IllegalCharacter {
        /// `topic` or `group`.
        kind: &'static str,
        /// The whole name.
        name: String,
        /// The first character that is not allowed.
        illegal: char,
    },
    /// Too long.
    #[error("the specified {kind} has {length} characters, longer than the limit of {limit}")]
    TooLong {
        /// `topic` or `group`.
        kind: &'static str,
        /// Characters in the name.
        length: usize,
        /// Characters allowed.
        limit: usize,
    },
}

/// Checks a topic name as Apache's broker does.
///
/// # Errors
/// The name is blank, too long, or has a character that is not allowed.
pub fn validate_topic(topic: &str) -> Result<(), NameError> {
    let limit =
        if is_retry(topic) || is_dlq(topic) { RETRY_TOPIC_LENGTH_MAX } else { TOPIC_LENGTH_MAX };
    validate("topic", topic, limit)
}

/// Checks a group name as Apache's broker does.
///
/// # Errors
/// The name is blank, too long, or has a character that is not allowed.
pub fn validate_group(group: &str) -> Result<(), NameError> {
    validate("group", group, GROUP_LENGTH_MAX)
}

fn validate(kind: &'static str, name: &str, limit: usize) -> Result<(), NameError> {
    if name.trim().is_empty() {
        return Err(NameError::Blank { kind });
    }
    let legal = |letter: char| letter.is_ascii_alphanumeric() || "%|_-".contains(letter);
    if let Some(illegal) = name.chars().find(|letter| !legal(*letter)) {
        return Err(NameError::IllegalCharacter { kind, name: name.to_owned(), illegal });
    }
    let length = name.chars().count();
    if length > limit {
        return Err(NameError::TooLong { kind, length, limit });
    }
    Ok(())
}

/// The topic to which messages return that `group` could not consume.
#[must_use]
pub fn retry_topic(group: &str) -> String {
    format!("{RETRY_PREFIX}{group}")
}

/// The topic for messages that `group` could not consume at all.
#[must_use]
pub fn dlq_topic(group: &str) -> String {
    format!("{DLQ_PREFIX}{group}")
}

/// The retry topic of pop consumers, one per group and topic.
#[must_use]
pub fn pop_retry_topic(group: &str, topic: &str) -> String {
    format!("{RETRY_PREFIX}{group}_{topic}")
}

/// The topic for replies within a cluster.
#[must_use]
pub fn reply_topic(cluster: &str) -> String {
    format!("{cluster}_{REPLY_SUFFIX}")
}

/// Whether this is a retry topic.
#[must_use]
pub fn is_retry(topic: &str) -> bool {
    topic.starts_with(RETRY_PREFIX)
}

/// Whether this is a dead letter topic.
#[must_use]
pub fn is_dlq(topic: &str) -> bool {
    topic.starts_with(DLQ_PREFIX)
}

/// Whether this is a light message queue.
#[must_use]
pub fn is_lmq(topic: &str) -> bool {
    topic.starts_with(LMQ_PREFIX)
}

/// Whether the system owns this topic.
#[must_use]
pub fn is_system(topic: &str) -> bool {
    SYSTEM_TOPICS.contains(&topic) || topic.starts_with(SYSTEM_PREFIX)
}

/// Whether clients are refused to send to this topic.
#[must_use]
pub fn is_closed_to_clients(topic: &str) -> bool {
    NOT_ALLOWED_TO_SEND.contains(&topic)
}

/// Whether the system owns this group.
#[must_use]
pub fn is_system_group(group: &str) -> bool {
    SYSTEM_GROUPS.contains(&group) || group.starts_with(SYSTEM_GROUP_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_as_apache_does() {
        for topic in ["a", "%RETRY%ns%g", "A-b_c|d%", &"t".repeat(127)] {
            assert_eq!(validate_topic(topic), Ok(()), "{topic}");
        }
        let retry = retry_topic(&"g".repeat(248));
        assert_eq!(validate_topic(&retry), Ok(()));
        assert_eq!(validate_topic(""), Err(NameError::Blank { kind: "topic" }));
        assert_eq!(validate_topic("  "), Err(NameError::Blank { kind: "topic" }));
        assert_eq!(
            validate_topic(&"t".repeat(128)),
            Err(NameError::TooLong { kind: "topic", length: 128, limit: 127 })
        );
        assert!(validate_topic(&retry_topic(&"g".repeat(249))).is_err());
        for topic in ["a b", "a/b", "a+b", "订单", "../x"] {
            assert!(
                matches!(validate_topic(topic), Err(NameError::IllegalCharacter { .. })),
                "{topic}"
            );
        }
        assert_eq!(validate_group(&"g".repeat(120)), Ok(()));
        assert!(validate_group(&"g".repeat(121)).is_err());
    }

    #[test]
    fn derived_and_system_names() {
        assert_eq!(retry_topic("g"), "%RETRY%g");
        assert_eq!(dlq_topic("g"), "%DLQ%g");
        assert_eq!(pop_retry_topic("g", "t"), "%RETRY%g_t");
        assert_eq!(reply_topic("c"), "c_REPLY_TOPIC");
        assert!(is_system("rmq_sys_wheel_timer"));
        assert!(is_system("TBW102"));
        assert!(!is_system("orders"));
        assert!(is_closed_to_clients(SCHEDULE_TOPIC));
        assert!(!is_closed_to_clients(AUTO_CREATE_TOPIC));
        assert!(is_system_group("CID_RMQ_SYS_TRANS"));
        assert!(is_lmq("%LMQ%a") && is_dlq("%DLQ%g") && is_retry("%RETRY%g"));
    }
}
