//! Loss of power, failed operations and a full disk under the real broker, on a file system that
//! forgets or tears what was not synced (`lossy_fs`).

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use e2e::process::wait_until;
use e2e::random::{Random, from_environment, seed_from_environment};
use e2e::say;
use store::sim_disk::{Fault, SimDisk};

use crate::bed::{Bed, Clients, READY};
use crate::lossy_fs::LossyFs;

/// Messages per second.
const RATE: u32 = 1_500;
/// Changes of the disk within which the fault comes, about.
const OPERATIONS: u64 = 600;
/// Points after which the whole log is read anew.
const FULL_CHECK: u64 = 10;
/// Longest life.
const LIFE: Duration = Duration::from_secs(2);
/// Time for messages to be taken again when there is space again.
const RESUME: Duration = Duration::from_secs(15);

/// What happens to a life of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Strike {
    /// The power goes in the middle of an operation under load.
    Power,
    /// The power goes while the broker recovers.
    PowerAtStart,
    /// One operation fails; the power goes later.
    IoError,
    /// There is no space for a while; the power goes later.
    Full,
}

impl Strike {
    fn draw(random: &mut Random) -> Self {
        match random.below(20) {
            0..9 => Self::Power,
            9..13 => Self::PowerAtStart,
            13..17 => Self::IoError,
            _ => Self::Full,
        }
    }
}

struct Volume {
    bed: Bed,
    mounted: Option<LossyFs>,
}

impl Volume {
    /// A broker whose store is on a lossy volume, ready.
    fn start(seed: u64, flush: &str) -> Result<Self> {
        let mut bed = Bed::make(None)?;
        std::fs::create_dir(&bed.store)?;
        bed.broker.set("flushDiskType", &flush);
        // Small, so that files are rolled too.
        bed.broker.set("mappedFileSizeCommitLog", &(1 << 20));
        bed.broker.set("mappedFileSizeConsumeQueue", &(20 * 500));
        bed.broker.set("maxMessageSize", &(64 << 10));
        // How soon it sees that there is space again.
        bed.broker.set("cleanResourceInterval", &500);
        let mounted = LossyFs::mount(SimDisk::new(seed), &bed.store)?;
        bed.broker.start(READY)?;
        Ok(Self { bed, mounted: Some(mounted) })
    }

    fn disk(&self) -> Result<&SimDisk> {
        Ok(self.mounted.as_ref().context("it is not mounted")?.disk())
    }

    /// Cuts the power under the broker and mounts what is left, still without a broker. With
    /// `is_killed` only the broker ends, and everything it wrote is there.
    fn cut(&mut self, is_killed: bool) -> Result<()> {
        let disk = self.disk()?.clone();
        let is_killed = is_killed && !disk.is_crashed();
        let next = if is_killed { None } else { Some(disk.crash()) };
        self.bed.broker.kill()?;
        let mounted = self.mounted.take().context("it is not mounted")?;
        let disk = mounted.unmount()?;
        let next = next.unwrap_or_else(|| disk.kill());
        self.mounted = Some(LossyFs::mount(next, &self.bed.store)?);
        Ok(())
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // A volume in use cannot be unmounted.
        let _ = self.bed.broker.kill();
    }
}

#[test]
fn nothing_acknowledged_is_lost_with_the_power() -> Result<()> {
    if let Some(reason) = LossyFs::absent() {
        say(&format!("skipped: {reason}; the store's own tests lose power on a simulated disk"));
        return Ok(());
    }
    let points = from_environment("CRASH_POINTS", 10);
    let seed = seed_from_environment("CRASH_POWER_SEED");
    let mut random = Random::new(seed);
    let mut volume = Volume::start(seed, "SYNC_FLUSH")?;
    say(&format!("{points} losses of power at {RATE} messages/s, SYNC_FLUSH, seed {seed}"));
    let mut clients = volume.bed.clients(volume.bed.namesrv.address(), RATE)?;
    let mut strikes: BTreeMap<Strike, (u32, usize)> = BTreeMap::new();
    for number in 1..=points {
        let acked = clients.load.acked();
        let strike = Strike::draw(&mut random);
        let began = Instant::now();
        let outcome = play(&mut volume, &mut clients, &mut random, (strike, number));
        outcome.map_err(|error| {
            volume.bed.fail(&format!("seed {seed}, point {number} {strike:?}: {error:#}"))
        })?;
        let acked = clients.load.acked() - acked;
        say(&format!(
            "point {number:4} {:13} {acked:5} acknowledged, log {:6} messages, {} doubled, {} ms",
            format!("{strike:?}"),
            clients.check.messages,
            clients.check.doubled,
            began.elapsed().as_millis(),
        ));
        let entry = strikes.entry(strike).or_default();
        *entry = (entry.0 + 1, entry.1 + acked);
    }
    let consumed = clients.await_consumed(&volume.bed);
    consumed.map_err(|error| volume.bed.fail(&format!("seed {seed}: {error:#}")))?;
    volume.bed.runtime.block_on(clients.verify_all())?;
    println!("\nstrike         points  acknowledged");
    for (strike, (points, acked)) in strikes {
        println!("{:14} {points:6} {acked:13}", format!("{strike:?}"));
    }
    volume.bed.runtime.block_on(clients.end())?;
    volume.bed.broker.stop().map(drop)
}

