//! The properties of a message on its way in: what the broker has to know of them, and what it
//! changes. They are rewritten in one pass over the text.

use protocol::message_id::UniqueIdGenerator;
use protocol::property;
use protocol::response_code::ResponseCode;

use crate::broker::Identity;
use crate::clock::now_ms;
use crate::config::BrokerConfig;
use crate::refusal::Refusal;

/// Makes ids for messages whose sender gave them none.
static UNIQUE_IDS: std::sync::OnceLock<UniqueIdGenerator> = std::sync::OnceLock::new();

/// What the broker has to know of a message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Incoming<'a> {
    pub(super) unique_key: Option<&'a str>,
    /// 0 or less: no delay.
    pub(super) delay_level: i32,
    /// It is the first half of a transaction.
    pub(super) is_half: bool,
    /// It asks for a delay that is no level.
    pub(super) is_timed: bool,
    /// Its sender does not wait for flush and slaves.
    pub(super) is_unwaited: bool,
    is_ordered: bool,
}

impl<'a> Incoming<'a> {
    pub(super) fn read(properties: &'a str) -> Result<Self, Refusal> {
        let mut incoming = Self::default();
        for (name, value) in property::entries(properties) {
            match name {
                property::UNIQUE_KEY => incoming.unique_key = Some(value),
                property::DELAY => {
                    incoming.delay_level = value.parse().map_err(|_| {
                        let remark = format!("DELAY is {value:?}, but must be a number");
                        Refusal::new(ResponseCode::MESSAGE_ILLEGAL, remark)
                    })?;
                }
                property::TRANSACTION_PREPARED => {
                    incoming.is_half = value.eq_ignore_ascii_case("true");
                }
                property::TIMER_DELAY_SEC
                | property::TIMER_DELAY_MS
                | property::TIMER_DELIVER_MS => incoming.is_timed = true,
                property::SHARDING_KEY => incoming.is_ordered = true,
                property::WAIT => incoming.is_unwaited = value == "false",
                _ => {}
            }
        }
        Ok(incoming)
    }

    /// As metrics name it.
    pub(super) fn message_type(&self) -> &'static str {
        match self {
            Self { is_half: true, .. } => "transaction",
            Self { delay_level: 1.., .. } => "delay",
            Self { is_ordered: true, .. } => "fifo",
            _ => "normal",
        }
    }
}

/// What the broker writes into the properties.
pub(super) struct Rewrite<'a> {
    region: &'a str,
    trace_on: bool,
    cluster: &'a str,
    unique_key: Option<&'a str>,
    store_host: std::net::IpAddr,
    /// Level, topic and queue of a delayed message.
    delay: Option<(i32, String, i32)>,
}

impl<'a> Rewrite<'a> {
    pub(super) fn new(
        settings: &'a BrokerConfig,
        identity: &'a Identity,
        incoming: &Incoming<'a>,
    ) -> Self {
        Self {
            region: &settings.region_id,
            trace_on: settings.trace_on,
            cluster: &identity.cluster,
            unique_key: incoming.unique_key,
            store_host: identity.store_host.ip(),
            delay: None,
        }
    }

    /// The message is delivered to this topic and queue after the delay of a level.
    pub(super) fn delay(&mut self, level: i32, topic: &str, queue_id: i32) {
        self.delay = Some((level, topic.to_owned(), queue_id));
    }

    /// The new properties, and the unique key in them.
    pub(super) fn finish(self, properties: &str) -> (String, String) {
        let is_delayed = self.delay.is_some();
        let is_dropped = |name: &str| match name {
            property::POP_CK | property::MSG_REGION | property::TRACE_ON | property::CLUSTER => {
                true
            }
            property::DELAY
            | property::REAL_TOPIC
            | property::REAL_QUEUE_ID
            | property::TIMER_DELAY_SEC
            | property::TIMER_DELAY_MS
            | property::TIMER_DELIVER_MS => is_delayed,
            _ => name.starts_with(property::TRANSIENT_PREFIX),
        };
        let mut text = String::with_capacity(properties.len() + 128);
        for (name, value) in property::entries(properties).filter(|(name, _)| !is_dropped(name)) {
            property::append(&mut text, name, value);
        }
        let unique_key = self.unique_key.map_or_else(
            || {
                let id = new_unique_key(self.store_host);
                property::append(&mut text, property::UNIQUE_KEY, &id);
                id
            },
            str::to_owned,
        );
        property::append(&mut text, property::MSG_REGION, self.region);
        property::append(&mut text, property::TRACE_ON, &self.trace_on.to_string());
        property::append(&mut text, property::CLUSTER, self.cluster);
        if let Some((level, topic, queue_id)) = &self.delay {
            property::append(&mut text, property::DELAY, &level.to_string());
            property::append(&mut text, property::REAL_TOPIC, topic);
            property::append(&mut text, property::REAL_QUEUE_ID, &queue_id.to_string());
        }
        (text, unique_key)
    }
}

