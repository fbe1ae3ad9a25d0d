//! One header in either serialisation: what is read is the same after it was written in the other,
//! and every typed header reads it or says what is wrong.
#![no_main]

use bytes::{BufMut, BytesMut};
use libfuzzer_sys::fuzz_target;
use protocol::command::{RemotingCommand, SerializeType};
use protocol::ext_fields::ExtFields;
use protocol::frame;
use protocol::header::{Header, admin, client, group, offset, pull, query, route, send, topic};

fn framed(kind: u8, header: &[u8]) -> BytesMut {
    let mut frame = BytesMut::new();
    let length = u32::try_from(header.len()).expect("inputs are small");
    frame.put_u32(4 + length);
    frame.put_u32(u32::from(kind) << 24 | length);
    frame.put_slice(header);
    frame
}

/// The command after it was written and read in this serialisation.
fn through(command: &RemotingCommand, serialize_type: SerializeType) -> RemotingCommand {
    let command = RemotingCommand { serialize_type, ..command.clone() };
    let mut frame = BytesMut::new();
    frame::encode(&command, &mut frame).expect("what was read can be written");
    frame::decode(&mut frame, usize::MAX).expect("it is a frame").expect("it is whole")
}

/// What both serialisations can say: the binary one has no empty texts.
fn common(command: &RemotingCommand) -> RemotingCommand {
    let fields = command.ext_fields.iter();
    let fields = fields.filter(|(key, value)| !key.is_empty() && !value.is_empty());
    RemotingCommand {
        remark: command.remark.clone().filter(|remark| !remark.is_empty()),
        ext_fields: fields.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        serialize_type: SerializeType::Json,
        ..command.clone()
    }
}

/// A typed header that can be read is the same after it was written and read again.
fn typed<H: Header + PartialEq + std::fmt::Debug>(fields: &ExtFields) {
    match H::decode(fields) {
        Ok(header) => {
            let mut written = ExtFields::new();
            header.encode(&mut written);
            assert_eq!(H::decode(&written).as_ref(), Ok(&header));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn typed_all(fields: &ExtFields) {
    typed::<send::SendMessageRequestHeader>(fields);
    typed::<send::SendMessageRequestHeaderV2>(fields);
    typed::<send::SendMessageResponseHeader>(fields);
    typed::<pull::PullMessageRequestHeader>(fields);
    typed::<pull::PullMessageResponseHeader>(fields);
    typed::<offset::QueryConsumerOffsetRequestHeader>(fields);
    typed::<offset::UpdateConsumerOffsetRequestHeader>(fields);
    typed::<offset::SearchOffsetRequestHeader>(fields);
    typed::<offset::ResetOffsetRequestHeader>(fields);
    typed::<topic::CreateTopicRequestHeader>(fields);
    typed::<topic::GetAllTopicConfigRequestHeader>(fields);
    typed::<client::UnregisterClientRequestHeader>(fields);
    typed::<client::ConsumeMessageDirectlyRequestHeader>(fields);
    typed::<group::DeleteSubscriptionGroupRequestHeader>(fields);
    typed::<query::QueryMessageRequestHeader>(fields);
    typed::<route::RegisterBrokerRequestHeader>(fields);
    typed::<admin::GetBrokerConfigResponseHeader>(fields);
}

fuzz_target!(|input: &[u8]| {
    let Some((kind, header)) = input.split_first() else { return };
    let mut frame = framed(kind & 1, header);
    let Ok(Some(command)) = frame::decode(&mut frame, usize::MAX) else { return };
    typed_all(&command.ext_fields);
    let same = through(&command, command.serialize_type);
    assert_eq!(same, command);
    // The binary form has 16 bits for some numbers and for the length of a key.
    let is_small = |number: i32| i16::try_from(number).is_ok();
    let has_long_key = command.ext_fields.iter().any(|(key, _)| key.len() > 0x7FFF);
    if !is_small(command.code) || !is_small(command.version) || has_long_key {
        return;
    }
    let json = through(&command, SerializeType::Json);
    let binary = through(&command, SerializeType::RocketMq);
    assert_eq!(common(&json), common(&binary));
    assert_eq!(common(&json), common(&command));
});
