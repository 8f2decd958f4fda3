//! Laws of horizons in seconds, of sampled horizons, and of horizons that are interpolated.

mod common;

use barograph_forecast::{
    Forecaster, ForecasterConfig, Horizon, HorizonBasis, HorizonConfig, HorizonOf, Objective, QuantileMethod,
};
use common::noise;

const KINDS: [HorizonOf; 2] = [HorizonOf::Mean, HorizonOf::Value];

fn forecaster(horizons: &[HorizonConfig]) -> Forecaster {
    let config = ForecasterConfig { horizons: horizons.to_vec(), ..ForecasterConfig::default() };
    Forecaster::new(&config).expect("valid horizons")
}

#[test]
fn seconds_are_values_on_a_regular_grid_with_jitter() {
    let (steps, seconds) = (Horizon::Steps(6), Horizon::Seconds(60.0));
    let mut in_steps = forecaster(&[HorizonConfig::exact(steps)]);
    let mut in_seconds = forecaster(&[HorizonConfig::exact(seconds)]);
    let mut noise = noise();
    for n in 0..2000_u32 {
        let (value, jitter) = (20.0 + noise(), 2.0 * noise());
        in_steps.update(value).expect("within range");
        in_seconds.update_at(value, 10.0 * f64::from(n) + jitter).expect("within range");
    }
    for of in KINDS {
        let steps = in_steps.forecast_over(steps, of, Objective::Absolute).expect("values");
        let seconds = in_seconds.forecast_over(seconds, of, Objective::Absolute).expect("values with times");
        // The first six values have no known period.
        assert!(steps.scored - seconds.scored < 8, "{steps:?} {seconds:?}");
        assert!((steps.value - seconds.value).abs() < 0.05, "{steps:?} {seconds:?}");
        assert!((steps.mae / seconds.mae - 1.0).abs() < 0.02, "{steps:?} {seconds:?}");
    }
}

#[test]
fn windows_with_gaps_and_clock_jumps_are_not_scored() {
    let horizon = Horizon::Seconds(50.0);
    let mut forecaster = forecaster(&[HorizonConfig::exact(horizon)]);
    let scored = |forecaster: &Forecaster, of| {
        forecaster.forecast_over(horizon, of, Objective::Squared).map_or(0, |forecast| forecast.scored)
    };
    for n in 0..100_u32 {
        forecaster.update_at(1.0, 10.0 * f64::from(n)).expect("within range");
    }
    let before = KINDS.map(|of| scored(&forecaster, of));
    // A gap: the windows that are over have no value in their last part, or none at all.
    forecaster.update_at(1.0, 10_000.0).expect("within range");
    assert!(KINDS.map(|of| scored(&forecaster, of))[1] == before[1], "the value came too late");
    let between = KINDS.map(|of| scored(&forecaster, of));
    assert!(between[0] - before[0] <= 4, "windows with at least half of their values");
    // A jump back drops what waits.
    for (n, time_s) in [500.0, 500.0, f64::NAN, 510.0, f64::INFINITY, -1e300].into_iter().enumerate() {
        forecaster.update_at(n as f64, time_s).expect("within range");
    }
    assert_eq!(KINDS.map(|of| scored(&forecaster, of)), between);
    for n in 0..100_u32 {
        forecaster.update_at(1.0, 10.0 * f64::from(n)).expect("within range");
    }
    assert!(KINDS.iter().all(|of| scored(&forecaster, *of) > between[0] + 50));
}

#[test]
fn sampled_horizons_forecast_almost_as_well_as_exact_ones() {
    let horizon = Horizon::Steps(30);
    let mut exact = forecaster(&[HorizonConfig::exact(horizon)]);
    let mut sampled = forecaster(&[HorizonConfig::sampled(horizon)]);
    let (mut noise, mut level) = (noise(), 0.0);
    for _ in 0..20_000 {
        level = 0.98 * level + 0.1 * noise();
        for forecaster in [&mut exact, &mut sampled] {
            forecaster.update(20.0 + level + noise()).expect("within range");
        }
    }
    for of in KINDS {
        let [exact, sampled] = [&exact, &sampled]
            .map(|forecaster| forecaster.forecast_over(horizon, of, Objective::Absolute).expect("values"));
        assert!(sampled.scored < exact.scored / 3, "{}", sampled.scored);
        assert!((sampled.mae / exact.mae - 1.0).abs() < 0.05, "{sampled:?} {exact:?}");
    }
    assert!(sampled.size_bytes() < exact.size_bytes());
}

