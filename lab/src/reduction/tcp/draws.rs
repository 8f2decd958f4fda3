//! A small seeded source of random numbers, equal on every platform.

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014, §2).
#[derive(Debug, Clone)]
pub(crate) struct Draws {
    state: u64,
}

impl Draws {
    /// A source for one purpose: different streams of one seed are independent of each other.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut mixer = Self { state: seed ^ stream.wrapping_mul(GOLDEN_GAMMA).rotate_left(32) };
        Self { state: mixer.bits() }
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN_GAMMA);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in [0, 1).
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// One of 0 to `n` − 1; `n` is at least 1.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((self.uniform() * n as f64) as usize).min(n - 1)
    }

    /// An exponential number with this mean.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        // 1 − u lies in (0, 1], so the logarithm is finite.
        -mean * (1.0 - self.uniform()).ln()
    }
}

/// 2^64 divided by the golden ratio, made odd: the increment of SplitMix64.
const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
