//! `rmq dump`: the records of a store, without a broker.

use std::collections::BTreeMap;
use std::fmt::Write;

use bytes::Bytes;
use clap::Args;
use protocol::message::MessageExt;
use protocol::message_codec::{self, RecordView};
use protocol::{property, sys_flag};
use serde::Serialize;
use store::inspect::{Found, Reader};

use crate::check::StoreArgs;
use crate::cli::Options;
use crate::duration::format_millis;
use crate::error::RmqError;
use crate::output::{Format, print};

/// Largest body after decompression.
const BODY_MAX: usize = 64 << 20;

/// Shows records of a store whose broker is stopped: those at an offset of the commit log, or the
/// messages of a queue
#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Offset of the commit log to begin at [default: the first]
    #[arg(long, value_name = "OFFSET", conflicts_with = "topic")]
    from: Option<i64>,
    /// Show messages of this topic
    #[arg(long)]
    topic: Option<String>,
    /// The queue of the topic
    #[arg(long, default_value_t = 0, requires = "topic")]
    queue: i32,
    /// Offset in the queue to begin at [default: the first]
    #[arg(long, requires = "topic")]
    offset: Option<i64>,
    /// Records to show at most
    #[arg(long, default_value_t = 10)]
    count: u64,
    /// Bytes of each body to show at most
    #[arg(long, value_name = "BYTES", default_value_t = 256)]
    body: usize,
    /// Read although a broker has the store open; its newest records may be missing
    #[arg(long)]
    force_read: bool,
}

pub(crate) fn run(options: &Options, args: &DumpArgs) -> Result<(), RmqError> {
    let reader = Reader::open(&args.store.place(), args.force_read)?;
    let show = |record: &Bytes| {
        let Ok(view) = message_codec::decode_record(record) else { return Ok(()) };
        let dump = Dump::of(&view, record, args.body);
        match options.output {
            Format::Json => print(&dump.json_line()),
            Format::Table => print(&format!("{}\n", dump.lines())),
        }
    };
    match &args.topic {
        Some(topic) => dump_queue(&reader, (topic, args.queue), args, show),
        None => dump_log(&reader, args, show),
    }
}

fn dump_log(
    reader: &Reader,
    args: &DumpArgs,
    show: impl Fn(&Bytes) -> Result<(), RmqError>,
) -> Result<(), RmqError> {
    let mut offset = args.from.unwrap_or_else(|| reader.min_offset());
    let mut shown = 0;
    while shown < args.count {
        match reader.at(offset)? {
            Found::Record(record) => {
                let Ok(view) = message_codec::decode_record(&record) else { break };
                show(&record)?;
                shown += 1;
                offset = view.physical_offset + record.len() as i64;
            }
            Found::Gap { next } => {
                eprintln!("rmq: no record begins at offset {offset}; the next one does at {next}");
                offset = next;
            }
            Found::End => break,
        }
    }
    Ok(())
}

fn dump_queue(
    reader: &Reader,
    (topic, queue): (&str, i32),
    args: &DumpArgs,
    show: impl Fn(&Bytes) -> Result<(), RmqError>,
) -> Result<(), RmqError> {
    let Some((min, end)) = reader.queue_range(topic, queue)? else {
        return Err(RmqError::NoQueue { topic: topic.to_owned(), queue });
    };
    let from = args.offset.unwrap_or(min);
    if !(min..=end).contains(&from) {
        eprintln!("rmq: queue {topic}/{queue} has the messages {min} up to but not {end}");
    }
    let to = end.min(from.saturating_add(i64::try_from(args.count).unwrap_or(i64::MAX)));
    for offset in from.max(min)..to {
        let place = reader.physical_offset(topic, queue, offset)?;
        let found = match place {
            Some(place) => reader.at(place)?,
            None => Found::End,
        };
        match found {
            Found::Record(record) => show(&record)?,
            _ => eprintln!("rmq: the log has no record for message {offset} of {topic}/{queue}"),
        }
    }
    Ok(())
}

/// A record in JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Dump<'a> {
    /// Where it lies in the log.
    physical_offset: i64,
    size: usize,
    topic: &'a str,
    queue: i32,
    queue_offset: i64,
    /// Whether the stored body agrees with its checksum.
    is_body_good: bool,
    /// `prepared`, `commit` or `rollback`.
    #[serde(skip_serializing_if = "Option::is_none")]
    transaction: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prepared_transaction_offset: Option<i64>,
    sys_flag: i32,
    flag: i32,
    /// Milliseconds since the epoch.
    born: i64,
    born_host: String,
    /// Milliseconds since the epoch.
    stored: i64,
    store_host: String,
    reconsume_times: i32,
    properties: BTreeMap<String, String>,
    /// Bytes of the body, decompressed.
    body_bytes: usize,
    /// The body's beginning, when it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    /// The body's beginning, when it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_hex: Option<String>,
}

