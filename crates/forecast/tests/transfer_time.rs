//! Laws of the time that a transfer takes, and of its forecast.

mod common;

use barograph_forecast::{
    Forecaster, ForecasterConfig, GoodputForecast, Horizon, HorizonConfig, INITIAL_WINDOW_BYTES, Interval,
    QuantileMethod, SettledRate, TransferForecast, TransferModel, TransferPath,
};
use common::noise;
use proptest::prelude::*;

/// A rounding error of sums of up to a hundred numbers.
const SAME: f64 = 1e-12;

fn time_s(bytes: u64, rate_bit_s: f64, rtt_s: f64, share: f64) -> f64 {
    TransferModel::TCP.time_s(bytes, TransferPath { rate_bit_s, rtt_s }, share).expect("valid")
}

/// A series around `level`, with a relative noise up to `spread` on each side, a value every
/// `period_s` seconds from 0 on.
fn series(level: f64, spread: f64, period_s: f64, count: u32) -> Forecaster {
    let config = ForecasterConfig {
        horizons: [60.0, 300.0, 3600.0].map(|s| HorizonConfig::sampled(Horizon::Seconds(s))).to_vec(),
        quantiles: Some(QuantileMethod::Tracked),
        ..ForecasterConfig::default()
    };
    let mut forecaster = Forecaster::new(&config).expect("valid horizons");
    let mut noise = noise();
    for n in 0..count {
        let value = level * (1.0 + spread * noise());
        forecaster.update_at(value, period_s * f64::from(n)).expect("within range");
    }
    forecaster
}

fn forecast<'a>(goodput: &'a Forecaster, rtt: &'a Forecaster, now_s: f64) -> TransferForecast<'a> {
    let goodput = GoodputForecast { forecaster: goodput, now_s, test: None, least_bit_s: None };
    TransferForecast { model: TransferModel::TCP, goodput, rtt }
}

#[test]
fn a_transfer_within_the_initial_window_takes_its_round_trips_and_its_sending() {
    assert_eq!(time_s(INITIAL_WINDOW_BYTES, f64::INFINITY, 0.1, 0.5), 0.2);
    assert!((time_s(10_000, 8e6, 0.1, 0.5) - 0.21).abs() < SAME);
    assert!((time_s(INITIAL_WINDOW_BYTES + 1, f64::INFINITY, 0.1, 0.5) - 0.3).abs() < SAME);
    let tls = TransferModel::TLS.time_s(1, TransferPath { rate_bit_s: 8e6, rtt_s: 0.1 }, 0.5);
    assert!((tls.expect("valid") - 0.300_001).abs() < SAME);
}

/// Windows of 14 480, 28 960, … bytes: 2⁶ − 1 of them are 912 240 bytes, after six round trips.
#[test]
fn the_window_doubles_until_it_fills_the_path() {
    let (rtt_s, rate) = (0.16, 1e9);
    let slow_start = |bytes: u64| time_s(bytes, rate, rtt_s, 0.5) / rtt_s;
    assert!((slow_start(912_240) - 7.0).abs() < 0.03, "{}", slow_start(912_240));
    assert!((slow_start(912_241) - 8.0).abs() < 0.03, "{}", slow_start(912_241));
    // 20 Mbit/s and 160 ms hold 400 kB: 463 kB fill them after five round trips with 449 kB.
    let long = time_s(100_000_000, 20e6, rtt_s, 0.5);
    let expected = 7.0 * rtt_s + 8.0 * (100_000_000.0 - 31.0 * 14_480.0) / 20e6;
    assert!((long - expected).abs() < 1e-9, "{long} {expected}");
}

#[test]
fn invalid_paths_and_shares_have_no_time() {
    for (rate_bit_s, rtt_s, share) in [
        (0.0, 0.1, 0.5),
        (-1.0, 0.1, 0.5),
        (f64::NAN, 0.1, 0.5),
        (1e6, 0.0, 0.5),
        (1e6, f64::NAN, 0.5),
        (1e6, f64::INFINITY, 0.5),
        (1e6, 0.1, 0.0),
        (1e6, 0.1, f64::NAN),
    ] {
        let path = TransferPath { rate_bit_s, rtt_s };
        assert_eq!(TransferModel::TCP.time_s(1000, path, share), None, "{path:?} {share}");
        assert_eq!(TransferModel::TCP.time_over(1000, rtt_s, share, |_| Some(rate_bit_s)), None, "{path:?}");
    }
    for (bytes, goodput, rtt_s) in [(0, 1e6, 0.1), (1, 0.0, 0.1), (1, f64::INFINITY, 0.1), (1, 1e6, f64::NAN)]
    {
        assert_eq!(SettledRate::of_test(bytes, goodput, rtt_s), None, "{bytes} {goodput} {rtt_s}");
    }
}

