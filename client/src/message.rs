//! A message to be sent.

use std::collections::BTreeMap;

use bytes::Bytes;
use protocol::{property, topic_name};

use crate::MessageRefused;

/// A message to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Where it goes.
    pub topic: String,
    /// What it says.
    pub body: Bytes,
    /// The tag by which consumers filter.
    pub tag: Option<String>,
    /// Keys by which it can be found.
    pub keys: Vec<String>,
    /// Properties of the user.
    pub properties: BTreeMap<String, String>,
    /// A number for the user's own purposes.
    pub flag: i32,
    /// 1 to 18: deliver later, by the broker's table of delays.
    pub delay_level: Option<i32>,
    /// The broker answers before the message is as safe as it is set to make it.
    pub no_wait: bool,
}

impl Message {
    /// A message without tag, keys or properties.
    pub fn new(topic: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { topic: topic.into(), body: body.into(), ..Self::default() }
    }

    /// Sets the tag.
    #[must_use]
    pub fn with_tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// Adds a key.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<String>) -> Self {
        self.keys.push(key.into());
        self
    }

    /// Sets a property.
    #[must_use]
    pub fn with_property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(name.into(), value.into());
        self
    }

    /// Checks what a broker would refuse or, worse, misread.
    pub(crate) fn validate(&self, body_bytes_max: usize) -> Result<(), MessageRefused> {
        topic_name::validate_topic(&self.topic)?;
        if topic_name::is_closed_to_clients(&self.topic) {
            return Err(MessageRefused::SystemTopic { topic: self.topic.clone() });
        }
        if self.body.is_empty() {
            return Err(MessageRefused::EmptyBody);
        }
        if self.body.len() > body_bytes_max {
            let bytes = self.body.len();
            return Err(MessageRefused::TooLarge { bytes, limit: body_bytes_max });
        }
        for (name, value) in &self.properties {
            if property::is_reserved(name) {
                return Err(MessageRefused::ReservedProperty { name: name.clone() });
            }
            if !property::is_writable(name) || !property::is_writable(value) {
                return Err(MessageRefused::IllegalProperty { name: name.clone() });
            }
        }
        let tag = self.tag.as_ref();
        if let Some(tag) = tag.filter(|tag| !property::is_writable(tag) || tag.contains("||")) {
            return Err(MessageRefused::IllegalTag { tag: tag.clone() });
        }
        let blank = |key: &&String| key.contains(char::is_whitespace);
        if let Some(key) = self.keys.iter().find(|key| !property::is_writable(key) || blank(key)) {
            return Err(MessageRefused::IllegalKey { key: key.clone() });
        }
        match self.delay_level {
            Some(level) if !(1..=18).contains(&level) => Err(MessageRefused::DelayLevel { level }),
            _ => Ok(()),
        }
    }

    /// The properties string, with the id under which users know the message.
    pub(crate) fn properties_string(&self, unique_key: &str) -> Result<String, MessageRefused> {
        let mut text = String::with_capacity(64);
        for (name, value) in &self.properties {
            property::append(&mut text, name, value);
        }
        if let Some(tag) = &self.tag {
            property::append(&mut text, property::TAGS, tag);
        }
        if !self.keys.is_empty() {
            property::append(&mut text, property::KEYS, &self.keys.join(" "));
        }
        if let Some(level) = self.delay_level {
            property::append(&mut text, property::DELAY, &level.to_string());
        }
        if self.no_wait {
            property::append(&mut text, property::WAIT, "false");
        }
        property::append(&mut text, property::UNIQUE_KEY, unique_key);
        let (bytes, limit) = (text.len(), property::LENGTH_MAX);
        if bytes > limit {
            return Err(MessageRefused::PropertiesTooLarge { bytes, limit });
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_brokers_would_refuse_or_misread_is_refused() {
        let good = || Message::new("orders", "body");
        let check = |message: Message, expected: Option<MessageRefused>| {
            assert_eq!(message.validate(8).err(), expected, "{message:?}");
        };
        check(good().with_tag("a").with_key("k").with_property("p", "v"), None);
        check(Message::new("orders", ""), Some(MessageRefused::EmptyBody));
        let too_large = MessageRefused::TooLarge { bytes: 9, limit: 8 };
        check(Message::new("orders", "123456789"), Some(too_large));
        let topic = "SCHEDULE_TOPIC_XXXX";
        let system = MessageRefused::SystemTopic { topic: topic.into() };
        check(Message::new(topic, "x"), Some(system));
        let tag = MessageRefused::IllegalTag { tag: "a||b".into() };
        check(good().with_tag("a||b"), Some(tag));
        let key = MessageRefused::IllegalKey { key: "a b".into() };
        check(good().with_key("a b"), Some(key));
        let reserved = MessageRefused::ReservedProperty { name: "UNIQ_KEY".into() };
        check(good().with_property("UNIQ_KEY", "x"), Some(reserved));
        let illegal = MessageRefused::IllegalProperty { name: "p".into() };
        check(good().with_property("p", "a\u{2}"), Some(illegal));
        let level = Message { delay_level: Some(19), ..good() };
        check(level, Some(MessageRefused::DelayLevel { level: 19 }));
        assert!(matches!(
            Message::new("a b", "x").validate(8),
            Err(MessageRefused::Topic(topic_name::NameError::IllegalCharacter { .. }))
        ));
    }

    #[test]
    fn properties_are_what_java_would_write() {
        let message = Message { delay_level: Some(3), no_wait: true, ..Message::new("t", "x") }
            .with_tag("T")
            .with_key("k1")
            .with_key("k2")
            .with_property("color", "red");
        let text = message.properties_string("ID").unwrap();
        let map = property::parse(&text);
        let expected = [
            ("DELAY", "3"),
            ("KEYS", "k1 k2"),
            ("TAGS", "T"),
            ("UNIQ_KEY", "ID"),
            ("WAIT", "false"),
            ("color", "red"),
        ];
        let found: Vec<_> =
            map.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(found, expected);
        let long = message.with_property("long", "x".repeat(40_000)).properties_string("ID");
        assert!(matches!(long, Err(MessageRefused::PropertiesTooLarge { .. })));
    }
}
