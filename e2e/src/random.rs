//! Random numbers that follow from a seed, so that a failure can be repeated.

use std::time::Duration;

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `limit`; 0 for a limit of 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next_u64() % limit.max(1)
    }

    /// A duration of `from` to `to` milliseconds.
    pub fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to.saturating_sub(from) + 1))
    }
}

/// Spreads the bits of a number over all others.
pub fn mix(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// A number that the caller gives in the environment, such as `CRASH_ROUNDS`.
pub fn from_environment(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok().filter(|text| !text.is_empty());
    given.map_or(default, |text| text.parse().expect("the variable holds a number"))
}

/// The seed that the caller gives as `name`, or one that was never used before; printed, so that
/// the run can be repeated.
pub fn seed_from_environment(name: &str) -> u64 {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    let fresh = mix(now.as_nanos() as u64) % 1_000_000;
    let seed = from_environment(name, fresh);
    crate::say(&format!("seed {seed}; {name}={seed} repeats its schedule"));
    seed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_sequence() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            [random.below(100), random.below(100), random.below(100)]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let mut random = Random::new(1);
        for _ in 0..100 {
            assert!((5..=9).contains(&random.millis(5, 9).as_millis()));
        }
    }
}
