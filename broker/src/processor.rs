//! Answers to requests, a file for each family. The table of them is in [`crate::dispatch`].

pub(crate) mod admin;
pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod consume_stats;
pub(crate) mod group;
pub(crate) mod ha;
pub(crate) mod lock;
pub(crate) mod offset;
pub(crate) mod pull;
pub(crate) mod query;
pub(crate) mod relay;
pub(crate) mod reset_offset;
pub(crate) mod send;
pub(crate) mod send_back;
mod send_properties;
pub(crate) mod topic;

use protocol::command::RemotingCommand;
use protocol::header::Header;
use protocol::json;
use serde::Serialize;

use crate::refusal::{Answer, Refusal};

/// Success without anything else to say.
fn success() -> Answer {
    Ok(RemotingCommand::success().into())
}

/// Success with a header.
fn with_header(header: &impl Header) -> Answer {
    Ok(RemotingCommand::success_with(header).into())
}

/// Success with a JSON body.
fn with_json(body: &impl Serialize) -> Answer {
    Ok(RemotingCommand::success().with_body(json::to_vec(body)?).into())
}

/// The body of a request, which has to be there.
fn json_body<T: serde::de::DeserializeOwned>(request: &RemotingCommand) -> Result<T, Refusal> {
    if request.body.is_empty() {
        return Err(Refusal::error("the request has no body"));
    }
    Ok(json::from_slice(&request.body)?)
}

/// One page of a table in the order of its keys, as callers that know of pages ask for it: from
/// entry `from` on if they have seen this version of the table before, else from the start.
struct Page {
    skip: usize,
    take: usize,
}

impl Page {
    fn new(
        (from, count): (Option<i32>, Option<i32>),
        known_version: Option<&str>,
        version: protocol::data_version::DataVersion,
        count_max: usize,
    ) -> Option<Self> {
        if from.is_none() && count.is_none() && known_version.is_none() {
            return None;
        }
        let known = known_version.and_then(|text| json::from_slice(text.as_bytes()).ok());
        let is_other =
            known.is_some_and(|known: protocol::data_version::DataVersion| known != version);
        let from = if is_other { 0 } else { from.unwrap_or_default() };
        let skip = usize::try_from(from).unwrap_or_default();
        let take = count.and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
        Some(Self { skip, take: take.unwrap_or(count_max).min(count_max) })
    }

    fn cut<K: Ord, V>(
        page: Option<&Self>,
        table: std::collections::BTreeMap<K, V>,
    ) -> std::collections::BTreeMap<K, V> {
        match page {
            Some(page) => table.into_iter().skip(page.skip).take(page.take).collect(),
            None => table,
        }
    }
}
