//! Scores one battery on one trace.

use barograph_forecast::{Battery, BatteryConfig, Objective, Preset, Rule};
use barograph_study::input::Sample;
use serde::Serialize;

use crate::stats::{Rank, quantile, sorted};

/// Steps before this one are not scored, because the methods still learn.
pub(crate) const FIRST_STEP: usize = 100;

/// Coverage must hold in every disjoint block of this many values, not only over all values.
pub(crate) const BLOCK: usize = 500;

/// Level of the intervals that are scored.
pub(crate) const LEVEL: f64 = 0.9;

pub(crate) const BATTERIES: [(Preset, Rule); 12] = [
    (Preset::Nws, Rule::TwoLevel),
    (Preset::Nws, Rule::TwoSelectors),
    (Preset::Nws, Rule::LeastMse),
    (Preset::Nws, Rule::LeastMae),
    (Preset::Nws, Rule::Blend),
    (Preset::Classic, Rule::TwoLevel),
    (Preset::Classic, Rule::TwoSelectors),
    (Preset::Classic, Rule::Blend),
    (Preset::Full, Rule::Blend),
    (Preset::Full, Rule::TwoLevel),
    (Preset::Full, Rule::TwoSelectors),
    (Preset::Lean, Rule::Blend),
];

/// Mean squared and mean absolute error, each divided by that of the last value; NaN if the last
/// value is never wrong.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Errors {
    pub(crate) mse: f64,
    pub(crate) mae: f64,
}

