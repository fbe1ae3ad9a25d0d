//! `rmq consume`.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use client::{
    ConcurrentStatus, ConsumeFrom, ConsumerConfig, Delivery, Listener, MessageExt, MessageModel,
    OrderlyStatus, PushConsumer,
};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::duration::{format_millis, parse_time};
use crate::error::RmqError;
use crate::interrupt::interrupted;
use crate::message::MessageView;
use crate::output::{Format, print, render_json, thousands};
use crate::session::Session;

/// Deliveries that wait to be printed.
const WAITING_MAX: usize = 64;
/// How long to wait for the next message of a known number, unless the user says otherwise.
const EXPECT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to watch out for duplicates after the last message that was expected.
const SETTLE: Duration = Duration::from_secs(1);
/// What is not printed any more goes back without a wait.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rmq consume orders                                    print what is there and what comes
  rmq consume orders --count 10 -o json                 the next ten, one JSON object each
  rmq consume orders --group g --tag 'a||b' --from 10m  of two tags, of the last ten minutes
  rmq consume orders --group check --expect 10000       did each of 10,000 arrive, and once?

The group goes on where it was the last time; --from says where a new group begins. What was
printed counts as consumed.")]
pub(crate) struct ConsumeArgs {
    /// The topic
    topic: String,
    /// The consumer group
    #[arg(long, short, default_value = "rmq_consume")]
    group: String,
    /// Only these tags, joined by '||'
    #[arg(long, default_value = "*", value_name = "TAGS")]
    tag: String,
    /// Where a new group begins: first, last, a time (RFC 3339 or milliseconds since the epoch), or
    /// how long ago (10m)
    #[arg(long, default_value = "first")]
    from: String,
    /// End after so many messages
    #[arg(long, short = 'c', value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Check that so many messages come, each of them once, instead of printing them
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "count",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    expect: Option<u64>,
    /// Keep the order of each queue, which no other member of the group may then read
    #[arg(long)]
    orderly: bool,
    /// Get all messages, whoever else is in the group
    #[arg(long, conflicts_with = "orderly")]
    broadcast: bool,
    /// Where a broadcasting consumer keeps its offsets [default: ~/.rocketmq_offsets/rmq]
    #[arg(long, value_name = "DIRECTORY", requires = "broadcast")]
    offset_directory: Option<PathBuf>,
}

/// A delivery, and how to say that it was dealt with.
type Item = (Delivery, oneshot::Sender<()>);

/// What came.
struct Ledger {
    began: Instant,
    received: u64,
    /// Ids, when they are to be counted.
    ids: Option<HashSet<u128>>,
    /// When the first and the last message came.
    first: Option<Instant>,
    last: Option<Instant>,
}

/// What came, of a known number.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Verdict {
    expected: u64,
    received: u64,
    lost: u64,
    duplicated: u64,
    /// More than were expected, duplicates not counted.
    unexpected: u64,
    seconds: f64,
    per_second: f64,
}

impl Ledger {
    fn new(counts_ids: bool) -> Self {
        let ids = counts_ids.then(HashSet::new);
        Self { began: Instant::now(), received: 0, ids, first: None, last: None }
    }

    fn add(&mut self, message: &MessageExt) {
        let now = Instant::now();
        self.first.get_or_insert(now);
        self.last = Some(now);
        self.received += 1;
        if let Some(ids) = &mut self.ids {
            ids.insert(id_number(&message.msg_id()));
        }
    }

    fn distinct(&self) -> u64 {
        self.ids.as_ref().map_or(self.received, |ids| ids.len() as u64)
    }

    /// From the first message on: how long the group took to form says nothing about speed.
    fn seconds(&self) -> f64 {
        let first = self.first.unwrap_or(self.began);
        self.last.map_or(0.0, |last| (last - first).as_secs_f64())
    }

    fn verdict(&self, expected: u64) -> Verdict {
        let seconds = self.seconds();
        let distinct = self.distinct();
        Verdict {
            expected,
            received: self.received,
            lost: expected.saturating_sub(distinct),
            duplicated: self.received - distinct,
            unexpected: distinct.saturating_sub(expected),
            seconds,
            per_second: if seconds > 0.0 { self.received as f64 / seconds } else { 0.0 },
        }
    }
}

