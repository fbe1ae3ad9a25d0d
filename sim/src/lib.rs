//! A deterministic simulator of a BrokerName group: the real state machines of `replication` over a
//! simulated network, disks, clocks, record store, name servers and clients, with faults that a
//! seed decides.
//!
//! Safety is checked after every event, liveness after the last fault. The same scenario gives the
//! same trace.

mod broker;
mod chaos;
mod client;
pub mod disk;
mod event;
pub mod fault;
mod network;
mod operator;
pub mod oracle;
pub mod planted;
pub mod random;
mod record_store;
pub mod run;
pub mod scenario;
mod world;

pub use run::{run, shrink};
pub use scenario::Scenario;
pub use world::Outcome;
