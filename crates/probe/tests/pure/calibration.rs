//! Calibration on synthetic paths.

use barograph_forecast::{Battery, BatteryConfig};
use barograph_probe::calibration::{CHECKPOINTS, Calibration, CheckpointEstimate, CheckpointRates};
use barograph_probe::stop::{Decision, EarlyStopRule, ForecastInterval, RateEstimate};
use barograph_probe::stream::{EarlyStopPolicy, Sample};
use barograph_sim::SeededRng;
use proptest::prelude::*;

/// A synthetic path. `level` is the mean logarithm of its rate, `ratio` is the mean logarithm of
/// full-length rate ÷ rate at a checkpoint, and each has a deviation between tests.
struct Path {
    rng: SeededRng,
    level: f64,
    level_deviation: f64,
    ratio: f64,
    ratio_deviation: f64,
}

#[derive(Debug, PartialEq)]
enum Ending {
    Full,
    Rejected,
    /// Error of the logarithm of the rate, and the error that was expected.
    Early {
        error: f64,
        deviation: f64,
    },
}

impl Path {
    fn new(seed: u64, level_deviation: f64, ratio_deviation: f64) -> Self {
        Self { rng: SeededRng::new(seed, 0), level: 18.0, level_deviation, ratio: 0.2, ratio_deviation }
    }

    /// Runs a test as a station does, and adds it to the calibration.
    fn test(&mut self, calibration: &mut Calibration, is_audit: bool) -> Ending {
        let full = self.level + self.rng.normal() * self.level_deviation;
        let mut partials = CheckpointRates::default();
        for partial in &mut partials {
            *partial = Some((full - self.ratio + self.rng.normal() * self.ratio_deviation).exp());
        }
        let Some(expected) = calibration.expected().filter(|_| !is_audit) else {
            calibration.add_full(&partials, full.exp());
            return Ending::Full;
        };
        let estimates = (0..CHECKPOINTS.len()).find_map(|at| expected.estimate(at, 1.0, partials[at]?));
        let Some(CheckpointEstimate { uncombined_bit_s, rate_bit_s, deviation, agrees }) = estimates else {
            return Ending::Full;
        };
        if !agrees {
            calibration.add_rejected(&partials, full.exp());
            return Ending::Rejected;
        }
        let estimate =
            RateEstimate { time_s: 1.0, settled_bit_s: 1.0, uncombined_bit_s, rate_bit_s, deviation };
        calibration.add_early(&estimate);
        Ending::Early { error: rate_bit_s.ln() - full, deviation }
    }