impl Errors {
    pub(crate) fn of(self, objective: Objective) -> f64 {
        match objective {
            Objective::Squared => self.mse,
            Objective::Absolute => self.mae,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Score {
    pub(crate) preset: &'static str,
    pub(crate) rule: &'static str,
    /// MSE of the forecast for least squared error, MAE of the forecast for least absolute error.
    pub(crate) errors: Errors,
    pub(crate) interval: IntervalScore,
    /// Mean absolute error of the first ten forecasts, divided by that of the last value.
    pub(crate) start: f64,
    /// Scores after gaps in time; `None` if there are none, or if the battery ignores times.
    pub(crate) gaps: Option<GapScore>,
    pub(crate) methods: Vec<MethodScore>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct MethodScore {
    pub(crate) method: &'static str,
    pub(crate) errors: Errors,
}

/// Scores of the intervals; shares from 0 to 1.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct IntervalScore {
    pub(crate) coverage: f64,
    /// The lowest coverage of a disjoint block of [`BLOCK`] values.
    pub(crate) worst_block: f64,
    /// Mean half-width, divided by the constant that would have covered the level in hindsight.
    pub(crate) width: f64,
}

/// Scores of forecasts and intervals on values after gaps, with and without the times of values.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct GapScore {
    pub(crate) count: usize,
    pub(crate) coverage: f64,
    pub(crate) coverage_untimed: f64,
    /// Mean absolute error, divided by that of the last value.
    pub(crate) mae: f64,
    pub(crate) mae_untimed: f64,
}

/// Scores values after gaps, beside a battery of the same configuration that has no times.
fn score_gaps(config: &BatteryConfig, samples: &[Sample]) -> Option<GapScore> {
    let mut batteries = [Battery::new(config), Battery::new(config)];
    let (mut inside, mut errors, mut last_errors) = ([0.0; 2], [0.0; 2], 0.0);
    let (mut count, mut last) = (0, 0.0);
    for Sample { time_s, value } in samples.iter().copied() {
        let [timed, untimed] = &batteries;
        if timed.is_after_gap(time_s) {
            let issued = [
                (timed.forecast_at(Objective::Absolute, time_s)?, timed.interval_at(LEVEL, time_s)?),
                (untimed.forecast(Objective::Absolute)?, untimed.interval(LEVEL)?),
            ];
            for (index, (forecast, interval)) in issued.into_iter().enumerate() {
                inside[index] += f64::from(u8::from((interval.lower..=interval.upper).contains(&value)));
                errors[index] += (forecast.value - value).abs();
            }
            last_errors += f64::abs(last - value);
            count += 1;
        }
        batteries[0].update_at(value, time_s).ok()?;
        batteries[1].update(value).ok()?;
        last = value;
    }
    (count != 0).then(|| GapScore {
        count,
        coverage: inside[0] / count as f64,
        coverage_untimed: inside[1] / count as f64,
        mae: errors[0] / last_errors,
        mae_untimed: errors[1] / last_errors,
    })
}

/// Number of forecasts of a trace for which `nws` with the rule `mse` selects another method than
/// with `two-selectors`, by squared error; then the same for `mae`, by absolute error.
pub(crate) fn count_differing(samples: &[Sample]) -> [usize; 2] {
    let pairs = [(Rule::LeastMse, Objective::Squared), (Rule::LeastMae, Objective::Absolute)];
    pairs.map(|(rule, objective)| {
        let mut batteries = [rule, Rule::TwoSelectors]
            .map(|rule| Battery::new(&BatteryConfig { preset: Preset::Nws, rule, levels: Vec::new() }));
        let differ = samples.iter().filter(|sample| {
            let [rule, other] = batteries.each_ref().map(|battery| battery.forecast(objective));
            let differ = rule.map(|forecast| forecast.method) != other.map(|forecast| forecast.method);
            let accepted = batteries.iter_mut().all(|battery| battery.update(sample.value).is_ok());
            differ && accepted
        });
        differ.count()
    })
}

/// Runs one battery through a trace; `None` if the trace is too short to be scored.
pub(crate) fn score(preset: Preset, rule: Rule, samples: &[Sample]) -> Option<Score> {
    let config = BatteryConfig { preset, rule, levels: vec![LEVEL] };
    let mut battery = Battery::new(&config);
    let (mut start, mut start_last) = (0.0, 0.0);
    let mut last_value = Sums::default();
    let mut issued = Sums::default();
    let mut methods: Vec<(&'static str, Sums)> = Vec::new();
    let mut inside = Vec::new();
    let mut half_width = 0.0;
    let mut absolute_errors = Vec::new();

    let mut before = 0.0;
    for (step, Sample { time_s, value }) in samples.iter().copied().enumerate() {
        if (1..=10).contains(&step) {
            start += (battery.forecast_at(Objective::Absolute, time_s)?.value - value).abs();
            start_last += f64::abs(before - value);
        }
        if step >= FIRST_STEP {
            let mean = battery.forecast_at(Objective::Squared, time_s)?;
            let median = battery.forecast_at(Objective::Absolute, time_s)?;
            let interval = battery.interval_at(LEVEL, time_s)?;
            last_value.add(before - value, before - value);
            issued.add(mean.value - value, median.value - value);
            let forecasts = battery.method_forecasts();
            if methods.is_empty() {
                methods = forecasts.iter().map(|(method, _)| (method.0, Sums::default())).collect();
            }
            for ((_, sums), (_, forecast)) in methods.iter_mut().zip(forecasts) {
                sums.add(forecast - value, forecast - value);
            }
            inside.push((interval.lower..=interval.upper).contains(&value));
            half_width += (interval.upper - interval.lower) / 2.0;
            absolute_errors.push((median.value - value).abs());
        }
        battery.update_at(value, time_s).ok()?;
        before = value;
    }
    let count = inside.len();
    if count == 0 {
        return None;
    }
    let hindsight = quantile(&sorted(absolute_errors), LEVEL, Rank::Least)?;
    Some(Score {
        preset: preset_name(preset),
        rule: rule_name(rule),
        errors: issued.relative_to(&last_value),
        interval: IntervalScore {
            coverage: share(&inside),
            worst_block: inside.chunks_exact(BLOCK).map(share).fold(share(&inside), f64::min),
            width: half_width / count as f64 / hindsight,
        },
        start: start / start_last,
        gaps: score_gaps(&config, samples),
        methods: methods
            .into_iter()
            .map(|(method, sums)| MethodScore { method, errors: sums.relative_to(&last_value) })
            .collect(),
    })
}

#[derive(Clone, Copy, Default)]
struct Sums {
    squared: f64,
    absolute: f64,
}

impl Sums {
    fn add(&mut self, error_of_mean: f64, error_of_median: f64) {
        self.squared += error_of_mean * error_of_mean;
        self.absolute += error_of_median.abs();
    }

    fn relative_to(self, other: &Self) -> Errors {
        Errors { mse: self.squared / other.squared, mae: self.absolute / other.absolute }
    }
}

fn share(inside: &[bool]) -> f64 {
    inside.iter().filter(|inside| **inside).count() as f64 / inside.len() as f64
}

pub(crate) fn preset_name(preset: Preset) -> &'static str {
    match preset {
        Preset::Nws => "nws",
        Preset::Classic => "classic",
        Preset::Full => "full",
        Preset::Lean => "lean",
    }
}

fn rule_name(rule: Rule) -> &'static str {
    match rule {
        Rule::TwoLevel => "two-level",
        Rule::TwoSelectors => "two-selectors",
        Rule::Blend => "blend",
        Rule::LeastMse => "mse",
        Rule::LeastMae => "mae",
    }
}

/// Errors of the battery and the cyclic methods for one objective, divided by those of the last
/// value.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct CycleScore {
    pub(crate) full: f64,
    pub(crate) day: f64,
    pub(crate) week: f64,
    /// Blend of the battery, both cyclic methods, and the battery corrected by each cycle; weighted
    /// by past accuracy (the power rule of the blend, exponent 64).
    pub(crate) with: f64,
}

