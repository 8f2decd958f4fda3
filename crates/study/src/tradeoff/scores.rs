//! Errors of every predictor at every period, over all the subsamples that a period allows.

use std::sync::atomic::{AtomicUsize, Ordering};

use barograph_forecast::HorizonError;
use serde::Serialize;

use super::ahead::GridTargets;
use super::grid::Grid;
use super::predictor::{OffsetErrors, Predictor};
use crate::ahead::ForecastTarget;

/// One series, measured with tests of one length.
#[derive(Clone, Debug)]
pub struct MeasuredSeries {
    /// Name of the file from which the series was read.
    pub name: String,
    /// Length of each test, in seconds; `None` = not known.
    pub length_s: Option<f64>,
    /// Factor from values to bit/s; `None` = the values are not rates.
    pub bit_per_s: Option<f64>,
    /// The measurements, one slot for each period.
    pub grid: Grid,
}

impl MeasuredSeries {
    /// Cost of the tests at a period, in bytes an hour: mean goodput × length of a test × tests an
    /// hour. `None` if length or unit is not known.
    #[must_use]
    pub fn bytes_per_hour(&self, period_s: f64) -> Option<f64> {
        let rate_bps = self.grid.mean() * self.bit_per_s?;
        Some(rate_bps / 8.0 * self.length_s? * 3600.0 / period_s)
    }
}

/// The errors of one predictor on one series at one period.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoreRow {
    /// Index of the series in [`TradeoffScores::series`].
    pub series: usize,
    /// The period, as a number of base periods.
    pub every: usize,
    /// The period in seconds.
    pub period_s: f64,
    /// The predictor that was scored.
    pub predictor: Predictor,
    /// The errors of each offset at which a forecast was scored; never empty.
    pub offsets: Vec<OffsetErrors>,
}

/// Mean, standard deviation and maximum of a number over the offsets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OffsetStatistics {
    /// The arithmetic mean, in which every offset has the same weight.
    pub mean: f64,
    /// The standard deviation (divided by n); 0 for one offset.
    pub spread: f64,
    /// The largest number of all offsets.
    pub worst: f64,
}

impl OffsetStatistics {
    fn of(numbers: impl Iterator<Item = f64> + Clone) -> Self {
        let count = numbers.clone().count().max(1) as f64;
        let mean = numbers.clone().map(|number| number / count).sum::<f64>();
        let spread = numbers.clone().map(|number| (number - mean).powi(2) / count).sum::<f64>().sqrt();
        Self { mean, spread, worst: numbers.fold(0.0, f64::max) }
    }
}

impl ScoreRow {
    /// Mean absolute error over the offsets, in the unit of the values.
    #[must_use]
    pub fn mae(&self) -> OffsetStatistics {
        OffsetStatistics::of(self.offsets.iter().map(|errors| errors.mae))
    }

    /// Mean squared error over the offsets, in the unit squared.
    #[must_use]
    pub fn mse(&self) -> OffsetStatistics {
        OffsetStatistics::of(self.offsets.iter().map(|errors| errors.mse))
    }

    /// The square roots of the offsets' mean squared errors, in the unit of the values.
    #[must_use]
    pub fn root_mse(&self) -> OffsetStatistics {
        OffsetStatistics::of(self.offsets.iter().map(|errors| errors.mse.sqrt()))
    }

    /// Number of forecasts that were scored, over all offsets.
    #[must_use]
    pub fn scored(&self) -> usize {
        self.offsets.iter().map(|errors| errors.scored).sum()
    }
}

/// Series, and the errors at every period.
#[derive(Clone, Debug)]
pub struct TradeoffScores {
    /// The series that were scored.
    pub series: Vec<MeasuredSeries>,
    /// Rows in the order of series, period and predictor. A period that is too long for a series
    /// has no rows.
    pub rows: Vec<ScoreRow>,
    /// What the predictors forecast; `None` is the next measurement of the subsample.
    pub target: Option<ForecastTarget>,
}

impl TradeoffScores {
    /// Scores every predictor at the base period and at the multiples nearest to `periods_s`, on
    /// all processors. Calls `on_progress` after each of [`progress_steps`](Self::progress_steps).
    #[must_use]
    pub fn of(
        series: Vec<MeasuredSeries>,
        periods_s: &[f64],
        seed: u64,
        on_progress: &(dyn Fn() + Sync),
    ) -> Self {
        let errors = |i: usize, predictor: Predictor, every: usize| -> Vec<OffsetErrors> {
            let grid: &Grid = &series[i].grid;
            let range = grid.range();
            let errors = |offset| predictor.errors_within(grid, range, every, offset, seed);
            (0..every).filter_map(errors).collect()
        };
        let rows = scored(&series, periods_s, &errors, on_progress);
        Self { series, rows, target: None }
    }

