//! Arithmetic on four `f64` at a time, with the processor's vector instructions or without.
//!
//! A computation is a [`Kernel`]. [`Instructions::run`] runs it with the best instructions of this
//! processor: AVX2 on x86-64, if the feature `detect` is on and the processor has it; else SSE2 on
//! targets of x86-64 that have it, and plain arrays elsewhere. The result has the same bits with
//! each of them: every operation is one IEEE 754 operation a lane, nothing is contracted or
//! reordered.
//!
//! ```
//! use barograph_lanes::{Instructions, Kernel, Lanes, Numbers};
//!
//! struct Scale<'a>(&'a mut [f64; 4], f64);
//!
//! impl Kernel for Scale<'_> {
//!     type Output = ();
//!
//!     #[inline(always)]
//!     fn run<L: Lanes>(self, lanes: L) {
//!         *self.0 = (lanes.load(self.0) * lanes.splat(self.1)).to_array();
//!     }
//! }
//!
//! let mut numbers = [1.0, 2.0, 3.0, 4.0];
//! Instructions::detected().run(Scale(&mut numbers, 0.5));
//! assert_eq!(numbers, [0.5, 1.0, 1.5, 2.0]);
//! ```
//!
//! All `unsafe` code of the forecasts is in this crate: the calls of vector instructions. A value
//! of the AVX2 types exists only after AVX2 was detected, so the methods of these types are safe.
#![no_std]

#[cfg(all(target_arch = "x86_64", target_feature = "sse2", feature = "detect"))]
mod avx2;
mod bits;
mod portable;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod sse2;
#[cfg(test)]
mod tests;

use core::ops::{Add, Div, Mul, Sub};

pub use portable::Portable;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
pub use sse2::Sse2;

/// The instructions that every processor of this target has.
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
pub type OfTarget = Sse2;
/// The instructions that every processor of this target has.
#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
pub type OfTarget = Portable;

/// Four numbers. Operators work on each lane.
pub trait Numbers:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// The result of a comparison for each lane.
    type Mask: Mask<Self>;

    /// The numbers, lane 0 first.
    fn to_array(self) -> [f64; 4];

    /// The absolute values of the numbers.
    fn abs(self) -> Self;

    /// Which numbers are less than those of `other`; false for NaN.
    fn less(self, other: Self) -> Self::Mask;

    /// Which numbers are less than or equal to those of `other`; false for NaN.
    fn less_or_equal(self, other: Self) -> Self::Mask;

    /// `other` where it is less than this number, else this number.
    fn least(self, other: Self) -> Self;
}

/// A condition for each of four lanes.
pub trait Mask<N>: Copy {
    /// The lanes of `yes` where the condition holds, else those of `no`.
    fn select(self, yes: N, no: N) -> N;
}

/// Instructions that a processor has. A value is the proof that the processor has them.
pub trait Lanes: Copy {
    /// The type of four numbers with these instructions.
    type Numbers: Numbers;

    /// Returns `number` in each of the four lanes.
    fn splat(self, number: f64) -> Self::Numbers;

    /// The four numbers, the first in lane 0.
    fn load(self, numbers: &[f64; 4]) -> Self::Numbers;

    /// Bit *i* is 1 if byte *i* is less than `bound`. Bytes and bound are below 128.
    fn bytes_below(self, bytes: &[u8; 64], bound: u8) -> u64;

    /// Index of the bit with value 1 that has `rank` such bits below it; `word` has more than
    /// `rank` such bits, and `rank` is below 64.
    #[inline(always)]
    fn nth_bit(self, word: u64, rank: u64) -> u32 {
        bits::nth_bit(word, rank)
    }

    /// Removes the byte with index `from`, then inserts a 0 at index `to`; adds 1 to all other
    /// bytes, up to 127. The byte with index *i* is `bytes[i + 1]`; the first and the last byte
    /// only spare the ends a special case. Bytes are below 128, and indices below 64.
    fn age_bytes(self, bytes: &mut [u8; 66], from: u8, to: u8);
}

/// A computation that is compiled for each kind of instructions.
pub trait Kernel {
    /// Type of the result of the computation.
    type Output;

    /// Computes. The method and all that it calls in a hot path must be `#[inline(always)]`; a
    /// function that is not inlined is compiled without the instructions.
    fn run<L: Lanes>(self, lanes: L) -> Self::Output;
}

/// The kind of instructions that kernels run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instructions(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    OfTarget(OfTarget),
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2", feature = "detect"))]
    Avx2(avx2::Avx2),
}

impl Instructions {
    /// The instructions that every processor of this target has.
    #[must_use]
    pub fn of_target() -> Self {
        Self(Kind::OfTarget(OfTarget::default()))
    }

    /// The best instructions that this processor has. The processor is examined once; a further
    /// call costs two atomic loads.
    #[must_use]
    pub fn detected() -> Self {
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2", feature = "detect"))]
        if let Some(avx2) = avx2::Avx2::detected() {
            return Self(Kind::Avx2(avx2));
        }
        Self::of_target()
    }

    /// Runs a kernel with these instructions.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Kind::OfTarget(lanes) => kernel.run(lanes),
            #[cfg(all(target_arch = "x86_64", target_feature = "sse2", feature = "detect"))]
            Kind::Avx2(avx2) => avx2.run(kernel),
        }
    }
}
