//! The rule that ends a stream early, on synthetic streams.

use barograph_probe::calibration::{Calibration, CheckpointRates};
use barograph_probe::stop::{Decision, EarlyStopRule, ForecastInterval, RateEstimate, SettledRateConfig};
use barograph_probe::stream::{EarlyStopPolicy, Sample, Samples, after_startup};
use proptest::prelude::*;

const FULL_S: f64 = 5.0;

/// A stream with the rate `rate(time)` in bit/s, sampled every 5 ms.
fn stream(rtt_s: f64, seconds: f64, rate: impl Fn(f64) -> f64) -> Vec<Sample> {
    let mut bits = 0.0;
    let steps = (seconds / STEP_S) as u32;
    let sample = |step: u32| {
        let time_s = f64::from(step) * STEP_S;
        let sample = Sample {
            time_s,
            acked_bytes: (bits / 8.0) as u64,
            rtt_s: Some(rtt_s),
            min_rtt_s: Some(rtt_s),
            retrans: 0,
            app_limited: false,
        };
        bits += rate(time_s) * STEP_S;
        sample
    };
    (0..=steps).map(sample).collect()
}

/// Slow start: ten segments, doubled in each round trip, up to the rate of the link.
fn slow_start(link_bit_s: f64, rtt_s: f64) -> impl Fn(f64) -> f64 {
    move |time_s| (10.0 * 1448.0 * 8.0 / rtt_s * (time_s / rtt_s).exp2()).min(link_bit_s)
}

/// The first rate that settled, and whether it stopped the stream.
fn watch(samples: &[Sample], early: Option<EarlyStopPolicy>) -> (Option<RateEstimate>, bool) {
    let mut rule = EarlyStopRule::new(early);
    let stopped = samples.iter().any(|sample| matches!(rule.push(sample), Decision::Stop(_)));
    (rule.proposed(), stopped)
}

fn unguarded(samples: &[Sample]) -> Option<RateEstimate> {
    let (proposed, stopped) = watch(samples, Some(EarlyStopPolicy::default()));
    assert_eq!(proposed.is_some(), stopped, "nothing stands against it");
    proposed
}

fn within(share: f64, value: f64, of: f64) -> bool {
    (value / of - 1.0).abs() <= share
}

/// Links with a rate of 1 Mbit/s to 1 Gbit/s and a round-trip time of 0.1 to 200 ms.
fn links() -> impl Strategy<Value = (f64, f64)> {
    (6.0..9.0f64, -4.0..-0.7f64).prop_map(|(rate, rtt)| (10f64.powf(rate), 10f64.powf(rtt)))
}

