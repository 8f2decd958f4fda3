//! What is forecast further ahead than the next value, and what was measured for it.

use std::fmt;

use barograph_forecast::{Horizon, HorizonOf};

use crate::input::Sample;

/// A horizon to forecast, and what to forecast at it.
///
/// ```
/// use barograph_forecast::{Horizon, HorizonOf};
/// use barograph_study::ForecastTarget;
///
/// let target = ForecastTarget { horizon: Horizon::Steps(30), of: HorizonOf::Mean };
/// assert_eq!(target.to_string(), "the mean of the next 30 values");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForecastTarget {
    /// How far ahead the forecast looks.
    pub horizon: Horizon,
    /// What is forecast: the mean up to the horizon, or the value at it.
    pub of: HorizonOf,
}

impl fmt::Display for ForecastTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.of, self.horizon) {
            (HorizonOf::Mean, Horizon::Steps(steps)) => write!(f, "the mean of the next {steps} values"),
            (HorizonOf::Mean, Horizon::Seconds(seconds)) => write!(f, "the mean of the next {seconds} s"),
            (HorizonOf::Value, Horizon::Steps(steps)) => write!(f, "the value {steps} values ahead"),
            (HorizonOf::Value, Horizon::Seconds(seconds)) => write!(f, "the value {seconds} s ahead"),
        }
    }
}

impl ForecastTarget {
    /// The horizon in values that are `period_s` apart, at least 1.
    pub(crate) fn steps(&self, period_s: f64) -> f64 {
        match self.horizon {
            Horizon::Steps(steps) => f64::from(steps),
            // A time of less than 1.5 periods is the next value, as for the forecaster.
            Horizon::Seconds(seconds) if 1.5 * period_s <= seconds => seconds / period_s,
            Horizon::Seconds(_) => 1.0,
        }
    }

    /// For each of `samples`, what was measured for the forecast that was issued after it. `None`
    /// if the window is longer than the rest of the series, or has too few values. The windows are
    /// those of `docs/spec/ahead.md`, with the median period of the whole series.
    pub(crate) fn measured(&self, samples: &[Sample], period_s: f64) -> Vec<Option<f64>> {
        let mut window = Window { target: *self, period_s, end: 0, next: 0, sum: SlidingSum::default() };
        (0..samples.len()).map(|index| window.after(samples, index)).collect()
    }
}

/// The median of the positive times between neighbouring values, in seconds; `None` if no such time
/// is positive.
pub(crate) fn median_step_s(samples: &[Sample]) -> Option<f64> {
    let mut steps: Vec<f64> = samples.windows(2).map(|two| two[1].time_s - two[0].time_s).collect();
    steps.retain(|step| *step > 0.0 && step.is_finite());
    steps.sort_by(f64::total_cmp);
    steps.get(steps.len() / 2).copied()
}

/// The values of a horizon. It moves forward with the sample after which it begins.
struct Window {
    target: ForecastTarget,
    period_s: f64,
    /// Index of the sample that ends the horizon; the number of samples if there is none.
    end: usize,
    /// Index of the first sample that was not added to `sum`.
    next: usize,
    /// The samples after the one where the horizon begins.
    sum: SlidingSum,
}

impl Window {
    /// Moves the window to the sample `index`, which is one higher than in the call before, and
    /// returns what was measured.
    fn after(&mut self, samples: &[Sample], index: usize) -> Option<f64> {
        if index < self.next {
            self.sum.pop();
        }
        self.next = self.next.max(index + 1);
        let steps = self.target.steps(self.period_s);
        let (due_s, slack_s) = match self.target.horizon {
            Horizon::Seconds(seconds) if 1.0 < steps => {
                (samples[index].time_s + seconds, 0.5 * self.period_s)
            }
            _ => (f64::INFINITY, 0.0),
        };
        if due_s < f64::INFINITY {
            self.end = self.end.max(index + 1);
            while samples.get(self.end).is_some_and(|sample| sample.time_s < due_s - slack_s) {
                self.end += 1;
            }
        } else {
            // At most a million values ahead.
            self.end = index + steps as usize;
        }
        let last = samples.get(self.end)?;
        let until = if last.time_s <= due_s + slack_s { self.end + 1 } else { self.end };
        while self.next < until {
            self.sum.push(samples[self.next].value);
            self.next += 1;
        }
        let count = self.sum.count() as f64;
        match self.target.of {
            HorizonOf::Mean => (0.0 < count && steps <= 2.0 * count).then(|| self.sum.sum() / count),
            HorizonOf::Value => {
                (last.time_s <= due_s + LATE_PERIODS_MAX * self.period_s).then_some(last.value)
            }
        }
    }
}

/// The sum of a queue of numbers. Nothing is subtracted, so an extreme value leaves no rounding
/// error behind when it is removed.
#[derive(Default)]
struct SlidingSum {
    /// Each number with the sum of it and the newer ones of this part; the oldest is the last.
    older: Vec<f64>,
    newer: Vec<f64>,
    newer_sum: f64,
}

