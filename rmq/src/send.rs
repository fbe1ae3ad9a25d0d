//! `rmq send`.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use client::{ClientError, Message, Producer, ProducerConfig, SendError, SendResult};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::error::RmqError;
use crate::interrupt::interrupted;
use crate::latency::Latencies;
use crate::output::{Format, Row, print, print_rows, render_json, thousands};
use crate::session::Session;
use crate::source::Source;
use crate::table::Align;
use crate::topic::parse_pair;

/// How often progress is shown.
const PROGRESS: Duration = Duration::from_secs(1);
/// Errors that are shown, of many.
const ERRORS_SHOWN: u64 = 3;
/// Requests that may be under way at once, unless the user says otherwise.
const IN_FLIGHT: u32 = 32;
/// Producer group that brokers are told.
const GROUP: &str = "rmq_send";

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rmq send orders 'first' 'second'             two messages
  tail -f app.log | rmq send logs              each line is a message
  rmq send orders --count 10000 --size 1024    a load: 10,000 numbered messages of 1 KiB
  rmq send orders --count 100000 --batch 32    in batches of 32
  rmq send orders 'paid' --orderly-key 4711    after what was sent before with this key")]
pub(crate) struct SendArgs {
    /// The topic
    topic: String,
    /// Bodies; without any and without --count and --size, lines of standard input are sent
    body: Vec<String>,
    /// Messages to send; given bodies are repeated, others are made up
    #[arg(long, short = 'c', value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Messages per second at most
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Key by which a message can be found; may be repeated
    #[arg(long = "key", short)]
    keys: Vec<String>,
    /// Tag by which consumers filter
    #[arg(long)]
    tag: Option<String>,
    /// Property of the message; may be repeated
    #[arg(long = "property", short, value_name = "NAME=VALUE", value_parser = parse_pair)]
    properties: Vec<(String, String)>,
    /// Bytes of each body that is made up
    #[arg(long, conflicts_with = "body", value_parser = clap::value_parser!(u32).range(1..))]
    size: Option<u32>,
    /// Deliver later: 1 is 1 s, 2 is 5 s, 3 is 10 s, and so on to 18, 2 h
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(i32).range(1..=18))]
    delay_level: Option<i32>,
    /// Send to the queue of this key, one after the other, so that order is kept
    #[arg(long, value_name = "KEY", conflicts_with_all = ["batch", "oneway", "in_flight"])]
    orderly_key: Option<String>,
    /// Messages in one request
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: Option<u32>,
    /// Do not wait to hear whether messages were stored
    #[arg(long, conflicts_with = "batch")]
    oneway: bool,
    /// Requests that may be under way at once [default: 32; 1 for given bodies, to keep their
    /// order]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    in_flight: Option<u32>,
}

impl SendArgs {
    fn in_flight(&self) -> u32 {
        let is_given = !self.body.is_empty() && self.count.is_none();
        let default = if is_given || self.orderly_key.is_some() { 1 } else { IN_FLIGHT };
        self.in_flight.unwrap_or(default)
    }
}

/// Where one message went.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SentRow {
    msg_id: String,
    offset_msg_id: String,
    broker: String,
    queue: i32,
    offset: i64,
    status: &'static str,
}

impl Row for SentRow {
    const COLUMNS: &'static [(&'static str, Align)] = &[
        ("MESSAGE ID", Align::Left),
        ("BROKER", Align::Left),
        ("QUEUE", Align::Right),
        ("OFFSET", Align::Right),
        ("STATUS", Align::Left),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.msg_id.clone(),
            self.broker.clone(),
            self.queue.to_string(),
            self.offset.to_string(),
            self.status.to_owned(),
        ]
    }
}

impl From<SendResult> for SentRow {
    fn from(result: SendResult) -> Self {
        Self {
            msg_id: result.msg_id,
            offset_msg_id: result.offset_msg_id,
            broker: result.queue.broker_name,
            queue: result.queue.queue_id,
            offset: result.queue_offset,
            status: result.status.name(),
        }
    }
}

/// How a load went.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    sent: u64,
    failed: u64,
    seconds: f64,
    per_second: f64,
    /// Milliseconds.
    latency_p50: f64,
    latency_p99: f64,
    latency_max: f64,
}

impl Summary {
    fn text(&self) -> String {
        format!(
            "sent {} messages in {:.2} s ({:.0}/s), {} failed; latency p50 {:.1} ms, p99 {:.1} ms, \
             max {:.1} ms\n",
            thousands(self.sent),
            self.seconds,
            self.per_second,
            thousands(self.failed),
            self.latency_p50,
            self.latency_p99,
            self.latency_max,
        )
    }
}

/// A load under way.
struct Load {
    began: Instant,
    sent: u64,
    failed: u64,
    latencies: Latencies,
    last: Option<SendResult>,
    progress_due: Instant,
}

impl Load {
    fn new() -> Self {
        let began = Instant::now();
        Self {
            began,
            sent: 0,
            failed: 0,
            latencies: Latencies::new(),
            last: None,
            progress_due: began + PROGRESS,
        }
    }

    /// Takes note of one request. An error is one that all others would have, too.
    fn done(&mut self, done: Done) -> Result<(), SendError> {
        let Done { messages, latency, outcome } = done;
        match outcome {
            Ok(result) => {
                self.sent += messages;
                self.latencies.add(latency);
                self.last = result;
            }
            Err(error) if is_hopeless(&error) => return Err(error),
            Err(error) => {
                if self.failed < ERRORS_SHOWN {
                    eprintln!("rmq: {error}");
                }
                self.failed += messages;
            }
        }
        if Instant::now() >= self.progress_due {
            self.progress_due += PROGRESS;
            self.show_progress();
        }
        Ok(())
    }

