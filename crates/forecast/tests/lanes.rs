//! Four series side by side give the results of four batteries, to the bit.

use barograph_forecast::{Battery, BatteryConfig, NwsLanes, Objective, Preset, Rule};
use proptest::prelude::*;

const LEVELS: [f64; 2] = [0.25, 0.9];

fn batteries() -> [Battery; 4] {
    let config = BatteryConfig { preset: Preset::Nws, rule: Rule::TwoLevel, levels: LEVELS.to_vec() };
    [(); 4].map(|()| Battery::new(&config))
}

fn assert_equal(lanes: &NwsLanes, batteries: &[Battery; 4], step: usize) {
    for (lane, battery) in batteries.iter().enumerate() {
        for objective in [Objective::Squared, Objective::Absolute] {
            let (ours, theirs) = (lanes.forecast(lane, objective), battery.forecast(objective));
            assert_eq!(ours, theirs, "lane {lane}, step {step}");
            let bits = |forecast: Option<barograph_forecast::Forecast>| {
                forecast.map(|f| [f.value, f.mse, f.mae, f.recent_mse, f.recent_mae].map(f64::to_bits))
            };
            assert_eq!(bits(ours), bits(theirs), "lane {lane}, step {step}");
        }
        for level in [0.25, 0.5, 0.7, 0.9, 0.95, 0.0, 1.0] {
            let (ours, theirs) = (lanes.interval(lane, level), battery.interval(level));
            assert_eq!(ours, theirs, "lane {lane}, step {step}");
            let bits = |interval: Option<barograph_forecast::Interval>| {
                interval.map(|interval| [interval.lower, interval.upper].map(f64::to_bits))
            };
            assert_eq!(bits(ours), bits(theirs), "lane {lane}, step {step}");
        }
    }
}

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => 0.0..100.0f64,
        3 => (0u8..4).prop_map(f64::from),
        1 => prop::sample::select(vec![0.0, -0.0, 1e-300, -1e-9, 1e9, 1e70, -1e70, f64::MIN_POSITIVE]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// After enough values in each lane, values are sometimes missing.
    #[test]
    fn lanes_equal_four_batteries(
        steps in prop::collection::vec((prop::array::uniform4(value()), 0u8..64), 150..500)
    ) {
        let (mut lanes, mut batteries) = (NwsLanes::new(&LEVELS), batteries());
        for (step, (values, present)) in steps.iter().enumerate() {
            // In three of four steps, all values are present.
            let present = if present & 0x30 == 0 { *present } else { 0xf };
            let values: [Option<f64>; 4] =
                std::array::from_fn(|lane| (present >> lane & 1 == 1).then_some(values[lane]));
            lanes.update(values).expect("within range");
            for (battery, value) in batteries.iter_mut().zip(values) {
                if let Some(value) = value {
                    battery.update(value).expect("within range");
                }
            }
            assert_equal(&lanes, &batteries, step);
        }
    }
}

/// Long series of different kinds: noise, a plateau, a rising level, and rare outliers.
#[test]
fn long_series_with_plateaus_and_outliers_are_equal() {
    let (mut lanes, mut batteries) = (NwsLanes::new(&LEVELS), batteries());
    let mut state = 7u64;
    let mut noise = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    for step in 0..8_000 {
        let is_plateau = (2_000..4_500).contains(&step);
        let values = [
            20.0 + noise(),
            if is_plateau { 20.0 } else { 20.0 + noise() },
            f64::from(step as u32) * 0.01 - 10.0 + noise(),
            if noise() < 0.003 { 1e6 * noise() } else { noise().powi(3) },
        ];
        lanes.update(values.map(Some)).expect("finite");
        for (battery, value) in batteries.iter_mut().zip(values) {
            battery.update(value).expect("finite");
        }
        if step % 7 == 0 || step < 300 {
            assert_equal(&lanes, &batteries, step);
        }
    }
    assert!(lanes.size_bytes() < 4 * batteries[0].size_bytes() + 1_000, "{}", lanes.size_bytes());
}

#[test]
fn a_rejected_value_leaves_all_lanes_unchanged() {
    for length in [50, 200] {
        let (mut lanes, mut batteries) = (NwsLanes::new(&LEVELS), batteries());
        for step in 0..length {
            let values = [0.0, 1.0, 2.0, 3.0].map(|lane| lane + f64::from(step % 5));
            assert!(lanes.update([Some(1.0), Some(f64::NAN), None, Some(1e71)]).is_err());
            lanes.update(values.map(Some)).expect("finite");
            lanes.update([None; 4]).expect("no value is refused");
            for (battery, value) in batteries.iter_mut().zip(values) {
                battery.update(value).expect("finite");
            }
        }
        assert_equal(&lanes, &batteries, length as usize);
        assert_eq!(lanes.forecast(4, Objective::Squared), None);
        assert_eq!(lanes.interval(4, 0.9), None);
    }
}
