//! Laws that hold for every preset and rule.

use barograph_forecast::{Battery, Config, Loss, Preset, Rule};
use proptest::prelude::*;

fn configs() -> impl Iterator<Item = Config> {
    [Preset::Nws, Preset::Classic, Preset::Full].into_iter().flat_map(|preset| {
        [Rule::TwoLevel, Rule::Flat, Rule::Blend].map(|rule| Config { preset, rule, ..Config::default() })
    })
}

fn values() -> impl Strategy<Value = Vec<f64>> {
    let value = prop_oneof![
        4 => 0.0..100.0f64,
        2 => (0u8..4).prop_map(f64::from),
        1 => prop::sample::select(vec![0.0, -0.0, 1e-300, -1e-9, 1e9, 1e70, -1e70, f64::MIN_POSITIVE]),
    ];
    prop::collection::vec(value, 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Invariant: the reported error is that of the forecasts really issued, scored before the
    /// value was seen; everything shown is finite; weights are shares.
    #[test]
    fn reported_errors_are_those_of_issued_forecasts(values in values()) {
        for config in configs() {
            let mut battery = Battery::new(&config);
            let mut sums = [(0.0, 0.0); 2];
            for (seen, value) in values.iter().enumerate() {
                for (loss, sum) in [Loss::Squared, Loss::Absolute].into_iter().zip(&mut sums) {
                    let Some(forecast) = battery.forecast(loss) else {
                        prop_assert_eq!(seen, 0);
                        continue;
                    };
                    let scored = (seen - 1).max(1) as f64;
                    prop_assert!(forecast.value.is_finite(), "{config:?} {forecast:?}");
                    prop_assert_eq!(forecast.count, seen as u64);
                    prop_assert!((forecast.mse - sum.0 / scored).abs() <= 1e-12 * forecast.mse);
                    prop_assert!((forecast.mae - sum.1 / scored).abs() <= 1e-12 * forecast.mae);
                    prop_assert!(forecast.recent_mse.is_finite() && forecast.recent_mae.is_finite());
                    let error = forecast.value - value;
                    *sum = (sum.0 + error * error, sum.1 + error.abs());
                    let weights = battery.weights(loss);
                    let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
                    prop_assert!((sum - 1.0).abs() < 1e-9, "{config:?} {weights:?}");
                    prop_assert!(weights.iter().all(|(_, weight)| 0.0 <= *weight));
                }
                if let Some(interval) = battery.interval(0.9) {
                    prop_assert!(interval.lower <= interval.upper, "{config:?} {interval:?}");
                    prop_assert!(interval.lower.is_finite() && interval.upper.is_finite());
                }
                battery.update(*value).expect("within range");
            }
        }
    }

    /// A refused value leaves the battery as it was, to the bit.
    #[test]
    fn refused_values_change_nothing(values in values(), at in 0usize..300) {
        for config in configs() {
            let (mut with, mut without) = (Battery::new(&config), Battery::new(&config));
            for (i, value) in values.iter().enumerate() {
                if i == at {
                    for refused in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e71, -1e300] {
                        prop_assert!(with.update(refused).is_err());
                    }
                }
                with.update(*value).expect("within range");
                without.update(*value).expect("within range");
            }
            for loss in [Loss::Squared, Loss::Absolute] {
                prop_assert_eq!(with.forecast(loss), without.forecast(loss));
            }
            prop_assert_eq!(with.interval(0.95), without.interval(0.95));
        }
    }

    /// A constant series is forecast exactly once it is known, by every preset and rule.
    #[test]
    fn constants_are_forecast_as_they_are(value in -1e6..1e6f64, length in 2usize..200) {
        for config in configs() {
            let mut battery = Battery::new(&config);
            (0..length).for_each(|_| battery.update(value).expect("within range"));
            for loss in [Loss::Squared, Loss::Absolute] {
                let forecast = battery.forecast(loss).expect("values were seen");
                prop_assert!((forecast.value - value).abs() <= 1e-9 * value.abs(), "{config:?} {forecast:?}");
            }
        }
    }

    /// Wider levels give wider intervals, tracked or not.
    #[test]
    fn intervals_nest(values in values()) {
        let mut battery = Battery::new(&Config::default());
        for value in &values {
            battery.update(*value).expect("within range");
            let halves: Vec<f64> = [0.02, 0.5, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.98, 0.99, 0.999]
                .into_iter()
                .filter_map(|level| battery.interval(level))
                .map(|interval| interval.upper - interval.lower)
                .collect();
            prop_assert!(halves.windows(2).all(|pair| pair[0] <= pair[1] * (1.0 + 1e-9)), "{halves:?}");
        }
    }
}

#[test]
fn no_value_no_forecast_and_one_value_no_error() {
    for config in configs() {
        let mut battery = Battery::new(&config);
        assert_eq!(battery.forecast(Loss::Squared), None);
        assert_eq!(battery.interval(0.9), None);
        assert!(battery.weights(Loss::Absolute).is_empty());
        battery.update(7.5).expect("finite");
        let forecast = battery.forecast(Loss::Absolute).expect("one value was seen");
        assert_eq!((forecast.value, forecast.mae, forecast.count), (7.5, 0.0, 1));
        assert_eq!(battery.interval(0.9), None);
    }
}

#[test]
fn one_outlier_fades_from_the_recent_error() {
    let mut battery = Battery::new(&Config::default());
    let mut noise = noise();
    for i in 0..3000 {
        battery.update(if i == 1000 { 20_000.0 } else { 20.0 + noise() }).expect("finite");
    }
    let forecast = battery.forecast(Loss::Absolute).expect("values were seen");
    assert!(1.0 < forecast.mae, "the lifetime error keeps the outlier: {forecast:?}");
    assert!(forecast.recent_mae < 0.6, "the recent error forgot it: {forecast:?}");
}

#[test]
fn intervals_hold_their_level_through_level_shifts() {
    for level in [0.5, 0.8, 0.9, 0.95] {
        let mut battery = Battery::new(&Config::default());
        let mut noise = noise();
        let (mut hits, mut scored) = (0u32, 0u32);
        for i in 0..20_000u32 {
            // Every 200 values the level jumps by up to a hundred noises, and the noise by up to 16.
            let regime = f64::from((i / 200).wrapping_mul(2_654_435_761) % 101);
            let value = regime + noise() * (1.0 + regime % 16.0);
            if let Some(interval) = battery.interval(level)
                && 100 <= i
            {
                scored += 1;
                hits += u32::from(interval.lower <= value && value <= interval.upper);
            }
            battery.update(value).expect("finite");
        }
        let coverage = f64::from(hits) / f64::from(scored);
        assert!((coverage - level).abs() < 0.02, "at {level}: {coverage}");
    }
}

/// Uniform noise in ±1 from a fixed generator (Knuth's MMIX).
fn noise() -> impl FnMut() -> f64 {
    let mut state = 7u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}
