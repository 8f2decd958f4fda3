//! Properties of each estimator.

#![expect(clippy::unwrap_used)]

use barograph_timeout::{
    Adaptive, AdaptiveConfig, Attempt, AttemptOutcome, FixedTimeout, HostStatistics, INITIAL_TIMEOUT,
    MAX_TIMEOUT, MessageAttempts, Nws, NwsEscalating, QuantileTimeout, Rfc6298, StateError, TimeoutDecision,
    TimeoutEstimator, TimeoutReason,
};
use proptest::prelude::*;
use std::time::Duration;

const S: fn(f64) -> Duration = Duration::from_secs_f64;

/// Sends a message with attempts that would take `times`, until one attempt is within its timeout.
/// Returns how many attempts were cut off.
fn send(link: &mut impl TimeoutEstimator, bytes: u64, times: &[f64]) -> u32 {
    let mut message = MessageAttempts::new(bytes, times.len() as u32);
    let (mut now, mut cut) = (Duration::ZERO, 0);
    for time in times {
        let attempt = message.attempt(now);
        let timeout = link.timeout(&attempt);
        if S(*time) <= timeout {
            link.record(&attempt, AttemptOutcome::Completed(S(*time)));
            return cut;
        }
        link.record(&attempt, AttemptOutcome::TimedOut(timeout));
        cut += 1;
        now += timeout;
        message.advance();
    }
    cut
}

fn first(bytes: u64) -> Attempt {
    MessageAttempts::new(bytes, 5).attempt(Duration::ZERO)
}

fn last(bytes: u64) -> Attempt {
    MessageAttempts::new(bytes, 1).attempt(Duration::ZERO)
}

/// Uniform numbers from a seed, so that each run of a test has the same numbers.
fn uniform(seed: u64) -> impl FnMut() -> f64 {
    let mut rng = barograph_sim::SeededRng::new(seed, 0);
    move || rng.uniform()
}

