//! Rows of `barograph forecast --steps`.

use std::io::{self, Write};

use barograph_forecast::{Forecaster, Horizon, HorizonForecast, Interval, Objective};
use barograph_study::ForecastTarget;
use barograph_study::input::Sample;
use serde::Serialize;

use super::number::Exact;
use super::quantiles::{Quantiles, Shares};

/// The forecasts for one row, made before its value was read.
pub(super) struct Issued {
    /// Forecast that minimises the squared error.
    pub(super) mean: HorizonForecast,
    /// Forecast that minimises the absolute error.
    pub(super) median: HorizonForecast,
    /// Interval around the median forecast.
    pub(super) interval: Option<Interval>,
    quantiles: Quantiles,
}

impl Issued {
    /// Forecasts before the value at `time_s`: for `target`, or of that value; `None` before the
    /// first value, and for a time before the period of the values is known.
    pub(super) fn before(
        forecaster: &Forecaster,
        target: Option<ForecastTarget>,
        level: f64,
        shares: &Shares,
        time_s: f64,
    ) -> Option<Self> {
        match target.filter(|target| target.horizon != Horizon::Steps(1)) {
            None => {
                let battery = forecaster.battery();
                let forecast = |objective| battery.forecast_at(objective, time_s).map(HorizonForecast::from);
                Some(Self {
                    mean: forecast(Objective::Squared)?,
                    median: forecast(Objective::Absolute)?,
                    interval: battery.interval_at(level, time_s),
                    quantiles: shares.quantiles(|share| forecaster.quantile_at(share, time_s)),
                })
            }
            Some(ForecastTarget { horizon, of }) => {
                let forecast = |objective| forecaster.forecast_over(horizon, of, objective);
                Some(Self {
                    mean: forecast(Objective::Squared)?,
                    median: forecast(Objective::Absolute)?,
                    interval: forecaster.interval_over(horizon, of, level),
                    quantiles: shares.quantiles(|share| forecaster.quantile_over(horizon, of, share)),
                })
            }
        }
    }
}

/// Writes the header line of the steps.
pub(super) fn header(out: &mut impl Write, interval: bool, shares: &Shares) -> io::Result<()> {
    out.write_all(b"index,time_s,value,mse_forecast,mse_error,mse_method,mae_forecast,mae_error,mae_method")?;
    out.write_all(if interval { b",lower,upper" } else { b"" })?;
    shares.header(out)?;
    out.write_all(b"\n")
}

/// One step: a value, and the forecasts of this value from the values before.
#[derive(Serialize)]
pub(super) struct Row {
    index: u64,
    time_s: f64,
    value: f64,
    mse_forecast: f64,
    /// Mean squared error of the mean forecasts in the rows before this one, as far as their values
    /// are known; 0 if there is none.
    mse_error: f64,
    mse_method: &'static str,
    mae_forecast: f64,
    /// Mean absolute error of the median forecasts in these rows; 0 if there is none.
    mae_error: f64,
    mae_method: &'static str,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    ends: Option<Ends>,
    #[serde(flatten)]
    quantiles: Quantiles,
}

/// Ends of the interval, for two columns; both are `None` until the interval is calibrated.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Ends {
    pub(super) lower: Option<f64>,
    pub(super) upper: Option<f64>,
}

impl From<Option<Interval>> for Ends {
    fn from(interval: Option<Interval>) -> Self {
        Self { lower: interval.map(|i| i.lower), upper: interval.map(|i| i.upper) }
    }
}

impl Row {
    pub(super) fn new(sample: Sample, issued: Issued, interval: bool) -> Self {
        Self {
            index: issued.mean.count,
            time_s: sample.time_s,
            value: sample.value,
            mse_forecast: issued.mean.value,
            mse_error: issued.mean.mse,
            mse_method: issued.mean.method.0,
            mae_forecast: issued.median.value,
            mae_error: issued.median.mae,
            mae_method: issued.median.method.0,
            ends: interval.then(|| issued.interval.into()),
            quantiles: issued.quantiles,
        }
    }

    pub(super) fn csv(&self, out: &mut impl Write) -> io::Result<()> {
        let exact = Exact; // A function from number to text.
        write!(
            out,
            "{},{},{},{},{},{},{},{},{}",
            self.index,
            exact(self.time_s),
            exact(self.value),
            exact(self.mse_forecast),
            exact(self.mse_error),
            self.mse_method,
            exact(self.mae_forecast),
            exact(self.mae_error),
            self.mae_method,
        )?;
        match self.ends {
            None => {}
            Some(Ends { lower: Some(lower), upper: Some(upper) }) => {
                write!(out, ",{},{}", exact(lower), exact(upper))?
            }
            Some(_) => out.write_all(b",,")?,
        }
        self.quantiles.csv(out)?;
        out.write_all(b"\n")
    }

    pub(super) fn json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        out.write_all(b"\n")
    }
}
