//! A bad network between clients, broker and name server. The clients recover by themselves,
//! nothing acknowledged is lost, and the broker keeps nothing of a client that is gone.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::process::wait_until;
use e2e::random::{Random, seed_from_environment};
use e2e::say;
use e2e::server::{Server, free_port};
use rustix::process::Signal;

use crate::bed::{Bed, Clients, READY};
use crate::tcp_fault::{End, Mode, TcpFault};

/// Messages per second.
const RATE: u32 = 2_000;
/// Time for clients to send again after a fault, and for the broker to forget those that are gone.
const RECOVER: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_secs(3);

/// What is wrong with the way to a server.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Mode(Mode),
    End(End),
    /// The process stands still (SIGSTOP).
    Paused,
}

const TROUBLES: [Trouble; 9] = [
    Trouble::End(End::Close),
    Trouble::End(End::Reset),
    Trouble::End(End::Vanish),
    Trouble::Mode(Mode::Delay(Duration::from_millis(40))),
    Trouble::Mode(Mode::Dribble),
    Trouble::Mode(Mode::Silent),
    Trouble::Mode(Mode::Refuse),
    Trouble::End(End::Reset),
    Trouble::Paused,
];

struct Network {
    to_broker: TcpFault,
    to_namesrv: TcpFault,
}

#[test]
fn clients_recover_from_a_bad_network_and_leave_nothing_behind() -> Result<()> {
    let seed = seed_from_environment("CRASH_NETWORK_SEED");
    let mut random = Random::new(seed);
    let mut bed = Bed::make(None)?;
    // Clients are told the relay's address, which is the broker's port at another address.
    bed.broker.set("brokerIP1", &"127.0.0.2");
    bed.broker.set("serverChannelMaxIdleTimeSeconds", &3);
    bed.broker.start(READY)?;
    let relay = bed.broker.address().replace("127.0.0.1", "127.0.0.2");
    let namesrv = format!("127.0.0.1:{}", free_port()?);
    let network = bed.runtime.block_on(async {
        anyhow::Ok(Network {
            to_broker: TcpFault::start(&relay, bed.broker.address()).await?,
            to_namesrv: TcpFault::start(&namesrv, bed.namesrv.address()).await?,
        })
    })?;
    let before = bed.broker.metric("rocketmq_remoting_connections")?;
    let mut clients = bed.clients(&namesrv, RATE)?;
    let outcome = troubles(&bed, &network, &mut clients, &mut random)
        .and_then(|()| end(&bed, clients, before));
    outcome.map_err(|error| bed.fail(&format!("seed {seed}: {error:#}")))?;
    let (broker, namesrv) = (network.to_broker.accepted(), network.to_namesrv.accepted());
    say(&format!("connections made: {broker} to the broker, {namesrv} to the name server"));
    bed.broker.stop().map(drop)
}

fn troubles(
    bed: &Bed,
    network: &Network,
    clients: &mut Clients,
    random: &mut Random,
) -> Result<()> {
    clients.load.open();
    clients.await_acked(200)?;
    for trouble in TROUBLES {
        let took = suffer((&bed.broker, &network.to_broker), trouble, random)?;
        report("broker", trouble, took, clients)?;
    }
    for trouble in TROUBLES {
        let acked = clients.load.acked();
        let took = suffer((&bed.namesrv, &network.to_namesrv), trouble, random)?;
        let sent = clients.load.acked() - acked;
        ensure!(sent > 0, "routes are known, but nothing was sent without a name server");
        report("name server", trouble, took, clients)?;
    }
    bed.runtime.block_on(clients.load.close())?;
    clients.await_consumed(bed)?;
    bed.runtime.block_on(clients.verify_all())?;
    let check = &clients.check;
    say(&format!("{} messages, {} doubled, none lost", check.messages, check.doubled));
    Ok(())
}

/// Makes trouble for a while, with the load going on; returns how long.
fn suffer(
    (server, relay): (&Server, &TcpFault),
    trouble: Trouble,
    random: &mut Random,
) -> Result<Duration> {
    let began = Instant::now();
    match trouble {
        Trouble::End(end) => {
            for _ in 0..=random.below(3) {
                relay.end(end);
                std::thread::sleep(random.millis(20, 200));
            }
        }
        Trouble::Mode(mode) => {
            relay.set(mode);
            std::thread::sleep(random.millis(500, 2_500));
            relay.set(Mode::Pass);
        }
        Trouble::Paused => {
            server.signal(Signal::STOP)?;
            std::thread::sleep(PAUSE);
            server.signal(Signal::CONT)?;
        }
    }
    Ok(began.elapsed())
}

fn report(place: &str, trouble: Trouble, took: Duration, clients: &Clients) -> Result<()> {
    let recovered = clients.await_acked(200);
    let recovered = recovered.with_context(|| format!("after {trouble:?} at the {place}"))?;
    say(&format!(
        "{place}: {trouble:?} for {} ms, sending again {} ms later",
        took.as_millis(),
        recovered.as_millis()
    ));
    Ok(())
}

/// The clients end, and the broker has as many connections as before and holds nothing.
fn end(bed: &Bed, clients: Clients, before: f64) -> Result<()> {
    bed.runtime.block_on(clients.end())?;
    let took = wait_until("the broker forgets the clients", RECOVER, || {
        let connections = bed.broker.metric("rocketmq_remoting_connections")?;
        let held = bed.broker.metric("rocketmq_pull_hold")?;
        let requests = bed.broker.metric("rocketmq_remoting_requests_in_flight")?;
        ensure!(
            connections <= before && held == 0.0 && requests == 0.0,
            "{connections} connections (before: {before}), {held} held pulls, {requests} requests"
        );
        Ok(true)
    })?;
    say(&format!("the broker keeps nothing of its clients {} ms later", took.as_millis()));
    Ok(())
}
