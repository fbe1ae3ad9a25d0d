//! Sending messages and sending them back.

use super::{FieldValue, Header, HeaderError, header};
use crate::ext_fields::ExtFields;

header! {
    /// `SEND_MESSAGE`, and under one-letter names `SEND_MESSAGE_V2` and `SEND_BATCH_MESSAGE`.
    pub struct SendMessageRequestHeader {
        producer_group: String = "producerGroup",
        topic: String = "topic",
        /// Topic whose settings a topic that is created by this send takes over.
        default_topic: String = "defaultTopic",
        default_topic_queue_nums: i32 = "defaultTopicQueueNums",
        /// Negative: the broker picks a write queue.
        queue_id: i32 = "queueId",
        sys_flag: i32 = "sysFlag",
        /// Milliseconds since the epoch.
        born_timestamp: i64 = "bornTimestamp",
        flag: i32 = "flag",
        properties: Option<String> = "properties",
        reconsume_times: Option<i32> = "reconsumeTimes",
        unit_mode: Option<bool> = "unitMode",
        max_reconsume_times: Option<i32> = "maxReconsumeTimes",
        /// The body holds several messages.
        batch: Option<bool> = "batch",
        broker_name: Option<String> = "bname",
    }

    /// Answer to every kind of send that was stored.
    pub struct SendMessageResponseHeader {
        /// Offset message id; several joined by commas for a batch.
        msg_id: String = "msgId",
        queue_id: i32 = "queueId",
        queue_offset: i64 = "queueOffset",
        transaction_id: Option<String> = "transactionId",
        batch_uniq_id: Option<String> = "batchUniqId",
        recall_handle: Option<String> = "recallHandle",
    }

    /// `CONSUMER_SEND_MSG_BACK`.
    pub struct ConsumerSendMsgBackRequestHeader {
        /// Commit log offset of the message.
        offset: i64 = "offset",
        group: String = "group",
        /// 0: by the number of earlier deliveries; negative: to the dead letters.
        delay_level: i32 = "delayLevel",
        origin_msg_id: Option<String> = "originMsgId",
        origin_topic: Option<String> = "originTopic",
        unit_mode: bool = "unitMode" or false,
        max_reconsume_times: Option<i32> = "maxReconsumeTimes",
    }
}

/// [`SendMessageRequestHeader`] under the one-letter names of the V2 codes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SendMessageRequestHeaderV2(pub SendMessageRequestHeader);

impl Header for SendMessageRequestHeaderV2 {
    fn encode(&self, fields: &mut ExtFields) {
        let header = &self.0;
        let mut put = |key, value: &dyn Fn(&mut String) -> bool| fields.push_with(key, value);
        put("a", &|text| header.producer_group.write_field(text));
        put("b", &|text| header.topic.write_field(text));
        put("c", &|text| header.default_topic.write_field(text));
        put("d", &|text| header.default_topic_queue_nums.write_field(text));
        put("e", &|text| header.queue_id.write_field(text));
        put("f", &|text| header.sys_flag.write_field(text));
        put("g", &|text| header.born_timestamp.write_field(text));
        put("h", &|text| header.flag.write_field(text));
        put("i", &|text| header.properties.write_field(text));
        put("j", &|text| header.reconsume_times.write_field(text));
        put("k", &|text| header.unit_mode.write_field(text));
        put("l", &|text| header.max_reconsume_times.write_field(text));
        put("m", &|text| header.batch.write_field(text));
        put("bname", &|text| header.broker_name.write_field(text));
    }

    fn decode(fields: &ExtFields) -> Result<Self, HeaderError> {
        fn get<T: FieldValue>(fields: &ExtFields, key: &'static str) -> Result<T, HeaderError> {
            T::from_field(key, fields.get(key))
        }
        Ok(Self(SendMessageRequestHeader {
            producer_group: get(fields, "a")?,
            topic: get(fields, "b")?,
            default_topic: get(fields, "c")?,
            default_topic_queue_nums: get(fields, "d")?,
            queue_id: get(fields, "e")?,
            sys_flag: get(fields, "f")?,
            born_timestamp: get(fields, "g")?,
            flag: get(fields, "h")?,
            properties: get(fields, "i")?,
            reconsume_times: get(fields, "j")?,
            unit_mode: get(fields, "k")?,
            max_reconsume_times: get(fields, "l")?,
            batch: get(fields, "m")?,
            // Java has both names for it, depending on the serialisation.
            broker_name: match get(fields, "bname")? {
                None => get(fields, "n")?,
                name => name,
            },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_name_sets_carry_the_same_header() {
        let header = SendMessageRequestHeader {
            producer_group: "g".into(),
            topic: "t".into(),
            default_topic: "TBW102".into(),
            default_topic_queue_nums: 4,
            queue_id: 3,
            sys_flag: 1,
            born_timestamp: 5,
            flag: 6,
            properties: Some("a\u{1}b\u{2}".into()),
            reconsume_times: Some(0),
            unit_mode: Some(false),
            max_reconsume_times: Some(16),
            batch: Some(true),
            broker_name: Some("b".into()),
        };
        let mut long = ExtFields::new();
        header.encode(&mut long);
        assert_eq!(SendMessageRequestHeader::decode(&long), Ok(header.clone()));
        let mut short = ExtFields::new();
        SendMessageRequestHeaderV2(header.clone()).encode(&mut short);
        assert_eq!(short.get("i"), Some("a\u{1}b\u{2}"));
        assert_eq!(SendMessageRequestHeaderV2::decode(&short).unwrap().0, header);
    }
}
