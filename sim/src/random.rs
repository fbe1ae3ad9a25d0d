//! Numbers that a seed decides. One stream per concern, so that a new draw in one place does not
//! shift all others.

/// SplitMix64.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream `name` of `seed`.
    #[must_use]
    pub fn new(seed: u64, name: &str) -> Self {
        let mut random = Self { state: seed };
        for byte in name.bytes() {
            random.state = random.state.wrapping_mul(31).wrapping_add(u64::from(byte));
            random.draw();
        }
        random
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, 0 if that is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit.max(1)
    }

    /// A number from `low` to below `high`.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low))
    }

    /// True in so many of 1,000 cases.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// An index below `length`.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }
}
