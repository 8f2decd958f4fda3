//! Sums over the runs of a window: gap by gap, or of a whole signature, eight packets at a time.

use crate::{LossRun, Metrics, Signature};

/// Number of bits for run lengths, one for each length. The last bit also represents all longer
/// runs.
pub(crate) const LENGTHS: u32 = u64::BITS;

/// Number of packets from which two runs of losses are not close to each other.
///
/// A full queue sends one packet, accepts one, and drops the rest of a burst: its runs are close. A
/// host that reads again empties the socket's buffer first: the next run begins after a buffer's
/// worth of packets. In the open signatures at loss rates up to 0.05, 2 of 207 windows of the host
/// have a shorter spacing. [`BYTES`] counts every spacing within a byte, so the limit is above 6.
pub(crate) const CLOSE_SPACING: u32 = 8;

/// Exact integer sums over runs, with squares of at most (2^24)².
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunSums {
    lost: u32,
    gaps: u32,
    longest: u32,
    /// Number of runs of one packet.
    single: u32,
    squares: u64,
    /// Number of packets received between gaps.
    spacing: u64,
    spacing_squares: u64,
    /// Number of spacings between gaps of fewer than [`CLOSE_SPACING`] packets.
    close: u32,
    /// One bit for each length of a run of losses, from 1.
    lengths: u64,
}

impl RunSums {
    /// Sums of a whole signature. Each byte of the signature needs one table lookup, for any number
    /// of runs in the byte.
    pub(crate) fn of(signature: &Signature) -> Self {
        let mut runs = RunScanner::default();
        let full = signature.packets() / u64::BITS;
        for (index, block) in (0u32..).zip(signature.blocks()) {
            if index < full {
                runs.push_block(*block);
            } else {
                (0..signature.packets() % u64::BITS).for_each(|bit| runs.push(block >> bit & 1 == 0));
            }
        }
        let before = signature.loss_runs().next().map_or(0, |gap| u64::from(gap.received));
        runs.sums(signature.lost(), u64::from(signature.packets() - signature.lost()), before)
    }

    pub(crate) fn add(&mut self, gap: LossRun) {
        if self.gaps > 0 {
            self.spacing += u64::from(gap.received);
            self.spacing_squares += u64::from(gap.received).pow(2);
            self.close += u32::from(gap.received < CLOSE_SPACING);
        }
        self.lost += gap.lost;
        self.gaps += 1;
        self.longest = self.longest.max(gap.lost);
        self.single += u32::from(gap.lost == 1);
        self.squares += u64::from(gap.lost).pow(2);
        self.lengths |= 1 << (gap.lost.clamp(1, LENGTHS) - 1);
    }