    /// As [`of`](Self::of), but the predictors forecast `target`: the mean of the values of the
    /// whole series up to the horizon, or the value at it, from the values of the subsample. A
    /// horizon in values counts base periods.
    ///
    /// # Errors
    /// [`HorizonError`] for a horizon out of range.
    pub fn ahead(
        series: Vec<MeasuredSeries>,
        periods_s: &[f64],
        target: ForecastTarget,
        seed: u64,
        on_progress: &(dyn Fn() + Sync),
    ) -> Result<Self, HorizonError> {
        let targets = series.iter().map(|measured| GridTargets::of(&measured.grid, target));
        let targets = targets.collect::<Result<Vec<_>, _>>()?;
        let errors = |i: usize, predictor: Predictor, every: usize| -> Vec<OffsetErrors> {
            let grid: &Grid = &series[i].grid;
            let range = grid.range();
            let errors = |offset| predictor.errors_ahead(grid, &targets[i], (every, offset), range, seed);
            (0..every).filter_map(errors).collect()
        };
        let rows = scored(&series, periods_s, &errors, on_progress);
        Ok(Self { series, rows, target: Some(target) })
    }

    /// Number of times that [`of`](Self::of) and [`ahead`](Self::ahead) call `on_progress`.
    #[must_use]
    pub fn progress_steps(series: &[MeasuredSeries], periods_s: &[f64]) -> usize {
        let periods = series.iter().map(|measured| multiples(&measured.grid, periods_s).len());
        periods.sum::<usize>() * Predictor::ALL.len()
    }

    /// The row of a predictor on a series at a period of `every` base periods.
    #[must_use]
    pub fn row(&self, series: usize, every: usize, predictor: Predictor) -> Option<&ScoreRow> {
        let mut rows = self.rows.iter();
        rows.find(|row| (row.series, row.every, row.predictor) == (series, every, predictor))
    }

    /// The periods for which the table has rows of this series, in base periods.
    #[must_use]
    pub fn periods(&self, series: usize) -> Vec<usize> {
        let rows = self.rows.iter().filter(|row| row.series == series);
        let mut periods: Vec<usize> = rows.map(|row| row.every).collect();
        periods.dedup();
        periods
    }

    /// The periods in `periods_s` that are too long for this series, in seconds.
    #[must_use]
    pub fn too_long_s(&self, series: usize, periods_s: &[f64]) -> Vec<f64> {
        let scored = self.periods(series);
        let is_scored = |period_s: &f64| scored.contains(&multiple(*period_s, &self.series[series].grid));
        periods_s.iter().copied().filter(|period_s| !is_scored(period_s)).collect()
    }
}

/// The rows of all series, periods and predictors, computed on all processors. `errors` returns the
/// errors of one row, for the index of a series, a predictor and a number of base periods.
fn scored(
    series: &[MeasuredSeries],
    periods_s: &[f64],
    errors: &(dyn Fn(usize, Predictor, usize) -> Vec<OffsetErrors> + Sync),
    on_progress: &(dyn Fn() + Sync),
) -> Vec<ScoreRow> {
    let jobs: Vec<(usize, usize, Predictor)> = series
        .iter()
        .enumerate()
        .flat_map(|(i, measured)| {
            let periods = multiples(&measured.grid, periods_s).into_iter();
            periods.flat_map(move |every| Predictor::ALL.map(|predictor| (i, every, predictor)))
        })
        .collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut rows = Vec::new();
        while let Some((i, every, predictor)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)).copied() {
            let offsets = errors(i, predictor, every);
            if !offsets.is_empty() {
                let period_s = every as f64 * series[i].grid.base_s;
                rows.push(ScoreRow { series: i, every, period_s, predictor, offsets });
            }
            on_progress();
        }
        rows
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut rows: Vec<ScoreRow> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("scoring does not panic")).collect()
    });
    rows.sort_by_key(|row| (row.series, row.every, row.predictor as usize));
    rows
}

/// The base period and its multiples nearest to `periods_s`, in base periods, each once. Only
/// periods that are shorter than the series are included; otherwise no subsample would have two
/// values.
fn multiples(grid: &Grid, periods_s: &[f64]) -> Vec<usize> {
    let asked = periods_s.iter().map(|period_s| multiple(*period_s, grid));
    let mut multiples: Vec<usize> = asked.filter(|every| *every < grid.slots.len()).chain([1]).collect();
    multiples.sort_unstable();
    multiples.dedup();
    multiples
}

