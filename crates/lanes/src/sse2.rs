//! SSE2. The module is compiled only for targets of which each processor has SSE2.
#![expect(unsafe_code, reason = "vector instructions; each block says why the processor has them")]

use core::arch::x86_64::{
    __m128d, __m128i, _mm_add_epi8, _mm_add_pd, _mm_and_pd, _mm_and_si128, _mm_andnot_pd, _mm_andnot_si128,
    _mm_cmpeq_epi8, _mm_cmple_pd, _mm_cmplt_epi8, _mm_cmplt_pd, _mm_div_pd, _mm_loadu_pd, _mm_loadu_si128,
    _mm_min_epu8, _mm_min_pd, _mm_movemask_epi8, _mm_mul_pd, _mm_or_pd, _mm_or_si128, _mm_set1_epi8,
    _mm_set1_pd, _mm_storeu_pd, _mm_storeu_si128, _mm_sub_pd,
};
use core::ops::{Add, Div, Mul, Sub};

use crate::bits::{INDICES, part};
use crate::{Lanes, Mask, Numbers};

/// SSE2: two lanes in a register, two registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sse2;

/// Four numbers of [`Sse2`].
#[derive(Clone, Copy, Debug)]
pub struct Pair(__m128d, __m128d);

macro_rules! operator {
    ($($trait:ident $method:ident $instruction:ident)*) => {$(
        impl $trait for Pair {
            type Output = Self;

            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                // SAFETY: the target has SSE2.
                unsafe { Self($instruction(self.0, other.0), $instruction(self.1, other.1)) }
            }
        }
    )*};
}
operator! { Add add _mm_add_pd Sub sub _mm_sub_pd Mul mul _mm_mul_pd Div div _mm_div_pd }

impl Numbers for Pair {
    type Mask = Self;

    #[inline(always)]
    fn to_array(self) -> [f64; 4] {
        let mut numbers = [0.0; 4];
        // SAFETY: the target has SSE2; the array has room for two times two numbers.
        unsafe {
            _mm_storeu_pd(numbers.as_mut_ptr(), self.0);
            _mm_storeu_pd(numbers.as_mut_ptr().add(2), self.1);
        }
        numbers
    }

    #[inline(always)]
    fn abs(self) -> Self {
        // SAFETY: the target has SSE2.
        unsafe {
            let sign = _mm_set1_pd(-0.0);
            Self(_mm_andnot_pd(sign, self.0), _mm_andnot_pd(sign, self.1))
        }
    }

    #[inline(always)]
    fn less(self, other: Self) -> Self {
        // SAFETY: the target has SSE2.
        unsafe { Self(_mm_cmplt_pd(self.0, other.0), _mm_cmplt_pd(self.1, other.1)) }
    }

    #[inline(always)]
    fn less_or_equal(self, other: Self) -> Self {
        // SAFETY: the target has SSE2.
        unsafe { Self(_mm_cmple_pd(self.0, other.0), _mm_cmple_pd(self.1, other.1)) }
    }

    #[inline(always)]
    fn least(self, other: Self) -> Self {
        // The instruction returns its second operand unless the first one is less.
        // SAFETY: the target has SSE2.
        unsafe { Self(_mm_min_pd(other.0, self.0), _mm_min_pd(other.1, self.1)) }
    }
}

impl Mask<Self> for Pair {
    #[inline(always)]
    fn select(self, yes: Self, no: Self) -> Self {
        // SAFETY: the target has SSE2.
        unsafe {
            Self(
                _mm_or_pd(_mm_and_pd(self.0, yes.0), _mm_andnot_pd(self.0, no.0)),
                _mm_or_pd(_mm_and_pd(self.1, yes.1), _mm_andnot_pd(self.1, no.1)),
            )
        }
    }
}

impl Lanes for Sse2 {
    type Numbers = Pair;

    #[inline(always)]
    fn splat(self, number: f64) -> Pair {
        // SAFETY: the target has SSE2.
        unsafe { Pair(_mm_set1_pd(number), _mm_set1_pd(number)) }
    }

    #[inline(always)]
    fn load(self, numbers: &[f64; 4]) -> Pair {
        // SAFETY: the target has SSE2; the array has two times two numbers.
        unsafe { Pair(_mm_loadu_pd(numbers.as_ptr()), _mm_loadu_pd(numbers.as_ptr().add(2))) }
    }

    #[inline(always)]
    fn bytes_below(self, bytes: &[u8; 64], bound: u8) -> u64 {
        let mut below = 0;
        for (i, part) in bytes.as_chunks::<16>().0.iter().enumerate() {
            // SAFETY: the target has SSE2; `part` has 16 bytes.
            let bits = unsafe {
                let part = _mm_loadu_si128(part.as_ptr().cast::<__m128i>());
                _mm_movemask_epi8(_mm_cmplt_epi8(part, _mm_set1_epi8(bound as i8)))
            };
            below |= u64::from(bits as u32) << (16 * i);
        }
        below
    }

    #[inline(always)]
    fn age_bytes(self, bytes: &mut [u8; 66], from: u8, to: u8) {
        let mut aged = [0; 64];
        for (i, aged) in aged.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let [below, same, above]: [&[u8; 16]; 3] = part(bytes, 16 * i);
            let [index, ..]: [&[u8; 16]; 3] = part(&INDICES, 16 * i);
            // SAFETY: the target has SSE2; each part has 16 bytes.
            unsafe {
                let below = _mm_loadu_si128(below.as_ptr().cast::<__m128i>());
                let same = _mm_loadu_si128(same.as_ptr().cast::<__m128i>());
                let above = _mm_loadu_si128(above.as_ptr().cast::<__m128i>());
                let index = _mm_loadu_si128(index.as_ptr().cast::<__m128i>());
                let (from, to) = (_mm_set1_epi8(from as i8), _mm_set1_epi8(to as i8));
                let down = _mm_andnot_si128(_mm_cmplt_epi8(index, from), _mm_cmplt_epi8(index, to));
                let up = _mm_andnot_si128(_mm_cmplt_epi8(from, index), _mm_cmplt_epi8(to, index));
                let moved = _mm_or_si128(_mm_and_si128(down, above), _mm_and_si128(up, below));
                let moved = _mm_or_si128(moved, _mm_andnot_si128(_mm_or_si128(down, up), same));
                let older = _mm_min_epu8(_mm_add_epi8(moved, _mm_set1_epi8(1)), _mm_set1_epi8(127));
                let older = _mm_andnot_si128(_mm_cmpeq_epi8(index, to), older);
                _mm_storeu_si128(aged.as_mut_ptr().cast::<__m128i>(), older);
            }
        }
        bytes[1..65].copy_from_slice(&aged);
    }
}
