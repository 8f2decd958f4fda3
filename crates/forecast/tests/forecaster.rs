//! Laws of the forecaster's quantiles and of its availability.

mod common;

use barograph_forecast::{
    Availability, Battery, BatteryConfig, Forecaster, ForecasterConfig, Horizon, HorizonConfig, HorizonOf,
    Interval, Objective, Preset, QUANTILE_SHARES, QuantileForecaster, QuantileMethod,
};
use common::{noise, values};
use proptest::prelude::*;

const KINDS: [HorizonOf; 2] = [HorizonOf::Mean, HorizonOf::Value];
/// Shares with an own calibration, and shares between and beyond them.
const SHARES: [f64; 11] = [0.005, 0.01, 0.05, 0.1, 0.25, 0.4, 0.5, 0.75, 0.9, 0.99, 0.995];

fn forecaster(horizons: &[HorizonConfig]) -> Forecaster {
    let config = ForecasterConfig {
        horizons: horizons.to_vec(),
        quantiles: Some(QuantileMethod::Tracked),
        ..ForecasterConfig::default()
    };
    Forecaster::new(&config).expect("valid horizons")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// At every horizon. While no value was below 0, no quantile is.
    #[test]
    fn quantiles_are_finite_and_in_ascending_order(values in values(300)) {
        let mut forecaster = forecaster(&[4, 12].map(|steps| HorizonConfig::exact(Horizon::Steps(steps))));
        let mut least = f64::INFINITY;
        for value in values {
            forecaster.update(value).expect("within range");
            least = least.min(value);
            for (steps, of) in [1, 2, 4, 8, 12, 100].into_iter().flat_map(|steps| KINDS.map(|of| (steps, of))) {
                let horizon = Horizon::Steps(steps);
                let quantiles = SHARES.map(|share| forecaster.quantile_over(horizon, of, share));
                let is_known = forecaster.interval_over(horizon, of, Interval::DEFAULT_LEVEL).is_some();
                prop_assert!(quantiles.iter().all(|quantile| quantile.is_some() == is_known), "{steps}");
                let all = forecaster.quantiles_over(horizon, of);
                let one_by_one = QUANTILE_SHARES.map(|share| forecaster.quantile_over(horizon, of, share));
                prop_assert_eq!(all.map(|all| all.map(Some)).unwrap_or_default(), one_by_one);
                let quantiles: Vec<f64> = quantiles.into_iter().flatten().collect();
                prop_assert!(quantiles.iter().all(|quantile| quantile.is_finite()), "{quantiles:?}");
                prop_assert!(quantiles.is_sorted(), "{steps} {of:?} {quantiles:?}");
                prop_assert!(least < 0.0 || quantiles.iter().all(|quantile| *quantile >= 0.0));
            }
        }
    }
}

#[test]
fn quantiles_of_the_next_value_are_those_beside_a_battery() {
    for method in [QuantileMethod::Tracked, QuantileMethod::Blended] {
        let config = ForecasterConfig { quantiles: Some(method), ..ForecasterConfig::default() };
        let mut forecaster = Forecaster::new(&config).expect("valid");
        let mut battery = Battery::new(&BatteryConfig::default());
        let mut quantiles = QuantileForecaster::new(method);
        let (mut noise, mut time_s) = (noise(), 0.0);
        for n in 0..600 {
            time_s += if n % 50 == 0 { 100.0 } else { 10.0 };
            let value = 20.0 + noise() + noise().max(0.8) * 10.0;
            let is_after_gap = battery.is_after_gap(time_s);
            battery.update_at(value, time_s).expect("within range");
            quantiles.update(&battery, value, is_after_gap);
            forecaster.update_at(value, time_s).expect("within range");
            for share in SHARES {
                let next = forecaster.quantile_over(Horizon::Steps(1), HorizonOf::Value, share);
                assert_eq!(next, quantiles.quantile(share));
                for later_s in [time_s + 10.0, time_s + 100.0] {
                    let at = forecaster.quantile_at(share, later_s);
                    assert_eq!(at, quantiles.quantile_at(&battery, share, later_s));
                }
            }
        }
        let next = |share| forecaster.quantile_over(Horizon::Steps(1), HorizonOf::Mean, share);
        assert_eq!((next(0.004), next(0.996), next(f64::NAN)), (None, None, None));
        assert!(forecaster.size_bytes() >= battery.size_bytes() + quantiles.size_bytes());
    }
    let mut without = Forecaster::new(&ForecasterConfig::default()).expect("valid");
    (0..50).for_each(|n| without.update(f64::from(n)).expect("within range"));
    assert_eq!(without.quantile_over(Horizon::Steps(1), HorizonOf::Mean, 0.5), None);
    assert_eq!(without.quantiles_over(Horizon::Steps(1), HorizonOf::Mean), None);
    assert_eq!((without.quantile_at(0.5, 60.0), without.quantile_aged(0.5, 1e4)), (None, None));
}

