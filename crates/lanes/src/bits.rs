//! Bits and bytes of words and arrays.

/// Index of the bit with value 1 that has `rank` such bits below it; `word` has more than `rank`,
/// and at most 127.
///
/// The function counts the bits of every byte at once, then of every bit of the byte that contains
/// the result (Vigna, "Broadword implementation of rank/select queries", 2008).
#[inline(always)]
pub(crate) fn nth_bit(word: u64, rank: u64) -> u32 {
    let pairs = word - (word >> 1 & 0x5555_5555_5555_5555);
    let nibbles = (pairs & 0x3333_3333_3333_3333) + (pairs >> 2 & 0x3333_3333_3333_3333);
    let counts = (nibbles + (nibbles >> 4)) & 0x0f0f_0f0f_0f0f_0f0f;
    let (byte, before) = reached(counts, rank);
    let spread = ((word >> byte & 0xff) * ONES) & 0x8040_2010_0804_0201;
    let ones = ((spread + LOW_SEVEN) & HIGH) >> 7;
    byte + reached(ones, rank - before).0 / 8
}

/// The position (8 times the index) of the first byte at which the sum of the bytes of `counts`
/// exceeds `rank`, and the sum of the bytes before it.
#[inline(always)]
fn reached(counts: u64, rank: u64) -> (u32, u64) {
    // Byte i of the product is the sum of the bytes 0..=i.
    let sums = counts.wrapping_mul(ONES);
    let exceeds = ((sums | HIGH) - ONES * (rank + 1)) & HIGH;
    let position = exceeds.trailing_zeros() & 56;
    (position, sums << 8 >> position & 0xff)
}

pub(crate) const ONES: u64 = 0x0101_0101_0101_0101;
pub(crate) const HIGH: u64 = 0x8080_8080_8080_8080;
const LOW_SEVEN: u64 = 0x7f7f_7f7f_7f7f_7f7f;

/// The parts of `N` bytes from index `at`, one after it, and two after it.
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[inline(always)]
pub(crate) fn part<const N: usize>(bytes: &[u8; 66], at: usize) -> [&[u8; N]; 3] {
    let part = |at: usize| bytes[at..].first_chunk().expect("at most 64 bytes from index 2");
    [part(at), part(at + 1), part(at + 2)]
}

/// The numbers from 0.
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
pub(crate) const INDICES: [u8; 66] = {
    let mut indices = [0; 66];
    let mut i = 0;
    while i < indices.len() {
        indices[i] = i as u8;
        i += 1;
    }
    indices
};

#[cfg(test)]
mod tests {
    use super::nth_bit;
    use crate::{Instructions, Kernel, Lanes, Portable};

    struct NthBit(u64, u64);

    impl Kernel for NthBit {
        type Output = u32;

        #[inline(always)]
        fn run<L: Lanes>(self, lanes: L) -> u32 {
            lanes.nth_bit(self.0, self.1)
        }
    }

    #[test]
    fn nth_bit_finds_every_bit() {
        for word in [1, 1 << 63, 0x8000_0000_0000_0001, 0xf0f0_1234_0000_0081, u64::MAX >> 1] {
            let bits = (0..64).filter(|bit| word >> bit & 1 == 1);
            for (rank, bit) in (0..).zip(bits) {
                assert_eq!(nth_bit(word, rank), bit, "{word:x}");
                assert_eq!(NthBit(word, rank).run(Portable), bit, "{word:x}");
                assert_eq!(Instructions::of_target().run(NthBit(word, rank)), bit, "{word:x}");
                assert_eq!(Instructions::detected().run(NthBit(word, rank)), bit, "{word:x}");
            }
        }
    }
}