/// One life, the strike that ends it, and what the next life finds.
fn play(
    volume: &mut Volume,
    clients: &mut Clients,
    random: &mut Random,
    (strike, number): (Strike, u64),
) -> Result<()> {
    let after = random.below(OPERATIONS);
    clients.load.take_error();
    clients.load.open();
    match strike {
        Strike::Power => {
            volume.disk()?.order_fault(after, Fault::Crash);
            await_crash(volume, LIFE)?;
        }
        Strike::PowerAtStart => std::thread::sleep(random.millis(50, 400)),
        Strike::IoError => {
            volume.disk()?.order_fault(after, Fault::IoError);
            fail_for_good(volume, clients, random)?;
        }
        Strike::Full => run_full(volume, clients, random)?,
    }
    let disk = volume.disk()?;
    disk.clear_faults();
    volume.cut(random.below(4) == 0)?;
    clients.load.pause();
    if strike == Strike::PowerAtStart {
        for _ in 0..=random.below(2) {
            volume.disk()?.order_fault(random.below(40), Fault::Crash);
            volume.bed.broker.spawn()?;
            await_crash(volume, Duration::from_millis(300))?;
            volume.disk()?.clear_faults();
            volume.cut(false)?;
        }
    }
    volume.bed.broker.start(READY)?;
    volume.bed.runtime.block_on(clients.load.close())?;
    volume.bed.runtime.block_on(async {
        if number.is_multiple_of(FULL_CHECK) {
            clients.verify_all().await?;
        } else {
            clients.verify().await?;
        }
        clients.verify_offsets(&[None; 4]).await
    })?;
    Ok(())
}

/// Waits until the ordered loss of power has come, or the time is over.
fn await_crash(volume: &Volume, limit: Duration) -> Result<()> {
    let disk = volume.disk()?;
    let began = Instant::now();
    while !disk.is_crashed() && began.elapsed() < limit {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// An operation fails. If it was one of the log, nothing is acknowledged from then on.
fn fail_for_good(volume: &Volume, clients: &Clients, random: &mut Random) -> Result<()> {
    let is_failure = |text: &str| text.contains("the store failed") || text.contains("failed:");
    let began = Instant::now();
    while began.elapsed() < random.millis(500, 1_500) {
        let error = clients.load.take_error();
        if !error.is_some_and(|text| is_failure(&text)) {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        // Answers that were on their way when it failed.
        std::thread::sleep(Duration::from_millis(100));
        let acked = clients.load.acked();
        std::thread::sleep(Duration::from_millis(300));
        let later = clients.load.acked();
        ensure!(acked == later, "{} were acknowledged after a failure", later - acked);
        ensure!(
            volume.bed.broker.log().contains("the store stops taking messages"),
            "the broker does not say that it takes no more messages"
        );
        return Ok(());
    }
    Ok(())
}

/// There is no space for a while; then messages are taken again, by the same process.
fn run_full(volume: &Volume, clients: &Clients, random: &mut Random) -> Result<()> {
    std::thread::sleep(random.millis(0, 200));
    volume.disk()?.set_full(true);
    std::thread::sleep(random.millis(100, 800));
    volume.disk()?.set_full(false);
    let acked = clients.load.acked();
    let resumed =
        wait_until("messages are taken again", RESUME, || Ok(clients.load.acked() > acked + 50));
    resumed.with_context(|| format!("the last refusal: {:?}", clients.load.take_error()))?;
    Ok(())
}

/// The test would notice: with ASYNC_FLUSH messages are acknowledged before they are on the disk,
/// and soon one is missing after a loss of power.
#[test]
fn a_broker_that_acknowledges_too_early_is_found() -> Result<()> {
    if let Some(reason) = LossyFs::absent() {
        say(&format!("skipped: {reason}"));
        return Ok(());
    }
    let seed = seed_from_environment("CRASH_POWER_SEED");
    let mut random = Random::new(seed);
    let mut volume = Volume::start(seed, "ASYNC_FLUSH")?;
    let mut clients = volume.bed.clients(volume.bed.namesrv.address(), RATE)?;
    for number in 1..=30 {
        let outcome = play(&mut volume, &mut clients, &mut random, (Strike::Power, number));
        match outcome {
            Ok(()) => say(&format!("point {number}: nothing lost, by luck")),
            Err(error) => {
                let text = format!("{error:#}");
                ensure!(text.contains("is lost") || text.contains("was acknowledged"), "{text}");
                say(&format!("ASYNC_FLUSH is found out at point {number}"));
                return volume.bed.runtime.block_on(clients.end());
            }
        }
    }
    bail!("30 losses of power under ASYNC_FLUSH went unnoticed")
}

#[test]
fn what_was_not_synced_can_be_lost() -> Result<()> {
    if let Some(reason) = LossyFs::absent() {
        say(&format!("skipped: {reason}"));
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let mounted = LossyFs::mount(SimDisk::new(1), directory.path())?;
    let file = directory.path().join("a");
    std::fs::write(&file, "unsynced")?;
    ensure!(std::fs::read(&file)? == b"unsynced");
    std::fs::rename(&file, directory.path().join("b"))?;
    std::fs::create_dir(directory.path().join("c"))?;
    let names = std::fs::read_dir(directory.path())?.map(|entry| Ok(entry?.file_name()));
    ensure!(names.collect::<Result<Vec<_>>>()? == ["b", "c"]);
    let synced = std::fs::File::create(directory.path().join("d"))?;
    std::os::unix::fs::FileExt::write_all_at(&synced, b"synced", 10)?;
    synced.sync_data()?;
    std::fs::File::open(directory.path())?.sync_all()?;
    ensure!(std::fs::metadata(directory.path().join("d"))?.len() == 16);
    drop(synced);
    let disk = mounted.unmount()?.crash();
    let mounted = LossyFs::mount(disk, directory.path())?;
    let read = std::fs::read(directory.path().join("d"))?;
    ensure!(read == [&[0; 10][..], b"synced"].concat(), "{read:?}");
    let is_there = |name: &str| Path::new(directory.path()).join(name).exists();
    ensure!(is_there("b") && !is_there("a"));
    mounted.unmount().map(drop)
}