#[test]
fn horizons_that_are_not_kept_are_interpolated() {
    let kept = [Horizon::Steps(5), Horizon::Steps(20)];
    let mut forecaster = forecaster(&kept.map(HorizonConfig::exact));
    let (mut noise, mut level) = (noise(), 0.0);
    for _ in 0..3000 {
        level = 0.95 * level + noise();
        forecaster.update(level).expect("within range");
    }
    for of in KINDS {
        let read = |steps| {
            let horizon = Horizon::Steps(steps);
            let forecast = forecaster.forecast_over(horizon, of, Objective::Absolute).expect("values");
            let interval = forecaster.interval_over(horizon, of, 0.9).expect("calibrated");
            (forecast, interval.upper - interval.lower)
        };
        let (five, ten, twenty, forty) = (read(5), read(10), read(20), read(40));
        assert_eq!(five.0.basis, HorizonBasis::Own);
        assert_eq!(ten.0.basis, HorizonBasis::Between { shorter: 5.0, longer: 20.0 });
        assert_eq!(read(2).0.basis, HorizonBasis::Between { shorter: 1.0, longer: 5.0 });
        assert_eq!(forty.0.basis, HorizonBasis::Beyond { longest: 20.0 });
        assert!((ten.1 - (five.1 * twenty.1).sqrt()).abs() < 1e-9 * ten.1, "half of the way from 5 to 20");
        let (low, high) = (five.0.value.min(twenty.0.value), five.0.value.max(twenty.0.value));
        assert!(low <= ten.0.value && ten.0.value <= high);
        assert!(forty.1 >= twenty.1);
    }
}

/// Half-widths of the means of `lengths` values at 90 %, and the shares of such means inside their
/// intervals, for a ladder that ends at five values.
fn means_beyond_five(values: &[f64], lengths: [usize; 2]) -> [(f64, f64); 2] {
    let mut forecaster = forecaster(&[HorizonConfig::exact(Horizon::Steps(5))]);
    let (mut inside, mut widths) = ([0.0; 2], [0.0; 2]);
    let scored = 200..values.len() - 120;
    for (n, value) in values.iter().enumerate() {
        forecaster.update(*value).expect("within range");
        for (i, length) in lengths.into_iter().enumerate().filter(|_| scored.contains(&n)) {
            let horizon = Horizon::Steps(u32::try_from(length).expect("short"));
            let interval = forecaster.interval_over(horizon, HorizonOf::Mean, 0.9).expect("calibrated");
            let mean = values[n + 1..=n + length].iter().sum::<f64>() / length as f64;
            inside[i] += f64::from(u8::from(interval.lower <= mean && mean <= interval.upper));
            widths[i] += interval.upper - interval.lower;
        }
    }
    let count = scored.len() as f64;
    [0, 1].map(|i| (widths[i] / count, inside[i] / count))
}

#[test]
fn beyond_the_ladder_the_interval_of_a_mean_grows_for_a_random_walk_and_hardly_for_noise() {
    let (mut noise, mut level) = (noise(), 0.0);
    let white: Vec<f64> = (0..8000).map(|_| 1000.0 + noise()).collect();
    let walk: Vec<f64> = (0..8000)
        .map(|_| {
            level += noise();
            1000.0 + level
        })
        .collect();
    let [(white_5, _), (white_120, held)] = means_beyond_five(&white, [5, 120]);
    assert!(white_120 < 1.1 * white_5 && 0.99 < held, "{white_5} {white_120} {held}");
    let [(walk_30, held_30), (walk_120, held_120)] = means_beyond_five(&walk, [30, 120]);
    assert!(1.6 * walk_30 < walk_120 && walk_120 < 2.1 * walk_30, "{walk_30} {walk_120}");
    assert!(0.85 < held_30 && 0.85 < held_120, "{held_30} {held_120}");
}