proptest! {
    #[test]
    fn the_time_is_monotone_in_each_number(
        bytes in 1..1_000_000_000_000_u64, more in 0..1_000_000_000_u64, rate in 3.0..11.0f64,
        faster in 0.0..2.0f64, rtt in -5.0..1.0f64, longer in 0.0..2.0f64, share in 0.005..0.995f64,
    ) {
        let (rate_bit_s, rtt_s) = (10f64.powf(rate), 10f64.powf(rtt));
        let time = time_s(bytes, rate_bit_s, rtt_s, share);
        prop_assert!(time.is_finite() && 2.0 * rtt_s <= time);
        prop_assert!(time <= time_s(bytes + more, rate_bit_s, rtt_s, share));
        prop_assert!(time_s(bytes, rate_bit_s * 10f64.powf(faster), rtt_s, share) <= time * (1.0 + SAME));
        prop_assert!(time <= time_s(bytes, rate_bit_s, rtt_s * 10f64.powf(longer), share) * (1.0 + SAME));
        prop_assert!(time <= time_s(bytes, rate_bit_s, rtt_s, 0.995) * (1.0 + SAME));
        prop_assert!(time_s(bytes, rate_bit_s, rtt_s, 0.005) <= time * (1.0 + SAME));
    }

    /// A test of that size then takes as long as it took: slow start counts once.
    #[test]
    fn the_rate_after_slow_start_gives_the_goodput_of_the_test_again(
        bytes in 1..1_000_000_000_u64, rate in 4.0..10.0f64, rtt in -4.0..0.0f64,
    ) {
        let (rate_bit_s, rtt_s) = (10f64.powf(rate), 10f64.powf(rtt));
        let content_s = time_s(bytes, rate_bit_s, rtt_s, 0.5) - 2.0 * rtt_s;
        let goodput = 8.0 * bytes as f64 / content_s;
        prop_assume!(goodput.is_finite() && 1e-6 * rtt_s < content_s);
        let settled = SettledRate::of_test(bytes, goodput, rtt_s).expect("valid");
        prop_assert!(goodput <= settled.rate_bit_s && settled.rate_bit_s <= rate_bit_s * (1.0 + 1e-6));
        prop_assert!(settled.is_lower_bound || settled.rate_bit_s >= rate_bit_s * (1.0 - 1e-6));
        let again = time_s(bytes, settled.rate_bit_s, rtt_s, 0.5) - 2.0 * rtt_s;
        prop_assert!(content_s * (1.0 - 1e-6) <= again && again <= content_s + rtt_s, "{} {}", again, content_s);
    }

    /// The time ends within the horizon of its rate, whatever the rates further ahead are.
    #[test]
    fn a_time_over_its_own_duration_is_found_or_refused_and_grows_with_the_bytes(
        rates in prop::collection::vec(-2.0..11.0f64, 1..30), bytes in 1..1_000_000_000_000_u64,
        more in 0..1_000_000_000_000_u64, rtt_s in 1e-5..1.0f64,
    ) {
        let rate_over = |horizon_s: f64| {
            let index = horizon_s.log2().round() as usize;
            Some(10f64.powf(rates[index % rates.len()]))
        };
        let over = |bytes| TransferModel::TCP.time_over(bytes, rtt_s, 0.5, rate_over);
        let (time, later) = (over(bytes), over(bytes + more));
        if let Some(time) = time {
            let horizon_s = time.max(1.0).log2().ceil().exp2();
            let rates = [horizon_s, 2.0 * horizon_s].map(|horizon_s| rate_over(horizon_s).expect("always"));
            let ends = rates.map(|rate| time_s(bytes, rate, rtt_s, 0.5));
            prop_assert!(ends.iter().any(|end| *end <= time), "{time} {ends:?}");
            prop_assert!(later.is_none_or(|later| time <= later));
        } else {
            let slowest = time_s(bytes, rate_over(Horizon::SECONDS_MAX).expect("always"), rtt_s, 0.5);
            prop_assert!(Horizon::SECONDS_MAX < slowest && later.is_none());
        }
    }

    #[test]
    fn a_forecast_is_positive_and_grows_with_the_bytes_and_the_share(
        spread in 0.0..1.0f64, count in 1..60_u32, age_s in 0.0..1e7f64, bytes in 1..1_000_000_000_u64,
        more in 0..1_000_000_000_u64,
    ) {
        let (goodput, rtt) = (series(50e6, spread, 30.0, count), series(0.05, 0.2 * spread, 10.0, 60));
        let transfer = forecast(&goodput, &rtt, 590.0 + age_s);
        let shares = [0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99];
        let times = shares.map(|share| transfer.quantile(bytes, share));
        let longer = shares.map(|share| transfer.quantile(bytes + more, share));
        prop_assert!(times[3].is_some());
        let is_calibrated = goodput.interval_aged(0.9, 590.0 + age_s).is_some();
        prop_assert_eq!(is_calibrated, times.iter().all(Option::is_some), "{:?}", times);
        prop_assert!(times.iter().flatten().all(|time| time.is_finite() && 0.0 < *time));
        prop_assert!(times.iter().flatten().is_sorted(), "{times:?}");
        prop_assert!(times.iter().zip(longer).all(|(time, longer)| *time <= longer), "{times:?} {longer:?}");
    }
}

