//! A series on a grid of equal periods; a period without a value stays blank.

use crate::ahead::median_step_s;
use crate::input::Sample;

/// Values at equal periods; a period without a measurement is blank.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// The time from one slot to the next, in seconds.
    pub base_s: f64,
    /// A value or a blank for each period, from the first value to the last.
    pub slots: Vec<Option<f64>>,
    /// Number of values left out because their period already had a value.
    pub duplicates: usize,
}

impl Grid {
    /// Assigns values to periods. The base period is the median time between values, unless it is
    /// given.
    ///
    /// A value may be half a period early or late. The grid follows the values' clock slowly, so
    /// that a real period of 300.4 s instead of 300 s causes no blanks and no duplicates.
    ///
    /// # Errors
    /// [`GridError`] if there are fewer than two values, if a value is negative, or if there is no
    /// sensible period.
    pub fn of(samples: &[Sample], base_s: Option<f64>) -> Result<Self, GridError> {
        if let Some(Sample { time_s, value }) = samples.iter().find(|sample| sample.value < 0.0) {
            return Err(GridError::Negative { time_s: *time_s, value: *value });
        }
        let [first, later @ ..] = samples else { return Err(GridError::TooFewValues { count: 0 }) };
        if later.is_empty() {
            return Err(GridError::TooFewValues { count: 1 });
        }
        let base_s = base_s.map_or_else(|| median_step_s(samples), Some).ok_or(GridError::EqualTimes)?;
        let mut grid = Self { base_s, slots: vec![Some(first.value)], duplicates: 0 };
        let mut at_s = first.time_s;
        let (mut before_s, mut widest) = (first.time_s, (0.0, 0.0));
        for Sample { time_s, value } in later {
            let steps = ((time_s - at_s) / base_s).round();
            if SLOTS_MAX as f64 <= grid.slots.len() as f64 + steps {
                return Err(GridError::TooManySlots { time_s: *time_s, base_s });
            }
            if widest.0 < time_s - before_s {
                widest = (time_s - before_s, *time_s);
            }
            before_s = *time_s;
            if (SLOTS_PER_VALUE_MAX * samples.len()) as f64 <= grid.slots.len() as f64 + steps {
                let (gap_s, time_s) = widest;
                return Err(GridError::TooManyBlanks { time_s, gap_s, base_s });
            }
            if steps < 1.0 {
                grid.duplicates += 1;
                continue;
            }
            // `steps` is a whole number below the limit.
            grid.slots.resize(grid.slots.len() + steps as usize - 1, None);
            grid.slots.push(Some(*value));
            let expected_s = at_s + steps * base_s;
            at_s = expected_s + DRIFT_GAIN * (time_s - expected_s);
        }
        Ok(grid)
    }

    /// The values, without blanks, in order.
    pub fn values(&self) -> impl Iterator<Item = f64> + Clone {
        self.slots.iter().filter_map(|slot| *slot)
    }

    /// Number of periods without a value.
    #[must_use]
    pub fn blanks(&self) -> usize {
        self.slots.len() - self.values().count()
    }

    /// The mean of the values, in their unit.
    #[must_use]
    pub fn mean(&self) -> f64 {
        // At most ten million values of at most 1e70 each, so that the sum is finite.
        self.values().sum::<f64>() / self.values().count().max(1) as f64
    }

    /// The least and the greatest value.
    #[must_use]
    pub fn range(&self) -> (f64, f64) {
        self.values().fold((f64::INFINITY, 0.0), |(low, high), value| (low.min(value), high.max(value)))
    }

    /// Every `every`-th slot from `offset` on, with its index in the grid; `every` is at least 1.
    pub fn subsample(&self, every: usize, offset: usize) -> impl Iterator<Item = (usize, Option<f64>)> + '_ {
        self.slots.iter().copied().enumerate().skip(offset).step_by(every.max(1))
    }
}

/// Why there is no grid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum GridError {
    #[error("value at {time_s} s is {value}; expected no negative values")]
    Negative {
        /// Time of the value, in seconds.
        time_s: f64,
        value: f64,
    },
    /// The series has fewer than two values, so no forecast can be compared with a value.
    #[error("the series has {count} values; expected at least 2")]
    TooFewValues { count: usize },
    /// All values have the same time.
    #[error("all values have the same time; expected increasing times, or values without times and --base")]
    EqualTimes,
    #[error("at {time_s} s the series exceeds {SLOTS_MAX} periods of {base_s} s; use a longer --base")]
    TooManySlots {
        /// Time of the first value beyond the limit, in seconds.
        time_s: f64,
        /// The base period in seconds.
        base_s: f64,
    },
    /// Hardly any period has a value, as after a jump of the clock.
    #[error(
        "before {time_s} s the series has no value for {gap_s} s, so more than {SLOTS_PER_VALUE_MAX} periods of {base_s} s \
         are blank for each value; use a longer --base, or cut the series at that gap"
    )]
    TooManyBlanks {
        /// Time at which the widest gap ends, in seconds.
        time_s: f64,
        /// Length of the widest gap, in seconds.
        gap_s: f64,
        /// The base period in seconds.
        base_s: f64,
    },
}

