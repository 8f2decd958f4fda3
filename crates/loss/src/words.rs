//! How many different words a signature has.

use crate::Signature;

/// The longest words that are counted: "very little to gain … past 17" (Dickens §3.1.3).
pub const WORD_MAX: u32 = 17;

/// Counts admissible words, with memory that is used again for the next window.
#[derive(Clone, Debug)]
pub struct Words {
    /// When each word was last seen, in windows; a byte, for it is cleared once in 255 windows only.
    seen: Box<[u8]>,
    window: u8,
}

impl Default for Words {
    fn default() -> Self {
        Self { seen: vec![0; 1 << WORD_MAX].into(), window: 0 }
    }
}

impl Words {
    /// Memory for windows of any length: 128 KiB.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many different words of `length` packets there are at all places, overlapping (Na, Dickens §3.1.1): 0 where the window is
    /// shorter than a word. `length` is 1 to [`WORD_MAX`]; others count as the nearest.
    ///
    /// ```
    /// use barograph_loss::{Signature, Words};
    ///
    /// // The paper's example.
    /// let signature = Signature::from_bits("0010100").unwrap();
    /// let mut words = Words::new();
    /// assert_eq!([1, 2, 3].map(|length| words.admissible(&signature, length)), [2, 3, 4]);
    /// ```
    pub fn admissible(&mut self, signature: &Signature, length: u32) -> u32 {
        let length = length.clamp(1, WORD_MAX);
        let Some(places) = (signature.packets() + 1).checked_sub(length) else { return 0 };
        self.forget();
        let mask = (1u64 << length) - 1;
        let blocks = signature.blocks();
        let mut count = 0;
        let mut note = |word: u64| {
            let seen = &mut self.seen[word as usize];
            count += u32::from(*seen != self.window);
            *seen = self.window;
        };
        for (index, block) in blocks.iter().enumerate() {
            let first = index as u32 * 64;
            let Some(here) = places.checked_sub(first).filter(|here| *here > 0) else { break };
            // Words that begin in this block end in the next at the latest.
            let next = blocks.get(index + 1).copied().unwrap_or_default();
            let two = u128::from(*block) | u128::from(next) << 64;
            let tail = next & (mask >> 1);
            if here >= 64 && *block == u64::MAX && tail == mask >> 1 {
                note(mask);
            } else if here >= 64 && *block == 0 && tail == 0 {
                note(0);
            } else {
                for place in 0..here.min(64) {
                    note((two >> place) as u64 & mask);
                }
            }
        }
        count
    }

    /// As if no word had been seen.
    fn forget(&mut self) {
        self.window = self.window.checked_add(1).unwrap_or_else(|| {
            self.seen.fill(0);
            1
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn by_definition(bits: &str, length: usize) -> u32 {
        let places = (bits.len() + 1).saturating_sub(length);
        (0..places).map(|place| &bits[place..place + length]).collect::<BTreeSet<_>>().len() as u32
    }

    proptest! {
        #[test]
        fn words_are_counted_as_defined(
            runs in proptest::collection::vec((0u32..90, 0u32..90), 0..12), length in 1u32..=WORD_MAX,
        ) {
            let runs: Vec<u32> = runs.into_iter().flat_map(|(received, lost)| [received, lost]).collect();
            let window = runs.iter().sum();
            let signature = Signature::from_runs(window, runs.iter().copied()).unwrap();
            let bits: String =
                runs.iter().enumerate().map(|(i, run)| if i % 2 == 0 { "1" } else { "0" }.repeat(*run as usize)).collect();
            prop_assert_eq!(Words::new().admissible(&signature, length), by_definition(&bits, length as usize));
        }
    }

    #[test]
    fn the_papers_word_of_four_is_seen_twice() {
        let signature = Signature::from_bits("00100101").unwrap();
        assert_eq!(Words::new().admissible(&signature, 4), 4);
    }

    #[test]
    fn memory_that_was_used_before_counts_the_same() {
        let signature = Signature::from_runs(1000, [10, 3, 40, 1]).unwrap();
        let mut words = Words::new();
        let first = words.admissible(&signature, 17);
        assert!((0..600).all(|_| words.admissible(&signature, 17) == first));
    }
}
