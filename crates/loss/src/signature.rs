//! Loss signatures: which packets of a window were received.

use thiserror::Error;

/// Which packets of a window were received and which were lost, in the order they were sent
/// (Dickens §3.1). A signature takes one bit for each packet: 2 MiB for the longest window.
///
/// A signature can be cleared and filled again without allocation.
///
/// ```
/// use barograph_loss::Signature;
///
/// let signature = Signature::from_bits("1101").unwrap();
/// assert_eq!((signature.packets(), signature.lost()), (4, 1));
/// assert_eq!(Signature::from_runs(4, [2, 1]).unwrap(), signature);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    /// One bit for each packet, from the least significant bit of the first block; 1 = received.
    /// Bits past the end are 0.
    blocks: Vec<u64>,
    packets: u32,
    lost: u32,
}

/// A run of lost packets, with the received packets before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossRun {
    /// Number of packets received since the previous gap, or since the start of the window.
    pub received: u32,
    /// Number of packets lost in a row, at least 1.
    pub lost: u32,
}

/// Reason why input is not a signature.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignatureError {
    /// A window with more than 2^24 packets.
    #[error("a window has at most {} packets", Signature::PACKETS_MAX)]
    TooLong,
    /// A character that is neither 0 nor 1.
    #[error("expected 1 (received) or 0 (lost), found {0:?}")]
    InvalidPacket(char),
    /// Runs with more packets than the window.
    #[error("the runs have at least {packets} packets, more than the window of {window}")]
    Overflow {
        /// Total number of packets of the runs, up to and including the first run that does not
        /// fit.
        packets: u64,
        /// Number of packets of the window.
        window: u32,
    },
}

impl Signature {
    /// Maximum number of packets of a window: 2^24, which is 20 s at 10 Gbit/s in packets of 1500
    /// bytes.
    pub const PACKETS_MAX: u32 = 1 << 24;

    /// Creates a signature without packets.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads one character for each packet: `1` = received, `0` = lost.
    ///
    /// # Errors
    /// If there are other characters, or more than [`Signature::PACKETS_MAX`].
    pub fn from_bits(bits: &str) -> Result<Self, SignatureError> {
        let mut signature = Self::new();
        signature.fill_bits(bits)?;
        Ok(signature)
    }

    /// Creates a signature from run lengths, `received, lost, received, lost, …`. The rest of the
    /// window was received.
    ///
    /// # Errors
    /// If the runs do not fit the window, or the window exceeds [`Signature::PACKETS_MAX`].
    pub fn from_runs(window: u32, runs: impl IntoIterator<Item = u32>) -> Result<Self, SignatureError> {
        let mut signature = Self::new();
        signature.fill_runs(window, runs)?;
        Ok(signature)
    }

    /// Creates a signature from the sequence numbers that were received, in any order, with or
    /// without duplicates. The window begins with `first`; numbers outside the window are ignored.
    ///
    /// ```
    /// use barograph_loss::Signature;
    ///
    /// // Packet 9 is missing.
    /// let signature = Signature::from_received(7, 4, [10, 7, 8]).unwrap();
    /// assert_eq!(signature, Signature::from_bits("1101").unwrap());
    /// ```
    ///
    /// # Errors
    /// If the window exceeds [`Signature::PACKETS_MAX`].
    pub fn from_received(
        first: u64,
        window: u32,
        received: impl IntoIterator<Item = u64>,
    ) -> Result<Self, SignatureError> {
        let mut signature = Self::new();
        signature.push_lost(window)?;
        for number in received {
            let Some(index) = number.checked_sub(first).filter(|index| *index < u64::from(window)) else {
                continue;
            };
            let (block, bit) = (index as usize / 64, 1 << (index % 64));
            if signature.blocks[block] & bit == 0 {
                signature.blocks[block] |= bit;
                signature.lost -= 1;
            }
        }
        Ok(signature)
    }

    /// Removes all packets, and keeps the memory.
    pub fn clear(&mut self) {
        self.blocks.clear();
        (self.packets, self.lost) = (0, 0);
    }