#[test]
fn intervals_beyond_the_ladder_contain_those_of_lower_levels_and_have_a_limit() {
    let forecasters = [&[][..], &[Horizon::Steps(5)], &[Horizon::Steps(2), Horizon::Steps(5)]]
        .map(|kept| forecaster(&kept.iter().copied().map(HorizonConfig::exact).collect::<Vec<_>>()));
    for mut forecaster in forecasters {
        let (mut noise, mut level) = (noise(), 0.0);
        for _ in 0..1000 {
            level = 0.9 * level + noise();
            forecaster.update(level).expect("within range");
        }
        let widths = |steps: u32| {
            [0.3, 0.5, 0.8, 0.9, 0.95, 0.99].map(|level| {
                let interval = forecaster.interval_over(Horizon::Steps(steps), HorizonOf::Mean, level);
                interval.map(|interval| interval.upper - interval.lower).expect("calibrated")
            })
        };
        let mut before = widths(5);
        for steps in [6, 12, 40, 1000, Horizon::STEPS_MAX] {
            let wider = widths(steps);
            assert!(wider.is_sorted(), "{steps}: {wider:?}");
            assert!(before.iter().zip(wider).all(|(before, wider)| *before <= wider), "{before:?} {wider:?}");
            before = wider;
        }
        assert_eq!(widths(500_000), widths(Horizon::STEPS_MAX), "values are not further apart");
    }
}

/// Without a kept horizon, the errors of the next value are the only ones.
#[test]
fn without_a_ladder_the_interval_of_a_mean_widens_like_a_random_walk() {
    let mut forecaster = forecaster(&[]);
    let (mut noise, mut level) = (noise(), 0.0);
    for _ in 0..1000 {
        level = 0.99 * level + noise();
        forecaster.update(1000.0 + level).expect("within range");
    }
    let width = |steps| {
        let horizon = Horizon::Steps(steps);
        let forecast = forecaster.forecast_over(horizon, HorizonOf::Mean, Objective::Absolute);
        let basis = if steps == 1 { HorizonBasis::Own } else { HorizonBasis::Beyond { longest: 1.0 } };
        assert_eq!(forecast.expect("values").basis, basis);
        let interval = forecaster.interval_over(horizon, HorizonOf::Mean, 0.9).expect("calibrated");
        interval.upper - interval.lower
    };
    assert!((width(4) - 2.0 * width(1)).abs() < 1e-9, "{} {}", width(1), width(4));
}

#[test]
fn a_station_ladder_answers_in_seconds_and_in_values() {
    let rungs = [60.0, 300.0, 900.0].map(|seconds| HorizonConfig::sampled(Horizon::Seconds(seconds)));
    let mut forecaster = forecaster(&rungs);
    let mut noise = noise();
    for n in 0..2000_u32 {
        forecaster.update_at(5.0 + noise(), 10.0 * f64::from(n)).expect("within range");
    }
    assert_eq!(forecaster.period_s(), Some(10.0));
    let basis = |horizon| {
        let forecast = forecaster.forecast_over(horizon, HorizonOf::Mean, Objective::Squared);
        forecast.expect("values with times").basis
    };
    assert_eq!(basis(Horizon::Seconds(300.0)), HorizonBasis::Own);
    assert_eq!(basis(Horizon::Steps(30)), HorizonBasis::Own, "30 values are 300 s");
    assert_eq!(basis(Horizon::Seconds(10.0)), HorizonBasis::Own, "the next value");
    assert_eq!(basis(Horizon::Seconds(120.0)), HorizonBasis::Between { shorter: 6.0, longer: 30.0 });
    assert_eq!(basis(Horizon::Seconds(3600.0)), HorizonBasis::Beyond { longest: 90.0 });
}

