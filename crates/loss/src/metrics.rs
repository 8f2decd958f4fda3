//! Metrics of a signature.

mod sums;

use self::sums::LENGTHS;
pub(crate) use self::sums::RunSums;
use crate::{LossRun, Signature, WORD_MAX, WordCounter};

/// Metrics of a window, the input of classifiers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Metrics {
    /// Number of packets of the window.
    pub packets: u32,
    /// Number of packets lost.
    pub lost: u32,
    /// Number of runs of lost packets.
    pub gaps: u32,
    /// Number of admissible words of 17 packets, Na(17); 0 if the window is shorter.
    pub na17: u32,
    /// First-order complexity, 0 to 1: log2(Na(17)) / 17 (Dickens eq. 4; the printed equation lacks
    /// the symbol n, here 17). For a random sequence of packets, the complexity is 1.
    pub complexity: f64,
    /// Share of the losses that follow a loss, 0 to 1; 0 without losses (Dickens §3.1.5).
    pub success_proportion: f64,
    /// Mean length of a run of losses, in packets; 0 without runs.
    pub mean_run: f64,
    /// Mean, over all lost packets, of the length of the packet's run: Σℓ²/Σℓ, in packets.
    pub weighted_run: f64,
    /// Length of the longest run of losses, in packets.
    pub longest_run: u32,
    /// Share of the runs that are one packet long.
    pub isolated: f64,
    /// Mean number of packets received between two runs of losses; 0 with fewer than two runs.
    pub mean_spacing: f64,
    /// Standard deviation of the number of packets received between two runs, divided by its mean:
    /// 0 = periodic, 1 = random; 0 with fewer than two spacings.
    pub spacing_variation: f64,
    /// Number of spacings between two runs with fewer than 8 received packets. A full queue makes
    /// such spacings, and a host that stalls hardly any.
    pub close_spacings: u32,
    /// One bit for each length of a run, as in [`RunSums`]; 0 = not known.
    pub(crate) lengths: u64,
}

impl Metrics {
    /// Computes metrics from gaps. The metrics that need words stay 0. If only some gaps of a
    /// window are given, the packets of the other gaps count as received.
    pub(crate) fn of_gaps(packets: u32, gaps: impl Iterator<Item = LossRun>) -> Self {
        let mut sums = RunSums::default();
        gaps.for_each(|gap| sums.add(gap));
        sums.metrics(packets)
    }

    /// Whether some run may be `ratio` times as long as the next shorter run. The result is exact
    /// if all runs have fewer than 64 packets.
    pub(crate) fn may_be_apart(&self, ratio: f64) -> bool {
        let long = 1 << (LENGTHS - 1);
        if self.lengths == 0 || self.lengths & long > 0 {
            return true;
        }
        let mut rest = self.lengths;
        let mut shorter = f64::INFINITY;
        while rest > 0 {
            let length = f64::from(rest.trailing_zeros() + 1);
            if length >= ratio * shorter {
                return true;
            }
            shorter = length;
            rest &= rest - 1;
        }
        false
    }
}

/// Computes [`Metrics`], with memory that is reused for each window.
///
/// ```
/// use barograph_loss::{Meter, Signature};
///
/// let mut meter = Meter::new();
/// let metrics = meter.measure(&Signature::from_runs(1000, [500, 100]).unwrap());
/// assert_eq!((metrics.gaps, metrics.longest_run, metrics.na17), (1, 100, 34));
/// assert_eq!(metrics.success_proportion, 0.99);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Meter {
    words: WordCounter,
}

impl Meter {
    /// Allocates memory for windows of any length.
    pub fn new() -> Self {
        Self::default()
    }

    /// Computes the metrics of a window.
    pub fn measure(&mut self, signature: &Signature) -> Metrics {
        let mut metrics = RunSums::of(signature).metrics(signature.packets());
        metrics.na17 = self.words.admissible(signature, WORD_MAX);
        if metrics.na17 > 0 {
            metrics.complexity = f64::from(metrics.na17).log2() / f64::from(WORD_MAX);
        }
        metrics
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn success_proportion_equals_its_definition_and_metrics_are_ordered(bits in proptest::collection::vec(proptest::bool::weighted(0.8), 1..400)) {
            let text: String = bits.iter().map(|bit| if *bit { '1' } else { '0' }).collect();
            let metrics = Meter::new().measure(&Signature::from_bits(&text).unwrap());
            let losses = bits.iter().filter(|bit| !**bit).count();
            let successes = bits.windows(2).filter(|pair| !pair[0] && !pair[1]).count();
            let share = if losses == 0 { 0.0 } else { successes as f64 / losses as f64 };
            prop_assert!((metrics.success_proportion - share).abs() < 1e-12);
            prop_assert!((0.0..=1.0).contains(&metrics.complexity));
            prop_assert!(metrics.mean_run <= metrics.weighted_run + 1e-9);
            prop_assert!(metrics.weighted_run <= f64::from(metrics.longest_run) + 1e-9);
        }
    }

    #[test]
    fn a_window_without_loss_has_complexity_0_and_one_loss_has_18_words() {
        let mut meter = Meter::new();
        assert_eq!(meter.measure(&Signature::from_runs(100, []).unwrap()).complexity, 0.0);
        assert_eq!(meter.measure(&Signature::from_runs(16, [3, 1]).unwrap()).na17, 0);
        assert_eq!(meter.measure(&Signature::from_runs(1000, [500, 1]).unwrap()).na17, 18);
        assert_eq!(meter.measure(&Signature::from_runs(1000, [500, 100]).unwrap()).na17, 34);
        let periodic = meter.measure(&Signature::from_runs(1000, [9, 1].repeat(100)).unwrap());
        assert_eq!((periodic.mean_spacing, periodic.spacing_variation), (9.0, 0.0));
    }
}
