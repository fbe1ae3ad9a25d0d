//! Bodies of requests: registrations, heartbeats, tables in fastjson's dialect, batches. What can
//! be read is the same after it was written and read again.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use protocol::body::{
    ConsumeStats, ConsumerConnection, ConsumerOffsetTable, GroupList, KvTable, LockBatchRequest,
    ResetOffsetBody, SubscriptionGroupWrapper, TopicConfigTable, TopicList, TopicStatsTable,
};
use protocol::heartbeat::HeartbeatData;
use protocol::register_broker::RegisterBrokerBody;
use protocol::route::{ClusterInfo, TopicRouteData};
use protocol::subscription::SubscriptionData;
use protocol::{batch, json};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Messages of a batch at most.
const BATCH_MAX: usize = 1_000;

fn table<T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(text: &[u8]) {
    let Ok(value) = json::from_slice::<T>(text) else { return };
    let written =
        [json::to_vec(&value), json::to_vec_fastjson(&value), json::to_vec_pretty(&value)];
    // What is indented has no objects as keys and is not read back as such.
    for (form, written) in written.into_iter().take(2).enumerate() {
        let written = written.expect("what was read can be written");
        let again = json::from_slice::<T>(&written);
        assert_eq!(again.as_ref(), Ok(&value), "form {form}: {}", written.escape_ascii());
    }
}

fn a_batch(body: &[u8]) {
    let Ok(messages) = batch::decode_batch(body, BATCH_MAX) else { return };
    assert!(messages.len() <= BATCH_MAX);
    let mut written = BytesMut::new();
    batch::encode_batch(messages.iter().copied(), &mut written).expect("it can be written");
    assert_eq!(batch::decode_batch(&written, BATCH_MAX).as_ref(), Ok(&messages));
}

fuzz_target!(|input: &[u8]| {
    let Some((kind, body)) = input.split_first() else { return };
    match kind % 17 {
        0 => a_batch(body),
        1 => {
            let _ = RegisterBrokerBody::decode(body, 513, 0);
        }
        2 => {
            let _ = RegisterBrokerBody::decode(body, 36, 0);
        }
        3 => table::<HeartbeatData>(body),
        4 => table::<SubscriptionData>(body),
        5 => table::<TopicRouteData>(body),
        6 => table::<ClusterInfo>(body),
        7 => table::<TopicConfigTable>(body),
        8 => table::<ConsumerOffsetTable>(body),
        9 => table::<SubscriptionGroupWrapper>(body),
        10 => table::<TopicStatsTable>(body),
        11 => table::<ConsumeStats>(body),
        12 => table::<LockBatchRequest>(body),
        13 => table::<ConsumerConnection>(body),
        14 => table::<ResetOffsetBody>(body),
        15 => table::<KvTable>(body),
        _ => {
            table::<TopicList>(body);
            table::<GroupList>(body);
        }
    }
});
