//! Laws that hold for every preset and rule.

mod common;

use barograph_forecast::{Battery, BatteryConfig, Objective, Preset, Rule, SCORED_MIN_FOR_INTERVAL};
use common::{noise, noise_of, values};
use proptest::prelude::*;

fn configs() -> impl Iterator<Item = BatteryConfig> {
    [Preset::Nws, Preset::Classic, Preset::Full, Preset::Lean].into_iter().flat_map(|preset| {
        [Rule::TwoLevel, Rule::TwoSelectors, Rule::Blend, Rule::LeastMse, Rule::LeastMae]
            .map(|rule| BatteryConfig { preset, rule, ..BatteryConfig::default() })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Invariant 2: the reported error is the error of the forecasts that were issued, each before
    /// its value was known. All reported numbers are finite, and weights are shares.
    #[test]
    fn reported_errors_are_those_of_issued_forecasts(values in values(300)) {
        for config in configs() {
            let mut battery = Battery::new(&config);
            let mut sums = [(0.0, 0.0); 2];
            for (seen, value) in values.iter().enumerate() {
                for (objective, sum) in [Objective::Squared, Objective::Absolute].into_iter().zip(&mut sums) {
                    let Some(forecast) = battery.forecast(objective) else {
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
                    let weights = battery.weights(objective);
                    let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
                    prop_assert!((sum - 1.0).abs() < 1e-9, "{config:?} {weights:?}");
                    prop_assert!(weights.iter().all(|(_, weight)| *weight >= 0.0));
                }
                if let Some(interval) = battery.interval(0.9) {
                    prop_assert!(interval.lower <= interval.upper, "{config:?} {interval:?}");
                    prop_assert!(interval.lower.is_finite() && interval.upper.is_finite());
                }
                battery.update(*value).expect("within range");
            }
        }
    }

    /// A rejected value leaves the battery unchanged, to the bit.
    #[test]
    fn rejected_values_leave_the_battery_unchanged(values in values(300), at in 0usize..300) {
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
            for objective in [Objective::Squared, Objective::Absolute] {
                prop_assert_eq!(with.forecast(objective), without.forecast(objective));
            }
            prop_assert_eq!(with.interval(0.95), without.interval(0.95));
        }
    }

    /// Every preset and rule forecasts a constant series as the constant, from the second value on.
    #[test]
    fn a_constant_series_is_forecast_as_the_constant(value in -1e6..1e6f64, length in 2usize..200) {
        for config in configs() {
            let mut battery = Battery::new(&config);
            (0..length).for_each(|_| battery.update(value).expect("within range"));
            for objective in [Objective::Squared, Objective::Absolute] {
                let forecast = battery.forecast(objective).expect("values were seen");
                prop_assert!((forecast.value - value).abs() <= 1e-9 * value.abs(), "{config:?} {forecast:?}");
            }
        }
    }

    /// The interval of a higher level is at least as wide as the interval of a lower level. This
    /// holds for tracked and for interpolated levels.
    #[test]
    fn intervals_of_higher_levels_are_at_least_as_wide(values in values(300)) {
        let mut battery = Battery::new(&BatteryConfig::default());
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
fn a_battery_has_no_forecast_before_the_first_value_and_no_error_after_it() {
    for config in configs() {
        let mut battery = Battery::new(&config);
        assert_eq!(battery.forecast(Objective::Squared), None);
        assert_eq!(battery.interval(0.9), None);
        assert!(battery.weights(Objective::Absolute).is_empty());
        battery.update(7.5).expect("finite");
        let forecast = battery.forecast(Objective::Absolute).expect("one value was seen");
        assert_eq!((forecast.value, forecast.mae, forecast.count), (7.5, 0.0, 1));
        assert_eq!(battery.interval(0.9), None);
        assert_eq!(forecast.scored_until_interval(), Some(0));
    }
}

#[test]
fn an_interval_exists_after_ten_scored_forecasts() {
    for config in configs() {
        let mut battery = Battery::new(&config);
        let mut noise = noise();
        for count in 1..=20 {
            battery.update(noise()).expect("finite");
            let forecast = battery.forecast(Objective::Absolute).expect("values were seen");
            let scored = count - 1;
            assert_eq!(
                forecast.scored_until_interval(),
                (scored < SCORED_MIN_FOR_INTERVAL).then_some(scored),
                "{config:?}"
            );
            assert_eq!(
                battery.interval(0.9).is_some(),
                scored >= SCORED_MIN_FOR_INTERVAL,
                "{config:?} after {count}"
            );
        }
    }
}

#[test]
fn method_label_of_a_blend_names_its_largest_member() {
    for config in configs() {
        let mut battery = Battery::new(&config);
        let mut noise = noise();
        for _ in 0..50 {
            battery.update(20.0 + noise()).expect("finite");
        }
        for objective in [Objective::Squared, Objective::Absolute] {
            let forecast = battery.forecast(objective).expect("values were seen");
            let text = forecast.method_label().to_string();
            if config.rule != Rule::Blend {
                assert_eq!((text.as_str(), forecast.weight), (forecast.method.0, None));
                continue;
            }
            let weight = forecast.weight.expect("a blend has weights");
            let weights = battery.weights(objective);
            let largest = weights.iter().map(|(_, weight)| *weight).fold(0.0, f64::max);
            assert!((weight - largest).abs() < 1e-9 && weights.contains(&(forecast.method, largest)));
            let share = if weight < 0.5 { "led by" } else { "mostly" };
            assert_eq!(text, format!("blend, {share} {} {:.0} %", forecast.method, 100.0 * weight));
        }
    }
}

/// While the blend's weights are based on few values, the blend favours the method Last Value,
/// because few other methods are better on the first values.
#[test]
fn the_first_ten_forecasts_are_no_worse_than_those_of_last_value() {
    let (mut sum, mut count) = (0.0, 0.0);
    for seed in 0..200u64 {
        // Four kinds of series: noise around a level with an autocorrelation of 0, 0.5 and 0.8, and
        // a random walk in which each step partly reverses the step before.
        for (memory, persistence) in [(0.0, 0.0), (0.5, 0.0), (0.8, 0.0), (1.0, -0.3)] {
            let mut noise = noise_of(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut battery = Battery::new(&BatteryConfig::default());
            let (mut level, mut step, mut errors) = (0.0, 0.0, (0.0, 0.0));
            let mut last = None;
            for _ in 0..11 {
                step = persistence * step + noise();
                level = memory * level + step;
                let value = 100.0 + level;
                if let (Some(forecast), Some(last)) = (battery.forecast(Objective::Absolute), last) {
                    errors = (errors.0 + (forecast.value - value).abs(), errors.1 + f64::abs(last - value));
                }
                battery.update(value).expect("finite");
                last = Some(value);
            }
            (sum, count) = (sum + (errors.0 / errors.1).ln(), count + 1.0);
        }
    }
    let ratio = f64::exp(sum / count);
    assert!(ratio <= 1.0, "mean absolute error ÷ that of the last value: {ratio}");
}

#[test]
fn forecasts_and_recent_errors_forget_one_outlier() {
    for (size, near) in [(1e3, 1.0), (1e4, 1.0), (1e6, 5.0)] {
        let mut battery = Battery::new(&BatteryConfig::default());
        let mut noise = noise();
        for i in 0..3000 {
            battery.update(if i == 1000 { 20.0 * size } else { 20.0 + noise() }).expect("finite");
        }
        for objective in [Objective::Squared, Objective::Absolute] {
            let forecast = battery.forecast(objective).expect("values were seen");
            assert!((forecast.value - 20.0).abs() < near, "after ×{size}: {objective:?} {forecast:?}");
        }
        let forecast = battery.forecast(Objective::Absolute).expect("values were seen");
        assert!(forecast.recent_mae < 0.1 * forecast.mae, "after ×{size}: {forecast:?}");
    }
}

/// Checks the coverage in every block of 500 values, not only overall.
#[test]
fn intervals_keep_their_coverage_when_level_and_noise_change() {
    for level in [0.5, 0.8, 0.9, 0.95] {
        let mut battery = Battery::new(&BatteryConfig::default());
        let mut noise = noise();
        let mut inside = Vec::new();
        for i in 0..20_000u32 {
            // Every 200 values, the level changes to a value from 0 to 100, and the noise to an
            // amplitude from 1 to 16.
            let regime = f64::from((i / 200).wrapping_mul(2_654_435_761) % 101);
            let value = regime + noise() * (1.0 + regime % 16.0);
            if let Some(interval) = battery.interval(level)
                && i >= 100
            {
                inside.push(interval.lower <= value && value <= interval.upper);
            }
            battery.update(value).expect("finite");
        }
        assert!((share(&inside) - level).abs() < 0.02, "at {level}: {}", share(&inside));
        let worst = inside.chunks_exact(500).map(share).fold(1.0, f64::min);
        assert!(level - 0.06 < worst, "at {level}: {worst} in a block");
    }
}

/// After a plateau (an idle processor, no loss all night) no number is NaN, and the interval, which
/// has become almost 0 wide, becomes wide again at once.
#[test]
fn intervals_become_wide_again_after_a_plateau() {
    for length in [100, 1000, 10_000, 30_000] {
        for config in configs() {
            let mut battery = Battery::new(&config);
            let mut noise = noise();
            let mut inside = Vec::new();
            for i in 0..length + 1500 {
                let plateau = (500..500 + length).contains(&i);
                let value = if plateau { 20.0 } else { 20.0 + noise() };
                if 500 + length <= i {
                    let interval = battery.interval(0.9).expect("errors were seen");
                    inside.push(interval.lower <= value && value <= interval.upper);
                }
                battery.update(value).expect("finite");
                for objective in [Objective::Squared, Objective::Absolute] {
                    let forecast = battery.forecast(objective).expect("values were seen");
                    assert!((forecast.value - 20.0).abs() < 2.0, "{length} {config:?} at {i}: {forecast:?}");
                }
            }
            let worst = inside.chunks_exact(500).map(share).fold(1.0, f64::min);
            assert!(worst >= 0.85, "after {length}, {config:?}: {worst} in a block");
        }
    }
}

/// The level changes slowly, and is measured for 30 s of every 5 min. So the level has changed
/// after each gap.
#[test]
fn after_gaps_intervals_keep_their_coverage_and_forecasts_stay_accurate() {
    let mut battery = Battery::new(&BatteryConfig::default());
    let mut noise = noise();
    let (mut inside, mut usual, mut errors, mut last_errors) = (Vec::new(), Vec::new(), 0.0, 0.0);
    let (mut level, mut last) = (0.0, 0.0);
    for second in 0..60_000 {
        level = 0.98 * level + noise();
        let (time_s, value) = (f64::from(second), 100.0 + level + 0.1 * noise());
        if second % 300 >= 30 {
            continue;
        }
        if let Some(interval) = battery.interval_at(0.9, time_s) {
            assert_eq!(battery.is_after_gap(time_s), second % 300 == 0);
            let is_inside = interval.lower <= value && value <= interval.upper;
            if second % 300 == 0 { inside.push(is_inside) } else { usual.push(is_inside) }
        }
        if second != 0 && second % 300 == 0 {
            let forecast = battery.forecast_at(Objective::Absolute, time_s).expect("values were seen").value;
            errors += (forecast - value).abs();
            last_errors += f64::abs(last - value);
        }
        battery.update_at(value, time_s).expect("finite");
        last = value;
    }
    assert_eq!(inside.len(), 199);
    assert!((0.8..=0.97).contains(&share(&inside)), "after gaps: {}", share(&inside));
    assert!(share(&inside[..10]) >= 0.8, "after the first ten: {}", share(&inside[..10]));
    assert!((share(&usual) - 0.9).abs() < 0.02, "else: {}", share(&usual));
    assert!(errors < 0.9 * last_errors, "{errors} and {last_errors}");
}

/// Times at almost equal distances, NaN, and decreasing times give the same results as no times.
#[test]
fn times_without_gaps_give_the_same_results_as_no_times() {
    let mut batteries = [0, 1, 2, 3].map(|_| Battery::new(&BatteryConfig::default()));
    let mut noise = noise();
    for i in 0..500 {
        let value = 10.0 + noise();
        let jitter = noise();
        let times_s = [f64::from(i) + jitter / 4.0, f64::NAN, -f64::from(i)];
        for (battery, time_s) in batteries.iter_mut().zip(times_s) {
            battery.update_at(value, time_s).expect("finite");
        }
        batteries[3].update(value).expect("finite");
        for battery in &batteries[..3] {
            assert_eq!(battery.forecast(Objective::Squared), batteries[3].forecast(Objective::Squared));
            assert_eq!(battery.interval(0.9), batteries[3].interval(0.9));
        }
    }
    let is_timed = |config: &BatteryConfig| {
        matches!(config.preset, Preset::Full | Preset::Lean) && config.rule == Rule::Blend
    };
    for config in configs().filter(|config| !is_timed(config)) {
        let mut battery = Battery::new(&config);
        (0..50).for_each(|i| battery.update_at(noise(), f64::from(i)).expect("finite"));
        assert_eq!(battery.forecast_at(Objective::Squared, 1e6), battery.forecast(Objective::Squared));
        assert_eq!(battery.interval_at(0.9, 1e6), battery.interval(0.9));
    }
}

#[test]
fn forecasts_of_extreme_values_after_gaps_are_finite() {
    let mut battery = Battery::new(&BatteryConfig::default());
    for i in 0..300_u32 {
        let time_s = f64::from(i) + f64::from(i / 3) * 100.0;
        let value = [0.0, 1e-300, 1e70, -1e70, 5.0, f64::MIN_POSITIVE][(i * 7919 % 6) as usize];
        for at in [time_s, 1e300, f64::INFINITY, f64::NAN] {
            if let Some(interval) = battery.interval_at(0.9, at) {
                assert!(interval.lower.is_finite() && interval.lower <= interval.upper, "{interval:?}");
                assert!(interval.upper.is_finite());
            }
            assert!(battery.forecast_at(Objective::Squared, at).is_none_or(|next| next.value.is_finite()));
        }
        battery.update_at(value, time_s).expect("within range");
    }
}

/// The series is 0 for a long time, then has one larger value, then 0 again, as some loss rates do.
#[test]
fn forecasts_of_rare_jumps_after_a_long_plateau_are_within_the_values() {
    let mut battery = Battery::new(&BatteryConfig::default());
    let zeros = |n| std::iter::repeat_n(0.0, n);
    for value in zeros(500).chain([0.1]).chain(zeros(40_000)).chain([0.1]).chain(zeros(50)) {
        battery.update(value).expect("finite");
    }
    for (method, forecast) in battery.method_forecasts() {
        assert!((0.0..=0.1).contains(&forecast), "{method}: {forecast}");
    }
}

#[test]
fn forecasts_and_intervals_of_a_nonnegative_series_are_not_negative() {
    let mut battery = Battery::new(&BatteryConfig::default());
    let mut noise = noise();
    for i in 0..2000 {
        let burst = if i % 7 == 0 { 50.0 * (1.0 + noise()) } else { 0.0 };
        battery.update(burst).expect("finite");
        assert!(battery.method_forecasts().iter().all(|(_, forecast)| *forecast >= 0.0));
        assert!(battery.interval(0.99).is_none_or(|interval| interval.lower >= 0.0));
    }
    battery.update(-5.0).expect("finite");
    assert!(battery.interval(0.99).is_some_and(|interval| interval.lower < 0.0));
}

#[test]
fn intervals_of_untracked_levels_have_the_coverage_of_their_level() {
    let levels = [0.05, 0.3, 0.6, 0.7, 0.85, 0.93, 0.97];
    let mut battery = Battery::new(&BatteryConfig::default());
    let mut noise = noise();
    let mut inside = levels.map(|_| Vec::new());
    for i in 0..10_000 {
        // The sum of three uniform numbers is close to a normal distribution.
        let value = noise() + noise() + noise();
        for (level, inside) in levels.iter().zip(&mut inside) {
            if let Some(interval) = battery.interval(*level)
                && i >= 500
            {
                inside.push(interval.lower <= value && value <= interval.upper);
            }
        }
        battery.update(value).expect("finite");
    }
    for (level, inside) in levels.iter().zip(&inside) {
        assert!((share(inside) - level).abs() < 0.03, "at {level}: {}", share(inside));
    }
    assert_eq!(battery.interval(0.0), None);
    assert_eq!(battery.interval(0.9999), None);
    assert_eq!(battery.interval(f64::NAN), None);
}

/// Results are equal to the bit on every target, and in every version unless CHANGELOG.md says
/// otherwise. The digests (FNV-1a) are over the forecasts of every preset for one series, with each
/// rule except `mse` and `mae`, which `tests/rules.rs` recomputes. That of the presets of NWS never
/// changes.
#[test]
fn forecasts_have_the_same_bits_on_every_platform() {
    let series = include_str!("reference/series.csv").lines().skip(1);
    let values: Vec<f64> = series.filter_map(|line| line.split(',').nth(1)?.parse().ok()).collect();
    assert_eq!(values.len(), 700);
    let mut digests = [0xcbf2_9ce4_8422_2325_u64; 3];
    let is_digested = |config: &BatteryConfig| !matches!(config.rule, Rule::LeastMse | Rule::LeastMae);
    for config in configs().filter(is_digested) {
        let digest = match config.preset {
            Preset::Nws | Preset::Classic => &mut digests[0],
            Preset::Full => &mut digests[1],
            Preset::Lean => &mut digests[2],
        };
        let mut battery = Battery::new(&config);
        for value in &values {
            battery.update(*value).expect("finite");
            let forecasts = [Objective::Squared, Objective::Absolute]
                .map(|objective| battery.forecast(objective).expect("seen").value);
            let upper = battery.interval(0.9).map_or(0.0, |interval| interval.upper);
            for byte in forecasts.into_iter().chain([upper]).flat_map(f64::to_le_bytes) {
                *digest = (*digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    assert_eq!(digests, [DIGEST_NWS_CLASSIC, DIGEST_FULL, DIGEST_LEAN], "{digests:#x?}");
}

#[test]
fn the_default_battery_takes_at_most_20_kib() {
    assert!(Battery::new(&BatteryConfig::default()).size_bytes() <= 20_480);
}

const DIGEST_NWS_CLASSIC: u64 = 0x87d9_de37_8a07_2060;
const DIGEST_FULL: u64 = 0x83ed_daf4_728b_6c2b;
const DIGEST_LEAN: u64 = 0x8890_0e34_da61_3e4c;

fn share(inside: &[bool]) -> f64 {
    inside.iter().filter(|inside| **inside).count() as f64 / inside.len() as f64
}
