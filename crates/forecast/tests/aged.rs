//! Laws of forecasts by the age of the newest value.

mod common;

use barograph_forecast::{
    BatteryConfig, Forecaster, ForecasterConfig, Horizon, HorizonBasis, HorizonConfig, Objective, Preset,
    QuantileMethod,
};
use common::noise;

fn forecaster(horizons: &[HorizonConfig]) -> Forecaster {
    let config = ForecasterConfig {
        horizons: horizons.to_vec(),
        quantiles: Some(QuantileMethod::Tracked),
        ..ForecasterConfig::default()
    };
    Forecaster::new(&config).expect("valid horizons")
}

/// A station's ladder over a regular series.
fn ladder() -> Forecaster {
    let rungs = [60.0, 300.0].map(|seconds| HorizonConfig::sampled(Horizon::Seconds(seconds)));
    let mut forecaster = forecaster(&rungs);
    let (mut noise, mut level) = (noise(), 0.0);
    for n in 0..3000_u32 {
        level = 0.97 * level + noise();
        forecaster.update_at(1000.0 + level, 10.0 * f64::from(n)).expect("within range");
    }
    forecaster
}

const LATEST_S: f64 = 29_990.0;

#[test]
fn intervals_widen_with_the_age_of_the_newest_value() {
    let forecaster = ladder();
    for level in [0.5, 0.9, 0.99] {
        let mut before = 0.0;
        for age in (0..40).map(|i| 1.3_f64.powi(i)) {
            let time_s = LATEST_S + 10.0 * age;
            let interval = forecaster.interval_aged(level, time_s).expect("calibrated");
            let forecast = forecaster.forecast_aged(Objective::Absolute, time_s).expect("there are values");
            assert!(interval.lower <= forecast.value && forecast.value <= interval.upper);
            let width = interval.upper - interval.lower;
            assert!(before <= width + 1e-9, "{level} at {age}: {width} after {before}");
            before = width;
            if age < 1.5 {
                assert_eq!(Some(interval), forecaster.battery().interval_at(level, time_s));
                let next = forecaster.battery().forecast_at(Objective::Absolute, time_s).expect("values");
                assert_eq!((forecast.value, forecast.basis), (next.value, HorizonBasis::Own));
            } else if age > 30.1 {
                assert!(matches!(forecast.basis, HorizonBasis::Beyond { .. }), "{age}: {forecast:?}");
            }
        }
    }
    // A time that is unknown or before the newest value is that of the next value.
    for time_s in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, LATEST_S] {
        assert_eq!(forecaster.interval_aged(0.9, time_s), forecaster.battery().interval_at(0.9, time_s));
        let next = forecaster.battery().forecast_at(Objective::Squared, time_s).map(|next| next.value);
        assert_eq!(forecaster.forecast_aged(Objective::Squared, time_s).map(|aged| aged.value), next);
    }

    assert!(forecaster.interval_aged(0.9, 1e300).is_some(), "a very old value has an interval");
    assert_eq!(forecaster.interval_aged(1.0, LATEST_S + 100.0), None, "the level is out of range");
}

/// Without horizons, the errors of the next value are the only ones.
#[test]
fn a_series_without_horizons_widens_like_a_random_walk_up_to_its_spread() {
    for preset in [Preset::Nws, Preset::Full] {
        let battery = BatteryConfig { preset, ..BatteryConfig::default() };
        let config = ForecasterConfig { battery, ..ForecasterConfig::default() };
        let mut forecaster = Forecaster::new(&config).expect("valid");
        let (mut noise, mut level) = (noise(), 0.0);
        for n in 0..1000_u32 {
            level = 0.99 * level + noise();
            forecaster.update_at(1000.0 + level, 10.0 * f64::from(n)).expect("within range");
        }
        let width = |age: f64| {
            let interval = forecaster.interval_aged(0.9, 9990.0 + 10.0 * age).expect("calibrated");
            interval.upper - interval.lower
        };
        assert!((width(4.0) - 2.0 * width(1.0)).abs() < 1e-9, "{preset:?}: {} {}", width(1.0), width(4.0));
        assert!(width(1e3) > width(4.0) && width(1e3) == width(1e9), "{preset:?}");
    }
}