    fn tests(&mut self, calibration: &mut Calibration, count: u32) -> Vec<Ending> {
        (1..=count).map(|test| self.test(calibration, test % AUDIT_EVERY == 0)).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A path that always reaches the same multiple of its early rate is corrected, up to a factor
    /// of three.
    #[test]
    fn calibration_learns_a_steady_ratio_of_early_to_full_rate(ratio in 0.34..2.99f64, rate in 1e6..1e9f64, tests in 4..20u32) {
        let mut calibration = Calibration::default();
        for _ in 0..tests {
            calibration.add_full(&[Some(rate); CHECKPOINTS.len()], rate * ratio);
        }
        let estimate = calibration.expected().unwrap().estimate(0, 0.1, rate).unwrap();
        prop_assert!((estimate.rate_bit_s / (rate * ratio) - 1.0).abs() < 1e-9 && estimate.agrees);
        // A strongly deviating rate is rejected, however well the path is calibrated.
        prop_assert!(!calibration.expected().unwrap().estimate(0, 0.1, rate * 0.5).unwrap().agrees);
    }

    /// On a path that varies by at most 2 %, a rate that falls by half or rises by half is detected
    /// by the next test, so that this test runs to full length. The following test also runs to
    /// full length, and then calibration of the path starts again.
    #[test]
    fn the_next_test_detects_a_change_by_half_on_a_quiet_path(seed: u64, rises: bool, quiet in 0.0..0.02f64) {
        let mut path = Path::new(seed, quiet, quiet);
        let mut calibration = Calibration::default();
        path.tests(&mut calibration, 30);
        path.level += if rises { 1.5f64.ln() } else { 0.5f64.ln() };
        let endings = path.tests(&mut calibration, 6);
        prop_assert_eq!(&endings[..2], &[Ending::Rejected, Ending::Rejected]);
        prop_assert_eq!(&endings[2..5], &[Ending::Full, Ending::Full, Ending::Full]);
        prop_assert!(matches!(endings[5], Ending::Early { .. }), "{endings:?}");
    }

    /// A change of 15 % is too small to be distinguished from chance at once. The estimates follow
    /// most of the change in the first test, and are within 2 % of the new rate after three tests.
    #[test]
    fn estimates_follow_a_change_by_15_percent(seed: u64, rises: bool) {
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

    /// No values cause a panic or an invalid estimate.
    #[test]
    fn no_values_cause_a_panic_or_an_invalid_estimate(
        tests in prop::collection::vec((any::<u8>(), any::<f64>(), any::<f64>()), 0..50), partial in any::<f64>(),
    ) {
        let mut calibration = Calibration::default();
        for (kind, partial, full) in tests {
            let partials = [Some(partial), None, Some(full), Some(1.0), None, Some(-1.0), Some(partial)];
            match kind % 3 {
                0 => calibration.add_full(&partials, full),
                1 => calibration.add_rejected(&partials, full),
                _ => calibration.add_early(&RateEstimate {
                    time_s: 0.0, settled_bit_s: full, uncombined_bit_s: partial, rate_bit_s: full, deviation: partial,
                }),
            }
            let Some(expected) = calibration.expected() else { continue };
            for at in 0..=CHECKPOINTS.len() {
                if let Some(estimate) = expected.estimate(at, full, partial) {
                    prop_assert!(estimate.rate_bit_s >= 0.0 && estimate.rate_bit_s.is_finite(), "{estimate:?}");
                    prop_assert!(estimate.deviation >= 0.0, "{estimate:?}");
                }
            }
        }
        if let Some(expected) = calibration.expected() {
            prop_assert!(expected.estimate(0, partial, partial).is_none_or(|estimate| !estimate.rate_bit_s.is_nan()));
        }
    }
}

/// The rate falls by half or rises by half. On paths with more variation, the next test detects
/// this change less often. For each deviation, the share of detected changes must lie in a given
/// range.
#[test]
fn a_change_by_half_is_detected_less_often_on_paths_with_more_variation() {
    for (scatter, least, most) in [(0.03, 0.99, 1.0), (0.1, 0.73, 0.83), (0.2, 0.38, 0.48), (0.3, 0.2, 0.29)]
    {
        let noticed = (0..1000).filter(|seed| {
            let mut path = Path::new(*seed, scatter, scatter / 2.0);
            let mut calibration = Calibration::default();
            path.tests(&mut calibration, 30);
            path.level += if seed % 2 == 0 { 1.5f64.ln() } else { 0.5f64.ln() };
            !matches!(path.test(&mut calibration, false), Ending::Early { .. })
        });
        let share = noticed.count() as f64 / 1000.0;
        println!("scatter {scatter}: {share} noticed by the next test");
        assert!((least..=most).contains(&share), "{scatter}: {share}");
    }
}

/// Few tests are rejected. On quiet paths the errors are smaller than expected, because the usual
/// deviations dominate the expectation; on paths with much variation, the errors are somewhat
/// larger than expected.
#[test]
fn rejected_tests_are_few_and_errors_have_the_expected_size() {
    for (scatter, least, most) in
        [(0.0, 1.0, 1.0), (0.03, 0.98, 1.0), (0.09, 0.92, 0.96), (0.18, 0.84, 0.89), (0.27, 0.82, 0.86)]
    {
        let (mut early, mut rejected, mut within) = (0, 0, 0);
        for seed in 0..100 {
            let mut path = Path::new(seed, scatter, scatter / 2.0);
            let mut calibration = Calibration::default();
            for ending in path.tests(&mut calibration, 60) {
                match ending {
                    Ending::Early { error, deviation, .. } => {
                        early += 1;
                        within += u32::from(error.abs() <= 1.645 * deviation);
                    }
                    Ending::Rejected => rejected += 1,
                    Ending::Full => {}
                }
            }
        }
        let (share, coverage) =
            (f64::from(rejected) / f64::from(early), f64::from(within) / f64::from(early));
        println!("scatter {scatter}: {rejected} rejected beside {early}, {coverage} within 90 %");
        assert!(early > 4000 && share < 0.045, "{scatter}: {rejected} rejected beside {early}");
        assert!((least..=most).contains(&coverage), "{scatter}: {coverage}");
    }
}

/// A test that ends early records an estimate that depends on the earlier records, and the next
/// test is checked against these records. So the recorded rates vary less than the rates of full
/// tests. The forecast interval is computed from the recorded rates; so fewer rates of full tests
/// are inside it.
#[test]
fn early_ends_reduce_the_interval_coverage_by_a_bounded_amount() {
    for (scatter, least) in [(0.05, 0.87), (0.1, 0.86), (0.2, 0.84), (0.3, 0.83)] {
        let (open, closed) = (Loop::of_paths(scatter, false), Loop::of_paths(scatter, true));
        println!("scatter {scatter}: full tests only {open:?}, with early ones {closed:?}");
        assert!(0.87 < open.coverage && open.coverage < 0.94, "{scatter}: {open:?}");
        assert!(least <= closed.coverage, "{scatter}: {closed:?}");
        assert!(closed.early > 0.6, "{scatter}: {closed:?}");
    }
}

/// Result of forecasts from tests that may end early.
#[derive(Debug, Default)]
struct Loop {
    /// Share of the full rates that were within the 90 % interval issued before the test.
    coverage: f64,
    /// Standard deviation of the logarithms of the recorded rates, divided by the standard
    /// deviation of the logarithms of the full rates.
    scatter: f64,
    /// Share of tests that ended early.
    early: f64,
}

impl Loop {
    /// Results of 20 paths with 200 tests each, without the first 20 tests.
    fn of_paths(scatter: f64, ends_early: bool) -> Self {
        let (mut sums, mut tests) = (Self::default(), 0.0);
        for seed in 0..20 {
            let mut path = Path::new(seed, scatter, scatter / 2.0);
            let (mut calibration, mut battery) =
                (Calibration::default(), Battery::new(&BatteryConfig::default()));
            for test in 1..=200 {
                let full = path.level + path.rng.normal() * scatter;
                let partial = (full - path.ratio + path.rng.normal() * path.ratio_deviation).exp();
                let interval = battery.interval(0.9);
                let is_audit = test % AUDIT_EVERY == 0 || !ends_early;
                let recorded = recorded(&mut calibration, &battery, partial, full.exp(), is_audit);
                battery.update(recorded).unwrap();
                if test <= 20 {
                    continue;
                }
                tests += 1.0;
                let interval = interval.unwrap();
                let is_within = (interval.lower..=interval.upper).contains(&full.exp());
                sums.coverage += f64::from(is_within);
                sums.scatter += (recorded.ln() - path.level).powi(2);
                sums.early += f64::from(recorded != full.exp());
            }
        }
        Self {
            coverage: sums.coverage / tests,
            scatter: (sums.scatter / tests).sqrt() / scatter,
            early: sums.early / tests,
        }
    }
}

/// Returns the rate that a station records for a test. The rate is `partial` while the test may end
/// early, and `full` over the full length.
fn recorded(
    calibration: &mut Calibration,
    battery: &Battery,
    partial: f64,
    full: f64,
    is_audit: bool,
) -> f64 {
    let leave = || {
        let interval = battery.interval(0.9)?;
        let guard = Some(ForecastInterval { lower_bit_s: interval.lower, upper_bit_s: interval.upper });
        Some(EarlyStopPolicy { guard, expected: Some(calibration.expected()?), ..EarlyStopPolicy::default() })
    };
    let early = leave().filter(|_| !is_audit);
    let mut rule = EarlyStopRule::new(early);
    let stopped = (0..400).find_map(|sample| {
        let time_s = f64::from(sample) * 0.005;
        let acked_bytes = (partial / 8.0 * time_s) as u64;
        let (rtt_s, min_rtt_s) = (Some(0.02), Some(0.02));
        match rule.push(&Sample { time_s, acked_bytes, rtt_s, min_rtt_s, retrans: 0, app_limited: false }) {
            Decision::Stop(estimate) => Some(estimate),
            Decision::Continue => None,
        }
    });
    if let Some(estimate) = stopped {
        calibration.add_early(&estimate);
        return estimate.rate_bit_s;
    }
    if early.is_none() {
        calibration.add_full(rule.partials(), full);
    } else if rule.estimate_rejected() {
        calibration.add_rejected(rule.partials(), full);
    }
    full
}

#[test]
fn a_path_is_tested_at_full_length_without_enough_tests_or_checkpoints() {
    let mut calibration = Calibration::default();
    for _ in 0..Calibration::TESTS_MIN {
        assert_eq!(calibration.expected(), None);
        calibration.add_full(&[Some(1e8); CHECKPOINTS.len()], 1e8);
        // A value that is not a rate changes nothing.
        calibration.add_full(&[Some(1e8); CHECKPOINTS.len()], 0.0);
        calibration.add_full(&[Some(1e8); CHECKPOINTS.len()], f64::NAN);
    }
    assert!(calibration.expected().is_some());
    // No data arrived before the end of any round.
    let mut blind = Calibration::default();
    // The rates at the checkpoints vary, although the full rate is constant.
    let mut wild = Calibration::default();
    for test in 0..20 {
        blind.add_full(&CheckpointRates::default(), 1e8);
        wild.add_full(&[Some(if test % 2 == 0 { 0.6e8 } else { 1.7e8 }); CHECKPOINTS.len()], 1e8);
    }
    assert_eq!((blind.expected(), wild.expected()), (None, None));
}

/// Number of tests from one audit to the next. The station's planner draws audits at random, on
/// average one in this number of tests.
const AUDIT_EVERY: u32 = 20;
