//! The answer of `barograph forecast`: the forecast of the next value.

use std::io::{self, Write};

use barograph_forecast::{
    Availability, Battery, Forecast, Forecaster, Horizon, HorizonBasis, HorizonForecast, HorizonOf, Interval,
    Method, Objective, SCORED_MIN_FOR_INTERVAL,
};
use barograph_study::ForecastTarget;
use barograph_study::input::Sample;
use serde::Serialize;

use super::Args;
use super::horizon::HorizonAnswer;
use super::number::{Exact, Short};
use super::quantiles::{Quantiles, Shares};
use super::rows::Ends;
use super::summary;

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
    #[serde(flatten)]
    quantiles: Quantiles,
    /// Probability that the next measurement gives a value; absent if none failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    availability: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weights: Option<Weights>,
    #[serde(skip_serializing_if = "Option::is_none")]
    horizon: Option<Ahead>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lifetime: Option<Lifetime>,
    /// The first line of the text.
    #[serde(skip)]
    summary: String,
    #[serde(skip)]
    last: f64,
    #[serde(skip)]
    unit: &'a str,
    /// Whether the input has no times, so that `time_s` is the number of values read.
    #[serde(skip)]
    counted: bool,
    /// Number of measurements that failed.
    #[serde(skip)]
    failures: u64,
}

/// What was read, besides what the forecaster learned.
pub(super) struct Input<'a> {
    pub(super) last: Sample,
    /// Unit of the values, or empty.
    pub(super) unit: &'a str,
    /// Whether the input has no times.
    pub(super) is_counted: bool,
    /// Number of measurements that failed.
    pub(super) failures: u64,
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
        let scored = forecast.scored_until_interval().unwrap_or(SCORED_MIN_FOR_INTERVAL);
        let calibrating = format!("{scored} of {SCORED_MIN_FOR_INTERVAL}");
        Self { calibrating, ..HorizonForecast::from(forecast).into() }
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
    target: HorizonAnswer,
    /// What is forecast, as the title of a table.
    #[serde(skip)]
    title: String,
    /// Number of forecasts that were scored.
    scored: u64,
    mean: Option<Next>,
    median: Option<Next>,
    #[serde(flatten)]
    ends: Ends,
    #[serde(flatten)]
    quantiles: Quantiles,
    /// Absent without a forecast.
    basis: Option<&'static str>,
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
    #[serde(flatten)]
    quantiles: Quantiles,
}

impl Ahead {
    fn of(forecaster: &Forecaster, target: ForecastTarget, level: f64, shares: &Shares) -> Self {
        let ForecastTarget { horizon, of } = target;
        let forecast = |objective| forecaster.forecast_over(horizon, of, objective);
        let (mean, median) = (forecast(Objective::Squared), forecast(Objective::Absolute));
        Self {
            target: target.into(),
            title: title(target),
            scored: mean.map_or(0, |mean| mean.scored),
            basis: mean.map(|mean| mean.basis.name()),
            mean: mean.map(Next::from),
            median: median.map(Next::from),
            ends: forecaster.interval_over(horizon, of, level).into(),
            quantiles: shares.quantiles(|share| forecaster.quantile_over(horizon, of, share)),
        }
    }

    /// The same forecast under the names of a lifetime.
    fn into_lifetime(self, seconds: f64) -> Lifetime {
        let Self { scored, mean, median, ends, quantiles, .. } = self;
        Lifetime { seconds, count: scored, mean, median, ends, quantiles }
    }
}

