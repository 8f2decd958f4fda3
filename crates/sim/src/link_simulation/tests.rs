use super::*;
use crate::scenario::{AttemptLoss, BaseShift, Congestion, FloatRange, LinkLaw, Regime, Reset};

fn attempt(path: usize, reduction: usize, number: u32, at: f64) -> SimulatedAttempt {
    SimulatedAttempt { path, reduction, number, at, bytes: 65_536 }
}

fn with_law(law: ResponseTimeLaw) -> Scenario {
    Scenario { link: LinkLaw { law, ..LinkLaw::default() }, ..Scenario::default() }
}

fn response(scenario: &Scenario, attempt: SimulatedAttempt) -> f64 {
    LinkSimulation::new(scenario, 30).respond(&attempt).takes_s
}

fn many(scenario: &Scenario) -> Vec<f64> {
    let mut simulation = LinkSimulation::new(scenario, 30);
    let mut times: Vec<f64> =
        (0..60_000).map(|i| simulation.respond(&attempt(i % 60, i / 60, 0, i as f64)).takes_s).collect();
    times.sort_by(f64::total_cmp);
    times
}

fn median(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}

#[test]
fn every_response_time_law_has_median_1() {
    for law in [
        ResponseTimeLaw::Constant {},
        ResponseTimeLaw::Lognormal { sigma: 0.6, slow_share: 0.0, slow_factor: 1.0 },
        ResponseTimeLaw::Pareto { alpha: 1.1, share: 1.0, sigma: 0.0, cap_s: f64::INFINITY },
        ResponseTimeLaw::Pareto { alpha: 1.5, share: 0.4, sigma: 0.08, cap_s: 120.0 },
        ResponseTimeLaw::Trace { file: "none".into(), values: vec![0.25, 0.5, 1.0, 2.0, 9.0] },
    ] {
        let median = median(&many(&with_law(law.clone())));
        assert!((median - 1.0).abs() < 0.015, "{law:?}: {median}");
    }
}

#[test]
fn response_time_laws_have_their_tails() {
    let lognormal =
        many(&with_law(ResponseTimeLaw::Lognormal { sigma: 0.5, slow_share: 0.0, slow_factor: 1.0 }));
    let at = |share: f64, sorted: &[f64]| sorted[(share * sorted.len() as f64) as usize];
    assert!((at(0.8413, &lognormal).ln() - 0.5).abs() < 0.02, "one sigma up is 84 %");
    // P(X > x) = (x × 2^(1/alpha))^-alpha.
    let pareto = many(&with_law(ResponseTimeLaw::Pareto { alpha: 1.5, share: 1.0, sigma: 0.0, cap_s: 20.0 }));
    assert!((at(0.99, &pareto) / (100_f64 / 2.0).powf(1.0 / 1.5) - 1.0).abs() < 0.05);
    assert_eq!(pareto[pareto.len() - 1], 20.0, "the cap holds");
    let slow = many(&with_law(ResponseTimeLaw::Lognormal { sigma: 0.01, slow_share: 0.1, slow_factor: 4.0 }));
    let share = slow.iter().filter(|time| **time > 2.0).count() as f64 / slow.len() as f64;
    assert!((share - 0.1).abs() < 0.005, "{share}");
}

#[test]
fn a_trace_advances_by_one_value_with_each_reduction_and_each_retry() {
    let values = vec![0.5, 1.0, 2.0, 3.0, 4.0];
    let scenario = with_law(ResponseTimeLaw::Trace { file: "none".into(), values: values.clone() });
    let start = values.iter().position(|value| *value == response(&scenario, attempt(4, 0, 0, 0.0)));
    let start = start.expect("a response is one of the values");
    for (reduction, number) in [(1, 0), (0, 1), (3, 1), (7, 0)] {
        let expected = values[(start + reduction + number as usize) % 5];
        assert_eq!(response(&scenario, attempt(4, reduction, number, 0.0)), expected);
    }
}

#[test]
fn message_size_scales_only_the_share_that_depends_on_it() {
    let link = LinkLaw { base_s: LinkBase::Constant(2.0), size_share: 0.8, ..LinkLaw::default() };
    let scenario = Scenario { link, ..Scenario::default() };
    let of = |bytes| response(&scenario, SimulatedAttempt { bytes, ..attempt(0, 0, 0, 0.0) });
    assert_eq!(of(65_536), 2.0);
    assert!((of(1) - 0.4).abs() < 1e-3);
    assert!((of(2 * 65_536) - 3.6).abs() < 1e-9);
}

