//! Distribution of response times around their forecasts: a histogram that fades, with separate
//! counts of attempts that were cut off.

/// Number of bins of the ratio of response time to forecast, an eighth of an octave each.
pub(super) const BINS: usize = 96;

/// Index of the bin that starts at a ratio of 1. The bins reach from a quarter of the forecast to
/// 1024 times the forecast; the first bin also counts all lower ratios, and the last bin all higher
/// ratios.
pub(super) const ONE: usize = 16;

pub(super) const PER_OCTAVE: f64 = 8.0;

/// Ratio between the edges of a bin, 2^(1/8).
pub(super) const STEP: f64 = 1.090_507_732_665_257_7;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct BinCounts {
    /// Weighted number of attempts with a response, for each bin.
    pub(super) answered: [f32; BINS],
    /// Weighted number of attempts that were cut off or dropped, for each bin. Their responses
    /// would have arrived later.
    pub(super) censored: [f32; BINS],
}

/// Counts of one link. Each response slightly reduces the weight of all earlier counts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Histogram {
    counts: BinCounts,
    /// Weight of a new observation. The weight grows with each response, so that the older counts
    /// need not be reduced one by one.
    weight: f32,
}

impl BinCounts {
    pub(super) const NONE: Self = Self { answered: [0.0; BINS], censored: [0.0; BINS] };

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut f32> {
        self.answered.iter_mut().chain(&mut self.censored)
    }
}

impl Histogram {
    pub(super) fn new(counts: BinCounts) -> Self {
        Self { counts, weight: 1.0 }
    }

    pub(super) fn count(&mut self, bin: usize, censored: bool) {
        if censored {
            self.counts.censored[bin] += self.weight;
            return;
        }
        self.counts.answered[bin] += self.weight;
        self.weight *= FADE;
        if self.weight > WEIGHT_MAX {
            self.counts = self.counts();
            self.weight = 1.0;
        }
    }

    /// Counts in units of the current weight.
    pub(super) fn counts(&self) -> BinCounts {
        let mut counts = self.counts.clone();
        counts.all_mut().for_each(|count| *count /= self.weight);
        counts
    }

    /// Returns the counts as they are stored, and the factor that converts them to units of the
    /// current weight.
    pub(super) fn stored(&self) -> (f64, &BinCounts) {
        (1.0 / f64::from(self.weight), &self.counts)
    }
}

/// Bin of the ratio 2^`octaves`.
pub(super) fn bin(octaves: f64) -> usize {
    // A cast from a float saturates, and NaN becomes 0.
    let bin = libm::floor(PER_OCTAVE * octaves) as i64;
    bin.saturating_add(ONE as i64).clamp(0, BINS as i64 - 1) as usize
}

/// Lower edge of a bin, in octaves above the forecast.
pub(super) fn octaves(bin: usize) -> f64 {
    (bin as f64 - ONE as f64) / PER_OCTAVE
}

/// Growth of the weight with each response. A response has half its weight after 350 further
/// responses. Slow responses are rare, and their share changes slowly.
const FADE: f32 = 1.002;

/// Largest weight of a new observation before all counts are divided by the weight. This limit is
/// far below the largest value of an `f32`.
const WEIGHT_MAX: f32 = 1e6;

/// Distribution assumed before there are responses: 97 % lognormal with a deviation of 0.3 around
/// the forecast, 3 % a tail with exponent 1 from 2 to 64 times the forecast. This distribution has
/// little weight and fades soon.
pub(super) const PRIOR: [f32; BINS] = [
    5.31e-06, 1.84e-05, 5.87e-05, 0.000172, 0.000465, 0.00116, 0.00265, 0.00559, 0.0108, 0.0194, 0.0318,
    0.0481, 0.0671, 0.086, 0.101, 0.11, 0.11, 0.101, 0.086, 0.0671, 0.0481, 0.0318, 0.0194, 0.0108, 0.00816,
    0.00501, 0.00332, 0.00245, 0.00199, 0.00173, 0.00155, 0.00141, 0.00129, 0.00118, 0.00108, 0.000991,
    0.000909, 0.000833, 0.000764, 0.000701, 0.000643, 0.000589, 0.00054, 0.000495, 0.000454, 0.000417,
    0.000382, 0.00035, 0.000321, 0.000295, 0.00027, 0.000248, 0.000227, 0.000208, 0.000191, 0.000175,
    0.000161, 0.000147, 0.000135, 0.000124, 0.000114, 0.000104, 9.55e-05, 8.76e-05, 0.0, 0.0, 0.0, 0.0, 0.0,
    0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
    0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_cover_their_octaves_and_clamp_at_both_ends() {
        assert_eq!(bin(0.0), ONE);
        assert_eq!(bin(-0.01), ONE - 1);
        assert_eq!(bin(1.0), ONE + 8);
        assert_eq!((bin(-99.0), bin(99.0)), (0, BINS - 1));
        assert_eq!((bin(f64::NEG_INFINITY), bin(f64::INFINITY)), (0, BINS - 1));
        for i in 0..BINS {
            assert_eq!(bin(octaves(i) + 0.01), i);
        }
        assert!((STEP - libm::exp2(1.0 / PER_OCTAVE)).abs() < 1e-15);
    }

    #[test]
    fn the_shares_of_the_prior_sum_to_1() {
        let sum: f32 = PRIOR.iter().sum();
        // Shares below a millionth and the lognormal part below the first bin are left out.
        assert!((sum - 1.0).abs() < 2e-3, "{sum}");
        let tail: f32 = PRIOR[bin(1.0)..].iter().sum();
        assert!((0.03..0.05).contains(&tail), "{tail}");
    }

    #[test]
    fn old_counts_decay() {
        let mut histogram = Histogram::new(BinCounts::NONE);
        histogram.count(3, true);
        for _ in 0..10_000 {
            histogram.count(20, false);
        }
        let counts = histogram.counts();
        assert!(counts.censored[3] < 1e-6, "{}", counts.censored[3]);
        // The expected count is 501, the sum of 1.002^-n over all n ≥ 0.
        assert!((counts.answered[20] - 501.0).abs() < 2.0, "{}", counts.answered[20]);
    }
}
