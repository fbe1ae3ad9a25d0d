//! SIGKILL at any moment: under load, while the broker starts, recovers or stops, while it is
//! paused. What was acknowledged is there, where its sender was told, in order.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::ledger::Sent;
use e2e::random::{Random, from_environment, seed_from_environment};
use e2e::say;
use rustix::process::Signal;

use crate::bed::{Bed, Clients, QUEUES, READY};

/// Messages per second.
const RATE: u32 = 3_000;
/// Rounds after which the whole log is read anew.
const FULL_CHECK: u64 = 50;

/// How a life of the broker ends, or begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// Killed under load.
    Kill,
    /// Killed under load, and again before it was ready.
    KillAtStart,
    /// Told to stop under load, and killed before it had.
    KillAtStop,
    /// Stopped for a while by SIGSTOP, goes on, and is killed later.
    Pause,
    /// Killed while it is paused.
    KillPaused,
    /// Stopped in order.
    Stop,
}

impl Way {
    fn draw(random: &mut Random) -> Self {
        match random.below(20) {
            0..8 => Self::Kill,
            8..12 => Self::KillAtStart,
            12..15 => Self::KillAtStop,
            15..17 => Self::Pause,
            17..19 => Self::KillPaused,
            _ => Self::Stop,
        }
    }
}

/// What happened in one round.
struct Round {
    way: Way,
    acked: usize,
    failed: usize,
    ready: Duration,
    took: Duration,
}

#[test]
fn nothing_acknowledged_is_lost_when_the_broker_is_killed() -> Result<()> {
    let rounds = from_environment("CRASH_ROUNDS", 20);
    let seed = seed_from_environment("CRASH_SEED");
    let mut random = Random::new(seed);
    let mut bed = Bed::make(None)?;
    say(&format!("{rounds} rounds of kill -9 at {RATE} messages/s, SYNC_FLUSH, seed {seed}"));
    bed.broker.start(READY)?;
    let mut clients = bed.clients(bed.namesrv.address(), RATE)?;
    let mut done = Vec::new();
    for number in 1..=rounds {
        let round = play(&mut bed, &mut clients, &mut random, number)
            .map_err(|error| bed.fail(&format!("seed {seed}, round {number}: {error:#}")))?;
        let check = &clients.check;
        say(&format!(
            "round {number:4} {:12} {:5} acknowledged, {:4} unanswered or refused, ready in \
             {:4} ms; log {:7} messages, {} doubled",
            format!("{:?}", round.way),
            round.acked,
            round.failed,
            round.ready.as_millis(),
            check.messages,
            check.doubled,
        ));
        done.push(round);
    }
    finish(&bed, &mut clients).map_err(|error| bed.fail(&format!("seed {seed}: {error:#}")))?;
    bed.runtime.block_on(clients.end())?;
    bed.broker.stop()?;
    summarise(&done);
    println!("nothing acknowledged was lost, moved, damaged or reordered");
    Ok(())
}

/// A life under load, its end, and what the next life finds.
fn play(bed: &mut Bed, clients: &mut Clients, random: &mut Random, number: u64) -> Result<Round> {
    let began = Instant::now();
    let way = Way::draw(random);
    let acked = clients.load.acked();
    let failed = clients.load.counts().failed.load(Ordering::Relaxed);
    clients.load.open();
    clients.await_acked(1)?;
    std::thread::sleep(random.millis(150, 1_200));
    end_life(bed, way, random)?;
    clients.load.pause();
    let on_disk = bed.offsets_on_disk()?;
    if way == Way::KillAtStart {
        for _ in 0..=random.below(2) {
            bed.broker.spawn()?;
            std::thread::sleep(random.millis(0, 60));
            bed.broker.kill()?;
        }
    }
    let ready = bed.broker.start(READY)?;
    // What is under way is tried again until it is stored or its time is over.
    bed.runtime.block_on(clients.load.close())?;
    let acked = clients.load.acked() - acked;
    let failed = clients.load.counts().failed.load(Ordering::Relaxed) - failed;
    bed.runtime.block_on(async {
        if number.is_multiple_of(FULL_CHECK) {
            clients.verify_all().await?;
        } else {
            clients.verify().await?;
        }
        clients.verify_offsets(&on_disk).await
    })?;
    Ok(Round { way, acked, failed, ready, took: began.elapsed() })
}

fn end_life(bed: &mut Bed, way: Way, random: &mut Random) -> Result<()> {
    match way {
        Way::Kill | Way::KillAtStart => bed.broker.kill(),
        Way::KillAtStop => {
            bed.broker.signal(Signal::TERM)?;
            std::thread::sleep(random.millis(0, 150));
            bed.broker.kill()
        }
        Way::Pause => {
            bed.broker.signal(Signal::STOP)?;
            std::thread::sleep(random.millis(100, 2_500));
            bed.broker.signal(Signal::CONT)?;
            std::thread::sleep(random.millis(100, 500));
            bed.broker.kill()
        }
        Way::KillPaused => {
            bed.broker.signal(Signal::STOP)?;
            std::thread::sleep(random.millis(0, 500));
            bed.broker.kill()
        }
        Way::Stop => bed.broker.stop().map(drop),
    }
}

/// Everything is consumed, the whole log is right, and the check finds a message that it is told
/// was acknowledged.
fn finish(bed: &Bed, clients: &mut Clients) -> Result<()> {
    let took = clients.await_consumed(bed)?;
    let deliveries = clients.consumption.deliveries();
    say(&format!("the group has everything {} ms later", took.as_millis()));
    bed.runtime.block_on(clients.verify_all())?;
    let stored = clients.check.messages;
    say(&format!("read the whole log: {stored} messages, {deliveries} deliveries"));
    let forgotten = Sent { stream: 0, number: u64::MAX };
    let end = clients.check.next_offset(QUEUES - 1);
    clients.load.ledger().acked(QUEUES - 1, end, forgotten);
    let error = bed.runtime.block_on(clients.verify_all()).err();
    let error = error.context("the check did not miss a message that never was")?;
    ensure!(format!("{error:#}").contains("is lost"), "{error:#}");
    say("a planted loss is found");
    Ok(())
}

fn summarise(rounds: &[Round]) {
    let mut ways: BTreeMap<Way, Vec<&Round>> = BTreeMap::new();
    for round in rounds {
        ways.entry(round.way).or_default().push(round);
    }
    println!("\nend of life    rounds  acknowledged  unanswered  ready p50  ready max  seconds");
    for (way, rounds) in ways {
        let mut ready: Vec<_> = rounds.iter().map(|round| round.ready.as_millis()).collect();
        ready.sort_unstable();
        println!(
            "{:14} {:6} {:13} {:11} {:7} ms {:7} ms {:8.1}",
            format!("{way:?}"),
            rounds.len(),
            rounds.iter().map(|round| round.acked).sum::<usize>(),
            rounds.iter().map(|round| round.failed).sum::<usize>(),
            ready[ready.len() / 2],
            ready[ready.len() - 1],
            rounds.iter().map(|round| round.took.as_secs_f64()).sum::<f64>(),
        );
    }
}