/// Delays: most are near the least, few are long.
#[test]
fn quantiles_at_a_horizon_have_their_share_of_the_targets_below() {
    for steps in [5, 30_usize] {
        let horizon = Horizon::Steps(steps as u32);
        let mut forecaster = forecaster(&[HorizonConfig::exact(horizon)]);
        let shares = [0.1, 0.5, 0.9, 0.99];
        let (mut noise, mut level) = (noise(), 0.0);
        let (mut values, mut issued) = (Vec::new(), Vec::new());
        for _ in 0..10_000 {
            level = 0.9 * level - (0.5 + 0.5 * noise()).max(1e-9).ln();
            values.push(level);
            forecaster.update(level).expect("within range");
            issued.push(KINDS.map(|of| shares.map(|share| forecaster.quantile_over(horizon, of, share))));
        }
        for of in KINDS {
            for (i, share) in shares.into_iter().enumerate() {
                let known = issued.iter().enumerate().take(values.len() - steps);
                let below: Vec<bool> = known
                    .filter_map(|(at, quantiles)| {
                        let target = match of {
                            HorizonOf::Mean => values[at + 1..=at + steps].iter().sum::<f64>() / steps as f64,
                            HorizonOf::Value => values[at + steps],
                        };
                        quantiles[of as usize][i].map(|quantile| target < quantile)
                    })
                    .collect();
                let covered = below.iter().filter(|below| **below).count() as f64 / below.len() as f64;
                let off_max = if share == 0.99 { 0.005 } else { 0.015 };
                assert!((covered - share).abs() < off_max, "{steps} {of:?} {share}: {covered}");
            }
        }
    }
}

#[test]
fn quantiles_between_horizons_are_interpolated() {
    let mut forecaster = forecaster(&[5, 20].map(|steps| HorizonConfig::exact(Horizon::Steps(steps))));
    let (mut noise, mut level) = (noise(), 0.0);
    for _ in 0..3000 {
        level = 0.95 * level + noise() + 1.0;
        forecaster.update(level).expect("within range");
    }
    for of in KINDS {
        for share in SHARES {
            let [five, ten, twenty, forty] = [5, 10, 20, 40].map(|steps| {
                let horizon = Horizon::Steps(steps);
                let center =
                    forecaster.forecast_over(horizon, of, Objective::Absolute).expect("values").value;
                forecaster.quantile_over(horizon, of, share).expect("calibrated") - center
            });
            assert!((ten - 0.5 * (five + twenty)).abs() < 1e-9, "half of the way from 5 to 20");
            assert!(twenty.abs() <= forty.abs() && twenty * forty >= 0.0, "{of:?} {share}: {twenty} {forty}");
        }
    }
}