#[test]
fn updates_and_forecasts_do_not_allocate_after_warm_up() {
    let horizons = [
        HorizonConfig::exact(Horizon::Steps(20)),
        HorizonConfig::sampled(Horizon::Seconds(300.0)),
        HorizonConfig::exact(Horizon::Seconds(200.0)),
    ];
    let mut forecaster = forecaster(&horizons);
    let mut noise = noise();
    let mut time_s = 0.0;
    let mut update = |forecaster: &mut Forecaster| {
        time_s += 10.0;
        forecaster.update_at(5.0 + noise(), time_s).expect("within range");
        for of in KINDS {
            for horizon in [Horizon::Steps(20), Horizon::Seconds(100.0)] {
                std::hint::black_box(forecaster.forecast_over(horizon, of, Objective::Squared));
                std::hint::black_box(forecaster.interval_over(horizon, of, 0.9));
            }
        }
    };
    (0..200).for_each(|_| update(&mut forecaster));
    let bytes = forecaster.size_bytes();
    let counted = allocation_counter::measure(|| (0..10_000).for_each(|_| update(&mut forecaster)));
    assert_eq!((counted.count_total, forecaster.size_bytes()), (0, bytes));
}

#[test]
fn a_burst_at_the_start_does_not_decide_how_many_values_a_horizon_has() {
    let horizon = Horizon::Seconds(300.0);
    let mut forecaster = forecaster(&[HorizonConfig::exact(horizon)]);
    let (mut noise, mut time_s) = (noise(), 0.0);
    let (mut values, mut issued) = (Vec::new(), Vec::new());
    for n in 0..6000 {
        time_s += if n < 10 { 0.1 } else { 10.0 };
        let value = 5.0 + noise();
        forecaster.update_at(value, time_s).expect("within range");
        values.push(value);
        issued.push(forecaster.interval_over(horizon, HorizonOf::Mean, 0.9));
    }
    let inside: Vec<bool> = (100..values.len() - 30)
        .filter_map(|at| {
            let mean = values[at + 1..=at + 30].iter().sum::<f64>() / 30.0;
            issued[at].map(|interval| interval.lower <= mean && mean <= interval.upper)
        })
        .collect();
    let share = inside.iter().filter(|inside| **inside).count() as f64 / inside.len() as f64;
    assert!(inside.len() > 5700 && (0.88..=0.92).contains(&share), "{share} of {}", inside.len());
}

#[test]
fn kept_horizons_are_listed_and_short_times_are_the_next_value() {
    let kept = [Horizon::Seconds(300.0), Horizon::Steps(5), Horizon::Seconds(5.0)];
    let mut forecaster =
        forecaster(&[Horizon::Steps(1), kept[0], kept[1], kept[2]].map(HorizonConfig::sampled));
    assert_eq!(forecaster.horizons().collect::<Vec<_>>(), kept);
    let mut noise = noise();
    for n in 0..200_u32 {
        forecaster.update_at(5.0 + noise(), 10.0 * f64::from(n)).expect("within range");
    }
    for (of, seconds) in KINDS.into_iter().flat_map(|of| [1e-300, 5.0, 10.0, 14.9].map(|s| (of, s))) {
        let horizon = Horizon::Seconds(seconds);
        let next = forecaster.forecast_over(Horizon::Steps(1), of, Objective::Absolute);
        assert_eq!(forecaster.forecast_over(horizon, of, Objective::Absolute), next);
        assert_eq!(forecaster.interval_over(horizon, of, 0.9), forecaster.battery().interval(0.9));
    }
}

/// The memory has the bounds of the configuration, whatever the times are.
#[test]
fn a_burst_of_values_does_not_fill_the_memory() {
    let kept =
        [HorizonConfig::sampled(Horizon::Seconds(3600.0)), HorizonConfig::exact(Horizon::Seconds(60.0))];
    for period_s in [5e-324, 1e-300, 1e-6, 0.0, -1.0, 1e300] {
        let mut forecaster = forecaster(&kept);
        let (mut noise, mut time_s) = (noise(), 0.0);
        for _ in 0..10_000_u32 {
            time_s += period_s;
            forecaster.update_at(5.0 + noise(), time_s).expect("within range");
            for of in KINDS {
                let forecast = forecaster.forecast_over(Horizon::Seconds(3600.0), of, Objective::Squared);
                assert!(forecast.is_none_or(|f| (4.0..=6.0).contains(&f.value)), "{period_s}: {forecast:?}");
            }
        }
        assert!(forecaster.size_bytes() < 2_000_000, "{period_s}: {}", forecaster.size_bytes());
    }
}

