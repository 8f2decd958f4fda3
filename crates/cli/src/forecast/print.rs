//! Output of `barograph forecast`: rows of steps, and the forecast of the next value.

use std::fmt;
use std::io::{self, Write};

use barograph_forecast::{
    Battery, EpochForecaster, Forecast, Interval, Method, Objective, SCORED_MIN_FOR_INTERVAL,
};
use serde::Serialize;

use super::Args;
use barograph_study::input::Sample;

/// The forecasts of one value, made before the value was read.
pub(super) struct Issued {
    /// Forecast that minimises the squared error.
    pub(super) mean: Forecast,
    /// Forecast that minimises the absolute error.
    pub(super) median: Forecast,
    /// Interval around the median forecast.
    pub(super) interval: Option<Interval>,
}

impl Issued {
    /// Forecasts for a value at `time_s`, or for the next value; `None` before the first value.
    pub(super) fn of(battery: &Battery, level: f64, time_s: Option<f64>) -> Option<Self> {
        let forecast = |objective| match time_s {
            Some(time_s) => battery.forecast_at(objective, time_s),
            None => battery.forecast(objective),
        };
        Some(Self {
            mean: forecast(Objective::Squared)?,
            median: forecast(Objective::Absolute)?,
            interval: match time_s {
                Some(time_s) => battery.interval_at(level, time_s),
                None => battery.interval(level),
            },
        })
    }
}

/// Writes the header line of the steps.
pub(super) fn header(out: &mut impl Write, interval: bool) -> io::Result<()> {
    out.write_all(b"index,time_s,value,mse_forecast,mse_error,mse_method,mae_forecast,mae_error,mae_method")?;
    out.write_all(if interval { b",lower,upper\n" } else { b"\n" })
}

/// One step: a value, and the forecasts of this value from the values before.
#[derive(Serialize)]
pub(super) struct Row {
    index: u64,
    time_s: f64,
    value: f64,
    mse_forecast: f64,
    /// Mean squared error of the mean forecasts in the rows before this one; 0 in the first row.
    mse_error: f64,
    mse_method: &'static str,
    mae_forecast: f64,
    /// Mean absolute error of the median forecasts in the rows before this one; 0 in the first row.
    mae_error: f64,
    mae_method: &'static str,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    ends: Option<Ends>,
}

/// Ends of the interval, for two columns; both are `None` until the interval is calibrated.
#[derive(Clone, Copy, Serialize)]
struct Ends {
    lower: Option<f64>,
    upper: Option<f64>,
}

impl From<Option<Interval>> for Ends {
    fn from(interval: Option<Interval>) -> Self {
        Self { lower: interval.map(|i| i.lower), upper: interval.map(|i| i.upper) }
    }
}

impl Row {
    pub(super) fn new(sample: Sample, issued: &Issued, interval: bool) -> Self {
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
            None => out.write_all(b"\n"),
            Some(Ends { lower: Some(lower), upper: Some(upper) }) => {
                writeln!(out, ",{},{}", exact(lower), exact(upper))
            }
            Some(_) => out.write_all(b",,\n"),
        }
    }

    pub(super) fn json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        out.write_all(b"\n")
    }
}

/// Forecast of the next value, with its errors and interval.
#[derive(Serialize)]
pub(super) struct Answer<'a> {
    /// Number of values read.
    count: u64,
    /// Time of the last value.
    time_s: f64,
    mean: Option<Next>,
    median: Option<Next>,
    level: f64,
    #[serde(flatten)]
    ends: Ends,
    #[serde(skip_serializing_if = "Option::is_none")]
    weights: Option<Weights>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lifetime: Option<Period>,
    #[serde(skip)]
    last: f64,
    #[serde(skip)]
    unit: &'a str,
    /// Whether the input has no times, so that `time_s` is the number of values read.
    #[serde(skip)]
    counted: bool,
}

/// A forecast. The errors are absent until the first forecast was scored.
#[derive(Serialize)]
struct Next {
    value: f64,
    mse: Option<f64>,
    mae: Option<f64>,
    recent_mse: Option<f64>,
    recent_mae: Option<f64>,
    method: &'static str,
    /// Weight of the method in a blend.
    weight: Option<f64>,
    #[serde(skip)]
    method_label: String,
    #[serde(skip)]
    calibrating: Option<u64>,
}