    /// Replaces the contents of this signature with packets that are read as in
    /// [`Signature::from_bits`].
    ///
    /// # Errors
    /// As in [`Signature::from_bits`]. The signature is then empty.
    pub fn fill_bits(&mut self, bits: &str) -> Result<(), SignatureError> {
        self.clear();
        if !bits.bytes().all(|bit| bit & !1 == b'0') {
            let wrong = bits.chars().find(|bit| !matches!(bit, '0' | '1'));
            return Err(SignatureError::InvalidPacket(wrong.unwrap_or_default()));
        }
        self.grow(u32::try_from(bits.len()).unwrap_or(u32::MAX))?;
        for (block, bits) in self.blocks.iter_mut().zip(bits.as_bytes().chunks(64)) {
            *block = bits.iter().rev().fold(0, |block, bit| block << 1 | u64::from(bit & 1));
        }
        self.lost = self.packets - self.blocks.iter().map(|block| block.count_ones()).sum::<u32>();
        Ok(())
    }

    /// Replaces the contents of this signature with run lengths, as in [`Signature::from_runs`].
    ///
    /// # Errors
    /// As in [`Signature::from_runs`]. The signature is then empty.
    pub fn fill_runs(
        &mut self,
        window: u32,
        runs: impl IntoIterator<Item = u32>,
    ) -> Result<(), SignatureError> {
        self.clear();
        let filled = self.push_runs(window, runs);
        self.clear_unless(filled)
    }

    /// Appends `count` received packets.
    ///
    /// ```
    /// use barograph_loss::Signature;
    ///
    /// let mut signature = Signature::new();
    /// signature.push_received(3).unwrap();
    /// signature.push_lost(1).unwrap();
    /// assert_eq!(signature, Signature::from_bits("1110").unwrap());
    /// ```
    ///
    /// # Errors
    /// If the window would exceed [`Signature::PACKETS_MAX`]; nothing is appended then.
    pub fn push_received(&mut self, count: u32) -> Result<(), SignatureError> {
        let (from, to) = self.grow(count)?;
        for block in from / 64..=to.saturating_sub(1) / 64 {
            let start = from.max(block * 64) - block * 64;
            let end = to.min(block * 64 + 64) - block * 64;
            if start < end {
                self.blocks[block] |= (u64::MAX >> (64 - (end - start))) << start;
            }
        }
        Ok(())
    }

    /// Appends `count` lost packets.
    ///
    /// # Errors
    /// If the window would exceed [`Signature::PACKETS_MAX`]; nothing is appended then.
    pub fn push_lost(&mut self, count: u32) -> Result<(), SignatureError> {
        self.grow(count)?;
        self.lost += count;
        Ok(())
    }

    /// Number of packets of the window.
    pub fn packets(&self) -> u32 {
        self.packets
    }

    /// Number of packets that were lost.
    pub fn lost(&self) -> u32 {
        self.lost
    }

    /// Share of the packets that were lost, 0 to 1; 0 without packets.
    pub fn loss_rate(&self) -> f64 {
        if self.packets == 0 { 0.0 } else { f64::from(self.lost) / f64::from(self.packets) }
    }

    /// Returns the runs of lost packets, in order.
    ///
    /// ```
    /// use barograph_loss::{LossRun, Signature};
    ///
    /// let signature = Signature::from_bits("1101001").unwrap();
    /// let runs: Vec<_> = signature.loss_runs().collect();
    /// assert_eq!(runs, [LossRun { received: 2, lost: 1 }, LossRun { received: 1, lost: 2 }]);
    /// ```
    pub fn loss_runs(&self) -> LossRuns<'_> {
        LossRuns::new(self)
    }

    /// Blocks of 64 packets, from the least significant bit; 1 = received. Bits past the last
    /// packet are 0.
    pub(crate) fn blocks(&self) -> &[u64] {
        &self.blocks
    }

    fn push_runs(&mut self, window: u32, runs: impl IntoIterator<Item = u32>) -> Result<(), SignatureError> {
        if window > Self::PACKETS_MAX {
            return Err(SignatureError::TooLong);
        }
        for (index, run) in runs.into_iter().enumerate() {
            if window - self.packets < run {
                let packets = u64::from(self.packets) + u64::from(run);
                return Err(SignatureError::Overflow { packets, window });
            }
            if index % 2 == 0 { self.push_received(run)? } else { self.push_lost(run)? }
        }
        self.push_received(window - self.packets)
    }

    /// Appends `count` lost packets without counting them as lost. Returns the range of their
    /// indices.
    fn grow(&mut self, count: u32) -> Result<(usize, usize), SignatureError> {
        if Self::PACKETS_MAX - self.packets < count {
            return Err(SignatureError::TooLong);
        }
        let from = self.packets as usize;
        self.packets += count;
        let to = self.packets as usize;
        self.blocks.resize(to.div_ceil(64), 0);
        Ok((from, to))
    }

    fn clear_unless(&mut self, filled: Result<(), SignatureError>) -> Result<(), SignatureError> {
        filled.inspect_err(|_| self.clear())
    }
}

