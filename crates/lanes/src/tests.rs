//! Every kind of instructions gives the bits of plain arrays.

use crate::{Instructions, Kernel, Lanes, Mask as _, Numbers as _, OfTarget, Portable};
use proptest::prelude::*;

/// The bits of the results of every operation.
struct All<'a> {
    numbers: &'a [[f64; 4]; 3],
    bytes: &'a [u8; 66],
    bounds: [u8; 3],
}

type Results = ([[u64; 4]; 9], u64, [u8; 66]);

impl Kernel for All<'_> {
    type Output = Results;

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> Results {
        let [a, b, c] = self.numbers.each_ref().map(|numbers| lanes.load(numbers));
        let numbers = [
            lanes.splat(self.numbers[0][0]),
            a + b,
            a - b,
            a * b,
            a / b,
            a.abs(),
            a.least(b),
            a.less(b).select(b, c),
            a.less_or_equal(b).select(b, c),
        ];
        let mut bytes = *self.bytes;
        lanes.age_bytes(&mut bytes, self.bounds[0], self.bounds[1]);
        let ages = self.bytes[1..].first_chunk().expect("66 bytes");
        (
            numbers.map(|numbers| numbers.to_array().map(f64::to_bits)),
            lanes.bytes_below(ages, self.bounds[2]),
            bytes,
        )
    }
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![-10.0..10.0f64, (-2i8..3).prop_map(f64::from), Just(-0.0), Just(f64::INFINITY)]
}

proptest! {
    #[test]
    fn every_kind_of_instructions_gives_the_same_bits(
        numbers in prop::array::uniform3(prop::array::uniform4(number())),
        bytes in prop::collection::vec(0u8..128, 66),
        bounds in prop::array::uniform3(0u8..64),
    ) {
        let bytes: [u8; 66] = bytes.try_into().expect("66 bytes");
        let all = || All { numbers: &numbers, bytes: &bytes, bounds };
        // NaN (∞ − ∞) has more than one bit pattern; its kind is not compared.
        let known = |results: Results| {
            let number = |bits: u64| if f64::from_bits(bits).is_nan() { u64::MAX } else { bits };
            (results.0.map(|numbers| numbers.map(number)), results.1, results.2)
        };
        let expected = known(all().run(Portable));
        prop_assert_eq!(known(all().run(OfTarget::default())), expected);
        prop_assert_eq!(known(Instructions::of_target().run(all())), expected);
        prop_assert_eq!(known(Instructions::detected().run(all())), expected);
    }
}

/// Every kind of instructions gives the same bits, so only this test shows that AVX2 is used.
#[test]
#[cfg(all(target_arch = "x86_64", target_feature = "sse2", feature = "detect"))]
fn avx2_is_detected_where_the_standard_library_detects_it() {
    extern crate std;
    let has_avx2 = std::is_x86_feature_detected!("avx2")
        && std::is_x86_feature_detected!("bmi1")
        && std::is_x86_feature_detected!("bmi2")
        && std::is_x86_feature_detected!("popcnt");
    assert_eq!(Instructions::detected() != Instructions::of_target(), has_avx2);
}
