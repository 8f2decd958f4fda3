//! AVX2, for processors on which it was detected.
#![expect(unsafe_code, reason = "vector instructions; each block says why the processor has them")]

use core::arch::x86_64::{
    __m256d, __m256i, _CMP_LE_OQ, _CMP_LT_OQ, _mm256_add_epi8, _mm256_add_pd, _mm256_andnot_pd,
    _mm256_andnot_si256, _mm256_blendv_epi8, _mm256_blendv_pd, _mm256_cmp_pd, _mm256_cmpeq_epi8,
    _mm256_cmpgt_epi8, _mm256_div_pd, _mm256_loadu_pd, _mm256_loadu_si256, _mm256_min_epu8, _mm256_min_pd,
    _mm256_movemask_epi8, _mm256_mul_pd, _mm256_set1_epi8, _mm256_set1_pd, _mm256_storeu_pd,
    _mm256_storeu_si256, _mm256_sub_pd, _pdep_u64,
};
use core::ops::{Add, Div, Mul, Sub};

use crate::bits::{INDICES, part};
use crate::{Kernel, Lanes, Mask, Numbers};

/// AVX2: four lanes in a register. A value exists only if the processor has AVX2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx2 {
    /// Whether the processor is known to deposit bits fast (`pdep`). On AMD processors before Zen 3
    /// the instruction is a loop of microcode.
    has_fast_deposit: bool,
}

cpufeatures::new!(has_avx2, "avx2", "bmi1", "bmi2", "popcnt");

/// Result of [`has_fast_deposit`]: 0 before the first call, then 1 (unknown or slow) or 2 (fast).
static FAST_DEPOSIT: core::sync::atomic::AtomicU8 = core::sync::atomic::AtomicU8::new(0);

/// Whether this processor is known to deposit bits fast. Only for a processor with AVX2, which has
/// leaf 7 of CPUID.
///
/// Every processor with VAES (bit 9 of ECX in leaf 7) deposits bits fast: Intel from Ice Lake, AMD
/// from Zen 3 on. Intel processors from Haswell on are fast too, but no bit of CPUID shows it.
fn has_fast_deposit() -> bool {
    use core::sync::atomic::Ordering::Relaxed;
    let known = FAST_DEPOSIT.load(Relaxed);
    if known != 0 {
        return known == 2;
    }
    // `cpufeatures` reports VAES only together with AVX-512.
    let is_fast = core::arch::x86_64::__cpuid_count(7, 0).ecx >> 9 & 1 == 1;
    FAST_DEPOSIT.store(1 + u8::from(is_fast), Relaxed);
    is_fast
}

impl Avx2 {
    /// `None` if the processor does not have AVX2, BMI and POPCNT.
    pub(crate) fn detected() -> Option<Self> {
        has_avx2::get().then(|| Self { has_fast_deposit: has_fast_deposit() })
    }

    /// Runs a kernel that is compiled for these instructions.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        // No `fma`: a contraction would change bits. The compiler makes none by itself either.
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
        fn compiled<K: Kernel>(kernel: K, avx2: Avx2) -> K::Output {
            kernel.run(avx2)
        }
        // SAFETY: `self` exists, so AVX2, BMI and POPCNT were detected.
        unsafe { compiled(kernel, self) }
    }
}

/// Four numbers of [`Avx2`]. A value exists only if the processor has AVX2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quad(__m256d);

macro_rules! operator {
    ($($trait:ident $method:ident $instruction:ident)*) => {$(
        impl $trait for Quad {
            type Output = Self;

            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                // SAFETY: `self` exists, so AVX2 was detected.
                unsafe { Self($instruction(self.0, other.0)) }
            }
        }
    )*};
}
operator! { Add add _mm256_add_pd Sub sub _mm256_sub_pd Mul mul _mm256_mul_pd Div div _mm256_div_pd }

impl Numbers for Quad {
    type Mask = Self;

    #[inline(always)]
    fn to_array(self) -> [f64; 4] {
        let mut numbers = [0.0; 4];
        // SAFETY: `self` exists, so AVX2 was detected; the array has room for four numbers.
        unsafe { _mm256_storeu_pd(numbers.as_mut_ptr(), self.0) }
        numbers
    }

    #[inline(always)]
    fn abs(self) -> Self {
        // SAFETY: `self` exists, so AVX2 was detected.
        unsafe { Self(_mm256_andnot_pd(_mm256_set1_pd(-0.0), self.0)) }
    }

