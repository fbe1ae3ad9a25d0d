//! What goes wrong, and when.

use replication::Millis;

use crate::random::Random;
use crate::scenario::{FAULTS_UNTIL, Scenario};

/// Who can be cut off from whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// A broker.
    Broker(usize),
    /// An operator replica.
    Operator(usize),
    /// The record's store.
    Store,
    /// A name server.
    NameServer(usize),
    /// A client.
    Client(usize),
}

/// Which messages a partition stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// All between the two sides.
    Both,
    /// Those that leave the chosen side.
    Out,
    /// Those that go to it.
    In,
}

/// How a broker's process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// Ends in order: everything is on the disk, and the disk says so.
    Stop,
    /// The process is killed; what it wrote is there.
    Kill,
    /// The machine loses power; what was not synced may be lost.
    Power,
    /// The disk is lost.
    Wipe,
    /// The disk is put back to an earlier state.
    RollBack,
}

/// Something that goes wrong, or is done to the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A broker ends and comes back.
    Crash { broker: usize, death: Death, back_after: Millis },
    /// A broker ends within its next steps that change the disk.
    CrashAtStep { broker: usize, step: u64, death: Death, back_after: Millis },
    /// All brokers end at once.
    CrashAll { death: Death, back_after: Millis },
    /// A broker stands still.
    Pause { broker: usize, length: Millis },
    /// An operator replica stands still.
    PauseOperator { operator: usize, length: Millis },
    /// An operator replica ends and comes back.
    CrashOperator { operator: usize, back_after: Millis },
    /// Some cannot reach the others.
    Partition { side: Vec<Endpoint>, direction: Direction, length: Millis },
    /// One cannot reach the other.
    Cut { from: Endpoint, to: Endpoint, length: Millis },
    /// Messages get lost, late, doubled and out of order.
    Noise { loss: u64, double: u64, delay_max: Millis, length: Millis },
    /// The record's store does not answer.
    StoreOutage { length: Millis },
    /// It answers late, and reads may be old.
    StoreSlow { length: Millis },
    /// The record is put back to an earlier state, or is gone.
    StoreRestored { is_gone: bool },
    /// A disk does not complete anything.
    DiskStall { broker: usize, length: Millis },
    /// Somebody asks for a hand-over.
    HandOver { target: Option<usize> },
    /// A node is drained.
    Drain { broker: usize, length: Millis },
    /// Every operator replica believes that it leads.
    AllLead { length: Millis },
    /// All brokers are restarted in order, the master handing over before.
    Upgrade,
    /// Another replica is wanted, or one less.
    Scale { is_up: bool },
}

/// A fault and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// When.
    pub at: Millis,
    /// What.
    pub fault: Fault,
}

impl Fault {
    /// The faults of a scenario: a few kinds are drawn, and then instances of these.
    pub(crate) fn plan(scenario: &Scenario, random: &mut Random) -> Vec<Planned> {
        const KINDS: usize = 18;
        let kinds: Vec<usize> = (0..KINDS).filter(|_| random.chance(330)).collect();
        if kinds.is_empty() {
            return Vec::new();
        }
        let count = random.range(1, 14);
        let mut faults: Vec<Planned> = (0..count)
            .map(|_| {
                let kind = kinds[random.index(kinds.len())];
                let at = random.range(3_000, FAULTS_UNTIL - 5_000);
                Planned { at, fault: Self::draw(kind, scenario, random) }
            })
            .collect();
        faults.sort_by_key(|planned| planned.at);
        faults
    }

    fn draw(kind: usize, scenario: &Scenario, random: &mut Random) -> Self {
        let broker = random.index(scenario.replicas);
        let operator = random.index(scenario.operators);
        let length =
            if random.chance(500) { random.range(200, 4_000) } else { random.range(2_000, 20_000) };
        let back_after = if random.chance(500) { random.range(50, 3_000) } else { length };
        let death = [Death::Kill, Death::Power, Death::Stop][random.index(3)];
        let disk_death = [Death::Wipe, Death::RollBack][random.index(2)];
        match kind {
            0 | 1 => Self::Crash { broker, death, back_after },
            2 => Self::Crash { broker, death: disk_death, back_after },
            3 | 4 => {
                let step = random.below(12);
                Self::CrashAtStep { broker, step, death, back_after }
            }
            5 => Self::CrashAll { death, back_after },
            6 => Self::Pause { broker, length },
            7 => Self::PauseOperator { operator, length },
            8 => Self::CrashOperator { operator, back_after },
            9 => Self::partition(scenario, length, random),
            10 => {
                let all = endpoints(scenario);
                let from = all[random.index(all.len())];
                Self::Cut { from, to: Endpoint::Broker(broker), length }
            }
            11 => {
                let (loss, double) = (random.below(300), random.below(200));
                let delay_max = [20, 200, 1_000, 5_000][random.index(4)];
                Self::Noise { loss, double, delay_max, length }
            }
            12 => Self::StoreOutage { length },
            13 => Self::StoreSlow { length },
            14 if random.chance(300) => Self::StoreRestored { is_gone: random.chance(300) },
            14 => Self::DiskStall { broker, length },
            15 => Self::HandOver { target: random.chance(500).then_some(broker) },
            16 if random.chance(500) => Self::Drain { broker, length },
            16 => Self::AllLead { length },
            _ if random.chance(300) => Self::Scale { is_up: random.chance(500) },
            _ => Self::Upgrade,
        }
    }

    fn partition(scenario: &Scenario, length: Millis, random: &mut Random) -> Self {
        let all = endpoints(scenario);
        let direction = [Direction::Both, Direction::Both, Direction::Out, Direction::In];
        let direction = direction[random.index(4)];
        let side = if random.chance(500) {
            vec![Endpoint::Broker(random.index(scenario.replicas))]
        } else {
            all.into_iter().filter(|_| random.chance(500)).collect()
        };
        Self::Partition { side, direction, length }
    }
}

fn endpoints(scenario: &Scenario) -> Vec<Endpoint> {
    let brokers = (0..scenario.replicas).map(Endpoint::Broker);
    let operators = (0..scenario.operators).map(Endpoint::Operator);
    let name_servers = (0..scenario.name_servers).map(Endpoint::NameServer);
    let clients = (0..scenario.clients).map(Endpoint::Client);
    brokers.chain(operators).chain(name_servers).chain(clients).chain([Endpoint::Store]).collect()
}