/// Iterator over the gaps of a [`Signature`], in order.
#[derive(Clone, Debug)]
pub struct LossRuns<'a> {
    blocks: std::slice::Iter<'a, u64>,
    packets: u32,
    /// Number of packets up to the end of the current block.
    ahead: u32,
    /// Positions in the current block at which received packets change to lost packets, or lost to
    /// received, one bit each; bits already returned are cleared.
    changes: u64,
    /// Fate of the last packet of the current block. At the start of the window, this fate is
    /// "received".
    last: u64,
    /// End of the last gap that was returned.
    at: u32,
}

impl<'a> LossRuns<'a> {
    fn new(signature: &'a Signature) -> Self {
        let (blocks, packets) = (signature.blocks.iter(), signature.packets);
        Self { blocks, packets, ahead: 0, changes: 0, last: 1, at: 0 }
    }

    /// Index of the next packet that differs in its fate from the packet before it; the end of the
    /// window if there is none.
    fn change(&mut self) -> u32 {
        while self.changes == 0 {
            let Some(block) = self.blocks.next() else { return self.packets };
            self.changes = block ^ (block << 1 | self.last);
            self.last = block >> 63;
            self.ahead += 64;
        }
        let bit = self.changes.trailing_zeros();
        self.changes &= self.changes - 1;
        // Bits after the end of the window are 0, as for lost packets.
        (self.ahead - 64 + bit).min(self.packets)
    }
}

impl Iterator for LossRuns<'_> {
    type Item = LossRun;

    fn next(&mut self) -> Option<LossRun> {
        let lost_from = self.change();
        if lost_from == self.packets {
            return None;
        }
        let lost_to = self.change();
        let gap = LossRun { received: lost_from - self.at, lost: lost_to - lost_from };
        self.at = lost_to;
        Some(gap)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bits_runs_and_packet_numbers_give_the_same_signature(bits in proptest::collection::vec(any::<bool>(), 0..300)) {
            let text: String = bits.iter().map(|bit| if *bit { '1' } else { '0' }).collect();
            let signature = Signature::from_bits(&text).unwrap();
            let lost = bits.iter().filter(|bit| !**bit).count();
            prop_assert_eq!((signature.packets() as usize, signature.lost() as usize), (bits.len(), lost));
            let runs = signature.loss_runs().flat_map(|gap| [gap.received, gap.lost]);
            prop_assert_eq!(&Signature::from_runs(bits.len() as u32, runs).unwrap(), &signature);
            let numbers = bits.iter().zip(7..).filter(|(bit, _)| **bit).map(|(_, number)| number);
            prop_assert_eq!(&Signature::from_received(7, bits.len() as u32, numbers).unwrap(), &signature);
        }
    }

    #[test]
    fn invalid_or_oversized_windows_are_rejected_and_leave_an_empty_signature() {
        assert_eq!(Signature::from_bits("10x"), Err(SignatureError::InvalidPacket('x')));
        let overflow = SignatureError::Overflow { packets: 11, window: 10 };
        assert_eq!(Signature::from_runs(10, [4, 7]), Err(overflow));
        assert_eq!(Signature::from_runs(u32::MAX, []), Err(SignatureError::TooLong));
        let mut signature = Signature::from_runs(Signature::PACKETS_MAX, [0, 1]).unwrap();
        assert_eq!(signature.push_lost(1), Err(SignatureError::TooLong));
        assert!(signature.fill_runs(10, [u32::MAX]).is_err());
        assert_eq!((signature, Signature::new().loss_runs().next()), (Signature::new(), None));
    }
}
