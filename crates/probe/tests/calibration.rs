//! What is learned of a path, on paths made up for it.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use barograph_probe::calibration::{CHECKPOINTS, Calibration, Estimate, Partials};
use barograph_probe::stop::Reason;
use proptest::prelude::*;

/// A path: the logarithm of its rate, how that scatters from test to test, and how a checkpoint's rate does.
struct Path {
    random: u64,
    level: f64,
    level_deviation: f64,
    ratio: f64,
    ratio_deviation: f64,
}

/// What became of a test.
#[derive(Debug, PartialEq)]
enum Ending {
    Full,
    Surprise,
    /// How far off the logarithm of the rate was, and how far it was expected to be.
    Early {
        error: f64,
        deviation: f64,
    },
}

impl Path {
    fn new(seed: u64, level_deviation: f64, ratio_deviation: f64) -> Self {
        Self { random: seed, level: 18.0, level_deviation, ratio: 0.2, ratio_deviation }
    }

    fn normal(&mut self) -> f64 {
        // Twelve uniform numbers less six are nearly a normal one; SplitMix64.
        let mut uniform = || {
            self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut bits = self.random;
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        };
        (0..12).map(|_| uniform()).sum::<f64>() - 6.0
    }

    /// A test as the station makes it, and what is learned from it.
    fn test(&mut self, calibration: &mut Calibration, is_audit: bool) -> Ending {
        let full = self.level + self.normal() * self.level_deviation;
        let mut partials = Partials::default();
        for partial in &mut partials {
            *partial = Some((full - self.ratio + self.normal() * self.ratio_deviation).exp());
        }
        let Some(expected) = calibration.expected().filter(|_| !is_audit) else {
            calibration.learn_full(&partials, full.exp());
            return Ending::Full;
        };
        let estimates = (0..CHECKPOINTS.len()).find_map(|at| expected.estimate(at, 1.0, partials[at]?));
        let Some(Estimate { alone_bit_s, rate_bit_s, deviation, agrees }) = estimates else {
            return Ending::Full;
        };
        if !agrees {
            calibration.learn_surprise(&partials, full.exp());
            return Ending::Surprise;
        }
        let reason = Reason { time_s: 1.0, settled_bit_s: 1.0, alone_bit_s, rate_bit_s, deviation };
        calibration.learn_early(&reason);
        Ending::Early { error: rate_bit_s.ln() - full, deviation }
    }

