//! Counting of the different words of a signature.

use crate::Signature;

/// Length of the longest words that are counted: "very little to gain … past 17" (Dickens §3.1.3).
pub const WORD_MAX: u32 = 17;

/// Counts admissible words, with memory that is reused for each window.
#[derive(Clone, Debug)]
pub struct WordCounter {
    /// One bit for each word: 16 KiB fit into the first-level cache; one byte for each word would
    /// not fit.
    seen: Box<[u64; SETS]>,
    /// Cache of sequences of 32 packets for which the words are already counted, indexed by hash; 0
    /// = empty. Similar losses recur, so most sequences are found in the cache.
    counted: Box<[u32; STRETCHES]>,
}

impl Default for WordCounter {
    fn default() -> Self {
        Self { seen: Box::new([0; SETS]), counted: Box::new([0; STRETCHES]) }
    }
}

impl WordCounter {
    /// Allocates memory for windows of any length: 32 KiB.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of different words of `length` packets at all positions, overlapping (Na, Dickens
    /// §3.1.1); 0 if the window is shorter than a word. `length` is 1 to [`WORD_MAX`]; a value
    /// outside this range counts as the nearer end.
    ///
    /// ```
    /// use barograph_loss::{Signature, WordCounter};
    ///
    /// // The paper's example.
    /// let signature = Signature::from_bits("0010100").unwrap();
    /// let mut words = WordCounter::new();
    /// assert_eq!([1, 2, 3].map(|length| words.admissible(&signature, length)), [2, 3, 4]);
    /// ```
    pub fn admissible(&mut self, signature: &Signature, length: u32) -> u32 {
        let length = length.clamp(1, WORD_MAX);
        let Some(positions) = (signature.packets() + 1).checked_sub(length) else { return 0 };
        self.seen.fill(0);
        self.counted.fill(0);
        let mask = (1u64 << length) - 1;
        let blocks = signature.blocks();
        for (index, block) in blocks.iter().enumerate() {
            let Some(here) = positions.checked_sub(index as u32 * 64).filter(|here| *here > 0) else { break };
            // Words that begin in this block end in the next block at the latest.
            let next = blocks.get(index + 1).copied().unwrap_or_default();
            let tail = next & (mask >> 1);
            if here < 64 {
                let two = u128::from(*block) | u128::from(next) << 64;
                (0..here).for_each(|position| self.count_word((two >> position) as u64 & mask));
            } else if *block == u64::MAX && tail == mask >> 1 {
                self.count_word(mask);
            } else if *block == 0 && tail == 0 {
                self.count_word(0);
            } else {
                for stretch in [*block, *block >> 16, *block >> 32, *block >> 48 | next << 16] {
                    self.count_stretch(stretch as u32, mask);
                }
            }
        }
        self.seen.iter().map(|set| set.count_ones()).sum()
    }

    /// Counts the words at the first 16 positions of 32 packets, unless they were counted recently.
    fn count_stretch(&mut self, stretch: u32, mask: u64) {
        let counted = &mut self.counted[(stretch.wrapping_mul(HASH) >> HASH_SHIFT) as usize];
        if *counted == stretch && stretch != 0 {
            return;
        }
        *counted = stretch;
        (0..16).for_each(|position| self.count_word(u64::from(stretch) >> position & mask));
    }

    fn count_word(&mut self, word: u64) {
        self.seen[word as usize / 64 % SETS] |= 1 << (word % 64);
    }
}

/// Number of 64-bit integers that hold one bit for each word.
const SETS: usize = 1 << WORD_MAX >> 6;
/// Number of sequences in the cache. With random losses of 5 %, 100 000 packets have about 1700
/// different sequences.
const STRETCHES: usize = 4096;
const HASH_SHIFT: u32 = u32::BITS - STRETCHES.ilog2();
/// Multiplier of the hash: the largest prime below 2^32 divided by the golden ratio (Knuth, The Art
/// of Computer Programming, 6.4).
const HASH: u32 = 0x9E37_79B1;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn by_definition(bits: &str, length: usize) -> u32 {
        let positions = (bits.len() + 1).saturating_sub(length);
        (0..positions).map(|position| &bits[position..position + length]).collect::<BTreeSet<_>>().len()
            as u32
    }

    proptest! {
        #[test]
        fn word_count_equals_its_definition(
            runs in proptest::collection::vec((0u32..90, 0u32..90), 0..12), length in 1u32..=WORD_MAX,
        ) {
            let runs: Vec<u32> = runs.into_iter().flat_map(|(received, lost)| [received, lost]).collect();
            let window = runs.iter().sum();
            let signature = Signature::from_runs(window, runs.iter().copied()).unwrap();
            let bits: String =
                runs.iter().enumerate().map(|(i, run)| if i % 2 == 0 { "1" } else { "0" }.repeat(*run as usize)).collect();
            prop_assert_eq!(WordCounter::new().admissible(&signature, length), by_definition(&bits, length as usize));
        }
    }

    #[test]
    fn the_example_of_the_paper_has_4_words_of_length_4() {
        let signature = Signature::from_bits("00100101").unwrap();
        assert_eq!(WordCounter::new().admissible(&signature, 4), 4);
    }

    #[test]
    fn a_reused_counter_gives_the_same_count() {
        let signature = Signature::from_runs(1000, [10, 3, 40, 1]).unwrap();
        let mut words = WordCounter::new();
        let first = words.admissible(&signature, 17);
        assert!((0..600).all(|_| words.admissible(&signature, 17) == first));
    }
}
