//! Who reaches whom, how late, and the replication connections.

use replication::Millis;
use replication::replica::{Ack, Frame, Link, MasterHello, SlaveHello};

use crate::fault::{Direction, Endpoint};
use crate::random::Random;

/// Delay of a message when nothing is wrong.
const DELAY_MAX: Millis = 5;

#[derive(Debug)]
struct Block {
    side: Vec<Endpoint>,
    /// The other side; everybody else if empty.
    others: Vec<Endpoint>,
    direction: Direction,
    until: Millis,
}

#[derive(Debug, Default, Clone, Copy)]
struct Noise {
    loss: u64,
    double: u64,
    delay_max: Millis,
    until: Millis,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Network {
    blocks: Vec<Block>,
    noise: Noise,
    random: Random,
    pub(crate) connections: Vec<Connection>,
}

/// A replication connection, in both directions in order.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Broker and run at the slave's end, and the number that it gave.
    pub(crate) slave: (usize, u64, Link),
    /// Broker and run at the master's end.
    pub(crate) master: (usize, u64),
    pub(crate) is_closed: bool,
    /// Time of the last delivery to the slave and to the master.
    last: [Millis; 2],
    /// Next offset that the master sends.
    pub(crate) next: Option<i64>,
    /// Confirm offset that was last sent.
    pub(crate) confirm_sent: i64,
}

/// What goes over a replication connection.
#[derive(Debug, Clone)]
pub(crate) enum HaMessage {
    SlaveHello(SlaveHello),
    MasterHello(MasterHello),
    Ack(Ack),
    Data(Frame, Vec<u32>),
    Gone,
}

impl Network {
    pub(crate) fn new(seed: u64) -> Self {
        let random = Random::new(seed, "network");
        Self { blocks: Vec::new(), noise: Noise::default(), random, connections: Vec::new() }
    }

    pub(crate) fn partition(&mut self, side: Vec<Endpoint>, direction: Direction, until: Millis) {
        self.blocks.push(Block { side, others: Vec::new(), direction, until });
    }

    pub(crate) fn cut(&mut self, from: Endpoint, to: Endpoint, until: Millis) {
        let (side, others) = (vec![from], vec![to]);
        self.blocks.push(Block { side, others, direction: Direction::Out, until });
    }

    pub(crate) fn set_noise(&mut self, loss: u64, double: u64, delay_max: Millis, until: Millis) {
        self.noise = Noise { loss, double, delay_max, until };
    }

    pub(crate) fn heal(&mut self) {
        self.blocks.clear();
        self.noise = Noise::default();
    }

    pub(crate) fn is_blocked(&self, now: Millis, from: Endpoint, to: Endpoint) -> bool {
        self.blocks.iter().any(|block| {
            let is_other = |e: &Endpoint| {
                !block.side.contains(e) && (block.others.is_empty() || block.others.contains(e))
            };
            let goes_out = block.side.contains(&from) && is_other(&to);
            let goes_in = block.side.contains(&to) && is_other(&from);
            let is_hit = match block.direction {
                Direction::Both => goes_out || goes_in,
                Direction::Out => goes_out,
                Direction::In => goes_in,
            };
            now < block.until && is_hit
        })
    }

    fn is_noisy(&self, now: Millis) -> bool {
        now < self.noise.until
    }

    fn delay(&mut self, now: Millis) -> Millis {
        let usual = self.random.below(DELAY_MAX);
        // Most messages are quick even in a bad network.
        if self.is_noisy(now) && self.random.chance(300) {
            usual + self.random.below(self.noise.delay_max)
        } else {
            usual
        }
    }

    /// When copies of a message arrive: never, once, or twice.
    pub(crate) fn arrivals(&mut self, now: Millis, from: Endpoint, to: Endpoint) -> Vec<Millis> {
        let is_noisy = self.is_noisy(now);
        if self.is_blocked(now, from, to) || (is_noisy && self.random.chance(self.noise.loss)) {
            return Vec::new();
        }
        let mut arrivals = vec![now + self.delay(now)];
        if is_noisy && self.random.chance(self.noise.double) {
            arrivals.push(now + self.delay(now));
        }
        arrivals
    }

    pub(crate) fn connect(&mut self, slave: (usize, u64, Link), master: (usize, u64)) -> usize {
        self.connections.push(Connection {
            slave,
            master,
            is_closed: false,
            last: [0; 2],
            next: None,
            confirm_sent: -1,
        });
        self.connections.len() - 1
    }

    /// When a message over a connection arrives; `None` if the connection is cut, which then
    /// carries nothing more.
    pub(crate) fn deliver(
        &mut self,
        now: Millis,
        connection: usize,
        is_to_master: bool,
    ) -> Option<Millis> {
        let (slave, master) = {
            let connection = &self.connections[connection];
            (Endpoint::Broker(connection.slave.0), Endpoint::Broker(connection.master.0))
        };
        let (from, to) = if is_to_master { (slave, master) } else { (master, slave) };
        let is_blocked = self.is_blocked(now, from, to);
        let delay = self.delay(now);
        let connection = &mut self.connections[connection];
        if connection.is_closed || is_blocked {
            connection.is_closed = true;
            return None;
        }
        let last = &mut connection.last[usize::from(is_to_master)];
        *last = (*last).max(now + delay);
        Some(*last)
    }

    pub(crate) fn some_time(&mut self, low: Millis, high: Millis) -> Millis {
        self.random.range(low, high)
    }

    pub(crate) fn random(&mut self) -> &mut Random {
        &mut self.random
    }
}