/// A horizon has so many values then that the number is infinite without a bound of the period.
#[test]
fn forecasts_are_finite_after_a_burst_without_measurable_periods() {
    let horizon = Horizon::Seconds(60.0);
    let mut forecaster = forecaster(&[HorizonConfig::exact(horizon)]);
    let mut noise = noise();
    let times = (0..40).map(|n| 5e-324 * f64::from(n)).chain((1..200).map(|n| 60.0 * f64::from(n)));
    for time_s in times {
        forecaster.update_at(5.0 + noise(), time_s).expect("within range");
        for of in KINDS {
            let forecast = forecaster.forecast_over(horizon, of, Objective::Absolute);
            assert!(forecast.is_none_or(|f| (4.0..=6.0).contains(&f.value)), "{time_s}: {forecast:?}");
            let interval = forecaster.interval_over(horizon, of, 0.9);
            assert!(interval.is_none_or(|i| i.upper.is_finite()), "{time_s}: {interval:?}");
        }
    }
}

/// On a plateau the steps fade to 0. After it, the errors are soon nearly those of the mean.
#[test]
fn forecasts_are_useful_after_a_long_plateau() {
    let horizon = Horizon::Steps(10);
    for length in [1000, 8000, 30_000] {
        let mut forecaster = forecaster(&[HorizonConfig::exact(horizon)]);
        let (mut noise, mut values, mut issued) = (noise(), Vec::new(), Vec::new());
        for i in 0..length + 1500 {
            let value = if (500..500 + length).contains(&i) { 20.0 } else { 20.0 + noise() };
            forecaster.update(value).expect("within range");
            values.push(value);
            issued.push(
                forecaster.forecast_over(horizon, HorizonOf::Mean, Objective::Squared).expect("values"),
            );
        }
        let (mut squared, mut least) = (0.0, 0.0);
        for at in length + 600..length + 1480 {
            let mean = values[at + 1..at + 11].iter().sum::<f64>() / 10.0;
            squared += (issued[at].value - mean).powi(2);
            least += (20.0 - mean).powi(2);
        }
        assert!(squared < 1.5 * least, "{length}: {}", squared / least);
    }
}

/// On a plateau the intervals and quantiles shrink. After it they soon hold their share again.
#[test]
fn intervals_and_quantiles_at_a_horizon_become_wide_again_after_a_plateau() {
    let horizon = Horizon::Steps(10);
    for length in [300, 3000, 20_000] {
        let horizons = vec![HorizonConfig::exact(horizon)];
        let quantiles = Some(QuantileMethod::Tracked);
        let config = ForecasterConfig { horizons, quantiles, ..ForecasterConfig::default() };
        let mut forecaster = Forecaster::new(&config).expect("valid");
        let (mut noise, mut values, mut issued) = (noise(), Vec::new(), Vec::new());
        for i in 0..length + 3000 {
            let value = if (500..500 + length).contains(&i) { 20.0 } else { 20.0 + noise() };
            forecaster.update(value).expect("within range");
            values.push(value);
            issued.push(KINDS.map(|of| {
                let interval = forecaster.interval_over(horizon, of, 0.8);
                let quantile = |share| forecaster.quantile_over(horizon, of, share);
                (interval, [quantile(0.1), quantile(0.9)])
            }));
        }
        for of in KINDS {
            let (mut inside, mut below, mut count) = (0.0, [0.0; 2], 0.0);
            for at in length + 600..length + 2900 {
                let target = match of {
                    HorizonOf::Mean => values[at + 1..=at + 10].iter().sum::<f64>() / 10.0,
                    HorizonOf::Value => values[at + 10],
                };
                let (interval, quantiles) = issued[at][of as usize];
                let interval = interval.expect("calibrated");
                inside += f64::from(u8::from(interval.lower <= target && target <= interval.upper));
                for (below, quantile) in below.iter_mut().zip(quantiles) {
                    *below += f64::from(u8::from(target < quantile.expect("calibrated")));
                }
                count += 1.0;
            }
            let shares = [inside, below[0], below[1]].map(|sum| sum / count);
            for (share, expected) in shares.into_iter().zip([0.8, 0.1, 0.9]) {
                assert!((share - expected).abs() < 0.08, "{length} {of:?}: {shares:?}");
            }
        }
    }
}
