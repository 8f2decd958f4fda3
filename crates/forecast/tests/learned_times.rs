//! Laws of the times of transfers that are learned from a series of rates.

mod common;

use barograph_forecast::{
    Forecaster, ForecasterConfig, GoodputForecast, Horizon, HorizonConfig, HorizonOf, Objective,
    QUANTILE_SHARES, transfer_interval_shares,
};
use common::noise_of;
use proptest::prelude::*;

fn forecaster() -> Forecaster {
    let horizons = [30.0, 300.0].map(|s| HorizonConfig::sampled(Horizon::Seconds(s))).to_vec();
    let config = ForecasterConfig { horizons, transfers: true, ..ForecasterConfig::default() };
    Forecaster::new(&config).expect("valid horizons")
}

/// A rate around 10 with a logarithm that reverts to its mean over 20 values, a value a second. The
/// size of its changes is multiplied by `calm` in every second block of 200 values.
fn wandering(seed: u64, count: usize, calm: f64) -> Vec<f64> {
    let (mut noise, mut level) = (noise_of(seed), 0.0_f64);
    let next = |n: usize| {
        let scale = if (n / 200).is_multiple_of(2) { 1.0 } else { calm };
        level = 0.95 * level + 0.3 * scale * noise();
        10.0 * level.exp()
    };
    (0..count).map(next).collect()
}

/// Values around 20 for a while, then zeros for a while.
fn interrupted(seed: u64, count: usize) -> Vec<f64> {
    let (mut noise, mut is_on) = (noise_of(seed), true);
    let next = |_| {
        is_on ^= noise() > if is_on { 0.95 } else { 0.8 };
        if is_on { 20.0 + 5.0 * noise() } else { 0.0 }
    };
    (0..count).map(next).collect()
}

/// Seconds in which a series with a value a second moves `amount` after the value `from`.
fn real_time(values: &[f64], from: usize, amount: f64) -> Option<f64> {
    let (mut left, mut time_s) = (amount, 0.0);
    for value in &values[from + 1..] {
        if left <= *value {
            return Some(time_s + left / value);
        }
        left -= value;
        time_s += 1.0;
    }
    None
}

/// Calls `visit` with the forecaster and the number of the value, after each value.
fn replay(values: &[f64], mut visit: impl FnMut(&Forecaster, usize)) {
    let mut forecaster = forecaster();
    for (n, value) in values.iter().enumerate() {
        forecaster.update_at(*value, n as f64).expect("within range");
        visit(&forecaster, n);
    }
}

fn interval(forecaster: &Forecaster, amount: f64, now_s: f64) -> Option<[f64; 2]> {
    let [early, late] = transfer_interval_shares(0.9);
    let end = |share| forecaster.transfer_time(amount, share, now_s);
    Some([end(early)?, end(late)?])
}

/// Share of the real times of transfers of `amount` that are inside the interval at 90 %.
fn hits(values: &[f64], amount: f64) -> f64 {
    let (mut inside, mut all) = (0, 0);
    replay(values, |forecaster, n| {
        let Some(real) = real_time(values, n, amount).filter(|_| 600 <= n) else { return };
        let [low, high] = interval(forecaster, amount, n as f64).expect("calibrated");
        inside += u32::from((low..=high).contains(&real));
        all += 1;
    });
    f64::from(inside) / f64::from(all)
}

#[test]
fn nine_of_ten_transfers_end_within_the_interval_at_each_size() {
    for (series, values) in [("wandering", wandering(3, 6000, 0.3)), ("interrupted", interrupted(5, 6000))] {
        for amount in [3.0, 40.0, 300.0] {
            let hits = hits(&values, amount);
            assert!((0.87..=0.93).contains(&hits), "{series}, {amount}: {hits}");
        }
    }
}

/// Calls `visit` after each test, with the forecaster, the time of the test, and its number.
fn replay_tests(rates: &[f64], times_s: &[f64], mut visit: impl FnMut(&Forecaster, f64, usize)) {
    let horizons = [60.0, 900.0, 3600.0].map(|s| HorizonConfig::sampled(Horizon::Seconds(s))).to_vec();
    let config = ForecasterConfig { horizons, transfers: true, ..ForecasterConfig::default() };
    let mut forecaster = Forecaster::new(&config).expect("valid horizons");
    for (n, (rate, time_s)) in rates.iter().zip(times_s).enumerate() {
        forecaster.update_at(*rate, *time_s).expect("within range");
        visit(&forecaster, *time_s, n);
    }
}

