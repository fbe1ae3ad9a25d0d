//! A broker in this process, asked over loopback.

mod administration;
mod clients;
mod election;
mod fixture;
mod pull;
mod query;
mod registration;
mod replication;
mod retry;
mod send;