proptest! {
    #[test]
    fn a_steady_link_settles_early_with_the_correct_rate((link, rtt_s) in links()) {
        let samples = stream(rtt_s, 20.0, slow_start(link, rtt_s));
        let estimate = unguarded(&samples).expect("it settles");
        prop_assert!(within(0.03, estimate.rate_bit_s, link), "{estimate:?} on {link}");
        let (startup_s, rate) = after_startup(&samples).unwrap();
        prop_assert!(within(0.03, rate, link), "{rate} on {link}");
        prop_assert!(startup_s < estimate.time_s);
        prop_assert!(link * 0.5 <= slow_start(link, rtt_s)(startup_s), "{startup_s} s is in the midst of start-up");
        // The bound is slow start plus eight rounds, none longer than half a second or two round
        // trips.
        let doubling_s = rtt_s * (link * rtt_s / (10.0 * 1448.0 * 8.0)).log2().max(0.0);
        let round_s = (64.0 * 1448.0 * 8.0 / link).clamp(0.02, 0.5).max(rtt_s);
        prop_assert!(estimate.time_s <= doubling_s + 12.0 * (round_s + 2.0 * STEP_S), "{estimate:?}");
    }

    /// If the rate falls by half and recovers every few rounds, no five rounds agree. (On a slow
    /// link a round is as long as such a period, and its mean is correct.)
    #[test]
    fn a_deep_sawtooth_does_not_settle(link in 1e8..1e9f64, rounds in 3.0..8.0f64, phase in 0.0..1.0f64) {
        let period_s = rounds * 0.02;
        let start = slow_start(link, 0.02);
        let saw = move |time_s: f64| start(time_s).min(link * (0.5 + 0.5 * (time_s / period_s + phase).fract()));
        prop_assert_eq!(unguarded(&stream(0.02, FULL_S, saw)), None);
    }

    /// Stalls of three rounds, at most five rounds apart.
    #[test]
    fn a_stream_with_stalls_does_not_settle(link in 1e8..1e9f64, apart in 3.2..4.8f64, phase in 0.0..1.0f64) {
        let start = slow_start(link, 0.02);
        let stalling = move |time_s: f64| {
            let within = (time_s / ((apart + 3.0) * 0.02) + phase).fract() * (apart + 3.0);
            if within < 3.0 { 0.0 } else { start(time_s) }
        };
        prop_assert_eq!(unguarded(&stream(0.02, FULL_S, stalling)), None);
    }

    /// In any stream, an estimate outside the interval does not stop the stream, and the stream
    /// then runs to full length.
    #[test]
    fn an_estimate_outside_the_guard_interval_does_not_stop_the_stream(
        rates in prop::collection::vec(0.0..1e9f64, 1..40),
        (lower, width) in (0.0..1e9f64, 0.0..5e8f64),
    ) {
        let guard = ForecastInterval { lower_bit_s: lower, upper_bit_s: lower + width };
        let piece_s = FULL_S / rates.len() as f64;
        let rate = |time_s: f64| rates[((time_s / piece_s) as usize).min(rates.len() - 1)];
        let samples = stream(0.01, FULL_S, rate);
        let early = EarlyStopPolicy { guard: Some(guard), ..EarlyStopPolicy::default() };
        let (proposed, stopped) = watch(&samples, Some(early));
        let guard = guard.widened(0.05);
        prop_assert_eq!(stopped, proposed.is_some_and(|estimate| guard.holds(estimate.rate_bit_s)));
        if let Some(estimate) = proposed {
            prop_assert!(estimate.rate_bit_s.to_bits() == estimate.settled_bit_s.to_bits(), "nothing corrects it");
            let most = rates.iter().copied().fold(0.0, f64::max);
            prop_assert!(0.0 < estimate.settled_bit_s && estimate.settled_bit_s <= most * 1.001);
        }
        // A rule that only observes proposes the same rate and stops nothing.
        let (watched, stopped) = watch(&samples, None);
        prop_assert!(!stopped);
        prop_assert_eq!(
            watched.map(|estimate| estimate.settled_bit_s.to_bits()),
            proposed.map(|estimate| estimate.settled_bit_s.to_bits())
        );
    }

    #[test]
    fn no_samples_cause_a_panic_or_an_invalid_estimate(
        samples in prop::collection::vec((any::<f64>(), any::<u64>(), any::<f64>(), any::<bool>()), 0..200),
        rounds in any::<usize>(), variation_max in any::<f64>(),
    ) {
        let sample = |&(time_s, acked_bytes, rtt_s, app_limited): &(f64, u64, f64, bool)| Sample {
            time_s, acked_bytes, rtt_s: Some(rtt_s), min_rtt_s: None, retrans: 0, app_limited,
        };
        let samples: Vec<Sample> = samples.iter().map(sample).collect();
        let config = SettledRateConfig { rounds, variation_max };
        let early = EarlyStopPolicy { config, ..EarlyStopPolicy::default() };
        if let (Some(estimate), _) = watch(&samples, Some(early)) {
            prop_assert!(estimate.settled_bit_s > 0.0 && estimate.settled_bit_s.is_finite(), "{estimate:?}");
        }
        if let Some((_, rate)) = after_startup(&samples) {
            prop_assert!(rate >= 0.0 && rate.is_finite(), "{rate}");
        }
    }

    #[test]
    fn kept_samples_are_bounded_evenly_spaced_and_include_first_and_last(count in 0..20_000u64) {
        let mut samples = Samples::new();
        for index in 0..count {
            samples.push(Sample {
                time_s: index as f64, acked_bytes: index, rtt_s: None, min_rtt_s: None, retrans: 0, app_limited: false,
            });
        }
        let kept = samples.as_slice();
        prop_assert!(kept.len() <= Samples::KEPT_MAX && (count as usize).min(Samples::KEPT_MAX / 2) <= kept.len());
        prop_assert!(kept.first().is_none_or(|first| first.acked_bytes == 0));
        prop_assert_eq!(kept.last().map(|last| last.acked_bytes), count.checked_sub(1));
        let steps: std::collections::BTreeSet<u64> =
            kept.windows(2).rev().skip(1).map(|pair| pair[1].acked_bytes - pair[0].acked_bytes).collect();
        prop_assert!(steps.len() <= 1, "{steps:?}");
    }
}