/// Lognormal number with median 1.
fn lognormal(sigma: f64, uniform: &mut impl FnMut() -> f64) -> f64 {
    let (a, b) = (1.0 - uniform(), uniform());
    (sigma * (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()).exp()
}

#[test]
fn a_fixed_timeout_does_not_change() {
    let mut link = FixedTimeout(S(2.0));
    assert_eq!(send(&mut link, 1, &[3.0, 1.0]), 1);
    assert_eq!(link.decide(&last(1)).timeout, S(2.0));
    assert_eq!(link.decide(&first(1)).reason, TimeoutReason::Fixed);
}

#[test]
fn the_papers_timeout_is_the_forecast_plus_k_deviations() {
    // Allen, Wolski, Plank 2002, §3: forecast + k·√MSE. On a constant series the error is 0. On a
    // series that alternates between 1 and 3, with forecasts near the mean 2, the MSE is about 1.
    let mut link = Nws::new(2.0);
    assert_eq!(link.timeout(&first(1)), INITIAL_TIMEOUT);
    for _ in 0..3 {
        send(&mut link, 1, &[1.5]);
    }
    assert_eq!(link.timeout(&first(1)), S(1.5));
    for i in 0..400 {
        send(&mut link, 1, &[if i % 2 == 0 { 1.0 } else { 3.0 }, 3.0]);
    }
    let decision = link.decide(&first(1));
    let (forecast, error) = (decision.forecast.unwrap(), decision.error.unwrap());
    assert!(
        (forecast.as_secs_f64() + 2.0 * error.as_secs_f64() - decision.timeout.as_secs_f64()).abs() < 1e-6
    );
    assert_eq!(decision.reason, TimeoutReason::ForecastError);
}

#[test]
fn the_papers_timeout_learns_the_elapsed_time() {
    let elapsed = |ended: AttemptOutcome, last: bool| {
        let mut link = Nws::new(0.0);
        let mut message = MessageAttempts::new(1, if last { 2 } else { 3 });
        message.advance();
        for _ in 0..3 {
            link.record(&message.attempt(S(10.0)), ended);
        }
        link.decide(&first(1)).forecast
    };
    assert_eq!(
        elapsed(AttemptOutcome::Completed(S(1.0)), false),
        Some(S(11.0)),
        "from the first attempt's start"
    );
    assert_eq!(elapsed(AttemptOutcome::TimedOut(S(2.0)), true), Some(S(12.0)), "abandoned after so long");
    assert_eq!(elapsed(AttemptOutcome::TimedOut(S(2.0)), false), None, "it goes on");
    assert_eq!(elapsed(AttemptOutcome::Failed(S(2.0)), true), None);
    assert_eq!(elapsed(AttemptOutcome::Cancelled(S(2.0)), true), None);
}

#[test]
fn the_configured_start_and_floor_are_used() {
    let mut link = Nws::new(2.0).with_start(S(7.0)).with_floor(S(1.0));
    assert_eq!(link.timeout(&first(1)), S(7.0));
    for _ in 0..9 {
        send(&mut link, 1, &[0.01]);
    }
    assert_eq!((link.timeout(&first(1)), link.decide(&first(1)).reason), (S(1.0), TimeoutReason::Floor));
}

#[test]
fn escalated_timeouts_grow_up_to_the_limit() {
    let mut link = NwsEscalating(Nws::new(2.0));
    for _ in 0..5 {
        send(&mut link, 1, &[1.0]);
    }
    let mut message = MessageAttempts::new(1, 4);
    let mut timeouts = vec![link.timeout(&message.attempt(Duration::ZERO))];
    while message.advance() {
        timeouts.push(link.timeout(&message.attempt(Duration::ZERO)));
    }
    assert_eq!(timeouts, [S(1.0), S(4.0), S(16.0), MAX_TIMEOUT]);
}

#[test]
fn quantile_timeouts_cut_off_their_share_of_first_attempts() {
    for share in [0.9, 0.99] {
        let mut link = QuantileTimeout::new(share).unwrap();
        let mut uniform = uniform(5);
        let mut cut = |messages: u32, slowness: f64| -> u32 {
            let mut time = || slowness * lognormal(0.5, &mut uniform);
            (0..messages).map(|_| send(&mut link, 1, &[time(), 1.0])).sum()
        };
        let expected = 1.0 - share;
        cut(500, 1.0);
        let steady = f64::from(cut(3000, 1.0)) / 3000.0;
        assert!((steady - expected).abs() < 0.5 * expected, "{share}: {steady}");
        // If each timeout were learned as the response time, all attempts would now be cut off.
        cut(200, 10.0);
        let slow = f64::from(cut(3000, 10.0)) / 3000.0;
        assert!((slow - expected).abs() < 0.5 * expected, "{share}: {slow} on the slow path");
    }
}

#[test]
fn quantile_timeouts_do_not_shrink_without_retries() {
    let mut link = QuantileTimeout::new(0.9).unwrap();
    let (mut uniform, mut late) = (uniform(6), 0);
    for n in 0..3000 {
        let took = S(lognormal(0.5, &mut uniform));
        let attempt = first(1);
        let timeout = link.timeout(&attempt);
        late += u32::from(1000 <= n && timeout < took);
        // Beside a late attempt, a copy wins after another second.
        let ended = match n % 2 {
            _ if took <= timeout => AttemptOutcome::Completed(took),
            0 => AttemptOutcome::TimedOut(timeout),
            _ => AttemptOutcome::Cancelled(timeout + S(1.0)),
        };
        link.record(&attempt, ended);
    }
    assert!((100..=300).contains(&late), "{late} of 2000, not 200");
}

#[test]
fn a_quantile_timeout_starts_as_configured_and_grows_from_attempt_to_attempt() {
    for share in [0.0, 0.004, 0.996, 1.0, f64::NAN] {
        assert!(QuantileTimeout::new(share).is_none(), "{share}");
    }
    let mut link = QuantileTimeout::new(0.99).unwrap().with_start(S(17.0));
    let number = |number| Attempt { number, ..first(1) };
    for n in 0..40_u32 {
        let decision = link.decide(&first(1));
        let is_learning = n <= 10;
        assert_eq!(decision.reason == TimeoutReason::Initial, is_learning, "after {n}: {decision:?}");
        assert_eq!(decision.timeout == S(17.0), is_learning, "after {n}: {decision:?}");
        link.record(&first(1), AttemptOutcome::Completed(S(1.0 + f64::from(n % 7))));
        // None of these shows what a first attempt takes.
        link.record(&number(1), AttemptOutcome::Completed(S(900.0)));
        link.record(&first(1), AttemptOutcome::Failed(S(900.0)));
        link.record(&first(1), AttemptOutcome::Cancelled(S(0.001)));
    }
    let decisions = [0, 1, 2, 4].map(|number_of| link.decide(&number(number_of)));
    let first_timeout = decisions[0].timeout;
    assert!(S(5.0) < first_timeout && first_timeout < S(20.0), "{first_timeout:?}");
    let timeouts = [first_timeout, 4 * first_timeout, 16 * first_timeout, MAX_TIMEOUT];
    assert_eq!(decisions.map(|decision| decision.timeout), timeouts);
    let probability = decisions[0].timeout_probability.unwrap();
    assert!((probability - 0.01).abs() < 1e-9, "{probability}");
    assert_eq!(decisions[1].timeout_probability, None);
    let floored = link.with_floor(S(60.0)).decide(&first(1));
    assert_eq!((floored.timeout, floored.reason), (S(60.0), TimeoutReason::Floor));
}

#[test]
fn rfc6298_timeouts_equal_those_of_the_rfc() {
    let mut link = Rfc6298::default();
    assert_eq!(link.timeout(&first(1)), S(3.0));
    link.record(&first(1), AttemptOutcome::Completed(S(1.0)));
    // §2.2: SRTT = R, RTTVAR = R/2, RTO = SRTT + 4·RTTVAR.
    assert_eq!(link.timeout(&first(1)), S(3.0));
    link.record(&first(1), AttemptOutcome::Completed(S(2.0)));
    // §2.3: RTTVAR = 3/4·0.5 + 1/4·|1 − 2| = 0.625; SRTT = 7/8·1 + 1/8·2 = 1.125.
    assert_eq!(link.timeout(&first(1)), S(1.125 + 4.0 * 0.625));
    // §5.5: the timeout doubles after each timeout that passes, until there is a new sample.
    link.record(&first(1), AttemptOutcome::TimedOut(S(1.0)));
    link.record(&first(1), AttemptOutcome::TimedOut(S(1.0)));
    assert_eq!(link.timeout(&first(1)), S(4.0 * 3.625));
    link.record(&first(1), AttemptOutcome::Failed(S(1.0)));
    assert_eq!(link.timeout(&first(1)), S(4.0 * 3.625));
    link.record(&first(1), AttemptOutcome::Completed(S(1.125)));
    assert!(link.timeout(&first(1)) < S(3.625));
    let floored = Rfc6298::default().with_floor(S(5.0));
    assert_eq!(floored.timeout(&first(1)), S(5.0));
}

#[test]
fn a_cold_link_starts_with_the_initial_timeout() {
    let link = Adaptive::default();
    let decision = link.decide(&first(1));
    assert_eq!(
        (decision.timeout, decision.reason, decision.forecast),
        (INITIAL_TIMEOUT, TimeoutReason::Initial, None)
    );
    assert_eq!(link.decide(&last(1)).reason, TimeoutReason::LastAttempt);
    assert_eq!(link.timeout(&last(1)), MAX_TIMEOUT);
}

#[test]
fn responses_with_a_light_tail_are_rarely_cut_off() {
    // A retry gains time only if the hazard rate falls as an attempt takes longer. In this test the
    // hazard rate rises, so every timeout is a false timeout.
    let (mut link, mut uniform) = (Adaptive::default(), uniform(1));
    let cut: u32 = (0..5000).map(|_| send(&mut link, 1, &[lognormal(0.12, &mut uniform), 1.0])).sum();
    assert!(cut <= 5, "{cut} of 5000");
    let decision = link.decide(&first(1));
    assert!(S(1.5) < decision.timeout, "{decision:?}");
}

#[test]
fn stalls_that_a_retry_avoids_are_cut_off_early() {
    // One attempt in twenty takes 20 s longer; the other attempts take about 1 s.
    let (mut link, mut uniform) = (Adaptive::default(), uniform(2));
    for _ in 0..500 {
        let mut time = || lognormal(0.2, &mut uniform) + if uniform() < 0.05 { 20.0 } else { 0.0 };
        send(&mut link, 1, &[time(), time(), time()]);
    }
    let decision = link.decide(&first(1));
    assert!(S(1.3) < decision.timeout && decision.timeout < S(4.0), "{decision:?}");
    assert_eq!(decision.reason, TimeoutReason::Optimal);
    assert!(decision.retry_success > Some(0.8), "{decision:?}");
    assert!(decision.timeout_probability.is_some_and(|share| (0.02..0.10).contains(&share)), "{decision:?}");
}

#[test]
fn slow_states_that_a_retry_meets_again_are_waited_for() {
    // Of every 120 messages, 20 are sent in a bad state in which responses take six times as long.
    // A retry is in the same state.
    let (mut link, mut uniform) = (Adaptive::default(), uniform(3));
    let mut cut_late = 0;
    for i in 0..6000 {
        let state = if i % 120 < 20 { 6.0 } else { 1.0 };
        let mut time = || state * lognormal(0.2, &mut uniform);
        let cut = send(&mut link, 1, &[time(), time(), time()]);
        cut_late += if i >= 1200 { cut } else { 0 };
    }
    assert!(link.decide(&first(1)).retry_success.is_some_and(|share| share < 0.6));
    // 800 of 4800 messages are slow.
    assert!(cut_late < 120, "{cut_late}");
}

#[test]
fn the_timeout_recovers_soon_after_one_outlier() {
    // Property: after one outlier of 1000 times the median, the timeout is below 10 times the
    // median within 300 messages.
    for (at, waited) in [0, 1, 5, 50, 500].into_iter().flat_map(|at| [(at, false), (at, true)]) {
        let (mut link, mut uniform) = (Adaptive::default(), uniform(4));
        for i in 0..at + 301 {
            let time = if i == at { 1000.0 } else { lognormal(0.2, &mut uniform) };
            // In one case the outlier's response is awaited; in the other case the outlier is cut
            // off.
            if waited {
                link.record(&first(1), AttemptOutcome::Completed(S(time)));
            } else {
                send(&mut link, 1, &[time, 1.0]);
            }
        }
        let timeout = link.timeout(&first(1));
        assert!(timeout < S(10.0), "outlier at {at}, waited {waited}: {timeout:?}");
    }
}

#[test]
fn the_forecast_learns_the_dependence_on_message_size() {
    let (mut link, mut uniform) = (Adaptive::default(), uniform(5));
    let time = |bytes: u64| 0.1 + bytes as f64 / 1e6;
    for _ in 0..300 {
        let bytes = (1e3 * 1e4_f64.powf(uniform())) as u64;
        send(&mut link, bytes, &[time(bytes) * lognormal(0.1, &mut uniform), 1000.0]);
    }
    for bytes in [1_000, 30_000, 1_000_000, 10_000_000] {
        let forecast = link.decide(&first(bytes)).forecast.unwrap().as_secs_f64();
        assert!((forecast / time(bytes)).ln().abs() < 0.25, "{bytes}: {forecast} for {}", time(bytes));
    }
}

#[test]
fn message_sizes_that_come_in_phases_keep_separate_forecasts() {
    // The path has a latency of 20 ms and a rate of 100 MB/s. After the first messages of a size,
    // the forecast for this size stays within a factor of three of the true time. The forecast
    // stays in this range for each order of the two sizes, even while only the other size is sent.
    let time = |bytes: u64| 0.02 + bytes as f64 / 1e8;
    for phases in [[1_000, 10_000_000], [10_000_000, 1_000], [0, 65_536], [65_536, 64]] {
        let (mut link, mut uniform) = (Adaptive::default(), uniform(9));
        let mut cut = 0;
        for round in 0..10 {
            for bytes in phases {
                for _ in 0..200 {
                    let mut time = || time(bytes) * lognormal(0.1, &mut uniform);
                    cut += send(&mut link, bytes, &[time(), time(), time(), time(), time()]);
                }
                if round > 0 {
                    for bytes in phases {
                        let forecast = link.decide(&first(bytes)).forecast.unwrap().as_secs_f64();
                        assert!(
                            (forecast / time(bytes)).ln().abs() < 1.1,
                            "{bytes} of {phases:?}: {forecast}"
                        );
                    }
                }
            }
        }
        assert!(cut < 20, "{cut} of 4000 in {phases:?}");
    }
}

#[test]
fn an_outage_during_many_requests_does_not_inflate_the_timeout() {
    // A hundred requests in progress time out together, twice. The link must not wait for hours
    // afterwards.
    let mut link = Adaptive::default();
    for _ in 0..500 {
        send(&mut link, 1, &[0.02, 1.0]);
    }
    for _ in 0..2 {
        let attempt = first(1);
        let timeout = link.timeout(&attempt);
        (0..100).for_each(|_| link.record(&attempt, AttemptOutcome::TimedOut(timeout)));
    }
    assert!(link.timeout(&first(1)) < S(25.0), "{:?}", link.decide(&first(1)));
    for _ in 0..300 {
        send(&mut link, 1, &[0.02, 1.0]);
    }
    assert!(link.timeout(&first(1)) < S(2.0), "{:?}", link.decide(&first(1)));
}

#[test]
fn last_attempts_use_no_retry_budget() {
    let mut link = Adaptive::default();
    for _ in 0..100 {
        send(&mut link, 1, &[1.0, 1.0]);
    }
    for _ in 0..50 {
        let attempt = last(1);
        link.record(&attempt, AttemptOutcome::Completed(S(100.0)));
        link.record(&attempt, AttemptOutcome::TimedOut(S(100.0)));
        link.record(&attempt, AttemptOutcome::Cancelled(S(100.0)));
    }
    assert_ne!(link.decide(&first(1)).reason, TimeoutReason::BudgetSpent);
}

#[test]
fn invalid_settings_are_harmless() {
    let config = AdaptiveConfig {
        retry_budget: f64::NAN,
        initial_timeout: Duration::ZERO,
        max_timeout: Duration::ZERO,
    };
    let mut link = Adaptive::new(&config, &HostStatistics::default());
    assert_eq!(link.timeout(&first(1)), S(0.001));
    let config = AdaptiveConfig { retry_budget: f64::NAN, ..AdaptiveConfig::default() };
    link = Adaptive::new(&config, &HostStatistics::default());
    let mut uniform = uniform(10);
    let cut: u32 =
        (0..1000).map(|_| send(&mut link, 1, &[if uniform() < 0.1 { 5.0 } else { 1.0 }, 1.0])).sum();
    assert!(cut <= 7, "{cut}");
    assert!(Attempt { number: u32::MAX, max_attempts: 3, bytes: 0, elapsed: S(0.0) }.is_last());
    assert_eq!(Nws::new(f64::NAN).with_floor(Duration::MAX).timeout(&first(1)), MAX_TIMEOUT);
}

#[test]
fn links_of_one_host_share_what_they_learn() {
    let stalls = |link: &mut Adaptive, uniform: &mut dyn FnMut() -> f64| {
        let mut draw = || {
            let mut source = &mut *uniform;
            lognormal(0.2, &mut source) + if source() < 0.05 { 20.0 } else { 0.0 }
        };
        send(link, 1, &[draw(), draw(), draw()])
    };
    let (host, mut uniform) = (HostStatistics::default(), uniform(6));
    let mut old = Adaptive::new(&AdaptiveConfig::default(), &host);
    for _ in 0..400 {
        stalls(&mut old, &mut uniform);
    }
    let mut beside = Adaptive::new(&AdaptiveConfig::default(), &host);
    let mut alone = Adaptive::default();
    for _ in 0..4 {
        send(&mut beside, 1, &[1.0]);
        send(&mut alone, 1, &[1.0]);
    }
    let (beside, alone) = (beside.decide(&first(1)), alone.decide(&first(1)));
    assert!(beside.retry_success > Some(0.8) && alone.retry_success == Some(0.5), "{beside:?} {alone:?}");
    assert_eq!(beside.reason, TimeoutReason::Optimal);
    assert!(beside.timeout < S(4.0), "{beside:?}");
}

#[test]
fn later_attempts_have_longer_timeouts_and_the_last_has_the_limit() {
    let (mut link, mut uniform) = (Adaptive::default(), uniform(7));
    for _ in 0..200 {
        send(&mut link, 1, &[lognormal(0.3, &mut uniform), 1.0]);
    }
    let mut message = MessageAttempts::new(1, 6);
    let mut before = Duration::ZERO;
    loop {
        let decision = link.decide(&message.attempt(Duration::ZERO));
        assert!(before < decision.timeout, "{decision:?}");
        before = decision.timeout;
        if !message.advance() {
            break;
        }
    }
    assert_eq!(before, MAX_TIMEOUT);
}

#[test]
fn an_external_forecast_can_start_a_link() {
    let mut link = Adaptive::default();
    link.start_from(S(0.2), S(0.05));
    let decision = link.decide(&first(1000));
    assert_eq!((decision.forecast, decision.reason), (Some(S(0.2)), TimeoutReason::ForecastError));
    assert!(S(0.4) < decision.timeout && decision.timeout < S(8.0), "{decision:?}");
    // An uncertain forecast gives a longer timeout.
    let mut unsure = Adaptive::default();
    unsure.start_from(S(0.2), S(5.0));
    assert!(decision.timeout < unsure.timeout(&first(1000)));
    // Now the link's own responses determine the timeout.
    for _ in 0..20 {
        send(&mut link, 1000, &[1.0, 1.0]);
    }
    link.start_from(S(50.0), S(1.0));
    let forecast = link.decide(&first(1000)).forecast.unwrap();
    assert!(S(0.8) < forecast && forecast < S(1.2), "{forecast:?}");
}

#[test]
fn an_unnecessary_copy_reduces_budget_and_estimated_retry_success() {
    let mut trusting = Adaptive::default();
    for _ in 0..50 {
        send(&mut trusting, 1, &[1.0]);
    }
    let before = trusting.decide(&first(1)).retry_success;
    let mut message = MessageAttempts::new(1, 2);
    let original = message.attempt(Duration::ZERO);
    message.advance();
    for _ in 0..5 {
        // The response to the original arrives long after its timeout, but before the response to
        // the copy.
        trusting.record(&original, AttemptOutcome::Hedged(S(29.0)));
        let copy = message.attempt(S(30.0));
        trusting.record(&copy, AttemptOutcome::Cancelled(S(200.0)));
        trusting.record(&original, AttemptOutcome::Completed(S(230.0)));
    }
    let decision = trusting.decide(&first(1));
    assert!(decision.retry_success.is_some() && decision.retry_success < before, "{decision:?}");
    assert_eq!(decision.reason, TimeoutReason::BudgetSpent);
}

#[test]
fn a_battery_can_provide_the_forecast() {
    // The values alternate. The mean of logarithms forecasts the middle; a battery with
    // differencing or lags may do better. Both forecasts stay near the values.
    let mut link = Adaptive::default().with_battery(&barograph_forecast::BatteryConfig::default());
    for i in 0..200 {
        send(&mut link, 1, &[if i % 2 == 0 { 1.0 } else { 1.2 }, 1.0]);
    }
    let forecast = link.decide(&first(1)).forecast.unwrap();
    assert!(S(0.95) < forecast && forecast < S(1.25), "{forecast:?}");
    assert!(link.size_bytes() > 4096 && Adaptive::default().size_bytes() <= 4096);
}

#[test]
fn a_saved_link_loads_with_the_same_state() {
    let (mut link, mut uniform) = (Adaptive::default(), uniform(8));
    link.record_connect(S(0.3));
    for _ in 0..300 {
        let bytes = (uniform() * 1e5) as u64;
        send(&mut link, bytes, &[(0.5 + bytes as f64 / 1e5) * lognormal(0.2, &mut uniform), 2.0]);
    }
    let loaded =
        Adaptive::load(&link.save(), &AdaptiveConfig::default(), &HostStatistics::default()).unwrap();
    assert_eq!(loaded.save(), link.save());
    // After loading, the timeout is fitted again with the counts of a host that has learned less.
    // So the timeouts may differ.
    for bytes in [1, 50_000, 1_000_000] {
        let (old, new) = (link.decide(&first(bytes)), loaded.decide(&first(bytes)));
        let ratio = |f: fn(&TimeoutDecision) -> Duration| f(&new).as_secs_f64() / f(&old).as_secs_f64();
        assert!((ratio(|decision| decision.forecast.unwrap()) - 1.0).abs() < 1e-6);
        assert!((ratio(|decision| decision.error.unwrap()) - 1.0).abs() < 1e-6);
        assert!((0.6..1.7).contains(&ratio(|decision| decision.timeout)), "{old:?} {new:?}");
    }
    // From now on, both links learn the same from a response.
    let mut both = [link, loaded];
    for link in &mut both {
        send(link, 30_000, &[3.0, 3.0, 3.0]);
    }
    let [old, new] = both.map(|link| link.decide(&first(1_000_000)).forecast.unwrap().as_secs_f64());
    assert!((new / old - 1.0).abs() < 0.05, "{old} {new}");
    // A link without responses has no responses after saving and loading either.
    let empty =
        Adaptive::load(&Adaptive::default().save(), &AdaptiveConfig::default(), &HostStatistics::default())
            .unwrap();
    assert_eq!(empty.decide(&first(1)).reason, TimeoutReason::Initial);
    let host = HostStatistics::default();
    let mut taught = Adaptive::new(&AdaptiveConfig::default(), &host);
    for _ in 0..100 {
        send(&mut taught, 1, &[1.0, 1.0]);
    }
    assert_eq!(HostStatistics::load(&host.save()).unwrap().save(), host.save());
}

#[test]
fn damaged_states_are_rejected() {
    let saved = Adaptive::default().save();
    let load = |bytes: &[u8]| {
        Adaptive::load(bytes, &AdaptiveConfig::default(), &HostStatistics::default()).map(|_| ())
    };
    assert_eq!(load(b""), Err(StateError::Unknown));
    assert_eq!(load(b"hello"), Err(StateError::Unknown));
    assert_eq!(load(&HostStatistics::default().save()), Err(StateError::Unknown), "another kind");
    assert_eq!(load(&saved[..saved.len() - 1]), Err(StateError::Length(saved.len() - 1)));
    assert_eq!(load(&[saved.as_slice(), b"x"].concat()), Err(StateError::Length(saved.len() + 1)));
    let mut newer = saved.clone();
    newer[2] = 9;
    assert_eq!(load(&newer), Err(StateError::Version(9)));
    let mut nan = saved.clone();
    nan[12..20].copy_from_slice(&f64::NAN.to_le_bytes());
    assert_eq!(load(&nan), Err(StateError::Number(12)));
    assert!(load(&nan).unwrap_err().to_string().contains("byte 12"));
}

/// Strategy for the end of an attempt: any kind of end, after any time.
fn ended() -> impl Strategy<Value = AttemptOutcome> {
    let time = prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::from_nanos(1)),
        Just(Duration::MAX),
        (0.0..100.0).prop_map(Duration::from_secs_f64),
    ];
    (0..4_u8, time).prop_map(|(kind, time)| match kind {
        0 => AttemptOutcome::Completed(time),
        1 => AttemptOutcome::TimedOut(time),
        2 => AttemptOutcome::Cancelled(time),
        _ => AttemptOutcome::Failed(time),
    })
}

