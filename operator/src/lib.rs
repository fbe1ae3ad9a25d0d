//! The Kubernetes operator.
//!
//! `fetch -> validate -> build -> apply -> status` for each resource, a file per step: `fetch`
//! reads everything, `validate` turns it into what may be built, `build` is pure, `apply` writes
//! what differs, `status` says what there is. What the operator knows of a cluster is in the API
//! server and nowhere else.
//!
//! Invariants: it writes only its own objects and `status`; an idle cluster causes no write; a pod
//! is restarted only by [`roll`]; a panic over one resource stops no other. Deliberately absent:
//! webhooks, finalizers, sleeps in a reconcile, state of the process that a reconcile depends on.

pub mod affinity;
pub mod broker_group_controller;
pub mod build;
pub mod child;
pub mod cli;
pub mod cluster_controller;
pub mod context;
pub mod diagnosis;
pub mod drift;
pub mod election;
pub mod error;
pub mod event;
pub mod fetch;
pub mod group_elections;
pub mod label;
pub mod lease;
pub mod local;
pub mod metrics;
#[cfg(test)]
mod mock;
pub mod port;
pub mod reconcile;
pub mod roll;
pub mod run;
pub mod status;
pub mod watch;