/// The multiple of the base period that is nearest to `period_s`, as a number of base periods.
fn multiple(period_s: f64, grid: &Grid) -> usize {
    // The conversion saturates.
    (period_s / grid.base_s).round().max(1.0) as usize
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;
    use barograph_forecast::{Horizon, HorizonOf};
    use proptest::prelude::*;

    fn measured(base_s: f64, slots: Vec<Option<f64>>) -> MeasuredSeries {
        let grid = Grid { base_s, slots, duplicates: 0 };
        MeasuredSeries { name: "x".to_owned(), length_s: Some(10.0), bit_per_s: Some(1e6), grid }
    }

    fn study(measured: MeasuredSeries, periods_s: &[f64]) -> TradeoffScores {
        TradeoffScores::of(vec![measured], periods_s, 1, &|| {})
    }

    /// The two subsamples of 10, 14, 12, 20, 8 have MAE 3 and 6, and MSE 10 and 36.
    #[test]
    fn all_offsets_have_equal_weight() {
        let study = study(measured(300.0, [10.0, 14.0, 12.0, 20.0, 8.0].map(Some).to_vec()), &[600.0]);
        let row = study.row(0, 2, Predictor::Last).unwrap();
        assert_eq!((row.period_s, row.scored(), row.offsets.len()), (600.0, 3, 2));
        assert_eq!(row.mae(), OffsetStatistics { mean: 4.5, spread: 1.5, worst: 6.0 });
        assert_eq!(row.mse(), OffsetStatistics { mean: 23.0, spread: 13.0, worst: 36.0 });
    }

    #[test]
    fn requested_periods_are_rounded_to_multiples_of_the_base() {
        let slots = vec![Some(1.0); 400];
        let grid = |base_s| Grid { base_s, slots: slots.clone(), duplicates: 0 };
        assert_eq!(multiples(&grid(300.0), &[300.0, 600.0, 86_400.0]), [1, 2, 288]);
        // 10 min are 2.5 periods of 4 min.
        assert_eq!(multiples(&grid(240.0), &[300.0, 600.0, 900.0]), [1, 3, 4]);
        assert_eq!(multiples(&grid(3600.0), &[300.0, 1e12]), [1]);
        let study = study(measured(300.0, slots.clone()), &[600.0, 86_400.0, 200_000.0]);
        assert_eq!(study.periods(0), [1, 2, 288]);
        assert_eq!(study.too_long_s(0, &[600.0, 200_000.0]), [200_000.0]);
    }

    #[test]
    fn bytes_per_hour_decrease_with_longer_periods() {
        // 2 Mbit/s for 10 s are 2.5 MB, twelve times an hour at 5 min.
        let measured = measured(300.0, vec![Some(2.0); 3]);
        assert_eq!(measured.bytes_per_hour(300.0), Some(30e6));
        assert_eq!(measured.bytes_per_hour(3600.0), Some(2.5e6));
        let unknown = MeasuredSeries { length_s: None, ..measured };
        assert_eq!(unknown.bytes_per_hour(300.0), None);
    }

    /// A predictor that is told less forecasts the same windows worse.
    #[test]
    fn a_longer_period_has_larger_errors_at_the_same_horizon() {
        let slots = (0..900).map(|i| Some(100.0 + 50.0 * (0.2 * f64::from(i)).sin())).collect();
        let target = ForecastTarget { horizon: Horizon::Steps(4), of: HorizonOf::Mean };
        let study =
            TradeoffScores::ahead(vec![measured(300.0, slots)], &[300.0, 3000.0], target, 1, &|| {}).unwrap();
        let mae = |every| study.row(0, every, Predictor::Last).unwrap().mae().mean;
        assert!((mae(1) - mae(10)).abs() < 0.1 * mae(1), "the last value is as old at each forecast");
        let battery = |every| study.row(0, every, Predictor::Battery).unwrap().mae().mean;
        assert!(battery(1) < 0.5 * battery(10), "{} {}", battery(1), battery(10));
        assert_eq!(study.target, Some(target));
        let zero = ForecastTarget { horizon: Horizon::Steps(0), ..target };
        assert!(TradeoffScores::ahead(study.series, &[], zero, 1, &|| {}).is_err());
    }

    proptest! {
        #[test]
        fn scores_at_the_base_period_equal_the_plain_scores(values in prop::collection::vec(0.0_f64..1e6, 2..60)) {
            let study = study(measured(300.0, values.iter().copied().map(Some).collect()), &[]);
            let row = study.row(0, 1, Predictor::Last).unwrap();
            let steps: Vec<f64> = values.windows(2).map(|two| (two[1] - two[0]).abs()).collect();
            let mae = steps.iter().sum::<f64>() / steps.len() as f64;
            prop_assert!((row.mae().mean - mae).abs() <= 1e-9 * mae.max(1.0));
            prop_assert_eq!((row.mae().spread, row.scored()), (0.0, values.len() - 1));
        }

        #[test]
        fn every_pair_of_adjacent_values_is_scored_in_one_subsample(
            slots in prop::collection::vec(prop::option::weighted(0.8, 0.0..1e6), 2..80),
            every in 1_usize..20,
        ) {
            let pairs = (every..slots.len())
                .filter(|i| slots[*i].is_some() && slots[i - every].is_some())
                .count();
            let grid = Grid { base_s: 1.0, slots, duplicates: 0 };
            for predictor in Predictor::ALL {
                let scored: usize = (0..every)
                    .filter_map(|offset| predictor.errors(&grid, every, offset, 1))
                    .map(|errors| errors.scored)
                    .sum();
                prop_assert_eq!(scored, pairs, "{:?}", predictor);
            }
        }
    }
}