/// Gaps that come often have forecasts and intervals of their own, for ages that they had.
#[test]
fn gaps_of_a_known_length_have_the_interval_that_was_learned_after_gaps() {
    let mut forecaster = forecaster(&[HorizonConfig::sampled(Horizon::Seconds(60.0))]);
    let (mut noise, mut time_s) = (noise(), 0.0);
    for n in 0..600_u32 {
        time_s += if n % 30 == 0 { 200.0 } else { 10.0 };
        forecaster.update_at(1000.0 + noise(), time_s).expect("within range");
    }
    for (age, is_learned) in [(3.0, true), (20.0, true), (63.0, true), (64.0, false), (500.0, false)] {
        let later_s = time_s + 10.0 * age;
        let [aged, gap] =
            [forecaster.interval_aged(0.9, later_s), forecaster.battery().interval_at(0.9, later_s)]
                .map(|interval| interval.expect("calibrated"));
        assert_eq!(aged == gap, is_learned, "{age}: {aged:?} {gap:?}");
        assert!(aged.upper - aged.lower >= gap.upper - gap.lower - 1e-9, "{age}: {aged:?} {gap:?}");
    }
}

/// With the age, all quantiles move away from the forecast as the interval at 90 % does.
#[test]
fn quantiles_of_an_old_value_widen_with_its_age() {
    const SHARES: [f64; 6] = [0.005, 0.05, 0.4, 0.6, 0.95, 0.995];
    let forecaster = ladder();
    let mut before = 0.0;
    for age in (0..40).map(|i| 1.3_f64.powi(i)) {
        let time_s = LATEST_S + 10.0 * age;
        let quantiles = SHARES.map(|share| forecaster.quantile_aged(share, time_s).expect("calibrated"));
        assert!(quantiles.is_sorted(), "{age}: {quantiles:?}");
        let width = quantiles[4] - quantiles[1];
        assert!(0.95 * before <= width, "{age}: {width} after {before}");
        before = width;
        if age < 1.5 {
            let next = SHARES.map(|share| forecaster.quantile_at(share, time_s).expect("calibrated"));
            assert_eq!(quantiles, next);
        }
    }
    for time_s in [f64::NAN, f64::INFINITY, 0.0, LATEST_S] {
        assert_eq!(forecaster.quantile_aged(0.9, time_s), forecaster.quantile_at(0.9, time_s));
    }
    for share in [0.004, 0.996, f64::NAN] {
        assert_eq!(forecaster.quantile_aged(share, LATEST_S + 100.0), None);
    }
}

#[test]
fn quantiles_of_an_old_value_have_their_share_of_the_values_below() {
    let rungs = [60.0, 300.0].map(|seconds| HorizonConfig::exact(Horizon::Seconds(seconds)));
    let mut forecaster = forecaster(&rungs);
    // Beyond the longest horizon, 30 periods, they are only known to be wide enough.
    let (shares, ages) = ([0.1, 0.5, 0.9], [2_usize, 6, 17, 30]);
    let (mut noise, mut level) = (noise(), 0.0);
    let (mut values, mut issued) = (Vec::new(), Vec::new());
    for n in 0..12_000_u32 {
        // Skewed: most steps are small.
        level = 0.9 * level - (0.5 + 0.5 * noise()).max(1e-9).ln();
        let time_s = 10.0 * f64::from(n);
        forecaster.update_at(level, time_s).expect("within range");
        values.push(level);
        issued.push(
            ages.map(|age| shares.map(|share| forecaster.quantile_aged(share, time_s + 10.0 * age as f64))),
        );
    }
    for (i, age) in ages.into_iter().enumerate() {
        for (j, share) in shares.into_iter().enumerate() {
            let known = issued.iter().zip(&values[age..]);
            let below: Vec<bool> =
                known.filter_map(|(issued, value)| issued[i][j].map(|quantile| *value < quantile)).collect();
            let covered = below.iter().filter(|below| **below).count() as f64 / below.len() as f64;
            assert!((covered - share).abs() < 0.03, "{age} {share}: {covered}");
        }
    }
}

/// A kept horizon has no interval until its forecasts were scored. A value of exactly that age has
/// an interval all the same, from the other horizons.
#[test]
fn an_age_at_a_horizon_without_an_interval_has_one() {
    let mut forecaster = forecaster(&[HorizonConfig::exact(Horizon::Seconds(600.0))]);
    let mut noise = noise();
    for n in 0..60_u32 {
        forecaster.update_at(5.0 + noise(), 10.0 * f64::from(n)).expect("within range");
    }
    let width = |age_s: f64| {
        let interval = forecaster.interval_aged(0.9, 590.0 + age_s).expect("errors of the next value");
        interval.upper - interval.lower
    };
    assert!(width(599.0) <= width(600.0) && width(600.0) <= width(601.0));
    assert!(forecaster.quantile_aged(0.9, 1190.0).is_some());
}
