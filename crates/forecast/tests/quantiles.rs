//! Laws of the quantiles of the next value.

mod common;

use barograph_forecast::{
    Battery, BatteryConfig, Objective, Preset, QUANTILE_RANGE, QuantileForecaster, QuantileMethod, Rule,
};
use common::values;
use proptest::prelude::*;

const METHODS: [QuantileMethod; 2] = [QuantileMethod::Tracked, QuantileMethod::Blended];
/// Shares with an own calibration, and shares between and beyond them.
const SHARES: [f64; 13] = [0.005, 0.01, 0.03, 0.05, 0.1, 0.25, 0.4, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995];

/// A battery and the quantiles beside it.
#[derive(Clone)]
struct Series {
    battery: Battery,
    quantiles: QuantileForecaster,
}

impl Series {
    fn new(method: QuantileMethod) -> Self {
        Self { battery: Battery::new(&BatteryConfig::default()), quantiles: QuantileForecaster::new(method) }
    }

    fn update(&mut self, value: f64) {
        self.battery.update(value).expect("within range");
        self.quantiles.update(&self.battery, value, false);
    }

    fn update_at(&mut self, value: f64, time_s: f64) {
        let is_after_gap = self.battery.is_after_gap(time_s);
        self.battery.update_at(value, time_s).expect("within range");
        self.quantiles.update(&self.battery, value, is_after_gap);
    }

