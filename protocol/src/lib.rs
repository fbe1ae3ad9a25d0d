//! RocketMQ's wire and disk encodings: bytes to values and back.
//!
//! Everything here is pure: no IO, no clock, no threads, no `unsafe`. Bytes that come from a peer
//! or a disk are never believed: every decoder returns an error that says what is wrong and
//! allocates no more than the input's own size.
//!
//! Sources of the formats: the Remoting protocol and commit log layout of Apache RocketMQ 4.9 and
//! 5.x. Golden bytes in `tests/golden` were captured from Apache's own peers.
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::cast_possible_truncation, clippy::cast_sign_loss)
)]

pub mod batch;
pub mod body;
mod codes;
pub mod command;
pub mod data_version;
pub mod ext_fields;
pub mod frame;
pub mod ha;
pub mod header;
mod header_json;
mod header_rocketmq;
pub mod heartbeat;
pub mod json;
pub mod message;
pub mod message_codec;
pub mod message_id;
pub mod perm;
pub mod property;
pub mod register_broker;
pub mod request_code;
pub mod response_code;
pub mod route;
pub mod subscription;
pub mod sys_flag;
pub mod tag;
pub mod topic_config;
pub mod topic_name;
