//! Small seeded generator of random numbers, equal on every platform and in every release.

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014,
/// §2).
#[derive(Debug, Clone)]
pub(crate) struct SeededRng {
    state: u64,
}

impl SeededRng {
    /// Creates a generator for one seed and one name. Different names of one seed give independent
    /// numbers.
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        Self { state: mixed(seed ^ hash(name)) }
    }

    /// The next 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN_GAMMA);
        mixed(self.state)
    }

    /// The next number in [0, 1), from the 53 bits that an `f64` holds.
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A random index from 0 to `n` − 1; 0 if `n` is 0.
    pub(crate) fn index_below(&mut self, n: usize) -> usize {
        ((self.uniform() * n as f64) as usize).min(n.saturating_sub(1))
    }
}

/// Pseudorandom number of a name under a seed: the same everywhere, and different for other names.
pub(crate) fn hash_rank(seed: u64, name: &str) -> u64 {
    mixed(seed ^ hash(name))
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo). Names are short and are not secret.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// 2^64 divided by the golden ratio, made odd: the increment of SplitMix64.
const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_and_hashes_equal_the_published_test_vectors() {
        // Published test vector of SplitMix64 for seed 1234567.
        let mut rng = SeededRng { state: 1_234_567 };
        assert_eq!(rng.bits(), 6_457_827_717_110_365_317);
        assert_eq!(rng.bits(), 3_203_168_211_198_807_973);
        // Published test vectors of FNV-1a.
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash("foobar"), 0x8594_4171_f739_67e8);
    }
}