    fn all(&self) -> Option<Vec<f64>> {
        SHARES.iter().map(|share| self.quantiles.quantile(*share)).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn quantiles_are_finite_and_in_ascending_order(values in values(400)) {
        for method in METHODS {
            let mut series = Series::new(method);
            for (seen, value) in values.iter().enumerate() {
                let quantiles = series.all();
                prop_assert_eq!(quantiles.is_some(), 11 <= seen, "{:?} after {}", method, seen);
                if let Some(quantiles) = quantiles {
                    prop_assert!(quantiles.iter().all(|quantile| quantile.is_finite()), "{quantiles:?}");
                    prop_assert!(quantiles.is_sorted(), "{method:?} after {seen}: {quantiles:?}");
                }
                series.update(*value);
            }
        }
    }

    /// Invariant: a forecast depends on the values before it alone.
    #[test]
    fn equal_values_give_equal_quantiles(values in values(400), end in 0usize..400) {
        for method in METHODS {
            let (mut whole, mut part) = (Series::new(method), Series::new(method));
            let mut at_end = None;
            for (seen, value) in values.iter().enumerate() {
                if seen == end {
                    at_end = Some(whole.all());
                }
                whole.update(*value);
            }
            values.iter().take(end).for_each(|value| part.update(*value));
            prop_assert!(at_end.is_none_or(|quantiles| quantiles == part.all()));
        }
    }
}

#[test]
fn quantiles_of_a_skewed_series_have_their_share_of_the_values_below() {
    for method in METHODS {
        let (mut series, mut noise) = (Series::new(method), noise());
        let mut below = SHARES.map(|_| 0.0);
        for i in 0..10_100 {
            // Exponential noise: the median is 0.7, the 99 % quantile 4.6.
            let value = 20.0 - noise().ln();
            if let (Some(quantiles), true) = (series.all(), 100 <= i) {
                for (below, quantile) in below.iter_mut().zip(quantiles) {
                    *below += f64::from(u8::from(value < quantile)) / 10_000.0;
                }
            }
            series.update(value);
        }
        for (share, below) in SHARES.iter().zip(below) {
            let allowed = if (0.05..=0.95).contains(share) { 0.01 } else { 0.005 };
            // Interpolated shares are less exact.
            let allowed = if [0.03, 0.4].contains(share) { 0.02 } else { allowed };
            assert!((below - share).abs() <= allowed, "{method:?} at {share}: {below}");
        }
    }
}

/// The level changes slowly, is measured for 30 s of every 5 min, and has changed after each gap.
#[test]
fn quantiles_after_gaps_are_those_of_the_battery() {
    let (mut series, mut noise) = (Series::new(QuantileMethod::Blended), noise());
    let (mut level, mut below, mut count) = (0.0, [0.0; 2], 0.0);
    for second in 0..60_000 {
        level = 0.98 * level + 2.0 * noise() - 1.0;
        let (time_s, value) = (f64::from(second), 100.0 + level);
        if second % 300 >= 30 {
            continue;
        }
        if series.battery.is_after_gap(time_s) {
            let quantile = |share| series.quantiles.quantile_at(&series.battery, share, time_s);
            let interval = series.battery.interval_at(0.8, time_s).expect("errors were scored");
            assert_eq!((quantile(0.1), quantile(0.9)), (Some(interval.lower), Some(interval.upper)));
            let median = series.battery.forecast_at(Objective::Absolute, time_s).expect("values were seen");
            assert_eq!(quantile(0.5), Some(median.value));
            count += 1.0;
            for (below, share) in below.iter_mut().zip([0.1, 0.9]) {
                *below += f64::from(u8::from(quantile(share).is_some_and(|quantile| value < quantile)));
            }
        } else {
            let quantile = series.quantiles.quantile_at(&series.battery, 0.9, time_s);
            assert_eq!(quantile, series.quantiles.quantile(0.9));
        }
        series.update_at(value, time_s);
    }
    assert_eq!(count, 199.0);
    for (below, share) in below.iter().zip([0.1, 0.9]) {
        assert!((below / count - share).abs() < 0.08, "at {share}: {}", below / count);
    }
}

#[test]
fn quantiles_of_a_nonnegative_series_are_not_negative() {
    for method in METHODS {
        let (mut series, mut noise) = (Series::new(method), noise());
        for i in 0..2000 {
            series.update(if i % 7 == 0 { 100.0 * noise() } else { 0.0 });
            assert!(series.all().is_none_or(|quantiles| quantiles[0] >= 0.0));
        }
        series.update(-5.0);
        assert!(series.all().is_some_and(|quantiles| quantiles[0] < 0.0));
    }
}

/// On a plateau the quantiles, which are 2 apart before, shrink to the constant. After the plateau
/// they become wide again at once, and their coverage is right again within some hundred values.
#[test]
fn quantiles_become_wide_again_after_a_plateau() {
    let plateaus = [(100, 1.5), (30_000, 0.1)];
    for (method, (length, most)) in
        METHODS.into_iter().flat_map(|method| plateaus.map(|plateau| (method, plateau)))
    {
        let (mut series, mut noise) = (Series::new(method), noise());
        let (mut below, mut widest): (_, f64) = ([0.0; 2], 0.0);
        for i in 0..length + 2000 {
            let is_plateau = (500..500 + length).contains(&i);
            let value = if is_plateau { 20.0 } else { 19.0 + 2.0 * noise() };
            if i == 499 + length {
                let quantiles = series.all().expect("errors were scored");
                assert!(quantiles[12] - quantiles[0] < most, "{method:?} {length}: {quantiles:?}");
            }
            if 500 + length <= i {
                for (below, share) in below.iter_mut().zip([0.1, 0.9]) {
                    let quantile = series.quantiles.quantile(share).expect("errors were scored");
                    widest = widest.max((quantile - 20.0).abs());
                    *below += f64::from(u8::from(value < quantile)) / 1500.0;
                }
            }
            series.update(value);
        }
        for (below, share) in below.iter().zip([0.1, 0.9]) {
            assert!((below - share).abs() < 0.05, "{method:?} {length} at {share}: {below}");
        }
        assert!(widest < 20.0, "{method:?} {length}: {widest}");
    }
}

#[test]
fn one_outlier_is_forgotten() {
    for method in METHODS {
        let (mut series, mut noise) = (Series::new(method), noise());
        for i in 0..3000 {
            series.update(if i == 1000 { 2e7 } else { 20.0 + noise() });
        }
        let quantiles = series.all().expect("errors were scored");
        assert!((19.0..22.0).contains(&quantiles[0]) && quantiles[12] < 24.0, "{method:?} {quantiles:?}");
    }
}

#[test]
fn every_preset_and_rule_has_quantiles() {
    for preset in [Preset::Nws, Preset::Classic, Preset::Full] {
        for rule in [Rule::TwoLevel, Rule::TwoSelectors, Rule::Blend] {
            let config = BatteryConfig { preset, rule, levels: vec![0.97, 0.8] };
            let mut battery = Battery::new(&config);
            let mut quantiles = QuantileForecaster::new(QuantileMethod::Blended);
            let mut noise = noise();
            for _ in 0..500 {
                let value = 20.0 + noise();
                battery.update(value).expect("within range");
                quantiles.update(&battery, value, false);
            }
            let quantile = |share| quantiles.quantile(share).expect("errors were scored");
            assert!((quantile(0.1) - 20.1).abs() < 0.15, "{config:?}: {}", quantile(0.1));
            assert!((quantile(0.9) - 20.9).abs() < 0.15, "{config:?}: {}", quantile(0.9));
        }
    }
}

#[test]
fn shares_out_of_range_have_no_quantile() {
    let (mut series, mut noise) = (Series::new(QuantileMethod::Tracked), noise());
    (0..100).for_each(|_| series.update(noise()));
    for share in [0.0, 0.0049, 0.9951, 1.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(series.quantiles.quantile(share), None);
    }
    assert!(QUANTILE_RANGE.contains(&0.005) && series.quantiles.quantile(0.005).is_some());
}

#[test]
fn updates_and_queries_allocate_nothing() {
    for method in METHODS {
        let (mut series, mut noise) = (Series::new(method), noise());
        (0..300).for_each(|_| series.update(noise()));
        let info = allocation_counter::measure(|| {
            for _ in 0..10_000 {
                series.update(noise());
                std::hint::black_box(SHARES.map(|share| series.quantiles.quantile(share)));
            }
        });
        assert_eq!(info.count_total, 0, "{method:?}");
    }
    assert!(QuantileForecaster::new(QuantileMethod::Tracked).size_bytes() <= 256);
    assert!(QuantileForecaster::new(QuantileMethod::Blended).size_bytes() <= 9 * 1024);
}

/// Results are equal to the bit on every target, and in every version unless CHANGELOG.md says
/// otherwise. The digest (FNV-1a) is over the quantiles of both methods for one series, and over
/// the preset `nws`. Its forecasts never change.
#[test]
fn quantiles_have_the_same_bits_on_every_platform() {
    let lines = include_str!("reference/series.csv").lines().skip(1);
    let values: Vec<f64> = lines.filter_map(|line| line.split(',').nth(1)?.parse().ok()).collect();
    let config = BatteryConfig { preset: Preset::Nws, rule: Rule::TwoLevel, ..BatteryConfig::default() };
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    for method in METHODS {
        let mut battery = Battery::new(&config);
        let mut quantiles = QuantileForecaster::new(method);
        for value in &values {
            battery.update(*value).expect("finite");
            quantiles.update(&battery, *value, false);
            for quantile in SHARES.iter().filter_map(|share| quantiles.quantile(*share)) {
                for byte in quantile.to_le_bytes() {
                    digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
                }
            }
        }
    }
    assert_eq!(digest, DIGEST, "{digest:#x}");
}

const DIGEST: u64 = 0x27e8_909c_c75f_6300;

/// Uniform noise, above 0 and at most 1, from a fixed generator (Knuth's MMIX).
fn noise() -> impl FnMut() -> f64 {
    let mut state = 7_u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 11) as f64 + 1.0) / (1u64 << 53) as f64
    }
}
