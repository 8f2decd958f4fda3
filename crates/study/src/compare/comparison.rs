//! The comparison of two series: moments, coefficients, outliers, forecast errors and their
//! distance.

use barograph_forecast::{BatteryConfig, InvalidValue};
use barograph_probe::reduce::median;
use serde::Serialize;

use super::distance::{critical_value, kolmogorov_smirnov};
use super::errors::{AheadError, ErrorsAhead, Histogram, forecast_errors};
use super::moments::Moments;
use super::pairing::Pairing;
use super::regression::{Preference, coefficient, outlier_from};
use super::series::{TcpCounters, TimedSeries};
use crate::ahead::ForecastTarget;
use crate::units::format_significant;

/// Two series, compared as JavaNws §4 and §5 compare Java with C.
#[derive(Clone, Debug)]
pub struct SeriesComparison {
    /// The first series; in the paper, the series measured by C.
    pub a: ComparedSeries,
    /// The second series; in the paper, the series measured by Java.
    pub b: ComparedSeries,
    /// Whether larger or smaller values are better.
    pub better: Preference,
    /// The pairs of values that are nearest in time.
    pub pairing: Pairing,
    /// The coefficient over all pairs. A coefficient below 1 means that the second series has worse
    /// values.
    pub coefficient: Option<f64>,
    /// The coefficient without the pairs that have an outlier.
    pub without_outliers: Option<f64>,
    /// The pairs that have an outlier, in order of time.
    pub outliers: Vec<Outlier>,
    /// The distance of Kolmogorov and Smirnov between the forecast errors, 0 to 1.
    pub distance: Option<f64>,
    /// The distance that 5 % of pairs of independent samples would exceed by chance, if the samples
    /// have as many values as the two series have windows.
    pub distance_critical: Option<f64>,
}

/// One of the two series, with the results that depend on this series alone.
#[derive(Clone, Debug)]
pub struct ComparedSeries {
    /// The values of the series, with their times.
    pub series: TimedSeries,
    /// Mean and variance of all values.
    pub moments: Moments,
    /// The median of all values, in their unit.
    pub median: f64,
    /// What was measured minus its forecast, for every forecast that was issued. For the next
    /// value, there is one for every value except the first.
    pub errors: Vec<f64>,
    /// Number of windows of the forecasts that do not overlap: for the next value, the number of
    /// errors.
    pub windows: usize,
    /// The errors in bins that both series share.
    pub histogram: Histogram,
}

/// A pair in which at least one value is at least 100 times the median of its series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Outlier {
    /// Time at which the first series' value was measured, in seconds.
    pub time_s: f64,
    /// The first series' value.
    pub a: f64,
    /// The second series' value.
    pub b: f64,
    /// Whether the first series' value is an outlier of its series.
    pub is_a: bool,
    /// Whether the second series' value is an outlier of its series.
    pub is_b: bool,
    /// The kernel's counters at the first series' value.
    pub kernel_a: TcpCounters,
    /// The kernel's counters at the second series' value.
    pub kernel_b: TcpCounters,
    /// The cause of the outlier, if it is known.
    pub cause: OutlierCause,
}

/// The cause of an outlier, as far as the kernel's counters show the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OutlierCause {
    /// The network is the cause: if a value of the pair is an outlier, TCP had to retransmit
    /// segments during the measurement of this value.
    Network,
    /// The kernel's counters are not known, or show no retransmission.
    Unexplained,
}

impl SeriesComparison {
    /// Compares two series; `config` is the configuration of the battery that computes the forecast
    /// errors.
    ///
    /// # Errors
    /// [`InvalidValue`] for a value that no battery accepts.
    pub fn of(
        a: TimedSeries,
        b: TimedSeries,
        better: Preference,
        config: &BatteryConfig,
    ) -> Result<Self, InvalidValue> {
        let errors = |series: &TimedSeries| -> Result<ErrorsAhead, InvalidValue> {
            let errors = forecast_errors(series.values(), config)?;
            Ok(ErrorsAhead { windows: errors.len(), errors })
        };
        let errors = [errors(&a)?, errors(&b)?];
        Ok(Self::with_errors(a, b, better, errors))
    }