#[test]
fn a_stream_without_arriving_data_does_not_settle() {
    assert_eq!(unguarded(&stream(0.02, FULL_S, |_| 0.0)), None);
    assert_eq!(after_startup(&stream(0.02, FULL_S, |_| 0.0)), None);
}

#[test]
fn a_clock_that_stands_still_does_not_stop_the_stream() {
    let mut samples = stream(0.02, FULL_S, slow_start(1e8, 0.02));
    for sample in &mut samples {
        sample.time_s = 0.5;
    }
    assert_eq!(unguarded(&samples), None);
    assert_eq!(after_startup(&samples), None);
}

#[test]
fn samples_limited_by_the_sender_give_no_estimate() {
    let mut samples = stream(0.02, FULL_S, slow_start(1e8, 0.02));
    assert!(unguarded(&samples).is_some());
    for sample in &mut samples {
        sample.app_limited = true;
    }
    assert_eq!(unguarded(&samples), None);
}

#[test]
fn a_growing_rate_does_not_settle_whatever_variation_is_allowed() {
    let config = SettledRateConfig { rounds: 2, variation_max: f64::INFINITY };
    let early = EarlyStopPolicy { config, ..EarlyStopPolicy::default() };
    let growing = slow_start(1e12, 0.1);
    assert_eq!(watch(&stream(0.1, 1.5, &growing), Some(early)).0, None);
    assert!(watch(&stream(0.1, 1.5, slow_start(1e8, 0.1)), Some(early)).0.is_some());
    // The rate grows in every second round, so there are never two consecutive rounds without
    // growth.
    let in_steps = |time_s: f64| 1e7 * 1.6f64.powf((time_s / 0.2).floor());
    assert_eq!(watch(&stream(0.1, 1.5, in_steps), Some(early)).0, None);
}

/// A policer passes the bytes of a token bucket at once and then limits the rate, so the rate of
/// the first second does not predict the rate of the fifth second.
#[test]
fn a_policer_misleads_the_plain_rule_but_not_the_guard_or_the_calibration() {
    let start = slow_start(1e8, 0.02);
    let policed = move |time_s: f64| start(time_s).min(if time_s < 1.2 { 1e8 } else { 1e7 });
    let samples = stream(0.02, FULL_S, policed);
    let (_, full) = after_startup(&samples).unwrap();
    let fooled = unguarded(&samples).unwrap();
    assert!(2.0 * full < fooled.rate_bit_s, "{fooled:?} of {full}");

    let guard = ForecastInterval { lower_bit_s: full * 0.8, upper_bit_s: full * 1.2 };
    let guarded = EarlyStopPolicy { guard: Some(guard), ..EarlyStopPolicy::default() };
    assert!(!watch(&samples, Some(guarded)).1, "outside the forecast it goes on");

    // Such a large correction is not a measure of the path, so the path is tested at full length.
    assert_eq!(calibrated(&samples).expected(), None);
}

