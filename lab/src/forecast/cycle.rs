//! Whether a member that knows the time of day and of the week pays (Gloperf §4 found such cycles
//! in its measurements): tried beside the default battery, on traces of a week and more.

use barograph_forecast::{Battery, Config, Loss};
use barograph_study::input::Sample;
use serde::Serialize;

use super::score::FIRST_STEP;

/// Errors divided by those of the last value, under one loss.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct CycleScore {
    /// The default battery as it is.
    pub(crate) full: f64,
    /// The daily and the weekly member alone.
    pub(crate) day: f64,
    pub(crate) week: f64,
    /// The battery with both members, and with its own errors corrected by both cycles, each
    /// weighted by how right it has been (the power rule of the blend, exponent 64).
    pub(crate) with: f64,
}

/// Scores the members on a trace, or `None` where it is shorter than a week.
pub(crate) fn score(samples: &[Sample], loss: Loss) -> Option<CycleScore> {
    let (first, last) = (samples.first()?, samples.last()?);
    if last.time_s - first.time_s < WEEK_S {
        return None;
    }
    let cost = |error: f64| if loss == Loss::Squared { error * error } else { error.abs() };
    let mut battery = Battery::new(&Config::default());
    let cycles = || [Cycle::new(DAY_S, DAY_SLOTS), Cycle::new(WEEK_S, WEEK_SLOTS)];
    let (mut levels, mut residuals) = (cycles(), cycles());
    let mut level = first.value;
    let mut costs = [0.0; 5];
    let mut sums = [0.0; 5];
    let mut last_value = 0.0;
    let mut before = first.value;
    for (step, Sample { time_s, value }) in samples.iter().enumerate() {
        if let Some(forecast) = battery.forecast(loss) {
            let full = forecast.value;
            let [day, week] = levels.each_ref().map(|cycle| level + cycle.deviation(*time_s));
            let [by_day, by_week] = residuals.each_ref().map(|cycle| full + cycle.deviation(*time_s));
            let members = [full, day, week, by_day, by_week];
            let with = weighted(&members, &costs);
            if FIRST_STEP <= step {
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

/// Forecasts weighted by `(least cost / cost)^64`.
fn weighted(members: &[f64; 5], costs: &[f64; 5]) -> f64 {
    let least = costs.iter().copied().fold(f64::INFINITY, f64::min).max(f64::MIN_POSITIVE);
    let weights = costs.map(|cost| (least / cost.max(f64::MIN_POSITIVE)).powi(64));
    let sum: f64 = members.iter().zip(weights).map(|(member, weight)| member * weight).sum();
    sum / weights.iter().sum::<f64>()
}

/// The mean deviation in each part of a period, fading.
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
/// Half-hours of a day and hours of a week: several values a slot at the usual periods.
const DAY_SLOTS: usize = 48;
const WEEK_SLOTS: usize = 168;
/// A slot remembers some 50 values, and starts as if it had seen three without deviation.
const FADE: f64 = 0.98;
const PRIOR: f64 = 3.0;
/// The level from which deviations are taken follows within some 20 values.
const LEVEL_GAIN: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;

    /// The experiment can find a cycle where there is one: noise on a square wave of a day.
    #[test]
    fn a_daily_cycle_is_found() {
        let samples: Vec<Sample> = (0..6000u32)
            .map(|i| {
                let time_s = f64::from(i) * 600.0;
                let peak = if 12.0 * 3600.0 < time_s.rem_euclid(DAY_S) { 20.0 } else { 0.0 };
                Sample { time_s, value: peak + f64::from(i.wrapping_mul(2_654_435_761) >> 16) / 65_536.0 }
            })
            .collect();
        let score = score(&samples, Loss::Squared).unwrap();
        assert!(score.with < 0.9 * score.full, "{score:?}");
    }

    #[test]
    fn less_than_a_week_is_not_scored() {
        let samples = [0.0, WEEK_S - 1.0].map(|time_s| Sample { time_s, value: 1.0 });
        assert!(score(&samples, Loss::Absolute).is_none());
    }
}