/// A test every 5 to 25 minutes: a transfer of seconds has the rate of the next test.
#[test]
fn the_interval_of_a_short_transfer_includes_the_spread_of_single_tests() {
    let (mut noise, mut now_s) = (noise_of(3), 0.0);
    let tests: Vec<_> = (0..4000)
        .map(|_| {
            now_s += 900.0 + 600.0 * noise();
            (1e8 * (0.5 * noise()).exp(), now_s)
        })
        .collect();
    let (rates, times_s): (Vec<f64>, Vec<f64>) = tests.into_iter().unzip();
    for bits in [8e5, 8e7, 8e9] {
        let (mut inside, mut all) = (0, 0);
        replay_tests(&rates, &times_s, |forecaster, now_s, n| {
            let Some(next) = rates.get(n + 1).filter(|_| 100 <= n) else { return };
            let [low, high] = interval(forecaster, bits, now_s).expect("calibrated");
            inside += u32::from((low..=high).contains(&(bits / next)));
            all += 1;
        });
        let share = f64::from(inside) / f64::from(all);
        assert!((0.88..=0.92).contains(&share), "{bits}: {share}");
    }
}

#[test]
fn a_rate_that_fell_is_noticed_within_five_tests() {
    for fallen in [0.1, 0.03] {
        let mut noise = noise_of(3);
        let rates: Vec<f64> =
            (0..620).map(|n| 1e8 * (1.0 + 0.2 * noise()) * if n < 600 { 1.0 } else { fallen }).collect();
        let times_s: Vec<f64> = (0..620).map(|n| 600.0 * f64::from(n)).collect();
        replay_tests(&rates, &times_s, |forecaster, now_s, n| {
            if 604 <= n {
                let time_s = forecaster.transfer_time(1e8 * fallen, 0.5, now_s).expect("calibrated");
                assert!((0.6..1.7).contains(&time_s), "{fallen}, {n}: {time_s}");
            }
        });
    }
}

/// The value after three days without one says what the rate is, not what it was for three days.
#[test]
fn a_low_value_after_a_long_gap_hardly_delays_a_long_transfer() {
    let mut noise = noise_of(3);
    let rates: Vec<f64> =
        (0..650).map(|n| if n == 600 { 1e7 } else { 1e8 * (1.0 + 0.2 * noise()) }).collect();
    let times_s: Vec<f64> =
        (0..650).map(|n| 600.0 * f64::from(n) + if n < 600 { 0.0 } else { 3.0 * 86_400.0 }).collect();
    replay_tests(&rates, &times_s, |forecaster, now_s, n| {
        if 600 <= n {
            // A hundred times 600 s at the usual rate.
            let [low, high] = interval(forecaster, 6e12, now_s).expect("calibrated");
            assert!(54_000.0 < low && high < 66_000.0, "{n}: {low} to {high}");
        }
    });
}

#[test]
fn a_calm_time_has_a_narrower_interval() {
    let values = wandering(11, 6000, 0.1);
    let mut widths = [Vec::new(), Vec::new()];
    replay(&values, |forecaster, n| {
        // The second half of each block: the state is known.
        if n < 1000 || n % 200 < 100 {
            return;
        }
        let [low, high] = interval(forecaster, 50.0, n as f64).expect("calibrated");
        widths[n / 200 % 2].push((high / low).ln());
    });
    let [wild, calm] = widths.map(|widths| widths.iter().sum::<f64>() / widths.len() as f64);
    assert!(calm < 0.6 * wild, "{calm} {wild}");
}

/// With a rate that reverts to its mean, 1000 values take nearly the same time from each state.
#[test]
fn a_long_transfer_has_the_average_rate() {
    let values = wandering(3, 6000, 1.0);
    let average = values.iter().sum::<f64>() / values.len() as f64;
    replay(&values, |forecaster, n| {
        if 5000 <= n && n % 50 == 0 {
            let time_s = forecaster.transfer_time(1000.0 * average, 0.5, n as f64).expect("calibrated");
            assert!((time_s / 1000.0).ln().abs() < 0.3, "{n}: {time_s}");
        }
    });
}

#[test]
fn a_rate_is_the_inverse_of_a_time() {
    replay(&wandering(3, 1500, 1.0), |forecaster, n| {
        if n < 100 || n % 100 != 0 {
            return;
        }
        let now_s = n as f64;
        for share in QUANTILE_SHARES {
            for horizon_s in [0.1, 3.0, 70.0, 1e5] {
                let rate = forecaster.transfer_rate(share, now_s, horizon_s).expect("calibrated");
                let time_s = forecaster.transfer_time(rate * horizon_s, 1.0 - share, now_s);
                let error = time_s.expect("calibrated") / horizon_s - 1.0;
                assert!(error.abs() < 1e-6, "{n}, {share}, {horizon_s}: {error}");
            }
            let next = forecaster.transfer_rate(share, now_s, 0.0);
            assert_eq!(next, forecaster.transfer_rate(share, now_s, 1e-9), "{n}, {share}");
        }
    });
}