/// Scores the cyclic methods on a trace; `None` if it is shorter than a week.
pub(crate) fn score_cycle(samples: &[Sample], objective: Objective) -> Option<CycleScore> {
    let (first, last) = (samples.first()?, samples.last()?);
    if last.time_s - first.time_s < WEEK_S {
        return None;
    }
    let cost = |error: f64| if objective == Objective::Squared { error * error } else { error.abs() };
    let mut battery = Battery::new(&BatteryConfig::default());
    let cycles = || [Cycle::new(DAY_S, DAY_SLOTS), Cycle::new(WEEK_S, WEEK_SLOTS)];
    let (mut levels, mut residuals) = (cycles(), cycles());
    let mut level = first.value;
    let mut costs = [0.0; 5];
    let mut sums = [0.0; 5];
    let mut last_value = 0.0;
    let mut before = first.value;
    for (step, Sample { time_s, value }) in samples.iter().enumerate() {
        if let Some(forecast) = battery.forecast(objective) {
            let full = forecast.value;
            let [day, week] = levels.each_ref().map(|cycle| level + cycle.deviation(*time_s));
            let [by_day, by_week] = residuals.each_ref().map(|cycle| full + cycle.deviation(*time_s));
            let members = [full, day, week, by_day, by_week];
            let with = weighted(&members, &costs);
            if step >= FIRST_STEP {
                last_value += cost(before - value);
                for (sum, forecast) in sums.iter_mut().zip([full, day, week, with]) {
                    *sum += cost(forecast - value);
                }
            }
            for (sum, member) in costs.iter_mut().zip(members) {
                *sum += cost(member - value);
            }
            levels.iter_mut().for_each(|cycle| cycle.learn(*time_s, value - level));
            residuals.iter_mut().for_each(|cycle| cycle.learn(*time_s, value - full));
        }
        battery.update(*value).ok()?;
        level += LEVEL_GAIN * (value - level);
        before = *value;
    }
    let [full, day, week, with, _] = sums.map(|sum| sum / last_value);
    Some(CycleScore { full, day, week, with })
}

/// Mean of the forecasts, weighted by `(least cost / cost)^64`.
fn weighted(members: &[f64; 5], costs: &[f64; 5]) -> f64 {
    let least = costs.iter().copied().fold(f64::INFINITY, f64::min).max(f64::MIN_POSITIVE);
    let weights = costs.map(|cost| (least / cost.max(f64::MIN_POSITIVE)).powi(64));
    let sum: f64 = members.iter().zip(weights).map(|(member, weight)| member * weight).sum();
    sum / weights.iter().sum::<f64>()
}

/// Mean deviation in each part of a period; old values fade.
struct Cycle {
    period_s: f64,
    slots: Vec<(f64, f64)>,
}

impl Cycle {
    fn new(period_s: f64, slots: usize) -> Self {
        Self { period_s, slots: vec![(0.0, 0.0); slots] }
    }

