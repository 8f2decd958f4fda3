//! Packet numbers, some of which are skipped.

use std::collections::VecDeque;

/// Assigns packet numbers and skips some. The `index` of a packet is the number of packets sent
/// before it, without skipped numbers.
///
/// A dishonest receiver may acknowledge packets that it did not get, to make the sender faster. The
/// skipped numbers are secret, so such a receiver soon acknowledges one of them (Savage et al., TCP
/// congestion control with a misbehaving receiver, 1999; RFC 9000 §21.4). Skipping one number in
/// 2500 costs nothing. At 30 Mbit/s, the sender detects such a receiver within a second.
#[derive(Clone, Debug)]
pub(super) struct NumberAllocator {
    next: u64,
    next_skipped: u64,
    state: u64,
    /// Skipped numbers that a receiver may still report on.
    skipped: VecDeque<SkippedNumber>,
    /// Number of skipped numbers that were removed from `skipped`.
    before: u64,
}

#[derive(Clone, Copy, Debug)]
struct SkippedNumber {
    number: u64,
    /// Index of the first packet that was sent after this number was skipped.
    index: u64,
}

impl NumberAllocator {
    pub(super) fn new(seed: u64) -> Self {
        let mut numbers = Self { next: 0, next_skipped: 0, state: seed, skipped: VecDeque::new(), before: 0 };
        numbers.next_skipped = numbers.draw() % *SPACING.end();
        numbers
    }

    /// Assigns and returns the number of the next packet, which has this `index`.
    pub(super) fn take(&mut self, index: u64) -> u64 {
        if self.next == self.next_skipped {
            self.skipped.push_back(SkippedNumber { number: self.next, index });
            self.next += 1;
            self.next_skipped = self.next + SPACING.start() + self.draw() % (SPACING.end() - SPACING.start());
        }
        self.next += 1;
        self.next - 1
    }

    /// The first number that was not assigned yet.
    pub(super) fn end(&self) -> u64 {
        self.next
    }

    /// Finds the position of `number`, from which a search for higher numbers can continue.
    pub(super) fn seek(&self, number: u64) -> SkippedCursor {
        SkippedCursor(self.skipped.partition_point(|skipped| skipped.number < number))
    }

    /// Returns the number of packets with a lower number than `number`. The result is too low if
    /// `number` is below the skipped numbers that are kept. Advances `cursor` to the position of
    /// `number`.
    pub(super) fn index_from(&self, cursor: &mut SkippedCursor, number: u64) -> u64 {
        while self.skipped.get(cursor.0).is_some_and(|skipped| skipped.number < number) {
            cursor.0 += 1;
        }
        number.saturating_sub(self.before + cursor.0 as u64)
    }

    /// Returns the first skipped number from `cursor` on, if this number is below `end`.
    pub(super) fn skipped_to(&self, cursor: SkippedCursor, end: u64) -> Option<u64> {
        self.skipped.get(cursor.0).map(|skipped| skipped.number).filter(|number| *number < end)
    }

    /// Returns the number of packets with a lower number than `number`, which is the index of
    /// packet `number`.
    pub(super) fn index_of(&self, number: u64) -> u64 {
        self.index_from(&mut self.seek(number), number)
    }

    /// Whether `number` was skipped. Skipped numbers that were forgotten count as not skipped.
    pub(super) fn is_skipped(&self, number: u64) -> bool {
        self.skipped_to(self.seek(number), number.saturating_add(1)).is_some()
    }

    /// Returns the number of the packet with this index. The index must not be below the indices
    /// that are kept.
    pub(super) fn number_of(&self, index: u64) -> u64 {
        let at = self.skipped.partition_point(|skipped| skipped.index <= index);
        index + self.before + at as u64
    }

    /// Forgets skipped numbers up to the packet with this index. Earlier packets are no longer
    /// looked up.
    pub(super) fn forget_below(&mut self, index: u64) {
        while self.skipped.front().is_some_and(|skipped| skipped.index <= index) {
            self.skipped.pop_front();
            self.before += 1;
        }
    }

    /// Returns the next pseudo-random number: SplitMix64 (Steele, Lea, Flood 2014, §2).
    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}

/// Position in `skipped` of the first skipped number that is not below a given number.
#[derive(Clone, Copy, Debug)]
pub(super) struct SkippedCursor(usize);

/// Range of the number of packets between two skipped numbers.
const SPACING: std::ops::RangeInclusive<u64> = 1000..=4000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_and_packet_numbers_convert_in_both_directions() {
        let mut numbers = NumberAllocator::new(7);
        let all: Vec<u64> = (0..50_000).map(|index| numbers.take(index)).collect();
        let skipped: Vec<u64> =
            (0..numbers.end()).filter(|number| all.binary_search(number).is_err()).collect();
        assert!((12..=50).contains(&skipped.len()), "{}", skipped.len());
        for first in [0, 20_000] {
            numbers.forget_below(first);
            for (index, number) in (first..).zip(&all[first as usize..]) {
                assert_eq!((numbers.index_of(*number), numbers.number_of(index)), (index, *number));
                assert!(!numbers.is_skipped(*number));
            }
            let known = skipped.iter().filter(|number| **number > all[first as usize]);
            assert!(known.clone().count() > 5);
            assert!(known.clone().all(|number| numbers.is_skipped(*number)));
        }
        assert!(numbers.index_of(3) < 20_000 && numbers.index_of(0) == 0);
    }

    #[test]
    fn different_seeds_skip_different_numbers() {
        let ends = |seed| {
            let mut numbers = NumberAllocator::new(seed);
            (0..9000).map(|index| numbers.take(index)).collect::<Vec<_>>()
        };
        assert_eq!(ends(1), ends(1));
        assert_ne!(ends(1), ends(2));
    }
}