/// Bytes, and times (s) that Linux 6.18 took for them over an emulated link of 50 Mbit/s (48 Mbit/s
/// of payload) and a round trip of 160.5 ms: the least and the largest of five (10 MB: of two) with
/// CUBIC, and of as many with BBR.
const MEASURED: [(u64, [f64; 4]); 5] = [
    (10_000, [0.3230, 0.3320, 0.3223, 0.3315]),
    (100_000, [0.6520, 0.6640, 0.8157, 0.8270]),
    (102_400, [0.8030, 0.8116, 0.8212, 0.8260]),
    (1_000_000, [1.3000, 1.3658, 1.3541, 1.3859]),
    (10_000_000, [2.9110, 2.9447, 3.0948, 3.1381]),
];

#[test]
fn measured_times_are_between_the_early_and_the_late_time() {
    for (bytes, measured) in MEASURED {
        let [early, late] = [0.05, 0.95].map(|share| time_s(bytes, 48e6, 0.1605, share));
        // Half a percent: the round trip was not known more precisely.
        let is_inside = |time: &f64| (0.995 * early..=late).contains(time);
        assert!(measured.iter().all(is_inside), "{bytes} bytes: {early} {late} {measured:?}");
        assert!(late < 1.4 * early, "{bytes} bytes: {early} {late}");
    }
}

#[test]
fn the_interval_of_a_small_transfer_over_a_long_path_holds_cubic_and_bbr() {
    let (goodput, rtt) = (series(48e6, 0.05, 60.0, 100), series(0.1605, 0.003, 10.0, 600));
    let interval = forecast(&goodput, &rtt, 5995.0).interval(100_000, 0.9).expect("calibrated");
    assert!(interval.lower < 0.652 && 0.827 < interval.upper, "{interval:?}");
    assert!(0.64 < interval.lower && interval.upper < 0.9, "{interval:?}");
}

#[test]
fn a_forecast_without_calibration_has_no_interval() {
    let (goodput, rtt) = (series(20e6, 0.1, 60.0, 10), series(0.02, 0.1, 10.0, 100));
    let transfer = forecast(&goodput, &rtt, 995.0);
    assert!(transfer.forecast(1_000_000).is_some());
    assert_eq!(transfer.interval(1_000_000, Interval::DEFAULT_LEVEL), None);
    let goodput = series(20e6, 0.1, 60.0, 11);
    let transfer = forecast(&goodput, &rtt, 995.0);
    assert!(transfer.interval(1_000_000, Interval::DEFAULT_LEVEL).is_some());
    for level in [-0.5, 0.995, f64::NAN] {
        assert_eq!(transfer.interval(1_000_000, level), None, "{level}");
    }
    let none = Forecaster::new(&ForecasterConfig::default()).expect("valid");
    assert_eq!(forecast(&none, &rtt, 995.0).forecast(1), None);
}

#[test]
fn a_rate_that_falls_to_nearly_nothing_gives_a_finite_late_time() {
    let mut goodput = series(20e6, 0.1, 60.0, 100);
    for n in 100..140 {
        let value = if n % 3 == 0 { 1e3 } else { 40e6 };
        goodput.update_at(value, 60.0 * f64::from(n)).expect("within range");
    }
    let rtt = series(0.02, 0.1, 10.0, 840);
    let mut transfer = forecast(&goodput, &rtt, 60.0 * 139.0 + 10.0);
    let late = transfer.quantile(10_000_000, 0.95).expect("it is never infinite");
    assert!(late < Horizon::SECONDS_MAX, "{late}");
    transfer.goodput.least_bit_s = Some(1e6);
    let bounded = transfer.quantile(10_000_000, 0.95).expect("it is never infinite");
    assert!(bounded <= 161.0, "80 Mbit at half of the least rate, and slow start: {bounded}");
}

#[test]
fn an_old_goodput_still_gives_a_time_with_a_wider_interval() {
    let (goodput, rtt) = (series(20e6, 0.3, 60.0, 500), series(0.02, 0.1, 10.0, 3000));
    let width = |age_s: f64| {
        let interval = forecast(&goodput, &rtt, 60.0 * 499.0 + age_s).interval(100_000_000, 0.9);
        let interval = interval.expect("at any age");
        interval.upper / interval.lower
    };
    let widths = [30.0, 86_400.0, 30.0 * 86_400.0].map(width);
    assert!(widths[0] < widths[1] && widths[1] <= widths[2], "{widths:?}");
}

#[test]
fn a_test_that_does_not_fill_its_path_bounds_the_time_on_one_side_only() {
    // 64 KiB over 160 ms: two round trips of slow start, whatever the rate is.
    let measured = 8.0 * 65_536.0 / 0.33;
    let (goodput, rtt) = (series(measured, 0.01, 60.0, 100), series(0.16, 0.001, 10.0, 600));
    let mut transfer = forecast(&goodput, &rtt, 5995.0);
    let uncorrected = transfer.interval(10_000_000, 0.9).expect("calibrated");
    transfer.goodput.test = Some((65_536, 0.16));
    let interval = transfer.interval(10_000_000, 0.9).expect("calibrated");
    assert!(interval.lower < 0.16 * 13.0, "the path may be faster: {interval:?}");
    assert!(interval.upper < uncorrected.upper, "{interval:?} {uncorrected:?}");
}
