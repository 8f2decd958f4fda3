//! Forecasts of Barograph and of simpler forecasters, each issued after one value of a trace.

use barograph_forecast::{
    Battery, BatteryConfig, Forecaster, ForecasterConfig, Horizon, HorizonConfig, HorizonOf, Objective,
    Preset, QuantileMethod, Rule,
};
use barograph_study::input::Sample;

use super::score::{Issued, LEVEL, SHARES};
use crate::error_window::ErrorWindow;
use crate::stats::{EWMA_GAIN, Rank, mean, quantile, sorted};

/// Point forecasts for squared and for absolute error, after each value.
pub(super) type Points = Vec<[f64; 2]>;

/// A forecast after each value; `None` before there are intervals.
type AllIssued = Vec<Option<Issued>>;

/// Barograph's forecasts for both kinds of target, and its forecasts of the next value; `None` if a
/// value is refused.
pub(super) fn ours(samples: &[Sample], steps: usize) -> Option<([(HorizonOf, AllIssued); 2], Points)> {
    let horizon = Horizon::Steps(u32::try_from(steps).ok()?);
    let horizons = if steps == 1 { Vec::new() } else { vec![HorizonConfig::exact(horizon)] };
    let battery = BatteryConfig { levels: vec![LEVEL], ..BatteryConfig::default() };
    let quantiles = Some(QuantileMethod::Blended);
    let mut forecaster = Forecaster::new(&ForecasterConfig {
        battery,
        horizons,
        quantiles,
        availability: false,
        transfers: false,
    })
    .ok()?;
    let mut all = [HorizonOf::Mean, HorizonOf::Value].map(|of| (of, Vec::new()));
    let mut next = Vec::new();
    for (index, sample) in samples.iter().enumerate() {
        forecaster.update_at(sample.value, sample.time_s).ok()?;
        let next_s = samples.get(index + 1).map_or(sample.time_s, |next| next.time_s);
        next.push(OBJECTIVES.map(|objective| {
            forecaster
                .battery()
                .forecast_at(objective, next_s)
                .map_or(sample.value, |forecast| forecast.value)
        }));
        for (of, issued) in &mut all {
            issued.push(match steps {
                1 => of_next(&forecaster, next_s),
                _ => over(&forecaster, horizon, *of),
            });
        }
    }
    Some((all, next))
}

fn over(forecaster: &Forecaster, horizon: Horizon, of: HorizonOf) -> Option<Issued> {
    let point = |objective| forecaster.forecast_over(horizon, of, objective).map(|forecast| forecast.value);
    let interval = forecaster.interval_over(horizon, of, LEVEL)?;
    issued(OBJECTIVES.map(point), (interval.lower, interval.upper), |share| {
        forecaster.quantile_over(horizon, of, share)
    })
}

fn of_next(forecaster: &Forecaster, next_s: f64) -> Option<Issued> {
    let battery = forecaster.battery();
    let point = |objective| battery.forecast_at(objective, next_s).map(|forecast| forecast.value);
    let interval = battery.interval_at(LEVEL, next_s)?;
    issued(OBJECTIVES.map(point), (interval.lower, interval.upper), |share| {
        forecaster.quantile_at(share, next_s)
    })
}

fn issued(
    [mean, median]: [Option<f64>; 2],
    (lower, upper): (f64, f64),
    quantile: impl Fn(f64) -> Option<f64>,
) -> Option<Issued> {
    let mut quantiles = [0.0; SHARES.len()];
    for (value, share) in quantiles.iter_mut().zip(SHARES) {
        *value = quantile(share)?;
    }
    Some(Issued { mean: mean?, median: median?, lower, upper, quantiles })
}

pub(super) fn last_values(values: &[f64]) -> Points {
    values.iter().map(|value| [*value; 2]).collect()
}

/// Exponentially weighted moving average.
pub(super) fn moving_average(values: &[f64]) -> Points {
    let mut level = values.first().copied().unwrap_or(0.0);
    let learn = |value: &f64| {
        level += EWMA_GAIN * (value - level);
        [level; 2]
    };
    values.iter().map(learn).collect()
}

/// The two-level rule of NWS 2.x on the means of blocks of `steps` values; the mean so far before
/// the first block.
pub(super) fn block_means(values: &[f64], steps: usize) -> Points {
    let config = BatteryConfig { preset: Preset::Nws, rule: Rule::TwoLevel, levels: Vec::new() };
    let mut battery = Battery::new(&config);
    let after = |count: usize| {
        if count.is_multiple_of(steps) {
            let block = mean(&values[count - steps..count]);
            battery.update(block).expect("the mean of accepted values is accepted");
        }
        OBJECTIVES.map(|objective| match battery.forecast(objective) {
            Some(forecast) => forecast.value,
            None => mean(&values[..count]),
        })
    };
    (1..=values.len()).map(after).collect()
}

/// Adds intervals and quantiles to point forecasts: the quantiles of the errors that are known when
/// a forecast is issued, `steps` values after the forecasts they belong to.
pub(super) fn with_error_quantiles(points: &[[f64; 2]], targets: &[f64], steps: usize) -> AllIssued {
    let mut errors = ErrorWindow::new(ERRORS_MAX.max(20 * steps));
    let after = |(index, point): (usize, &[f64; 2])| {
        if let Some(known) = index.checked_sub(steps) {
            errors.push(targets[known] - points[known][1]);
        }
        let at = |share| Some(point[1] + errors.quantile(share)?);
        let tail = 0.5 * (1.0 - LEVEL);
        issued(point.map(Some), (at(tail)?, at(1.0 - tail)?), at)
    };
    points.iter().enumerate().map(after).collect()
}

/// Errors in a window: enough for the quantile 0.99. Overlapping windows have similar errors, so
/// that at a long horizon there are more.
const ERRORS_MAX: usize = 300;

/// The constants that would have been best for the targets.
pub(super) fn constant(targets: &[f64], count: usize) -> AllIssued {
    let ordered = sorted(targets.iter().copied());
    let at = |share| quantile(&ordered, share, Rank::Linear);
    let tail = 0.5 * (1.0 - LEVEL);
    let ends = at(tail).zip(at(1.0 - tail)).unwrap_or_default();
    vec![issued([Some(mean(targets)), at(0.5)], ends, at); count]
}

const OBJECTIVES: [Objective; 2] = [Objective::Squared, Objective::Absolute];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_used_only_when_their_target_is_known() {
        // The targets of a last value are 3 too high until value 40, then right.
        let points = vec![[0.0; 2]; 60];
        let targets: Vec<f64> = (0..60).map(|index| if index < 40 { 3.0 } else { 0.0 }).collect();
        let issued = with_error_quantiles(&points, &targets, 5);
        assert!(issued[23].is_none() && issued[24].is_some());
        assert_eq!(issued[44].map(|issued| issued.lower), Some(3.0), "the target of 40 is not known");
        assert!(issued[50].is_some_and(|issued| issued.lower < 3.0 && issued.upper == 3.0));
    }

    #[test]
    fn block_means_learn_once_a_block() {
        let points = block_means(&[1.0, 3.0, 5.0, 7.0, 100.0], 2);
        assert_eq!(points[0], [1.0; 2]);
        assert_eq!(points[1], [2.0; 2]);
        assert_eq!(points[1], points[2]);
        assert_eq!(points[3], points[4]);
    }
}