#[test]
fn message_sizes_are_drawn_from_the_list_or_the_range() {
    let list = Scenario { message_bytes: vec![10, 20], ..Scenario::default() };
    let simulation = LinkSimulation::new(&list, 30);
    let tens = (0..10_000).filter(|reduction| simulation.bytes(3, *reduction) == 10).count();
    assert!((4_800..5_200).contains(&tens), "{tens}");
    let range = Some(FloatRange { min: 4096.0, max: 2_097_152.0 });
    let range = Scenario { message_bytes_range: range, same_size_in_reduction: true, ..Scenario::default() };
    let simulation = LinkSimulation::new(&range, 30);
    let mut sizes: Vec<u64> = (0..10_000).map(|reduction| simulation.bytes(5, reduction)).collect();
    assert_eq!(simulation.bytes(5, 7), simulation.bytes(12, 7), "one size a reduction");
    sizes.sort_unstable();
    assert!(sizes[0] >= 4096 && sizes[9_999] <= 2_097_152);
    assert!((sizes[5_000] as f64 / 92_682.0 - 1.0).abs() < 0.1, "log-uniform: {}", sizes[5_000]);
}

#[test]
fn base_times_follow_their_law_and_reconnect_time_grows_with_them() {
    let link = |base_s| Scenario {
        link: LinkLaw { base_s, direction_sigma: 0.05, ..LinkLaw::default() },
        reconnect_s: 0.08,
        reconnect_factor: 0.1,
        ..Scenario::default()
    };
    let scenario = link(LinkBase::Lognormal { median: 0.62, sigma: 0.3 });
    let simulation = LinkSimulation::new(&scenario, 5_000);
    let mut bases: Vec<f64> = (0..5_000).map(|link| simulation.base_s(2 * link)).collect();
    bases.sort_by(f64::total_cmp);
    assert!((median(&bases) / 0.62 - 1.0).abs() < 0.02);
    assert!((bases[4_206].ln() - bases[2_500].ln() - 0.3).abs() < 0.02, "one sigma up is 84 %");
    let ratio: f64 = (0..5_000)
        .map(|link| (simulation.base_s(2 * link + 1) / simulation.base_s(2 * link)).ln().powi(2))
        .sum();
    assert!(((ratio / 5_000.0).sqrt() - 0.05).abs() < 0.003, "directions differ by sigma");
    assert!((simulation.reconnect_s(8) - (0.08 + 0.1 * simulation.base_s(8))).abs() < 1e-12);

    for (base, middle) in [
        (LinkBase::LogUniform(FloatRange { min: 0.25, max: 4.0 }), 1.0),
        (LinkBase::Uniform(FloatRange { min: 1.0, max: 3.0 }), 2.0),
        (LinkBase::Constant(7.0), 7.0),
    ] {
        let scenario = link(base);
        let simulation = LinkSimulation::new(&scenario, 5_000);
        let mut bases: Vec<f64> = (0..5_000).map(|link| simulation.base_s(2 * link)).collect();
        bases.sort_by(f64::total_cmp);
        assert!((median(&bases) / middle - 1.0).abs() < 0.05, "{base:?}: {}", median(&bases));
    }
}

#[test]
fn stalls_have_the_configured_frequency_and_duration() {
    for (duration_s, mean) in [
        (StallDuration::Constant { value: 3.0 }, 3.0),
        (StallDuration::Uniform { min: 1.0, max: 5.0 }, 3.0),
        (StallDuration::Exponential { mean: 3.0, max: f64::INFINITY }, 3.0),
        // alpha ÷ (alpha − 1) × min.
        (StallDuration::Pareto { alpha: 3.0, min: 2.0, max: f64::INFINITY }, 3.0),
    ] {
        let stall = Some(Stall { probability: 0.1, per_bytes: None, duration_s });
        let times = many(&Scenario { stall, ..Scenario::default() });
        let stalled: Vec<f64> = times.iter().filter(|time| **time > 1.0).map(|time| time - 1.0).collect();
        assert!((stalled.len() as f64 / times.len() as f64 - 0.1).abs() < 0.005, "{duration_s:?}");
        let found = stalled.iter().sum::<f64>() / stalled.len() as f64;
        assert!((found / mean - 1.0).abs() < 0.04, "{duration_s:?}: {found}");
    }
    let capped = StallDuration::Pareto { alpha: 1.1, min: 5.0, max: 45.0 };
    let stall = Some(Stall { probability: 1.0, per_bytes: None, duration_s: capped });
    let times = many(&Scenario { stall, ..Scenario::default() });
    assert!(times[0] >= 6.0 && times[times.len() - 1] == 46.0);
}