    /// As [`of`](Self::of), with the errors of the forecasts of `target` instead of the next value.
    ///
    /// # Errors
    /// [`AheadError`] for a value that no forecaster accepts, and for a horizon out of range.
    pub fn ahead(
        a: TimedSeries,
        b: TimedSeries,
        better: Preference,
        config: &BatteryConfig,
        target: ForecastTarget,
    ) -> Result<Self, AheadError> {
        let errors = |series: &TimedSeries| ErrorsAhead::of(&series.samples, config, target);
        let errors = [errors(&a)?, errors(&b)?];
        Ok(Self::with_errors(a, b, better, errors))
    }

    fn with_errors(a: TimedSeries, b: TimedSeries, better: Preference, errors: [ErrorsAhead; 2]) -> Self {
        let pairing = Pairing::of(&a.times_s(), &b.times_s());
        let span = span(a.values().chain(b.values()));
        let [errors_a, errors_b] = errors;
        let (a, b) = (ComparedSeries::of(a, span, errors_a), ComparedSeries::of(b, span, errors_b));
        let outliers = outliers(&a, &b, &pairing);
        let pairs = || pairing.pairs.iter().map(|(i, j)| (a.value(*i), b.value(*j)));
        let is_usual = |pair: &(f64, f64)| !a.is_outlier(pair.0) && !b.is_outlier(pair.1);
        Self {
            coefficient: coefficient(pairs(), better),
            without_outliers: coefficient(pairs().filter(is_usual), better),
            distance: kolmogorov_smirnov(&a.errors, &b.errors),
            distance_critical: critical_value(a.windows, b.windows),
            outliers,
            better,
            pairing,
            a,
            b,
        }
    }
}

impl SeriesComparison {
    /// Reasons why the pairs may not belong together, as sentences for people; empty if there are
    /// none.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let Pairing { pairs, time_difference_max_s, .. } = &self.pairing;
        let values = self.a.series.samples.len() + self.b.series.samples.len();
        let mut warnings = Vec::new();
        if 4 * pairs.len() < values {
            warnings
                .push(format!("less than half of the values have a partner ({} of {values}); check that both series cover the same time", 2 * pairs.len()));
        }
        let period_s = [&self.a, &self.b].into_iter().filter_map(ComparedSeries::period_s).reduce(f64::max);
        if let Some(period_s) = period_s.filter(|period_s| PERIODS_MAX * period_s < *time_difference_max_s) {
            warnings.push(format!(
                "the values of a pair are up to {} s apart, more than {PERIODS_MAX} median periods of {} s; check the \
                 clocks of both series",
                format_significant(*time_difference_max_s),
                format_significant(period_s)
            ));
        }
        warnings
    }
}

/// Maximum time between the two values of a pair, as a multiple of the median period. In a longer
/// time, the network may change.
const PERIODS_MAX: f64 = 3.0;

impl ComparedSeries {
    /// The median time from a value to the next, in seconds; `None` for fewer than two values.
    fn period_s(&self) -> Option<f64> {
        let times_s = self.series.times_s();
        median(&times_s.windows(2).map(|two| two[1] - two[0]).collect::<Vec<_>>())
    }

    fn of(series: TimedSeries, span: f64, ErrorsAhead { errors, windows }: ErrorsAhead) -> Self {
        Self {
            moments: Moments::of(series.values()),
            median: median(&series.values().collect::<Vec<_>>()).unwrap_or(0.0),
            histogram: Histogram::of(&errors, span),
            errors,
            windows,
            series,
        }
    }

    /// Mean absolute error of the forecasts, in the unit of the values; `None` without forecasts.
    #[must_use]
    pub fn mae(&self) -> Option<f64> {
        let sum: f64 = self.errors.iter().map(|error| error.abs()).sum();
        (!self.errors.is_empty()).then(|| sum / self.errors.len() as f64)
    }

    fn value(&self, index: usize) -> f64 {
        self.series.samples[index].value
    }

    fn is_outlier(&self, value: f64) -> bool {
        outlier_from(self.median).is_some_and(|from| from <= value)
    }
}

/// The pairs with an outlier, with their counters and their cause.
fn outliers(a: &ComparedSeries, b: &ComparedSeries, pairing: &Pairing) -> Vec<Outlier> {
    let pairs = pairing.pairs.iter().map(|(i, j)| {
        let (value_a, value_b) = (a.value(*i), b.value(*j));
        let (is_a, is_b) = (a.is_outlier(value_a), b.is_outlier(value_b));
        let (kernel_a, kernel_b) = (a.series.kernel[*i], b.series.kernel[*j]);
        let sent_again = |kernel: TcpCounters| kernel.retrans.is_some_and(|count| count > 0);
        let is_explained = (!is_a || sent_again(kernel_a)) && (!is_b || sent_again(kernel_b));
        let cause = if is_explained { OutlierCause::Network } else { OutlierCause::Unexplained };
        let time_s = a.series.samples[*i].time_s;
        Outlier { time_s, a: value_a, b: value_b, is_a, is_b, kernel_a, kernel_b, cause }
    });
    pairs.filter(|pair| pair.is_a || pair.is_b).collect()
}