impl From<Forecast> for Next {
    fn from(forecast: Forecast) -> Self {
        let scored = |error| (forecast.count >= 2).then_some(error);
        Self {
            value: forecast.value,
            mse: scored(forecast.mse),
            mae: scored(forecast.mae),
            recent_mse: scored(forecast.recent_mse),
            recent_mae: scored(forecast.recent_mae),
            method: forecast.method.0,
            weight: forecast.weight,
            method_label: forecast.method_label().to_string(),
            calibrating: forecast.scored_until_interval(),
        }
    }
}

/// Forecast of the mean of the next `seconds`; the forecasts are absent until the first period of
/// this length has ended.
#[derive(Serialize)]
struct Period {
    seconds: f64,
    /// Number of periods that have ended.
    count: u64,
    mean: Option<Next>,
    median: Option<Next>,
    #[serde(flatten)]
    ends: Ends,
}

impl Period {
    fn of(lifetime: &EpochForecaster, seconds: f64, level: f64) -> Self {
        let (mean, median) = (lifetime.forecast(Objective::Squared), lifetime.forecast(Objective::Absolute));
        Self {
            seconds,
            count: mean.map_or(0, |mean| mean.count),
            mean: mean.map(Next::from),
            median: median.map(Next::from),
            ends: lifetime.interval(level).into(),
        }
    }
}

/// Weight of each method, 0 to 1.
#[derive(Serialize)]
struct Weights {
    mean: Vec<Weight>,
    median: Vec<Weight>,
}

#[derive(Serialize)]
struct Weight {
    method: &'static str,
    weight: f64,
}

fn weights(battery: &Battery, objective: Objective) -> Vec<Weight> {
    let weight = |(method, weight): (Method, f64)| Weight { method: method.0, weight };
    battery.weights(objective).into_iter().map(weight).collect()
}

impl<'a> Answer<'a> {
    pub(super) fn of(
        battery: &Battery,
        lifetime: Option<&EpochForecaster>,
        last: Sample,
        args: &'a Args,
        counted: bool,
    ) -> Self {
        let issued = Issued::of(battery, args.level(), None);
        Self {
            count: issued.as_ref().map_or(0, |issued| issued.mean.count),
            time_s: last.time_s,
            level: args.level(),
            ends: issued.as_ref().and_then(|issued| issued.interval).into(),
            mean: issued.as_ref().map(|issued| issued.mean.into()),
            median: issued.as_ref().map(|issued| issued.median.into()),
            weights: args.weights.then(|| Weights {
                mean: weights(battery, Objective::Squared),
                median: weights(battery, Objective::Absolute),
            }),
            lifetime: lifetime
                .zip(args.lifetime)
                .map(|(lifetime, seconds)| Period::of(lifetime, seconds, args.level())),
            last: last.value,
            unit: &args.unit,
            counted,
        }
    }

    pub(super) fn json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        out.write_all(b"\n")
    }

    pub(super) fn text(&self, out: &mut impl Write) -> io::Result<()> {
        let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
        let values = if self.count == 1 { "value" } else { "values" };
        write!(out, "{} {values}, the last {}{unit}", self.count, Short(self.last))?;
        if self.counted {
            writeln!(out)?
        } else {
            writeln!(out, " at {} s", Exact(self.time_s))?
        }
        self.table(out, "The next value", self.mean.as_ref(), self.median.as_ref(), self.ends)?;
        if let Some(period) = &self.lifetime {
            let title = format!("The mean of the next {} s", Exact(period.seconds));
            self.table(out, &title, period.mean.as_ref(), period.median.as_ref(), period.ends)?;
        }
        match &self.weights {
            None => Ok(()),
            Some(weights) => weights.text(out),
        }
    }

    /// Writes the mean and median forecasts, with their errors and interval.
    fn table(
        &self,
        out: &mut impl Write,
        title: &str,
        mean: Option<&Next>,
        median: Option<&Next>,
        ends: Ends,
    ) -> io::Result<()> {
        let (Some(mean), Some(median)) = (mean, median) else {
            return writeln!(out, "\n{title}: no forecast yet, because no such period is over.");
        };
        writeln!(out, "\n{title}\n{:>25}{:>18}{:>14}   method", "forecast", "error so far", "recently")?;
        let root = |error: Option<f64>| error.map(f64::sqrt);
        line(out, "mean", "RMSE", mean.value, root(mean.mse), root(mean.recent_mse), &mean.method_label)?;
        line(out, "median", "MAE", median.value, median.mae, median.recent_mae, &median.method_label)?;
        if mean.mse.is_none() {
            return writeln!(out, "  After one value there is a forecast, but no error yet.");
        }
        match ends {
            Ends { lower: Some(lower), upper: Some(upper) } => {
                let percent = Short(self.level * 100.0);
                let space = if self.unit.is_empty() { "" } else { " " };
                writeln!(
                    out,
                    "  {percent} % interval around the median: {} to {}{space}{}",
                    Short(lower),
                    Short(upper),
                    self.unit
                )
            }
            Ends { .. } => {
                let scored = median.calibrating.unwrap_or(SCORED_MIN_FOR_INTERVAL);
                writeln!(
                    out,
                    "  Interval: calibrating ({scored} of {SCORED_MIN_FOR_INTERVAL} forecasts scored)."
                )
            }
        }
    }
}

