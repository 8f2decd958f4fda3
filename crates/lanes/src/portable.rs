//! Plain arrays: the definition that the vector instructions are tested against.

use core::array::from_fn;
use core::ops::{Add, Div, Mul, Sub};

use crate::bits::{HIGH, ONES};
use crate::{Lanes, Mask, Numbers};

/// Plain arrays, which every target has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Portable;

/// Four numbers of [`Portable`].
#[derive(Clone, Copy, Debug)]
pub struct Array([f64; 4]);

/// The result of a comparison of [`Array`]s.
#[derive(Clone, Copy, Debug)]
pub struct Conditions([bool; 4]);

macro_rules! operator {
    ($($trait:ident $method:ident $operator:tt)*) => {$(
        impl $trait for Array {
            type Output = Self;

            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self(from_fn(|i| self.0[i] $operator other.0[i]))
            }
        }
    )*};
}
operator! { Add add + Sub sub - Mul mul * Div div / }

impl Numbers for Array {
    type Mask = Conditions;

    #[inline(always)]
    fn to_array(self) -> [f64; 4] {
        self.0
    }

    #[inline(always)]
    fn abs(self) -> Self {
        Self(self.0.map(f64::abs))
    }

    #[inline(always)]
    fn less(self, other: Self) -> Conditions {
        Conditions(from_fn(|i| self.0[i] < other.0[i]))
    }

    #[inline(always)]
    fn less_or_equal(self, other: Self) -> Conditions {
        Conditions(from_fn(|i| self.0[i] <= other.0[i]))
    }

    #[inline(always)]
    fn least(self, other: Self) -> Self {
        Self(from_fn(|i| if other.0[i] < self.0[i] { other.0[i] } else { self.0[i] }))
    }
}

impl Mask<Array> for Conditions {
    #[inline(always)]
    fn select(self, yes: Array, no: Array) -> Array {
        Array(from_fn(|i| if self.0[i] { yes.0[i] } else { no.0[i] }))
    }
}

impl Lanes for Portable {
    type Numbers = Array;

    #[inline(always)]
    fn splat(self, number: f64) -> Array {
        Array([number; 4])
    }

    #[inline(always)]
    fn load(self, numbers: &[f64; 4]) -> Array {
        Array(*numbers)
    }

    #[inline(always)]
    fn bytes_below(self, bytes: &[u8; 64], bound: u8) -> u64 {
        let bound = ONES * u64::from(bound);
        let mut below = 0;
        for (i, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
            // The high bit of a byte of the difference is 0 if the byte is below the bound.
            let ones = !((u64::from_le_bytes(*word) | HIGH) - bound) >> 7 & ONES;
            // The product moves the lowest bits of the eight bytes to the highest byte.
            below |= (ones.wrapping_mul(GATHER) >> 56) << (8 * i);
        }
        below
    }

    #[inline(always)]
    fn age_bytes(self, bytes: &mut [u8; 66], from: u8, to: u8) {
        let old = *bytes;
        for (i, byte) in bytes[1..65].iter_mut().enumerate() {
            let index = i as u8;
            let moved = if from <= index && index < to {
                old[i + 2]
            } else if to < index && index <= from {
                old[i]
            } else {
                old[i + 1]
            };
            *byte = if index == to { 0 } else { (moved + 1).min(127) };
        }
    }
}

/// Bit 56 + *i* of the product with this number is bit 8 *i* of the other factor, if that factor
/// has no other bits.
const GATHER: u64 = 0x0102_0408_1020_4080;