impl SlidingSum {
    fn push(&mut self, value: f64) {
        self.newer.push(value);
        self.newer_sum += value;
    }

    /// Removes the oldest number.
    fn pop(&mut self) {
        if self.older.is_empty() {
            let mut sum = 0.0;
            while let Some(value) = self.newer.pop() {
                sum += value;
                self.older.push(sum);
            }
            self.newer_sum = 0.0;
        }
        self.older.pop();
    }

    fn sum(&self) -> f64 {
        self.older.last().copied().unwrap_or(0.0) + self.newer_sum
    }

    fn count(&self) -> usize {
        self.older.len() + self.newer.len()
    }
}

/// A value that comes later after the end of a horizon is not the value at the horizon
/// (`docs/spec/ahead.md`, Windows).
const LATE_PERIODS_MAX: f64 = 2.5;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn samples(pairs: &[(f64, f64)]) -> Vec<Sample> {
        pairs.iter().map(|(time_s, value)| Sample { time_s: *time_s, value: *value }).collect()
    }

    fn target(horizon: Horizon, of: HorizonOf) -> ForecastTarget {
        ForecastTarget { horizon, of }
    }

    #[test]
    fn targets_equal_results_computed_by_hand() {
        let series = samples(&[(0.0, 1.0), (10.0, 3.0), (20.0, 5.0), (31.0, 10.0), (40.0, 2.0)]);
        let measured = |horizon, of| target(horizon, of).measured(&series, 10.0);
        for horizon in [Horizon::Steps(2), Horizon::Seconds(20.0)] {
            let mean = measured(horizon, HorizonOf::Mean);
            assert_eq!(mean, [Some(4.0), Some(7.5), Some(6.0), None, None], "{horizon:?}");
            let value = measured(horizon, HorizonOf::Value);
            assert_eq!(value, [Some(5.0), Some(10.0), Some(2.0), None, None], "{horizon:?}");
        }
        let next = [Some(3.0), Some(5.0), Some(10.0), Some(2.0), None];
        for horizon in [Horizon::Steps(1), Horizon::Seconds(14.0)] {
            assert_eq!(measured(horizon, HorizonOf::Mean), next, "{horizon:?}");
            assert_eq!(measured(horizon, HorizonOf::Value), next, "{horizon:?}");
        }
    }

    /// A gap from 20 s to 100 s.
    #[test]
    fn windows_with_few_values_and_late_values_are_not_measured() {
        let series = samples(&[(0.0, 1.0), (10.0, 2.0), (20.0, 3.0), (100.0, 4.0), (110.0, 5.0)]);
        let measured = |seconds, of| target(Horizon::Seconds(seconds), of).measured(&series, 10.0);
        // After 0 s two of four values were measured, after 10 s one.
        assert_eq!(measured(40.0, HorizonOf::Mean), [Some(2.5), None, None, None, None]);
        assert_eq!(measured(40.0, HorizonOf::Value), [None; 5]);
        // The value 75 s after 0 s is 25 s late, the most that is allowed.
        assert_eq!(measured(75.0, HorizonOf::Value)[0], Some(4.0));
        assert_eq!(measured(74.0, HorizonOf::Value)[0], None);
    }

    #[test]
    fn an_extreme_value_leaves_the_windows_after_it_exact() {
        let series: Vec<Sample> = (0..50)
            .map(|i| Sample { time_s: f64::from(i), value: if i == 20 { 1e70 } else { 1.0 } })
            .collect();
        let measured = target(Horizon::Steps(5), HorizonOf::Mean).measured(&series, 1.0);
        assert!(measured[20..45].iter().all(|mean| *mean == Some(1.0)), "{measured:?}");
        assert_eq!(measured[15], Some(1e70 / 5.0));
    }

    proptest! {
        #[test]
        fn the_mean_in_seconds_equals_the_mean_in_values_on_a_regular_grid(
            values in prop::collection::vec(-1e6..1e6_f64, 1..60),
            steps in 2..20_u32,
        ) {
            let series: Vec<Sample> = values
                .iter()
                .enumerate()
                .map(|(i, value)| Sample { time_s: 10.0 * i as f64, value: *value })
                .collect();
            for of in [HorizonOf::Mean, HorizonOf::Value] {
                let in_steps = target(Horizon::Steps(steps), of).measured(&series, 10.0);
                let in_seconds = target(Horizon::Seconds(10.0 * f64::from(steps)), of).measured(&series, 10.0);
                prop_assert_eq!(&in_steps, &in_seconds);
                for (i, measured) in in_steps.iter().enumerate() {
                    let window = values.get(i + 1..=i + steps as usize);
                    prop_assert_eq!(measured.is_some(), window.is_some());
                    if let (Some(measured), Some(window), HorizonOf::Mean) = (measured, window, of) {
                        let mean = window.iter().sum::<f64>() / window.len() as f64;
                        prop_assert!((measured - mean).abs() <= 1e-9);
                    }
                }
            }
        }
    }
}
