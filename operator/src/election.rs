//! Elections: the endpoint that brokers and `mqadmin` speak to, and one driver per BrokerName that
//! carries out what [`replication::Controller`] decides.
//!
//! Safety is in the record alone, which changes by compare-and-swap ([`GroupStore`]). Any number of
//! operators may therefore serve a group at a time; the one that leads begins elections.

mod authority;
mod endpoint;
mod file_store;
mod group_driver;
mod group_store;
mod kube_store;
mod record_json;
mod request;

pub use authority::{AUDIENCE, Authority, GroupId, PodTokens};
pub use endpoint::{Endpoint, EndpointConfig};
pub use file_store::FileStore;
pub use group_driver::{Group, GroupView};
pub use group_store::{GroupStore, StoreFailure};
pub use kube_store::KubeStore;