/// Writes one line of the table of forecasts.
fn line(
    out: &mut impl Write,
    name: &str,
    kind: &str,
    value: f64,
    error: Option<f64>,
    recent: Option<f64>,
    method: &str,
) -> io::Result<()> {
    let cell = |error: Option<f64>| error.map_or("–".to_owned(), |error| Short(error).to_string());
    let error = if error.is_some() { format!("{} {kind}", cell(error)) } else { cell(error) };
    writeln!(out, "  {name:<7}{:>16}{error:>18}{:>14}   {method}", Short(value).to_string(), cell(recent))
}

impl Weights {
    /// Writes the methods with a weight of 0.001 or more, in descending order of weight.
    fn text(&self, out: &mut impl Write) -> io::Result<()> {
        for (name, weights) in [("mean", &self.mean), ("median", &self.median)] {
            let mut weights: Vec<&Weight> = weights.iter().filter(|weight| weight.weight >= 0.001).collect();
            weights.sort_by(|a, b| b.weight.total_cmp(&a.weight));
            writeln!(out, "\nweights for the {name}")?;
            for Weight { method, weight } in weights {
                writeln!(out, "  {weight:.3}  {method}")?;
            }
        }
        Ok(())
    }
}

/// A number with all its digits: reading it back gives the same double.
pub(super) struct Exact(pub(super) f64);

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.0.abs();
        if size != 0.0 && size.is_finite() && !(1e-7..1e16).contains(&size) {
            write!(f, "{:e}", self.0)
        } else {
            write!(f, "{}", self.0)
        }
    }
}

/// A number for people: six significant digits.
struct Short(f64);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.0.abs();
        if size == 0.0 || !size.is_finite() {
            return write!(f, "{}", self.0.abs());
        }
        if !(1e-4..1e9).contains(&size) {
            return write!(f, "{:.3e}", self.0);
        }
        let decimals = (5 - size.log10().floor() as i32).clamp(0, 9) as usize;
        let text = format!("{:.decimals$}", self.0);
        let short = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
        f.write_str(short)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    #[test]
    fn numbers_for_people_have_six_digits() {
        let cases = [
            (0.0, "0"),
            (1.0, "1"),
            (-2.5, "-2.5"),
            (177.3024999, "177.302"),
            (0.000123456789, "0.000123457"),
            (123456789.0, "123456789"),
            (1e12, "1.000e12"),
            (3e-7, "3.000e-7"),
        ];
        for (number, text) in cases {
            assert_eq!(Short(number).to_string(), text);
        }
    }

    #[test]
    fn printed_exact_numbers_parse_to_the_same_value() {
        for number in [0.0, -0.0, 1.0, 0.1, 1.0 / 3.0, 1e-300, -1.7976931348623157e308, 5e-324, 123456.789] {
            let text = Exact(number).to_string();
            assert_eq!(text.parse::<f64>().unwrap().to_bits(), number.to_bits());
            assert!(text.len() < 26, "{text}");
        }
    }
}
