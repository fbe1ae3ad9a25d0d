//! JSON bodies of requests and responses, apart from those that have a file of their own
//! ([`crate::heartbeat`], [`crate::route`], [`crate::register_broker`]).
//!
//! Members that are absent take their Java defaults and unknown members are ignored.

use serde::{Deserialize, Serialize};

mod connection;
mod consume_stats;
mod group;
mod ha;
mod kv_table;
mod lock;
mod member_group;
mod offset;
mod replicas;
mod topic;

pub use connection::*;
pub use consume_stats::*;
pub use group::*;
pub use ha::*;
pub use kv_table::*;
pub use lock::*;
pub use member_group::*;
pub use offset::*;
pub use replicas::*;
pub use topic::*;

/// One queue of a topic on one broker name, in the order in which clients share queues out.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct MessageQueue {
    pub topic: String,
    pub broker_name: String,
    pub queue_id: i32,
}

/// Declares plain bodies: camel-case members, all with defaults.
macro_rules! body {
    ($($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$field_meta:meta])* $field:ident: $ty:ty),* $(,)?
    })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        #[allow(missing_docs)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $ty,)*
        }
    )*};
}
pub(crate) use body;
