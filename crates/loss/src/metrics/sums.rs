//! Sums over the runs of a window: gap by gap, or all of a signature, eight packets at a time.

use crate::{Gap, Metrics, Signature};

/// How many lengths of runs are told apart; the last is that of all longer ones.
pub(crate) const LENGTHS: u32 = u64::BITS;

/// What runs add up to, in whole numbers, which are exact: squares of at most (2^24)².
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    lost: u32,
    gaps: u32,
    longest: u32,
    /// Runs of one packet.
    single: u32,
    squares: u64,
    /// Packets received between gaps, and their squares by spacing.
    spacing: u64,
    spacing_squares: u64,
    /// A bit for each length of a run of losses, from 1.
    lengths: u64,
}

impl Sums {
    /// Of a whole signature. A byte of it costs a look at a table, however many runs it has.
    pub(crate) fn of(signature: &Signature) -> Self {
        let mut runs = Runs::default();
        let full = signature.packets() / u64::BITS;
        for (index, block) in (0u32..).zip(signature.blocks()) {
            if index < full {
                runs.push_block(*block);
            } else {
                (0..signature.packets() % u64::BITS).for_each(|place| runs.push(block >> place & 1 == 0, 1));
            }
        }
        let before = signature.gaps().next().map_or(0, |gap| u64::from(gap.received));
        runs.sums(signature.lost(), u64::from(signature.packets() - signature.lost()), before)
    }

    /// One gap more.
    pub(crate) fn add(&mut self, gap: Gap) {
        if self.gaps > 0 {
            self.spacing += u64::from(gap.received);
            self.spacing_squares += u64::from(gap.received).pow(2);
        }
        self.lost += gap.lost;
        self.gaps += 1;
        self.longest = self.longest.max(gap.lost);
        self.single += u32::from(gap.lost == 1);
        self.squares += u64::from(gap.lost).pow(2);
        self.lengths |= 1 << (gap.lost.clamp(1, LENGTHS) - 1);
    }

    /// What they tell of a window of so many packets.
    pub(crate) fn metrics(&self, packets: u32) -> Metrics {
        let mut metrics = Metrics {
            packets,
            lost: self.lost,
            gaps: self.gaps,
            longest_burst: self.longest,
            lengths: self.lengths,
            ..Metrics::default()
        };
        if self.gaps > 0 {
            let (lost, gaps) = (f64::from(self.lost), f64::from(self.gaps));
            metrics.success_proportion = (lost - gaps) / lost;
            metrics.mean_burst = lost / gaps;
            metrics.weighted_burst = self.squares as f64 / lost;
            metrics.isolated = f64::from(self.single) / gaps;
        }
        let spacings = u64::from(self.gaps.saturating_sub(1));
        if spacings > 0 {
            metrics.mean_spacing = self.spacing as f64 / spacings as f64;
        }
        if spacings > 1 && self.spacing > 0 {
            let deviations =
                u128::from(spacings) * u128::from(self.spacing_squares) - u128::from(self.spacing).pow(2);
            let variance = deviations as f64 / (spacings * (spacings - 1)) as f64;
            metrics.spacing_variation = variance.sqrt() / metrics.mean_spacing;
        }
        metrics
    }
}

/// Runs that are over, and the one that is not yet.
#[derive(Default)]
struct Runs {
    is_lost: bool,
    length: u64,
    gaps: u64,
    single: u64,
    longest: u64,
    lost_squares: u64,
    received_squares: u64,
    lengths: u64,
}

impl Runs {
    fn push_block(&mut self, block: u64) {
        if block == 0 || block == u64::MAX {
            self.push(block == 0, u64::from(u64::BITS));
            return;
        }
        for byte in block.to_le_bytes() {
            let known = &BYTES[usize::from(byte)];
            self.push(byte & 1 == 0, u64::from(known.head));
            if known.head < 8 {
                self.finish();
                self.gaps += u64::from(known.gaps);
                self.single += u64::from(known.single);
                self.lost_squares += u64::from(known.lost_squares);
                self.received_squares += u64::from(known.received_squares);
                self.lengths |= u64::from(known.lengths);
                (self.is_lost, self.length) = (byte >> 7 == 0, u64::from(known.tail));
            }
        }
    }

    /// So many packets more, all lost or all received.
    #[inline]
    fn push(&mut self, is_lost: bool, length: u64) {
        // Without a branch, for of random losses none could be foretold: a run goes on, or is over.
        let goes_on = u64::from(is_lost == self.is_lost);
        self.note(1 - goes_on);
        self.length = self.length * goes_on + length;
        self.is_lost = is_lost;
    }

