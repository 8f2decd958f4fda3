//! The answer of `barograph forecast`: the forecast of the next value.

use std::io::{self, Write};

use barograph_forecast::{
    Battery, Forecast, Forecaster, Horizon, HorizonBasis, HorizonForecast, HorizonOf, Method, Objective,
    SCORED_MIN_FOR_INTERVAL,
};
use barograph_study::input::Sample;
use serde::Serialize;

use super::Args;
use super::horizon::Target;
use super::number::{Exact, Short};
use super::rows::Ends;

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
    horizon: Option<Ahead>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lifetime: Option<Lifetime>,
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
    /// Progress of the interval's calibration, until there is an interval.
    #[serde(skip)]
    calibrating: String,
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
            calibrating: format!(
                "{} of {SCORED_MIN_FOR_INTERVAL}",
                forecast.scored_until_interval().unwrap_or(SCORED_MIN_FOR_INTERVAL)
            ),
        }
    }
}

impl From<HorizonForecast> for Next {
    fn from(forecast: HorizonForecast) -> Self {
        let scored = |error| (forecast.scored != 0).then_some(error);
        Self {
            value: forecast.value,
            mse: scored(forecast.mse),
            mae: scored(forecast.mae),
            recent_mse: scored(forecast.recent_mse),
            recent_mae: scored(forecast.recent_mae),
            method: forecast.method.0,
            weight: forecast.weight,
            method_label: forecast.method_label().to_string(),
            calibrating: forecast.scored.to_string(),
        }
    }
}

/// Forecast for a horizon; absent before the first value, and for a time before the period of the
/// values is known.
#[derive(Serialize)]
struct Ahead {
    #[serde(flatten)]
    length: Length,
    of: &'static str,
    /// Number of forecasts that were scored.
    scored: u64,
    mean: Option<Next>,
    median: Option<Next>,
    #[serde(flatten)]
    ends: Ends,
    basis: &'static str,
}

/// Length of a horizon, under the name of its unit.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum Length {
    Steps(u32),
    Seconds(f64),
}

/// Forecast of the mean of the next `seconds`, under the name that it had before there were
/// horizons.
#[derive(Serialize)]
struct Lifetime {
    seconds: f64,
    /// Number of forecasts that were scored.
    count: u64,
    mean: Option<Next>,
    median: Option<Next>,
    #[serde(flatten)]
    ends: Ends,
}

impl Ahead {
    fn of(forecaster: &Forecaster, Target { horizon, of }: Target, level: f64) -> Self {
        let forecast = |objective| forecaster.forecast_over(horizon, of, objective);
        let (mean, median) = (forecast(Objective::Squared), forecast(Objective::Absolute));
        Self {
            length: match horizon {
                Horizon::Steps(steps) => Length::Steps(steps),
                Horizon::Seconds(seconds) => Length::Seconds(seconds),
            },
            of: match of {
                HorizonOf::Mean => "mean",
                HorizonOf::Value => "value",
            },
            scored: mean.map_or(0, |mean| mean.scored),
            basis: match mean.map(|mean| mean.basis) {
                None | Some(HorizonBasis::Own) => "own",
                Some(HorizonBasis::Between { .. }) => "between",
                Some(HorizonBasis::Beyond { .. }) => "beyond",
            },
            mean: mean.map(Next::from),
            median: median.map(Next::from),
            ends: forecaster.interval_over(horizon, of, level).into(),
        }
    }

    /// What is forecast, as the title of a table.
    fn title(&self) -> String {
        match (self.of, self.length) {
            ("mean", Length::Steps(steps)) => format!("The mean of the next {steps} values"),
            ("mean", Length::Seconds(seconds)) => format!("The mean of the next {} s", Exact(seconds)),
            (_, Length::Steps(steps)) => format!("The value {steps} values ahead"),
            (_, Length::Seconds(seconds)) => format!("The value {} s ahead", Exact(seconds)),
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
    pub(super) fn of(forecaster: &Forecaster, last: Sample, args: &'a Args, counted: bool) -> Self {
        let battery = forecaster.battery();
        let mean = battery.forecast(Objective::Squared);
        let ahead = args.target().map(|target| Ahead::of(forecaster, target, args.level()));
        let (horizon, lifetime) = match args.lifetime {
            None => (ahead, None),
            Some(seconds) => (
                None,
                ahead.map(|Ahead { scored, mean, median, ends, .. }| Lifetime {
                    seconds,
                    count: scored,
                    mean,
                    median,
                    ends,
                }),
            ),
        };
        Self {
            count: mean.map_or(0, |mean| mean.count),
            time_s: last.time_s,
            level: args.level(),
            ends: battery.interval(args.level()).into(),
            mean: mean.map(Next::from),
            median: battery.forecast(Objective::Absolute).map(Next::from),
            weights: args.weights.then(|| Weights {
                mean: weights(battery, Objective::Squared),
                median: weights(battery, Objective::Absolute),
            }),
            horizon,
            lifetime,
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
        if let Some(ahead) = &self.horizon {
            self.table(out, &ahead.title(), ahead.mean.as_ref(), ahead.median.as_ref(), ahead.ends)?;
        }
        if let Some(lifetime) = &self.lifetime {
            let title = format!("The mean of the next {} s", Exact(lifetime.seconds));
            self.table(out, &title, lifetime.mean.as_ref(), lifetime.median.as_ref(), lifetime.ends)?;
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
            return writeln!(out, "\n{title}: no forecast yet, because few times between values are known.");
        };
        writeln!(out, "\n{title}\n{:>25}{:>18}{:>14}   method", "forecast", "error so far", "recently")?;
        let root = |error: Option<f64>| error.map(f64::sqrt);
        line(out, "mean", "RMSE", mean.value, root(mean.mse), root(mean.recent_mse), &mean.method_label)?;
        line(out, "median", "MAE", median.value, median.mae, median.recent_mae, &median.method_label)?;
        if mean.mse.is_none() {
            let after = if self.count == 1 { "After one value there" } else { "There" };
            return writeln!(out, "  {after} is a forecast, but no error yet.");
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
                writeln!(out, "  Interval: calibrating ({} forecasts scored).", median.calibrating)
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
