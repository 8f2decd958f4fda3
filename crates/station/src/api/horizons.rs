//! Horizons and quantiles of `/v1/forecast` (docs/spec/api.md, Horizons).

use std::fmt::Display;
use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use barograph_api::{AgedForecast, Forecasts, HorizonForecast, Quantile};
use barograph_forecast::{Horizon, HorizonBasis, HorizonOf, Objective, QUANTILE_RANGE, SeriesId};

use super::guard::RemoteEnd;
use super::heavy::{self, ReadSource, Rows, run_blocking};
use super::query::SeriesSelection;
use super::{ApiRefusal, ApiState, JSON_HEADERS, json};
use crate::forecast::best::Age;
use crate::forecast::series::SeriesState;
use crate::forecast::series_reader::for_few_states;
use crate::time::now_unix_ns;

/// What a request adds to the forecasts of the next value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HorizonRequest {
    horizons: Vec<Horizon>,
    of: HorizonOf,
    /// Shares of the quantiles.
    shares: Vec<f64>,
}

impl HorizonRequest {
    /// Parses the parameters `horizon`, `of` and `quantile`. Without `horizon`, quantiles are those
    /// of the next value. Returns `None` if none of the three is given.
    pub(super) fn parse(
        horizon: Option<&str>,
        of: Option<&str>,
        quantile: Option<&str>,
    ) -> Result<Option<Self>, ApiRefusal> {
        let horizons = horizon.map(|text| list("horizon", text, HORIZONS_MAX, str::parse::<Horizon>));
        let shares = quantile.map(|text| list("quantile", text, QUANTILES_MAX, share)).transpose()?;
        let horizons = match (horizons.transpose()?, &shares) {
            (Some(horizons), _) => horizons,
            (None, Some(_)) => vec![Horizon::Steps(1)],
            (None, None) if of.is_some() => {
                return Err(ApiRefusal::bad("`of`: needs the parameter `horizon`"));
            }
            (None, None) => return Ok(None),
        };
        let of = match of {
            None | Some("mean") => HorizonOf::Mean,
            Some("value") => HorizonOf::Value,
            Some(other) => {
                return Err(ApiRefusal::bad(format!("`of`: expected mean or value, found {other:?}")));
            }
        };
        Ok(Some(Self { horizons, of, shares: shares.unwrap_or_default() }))
    }

    /// Responds with the forecasts of the selected series.
    pub(super) async fn respond(
        self,
        shared: &Arc<ApiState>,
        remote: &RemoteEnd,
        selection: SeriesSelection,
        level: f64,
    ) -> Result<Response, ApiRefusal> {
        let series_table = Arc::clone(&shared.series_table);
        let make = run_blocking(move || {
            let names = selection.series(&series_table);
            if SERIES_MAX < names.len() {
                return Err(ApiRefusal::bad(format!(
                    "`horizon`, `quantile`: expected at most {SERIES_MAX} series, found {}; choose them with \
                     source, target, quantity or group",
                    names.len()
                )));
            }
            let mut rows = Rows::new("forecasts");
            for_few_states(&series_table, &names, |series, state| self.push(&mut rows, series, state, level));
            Ok(rows.finish())
        });
        let make = async { make.await? };
        let text = heavy::text(shared, remote, ReadSource::SeriesTable, None, make).await?;
        Ok((JSON_HEADERS, text).into_response())
    }

    /// Adds the row of a series; a series without a forecast has no row.
    fn push(&self, rows: &mut Rows, series: &SeriesId, state: &SeriesState, level: f64) {
        let Some(forecasts) = json::forecasts_of(series, state, level) else { return };
        let horizons = self.horizons.iter().map(|horizon| self.forecast_over(state, *horizon, level));
        rows.push(&Forecasts { now: self.now(state, level), horizons: horizons.collect(), ..forecasts });
    }

    fn forecast_over(&self, state: &SeriesState, horizon: Horizon, level: f64) -> HorizonForecast {
        let forecast = |objective| state.forecaster().forecast_over(horizon, self.of, objective);
        let (mean, median) = (forecast(Objective::Squared), forecast(Objective::Absolute));
        let ends = state.interval_over(horizon, self.of, level);
        let (steps, seconds) = match horizon {
            Horizon::Steps(steps) => (Some(steps), None),
            Horizon::Seconds(seconds) => (None, Some(seconds)),
        };
        HorizonForecast {
            steps,
            seconds,
            of: self.of.name().into(),
            scored: median.map_or(0, |median| median.scored),
            mean: mean.as_ref().map(json::forecast_over),
            median: median.as_ref().map(json::forecast_over),
            lower: ends.map(|(lower, _)| lower),
            upper: ends.map(|(_, upper)| upper),
            basis: median.map(|median| median.basis.name().into()),
            from_steps: median.map_or(Vec::new(), |median| from_steps(median.basis)),
            quantiles: self.quantiles(|share| state.quantile_over(horizon, self.of, share)),
            availability: state.availability_over(horizon),
        }
    }