/// Share of the distance between a value and its slot by which the grid moves after the value. A
/// scheduler's jitter shifts single values. An eighth, as in RFC 6298 §2.3, averages over about
/// eight values, and still follows a drift without delay.
const DRIFT_GAIN: f64 = 0.125;

/// Maximum number of slots of a grid: one value a second for about four months. In a longer time, a
/// path usually changes.
const SLOTS_MAX: usize = 10_000_000;

/// Maximum number of slots divided by the number of values. A station that measures in bursts
/// causes some tens of blanks for each value. A clock that jumps by years causes so many blanks
/// that scoring every offset would take minutes without a result.
const SLOTS_PER_VALUE_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;
    use proptest::prelude::*;

    fn samples(pairs: &[(f64, f64)]) -> Vec<Sample> {
        pairs.iter().map(|(time_s, value)| Sample { time_s: *time_s, value: *value }).collect()
    }

    #[test]
    fn periods_without_values_stay_blank_and_duplicates_are_counted() {
        let series =
            samples(&[(0.0, 1.0), (299.0, 2.0), (602.0, 3.0), (610.0, 9.0), (1500.0, 4.0), (1801.0, 5.0)]);
        let grid = Grid::of(&series, Some(300.0)).unwrap();
        assert_eq!(grid.slots, [Some(1.0), Some(2.0), Some(3.0), None, None, Some(4.0), Some(5.0)]);
        assert_eq!((grid.blanks(), grid.duplicates, grid.mean(), grid.range()), (2, 1, 3.0, (1.0, 5.0)));
    }

    #[test]
    fn a_slightly_longer_period_gives_no_blanks() {
        let series: Vec<(f64, f64)> = (0..5000).map(|i| (f64::from(i) * 301.0, 1.0)).collect();
        let grid = Grid::of(&samples(&series), Some(300.0)).unwrap();
        assert_eq!((grid.slots.len(), grid.blanks(), grid.duplicates), (5000, 0, 0));
    }

    #[test]
    fn invalid_series_are_rejected_with_a_reason() {
        let of = |pairs: &[(f64, f64)]| Grid::of(&samples(pairs), None).unwrap_err();
        assert_eq!(of(&[]), GridError::TooFewValues { count: 0 });
        assert_eq!(of(&[(0.0, 1.0)]), GridError::TooFewValues { count: 1 });
        assert_eq!(of(&[(0.0, 1.0), (0.0, 2.0)]), GridError::EqualTimes);
        assert_eq!(of(&[(0.0, 1.0), (5.0, -2.0)]), GridError::Negative { time_s: 5.0, value: -2.0 });
        let long = of(&[(0.0, 1.0), (1.0, 2.0), (2.0, 2.0), (1e300, 3.0)]);
        assert_eq!(long, GridError::TooManySlots { time_s: 1e300, base_s: 1.0 });
        // The times of a clock that was corrected by about two months.
        let mut jumped: Vec<(f64, f64)> = (0..100).map(|i| (f64::from(i), 1.0)).collect();
        jumped.extend((0..100).map(|i| (5e6 + f64::from(i), 1.0)));
        let sparse = of(&jumped);
        assert_eq!(sparse, GridError::TooManyBlanks { time_s: 5e6, gap_s: 5e6 - 99.0, base_s: 1.0 });
        assert!(
            sparse.to_string().starts_with("before 5000000 s the series has no value for 4999901 s"),
            "{sparse}"
        );
    }

    proptest! {
        #[test]
        fn the_subsamples_of_all_offsets_make_up_the_grid(
            slots in prop::collection::vec(prop::option::of(0.0..1e9), 1..200),
            every in 1_usize..50,
        ) {
            let grid = Grid { base_s: 1.0, slots, duplicates: 0 };
            let mut all: Vec<(usize, Option<f64>)> =
                (0..every).flat_map(|offset| grid.subsample(every, offset)).collect();
            all.sort_by_key(|(index, _)| *index);
            let expected: Vec<(usize, Option<f64>)> = grid.slots.iter().copied().enumerate().collect();
            prop_assert_eq!(all, expected);
        }

        #[test]
        fn every_value_is_in_a_slot_or_counted_as_duplicate(steps in prop::collection::vec(0.0..3000.0, 1..200)) {
            let mut time_s = 0.0;
            let mut series = vec![Sample { time_s, value: 0.0 }];
            for step in &steps {
                time_s += step;
                series.push(Sample { time_s, value: 1.0 });
            }
            let grid = Grid::of(&series, Some(300.0)).unwrap();
            prop_assert_eq!(grid.values().count() + grid.duplicates, series.len());
        }
    }
}