    fn show_progress(&self) {
        if std::io::stderr().is_terminal() {
            let (sent, failed) = (thousands(self.sent), thousands(self.failed));
            eprint!("\r{sent} sent, {failed} failed ");
        }
    }

    fn summary(&self) -> Summary {
        let seconds = self.began.elapsed().as_secs_f64();
        let millis = |latency: Duration| latency.as_secs_f64() * 1_000.0;
        Summary {
            sent: self.sent,
            failed: self.failed,
            seconds,
            per_second: if seconds > 0.0 { self.sent as f64 / seconds } else { 0.0 },
            latency_p50: millis(self.latencies.percentile(50.0)),
            latency_p99: millis(self.latencies.percentile(99.0)),
            latency_max: millis(self.latencies.max()),
        }
    }
}

/// One request that ended.
struct Done {
    messages: u64,
    latency: Duration,
    outcome: Result<Option<SendResult>, SendError>,
}

/// Whether every other message would fail in the same way.
pub(crate) fn is_hopeless(error: &SendError) -> bool {
    match error {
        SendError::Refused(_) | SendError::NoWritableQueue { .. } => true,
        SendError::Client(error) => !matches!(error, ClientError::Remoting(_)),
        _ => false,
    }
}

pub(crate) async fn run(session: &Session, args: &SendArgs) -> Result<(), RmqError> {
    let mut config = ProducerConfig::new(GROUP);
    if let Some(timeout) = session.timeout {
        (config.send_timeout, config.attempt_timeout) = (timeout, timeout);
    }
    let producer = Arc::new(Producer::start(&session.instance, config)?);
    let load = send_all(&producer, args).await;
    producer.shutdown().await;
    let load = load?;
    if load.progress_due > load.began + PROGRESS && std::io::stderr().is_terminal() {
        eprintln!();
    }
    match load.last {
        Some(result) if load.sent == 1 && load.failed == 0 => {
            print_rows(session.format, &[SentRow::from(result)])?;
        }
        _ => {
            let summary = load.summary();
            match session.format {
                Format::Table => print(&summary.text())?,
                Format::Json => print(&render_json(&summary))?,
            }
        }
    }
    if load.failed > 0 {
        let all = load.sent + load.failed;
        return Err(RmqError::NotAllSent { failed: load.failed, all });
    }
    Ok(())
}

async fn send_all(producer: &Arc<Producer>, args: &SendArgs) -> Result<Load, RmqError> {
    let mut source = Source::new(&args.body, args.count, args.size);
    let in_flight = args.in_flight() as usize;
    let batch = args.batch.unwrap_or(1) as usize;
    let mut pace = args.rate.map(|rate| {
        let period = Duration::from_secs(1).mul_f64(batch as f64 / f64::from(rate));
        tokio::time::interval(period.max(Duration::from_micros(1)))
    });
    let mut load = Load::new();
    let mut requests: JoinSet<Done> = JoinSet::new();
    let interrupted = interrupted();
    tokio::pin!(interrupted);
    loop {
        let bodies = tokio::select! {
            bodies = source.next(batch) => bodies?,
            () = &mut interrupted => break,
        };
        if bodies.is_empty() {
            break;
        }
        if let Some(pace) = &mut pace {
            pace.tick().await;
        }
        while requests.len() >= in_flight
            && let Some(done) = requests.join_next().await
        {
            load.done(done.expect("sending does not panic"))?;
        }
        let messages = bodies.into_iter().map(|body| message(args, body)).collect();
        requests.spawn(send(Arc::clone(producer), messages, args.oneway, args.orderly_key.clone()));
    }
    while let Some(done) = requests.join_next().await {
        load.done(done.expect("sending does not panic"))?;
    }
    Ok(load)
}

fn message(args: &SendArgs, body: Vec<u8>) -> Message {
    Message {
        tag: args.tag.clone(),
        keys: args.keys.clone(),
        properties: args.properties.iter().cloned().collect(),
        delay_level: args.delay_level,
        ..Message::new(&args.topic, body)
    }
}

async fn send(
    producer: Arc<Producer>,
    messages: Vec<Message>,
    oneway: bool,
    key: Option<String>,
) -> Done {
    let began = Instant::now();
    let outcome = match (messages.as_slice(), key) {
        ([message], Some(key)) => producer.send_by_key(message, &key).await.map(Some),
        ([message], None) if oneway => producer.send_oneway(message).await.map(|()| None),
        ([message], None) => producer.send(message).await.map(Some),
        (batch, _) => producer.send_batch(batch).await.map(Some),
    };
    Done { messages: messages.len() as u64, latency: began.elapsed(), outcome }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::render;

    #[test]
    fn golden() {
        let row = SentRow {
            msg_id: "7F000001000A0000000100000001000A".into(),
            offset_msg_id: "0A00000100002A9F000000000000109E".into(),
            broker: "orders-0".into(),
            queue: 3,
            offset: 42,
            status: "SEND_OK",
        };
        crate::golden::check("send.txt", &render(Format::Table, std::slice::from_ref(&row)));
        crate::golden::check("send.json", &render(Format::Json, &[row]));
        let summary = Summary {
            sent: 10_000,
            failed: 2,
            seconds: 1.25,
            per_second: 8_000.0,
            latency_p50: 3.25,
            latency_p99: 12.5,
            latency_max: 40.0,
        };
        crate::golden::check("send-load.txt", &summary.text());
        crate::golden::check("send-load.json", &render_json(&summary));
    }
}