    /// The value now; `None` if the age of the newest value is unknown.
    fn now(&self, state: &SeriesState, level: f64) -> Option<AgedForecast> {
        let now_unix_ns = now_unix_ns();
        let age = Age::at(now_unix_ns, state.forecasts()?.time_unix_ns, state.value_ahead_s());
        let ends = state.interval_aged(level, now_unix_ns);
        Some(AgedForecast {
            age_s: age.age_s?,
            value: state.forecast_aged(Objective::Absolute, now_unix_ns)?.value,
            lower: ends.map(|(lower, _)| lower),
            upper: ends.map(|(_, upper)| upper),
            quantiles: self.quantiles(|share| state.quantile_aged(share, now_unix_ns)),
        })
    }

    /// The requested quantiles that are calibrated.
    fn quantiles(&self, quantile: impl Fn(f64) -> Option<f64>) -> Vec<Quantile> {
        self.shares
            .iter()
            .filter_map(|share| Some(Quantile { share: *share, value: quantile(*share)? }))
            .collect()
    }
}

fn from_steps(basis: HorizonBasis) -> Vec<f64> {
    match basis {
        HorizonBasis::Own => Vec::new(),
        HorizonBasis::Between { shorter, longer } => vec![shorter, longer],
        HorizonBasis::Beyond { longest } => vec![longest],
    }
}

/// Parses a parameter with commas between its items.
fn list<T, E: Display>(
    key: &str,
    text: &str,
    max: usize,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Vec<T>, ApiRefusal> {
    let items = text.split(',').count();
    if max < items {
        return Err(ApiRefusal::bad(format!("`{key}`: expected at most {max} items, found {items}")));
    }
    let item = |item: &str| {
        parse(item).map_err(|error| ApiRefusal::bad(format!("`{key}`: {error}, found {item:?}")))
    };
    text.split(',').map(item).collect()
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if QUANTILE_RANGE.contains(&share) => Ok(share),
        _ => Err(format!("expected numbers from {} to {}", QUANTILE_RANGE.start(), QUANTILE_RANGE.end())),
    }
}

/// Maximum number of horizons of a request: a fan ahead has five to eight.
const HORIZONS_MAX: usize = 8;
/// Maximum number of quantiles of a request: as many as a forecaster tracks.
const QUANTILES_MAX: usize = barograph_forecast::QUANTILE_SHARES.len();
/// Maximum number of series in a response with horizons. With eight horizons and nine quantiles, a
/// series takes 8 KB of the response and some hundred microseconds.
const SERIES_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn horizons_and_quantiles_are_lists_with_commas() {
        let parse = HorizonRequest::parse;
        assert_eq!(parse(None, None, None).unwrap(), None);
        let both = parse(Some("10m,30"), Some("value"), Some("0.1,0.9")).unwrap().unwrap();
        let horizons = vec![Horizon::Seconds(600.0), Horizon::Steps(30)];
        assert_eq!(both, HorizonRequest { horizons, of: HorizonOf::Value, shares: vec![0.1, 0.9] });
        let next = parse(None, None, Some("0.5")).unwrap().unwrap();
        assert_eq!((next.horizons, next.of), (vec![Horizon::Steps(1)], HorizonOf::Mean));
    }

    #[test]
    fn refusals_name_the_parameter_and_the_allowed_range() {
        for (horizon, of, quantile, words) in [
            (Some("0"), None, None, ["`horizon`", "1 to 1000000"]),
            (Some("10m,"), None, None, ["`horizon`", "found \"\""]),
            (Some("1,2,3,4,5,6,7,8,9"), None, None, ["`horizon`", "at most 8 items, found 9"]),
            (Some("1h"), Some("median"), None, ["`of`", "mean or value"]),
            (None, Some("mean"), None, ["`of`", "`horizon`"]),
            (None, None, Some("0.001"), ["`quantile`", "0.005 to 0.995"]),
            (None, None, Some("NaN"), ["`quantile`", "found \"NaN\""]),
            (None, None, Some(".1,.2,.3,.4,.5,.6,.7,.8,.9,.95"), ["`quantile`", "at most 9 items"]),
        ] {
            let error = HorizonRequest::parse(horizon, of, quantile).unwrap_err().error;
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
    }
}
