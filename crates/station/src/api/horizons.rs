//! Horizons, quantiles and times of transfers of `/v1/forecast` (docs/spec/api.md, Horizons).

use std::fmt::Display;
use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use barograph_api::{AgedForecast, Forecasts, HorizonForecast, Quantile, TransferForecast};
use barograph_forecast::{Horizon, HorizonBasis, HorizonOf, Objective, QUANTILE_RANGE, SeriesId};

use super::guard::RemoteEnd;
use super::heavy::{self, ReadSource, Rows, run_blocking};
use super::query::{SeriesSelection, transfer_bytes};
use super::{ApiRefusal, ApiState, JSON_HEADERS, json};
use crate::forecast::best::{Age, is_goodput, series_transfer_time};
use crate::forecast::series::{SeriesState, SeriesTable};
use crate::forecast::series_reader::for_few_states;
use crate::time::now_unix_ns;

/// What a request adds to the forecasts of the next value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HorizonRequest {
    horizons: Vec<Horizon>,
    of: HorizonOf,
    /// Shares of the quantiles.
    shares: Vec<f64>,
    /// Size of the transfers (bytes).
    bytes: Option<u64>,
}

impl HorizonRequest {
    /// Parses the parameters `horizon`, `of`, `quantile` and `bytes`. Without `horizon`, quantiles
    /// are those of the next value. Returns `None` if none of the four is given.
    pub(super) fn parse(
        horizon: Option<&str>,
        of: Option<&str>,
        quantile: Option<&str>,
        bytes: Option<u64>,
    ) -> Result<Option<Self>, ApiRefusal> {
        let bytes = bytes.map(transfer_bytes).transpose()?;
        let horizons = horizon.map(|text| list("horizon", text, HORIZONS_MAX, str::parse::<Horizon>));
        let shares = quantile.map(|text| list("quantile", text, QUANTILES_MAX, share)).transpose()?;
        let horizons = match (horizons.transpose()?, &shares) {
            (Some(horizons), _) => horizons,
            (None, Some(_)) => vec![Horizon::Steps(1)],
            (None, None) if of.is_some() => {
                return Err(ApiRefusal::bad("`of`: needs the parameter `horizon`"));
            }
            (None, None) if bytes.is_some() => Vec::new(),
            (None, None) => return Ok(None),
        };
        let of = match of {
            None | Some("mean") => HorizonOf::Mean,
            Some("value") => HorizonOf::Value,
            Some(other) => {
                return Err(ApiRefusal::bad(format!("`of`: expected mean or value, found {other:?}")));
            }
        };
        Ok(Some(Self { horizons, of, shares: shares.unwrap_or_default(), bytes }))
    }

    /// Responds with the forecasts of the selected series.
    pub(super) async fn respond(
        self,
        shared: &Arc<ApiState>,
        remote: &RemoteEnd,
        selection: SeriesSelection,
        level: f64,
    ) -> Result<Response, ApiRefusal> {
        if self.bytes.is_some() && level > TRANSFER_LEVEL_MAX {
            return Err(ApiRefusal::bad(format!(
                "`level`: expected at most {TRANSFER_LEVEL_MAX} with `bytes`, found {level}"
            )));
        }
        let series_table = Arc::clone(&shared.series_table);
        let make = run_blocking(move || {
            let names = selection.series(&series_table);
            if SERIES_MAX < names.len() {
                return Err(ApiRefusal::bad(format!(
                    "`horizon`, `quantile`, `bytes`: expected at most {SERIES_MAX} series, found {}; choose \
                     them with source, target, quantity or group",
                    names.len()
                )));
            }
            let mut rows = Rows::new("forecasts");
            for_few_states(&series_table, &names, |series_table, series, state| {
                self.push(&mut rows, series_table, (series, state), level);
            });
            Ok(rows.finish())
        });
        let make = async { make.await? };
        let text = heavy::text(shared, remote, ReadSource::SeriesTable, None, make).await?;
        Ok((JSON_HEADERS, text).into_response())
    }

    /// Adds the row of a series; a series without a forecast has no row.
    fn push(
        &self,
        rows: &mut Rows,
        series_table: &SeriesTable,
        (series, state): (&SeriesId, &SeriesState),
        level: f64,
    ) {
        let Some(forecasts) = json::forecasts_of(series, state, level) else { return };
        let horizons = self.horizons.iter().map(|horizon| self.forecast_over(state, *horizon, level));
        rows.push(&Forecasts {
            now: if self.horizons.is_empty() { None } else { self.now(state, level) },
            horizons: horizons.collect(),
            transfer: self.transfer(series_table, (series, state), level),
            ..forecasts
        });
    }

    /// The time of a transfer in the direction of a series; `None` if the series has no goodputs.
    fn transfer(
        &self,
        series_table: &SeriesTable,
        (series, state): (&SeriesId, &SeriesState),
        level: f64,
    ) -> Option<TransferForecast> {
        let bytes = self.bytes.filter(|_| is_goodput(series))?;
        let time = series_transfer_time(series_table, (series, state), bytes, level, now_unix_ns());
        let ends_s = time.and_then(|time| time.ends_s);
        Some(TransferForecast {
            bytes,
            forecast: time.map(|time| time.forecast_s),
            lower: ends_s.map(|(lower_s, _)| lower_s),
            upper: ends_s.map(|(_, upper_s)| upper_s),
        })
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
            quantiles: self.calibrated(state.quantiles_over(horizon, self.of, &self.shares)),
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
            quantiles: self
                .calibrated(self.shares.iter().map(|share| state.quantile_aged(*share, now_unix_ns))),
        })
    }

    /// The requested quantiles that are calibrated, from one for each share.
    fn calibrated(&self, quantiles: impl IntoIterator<Item = Option<f64>>) -> Vec<Quantile> {
        self.shares
            .iter()
            .zip(quantiles)
            .filter_map(|(share, value)| Some(Quantile { share: *share, value: value? }))
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
/// Highest level of the interval of a transfer: its ends are then the outermost quantiles.
const TRANSFER_LEVEL_MAX: f64 = 0.99;
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
        assert_eq!(parse(None, None, None, None).unwrap(), None);
        let both = parse(Some("10m,30"), Some("value"), Some("0.1,0.9"), None).unwrap().unwrap();
        let horizons = vec![Horizon::Seconds(600.0), Horizon::Steps(30)];
        let expected = HorizonRequest { horizons, of: HorizonOf::Value, shares: vec![0.1, 0.9], bytes: None };
        assert_eq!(both, expected);
        let next = parse(None, None, Some("0.5"), None).unwrap().unwrap();
        assert_eq!((next.horizons, next.of), (vec![Horizon::Steps(1)], HorizonOf::Mean));
        let transfer = parse(None, None, None, Some(1000)).unwrap().unwrap();
        assert_eq!((transfer.horizons, transfer.bytes), (Vec::new(), Some(1000)));
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
            let error = HorizonRequest::parse(horizon, of, quantile, None).unwrap_err().error;
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
        let error = HorizonRequest::parse(None, None, None, Some(0)).unwrap_err().error;
        assert!(error.starts_with("`bytes`: expected 1 to "), "{error}");
    }
}
