//! Lengths of the runs of losses of a window, in fixed memory. Separates short runs from long runs,
//! and selects the longest runs.

use crate::LossRun;
use crate::metrics::RunSums;

/// Each octave of lengths has 2^3 classes, so runs that differ in length by an eighth or more are
/// in different classes.
const FINE_BITS: u32 = 3;

/// Number of classes, for runs of up to 2^24 packets, the longest possible.
const CLASSES: usize = (24 + 1) << FINE_BITS;

/// A class of similar run lengths.
#[derive(Clone, Copy, Default)]
struct Class {
    shortest: u32,
    longest: u32,
    lost: u32,
}

/// Histogram of the runs of losses of a window by length.
pub(crate) struct RunHistogram {
    classes: [Class; CLASSES],
}

impl RunHistogram {
    pub(crate) fn of(gaps: impl Iterator<Item = LossRun>) -> Self {
        let mut lengths = Self { classes: [Class::default(); CLASSES] };
        for gap in gaps {
            let class = &mut lengths.classes[class_of(gap.lost)];
            class.shortest = if class.lost == 0 { gap.lost } else { class.shortest.min(gap.lost) };
            class.longest = class.longest.max(gap.lost);
            class.lost += gap.lost;
        }
        lengths
    }

    /// Returns the largest ratio between the lengths of two neighbouring classes, and the shortest
    /// length of the upper class; `None` if all runs are of one class.
    pub(crate) fn widest_break(&self) -> Option<(f64, u32)> {
        let mut present = self.classes.iter().filter(|class| class.lost > 0);
        let mut below = present.next()?;
        let mut widest: Option<(f64, u32)> = None;
        for class in present {
            let ratio = f64::from(class.shortest) / f64::from(below.longest);
            if widest.is_none_or(|(widest, _)| ratio > widest) {
                widest = Some((ratio, class.shortest));
            }
            below = class;
        }
        widest
    }

    /// Number of losses in runs of at least `length` packets. `length` must be the shortest length
    /// of its class.
    pub(crate) fn lost_from(&self, length: u32) -> u32 {
        self.classes[class_of(length)..].iter().map(|class| class.lost).sum()
    }

    /// Selects the longest runs that add up to `lost` losses.
    pub(crate) fn longest(&self, lost: u32) -> LongestRuns {
        let mut missing = lost;
        for class in self.classes.iter().rev().filter(|class| class.lost > 0) {
            if class.lost >= missing {
                return LongestRuns { above: class.longest, from: class.shortest, missing };
            }
            missing -= class.lost;
        }
        LongestRuns { above: 0, from: 0, missing: 0 }
    }
}

/// Selector of the longest runs. It selects all runs longer than `above`, and as many runs of
/// `from` to `above` packets as are needed for `missing` losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LongestRuns {
    above: u32,
    from: u32,
    missing: u32,
}

impl LongestRuns {
    /// Whether this run is selected. The caller must call this function for each run, in order.
    pub(crate) fn select(&mut self, gap: LossRun) -> bool {
        if gap.lost > self.above {
            return true;
        }
        let is_one = gap.lost >= self.from && self.missing > 0;
        if is_one {
            self.missing = self.missing.saturating_sub(gap.lost);
        }
        is_one
    }
}

/// Selects some of a window's gaps with their evidence. The packets of the other gaps count as
/// received.
pub(crate) fn select_gaps<E>(
    gaps: impl Iterator<Item = (LossRun, E)>,
    mut has: impl FnMut(LossRun, &E) -> bool,
) -> impl Iterator<Item = (LossRun, E)> {
    let mut received = 0;
    gaps.filter_map(move |(gap, known)| {
        received += gap.received;
        if !has(gap, &known) {
            received += gap.lost;
            return None;
        }
        Some((LossRun { received: std::mem::take(&mut received), lost: gap.lost }, known))
    })
}

/// Returns the sums over the runs shorter than `from`, and the sums over all other runs. In the
/// sums of one group, the packets of the other group count as received.
pub(crate) fn split_sums(gaps: impl Iterator<Item = LossRun>, from: u32) -> [RunSums; 2] {
    let (mut sums, mut received) = ([RunSums::default(); 2], [0; 2]);
    for gap in gaps {
        let (part, other) = if gap.lost < from { (0, 1) } else { (1, 0) };
        sums[part].add(LossRun { received: received[part] + gap.received, lost: gap.lost });
        received[part] = 0;
        received[other] += gap.received + gap.lost;
    }
    sums
}

/// Class of a run length: the position of the leading bit, and the [`FINE_BITS`] bits after the
/// leading bit.
fn class_of(length: u32) -> usize {
    let octave = length.max(1).ilog2();
    let fine = (u64::from(length) << FINE_BITS >> octave) as usize & ((1 << FINE_BITS) - 1);
    ((octave as usize) << FINE_BITS | fine).min(CLASSES - 1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::Signature;

    fn plain(signature: &Signature) -> impl Iterator<Item = (LossRun, ())> {
        signature.loss_runs().map(|gap| (gap, ()))
    }

    #[test]
    fn runs_are_split_at_the_widest_break_of_their_lengths() {
        let signature = Signature::from_runs(1000, [10, 1, 10, 2, 10, 100, 10, 1, 10, 130]).unwrap();
        let lengths = RunHistogram::of(signature.loss_runs());
        assert_eq!((lengths.widest_break(), lengths.lost_from(100)), (Some((50.0, 100)), 230));
        let short: Vec<_> = select_gaps(plain(&signature), |gap, ()| gap.lost < 100)
            .map(|(gap, ())| (gap.received, gap.lost))
            .collect();
        assert_eq!(short, [(10, 1), (10, 2), (120, 1)]);
        let of_part = |is_long: bool| {
            let mut sums = RunSums::default();
            select_gaps(plain(&signature), |gap, ()| (gap.lost >= 100) == is_long)
                .for_each(|(gap, ())| sums.add(gap));
            sums
        };
        assert_eq!(split_sums(signature.loss_runs(), 100), [of_part(false), of_part(true)]);
        let even = Signature::from_runs(100, [10, 3, 10, 3]).unwrap();
        assert_eq!(RunHistogram::of(even.loss_runs()).widest_break(), None);
    }

    #[test]
    fn the_longest_runs_are_selected_up_to_the_given_number_of_losses() {
        let signature = Signature::from_runs(1000, [10, 1, 10, 1, 10, 100, 10, 1, 10, 130]).unwrap();
        let lengths = RunHistogram::of(signature.loss_runs());
        let picked = |lost: u32| {
            let mut longest = lengths.longest(lost);
            select_gaps(plain(&signature), move |gap, ()| longest.select(gap))
                .map(|(gap, ())| gap.lost)
                .collect::<Vec<_>>()
        };
        assert_eq!(picked(130), [130]);
        assert_eq!(picked(131), [100, 130]);
        assert_eq!(picked(232), [1, 1, 100, 130]);
        assert_eq!(picked(233), [1, 1, 100, 1, 130]);
        assert_eq!(picked(0), [0; 0]);
        assert_eq!(picked(u32::MAX), [1, 1, 100, 1, 130]);
    }
}