#[test]
fn stalls_per_byte_grow_with_the_message() {
    let stall = Stall {
        probability: 0.1,
        per_bytes: Some(65_536),
        duration_s: StallDuration::Constant { value: 1.0 },
    };
    let scenario = Scenario { stall: Some(stall), ..Scenario::default() };
    for (bytes, mean) in [(65_536, 0.1), (16 * 65_536, 1.6), (1024, 0.1 / 64.0)] {
        let mut simulation = LinkSimulation::new(&scenario, 1);
        let total: f64 = (0..50_000)
            .map(|reduction| {
                simulation.respond(&SimulatedAttempt { bytes, ..attempt(0, reduction, 0, 0.0) }).takes_s - 1.0
            })
            .sum();
        assert!((total / 50_000.0 / mean - 1.0).abs() < 0.2, "{bytes}: {}", total / 50_000.0);
    }
}

fn congested(congestion: Congestion) -> Scenario {
    Scenario { congestion: Some(congestion), ..Scenario::default() }
}

const SIXFOLD: Congestion = Congestion {
    good_s: 300.0,
    bad_s: 20.0,
    factor: 6.0,
    load_feedback: 0.0,
    load_fade_s: None,
    load_when_bad: false,
};

#[test]
fn congestion_has_its_share_of_time_and_a_retry_meets_the_same_state() {
    let scenario = congested(SIXFOLD);
    let mut simulation = LinkSimulation::new(&scenario, 30);
    let (mut bad, mut all) = (0, 0);
    for second in 0..40_000 {
        for link in 0..30 {
            let up = simulation.respond(&attempt(2 * link, second, 0, f64::from(second as u32)));
            assert_eq!(up.takes_s, if up.congested { 6.0 } else { 1.0 });
            let retry = simulation.respond(&attempt(2 * link + 1, second, 1, f64::from(second as u32)));
            assert_eq!(up.congested, retry.congested, "both directions and every try share the state");
            bad += u32::from(up.congested);
            all += 1;
        }
    }
    let share = f64::from(bad) / f64::from(all);
    assert!((share / (20.0 / 320.0) - 1.0).abs() < 0.06, "{share}");
}

#[test]
fn fast_congestion_changes_cost_bounded_memory_over_years() {
    let scenario = congested(Congestion { good_s: 3e-3, bad_s: 1e-3, ..SIXFOLD });
    let mut simulation = LinkSimulation::new(&scenario, 1);
    let mut bad_share = |step: f64| {
        let bad = (1..4000).filter(|i| simulation.is_congested(0, 1e6 * step + f64::from(*i) * step)).count();
        bad as f64 / 4000.0
    };
    for step in [0.01, 1.0, 1e6] {
        let share = bad_share(step);
        assert!((share - 0.25).abs() < 0.04, "a step of {step} s: {share}");
    }
    assert!(simulation.links[0].changes.len() <= CHANGES_MAX);
}

#[test]
fn a_cancelled_copy_slows_its_path_only_while_it_is_in_flight() {
    let scenario = congested(Congestion { good_s: f64::INFINITY, load_feedback: 0.5, ..SIXFOLD });
    let mut simulation = LinkSimulation::new(&scenario, 2);
    simulation.cancelled(0, 1.0, 10.0);
    simulation.cancelled(0, 2.0, 20.0);
    let mut at = |path, at| simulation.respond(&attempt(path, 0, 0, at)).takes_s;
    assert_eq!(at(0, 3.0), 2.25, "two copies: 1.5 × 1.5");
    assert_eq!(at(1, 3.0), 1.0, "the other direction carries none");
    assert_eq!((at(0, 10.0), at(0, 20.0)), (1.5, 1.0), "they end");
}

#[test]
fn fading_load_counts_in_the_bad_state_only_if_configured() {
    let fading = Congestion { good_s: f64::INFINITY, load_feedback: 0.5, load_fade_s: Some(60.0), ..SIXFOLD };
    let after = |scenario: &Scenario, at: f64| {
        let mut simulation = LinkSimulation::new(scenario, 1);
        simulation.cancelled(0, 0.0, 1.0);
        simulation.respond(&attempt(0, 0, 0, at))
    };
    let scenario = congested(fading);
    assert_eq!(after(&scenario, 0.0).takes_s, 1.5);
    assert!((after(&scenario, 60.0).takes_s - (1.0 + 0.5 / std::f64::consts::E)).abs() < 1e-12);
    let scenario = congested(Congestion { load_when_bad: true, ..fading });
    assert_eq!(after(&scenario, 0.0).takes_s, 1.0, "the link is never bad");
    let scenario = congested(Congestion { load_when_bad: true, good_s: 1e-3, bad_s: 1e6, ..fading });
    let bad = after(&scenario, 5.0);
    assert!(bad.congested && bad.takes_s > 8.5, "{bad:?}");
}