/// A competing flow yields after two seconds, so the rate settles too low at first.
#[test]
fn calibration_corrects_for_a_competing_flow_that_yields_later() {
    let start = slow_start(1e8, 0.02);
    let yielding = move |time_s: f64| start(time_s).min(if time_s < 2.0 { 3e7 } else { 5e7 });
    let samples = stream(0.02, FULL_S, yielding);
    let (_, full) = after_startup(&samples).unwrap();
    let proposed = unguarded(&samples).unwrap();
    assert!(proposed.rate_bit_s < 0.75 * full);
    let expected = calibrated(&samples).expected();
    let early = EarlyStopPolicy { expected: Some(expected.unwrap()), ..EarlyStopPolicy::default() };
    let (estimate, at_s) = stops(&samples, early).unwrap();
    assert!(within(0.01, estimate.rate_bit_s, full) && at_s < 0.5, "{estimate:?} of {full} at {at_s}");
}

/// The rates that a rule records at the checkpoints of a stream that the rule may not end.
fn partials(samples: &[Sample]) -> CheckpointRates {
    let mut rule = EarlyStopRule::new(None);
    assert!(
        samples.iter().all(|sample| rule.push(sample) == Decision::Continue) && !rule.estimate_rejected()
    );
    *rule.partials()
}

/// Calibration of a path on which every test gives these samples.
fn calibrated(samples: &[Sample]) -> Calibration {
    let mut calibration = Calibration::default();
    for _ in 0..Calibration::TESTS_MIN {
        calibration.add_full(&partials(samples), after_startup(samples).unwrap().1);
    }
    calibration
}

/// The estimate that stopped the stream, and its time in seconds.
fn stops(samples: &[Sample], early: EarlyStopPolicy) -> Option<(RateEstimate, f64)> {
    let mut rule = EarlyStopRule::new(Some(early));
    samples.iter().find_map(|sample| match rule.push(sample) {
        Decision::Stop(estimate) => Some((estimate, sample.time_s)),
        Decision::Continue => None,
    })
}

#[test]
fn an_estimate_is_rejected_if_a_calibrated_path_has_changed() {
    let as_ever = stream(0.02, FULL_S, slow_start(1e8, 0.02));
    let expected = calibrated(&as_ever).expected();
    let guard = Some(ForecastInterval { lower_bit_s: 0.95e8, upper_bit_s: 1e8 });
    let early = EarlyStopPolicy { expected, guard, ..EarlyStopPolicy::default() };
    assert!(stops(&as_ever, early).is_some_and(|(_, at_s)| at_s < 0.6));
    for share in [0.5, 0.7, 1.5, 2.0] {
        let mut rule = EarlyStopRule::new(Some(early));
        let changed = stream(0.02, FULL_S, slow_start(1e8 * share, 0.02));
        assert!(changed.iter().all(|sample| rule.push(sample) == Decision::Continue), "{share}");
        assert!(rule.estimate_rejected(), "{share}");
    }
    // If the forecast's interval does not contain the rate, the stream continues for this reason
    // alone.
    let guard = Some(ForecastInterval { lower_bit_s: 2e8, upper_bit_s: 3e8 });
    assert!(stops(&as_ever, EarlyStopPolicy { guard, ..early }).is_none());
}

/// On a quiet path the forecast interval is narrower than the error of the estimate.
#[test]
fn an_interval_of_width_0_accepts_estimates_within_its_margin() {
    let samples = stream(0.02, FULL_S, slow_start(1e8, 0.02));
    let guarded = |rate: f64| {
        let guard = ForecastInterval { lower_bit_s: rate, upper_bit_s: rate };
        watch(&samples, Some(EarlyStopPolicy { guard: Some(guard), ..EarlyStopPolicy::default() })).1
    };
    assert!(guarded(0.97e8) && guarded(1.04e8));
    assert!(!guarded(0.9e8) && !guarded(1.1e8));
}

#[test]
fn an_invalid_guard_interval_contains_no_rate() {
    for (lower_bit_s, upper_bit_s) in [(f64::NAN, 1.0), (0.0, f64::NAN), (2.0, 1.0)] {
        assert!(!ForecastInterval { lower_bit_s, upper_bit_s }.holds(1.0));
    }
}

const STEP_S: f64 = 0.005;