#[test]
fn failures_change_the_availability_only() {
    let config = ForecasterConfig { availability: true, ..ForecasterConfig::default() };
    let mut with = Forecaster::new(&config).expect("valid");
    let mut without = Forecaster::new(&ForecasterConfig::default()).expect("valid");
    let mut alone = Availability::new();
    for n in 0..300_u32 {
        if n % 20 < 3 {
            with.fail();
            without.fail();
            alone.learn(false);
        } else {
            for forecaster in [&mut with, &mut without] {
                forecaster.update_at(f64::from(n % 7), 10.0 * f64::from(n)).expect("within range");
            }
            alone.learn(true);
        }
        let availability = with.availability().expect("configured");
        assert_eq!(availability.probability(), alone.probability());
        assert_eq!(availability.brier(), alone.brier());
        for objective in [Objective::Squared, Objective::Absolute] {
            assert_eq!(with.battery().forecast(objective), without.battery().forecast(objective));
        }
    }
    // A rejected value is no outcome.
    assert!(with.update(f64::NAN).is_err());
    assert_eq!(with.availability().and_then(Availability::probability), alone.probability());
    assert!(without.availability().is_none());
}

/// Results are equal to the bit on every target, and in every version unless CHANGELOG.md says
/// otherwise. The digest (FNV-1a) is over quantiles at horizons and over intervals by age; the
/// preset is nws, so the methods of `full` do not change it.
#[test]
fn quantiles_and_aged_intervals_have_the_same_bits_on_every_platform() {
    let battery = BatteryConfig { preset: Preset::Nws, ..BatteryConfig::default() };
    let horizons = [5, 30].map(|steps| HorizonConfig::exact(Horizon::Steps(steps))).to_vec();
    let quantiles = Some(QuantileMethod::Blended);
    let config = ForecasterConfig { battery, horizons, quantiles, ..ForecasterConfig::default() };
    let mut forecaster = Forecaster::new(&config).expect("valid");
    let mut noise = noise();
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    for n in 0..700_u32 {
        let value = 20.0 + noise() + f64::from(n / 200) * 3.0;
        forecaster.update_at(value, 10.0 * f64::from(n)).expect("within range");
        let quantiles = [1, 3, 5, 12, 30, 50].into_iter().flat_map(|steps| {
            KINDS.into_iter().flat_map(move |of| [0.01, 0.5, 0.97].map(|share| (steps, of, share)))
        });
        let quantiles =
            quantiles.map(|(steps, of, share)| forecaster.quantile_over(Horizon::Steps(steps), of, share));
        let ends = [10.0, 100.0, 1e4].into_iter().flat_map(|age_s| {
            let interval = forecaster.interval_aged(0.9, 10.0 * f64::from(n) + age_s);
            [interval.map(|interval| interval.lower), interval.map(|interval| interval.upper)]
        });
        for byte in quantiles.chain(ends).flat_map(|number| number.unwrap_or(0.0).to_le_bytes()) {
            digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    assert_eq!(digest, DIGEST, "{digest:#x}");
}

const DIGEST: u64 = 0x86f9_4fd6_2ae5_5ea7;

#[test]
fn quantiles_do_not_allocate_after_warm_up() {
    let horizons =
        [HorizonConfig::exact(Horizon::Steps(20)), HorizonConfig::sampled(Horizon::Seconds(300.0))];
    let config = ForecasterConfig {
        horizons: horizons.to_vec(),
        quantiles: Some(QuantileMethod::Blended),
        availability: true,
        ..ForecasterConfig::default()
    };
    let mut forecaster = Forecaster::new(&config).expect("valid");
    let (mut noise, mut time_s) = (noise(), 0.0);
    let mut update = |forecaster: &mut Forecaster| {
        time_s += 10.0;
        forecaster.update_at(5.0 + noise(), time_s).expect("within range");
        for of in KINDS {
            for horizon in [Horizon::Steps(20), Horizon::Seconds(100.0)] {
                std::hint::black_box(forecaster.quantile_over(horizon, of, 0.9));
                std::hint::black_box(forecaster.quantiles_over(horizon, of));
            }
        }
        std::hint::black_box(forecaster.interval_aged(0.9, time_s + 500.0));
        std::hint::black_box(forecaster.quantile_aged(0.9, time_s + 500.0));
        forecaster.fail();
    };
    (0..200).for_each(|_| update(&mut forecaster));
    let bytes = forecaster.size_bytes();
    let counted = allocation_counter::measure(|| (0..10_000).for_each(|_| update(&mut forecaster)));
    assert_eq!((counted.count_total, forecaster.size_bytes()), (0, bytes));
}

#[derive(Clone, Debug)]
enum Operation {
    Value(f64),
    ValueAt(f64, f64),
    Fail,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let value = prop_oneof![0.0..9.0f64, prop::sample::select(vec![0.0, -0.0, 1e-300, 1e70, -1e70])];
    let elapsed = prop_oneof![
        6 => 9.0..11.0f64,
        1 => prop::sample::select(vec![0.0, 5e-324, 1e-300, 40.0, 1e5, 1e12, -25.0, f64::NAN, f64::INFINITY]),
    ];
    let operation = prop_oneof![
        1 => value.clone().prop_map(Operation::Value),
        9 => (value, elapsed).prop_map(|(value, elapsed)| Operation::ValueAt(value, elapsed)),
        1 => Just(Operation::Fail),
    ];
    prop::collection::vec(operation, 0..250)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// After values at any times, between failures, and for any age and horizon.
    #[test]
    fn all_numbers_are_finite_and_in_order(operations in operations()) {
        let horizons = vec![
            HorizonConfig::exact(Horizon::Steps(3)),
            HorizonConfig::sampled(Horizon::Seconds(60.0)),
            HorizonConfig::exact(Horizon::Seconds(100.0)),
        ];
        let quantiles = Some(QuantileMethod::Blended);
        let config =
            ForecasterConfig { horizons, quantiles, availability: true, ..ForecasterConfig::default() };
        let mut forecaster = Forecaster::new(&config).expect("valid");
        let mut time_s = 0.0;
        for operation in operations {
            match operation {
                Operation::Value(value) => forecaster.update(value).expect("within range"),
                Operation::ValueAt(value, elapsed) => {
                    forecaster.update_at(value, time_s + elapsed).expect("within range");
                    time_s += if elapsed.is_finite() { elapsed } else { 0.0 };
                }
                Operation::Fail => forecaster.fail(),
            }
            for age in [0.0, 10.0, 26.0, 100.0, 1e4, 1e300, -5.0, f64::NAN] {
                let forecast = forecaster.forecast_aged(Objective::Absolute, time_s + age);
                prop_assert!(forecast.is_none_or(|forecast| forecast.value.is_finite() && forecast.mse.is_finite()));
                if let Some(interval) = forecaster.interval_aged(0.9, time_s + age) {
                    let value = forecast.expect("the center").value;
                    prop_assert!(interval.lower <= value && value <= interval.upper, "{interval:?} {value}");
                    prop_assert!(interval.lower.is_finite() && interval.upper.is_finite());
                }
                let quantiles = SHARES.map(|share| forecaster.quantile_aged(share, time_s + age));
                let quantiles: Vec<f64> = quantiles.into_iter().flatten().collect();
                prop_assert!(quantiles.iter().all(|quantile| quantile.is_finite()), "{age}: {quantiles:?}");
                prop_assert!(quantiles.is_sorted(), "{age}: {quantiles:?}");
            }
            let horizons = [1.0, 40.0, 60.0, 80.0, 100.0, Horizon::SECONDS_MAX].map(Horizon::Seconds);
            for (horizon, of) in horizons.into_iter().flat_map(|horizon| KINDS.map(|of| (horizon, of))) {
                let quantiles = SHARES.map(|share| forecaster.quantile_over(horizon, of, share));
                let quantiles: Vec<f64> = quantiles.into_iter().flatten().collect();
                prop_assert!(quantiles.iter().all(|quantile| quantile.is_finite()), "{quantiles:?}");
                prop_assert!(quantiles.is_sorted(), "{horizon:?} {quantiles:?}");
            }
            let share = forecaster.availability().and_then(Availability::probability);
            prop_assert!(share.is_none_or(|share| (0.0..=1.0).contains(&share)));
        }
    }
}
