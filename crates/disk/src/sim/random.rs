//! A small seeded generator, so that a power cut can be repeated from its seed alone.

/// SplitMix64. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of one seed; the same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which must not be 0. The bias is irrelevant for bounds far below 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a number below 0 was asked for");
        self.next_u64() % bound
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
