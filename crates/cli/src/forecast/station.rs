//! `barograph forecast --series`: the forecasts of a station.

use std::process::ExitCode;

use barograph_api::{ForecastList, Forecasts, HorizonForecast, TransferForecast};
use barograph_forecast::{Horizon, HorizonOf, Quantity, SCORED_MIN_FOR_INTERVAL};
use barograph_station::series::HORIZONS_S;
use barograph_study::ForecastTarget;
use barograph_study::units::{format_age, format_bytes, format_elapsed, format_share};

use super::Args;
use super::number::Short;
use super::rows::Ends;
use super::summary;
use crate::client::{Client, printable};
use crate::exit::{self, Failure, print_line};
use crate::series::{SeriesName, value};

/// Prints the forecasts of one series of a station.
pub(super) fn run(args: &Args, series: &SeriesName) -> Result<ExitCode, Failure> {
    let is_goodput =
        [Quantity::GOODPUT, Quantity::GOODPUT_DOWN].iter().any(|one| one.as_str() == series.quantity);
    if args.bytes.is_some() && !is_goodput {
        return Err(Failure::Input("--bytes: expected a series of goodput or goodput_down".into()));
    }
    let client = Client::new(&args.station)?;
    let answer = client.get(&path(args, series)).map_err(|error| series.failure(&client, error))?;
    let list: ForecastList<'_> = answer.read();
    let Some(forecasts) = list.forecasts.first() else { return Err(series.missing(&client)) };
    if args.json {
        print_line(answer);
    } else {
        print_line(text(forecasts, args.horizon.is_some()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The request. The first horizon is the next value.
fn path(args: &Args, series: &SeriesName) -> String {
    let horizons = match args.horizon {
        Some(Horizon::Steps(1)) => NEXT.to_string(),
        Some(horizon) => format!("{NEXT},{horizon}"),
        None => {
            format!("{NEXT},{}", HORIZONS_S.map(|seconds| Horizon::Seconds(seconds).to_string()).join(","))
        }
    };
    let of = HorizonOf::from(args.of).name();
    let quantiles =
        args.quantiles.as_ref().map_or(String::new(), |shares| format!("&quantile={}", shares.query()));
    let bytes = args.bytes.map_or(String::new(), |bytes| format!("&bytes={bytes}"));
    let (series, level) = (series.query(), args.level());
    format!("/v1/forecast?{series}&level={level}&horizon={horizons}&of={of}{quantiles}{bytes}")
}

/// The answer as text: the time of a transfer if one was requested, the summary, the series, and a
/// table of the horizons. If no horizon was requested, the summary has the longest one with errors
/// of its own.
fn text(forecasts: &Forecasts<'_>, is_requested: bool) -> String {
    let ahead = forecasts.horizons.get(1..).unwrap_or_default();
    let scale = Scale::of(&forecasts.unit, forecasts.median.value);
    let ends = (forecasts.lower, forecasts.upper);
    let sentence = |label: &str, number, ends, scored: &str| {
        summary::sentence(
            label,
            scale.of_value(number),
            scale.unit,
            forecasts.level,
            scale.of_ends(ends),
            scored,
        )
    };
    let scored = format!("{} of {SCORED_MIN_FOR_INTERVAL}", forecasts.count.saturating_sub(1));
    let mut first = sentence("Next", forecasts.median.value, ends, &scored);
    let usual = |one: &&HorizonForecast| is_usual(one, forecasts.count);
    let shown = if is_requested { ahead.first() } else { ahead.iter().rfind(usual) };
    if let Some(one) = shown {
        let label = label(one);
        first += " ";
        first += &match &one.median {
            Some(median) => sentence(&label, median.value, (one.lower, one.upper), &one.scored.to_string()),
            None => format!("{label}: no forecast yet."),
        };
    }
    let transfer = forecasts.transfer.as_ref().map(|transfer| transfer_sentence(transfer, forecasts.level));
    let mut lines: Vec<String> = transfer.into_iter().chain([first, about(forecasts)]).collect();
    if let Some(now) = &forecasts.now
        && (now.lower, now.upper) != ends
    {
        let now_text = sentence("Now", now.value, (now.lower, now.upper), &scored);
        lines.push(format!("{now_text} The newest value is {} old.", format_age(now.age_s)));
    }
    if let Some(share) = forecasts.horizons.first().and_then(|next| next.availability) {
        lines.push(format!(
            "The next measurement gives a value with a probability of {}.",
            format_share(share)
        ));
    }
    if !forecasts.horizons.is_empty() {
        lines.push(format!("\n{}", table(forecasts)));
    }
    lines.join("\n")
}

/// The time of a transfer, and the interval around it.
fn transfer_sentence(transfer: &TransferForecast, level: f64) -> String {
    let bytes = format_bytes(transfer.bytes).replace(".00 ", " ");
    let Some(forecast_s) = transfer.forecast else {
        return format!("{bytes}: no forecast; there is no recent round trip, or it takes over a year.");
    };
    let time = format_elapsed(forecast_s);
    match (transfer.lower, transfer.upper) {
        (Some(lower_s), Some(upper_s)) => {
            let (percent, ends) = (Short(100.0 * level), [lower_s, upper_s].map(format_elapsed).join("–"));
            format!("{bytes}: about {time} ({percent} %: {ends}).")
        }
        _ => format!("{bytes}: about {time} (no interval yet)."),
    }
}

/// The series, and the number and age of its values.
fn about(forecasts: &Forecasts<'_>) -> String {
    let [source, target, quantity] =
        [&forecasts.source, &forecasts.target, &forecasts.quantity].map(|part| printable(part));
    let age = forecasts
        .now
        .as_ref()
        .map_or(String::new(), |now| format!(", the newest {} ago", format_age(now.age_s)));
    let values = if forecasts.count == 1 { "value" } else { "values" };
    format!("{source} → {target}, {quantity}: {} {values}{age}", forecasts.count)
}

/// Whether a horizon has errors and an interval of its own, and holds more than the next value.
fn is_usual(one: &HorizonForecast, count: u64) -> bool {
    let is_next_value = one.scored + 1 == count;
    one.basis.as_deref() == Some("own") && one.lower.is_some() && one.scored != 0 && !is_next_value
}

fn table(forecasts: &Forecasts<'_>) -> String {
    let unit = &*forecasts.unit;
    let interval = format!("{} % INTERVAL", Short(100.0 * forecasts.level));
    let heads = ["HORIZON", "FORECAST", interval.as_str(), "MAE", "SCORED", "BASIS", "QUANTILES"];
    let mut rows = vec![heads.map(String::from)];
    for one in &forecasts.horizons {
        let number = |number: Option<f64>| number.map_or("-".to_owned(), |number| value(unit, number));
        let ends = one.lower.zip(one.upper);
        let quantiles = one.quantiles.iter().map(|one| format!("q{} {}", one.share, value(unit, one.value)));
        rows.push([
            label(one),
            number(one.median.as_ref().map(|median| median.value)),
            ends.map_or("calibrating".into(), |(lower, upper)| {
                format!("{} to {}", value(unit, lower), value(unit, upper))
            }),
            number(one.median.as_ref().and_then(|median| median.mae)),
            one.scored.to_string(),
            basis(one),
            quantiles.collect::<Vec<_>>().join(", "),
        ]);
    }
    if forecasts.horizons.iter().all(|one| one.quantiles.is_empty()) {
        rows[0][6].clear();
    }
    exit::table(&rows)
}

/// Whether the errors are those of the horizon.
fn basis(one: &HorizonForecast) -> String {
    match (one.basis.as_deref(), &one.from_steps[..]) {
        (Some("between"), [shorter, longer]) => format!("between {shorter:.0} and {longer:.0} values"),
        (Some("beyond"), [longest]) => format!("beyond {longest:.0} values"),
        (basis, _) => printable(basis.unwrap_or("-")),
    }
}

fn label(one: &HorizonForecast) -> String {
    let of = if one.of == "value" { HorizonOf::Value } else { HorizonOf::Mean };
    let horizon = match (one.steps, one.seconds) {
        (_, Some(seconds)) => Horizon::Seconds(seconds),
        (steps, None) => Horizon::Steps(steps.unwrap_or(1)),
    };
    summary::label(Some(ForecastTarget { horizon, of }))
}

/// A unit for people, such as milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Scale {
    /// Number of the station's units in this unit.
    length: f64,
    /// Text after a number.
    unit: &'static str,
}

impl Scale {
    /// The largest unit that is not above `number`, which is in `unit` of the API.
    fn of(unit: &str, number: f64) -> Self {
        let steps: &[(f64, &'static str)] = match unit {
            "s" => &[(1.0, " s"), (1e-3, " ms"), (1e-6, " µs")],
            "bit/s" => &[(1e9, " Gbit/s"), (1e6, " Mbit/s"), (1e3, " kbit/s"), (1.0, " bit/s")],
            "bytes" => &[(1e9, " GB"), (1e6, " MB"), (1e3, " kB"), (1.0, " B")],
            "ratio" => &[(0.01, " %")],
            _ => &[(1.0, "")],
        };
        let found = steps.iter().find(|(length, _)| *length <= number.abs()).or(steps.last());
        let (length, unit) = *found.unwrap_or(&(1.0, ""));
        Self { length, unit }
    }

    fn of_value(self, number: f64) -> f64 {
        number / self.length
    }

    fn of_ends(self, (lower, upper): (Option<f64>, Option<f64>)) -> Ends {
        Ends { lower: lower.map(|end| end / self.length), upper: upper.map(|end| end / self.length) }
    }
}

/// Horizon of the next value.
const NEXT: Horizon = Horizon::Steps(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn forecasts() -> Forecasts<'static> {
        serde_json::from_str(
            r#"{"source": "here", "target": "south", "quantity": "rtt", "unit": "s", "time_s": 0, "count": 1400,
            "level": 0.9, "mean": {"value": 0.0317, "method": "m"}, "median": {"value": 0.0317, "method": "m"},
            "lower": 0.0310, "upper": 0.0324, "now": {"age_s": 12, "value": 0.0317, "lower": 0.0310, "upper": 0.0324},
            "horizons": [
              {"steps": 1, "of": "mean", "scored": 1399, "basis": "own", "lower": 0.0310, "upper": 0.0324,
               "mean": {"value": 0.0317, "method": "m"}, "median": {"value": 0.0317, "mae": 0.0004, "method": "m"}},
              {"seconds": 60, "of": "mean", "scored": 1399, "basis": "own", "lower": 0.0310, "upper": 0.0324,
               "mean": {"value": 0.0317, "method": "m"}, "median": {"value": 0.0317, "mae": 0.0004, "method": "m"}},
              {"seconds": 900, "of": "mean", "scored": 100, "basis": "own", "lower": 0.0301, "upper": 0.0352,
               "mean": {"value": 0.032, "method": "m"}, "median": {"value": 0.0321, "mae": 0.0007, "method": "m"}},
              {"seconds": 3600, "of": "mean", "scored": 0, "basis": "beyond", "from_steps": [90],
               "mean": {"value": 0.032, "method": "m"}, "median": {"value": 0.0321, "method": "m"}}]}"#,
        )
        .expect("an answer")
    }

    #[test]
    fn the_first_line_is_the_next_value_and_the_longest_horizon_with_errors_of_its_own() {
        let shown = text(&forecasts(), false);
        let expected = "Next: 31.7 ms (90 %: 31.0–32.4). Next 15 minutes: 32.1 ms (90 %: 30.1–35.2).
here → south, rtt: 1400 values, the newest 12 s ago

HORIZON";
        assert!(shown.starts_with(expected), "{shown}");
        assert_eq!(shown.lines().count(), 8, "{shown}");
        assert!(shown.lines().last().is_some_and(|line| line.ends_with("beyond 90 values")), "{shown}");
    }

    #[test]
    fn the_time_of_a_transfer_is_the_first_line() {
        let mut forecasts = forecasts();
        let transfer = TransferForecast {
            bytes: 1_000_000_000,
            forecast: Some(80.2),
            lower: Some(59.0),
            upper: Some(3700.0),
        };
        for (transfer, expected) in [
            (transfer.clone(), "1 GB: about 1 min 20 s (90 %: 59.0 s–1 h 01 min)."),
            (
                TransferForecast { bytes: 1500, lower: None, ..transfer.clone() },
                "1.50 kB: about 1 min 20 s (no interval yet).",
            ),
            (
                TransferForecast { forecast: None, ..transfer },
                "1 GB: no forecast; there is no recent round trip, or it takes over a year.",
            ),
        ] {
            forecasts.transfer = Some(transfer);
            let shown = text(&forecasts, false);
            let lines: Vec<&str> = shown.lines().collect();
            assert_eq!(lines[0], expected);
            assert!(lines[1].starts_with("Next: 31.7 ms"), "{shown}");
        }
    }

    #[test]
    fn an_old_value_and_failures_have_a_line_each() {
        let mut forecasts = forecasts();
        forecasts.horizons[0].availability = Some(0.982);
        if let Some(now) = &mut forecasts.now {
            (now.age_s, now.upper) = (10_800.0, Some(0.04));
        }
        let shown = text(&forecasts, false);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[2], "Now: 31.7 ms (90 %: 31.0–40.0). The newest value is 3 h old.");
        assert_eq!(lines[3], "The next measurement gives a value with a probability of 98 %.");
    }

    #[test]
    fn a_requested_horizon_is_in_the_first_line_also_without_an_interval() {
        let mut forecasts = forecasts();
        forecasts.horizons.drain(1..3);
        let (shown, first) =
            (text(&forecasts, true), "Next hour: 32.1 ms (no interval yet: 0 forecasts scored).");
        assert!(shown.lines().next().is_some_and(|line| line.ends_with(first)), "{shown}");
        forecasts.horizons[1].median = None;
        assert!(text(&forecasts, true).contains("Next hour: no forecast yet."));
    }

    #[test]
    fn units_fit_the_size_of_the_number() {
        for (unit, number, expected) in [
            ("s", 0.0317, (1e-3, " ms")),
            ("s", 0.0, (1e-6, " µs")),
            ("bit/s", 2.5e8, (1e6, " Mbit/s")),
            ("bytes", 12.0, (1.0, " B")),
            ("ratio", 0.0, (0.01, " %")),
            ("", 5e9, (1.0, "")),
        ] {
            let (length, unit_text) = expected;
            assert_eq!(Scale::of(unit, number), Scale { length, unit: unit_text });
        }
    }
}
