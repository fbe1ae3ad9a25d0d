//! How long a start takes, and what it takes of memory, open files and mappings.
//!
//! ```text
//! start_time log BYTES BODY-BYTES DIRECTORY       a log of this size in 16 queues
//! start_time queues TOPICS QUEUES DIRECTORY       topics with this many queues each
//! ```
//! A new directory below DIRECTORY is used and removed. `COLD=1` asks the kernel to forget the
//! store's files before each start.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use protocol::message::Message;
use store::{FlushDiskType, MessageStore, RecoveryReport, StoreConfig};

/// Messages on their way into the store.
const WINDOW: usize = 8_192;
const MESSAGES_PER_QUEUE: i32 = 3;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| -> Result<u64> {
        let text = args.get(index).context("an argument is missing")?;
        text.parse().with_context(|| format!("{text} is no number"))
    };
    let parent = args.get(3).context("start_time log|queues NUMBER NUMBER DIRECTORY")?;
    let dir = tempfile::Builder::new().prefix("start-time-").tempdir_in(parent)?;
    let config = config(dir.path());
    match args.first().map(String::as_str) {
        Some("log") => fill_log(&config, number(1)?, number(2)?)?,
        Some("queues") => fill_queues(&config, number(1)?, number(2)?)?,
        _ => bail!("log or queues?"),
    }
    print_resources("after writing");
    start("clean", &config)?;
    touch_abort(dir.path())?;
    start("killed, with a checkpoint", &config)?;
    touch_abort(dir.path())?;
    std::fs::remove_file(dir.path().join("checkpoint"))?;
    start("killed, everything to check", &config)?;
    std::fs::remove_dir_all(dir.path().join("consumequeue"))?;
    start("without consume queues", &config)?;
    Ok(())
}

fn config(root: &Path) -> StoreConfig {
    let mut config = StoreConfig::new(root);
    config.flush_disk_type = FlushDiskType::AsyncFlush;
    config.disk_max_used_space_ratio = 98;
    config.disk_space_clean_forcibly_ratio = 99;
    config.disk_space_warning_level_ratio = 99;
    config
}

fn touch_abort(root: &Path) -> Result<()> {
    std::fs::write(root.join("abort"), "1").context("abort")
}

struct Writer {
    store: MessageStore,
    waiting: VecDeque<store::PutFuture>,
    body: Vec<u8>,
}

impl Writer {
    fn put(&mut self, topic: &str, queue_id: i32) -> Result<()> {
        let message = Message {
            topic,
            queue_id,
            flag: 0,
            sys_flag: 0,
            born_timestamp: 1,
            born_host: "10.0.0.1:50000".parse()?,
            store_host: "10.0.0.2:10911".parse()?,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: &self.body,
            properties: "UNIQ_KEY\u{1}7F000001000A0000000100000001000A\u{2}TAGS\u{1}TagA\u{2}",
        };
        self.waiting.push_back(self.store.put(&message));
        if self.waiting.len() >= WINDOW {
            self.wait(WINDOW / 2)?;
        }
        Ok(())
    }

    fn wait(&mut self, left: usize) -> Result<()> {
        while self.waiting.len() > left {
            let future = self.waiting.pop_front().context("there is one")?;
            future.wait()?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        self.wait(0)?;
        let begin = Instant::now();
        self.store.shutdown()?;
        println!("shutdown after writing: {:.2?}", begin.elapsed());
        Ok(())
    }
}

fn writer(config: &StoreConfig, body_bytes: u64) -> Result<Writer> {
    let (store, _) = MessageStore::open(config.clone())?;
    let body = (0..body_bytes).map(|byte| (byte % 251) as u8).collect();
    Ok(Writer { store, waiting: VecDeque::new(), body })
}

fn fill_log(config: &StoreConfig, bytes: u64, body_bytes: u64) -> Result<()> {
    let mut writer = writer(config, body_bytes)?;
    let mut count = 0_i32;
    while writer.store.stats().log_max_offset.cast_unsigned() < bytes {
        for _ in 0..1_000 {
            writer.put("orders", count % 16)?;
            count += 1;
        }
    }
    println!("{count} messages of {body_bytes} bytes in {bytes} bytes of log");
    writer.finish()
}

fn fill_queues(config: &StoreConfig, topics: u64, queues: u64) -> Result<()> {
    let mut writer = writer(config, 100)?;
    for _ in 0..MESSAGES_PER_QUEUE {
        for topic in 0..topics {
            let topic = format!("topic-{topic}");
            for queue in 0..queues {
                writer.put(&topic, i32::try_from(queue)?)?;
            }
        }
    }
    println!("{topics} topics of {queues} queues, {MESSAGES_PER_QUEUE} messages each");
    writer.finish()
}

fn start(what: &str, config: &StoreConfig) -> Result<()> {
    if std::env::var_os("COLD").is_some() {
        forget(&config.store_path_root_dir)?;
    }
    let (begin, cpu_before) = (Instant::now(), cpu_seconds());
    let (store, report) = MessageStore::open(config.clone())?;
    let (elapsed, cpu) = (begin.elapsed(), cpu_seconds() - cpu_before);
    println!("start, {what}: {elapsed:.2?}, {cpu:.2} s of processor time");
    let RecoveryReport { checked_from, checked_records, log_end, .. } = report;
    println!("    checked {checked_records} records from {checked_from} of {log_end}");
    ensure!(report.cut_bytes == 0, "{report:?}");
    print_resources(what);
    let begin = Instant::now();
    store.shutdown()?;
    println!("    shutdown: {:.2?}", begin.elapsed());
    Ok(())
}

/// Processor time of this process, in user and kernel mode.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    // The kernel counts in hundredths for programs, whatever it does itself.
    ticks.map(Result::unwrap_or_default).sum::<f64>() / 100.0
}

/// Lets the kernel drop what it keeps of the files.
fn forget(dir: &Path) -> Result<()> {
    let mut dirs = vec![PathBuf::from(dir)];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            if path.is_dir() {
                dirs.push(path);
                continue;
            }
            let file = std::fs::File::open(path)?;
            file.sync_all()?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
    }
    Ok(())
}

fn print_resources(what: &str) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map_or("?", str::trim).to_owned()
    };
    let files = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let maps = std::fs::read_to_string("/proc/self/maps").map_or(0, |maps| maps.lines().count());
    let (now, most) = (value("VmRSS:"), value("VmHWM:"));
    let anonymous = value("RssAnon:");
    println!(
        "    {what}: resident {now} ({anonymous} anonymous, at most {most}), {files} open files, \
         {maps} mappings"
    );
    // Later peaks are those of what comes then.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}