proptest! {
    /// After any history, a timeout is positive and within the limit, and the values of the
    /// decision are in their ranges.
    #[test]
    fn timeouts_are_positive_and_limited_after_any_history(
        history in prop::collection::vec((ended(), 0..6_u32, any::<u64>(), any::<u32>()), 0..300)
    ) {
        let links: [Box<dyn TimeoutEstimator>; 5] = [
            Box::new(Adaptive::default()),
            Box::new(Nws::new(2.0)),
            Box::new(NwsEscalating(Nws::new(1.0))),
            Box::new(QuantileTimeout::new(0.9).unwrap()),
            Box::new(Rfc6298::default()),
        ];
        for mut link in links {
            for (ended, number, bytes, elapsed) in &history {
                let elapsed = Duration::from_secs(u64::from(*elapsed));
                let attempt = Attempt { bytes: *bytes, number: *number, max_attempts: 4, elapsed };
                let decision = link.decide(&attempt);
                prop_assert!(Duration::ZERO < decision.timeout && decision.timeout <= MAX_TIMEOUT);
                prop_assert_eq!(decision.timeout, link.timeout(&attempt));
                for share in [decision.retry_success, decision.timeout_probability] {
                    prop_assert!(share.is_none_or(|share| (0.0..=1.0).contains(&share)));
                }
                link.record(&attempt, *ended);
                link.record_connect(elapsed);
            }
        }
    }

    /// The budget is not exceeded for any series of response times from 0.01 to 50 s.
    #[test]
    fn no_series_of_response_times_exceeds_the_retry_budget(
        budget in 0.0..0.5_f64,
        times in prop::collection::vec(prop_oneof![4 => 0.5..2.0_f64, 1 => 0.01..50.0_f64], 1..800),
    ) {
        let mut link = Adaptive::new(&AdaptiveConfig { retry_budget: budget, ..AdaptiveConfig::default() }, &HostStatistics::default());
        let cut: u32 = times.windows(2).map(|pair| send(&mut link, 1, pair).min(1)).sum();
        // The budget has three timeouts at the start, and its debt is at most four timeouts.
        let most = 7.0 + budget * times.len() as f64;
        prop_assert!(f64::from(cut) <= most, "{cut} of {} with a budget of {budget}", times.len());
    }

    /// Damage to a saved state is detected or harmless.
    #[test]
    fn timeouts_are_positive_and_limited_after_loading_damaged_states(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut link = Adaptive::default();
        for i in 0..50 {
            send(&mut link, i, &[1.0, 1.0]);
        }
        let mut saved = link.save();
        let at = at.index(saved.len());
        saved[at] = byte;
        if let Ok(mut link) = Adaptive::load(&saved, &AdaptiveConfig::default(), &HostStatistics::default()) {
            for _ in 0..20 {
                let timeout = link.timeout(&first(10));
                prop_assert!(Duration::ZERO < timeout && timeout <= MAX_TIMEOUT);
                send(&mut link, 10, &[1.0, 1.0]);
            }
        }
    }
}