    fn finish(&mut self) {
        self.note(1);
        self.length = 0;
    }

    /// Counts the run if it is over, which is 1, and not 0.
    #[inline]
    fn note(&mut self, is_over: u64) {
        let square = self.length * self.length;
        let lost = is_over * u64::from(self.is_lost);
        self.gaps += lost;
        self.single += lost * u64::from(self.length == 1);
        self.longest = self.longest.max(self.length * lost);
        self.lost_squares += square * lost;
        self.received_squares += square * (is_over - lost);
        self.lengths |= lost << (self.length.clamp(1, u64::from(LENGTHS)) - 1);
    }

    /// What it comes to in a window that lost and received so many packets, so many of them before the first gap.
    fn sums(mut self, lost: u32, received: u64, before: u64) -> Sums {
        let after = if self.is_lost { 0 } else { self.length };
        if self.is_lost {
            self.finish();
        }
        if self.gaps == 0 {
            return Sums::default();
        }
        // Those of a byte's inside have no run longer than six.
        let inside = u64::from((self.lengths & 0x3f).checked_ilog2().map_or(0, |bit| bit + 1));
        Sums {
            lost,
            gaps: self.gaps as u32,
            longest: self.longest.max(inside) as u32,
            single: self.single as u32,
            squares: self.lost_squares,
            spacing: received - before - after,
            spacing_squares: self.received_squares - before * before,
            lengths: self.lengths,
        }
    }
}

/// The runs of eight packets: the first and the last, which may go on outside, and what those between add up to.
#[derive(Clone, Copy)]
struct Byte {
    head: u8,
    tail: u8,
    gaps: u8,
    single: u8,
    lost_squares: u8,
    received_squares: u8,
    lengths: u8,
}

static BYTES: [Byte; 256] = bytes();

const fn bytes() -> [Byte; 256] {
    let mut bytes =
        [Byte { head: 8, tail: 8, gaps: 0, single: 0, lost_squares: 0, received_squares: 0, lengths: 0 };
            256];
    let mut value = 1u8;
    while value < u8::MAX {
        let first = if value & 1 == 0 { value.trailing_zeros() } else { value.trailing_ones() };
        let last = if value >> 7 == 0 { value.leading_zeros() } else { value.leading_ones() };
        let byte = &mut bytes[value as usize];
        (byte.head, byte.tail) = (first as u8, last as u8);
        let mut at = first;
        while at < u8::BITS - last {
            let rest = value >> at;
            let is_lost = rest & 1 == 0;
            let length = if is_lost { rest.trailing_zeros() } else { rest.trailing_ones() };
            if is_lost {
                byte.gaps += 1;
                byte.single += (length == 1) as u8;
                byte.lost_squares += (length * length) as u8;
                byte.lengths |= 1 << (length - 1);
            } else {
                byte.received_squares += (length * length) as u8;
            }
            at += length;
        }
        value += 1;
    }
    bytes
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn gap_by_gap(signature: &Signature) -> Sums {
        let mut sums = Sums::default();
        signature.gaps().for_each(|gap| sums.add(gap));
        sums
    }

    proptest! {
        #[test]
        fn eight_at_a_time_is_as_one_at_a_time(
            bits in proptest::collection::vec(any::<bool>(), 0..300),
            runs in proptest::collection::vec(0u32..200, 0..40),
        ) {
            let text: String = bits.iter().map(|bit| if *bit { '1' } else { '0' }).collect();
            let scattered = Signature::from_bits(&text).unwrap();
            let long = Signature::from_runs(8000, runs).unwrap();
            for signature in [scattered, long] {
                prop_assert_eq!(Sums::of(&signature), gap_by_gap(&signature));
            }
        }
    }

    #[test]
    fn runs_are_apart_where_lengths_are_missing() {
        let of = |runs: &[u32]| {
            let signature = Signature::from_runs(1000, runs.iter().flat_map(|run| [5, *run])).unwrap();
            Sums::of(&signature).metrics(1000)
        };
        assert!(!of(&[1, 2, 5, 14]).may_be_apart(3.0));
        assert!(of(&[1, 3]).may_be_apart(3.0) && of(&[4, 2, 13]).may_be_apart(3.0));
        assert!(!of(&[7]).may_be_apart(3.0) && !of(&[63, 40]).may_be_apart(3.0));
        // Those of 64 and more are not told apart.
        assert!(of(&[64]).may_be_apart(3.0) && of(&[900]).may_be_apart(3.0));
    }
}
