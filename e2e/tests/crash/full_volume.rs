//! A volume that fills up: messages are refused in time and with a reason, everything else goes on,
//! and they are taken again when there is space, by the same process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use client::{Admin, Message, Producer, ProducerConfig, SendError};
use e2e::process::{output, wait_until};
use e2e::say;
use protocol::response_code::ResponseCode;
use protocol::topic_config::TopicConfig;

use crate::bed::{Bed, Clients, GROUP, QUEUES, READY, TOPIC};

/// Messages per second.
const RATE: u32 = 2_000;
const LIMIT: Duration = Duration::from_secs(30);
const VOLUME_MIB: u64 = 96;
/// What a file system counts its space in, at least.
const BLOCK_BYTES: u64 = 1_024;

/// A file system of its own, unmounted when dropped.
struct Mounted {
    at: PathBuf,
}

impl Mounted {
    /// A file system in memory.
    fn tmpfs(directory: &Path) -> Result<Self> {
        let at = directory.join("tmpfs");
        std::fs::create_dir(&at)?;
        let size = format!("size={VOLUME_MIB}m");
        output(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&at))?;
        Ok(Self { at })
    }

    /// An ext4 in a file; `None` with the reason when this machine cannot.
    fn ext4(directory: &Path) -> Result<Self, String> {
        let (image, at) = (directory.join("ext4.img"), directory.join("ext4"));
        let make = || {
            std::fs::create_dir(&at)?;
            std::fs::File::create(&image)?.set_len(VOLUME_MIB << 20)?;
            let mut make = Command::new("mkfs.ext4");
            output(make.args(["-q", "-F", "-m", "0", "-J", "size=4"]).arg(&image))?;
            output(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at))
        };
        make().map_err(|error| format!("{error:#}"))?;
        Ok(Self { at })
    }

    /// Fills it but for `left` bytes; removing the file that is returned makes room.
    fn fill(&self, left: u64) -> Result<PathBuf> {
        let ballast = self.at.join("ballast");
        let file = std::fs::File::create(&ballast)?;
        let mut step = free(&self.at)?.saturating_sub(left);
        let mut filled = 0;
        // What is free is not all for content.
        while step >= BLOCK_BYTES && free(&self.at)? > left {
            let flags = rustix::fs::FallocateFlags::empty();
            match rustix::fs::fallocate(&file, flags, filled, step) {
                Ok(()) => filled += step,
                Err(rustix::io::Errno::NOSPC) => step /= 2,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(ballast)
    }
}

/// Bytes that are free.
fn free(path: &Path) -> Result<u64> {
    let space = rustix::fs::statvfs(path)?;
    Ok(space.f_bavail * space.f_frsize)
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = output(Command::new("umount").arg(&self.at));
        if let Err(error) = unmounted {
            say(&format!("{error:#}"));
        }
    }
}

#[test]
fn a_full_volume_refuses_messages_and_nothing_else() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        say("skipped: mounting a small volume needs root");
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    say(&format!("a tmpfs of {VOLUME_MIB} MiB, SYNC_FLUSH"));
    run(&Mounted::tmpfs(directory.path())?)?;
    match Mounted::ext4(directory.path()) {
        Ok(volume) => {
            say(&format!("an ext4 of {VOLUME_MIB} MiB, SYNC_FLUSH"));
            run(&volume)
        }
        Err(reason) => {
            say(&format!("ext4 skipped: {reason}"));
            Ok(())
        }
    }
}

fn run(volume: &Mounted) -> Result<()> {
    let mut bed = Bed::make(Some(&volume.at.join("store")))?;
    bed.broker.set("mappedFileSizeCommitLog", &(4 << 20));
    bed.broker.set("maxMessageSize", &(1 << 20));
    bed.broker.set("cleanResourceInterval", &200);
    bed.broker.set("diskSpaceWarningLevelRatio", &90);
    bed.broker.start(READY)?;
    let mut clients = bed.clients(bed.namesrv.address(), RATE)?;
    let outcome = phases(volume, &mut bed, &mut clients);
    outcome.map_err(|error| bed.fail(&format!("{error:#}")))?;
    bed.runtime.block_on(clients.end())?;
    bed.broker.stop().map(drop)
}

