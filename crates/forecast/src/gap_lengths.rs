//! Lengths of the gaps of a series.

/// Numbers of the gaps of a series, by their length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GapLengths {
    /// Number of gaps of 2^i to 2^(i + 1) median periods; longer ones count in the last class.
    counts: [u32; CLASSES],
}

impl GapLengths {
    pub(crate) fn new() -> Self {
        Self { counts: [0; CLASSES] }
    }

    /// Learns a gap of `periods` median periods.
    pub(crate) fn learn(&mut self, periods: f64) {
        let count = &mut self.counts[class(periods)];
        *count = count.saturating_add(1);
    }

    /// Whether enough gaps are known that were about as long as `periods`, or longer, for the
    /// forecasts and intervals that are learned after gaps. A gap that is half as long always
    /// counts, and one that is a quarter as long never does.
    pub(crate) fn has_similar(&self, periods: f64) -> bool {
        self.has_enough(class(periods).saturating_sub(1))
    }

    /// Whether enough gaps of any length are known.
    pub(crate) fn has_any(&self) -> bool {
        self.has_enough(0)
    }

    fn has_enough(&self, class: usize) -> bool {
        let known = self.counts[class..].iter().fold(0_u32, |sum, count| sum.saturating_add(*count));
        GAPS_KNOWN <= known
    }
}

/// ⌊log₂ periods⌋, at most the last class.
fn class(periods: f64) -> usize {
    // The cast rounds down, and gives 0 below 1 and for NaN.
    ((periods as u64).max(1).ilog2() as usize).min(CLASSES - 1)
}

/// Number of classes; a gap of the last class has more than eight million periods.
const CLASSES: usize = 24;
/// Number of gaps from which their own forecasts and intervals are used. As for the first interval
/// of a series, a miss rate of one in ten cannot be distinguished from 0 with fewer.
const GAPS_KNOWN: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_known_for_ages_of_two_to_four_times_their_length() {
        let mut gaps = GapLengths::new();
        (0..9).for_each(|_| gaps.learn(10.0));
        assert!(!gaps.has_any() && !gaps.has_similar(10.0));
        gaps.learn(1e300);
        assert!(gaps.has_any());
        for (periods, is_known) in [(2.5, true), (10.0, true), (31.9, true), (32.0, false), (1e300, false)] {
            assert_eq!(gaps.has_similar(periods), is_known, "{periods}");
        }
        for periods in [f64::NAN, -1.0, 0.0, f64::INFINITY] {
            gaps.learn(periods);
        }
    }
}
