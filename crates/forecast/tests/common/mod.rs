//! Input that several tests share. Each test uses a part of it.
#![allow(dead_code)]

use proptest::prelude::*;

/// Uniform noise between −1 and 1 from a fixed generator (Knuth's MMIX).
pub(crate) fn noise() -> impl FnMut() -> f64 {
    noise_of(7)
}

pub(crate) fn noise_of(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
}

/// Fewer than `count_max` values: usual ones, repeated ones, and extreme ones.
pub(crate) fn values(count_max: usize) -> impl Strategy<Value = Vec<f64>> {
    let value = prop_oneof![
        4 => 0.0..100.0f64,
        2 => (0u8..4).prop_map(f64::from),
        1 => prop::sample::select(vec![0.0, -0.0, 1e-300, -1e-9, 1e9, 1e70, -1e70, f64::MIN_POSITIVE]),
    ];
    prop::collection::vec(value, 0..count_max)
}
