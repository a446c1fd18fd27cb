//! Random numbers from a seed. One stream for each purpose, so that leaving a fault out does not reshuffle the rest.

/// SplitMix64: small, fast, and the same everywhere.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng =
            Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        rng.number();
        rng
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `end`, which is not zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end.max(1)
    }

    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last.saturating_sub(first) + 1)
    }

    /// True so many times in a thousand.
    pub fn odds(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let at = self.below(from.len() as u64);
        from[usize::try_from(at).unwrap_or_default()]
    }
}