/// The greatest value minus the least; 0 without values.
fn span(values: impl Iterator<Item = f64>) -> f64 {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    (high - low).max(0.0)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;
    use barograph_forecast::{Horizon, HorizonOf, Preset, Rule};

    fn study(a: &str, b: &str, better: Preference) -> SeriesComparison {
        let config = BatteryConfig { preset: Preset::Full, rule: Rule::Blend, levels: Vec::new() };
        let read = |text: &str| TimedSeries::read(text.as_bytes()).unwrap();
        SeriesComparison::of(read(a), read(b), better, &config).unwrap()
    }

    #[test]
    fn outliers_are_excluded_and_listed_with_their_cause() {
        let a = "time_s,value,retrans\n0,1,0\n10,1,0\n20,100,2\n30,1,0\n40,1,0\n";
        let b = "0.5,2\n10.5,2\n20.5,2\n30.5,200\n40.5,2\n";
        let study = study(a, b, Preference::Smaller);
        assert_eq!(study.without_outliers, Some(0.5));
        assert!(study.coefficient.is_some_and(|all| all < 0.1));
        let told: Vec<_> =
            study.outliers.iter().map(|pair| (pair.time_s, pair.a, pair.b, pair.cause)).collect();
        let expected =
            [(20.0, 100.0, 2.0, OutlierCause::Network), (30.0, 1.0, 200.0, OutlierCause::Unexplained)];
        assert_eq!(told, expected, "100 times the median exactly is an outlier");
    }

    #[test]
    fn few_or_distant_pairs_give_a_warning() {
        let text = |count: i32, shift_s: i32| {
            (0..count).map(|i| format!("{},1\n", 10 * i + shift_s)).collect::<String>()
        };
        let warnings = |a: &str, b: &str| study(a, b, Preference::Larger).warnings();
        assert_eq!(warnings(&text(20, 0), &text(20, 3)), Vec::<String>::new());
        let few = warnings(&text(20, 0), &text(4, 3));
        assert!(few.len() == 1 && few[0].contains("(8 of 24)"), "{few:?}");
        let far = warnings(&text(20, 0), &text(20, 10_000));
        assert!(far.iter().any(|doubt| doubt.contains("more than 3 median periods of 10 s")), "{far:?}");
    }

    #[test]
    fn a_series_compared_with_itself_has_no_difference() {
        let text: String = (0..300).map(|i| format!("{i},{}\n", 5 + (i * 7) % 11)).collect();
        let study = study(&text, &text, Preference::Larger);
        assert_eq!((study.coefficient, study.distance), (Some(1.0), Some(0.0)));
        assert_eq!((study.a.histogram.clone(), study.outliers.len()), (study.b.histogram.clone(), 0));
        assert_eq!(study.a.errors.len(), 299);
        assert_eq!(study.a.histogram.width, 10.0 / 100.0, "over max − min of the measured values");
    }

    #[test]
    fn overlapping_errors_ahead_count_as_few_independent_ones() {
        let text: String = (0..300).map(|i| format!("{i},{}\n", 5 + (i * 7) % 11)).collect();
        let read = || TimedSeries::read(text.as_bytes()).unwrap();
        let target = ForecastTarget { horizon: Horizon::Steps(30), of: HorizonOf::Mean };
        let config = BatteryConfig::default();
        let study = SeriesComparison::ahead(read(), read(), Preference::Larger, &config, target).unwrap();
        assert_eq!((study.a.errors.len(), study.a.windows, study.distance), (270, 9, Some(0.0)));
        assert_eq!(study.distance_critical, critical_value(9, 9));
    }

    #[test]
    fn one_pair_of_values_gives_a_coefficient_only() {
        let study = study("0,2\n", "1,1\n", Preference::Larger);
        assert_eq!((study.coefficient, study.distance, study.a.moments.variance), (Some(0.5), None, None));
    }
}