#[test]
fn regimes_change_the_base_time_until_the_next_one_and_shifts_for_a_range() {
    let regime = Some(Regime { every_s: 600.0, factor: FloatRange { min: 0.5, max: 3.0 } });
    let scenario = Scenario { regime, ..Scenario::default() };
    let at = |path, at| response(&scenario, attempt(path, 0, 0, at));
    assert_eq!(at(0, 599.0), 1.0, "the first regime is the base's own");
    assert_eq!(at(0, 600.0), at(1, 1199.0), "one factor for both directions until the next change");
    let factors: Vec<f64> = (1..200).map(|epoch| at(6, f64::from(epoch) * 600.0)).collect();
    assert!(factors.iter().all(|factor| (0.5..=3.0).contains(factor)));
    assert!(factors.windows(2).any(|pair| pair[1] / pair[0] > 2.0));

    let shift = |from, until, factor, every_other_link| BaseShift { from, until, factor, every_other_link };
    let shifts = vec![shift(300, 600, 4.0, true), shift(800, usize::MAX, 0.5, false)];
    let scenario = Scenario { shifts, ..Scenario::default() };
    let at = |path, reduction| response(&scenario, attempt(path, reduction, 0, 0.0));
    assert_eq!([at(0, 299), at(0, 300), at(1, 599), at(0, 600)], [1.0, 4.0, 4.0, 1.0]);
    assert_eq!([at(2, 400), at(2, 800), at(0, 5000)], [1.0, 0.5, 0.5], "every other link only");
}

#[test]
fn responses_depend_on_the_seed_and_not_on_earlier_requests() {
    let law = ResponseTimeLaw::Lognormal { sigma: 0.5, slow_share: 0.0, slow_factor: 1.0 };
    let scenario = |seed| Scenario { seed, congestion: Some(SIXFOLD), ..with_law(law.clone()) };
    let (one, other) = (scenario(1), scenario(2));
    let asked = attempt(7, 40, 1, 5_000.0);
    let mut busy = LinkSimulation::new(&one, 30);
    for i in 0..500 {
        busy.respond(&attempt(i % 60, i, 0, i as f64));
    }
    assert_eq!(busy.respond(&asked), LinkSimulation::new(&one, 30).respond(&asked));
    assert_ne!(response(&one, asked), response(&other, asked));
    assert_ne!(
        response(&one, asked),
        response(&one, SimulatedAttempt { number: 2, ..asked }),
        "a retry draws anew"
    );
}

#[test]
fn lost_and_reset_attempts_fail_and_all_other_attempts_keep_their_times() {
    let plain = with_law(ResponseTimeLaw::Lognormal { sigma: 0.3, slow_share: 0.0, slow_factor: 1.0 });
    let loss = Some(AttemptLoss { probability: 0.1, gives_up_s: 100.0 });
    let reset = Some(Reset { probability: 0.2, after_s: 1.0 });
    let spoilt = Scenario { loss, reset, ..plain.clone() };
    let (mut calm, mut rough) = (LinkSimulation::new(&plain, 1), LinkSimulation::owned(spoilt, 1));
    let (mut lost, mut cut) = (0, 0);
    for reduction in 0..10_000 {
        let asked = attempt(0, reduction, 0, reduction as f64);
        let (before, after) = (calm.respond(&asked), rough.respond(&asked));
        match (after.broken, after.takes_s) {
            (true, 100.0) => lost += 1,
            (true, took) => {
                assert_eq!(took, 1.0);
                cut += 1;
            }
            (false, _) => assert_eq!(before, after),
        }
    }
    assert!((700..=900).contains(&lost), "{lost}: a tenth, less those that are reset before");
    // Half of the responses arrive before the reset. A lost response never arrives.
    assert!((1000..=1200).contains(&cut), "{cut}");
}

#[test]
fn the_widest_law_gives_finite_times() {
    let law = ResponseTimeLaw::Pareto { alpha: 0.1, share: 1.0, sigma: 10.0, cap_s: f64::INFINITY };
    let times = many(&with_law(law));
    assert!(times.iter().all(|time| time.is_finite() && *time >= 0.0));
}
