//! A small seeded random number generator, identical on every platform and in every release.

use std::f64::consts::TAU;

/// SplitMix64 generator (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA
/// 2014, §2).
#[derive(Debug, Clone)]
pub struct SeededRng {
    state: u64,
}

impl SeededRng {
    /// Creates a generator for one purpose; different streams of one seed are independent of each
    /// other.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut mixer = Self { state: seed ^ stream.wrapping_mul(GOLDEN_GAMMA).rotate_left(32) };
        Self { state: mixer.next_u64() }
    }

    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN_GAMMA);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a uniform number in [0, 1), from the 53 bits that an `f64` can represent.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns true with probability `p`. The function always makes one draw, so that streams stay
    /// aligned.
    pub fn bernoulli(&mut self, p: f64) -> bool {
        self.uniform() < p
    }

    /// Returns an integer from 0 to `n` − 1; 0 if `n` is 0.
    pub fn index_below(&mut self, n: usize) -> usize {
        ((self.uniform() * n as f64) as usize).min(n.saturating_sub(1))
    }

    /// Returns an exponentially distributed number with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        // 1 − u lies in (0, 1], so the logarithm is finite.
        -mean * (1.0 - self.uniform()).ln()
    }

    /// Returns a number with the standard normal distribution (Box and Muller, 1958). The function
    /// always makes two draws.
    pub fn normal(&mut self) -> f64 {
        // 1 − u lies in (0, 1], so the logarithm is finite.
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (TAU * self.uniform()).cos()
    }

    /// Returns a number with the Lomax (shifted Pareto) distribution of scale 1, which starts at 0.
    pub fn pareto(&mut self, shape: f64) -> f64 {
        (1.0 - self.uniform()).powf(-1.0 / shape) - 1.0
    }
}

/// 2^64 divided by the golden ratio, made odd; the increment of SplitMix64.
const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_random_numbers_equal_the_published_test_vector() {
        // Published test vector for seed 1234567.
        let mut rng = SeededRng { state: 1_234_567 };
        assert_eq!(rng.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn normal_and_pareto_draws_have_their_moments() {
        let mut rng = SeededRng::new(1, 0);
        let n = 100_000;
        let normal: Vec<f64> = (0..n).map(|_| rng.normal()).collect();
        let mean = normal.iter().sum::<f64>() / n as f64;
        let variance = normal.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
        assert!(mean.abs() < 0.02, "mean {mean}");
        assert!((variance - 1.0).abs() < 0.03, "variance {variance}");
        // The median of a Lomax distribution is 2^(1/shape) − 1.
        let mut pareto: Vec<f64> = (0..n).map(|_| rng.pareto(3.0)).collect();
        pareto.sort_by(f64::total_cmp);
        let expected = 2_f64.powf(1.0 / 3.0) - 1.0;
        assert!((pareto[n / 2] - expected).abs() < 0.01, "median {}", pareto[n / 2]);
        assert!(pareto[0] >= 0.0);
    }

    #[test]
    fn streams_of_one_seed_differ() {
        let draws = |stream| -> Vec<u64> {
            let mut rng = SeededRng::new(9, stream);
            (0..4).map(|_| rng.next_u64()).collect()
        };
        assert_eq!(draws(1), draws(1));
        assert_ne!(draws(1), draws(2));
    }
}