impl<'a> Dump<'a> {
    fn of(view: &RecordView<'a>, record: &Bytes, body_max: usize) -> Self {
        // A body that cannot be decompressed is shown as it is stored.
        let body = MessageExt::decode(record, BODY_MAX)
            .map_or_else(|_| record.slice_ref(view.body), |message| message.body);
        let (text, hex) = beginning(&body, body_max);
        let host = |host: Result<std::net::SocketAddr, _>| {
            host.map_or_else(|_| "?".to_owned(), |host| host.to_string())
        };
        let transaction = match sys_flag::transaction(view.sys_flag) {
            sys_flag::TRANSACTION_PREPARED => Some("prepared"),
            sys_flag::TRANSACTION_COMMIT => Some("commit"),
            sys_flag::TRANSACTION_ROLLBACK => Some("rollback"),
            _ => None,
        };
        Self {
            physical_offset: view.physical_offset,
            size: view.bytes.len(),
            topic: view.topic,
            queue: view.queue_id,
            queue_offset: view.queue_offset,
            is_body_good: view.check_body().is_ok(),
            transaction,
            prepared_transaction_offset: transaction.map(|_| view.prepared_transaction_offset),
            sys_flag: view.sys_flag,
            flag: view.flag,
            born: view.born_timestamp,
            born_host: host(view.born_host()),
            stored: view.store_timestamp,
            store_host: host(view.store_host()),
            reconsume_times: view.reconsume_times,
            properties: property::parse(view.properties()),
            body_bytes: body.len(),
            body: text,
            body_hex: hex,
        }
    }

    /// One line of JSON.
    fn json_line(&self) -> String {
        let mut line = serde_json::to_string(self).expect("a record has text as keys only");
        line.push('\n');
        line
    }

    /// One line for each field.
    fn lines(&self) -> String {
        let properties: Vec<_> =
            self.properties.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let shown =
            self.body.clone().or_else(|| self.body_hex.clone().map(|hex| format!("hex:{hex}")));
        let crc = if self.is_body_good { "" } else { "  BODY DAMAGED: its checksum differs" };
        let at = format!("{} ({} bytes){crc}", self.physical_offset, self.size);
        let fields = [
            ("log offset", at),
            ("topic", self.topic.to_owned()),
            ("queue", self.queue.to_string()),
            ("offset", self.queue_offset.to_string()),
            ("transaction", self.transaction.unwrap_or_default().to_owned()),
            ("flags", format!("{} sysFlag {:#x}", self.flag, self.sys_flag)),
            ("born", format!("{} at {}", format_millis(self.born), self.born_host)),
            ("stored", format!("{} at {}", format_millis(self.stored), self.store_host)),
            ("consumed in vain", self.reconsume_times.to_string()),
            ("properties", properties.join(" ")),
            ("body", format!("{} bytes", self.body_bytes)),
            ("", shown.unwrap_or_default()),
        ];
        let mut text = String::new();
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
            writeln!(text, "{name:<16}  {value}").expect("writing to a String does not fail");
        }
        text
    }
}

/// The first bytes of a body as text, or as hexadecimal digits when they are none.
fn beginning(body: &[u8], max: usize) -> (Option<String>, Option<String>) {
    let cut = body.len() > max;
    let shown = body.get(..max).unwrap_or(body);
    let more = if cut { "..." } else { "" };
    let is_text = |valid: &str| valid.len() == shown.len() || cut && valid.len() + 4 > shown.len();
    let text = shown.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    if is_text(text) && !text.contains(|c: char| c.is_control() && !c.is_whitespace()) {
        return (Some(format!("{text}{more}")), None);
    }
    let hex: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
    (None, Some(format!("{hex}{more}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_text_or_hexadecimal_and_cut() {
        let table: [(&[u8], usize, &str); 6] = [
            (b"hello", 10, "hello"),
            (b"hello", 4, "hell..."),
            ("h\u{e9}".as_bytes(), 2, "h..."),
            (b"", 10, ""),
            (&[0xFF, 0x00], 10, "hex:ff00"),
            (&[0, 1, 2], 2, "hex:0001..."),
        ];
        for (body, max, expected) in table {
            let (text, hex) = beginning(body, max);
            let shown = text.or(hex.map(|hex| format!("hex:{hex}"))).unwrap();
            assert_eq!(shown, expected);
        }
    }

    #[test]
    fn golden() {
        let message = protocol::message::Message {
            topic: "orders",
            queue_id: 3,
            flag: 7,
            sys_flag: sys_flag::TRANSACTION_COMMIT,
            born_timestamp: 1_764_504_000_123,
            born_host: "10.0.0.9:50000".parse().unwrap(),
            store_host: "10.0.0.1:10911".parse().unwrap(),
            reconsume_times: 1,
            prepared_transaction_offset: 99,
            body: b"hello, this is cut",
            properties: "TAGS\u{1}a\u{2}KEYS\u{1}k1 k2\u{2}",
        };
        let mut record = bytes::BytesMut::new();
        message_codec::encode_record(&message, &mut record).unwrap();
        message_codec::set_position(&mut record, 42, 4_242, 1_764_504_000_125);
        let good = record.clone().freeze();
        record[90] ^= 1;
        let bad = record.freeze();
        let mut text = String::new();
        let mut json = String::new();
        for record in [good, bad] {
            let view = message_codec::decode_record(&record).unwrap();
            let dump = Dump::of(&view, &record, 5);
            writeln!(text, "{}", dump.lines()).unwrap();
            json.push_str(&dump.json_line());
        }
        crate::golden::check("dump.txt", &text);
        crate::golden::check("dump.jsonl", &json);
    }
}