/// What is forecast, as the title of a table.
fn title(target: ForecastTarget) -> String {
    let text = target.to_string();
    text.strip_prefix("the").map(|rest| format!("The{rest}")).unwrap_or(text)
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
    pub(super) fn of(forecaster: &Forecaster, input: Input<'a>, args: &Args) -> Self {
        let Input { last, unit, is_counted: counted, failures } = input;
        let battery = forecaster.battery();
        let shares = args.quantiles.clone().unwrap_or_default();
        let next = Horizon::Steps(1);
        let mut answer = Self {
            count: battery.forecast(Objective::Squared).map_or(0, |mean| mean.count),
            time_s: last.time_s,
            level: args.level(),
            ends: battery.interval(args.level()).into(),
            quantiles: shares.quantiles(|share| forecaster.quantile_over(next, HorizonOf::Value, share)),
            mean: battery.forecast(Objective::Squared).map(Next::from),
            median: battery.forecast(Objective::Absolute).map(Next::from),
            availability: forecaster
                .availability()
                .filter(|_| failures != 0)
                .and_then(Availability::probability),
            weights: args.weights.then(|| Weights {
                mean: weights(battery, Objective::Squared),
                median: weights(battery, Objective::Absolute),
            }),
            horizon: None,
            lifetime: None,
            summary: String::new(),
            last: last.value,
            unit,
            counted,
            failures,
        };
        answer.summary = answer.sentence(&summary::label(None), answer.median.as_ref(), answer.ends);
        let target = args.target().or_else(|| if counted { None } else { usual_target(forecaster) });
        let Some(target) = target.filter(|target| target.horizon != next || args.horizon.is_some()) else {
            return answer;
        };
        let ahead = Ahead::of(forecaster, target, args.level(), &shares);
        if target.horizon != next {
            answer.summary.push(' ');
            let label = summary::label(Some(target));
            answer.summary += &answer.sentence(&label, ahead.median.as_ref(), ahead.ends);
        }
        match args.lifetime {
            Some(seconds) => answer.lifetime = Some(ahead.into_lifetime(seconds)),
            None if args.horizon.is_some() => answer.horizon = Some(ahead),
            None => {}
        }
        answer
    }

    /// A sentence with a forecast and the interval around it.
    fn sentence(&self, label: &str, median: Option<&Next>, ends: Ends) -> String {
        match median {
            None => format!("{label}: no forecast yet."),
            Some(Next { value, calibrating, .. }) => {
                summary::sentence(label, *value, &self.unit_text(), self.level, ends, calibrating)
            }
        }
    }

    /// The unit after a number.
    fn unit_text(&self) -> String {
        if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) }
    }

    pub(super) fn json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        out.write_all(b"\n")
    }

    pub(super) fn text(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}", self.summary)?;
        let values = if self.count == 1 { "value" } else { "values" };
        write!(out, "{} {values}, the last {}{}", self.count, Short(self.last), self.unit_text())?;
        if self.counted {
            writeln!(out)?
        } else {
            writeln!(out, " at {} s", Exact(self.time_s))?
        }
        if let Some(probability) = self.availability {
            let (failures, all, percent) = (self.failures, self.count + self.failures, 100.0 * probability);
            writeln!(
                out,
                "{failures} of {all} measurements failed; the next succeeds with a probability of {percent:.1} %"
            )?;
        }
        self.table(out, "The next value", self.mean.as_ref(), self.median.as_ref(), self.ends)?;
        self.quantile_line(out, &self.quantiles)?;
        if let Some(ahead) = &self.horizon {
            self.table(out, &ahead.title, ahead.mean.as_ref(), ahead.median.as_ref(), ahead.ends)?;
            self.quantile_line(out, &ahead.quantiles)?;
        }
        if let Some(lifetime) = &self.lifetime {
            let title = format!("The mean of the next {} s", Exact(lifetime.seconds));
            self.table(out, &title, lifetime.mean.as_ref(), lifetime.median.as_ref(), lifetime.ends)?;
            self.quantile_line(out, &lifetime.quantiles)?;
        }
        match &self.weights {
            None => Ok(()),
            Some(weights) => weights.text(out),
        }
    }

    /// Writes the quantiles that are calibrated.
    fn quantile_line(&self, out: &mut impl Write, quantiles: &Quantiles) -> io::Result<()> {
        for (i, (share, value)) in quantiles.known().enumerate() {
            write!(out, "{}q{share} {}", if i == 0 { "  quantiles: " } else { ", " }, Short(value))?;
        }
        match quantiles.known().next() {
            None => Ok(()),
            Some(_) => writeln!(out, "{}", self.unit_text()),
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
                let (lower, upper, unit) = (Short(lower), Short(upper), self.unit_text());
                writeln!(out, "  {percent} % interval around the median: {lower} to {upper}{unit}")
            }
            Ends { .. } => {
                writeln!(out, "  Interval: calibrating ({} forecasts scored).", median.calibrating)
            }
        }
    }
}

/// The longest of [`SUMMARY_HORIZONS`] that has an interval and holds more than the next value.
fn usual_target(forecaster: &Forecaster) -> Option<ForecastTarget> {
    let of = HorizonOf::Mean;
    let has_interval = |horizon: &Horizon| {
        let is_own = forecaster
            .forecast_over(*horizon, of, Objective::Absolute)
            .is_some_and(|forecast| forecast.basis == HorizonBasis::Own && forecast.scored != 0);
        is_own && forecaster.interval_over(*horizon, of, Interval::DEFAULT_LEVEL).is_some()
    };
    let period_s = forecaster.period_s()?;
    let is_longer = |horizon: &Horizon| matches!(horizon, Horizon::Seconds(s) if 2.0 * period_s <= *s);
    let horizon = SUMMARY_HORIZONS.into_iter().filter(is_longer).find(has_interval)?;
    Some(ForecastTarget { horizon, of })
}

/// Horizons for the first line of a text, if none was requested: an hour, and shorter ones for
/// series that are too short for an hour.
pub(super) const SUMMARY_HORIZONS: [Horizon; 3] =
    [Horizon::Seconds(3600.0), Horizon::Seconds(600.0), Horizon::Seconds(60.0)];

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
