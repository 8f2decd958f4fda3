//! Laws of forecasts further ahead than the next value.

mod common;

use barograph_forecast::{
    BatteryConfig, Forecaster, ForecasterConfig, Horizon, HorizonBasis, HorizonConfig, HorizonError,
    HorizonOf, Objective, Preset, Rule,
};
use common::{noise, values};
use proptest::prelude::*;

const KINDS: [HorizonOf; 2] = [HorizonOf::Mean, HorizonOf::Value];
const OBJECTIVES: [Objective; 2] = [Objective::Squared, Objective::Absolute];

fn forecaster(horizons: &[HorizonConfig]) -> Forecaster {
    let config = ForecasterConfig { horizons: horizons.to_vec(), ..ForecasterConfig::default() };
    Forecaster::new(&config).expect("valid horizons")
}

fn exact(steps: u32) -> Forecaster {
    forecaster(&[HorizonConfig::exact(Horizon::Steps(steps))])
}

/// What is measured at a horizon of `steps` values, for the forecast after value `at`.
fn target(values: &[f64], at: usize, steps: usize, of: HorizonOf) -> f64 {
    match of {
        HorizonOf::Mean => values[at + 1..=at + steps].iter().sum::<f64>() / steps as f64,
        HorizonOf::Value => values[at + steps],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The reported errors are those of the issued forecasts with known values. All numbers
    /// are finite, also after extreme values.
    #[test]
    fn reported_errors_are_those_of_issued_forecasts(values in values(300), steps in 2usize..40) {
        let horizon = Horizon::Steps(steps as u32);
        let mut forecaster = exact(steps as u32);
        let mut issued = Vec::new();
        for (at, value) in values.iter().enumerate() {
            forecaster.update(*value).expect("within range");
            let forecasts = KINDS.map(|of| OBJECTIVES.map(|objective| {
                forecaster.forecast_over(horizon, of, objective).expect("there are values")
            }));
            for (of, forecasts) in KINDS.into_iter().zip(&forecasts) {
                let known = (at + 1).saturating_sub(steps);
                for (objective, forecast) in forecasts.iter().enumerate() {
                    prop_assert_eq!((forecast.count, forecast.scored), (at as u64 + 1, known as u64));
                    prop_assert_eq!(forecast.basis, HorizonBasis::Own);
                    prop_assert!(forecast.value.is_finite() && forecast.recent_mse.is_finite(), "{forecast:?}");
                    let errors = issued.iter().take(known).enumerate().map(|(at, all): (usize, &[[f64; 2]; 2])| {
                        all[of as usize][objective] - target(&values, at, steps, of)
                    });
                    let (mut squared, mut absolute) = (0.0, 0.0);
                    errors.for_each(|error| {
                        squared += error * error;
                        absolute += error.abs();
                    });
                    let scored = known.max(1) as f64;
                    prop_assert!((forecast.mse - squared / scored).abs() <= 1e-9 * forecast.mse);
                    prop_assert!((forecast.mae - absolute / scored).abs() <= 1e-9 * forecast.mae);
                }
                if let Some(interval) = forecaster.interval_over(horizon, of, 0.9) {
                    prop_assert!(interval.lower <= forecasts[1].value && forecasts[1].value <= interval.upper);
                    prop_assert!(interval.lower.is_finite() && interval.upper.is_finite());
                }
            }
            issued.push(forecasts.map(|kind| kind.map(|forecast| forecast.value)));
        }
    }

    /// A rejected value leaves the forecaster unchanged, to the bit. While no value was below 0, no
    /// forecast and no end is.
    #[test]
    fn rejected_values_change_nothing_and_forecasts_are_not_negative(values in values(300), at in 0usize..300) {
        let horizon = Horizon::Steps(7);
        let (mut with, mut without) = (exact(7), exact(7));
        let mut least = f64::INFINITY;
        for (i, value) in values.iter().enumerate() {
            if i == at {
                for refused in [f64::NAN, f64::INFINITY, 1e71] {
                    prop_assert!(with.update(refused).is_err());
                }
            }
            with.update(*value).expect("within range");
            without.update(*value).expect("within range");
            least = least.min(*value);
            for of in KINDS {
                for objective in OBJECTIVES {
                    let forecast = with.forecast_over(horizon, of, objective);
                    prop_assert_eq!(forecast, without.forecast_over(horizon, of, objective));
                    prop_assert!(least < 0.0 || forecast.is_some_and(|forecast| forecast.value >= 0.0));
                }
                let interval = with.interval_over(horizon, of, 0.9);
                prop_assert_eq!(interval, without.interval_over(horizon, of, 0.9));
                prop_assert!(least < 0.0 || interval.is_none_or(|interval| interval.lower >= 0.0));
            }
        }
    }
}

#[test]
fn a_horizon_of_one_value_is_the_next_value_of_the_battery() {
    for preset in [Preset::Nws, Preset::Classic, Preset::Full] {
        for rule in [Rule::TwoLevel, Rule::TwoSelectors, Rule::Blend] {
            let battery = BatteryConfig { preset, rule, levels: vec![0.7] };
            let horizons =
                vec![HorizonConfig::exact(Horizon::Steps(1)), HorizonConfig::exact(Horizon::Steps(5))];
            let mut forecaster =
                Forecaster::new(&ForecasterConfig { battery, horizons, ..ForecasterConfig::default() })
                    .expect("valid");
            for value in series(300) {
                forecaster.update(value).expect("within range");
                for (of, objective) in KINDS.into_iter().zip(OBJECTIVES) {
                    let next = forecaster.battery().forecast(objective).expect("there are values");
                    let over =
                        forecaster.forecast_over(Horizon::Steps(1), of, objective).expect("the next value");
                    assert_eq!((over.value, over.mse, over.mae), (next.value, next.mse, next.mae));
                    assert_eq!(
                        (over.method, over.weight, over.count),
                        (next.method, next.weight, next.count)
                    );
                    assert_eq!(over.scored, next.count - 1);
                    let interval = forecaster.interval_over(Horizon::Steps(1), of, 0.7);
                    assert_eq!(interval, forecaster.battery().interval(0.7));
                    assert!(
                        forecaster.forecast_over(Horizon::Steps(5), of, objective).is_some(),
                        "{preset:?}"
                    );
                }
            }
        }
    }
}

/// A forecast depends only on the values before it.
#[test]
fn a_longer_series_has_the_same_forecasts_at_its_start() {
    let values = series(400);
    let forecasts = |count: usize| {
        let mut forecaster = exact(12);
        let forecast = |value: &f64| {
            forecaster.update(*value).expect("within range");
            KINDS.map(|of| {
                let horizon = Horizon::Steps(12);
                let forecasts = OBJECTIVES.map(|objective| forecaster.forecast_over(horizon, of, objective));
                (forecasts, forecaster.interval_over(horizon, of, 0.9))
            })
        };
        values[..count].iter().map(forecast).collect::<Vec<_>>()
    };
    assert_eq!(forecasts(400)[..250], forecasts(250));
}

#[test]
fn a_constant_series_is_forecast_as_the_constant() {
    let mut forecaster = exact(10);
    (0..500).for_each(|_| forecaster.update(41.5).expect("within range"));
    for of in KINDS {
        for objective in OBJECTIVES {
            let forecast = forecaster.forecast_over(Horizon::Steps(10), of, objective).expect("values");
            assert!((forecast.value - 41.5).abs() < 1e-9, "{forecast:?}");
        }
        let interval = forecaster.interval_over(Horizon::Steps(10), of, 0.9).expect("calibrated");
        assert!(interval.upper - interval.lower < 1e-6, "{interval:?}");
    }
}

#[test]
fn horizons_out_of_range_are_errors() {
    for (config, error) in [
        (HorizonConfig::exact(Horizon::Steps(0)), HorizonError::Steps(0)),
        (HorizonConfig::exact(Horizon::Steps(u32::MAX)), HorizonError::Steps(u32::MAX)),
        (HorizonConfig::exact(Horizon::Seconds(0.0)), HorizonError::Seconds(0.0)),
        (HorizonConfig::exact(Horizon::Seconds(f64::INFINITY)), HorizonError::Seconds(f64::INFINITY)),
        (
            HorizonConfig { pending_max: 0, ..HorizonConfig::exact(Horizon::Steps(2)) },
            HorizonError::Pending(0),
        ),
        (
            HorizonConfig { stride_min: 5000, ..HorizonConfig::exact(Horizon::Steps(2)) },
            HorizonError::Pending(5000),
        ),
    ] {
        let config = ForecasterConfig { horizons: vec![config], ..ForecasterConfig::default() };
        assert_eq!(Forecaster::new(&config).expect_err("out of range"), error);
    }
    let forecaster = exact(5);
    assert_eq!(forecaster.forecast_over(Horizon::Steps(0), HorizonOf::Mean, Objective::Squared), None);
    assert_eq!(
        forecaster.forecast_over(Horizon::Seconds(f64::NAN), HorizonOf::Mean, Objective::Squared),
        None
    );
}

/// A series with noise, levels and outliers.
fn series(len: usize) -> Vec<f64> {
    let mut noise = noise();
    (0..len)
        .map(|i| {
            let level = f64::from(i as u32 / 200 % 3) * 4.0;
            let outlier = if noise() > 0.98 { 40.0 } else { 0.0 };
            20.0 + level + noise() + outlier
        })
        .collect()
}

/// Results are equal to the bit on every target, and in every version unless CHANGELOG.md says
/// otherwise. The digests (FNV-1a) are over the forecasts of two horizons for one series.
#[test]
fn forecasts_have_the_same_bits_on_every_platform() {
    let horizons = [Horizon::Steps(5), Horizon::Steps(30)];
    let mut digests = [0xcbf2_9ce4_8422_2325_u64; 2];
    for preset in [Preset::Nws, Preset::Classic, Preset::Full] {
        let digest = &mut digests[usize::from(preset == Preset::Full)];
        let battery = BatteryConfig { preset, ..BatteryConfig::default() };
        let configs = [HorizonConfig::exact(horizons[0]), HorizonConfig::sampled(horizons[1])];
        let config = ForecasterConfig { battery, horizons: configs.to_vec(), ..ForecasterConfig::default() };
        let mut forecaster = Forecaster::new(&config).expect("valid");
        for value in series(700) {
            forecaster.update(value).expect("within range");
            for (horizon, of) in horizons.into_iter().flat_map(|horizon| KINDS.map(|of| (horizon, of))) {
                let forecasts = OBJECTIVES
                    .map(|objective| forecaster.forecast_over(horizon, of, objective).expect("values").value);
                let upper = forecaster.interval_over(horizon, of, 0.9).map_or(0.0, |interval| interval.upper);
                for byte in forecasts.into_iter().chain([upper]).flat_map(f64::to_le_bytes) {
                    *digest = (*digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
                }
            }
        }
    }
    assert_eq!(digests, [DIGEST_NWS_CLASSIC, DIGEST_FULL], "{digests:#x?}");
}

const DIGEST_NWS_CLASSIC: u64 = 0xf54f_af21_2aeb_95f6;
const DIGEST_FULL: u64 = 0x1081_77e0_a8d2_012f;

/// A forecast for a horizon follows a new level within about a horizon. Its interval is wide until
/// then.
#[test]
fn after_a_shift_of_the_level_intervals_hold_from_the_fourth_value_on() {
    let mut noise = noise();
    let values: Vec<f64> = (0..700).map(|i| if i < 600 { 100.0 } else { 110.0 } + 0.1 * noise()).collect();
    let horizon = Horizon::Steps(30);
    let mut forecaster = exact(30);
    for (at, value) in values.iter().enumerate().take(670) {
        forecaster.update(*value).expect("within range");
        for of in KINDS {
            let target = target(&values, at, 30, of);
            if (603..630).contains(&at) {
                let interval = forecaster.interval_over(horizon, of, 0.9).expect("calibrated");
                assert!(
                    interval.lower <= target && target <= interval.upper,
                    "{of:?} after {at}: {interval:?}"
                );
            }
        }
    }
}

/// A run of misses is as long as the horizon, and known one horizon late.
#[test]
fn intervals_at_a_long_sampled_horizon_do_not_explode_on_a_stationary_series() {
    let steps = 3600;
    let mut noise = noise();
    let values: Vec<f64> = (0..60 * steps).map(|_| 1000.0 + noise()).collect();
    let mut forecaster = forecaster(&[HorizonConfig::sampled(Horizon::Steps(steps as u32))]);
    let (mut widths, mut targets) = (Vec::new(), Vec::new());
    for (at, value) in values.iter().enumerate().take(59 * steps) {
        forecaster.update(*value).expect("within range");
        if 30 * steps < at && at % 50 == 0 {
            let interval = forecaster.interval_over(Horizon::Steps(steps as u32), HorizonOf::Mean, 0.9);
            widths.push(interval.map(|interval| interval.upper - interval.lower).expect("calibrated"));
            targets.push(target(&values, at, steps, HorizonOf::Mean));
        }
    }
    targets.sort_by(f64::total_cmp);
    let constant = targets[targets.len() * 19 / 20] - targets[targets.len() / 20];
    let width = widths.iter().sum::<f64>() / widths.len() as f64;
    assert!(width < 3.0 * constant, "{width} {constant}");
}

/// The share of values in the intervals is the level, on series of different kinds.
#[test]
fn intervals_hold_their_share_of_values() {
    type Series = fn(usize, &mut dyn FnMut() -> f64) -> f64;
    let mut state = 0.0;
    let kinds: [(&str, Series); 3] = [
        ("noise", |_, noise| noise()),
        ("levels", |i, noise| f64::from(i as u32 / 200 * 7919 % 11) + noise()),
        ("heavy tail", |_, noise| {
            let share = noise();
            if share.abs() > 0.97 { 30.0 * noise() } else { share }
        }),
    ];
    let mut noise = noise();
    for (name, next) in kinds {
        for steps in [5, 30, 120_usize] {
            let horizon = Horizon::Steps(steps as u32);
            let mut forecaster = exact(steps as u32);
            let (mut values, mut issued) = (Vec::new(), Vec::new());
            for i in 0..8000 {
                state = 0.8 * state + next(i, &mut noise);
                values.push(state);
                forecaster.update(state).expect("within range");
                issued.push(KINDS.map(|of| forecaster.interval_over(horizon, of, 0.9)));
            }
            for of in KINDS {
                let known = issued.iter().enumerate().take(values.len() - steps);
                let inside: Vec<bool> = known
                    .filter_map(|(at, intervals)| {
                        let target = target(&values, at, steps, of);
                        intervals[of as usize]
                            .map(|interval| interval.lower <= target && target <= interval.upper)
                    })
                    .collect();
                let share = inside.iter().filter(|inside| **inside).count() as f64 / inside.len() as f64;
                assert!((0.88..=0.92).contains(&share), "{name}, {of:?}, {steps}: {share}");
            }
        }
    }
}
