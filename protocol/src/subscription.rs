//! Subscriptions and subscription groups.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// What a consumer group wants of one topic, as heartbeats carry it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionData {
    /// Filter by class, a feature long gone.
    pub class_filter_mode: bool,
    /// Hash of each tag, see [`crate::tag`].
    #[serde(deserialize_with = "codes")]
    pub code_set: BTreeSet<i32>,
    /// "TAG" or "SQL92".
    pub expression_type: String,
    /// `*`, tags joined by `||`, or an SQL expression.
    pub sub_string: String,
    /// When the subscription was made; the larger one counts.
    pub sub_version: i64,
    /// The tags.
    pub tags_set: BTreeSet<String>,
    /// The topic.
    pub topic: String,
}

/// Reads hashes, which the Go client writes as texts.
fn codes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<i32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Code {
        Number(i32),
        Text(String),
    }
    let codes: Vec<Code> = Deserialize::deserialize(deserializer)?;
    let number = |code| match code {
        Code::Number(number) => Ok(number),
        Code::Text(text) => text.parse().map_err(D::Error::custom),
    };
    codes.into_iter().map(number).collect()
}

/// Subscribes to every message.
pub const SUB_ALL: &str = "*";
/// The expression type that filters by tag.
pub const EXPRESSION_TAG: &str = "TAG";
/// The expression type that filters by properties.
pub const EXPRESSION_SQL92: &str = "SQL92";

impl Default for SubscriptionData {
    fn default() -> Self {
        Self {
            class_filter_mode: false,
            code_set: BTreeSet::new(),
            expression_type: EXPRESSION_TAG.to_owned(),
            sub_string: SUB_ALL.to_owned(),
            sub_version: 0,
            tags_set: BTreeSet::new(),
            topic: String::new(),
        }
    }
}

impl SubscriptionData {
    /// A subscription by tags: `*`, empty, or tags joined by `||`.
    pub fn by_tags(topic: impl Into<String>, expression: &str, sub_version: i64) -> Self {
        let mut data = Self { topic: topic.into(), sub_version, ..Self::default() };
        let expression = expression.trim();
        if expression.is_empty() || expression == SUB_ALL {
            return data;
        }
        data.sub_string = expression.to_owned();
        for tag in expression.split("||").map(str::trim).filter(|tag| !tag.is_empty()) {
            data.tags_set.insert(tag.to_owned());
            data.code_set.insert(crate::tag::java_hash(tag));
        }
        data
    }

    /// Whether it filters by tag, which is also the case when no type was sent.
    pub fn is_tag_type(&self) -> bool {
        self.expression_type.is_empty() || self.expression_type == EXPRESSION_TAG
    }

    /// Whether every message matches.
    pub fn is_all(&self) -> bool {
        self.sub_string == SUB_ALL
    }

    /// Whether a message with this tag hash may match; consumers compare the tag itself.
    pub fn matches_tags_code(&self, tags_code: i64) -> bool {
        self.is_all() || i32::try_from(tags_code).is_ok_and(|code| self.code_set.contains(&code))
    }
}

/// Settings of a consumer group, as in `subscriptionGroup.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct SubscriptionGroupConfig {
    pub attributes: BTreeMap<String, String>,
    /// Broker that consumers pull from: 0, the master.
    pub broker_id: i64,
    pub consume_broadcast_enable: bool,
    pub consume_enable: bool,
    pub consume_from_min_enable: bool,
    pub consume_message_orderly: bool,
    pub consume_timeout_minute: i32,
    pub group_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_retry_policy: Option<serde_json::Value>,
    pub group_sys_flag: i32,
    pub notify_consumer_ids_changed_enable: bool,
    /// Deliveries before a message goes to the dead letters.
    pub retry_max_times: i32,
    /// Queues of the retry topic.
    pub retry_queue_nums: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription_data_set: Option<serde_json::Value>,
    /// Broker that is suggested to consumers that are far behind.
    pub which_broker_when_consume_slowly: i64,
}

impl Default for SubscriptionGroupConfig {
    fn default() -> Self {
        Self {
            attributes: BTreeMap::new(),
            broker_id: 0,
            consume_broadcast_enable: true,
            consume_enable: true,
            consume_from_min_enable: true,
            consume_message_orderly: false,
            consume_timeout_minute: 15,
            group_name: String::new(),
            group_retry_policy: None,
            group_sys_flag: 0,
            notify_consumer_ids_changed_enable: true,
            retry_max_times: 16,
            retry_queue_nums: 1,
            subscription_data_set: None,
            which_broker_when_consume_slowly: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_may_be_numbers_or_texts() {
        let read = |text: &str| crate::json::from_slice::<SubscriptionData>(text.as_bytes());
        let go = r#"{"topic":"t","subString":"a","codeSet":["3178743", -5],"tagsSet":["a"]}"#;
        assert_eq!(read(go).unwrap().code_set, BTreeSet::from([3_178_743, -5]));
        assert!(read(r#"{"codeSet":["many"]}"#).is_err());
        assert!(read(r#"{"codeSet":[4294967296]}"#).is_err());
        assert!(read("{}").unwrap().code_set.is_empty());
    }

    #[test]
    fn tags_are_split_and_hashed() {
        let check = |expression: &str, tags: &[&str]| {
            let data = SubscriptionData::by_tags("t", expression, 1);
            assert_eq!(data.tags_set.iter().map(String::as_str).collect::<Vec<_>>(), tags);
            assert_eq!(data.code_set.len(), tags.len());
            assert_eq!(data.is_all(), tags.is_empty());
        };
        check("", &[]);
        check(" * ", &[]);
        check("a", &["a"]);
        check("b || a||", &["a", "b"]);
        let data = SubscriptionData::by_tags("t", "TagA", 1);
        assert!(data.matches_tags_code(2_598_919));
        assert!(!data.matches_tags_code(0));
        assert!(!data.matches_tags_code(i64::MAX));
    }
}