impl Verdict {
    fn is_good(&self) -> bool {
        self.lost == 0 && self.duplicated == 0 && self.unexpected == 0
    }

    fn text(&self) -> String {
        let mut text = format!(
            "received {} messages in {:.2} s ({:.0}/s): {} lost, {} duplicated",
            thousands(self.received),
            self.seconds,
            self.per_second,
            thousands(self.lost),
            thousands(self.duplicated),
        );
        if self.unexpected > 0 {
            write!(text, ", {} more than expected", thousands(self.unexpected))
                .expect("writing to a String does not fail");
        }
        text.push('\n');
        text
    }
}

/// Message ids are 16 bytes in hexadecimal, mostly; others are hashed.
fn id_number(id: &str) -> u128 {
    if id.len() == 32
        && let Ok(number) = u128::from_str_radix(id, 16)
    {
        return number;
    }
    let hash = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, id).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    hash(0) << 64 | hash(1)
}

pub(crate) async fn run(session: &Session, args: &ConsumeArgs) -> Result<(), RmqError> {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let config = config(args)?;
    // Says so at once when there is no such topic, rather than wait for one.
    session.instance.route(&args.topic).await?;
    let consumer = PushConsumer::start(&session.instance, config, listener(args, sender)).await?;
    let mut ledger = Ledger::new(args.expect.is_some());
    let outcome = receive(session, args, receiver, &mut ledger).await;
    consumer.shutdown().await;
    outcome?;
    let Some(expected) = args.expect else {
        if std::io::stderr().is_terminal() {
            eprintln!("{} messages", thousands(ledger.received));
        }
        return Ok(());
    };
    let verdict = ledger.verdict(expected);
    match session.format {
        Format::Table => print(&verdict.text())?,
        Format::Json => print(&render_json(&verdict))?,
    }
    if verdict.is_good() { Ok(()) } else { Err(RmqError::NotAsExpected { expected }) }
}

fn config(args: &ConsumeArgs) -> Result<ConsumerConfig, RmqError> {
    let mut config = ConsumerConfig::new(&args.group, &args.topic, &args.tag);
    config.consume_from = match args.from.as_str() {
        "first" => ConsumeFrom::First,
        "last" => ConsumeFrom::Last,
        time => {
            let now = jiff::Timestamp::now();
            ConsumeFrom::Timestamp(parse_time(time, now).map_err(RmqError::Usage)?)
        }
    };
    // Printing is one thing after the other, and each queue is to be printed in its order. What is
    // left of a batch when the count is reached would come again, so there are no batches then.
    config.concurrency = 1;
    config.batch_max = if args.count.is_some() { 1 } else { 32 };
    config.shutdown_timeout = SHUTDOWN_TIMEOUT;
    if args.broadcast {
        config.message_model = MessageModel::Broadcasting;
        let home = || std::env::home_dir().unwrap_or_else(std::env::temp_dir);
        let default = || home().join(".rocketmq_offsets").join("rmq");
        let directory = args.offset_directory.clone().unwrap_or_else(default);
        config.broadcast_offset_directory = Some(directory);
    }
    Ok(config)
}

fn listener(args: &ConsumeArgs, sender: mpsc::Sender<Item>) -> Listener {
    if args.orderly {
        return Listener::orderly(move |delivery| {
            let sender = sender.clone();
            async move {
                hand_over(sender, delivery).await;
                OrderlyStatus::Success
            }
        });
    }
    Listener::concurrent(move |delivery| {
        let sender = sender.clone();
        async move {
            hand_over(sender, delivery).await;
            ConcurrentStatus::Success
        }
    })
}