    fn tests(&mut self, calibration: &mut Calibration, count: u32) -> Vec<Ending> {
        (1..=count).map(|test| self.test(calibration, test % AUDIT_EVERY == 0)).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A path that always gives the same share of its early rate is corrected to what it gives, up to a factor of three.
    #[test]
    fn a_steady_bias_is_learned(ratio in 0.34..2.99f64, rate in 1e6..1e9f64, tests in 4..20u32) {
        let mut calibration = Calibration::default();
        for _ in 0..tests {
            calibration.learn_full(&[Some(rate); CHECKPOINTS.len()], rate * ratio);
        }
        let estimate = calibration.expected().unwrap().estimate(0, 0.1, rate).unwrap();
        prop_assert!((estimate.rate_bit_s / (rate * ratio) - 1.0).abs() < 1e-9 && estimate.agrees);
        // What is far off is not believed, however sure the path is.
        prop_assert!(!calibration.expected().unwrap().estimate(0, 0.1, rate * 0.5).unwrap().agrees);
    }

    /// A path whose rate drops to a half, or rises by half, is noticed by the next test: it has its full length. The
    /// one after that has it too, and then the path is calibrated anew.
    #[test]
    fn a_change_by_half_is_noticed_by_the_next_test(seed: u64, rises: bool, quiet in 0.0..0.03f64) {
        let mut path = Path::new(seed, quiet, quiet);
        let mut calibration = Calibration::default();
        path.tests(&mut calibration, 30);
        path.level += if rises { 1.5f64.ln() } else { 0.5f64.ln() };
        let endings = path.tests(&mut calibration, 6);
        prop_assert_eq!(&endings[..2], &[Ending::Surprise, Ending::Surprise]);
        prop_assert_eq!(&endings[2..5], &[Ending::Full, Ending::Full, Ending::Full]);
        prop_assert!(matches!(endings[5], Ending::Early { .. }), "{endings:?}");
    }

    /// A change by 15 % is too small to be told from chance at once; the estimates follow most of it in the first
    /// test, and are within 2 % after three.
    #[test]
    fn a_change_by_fifteen_per_cent_is_followed(seed: u64, rises: bool) {
        let mut path = Path::new(seed, 0.0, 0.0);
        let mut calibration = Calibration::default();
        path.tests(&mut calibration, 30);
        let step = if rises { 1.15f64.ln() } else { 0.85f64.ln() };
        path.level += step;
        for test in 0..12 {
            let Ending::Early { error, .. } = path.test(&mut calibration, false) else { continue };
            prop_assert!(error.abs() <= step.abs() / 4.0, "{error} in test {test}");
            prop_assert!(test < 3 || error.abs() < 0.02, "{error} in test {test}");
        }
    }

    /// Nothing that a path may do makes it panic, or the estimate nonsense.
    #[test]
    fn no_values_make_nonsense(
        tests in prop::collection::vec((any::<u8>(), any::<f64>(), any::<f64>()), 0..50), partial in any::<f64>(),
    ) {
        let mut calibration = Calibration::default();
        for (kind, partial, full) in tests {
            let partials = [Some(partial), None, Some(full), Some(1.0), None, Some(-1.0), Some(partial)];
            match kind % 3 {
                0 => calibration.learn_full(&partials, full),
                1 => calibration.learn_surprise(&partials, full),
                _ => calibration.learn_early(&Reason {
                    time_s: 0.0, settled_bit_s: full, alone_bit_s: partial, rate_bit_s: full, deviation: partial,
                }),
            }
            let Some(expected) = calibration.expected() else { continue };
            for at in 0..=CHECKPOINTS.len() {
                if let Some(estimate) = expected.estimate(at, full, partial) {
                    prop_assert!(0.0 <= estimate.rate_bit_s && estimate.rate_bit_s.is_finite(), "{estimate:?}");
                    prop_assert!(0.0 <= estimate.deviation, "{estimate:?}");
                }
            }
        }
        if let Some(expected) = calibration.expected() {
            prop_assert!(expected.estimate(0, partial, partial).is_none_or(|estimate| !estimate.rate_bit_s.is_nan()));
        }
    }
}

/// Over paths from quiet to wild: few tests are surprised, and the errors are as large as they were said to be.
#[test]
fn surprises_are_few_and_errors_are_as_expected() {
    let (mut early, mut surprised, mut within) = (0, 0, 0);
    for seed in 0..200 {
        let scatter = f64::from(u32::try_from(seed % 10).unwrap()) * 0.03;
        let mut path = Path::new(seed, scatter, scatter / 2.0);
        let mut calibration = Calibration::default();
        for ending in path.tests(&mut calibration, 60) {
            match ending {
                Ending::Early { error, deviation, .. } => {
                    early += 1;
                    within += u32::from(error.abs() <= 1.645 * deviation);
                }
                Ending::Surprise => surprised += 1,
                Ending::Full => {}
            }
        }
    }
    let (share, coverage) = (f64::from(surprised) / f64::from(early), f64::from(within) / f64::from(early));
    assert!(9000 < early && share < 0.02, "{surprised} surprises beside {early}");
    assert!((0.88..=1.0).contains(&coverage), "{coverage}");
}

#[test]
fn a_path_is_tested_at_full_length_until_it_is_known_and_where_no_checkpoint_is_a_guide() {
    let mut calibration = Calibration::default();
    for _ in 0..Calibration::TESTS_MIN {
        assert_eq!(calibration.expected(), None);
        calibration.learn_full(&[Some(1e8); CHECKPOINTS.len()], 1e8);
        // What is no rate says nothing.
        calibration.learn_full(&[Some(1e8); CHECKPOINTS.len()], 0.0);
        calibration.learn_full(&[Some(1e8); CHECKPOINTS.len()], f64::NAN);
    }
    assert!(calibration.expected().is_some());
    // Nothing arrived before the end of any round.
    let mut blind = Calibration::default();
    // Checkpoints that say nothing of a rate that stands still.
    let mut wild = Calibration::default();
    for test in 0..20 {
        blind.learn_full(&Partials::default(), 1e8);
        wild.learn_full(&[Some(if test % 2 == 0 { 0.6e8 } else { 1.7e8 }); CHECKPOINTS.len()], 1e8);
    }
    assert_eq!((blind.expected(), wild.expected()), (None, None));
}

/// As the planner draws them.
const AUDIT_EVERY: u32 = 20;