fn phases(volume: &Mounted, bed: &mut Bed, clients: &mut Clients) -> Result<()> {
    say("the watermark");
    clients.load.open();
    clients.await_acked(500)?;
    let room = |left| volume.fill(left << 20);
    let ballast = room(VOLUME_MIB / 20)?;
    let refusal = refused(bed, clients)?;
    ensure!(refusal.contains("diskSpaceWarningLevelRatio is 90"), "refused with: {refusal}");
    goes_on(bed, clients, true)?;
    std::fs::remove_file(ballast)?;
    clients.load.open();
    clients.await_acked(500)?;
    say("no space at all");
    bed.runtime.block_on(clients.load.close())?;
    restart_without_watermark(bed)?;
    clients.load.open();
    clients.await_acked(500)?;
    let ballast = room(0)?;
    let refusal = refused(bed, clients)?;
    let is_named = refusal.contains("no space for the commit log")
        || refusal.contains("a consume queue cannot be written");
    ensure!(is_named, "refused with: {refusal}");
    goes_on(bed, clients, false)?;
    std::fs::remove_file(ballast)?;
    clients.load.open();
    clients.await_acked(500)?;
    bed.runtime.block_on(clients.load.close())?;
    clients.await_consumed(bed)?;
    bed.runtime.block_on(clients.verify_all())?;
    say("a crash and another start");
    bed.broker.kill()?;
    bed.broker.start(READY)?;
    bed.runtime.block_on(clients.verify_all())?;
    let check = &clients.check;
    say(&format!("{} messages, {} doubled, none lost", check.messages, check.doubled));
    Ok(())
}

/// The broker's own rule would refuse before the file system does.
fn restart_without_watermark(bed: &mut Bed) -> Result<()> {
    bed.broker.stop()?;
    bed.broker.set("diskSpaceWarningLevelRatio", &100);
    bed.broker.start(READY).map(drop)
}

/// Waits until a plain send is refused as it should be, and stops the load; returns the words.
fn refused(bed: &Bed, clients: &Clients) -> Result<String> {
    let config = ProducerConfig { retries: 0, ..ProducerConfig::new("probe") };
    let probe = Producer::start(&clients.instance, config)?;
    let mut words = String::new();
    wait_until("messages are refused", LIMIT, || {
        let message = Message::new("probe", vec![b'x'; 1_000]);
        match bed.runtime.block_on(probe.send(&message)) {
            Ok(_) => Ok(false),
            Err(SendError::Failed { last, .. }) => {
                words = last.to_string();
                ensure!(last.code() == Some(ResponseCode::SERVICE_NOT_AVAILABLE), "{words}");
                Ok(true)
            }
            Err(error) => Err(error.into()),
        }
    })?;
    bed.runtime.block_on(probe.shutdown());
    bed.runtime.block_on(clients.load.close())?;
    say(&format!("refused: {words}"));
    Ok(words)
}

/// Messages are refused, and everything else is not. Without any space tables cannot be saved, and
/// that is said, too.
fn goes_on(bed: &mut Bed, clients: &mut Clients, has_space: bool) -> Result<()> {
    ensure!(bed.broker.is_running(), "the broker has ended");
    if has_space {
        // Without space for the queues the newest messages are not readable yet.
        bed.runtime.block_on(clients.verify())?;
        clients.await_consumed(bed)?;
    }
    bed.runtime.block_on(async {
        let admin = Admin::new(&clients.instance);
        let address = bed.broker.address();
        let stats = admin.topic_stats_at(address, TOPIC).await?;
        ensure!(stats.offset_table.0.len() == QUEUES as usize, "{stats:?}");
        admin.consume_stats_at(address, GROUP, Some(TOPIC)).await?;
        let topic = TopicConfig { topic_name: "late".to_owned(), ..TopicConfig::default() };
        let created = admin.create_topic(address, &topic).await;
        match created {
            Err(error) if !has_space => say(&format!("a topic cannot be saved: {error}")),
            created => created?,
        }
        admin.broker_runtime_info(address).await?;
        anyhow::Ok(())
    })
}