#[test]
fn a_goodput_forecast_uses_the_learned_times_until_the_newest_value_is_old() {
    replay(&interrupted(5, 1000), |forecaster, n| {
        if n < 999 {
            return;
        }
        let at = |now_s| GoodputForecast { forecaster, now_s, test: None, least_bit_s: None };
        let learned = forecaster.transfer_rate(0.5, 999.0, 30.0);
        assert!(learned.is_some());
        assert_eq!(at(1000.0).rate_bit_s(0.5, 30.0), learned);
        assert_eq!(forecaster.transfer_rate(0.5, 1001.0, 30.0), None, "two periods old");
        let aged = forecaster.quantile_ahead(0.5, 1001.0, 30.0).filter(|rate| 0.0 < *rate);
        assert_eq!(at(1001.0).rate_bit_s(0.5, 30.0), aged);
    });
}

#[test]
fn without_movement_or_times_there_is_no_time() {
    let mut still = forecaster();
    let mut untimed = forecaster();
    for n in 0..100 {
        still.update_at(0.0, f64::from(n)).expect("within range");
        untimed.update(5.0).expect("within range");
    }
    assert_eq!(still.transfer_time(1.0, 0.5, 99.0), None);
    assert_eq!(untimed.transfer_time(1.0, 0.5, 99.0), None);
    let mut moving = Forecaster::new(&ForecasterConfig::default()).expect("valid");
    (0..100).for_each(|n| moving.update_at(5.0, f64::from(n)).expect("within range"));
    assert_eq!(moving.transfer_time(1.0, 0.5, 99.0), None, "it was not asked to learn");
}

#[test]
fn learning_transfers_changes_no_other_forecast_and_needs_bounded_memory() {
    let horizons = vec![HorizonConfig::sampled(Horizon::Seconds(30.0))];
    let config = ForecasterConfig { horizons, ..ForecasterConfig::default() };
    let new = |config| Forecaster::new(&config).expect("valid");
    let (mut without, mut with) = (new(config.clone()), new(ForecasterConfig { transfers: true, ..config }));
    for (n, value) in wandering(9, 20_000, 1.0).into_iter().enumerate() {
        // Rates fall and rise by factors of a million.
        let value = value * 10f64.powi([0, 6, 0, -6][n / 2500 % 4]);
        for forecaster in [&mut without, &mut with] {
            forecaster.update_at(value, n as f64).expect("within range");
        }
    }
    let over = |forecaster: &Forecaster| {
        forecaster.forecast_over(Horizon::Seconds(30.0), HorizonOf::Mean, Objective::Absolute)
    };
    assert_eq!(over(&without), over(&with));
    let bytes = with.size_bytes() - without.size_bytes();
    assert!(bytes < 600_000, "{bytes}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever the values and their times are, also if the clock is set back.
    #[test]
    fn a_time_is_finite_and_grows_with_amount_and_share(
        values in prop::collection::vec((prop_oneof![Just(0.0), 0.0..1.0f64, 0.0..1e12f64], -1.0..20.0f64), 0..300),
        amounts in prop::collection::vec(-10.0..20.0f64, 2..5),
    ) {
        let (mut forecaster, mut time_s) = (forecaster(), 0.0);
        let mut amounts: Vec<f64> = amounts.into_iter().map(|power| 10f64.powf(power)).collect();
        amounts.sort_by(f64::total_cmp);
        for (value, elapsed) in values {
            time_s += elapsed;
            forecaster.update_at(value, time_s).expect("within range");
            let shares = QUANTILE_SHARES.map(|share| {
                amounts.iter().map(|amount| forecaster.transfer_time(*amount, share, time_s)).collect::<Vec<_>>()
            });
            let is_known = shares[0][0].is_some();
            for times in &shares {
                prop_assert!(times.iter().all(|time| time.is_some() == is_known), "{:?}", times);
                prop_assert!(times.is_sorted(), "{:?}", times);
                prop_assert!(times.iter().flatten().all(|time| time.is_finite() && 0.0 < *time), "{:?}", times);
            }
            for pair in shares.windows(2) {
                prop_assert!(pair[0].iter().zip(&pair[1]).all(|(low, high)| low <= high), "{:?}", pair);
            }
        }
    }
}