    fn slot(&self, time_s: f64) -> usize {
        let phase = (time_s / self.period_s).rem_euclid(1.0);
        ((phase * self.slots.len() as f64) as usize).min(self.slots.len() - 1)
    }

    fn deviation(&self, time_s: f64) -> f64 {
        let (sum, count) = self.slots[self.slot(time_s)];
        sum / (count + PRIOR)
    }

    fn learn(&mut self, time_s: f64, deviation: f64) {
        let slot = self.slot(time_s);
        let (sum, count) = &mut self.slots[slot];
        (*sum, *count) = (FADE * *sum + deviation, FADE * *count + 1.0);
    }
}

const DAY_S: f64 = 86_400.0;
const WEEK_S: f64 = 7.0 * DAY_S;
/// Half-hours of a day and hours of a week: at the usual periods a slot has several values.
const DAY_SLOTS: usize = 48;
const WEEK_SLOTS: usize = 168;
/// A slot remembers some 50 values, and starts as if it had three values without deviation.
const FADE: f64 = 0.98;
const PRIOR: f64 = 3.0;
/// The level that deviations are measured from follows the values within some 20 of them.
const LEVEL_GAIN: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(values: impl IntoIterator<Item = f64>) -> Vec<Sample> {
        let sample = |(index, value)| Sample { time_s: f64::from(index), value };
        (0_u32..).zip(values).map(sample).collect()
    }

    #[test]
    fn values_after_gaps_are_scored_with_and_without_times() {
        let mut samples = timed((0..600).map(|i| f64::from(i * 7919 % 101) + f64::from(i / 50 * 300 % 997)));
        for (index, sample) in samples.iter_mut().enumerate() {
            sample.time_s += (index / 50 * 100) as f64;
        }
        let gaps = score(Preset::Full, Rule::Blend, &samples).unwrap().gaps.unwrap();
        assert_eq!(gaps.count, 11);
        assert!(gaps.coverage_untimed < gaps.coverage, "{gaps:?}");
        assert!(score(Preset::Nws, Rule::TwoSelectors, &samples).unwrap().gaps.is_none());
    }

    #[test]
    fn the_method_last_value_has_a_relative_error_of_1() {
        let values = timed((0..1200).map(|i| f64::from(i * 7919 % 101)));
        for (preset, rule) in BATTERIES {
            let score = score(preset, rule, &values).unwrap();
            let last = score.methods.iter().find(|method| method.method == "Last Value").unwrap();
            assert_eq!((last.errors.mse, last.errors.mae), (1.0, 1.0));
            assert!(score.interval.worst_block <= score.interval.coverage);
            let best = score.methods.iter().map(|method| method.errors.mse).fold(f64::INFINITY, f64::min);
            assert!(score.errors.mse < best * 1.5, "{preset:?} {rule:?} {}", score.errors.mse);
        }
    }

    #[test]
    fn a_trace_without_scored_steps_has_no_score() {
        assert!(score(Preset::Nws, Rule::TwoSelectors, &timed([1.0; FIRST_STEP])).is_none());
        assert!(score(Preset::Nws, Rule::TwoSelectors, &timed([1.0; FIRST_STEP + 1])).is_some());
    }

    /// The experiment finds a cycle if there is one: noise on a square wave with a period of a day.
    #[test]
    fn a_daily_cycle_is_found() {
        let samples: Vec<Sample> = (0..6000u32)
            .map(|i| {
                let time_s = f64::from(i) * 600.0;
                let peak = if 12.0 * 3600.0 < time_s.rem_euclid(DAY_S) { 20.0 } else { 0.0 };
                Sample { time_s, value: peak + f64::from(i.wrapping_mul(2_654_435_761) >> 16) / 65_536.0 }
            })
            .collect();
        let score = score_cycle(&samples, Objective::Squared).unwrap();
        assert!(score.with < 0.9 * score.full, "{score:?}");
    }

    #[test]
    fn a_trace_shorter_than_a_week_is_not_scored() {
        let samples = [0.0, WEEK_S - 1.0].map(|time_s| Sample { time_s, value: 1.0 });
        assert!(score_cycle(&samples, Objective::Absolute).is_none());
    }
}