    #[inline(always)]
    fn less(self, other: Self) -> Self {
        // SAFETY: `self` exists, so AVX2 was detected.
        unsafe { Self(_mm256_cmp_pd::<_CMP_LT_OQ>(self.0, other.0)) }
    }

    #[inline(always)]
    fn less_or_equal(self, other: Self) -> Self {
        // SAFETY: `self` exists, so AVX2 was detected.
        unsafe { Self(_mm256_cmp_pd::<_CMP_LE_OQ>(self.0, other.0)) }
    }

    #[inline(always)]
    fn least(self, other: Self) -> Self {
        // The instruction returns its second operand unless the first one is less.
        // SAFETY: `self` exists, so AVX2 was detected.
        unsafe { Self(_mm256_min_pd(other.0, self.0)) }
    }
}

impl Mask<Self> for Quad {
    #[inline(always)]
    fn select(self, yes: Self, no: Self) -> Self {
        // SAFETY: `self` exists, so AVX2 was detected.
        unsafe { Self(_mm256_blendv_pd(no.0, yes.0, self.0)) }
    }
}

impl Lanes for Avx2 {
    type Numbers = Quad;

    #[inline(always)]
    fn splat(self, number: f64) -> Quad {
        // SAFETY: `self` exists, so AVX2 was detected.
        unsafe { Quad(_mm256_set1_pd(number)) }
    }

    #[inline(always)]
    fn load(self, numbers: &[f64; 4]) -> Quad {
        // SAFETY: `self` exists, so AVX2 was detected; the array has four numbers.
        unsafe { Quad(_mm256_loadu_pd(numbers.as_ptr())) }
    }

    #[inline(always)]
    fn bytes_below(self, bytes: &[u8; 64], bound: u8) -> u64 {
        let mut below = 0;
        for (i, part) in bytes.as_chunks::<32>().0.iter().enumerate() {
            // SAFETY: `self` exists, so AVX2 was detected; `part` has 32 bytes.
            let bits = unsafe {
                let part = _mm256_loadu_si256(part.as_ptr().cast::<__m256i>());
                _mm256_movemask_epi8(_mm256_cmpgt_epi8(_mm256_set1_epi8(bound as i8), part))
            };
            below |= u64::from(bits as u32) << (32 * i);
        }
        below
    }

    #[inline(always)]
    fn nth_bit(self, word: u64, rank: u64) -> u32 {
        if self.has_fast_deposit {
            // SAFETY: `self` exists, so BMI2 was detected.
            unsafe { _pdep_u64(1 << (rank & 63), word).trailing_zeros() }
        } else {
            slow_nth_bit(word, rank)
        }
    }

    #[inline(always)]
    fn age_bytes(self, bytes: &mut [u8; 66], from: u8, to: u8) {
        let mut aged = [0; 64];
        for (i, aged) in aged.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let [below, same, above]: [&[u8; 32]; 3] = part(bytes, 32 * i);
            let [index, ..]: [&[u8; 32]; 3] = part(&INDICES, 32 * i);
            // SAFETY: `self` exists, so AVX2 was detected; each part has 32 bytes.
            unsafe {
                let below = _mm256_loadu_si256(below.as_ptr().cast::<__m256i>());
                let same = _mm256_loadu_si256(same.as_ptr().cast::<__m256i>());
                let above = _mm256_loadu_si256(above.as_ptr().cast::<__m256i>());
                let index = _mm256_loadu_si256(index.as_ptr().cast::<__m256i>());
                let (from, to) = (_mm256_set1_epi8(from as i8), _mm256_set1_epi8(to as i8));
                let down = _mm256_andnot_si256(_mm256_cmpgt_epi8(from, index), _mm256_cmpgt_epi8(to, index));
                let up = _mm256_andnot_si256(_mm256_cmpgt_epi8(index, from), _mm256_cmpgt_epi8(index, to));
                let moved = _mm256_blendv_epi8(_mm256_blendv_epi8(same, above, down), below, up);
                let older = _mm256_add_epi8(moved, _mm256_set1_epi8(1));
                let older = _mm256_min_epu8(older, _mm256_set1_epi8(127));
                let older = _mm256_andnot_si256(_mm256_cmpeq_epi8(index, to), older);
                _mm256_storeu_si256(aged.as_mut_ptr().cast::<__m256i>(), older);
            }
        }
        bytes[1..65].copy_from_slice(&aged);
    }
}

/// Not inlined, so that the faster form stays small.
#[inline(never)]
fn slow_nth_bit(word: u64, rank: u64) -> u32 {
    crate::bits::nth_bit(word, rank)
}