fn new_unique_key(address: std::net::IpAddr) -> String {
    let ids = UNIQUE_IDS
        .get_or_init(|| UniqueIdGenerator::new(address, std::process::id(), rand::random()));
    ids.next_id(now_ms())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewrite(text: &str, delay: Option<(i32, &str, i32)>) -> Vec<(String, String)> {
        let settings = BrokerConfig::default();
        let identity = Identity {
            cluster: "c".into(),
            broker: "b".into(),
            id: 0,
            address: "b:1".into(),
            ha_address: "b:2".into(),
            store_host: "127.0.0.1:1".parse().unwrap(),
        };
        let incoming = Incoming::read(text).unwrap();
        let mut rewrite = Rewrite::new(&settings, &identity, &incoming);
        if let Some((level, topic, queue_id)) = delay {
            rewrite.delay(level, topic, queue_id);
        }
        let (text, unique_key) = rewrite.finish(text);
        assert_eq!(property::get(&text, "UNIQ_KEY"), Some(unique_key.as_str()));
        property::entries(&text).map(|(name, value)| (name.into(), value.into())).collect()
    }

    fn names(pairs: &[(String, String)]) -> Vec<String> {
        pairs.iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn the_broker_adds_and_removes_its_own() {
        let text = property::encode([
            ("k", "v"),
            ("UNIQ_KEY", "id"),
            ("POP_CK", "x"),
            ("CLUSTER", "other"),
            ("DELAY", "0"),
            ("__RMQ.TRANSIENT.TOPIC_SYS_FLAG", "1"),
        ]);
        let expected = [
            "k=v",
            "UNIQ_KEY=id",
            "DELAY=0",
            "MSG_REGION=DefaultRegion",
            "TRACE_ON=true",
            "CLUSTER=c",
        ];
        assert_eq!(names(&rewrite(&text, None)), expected);
        assert_eq!(rewrite("", None)[0].1.len(), 32, "an id is made");
    }

    #[test]
    fn a_delayed_message_remembers_where_it_goes() {
        let text = property::encode([
            ("UNIQ_KEY", "id"),
            ("DELAY", "99"),
            ("REAL_TOPIC", "forged"),
            ("TIMER_DELIVER_MS", "5"),
        ]);
        let pairs = rewrite(&text, Some((18, "t", 3)));
        let expected = [
            "UNIQ_KEY=id",
            "MSG_REGION=DefaultRegion",
            "TRACE_ON=true",
            "CLUSTER=c",
            "DELAY=18",
            "REAL_TOPIC=t",
            "REAL_QID=3",
        ];
        assert_eq!(names(&pairs), expected);
    }

    #[test]
    fn kinds_are_told_apart() {
        let kind = |pairs: &[(&str, &str)]| {
            let text = property::encode(pairs.iter().copied());
            let incoming = Incoming::read(&text).unwrap();
            (incoming.message_type(), incoming.is_timed)
        };
        assert_eq!(kind(&[]), ("normal", false));
        assert_eq!(kind(&[("DELAY", "3")]), ("delay", false));
        assert_eq!(kind(&[("TRAN_MSG", "true"), ("DELAY", "3")]), ("transaction", false));
        assert_eq!(kind(&[("__SHARDINGKEY", "k"), ("TIMER_DELAY_MS", "5")]), ("fifo", true));
        let error = Incoming::read("DELAY\u{1}x\u{2}").unwrap_err();
        assert_eq!(error.code, ResponseCode::MESSAGE_ILLEGAL);
    }
}