/// Waits until a delivery was dealt with; for ever, when it will not be: then it must not count as
/// consumed.
async fn hand_over(sender: mpsc::Sender<Item>, delivery: Delivery) {
    let (done, is_done) = oneshot::channel();
    if sender.send((delivery, done)).await.is_err() || is_done.await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Takes messages until there are enough, none come any more, or the user has seen enough.
async fn receive(
    session: &Session,
    args: &ConsumeArgs,
    mut receiver: mpsc::Receiver<Item>,
    ledger: &mut Ledger,
) -> Result<(), RmqError> {
    let interrupted = interrupted();
    tokio::pin!(interrupted);
    loop {
        let idle = idle_timeout(session, args, ledger);
        let next = async {
            match idle {
                Some(idle) => tokio::time::timeout(idle, receiver.recv()).await.ok().flatten(),
                None => receiver.recv().await,
            }
        };
        let item = tokio::select! {
            item = next => item,
            () = &mut interrupted => None,
        };
        let Some((delivery, done)) = item else { return Ok(()) };
        if args.expect.is_none() {
            print_delivery(session.format, &delivery)?;
        }
        delivery.messages.iter().for_each(|message| ledger.add(message));
        // It counts even if the consumer has gone on without us.
        let _ = done.send(());
        if args.count.is_some_and(|count| ledger.received >= count) {
            return Ok(());
        }
    }
}

fn idle_timeout(session: &Session, args: &ConsumeArgs, ledger: &Ledger) -> Option<Duration> {
    match args.expect {
        Some(expected) if ledger.distinct() >= expected => Some(SETTLE),
        Some(_) => Some(session.timeout.unwrap_or(EXPECT_TIMEOUT)),
        None => session.timeout,
    }
}

fn print_delivery(format: Format, delivery: &Delivery) -> Result<(), RmqError> {
    let mut text = String::new();
    for message in &delivery.messages {
        match format {
            Format::Table => text.push_str(&line(&delivery.queue.broker_name, message)),
            Format::Json => text.push_str(&MessageView::from(&**message).json_line()),
        }
        text.push('\n');
    }
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// When and where it was stored, its tag and its body; columns of fixed width, as far as they fit.
fn line(broker: &str, message: &MessageExt) -> String {
    let body = String::from_utf8_lossy(&message.body);
    let mut text = format!(
        "{}  {broker:<12} {:>3} {:>9}  {:<8}  ",
        format_millis(message.store_timestamp),
        message.queue_id,
        message.queue_offset,
        message.tags().unwrap_or("-"),
    );
    // What would move the cursor or break the line is shown instead.
    for letter in body.chars() {
        match letter {
            letter if letter.is_control() => text.extend(letter.escape_default()),
            letter => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::example;

    fn with_id(id: &str) -> MessageExt {
        let mut message = example(b"x");
        message.properties.insert("UNIQ_KEY".into(), id.into());
        message
    }

    #[test]
    fn lost_duplicated_and_unexpected_messages_are_told_apart() {
        let id = |number: u32| format!("{number:032X}");
        let check = |ids: &[String], expected, counts: (u64, u64, u64)| {
            let mut ledger = Ledger::new(true);
            ids.iter().for_each(|id| ledger.add(&with_id(id)));
            let verdict = ledger.verdict(expected);
            assert_eq!((verdict.lost, verdict.duplicated, verdict.unexpected), counts);
            assert_eq!(verdict.is_good(), counts == (0, 0, 0));
        };
        check(&[id(1), id(2)], 2, (0, 0, 0));
        check(&[id(1), id(1)], 2, (1, 1, 0));
        check(&[id(1), id(2), id(3), id(3)], 2, (0, 1, 1));
        check(&["short".into(), "short".into(), "other".into()], 2, (0, 1, 0));
        check(&[], 2, (2, 0, 0));
    }

    #[test]
    fn golden() {
        let messages = [example(b"hello"), example(b"two\nlines\x1b[2J \xC3\xA9 \xFF")];
        let lines: Vec<_> = messages.iter().map(|message| line("orders-0", message)).collect();
        crate::golden::check("consume.txt", &(lines.join("\n") + "\n"));
        let views = messages.iter().map(|message| MessageView::from(message).json_line());
        crate::golden::check("consume.jsonl", &(views.collect::<Vec<_>>().join("\n") + "\n"));
        let verdict = Verdict {
            expected: 10_000,
            received: 9_999,
            lost: 2,
            duplicated: 1,
            unexpected: 0,
            seconds: 0.5,
            per_second: 19_998.0,
        };
        crate::golden::check("consume-expect.txt", &verdict.text());
        crate::golden::check("consume-expect.json", &render_json(&verdict));
    }
}