    /// Metrics of a window of `packets`.
    pub(crate) fn metrics(&self, packets: u32) -> Metrics {
        let mut metrics = Metrics {
            packets,
            lost: self.lost,
            gaps: self.gaps,
            longest_run: self.longest,
            close_spacings: self.close,
            lengths: self.lengths,
            ..Metrics::default()
        };
        if self.gaps > 0 {
            let (lost, gaps) = (f64::from(self.lost), f64::from(self.gaps));
            metrics.success_proportion = (lost - gaps) / lost;
            metrics.mean_run = lost / gaps;
            metrics.weighted_run = self.squares as f64 / lost;
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

/// Sums over the complete runs, and the current run.
#[derive(Default)]
struct RunScanner {
    /// Kind of the current run (1 = lost, 0 = received), and the length of that run so far.
    is_lost: u64,
    length: u64,
    gaps: u64,
    single: u64,
    longest: u64,
    lost_squares: u64,
    received_squares: u64,
    /// Number of runs of fewer than [`CLOSE_SPACING`] received packets.
    close: u64,
    lengths: u64,
}

impl RunScanner {
    fn push_block(&mut self, block: u64) {
        if block == 0u64.wrapping_sub(1 - self.is_lost) {
            self.length += u64::from(u64::BITS);
            return;
        }
        let mut inside = 0;
        for byte in block.to_le_bytes() {
            let known = &BYTES[self.is_lost as usize & 1][usize::from(byte)];
            self.length += u64::from(known.head);
            if known.head < 8 {
                self.finish();
                inside += known.inside;
                self.lengths |= u64::from(known.lengths);
                (self.is_lost, self.length) = (u64::from(byte >> 7 ^ 1), u64::from(known.tail));
            }
        }
        let lane = |at: u32| inside >> at & 0xffff;
        self.gaps += lane(GAPS) & 0xff;
        self.close += lane(GAPS) >> CLOSE;
        self.single += lane(SINGLE);
        self.lost_squares += lane(LOST_SQUARES);
        self.received_squares += lane(RECEIVED_SQUARES);
    }

    fn push(&mut self, is_lost: bool) {
        let is_lost = u64::from(is_lost);
        if is_lost != self.is_lost {
            self.finish();
            (self.is_lost, self.length) = (is_lost, 0);
        }
        self.length += 1;
    }

    /// Ends the current run. Branch-free, because a branch on the kind of run is unpredictable for
    /// random losses.
    #[inline]
    fn finish(&mut self) {
        let (lost, square) = (self.is_lost, self.length * self.length);
        let all = 0u64.wrapping_sub(lost);
        self.gaps += lost;
        self.single += lost & u64::from(self.length == 1);
        self.longest = self.longest.max(self.length & all);
        self.lost_squares += square & all;
        self.received_squares += square & !all;
        self.close += u64::from(self.length < u64::from(CLOSE_SPACING)) & !all;
        self.lengths |= lost << (self.length.clamp(1, u64::from(LENGTHS)) - 1);
    }

    /// Sums of a window with `lost` and `received` packets, of which `before` packets were received
    /// before the first gap.
    fn sums(mut self, lost: u32, received: u64, before: u64) -> RunSums {
        let after = if self.is_lost == 0 { self.length } else { 0 };
        if self.is_lost == 1 {
            self.finish();
        }
        if self.gaps == 0 {
            return RunSums::default();
        }
        // Runs inside a byte have at most seven packets.
        let inside = u64::from((self.lengths & 0x7f).checked_ilog2().map_or(0, |bit| bit + 1));
        RunSums {
            lost,
            gaps: self.gaps as u32,
            longest: self.longest.max(inside) as u32,
            single: self.single as u32,
            squares: self.lost_squares,
            spacing: received - before - after,
            spacing_squares: self.received_squares - before * before,
            close: (self.close - u64::from(before < u64::from(CLOSE_SPACING))) as u32,
            lengths: self.lengths,
        }
    }
}

/// Effect of eight packets on the runs, for one fate of the packet before them.
#[derive(Clone, Copy)]
struct ByteEffect {
    /// Number of packets at the beginning of the byte with the same fate as the packet before the
    /// byte; 8 = all.
    head: u8,
    /// Length of the last run, which may continue.
    tail: u8,
    /// One bit for each length of the runs of losses between head and tail.
    lengths: u8,
    /// Sums over the runs between head and tail, in lanes of 16 bits, or 8 bits for the two counts.
    /// The sums of the eight bytes of a block cannot overflow a lane.
    inside: u64,
}

/// Bit offsets of the lanes of [`ByteEffect::inside`].
const GAPS: u32 = 0;
/// Number of runs of received packets.
const CLOSE: u32 = 8;
const SINGLE: u32 = 16;
const LOST_SQUARES: u32 = 32;
const RECEIVED_SQUARES: u32 = 48;

/// Lookup table. First index: whether the packet before the byte was received (0) or lost (1).
/// Second index: the eight packets, one bit each.
static BYTES: [[ByteEffect; 256]; 2] = [bytes(1), bytes(0)];

/// Number of equal bits from the lowest bit on.
const fn run(bits: u8) -> u32 {
    if bits & 1 == 0 { bits.trailing_zeros() } else { bits.trailing_ones() }
}

const fn bytes(before: u8) -> [ByteEffect; 256] {
    let mut bytes = [ByteEffect { head: 0, tail: 0, lengths: 0, inside: 0 }; 256];
    let mut value = 0;
    while value < 256 {
        let bits = value as u8;
        let byte = &mut bytes[value];
        let mut at = if bits & 1 == before { run(bits) } else { 0 };
        byte.head = at as u8;
        while at < u8::BITS {
            let is_lost = bits >> at & 1 == 0;
            let length = run(bits >> at);
            if at + length >= u8::BITS {
                byte.tail = (u8::BITS - at) as u8;
            } else if is_lost {
                byte.inside += 1 << GAPS;
                byte.inside += ((length == 1) as u64) << SINGLE;
                byte.inside += ((length * length) as u64) << LOST_SQUARES;
                byte.lengths |= 1 << (length - 1);
            } else {
                byte.inside += 1 << CLOSE;
                byte.inside += ((length * length) as u64) << RECEIVED_SQUARES;
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

    fn gap_by_gap(signature: &Signature) -> RunSums {
        let mut sums = RunSums::default();
        signature.loss_runs().for_each(|gap| sums.add(gap));
        sums
    }

    proptest! {
        #[test]
        fn run_sums_of_bit_masks_equal_the_sums_gap_by_gap(
            bits in proptest::collection::vec(any::<bool>(), 0..300),
            runs in proptest::collection::vec(0u32..200, 0..40),
        ) {
            let text: String = bits.iter().map(|bit| if *bit { '1' } else { '0' }).collect();
            let scattered = Signature::from_bits(&text).unwrap();
            let long = Signature::from_runs(8000, runs).unwrap();
            for signature in [scattered, long] {
                prop_assert_eq!(RunSums::of(&signature), gap_by_gap(&signature));
            }
        }
    }

    #[test]
    fn spacings_below_the_limit_are_close_and_the_ends_of_the_window_are_no_spacings() {
        let of = |runs: &[u32]| {
            let signature = Signature::from_runs(1000, runs.iter().copied()).unwrap();
            RunSums::of(&signature).metrics(1000).close_spacings
        };
        let limit = CLOSE_SPACING;
        assert_eq!(of(&[0, 1, limit - 1, 1, limit, 1, 1, 1, 500, 1]), 2);
        assert_eq!((of(&[3, 1]), of(&[3, 5, limit, 9, 969, 2, 2, 2])), (0, 1));
    }

    #[test]
    fn run_lengths_may_be_separate_if_a_range_of_lengths_is_missing() {
        let of = |runs: &[u32]| {
            let signature = Signature::from_runs(1000, runs.iter().flat_map(|run| [5, *run])).unwrap();
            RunSums::of(&signature).metrics(1000)
        };
        assert!(!of(&[1, 2, 5, 14]).may_be_apart(3.0));
        assert!(of(&[1, 3]).may_be_apart(3.0) && of(&[4, 2, 13]).may_be_apart(3.0));
        assert!(!of(&[7]).may_be_apart(3.0) && !of(&[63, 40]).may_be_apart(3.0));
        // Lengths of 64 and more share a bit.
        assert!(of(&[64]).may_be_apart(3.0) && of(&[900]).may_be_apart(3.0));
    }
}
