//! `rmq message`, and how messages are printed.

use std::collections::BTreeMap;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use client::{ClientError, MessageExt};
use serde::Serialize;

use crate::duration::format_millis;
use crate::error::RmqError;
use crate::output::{Format, print, render_json};
use crate::session::Session;

#[derive(Debug, Subcommand)]
pub(crate) enum MessageCommand {
    /// Show one message
    View(ViewArgs),
    /// Show the messages that have a key
    Query(QueryArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ViewArgs {
    /// Its id: the one that says where it is, or with --topic the one its sender gave it
    id: String,
    /// The topic, for the id that its sender gave it
    #[arg(long)]
    topic: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct QueryArgs {
    /// The topic
    topic: String,
    /// The key
    #[arg(long)]
    key: String,
    /// Messages that each broker looks up at most
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(i32).range(1..))]
    max: i32,
}

/// A message in JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MessageView {
    msg_id: String,
    offset_msg_id: String,
    topic: String,
    queue: i32,
    offset: i64,
    tag: Option<String>,
    keys: Vec<String>,
    /// Milliseconds since the epoch.
    born: i64,
    born_host: String,
    /// Milliseconds since the epoch.
    stored: i64,
    store_host: String,
    reconsume_times: i32,
    properties: BTreeMap<String, String>,
    /// The body, when it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    /// The body, when it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
}

impl From<&MessageExt> for MessageView {
    fn from(message: &MessageExt) -> Self {
        let text = std::str::from_utf8(&message.body).ok().map(str::to_owned);
        Self {
            msg_id: message.msg_id(),
            offset_msg_id: message.offset_msg_id(),
            topic: message.topic.clone(),
            queue: message.queue_id,
            offset: message.queue_offset,
            tag: message.tags().map(str::to_owned),
            keys: message.keys().map(str::to_owned).collect(),
            born: message.born_timestamp,
            born_host: message.born_host.to_string(),
            stored: message.store_timestamp,
            store_host: message.store_host.to_string(),
            reconsume_times: message.reconsume_times,
            properties: message.properties.clone(),
            body_base64: text.is_none().then(|| STANDARD.encode(&message.body)),
            body: text,
        }
    }
}

impl MessageView {
    /// One line of JSON.
    pub(crate) fn json_line(&self) -> String {
        serde_json::to_string(self).expect("a message has text as keys only")
    }

    /// One line for each field.
    fn lines(&self) -> String {
        let properties: Vec<_> =
            self.properties.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let fields = [
            ("message id", self.msg_id.clone()),
            ("offset id", self.offset_msg_id.clone()),
            ("topic", self.topic.clone()),
            ("queue", self.queue.to_string()),
            ("offset", self.offset.to_string()),
            ("tag", self.tag.clone().unwrap_or_default()),
            ("keys", self.keys.join(" ")),
            ("born", format!("{} at {}", format_millis(self.born), self.born_host)),
            ("stored", format!("{} at {}", format_millis(self.stored), self.store_host)),
            ("consumed in vain", self.reconsume_times.to_string()),
            ("properties", properties.join(" ")),
            ("body", self.body_text()),
        ];
        let mut text = String::new();
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
            writeln!(text, "{name:<16}  {value}").expect("writing to a String does not fail");
        }
        text
    }

    fn body_text(&self) -> String {
        match (&self.body, &self.body_base64) {
            (Some(text), _) => text.clone(),
            (None, Some(base64)) => format!("base64:{base64}"),
            (None, None) => String::new(),
        }
    }
}

pub(crate) async fn run(session: &Session, command: &MessageCommand) -> Result<(), RmqError> {
    match command {
        MessageCommand::View(args) => view(session, args).await,
        MessageCommand::Query(args) => {
            let (topic, max) = (&args.topic, args.max);
            let found = session.admin.query_message(topic, &args.key, false, max).await?;
            if found.is_empty() {
                return Err(RmqError::NoMessage { topic: topic.clone(), what: "key" });
            }
            print_messages(session.format, &found)
        }
    }
}

async fn view(session: &Session, args: &ViewArgs) -> Result<(), RmqError> {
    if let Some(topic) = &args.topic {
        let found = session.admin.query_message(topic, &args.id, true, 32).await?;
        if !found.is_empty() {
            return print_messages(session.format, &found);
        }
        let by_offset = session.admin.view_message(&args.id).await;
        let no_message = |_| RmqError::NoMessage { topic: topic.clone(), what: "id" };
        return print_messages(session.format, &[by_offset.map_err(no_message)?]);
    }
    let message = session.admin.view_message(&args.id).await.map_err(|error| match error {
        ClientError::MessageId { id, .. } => RmqError::NotOffsetId { id },
        error => error.into(),
    })?;
    print_messages(session.format, &[message])
}

fn print_messages(format: Format, messages: &[MessageExt]) -> Result<(), RmqError> {
    print(&render_messages(format, messages))
}

fn render_messages(format: Format, messages: &[MessageExt]) -> String {
    let views: Vec<_> = messages.iter().map(MessageView::from).collect();
    match format {
        Format::Json => render_json(&views),
        Format::Table => views.iter().map(MessageView::lines).collect::<Vec<_>>().join("\n"),
    }
}

/// A message for tests.
#[cfg(test)]
pub(crate) fn example(body: &'static [u8]) -> MessageExt {
    let properties =
        [("UNIQ_KEY", "7F000001000A0000000100000001000A"), ("TAGS", "a"), ("KEYS", "k1 k2")];
    MessageExt {
        topic: "orders".into(),
        queue_id: 3,
        flag: 0,
        sys_flag: 0,
        queue_offset: 42,
        commit_log_offset: 4_242,
        store_size: 200,
        born_timestamp: 1_764_504_000_123,
        born_host: "10.0.0.9:50000".parse().unwrap(),
        store_timestamp: 1_764_504_000_125,
        store_host: "10.0.0.1:10911".parse().unwrap(),
        body_crc: 0,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: body.into(),
        properties: properties.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let messages = [example(b"hello"), example(&[0xFF, 0x00])];
        crate::golden::check("message.txt", &render_messages(Format::Table, &messages));
        crate::golden::check("message.json", &render_messages(Format::Json, &messages));
    }
}
