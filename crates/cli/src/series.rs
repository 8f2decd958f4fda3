//! `barograph series`: the series of a station; and the name of one series on the command line.

use std::process::ExitCode;

use barograph_api::{Forecasts, Record, SeriesSummary};
use barograph_probe::percent;
use barograph_study::units::{
    format_age, format_bit_rate, format_bytes, format_seconds, format_share, format_significant,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::client::{Client, RequestError, StationArgs, printable};
use crate::exit::{self, Failure, print_line};
use crate::probe::now_s;

/// Arguments of `barograph series`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only series that this host measures
    #[arg(long, value_name = "S")]
    source: Option<String>,
    /// Only series of this target
    #[arg(long, value_name = "T")]
    target: Option<String>,
    /// Only series of this quantity, such as rtt
    #[arg(long, value_name = "Q")]
    quantity: Option<String>,
    /// Print the station's answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    station: StationArgs,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let client = Client::new(&args.station)?;
    let filters = [("source", &args.source), ("target", &args.target), ("quantity", &args.quantity)];
    let filters: Vec<String> = filters
        .iter()
        .filter_map(|(key, value)| Some(format!("{key}={}", percent::encode(value.as_deref()?))))
        .collect();
    let rows = rows(&client, &filters)?;
    if args.json {
        print_line(json(&rows));
        return Ok(ExitCode::SUCCESS);
    }
    match (rows.is_empty(), filters.is_empty()) {
        (false, _) => print_line(table(&summaries(&rows), now_s())),
        (true, true) => print_line("no series yet; `barograph target` shows what the station measures"),
        (true, false) => print_line("no such series; `barograph series` lists all"),
    };
    Ok(ExitCode::SUCCESS)
}

/// A page of the station's answer, with each series as the station sent it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct SeriesPage {
    series: Vec<Box<RawValue>>,
    next: Option<String>,
}

/// The series that `filters` select, as the station sent them. They are read in pages, because a
/// very large station has more than a client accepts in one answer.
fn rows(client: &Client, filters: &[String]) -> Result<Vec<Box<RawValue>>, RequestError> {
    let filters: String = filters.iter().map(|filter| format!("{filter}&")).collect();
    all_pages(|parameters| Ok(client.get(&format!("/v1/series?{filters}{parameters}"))?.read()))
}

/// The series of all pages; `page` is called with the parameters that select the next one. An older
/// station refuses these parameters. Then `page` is called without them, for all series at once.
fn all_pages(
    mut page: impl FnMut(&str) -> Result<SeriesPage, RequestError>,
) -> Result<Vec<Box<RawValue>>, RequestError> {
    let (mut rows, mut after) = (Vec::new(), String::new());
    loop {
        let answer = match page(&format!("limit={PAGE}{after}")) {
            Err(error) if error.is_bad_request() && rows.is_empty() => page(""),
            answer => answer,
        };
        let SeriesPage { series, next } = answer?;
        let is_empty = series.is_empty();
        rows.extend(series);
        match next {
            Some(next) if !is_empty && rows.len() < SERIES_MAX => {
                after = format!("&after={}", percent::encode(&next));
            }
            _ => return Ok(rows),
        }
    }
}

fn json(rows: &[Box<RawValue>]) -> String {
    let rows: Vec<&str> = rows.iter().map(|row| row.get()).collect();
    format!("{{\"series\":[{}]}}", rows.join(","))
}

fn summaries(rows: &[Box<RawValue>]) -> Vec<SeriesSummary<'static>> {
    rows.iter().filter_map(|row| serde_json::from_str(row.get()).ok()).collect()
}

/// The series with their numbers of values and failures, newest record and next value.
fn table(series: &[SeriesSummary<'_>], now_s: f64) -> String {
    let heads =
        ["SOURCE", "TARGET", "QUANTITY", "VALUES", "FAILED", "NEWEST", "AGE", "NEXT", "90 % INTERVAL"];
    let mut rows = vec![heads.map(String::from)];
    for one in series {
        let age = one.last.as_ref().map(|record| format_age((now_s - record.time_s).max(0.0)));
        rows.push([
            printable(&one.source),
            printable(&one.target),
            printable(&one.quantity),
            one.count.to_string(),
            one.failures.to_string(),
            one.last.as_ref().map_or("-".into(), outcome),
            age.unwrap_or_default(),
            one.next.as_ref().map_or("-".into(), |next| value(&one.unit, next.median.value)),
            one.next.as_ref().map_or("-".into(), interval),
        ]);
    }
    exit::table(&rows)
}

fn interval(next: &Forecasts<'_>) -> String {
    match (next.lower, next.upper) {
        (Some(lower), Some(upper)) => format!("{} to {}", value(&next.unit, lower), value(&next.unit, upper)),
        _ => "calibrating".into(),
    }
}

/// The value of a record with its unit, or why there is none.
pub(crate) fn outcome(record: &Record<'_>) -> String {
    match record.value {
        Some(number) => value(&record.unit, number),
        None => printable(record.error.as_deref().unwrap_or("-")),
    }
}

/// A value in `unit`, a unit of the API, for people.
pub(crate) fn value(unit: &str, number: f64) -> String {
    match unit {
        "s" if number == 0.0 => "0 s".into(),
        "s" => format_seconds(number),
        "bit/s" => format_bit_rate(number),
        "ratio" => format_share(number),
        "bytes" => format_bytes(number.max(0.0).round() as u64),
        _ => format_significant(number),
    }
}

/// Source, target and quantity of one series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeriesName {
    pub(crate) source: String,
    pub(crate) target: String,
    pub(crate) quantity: String,
}

impl SeriesName {
    /// Parses `SOURCE/TARGET/QUANTITY`. Only the target may contain `/`, as a URL does.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(source, rest)| {
            let (target, quantity) = rest.rsplit_once('/')?;
            Some([source, target, quantity].map(String::from))
        });
        match parts {
            Some([source, target, quantity])
                if ![&source, &target, &quantity].iter().any(|part| part.is_empty()) =>
            {
                Ok(Self { source, target, quantity })
            }
            _ => Err("expected SOURCE/TARGET/QUANTITY, such as here/south/rtt".into()),
        }
    }

    /// The parameters of a request for this series.
    pub(crate) fn query(&self) -> String {
        let [source, target, quantity] =
            [&self.source, &self.target, &self.quantity].map(|part| percent::encode(part));
        format!("source={source}&target={target}&quantity={quantity}")
    }

    /// The failure if the station has no forecast, or no series, of this name: names the series
    /// that are spelt most like it.
    pub(crate) fn missing(&self, client: &Client) -> Failure {
        let rows = rows(client, &[]).unwrap_or_default();
        let names: Vec<String> = summaries(&rows).iter().map(name).collect();
        let wanted = self.to_string();
        if names.contains(&wanted) {
            return Failure::Failed(format!(
                "{}: no forecast yet, because no measurement gave a value",
                printable(&wanted)
            ));
        }
        let nearest = nearest(&wanted, names);
        let hint =
            if nearest.is_empty() { String::new() } else { format!("did you mean {}? ", nearest.join(", ")) };
        Failure::Failed(format!(
            "the station has no series {}; {hint}`barograph series` lists all",
            printable(&wanted)
        ))
    }

    /// Converts the error of a request for this series.
    pub(crate) fn failure(&self, client: &Client, error: RequestError) -> Failure {
        match error {
            RequestError::Refused { status: 404, .. } => self.missing(client),
            error => error.into(),
        }
    }
}

impl std::fmt::Display for SeriesName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.source, self.target, self.quantity)
    }
}

fn name(series: &SeriesSummary<'_>) -> String {
    format!("{}/{}/{}", series.source, series.target, series.quantity)
}

/// The names that need the fewest changes of a character to become `wanted`.
fn nearest(wanted: &str, mut names: Vec<String>) -> Vec<String> {
    names.sort_by_cached_key(|name| strsim::levenshtein(wanted, name));
    names.truncate(NEAREST_MAX);
    names.iter().map(|name| printable(name)).collect()
}

/// Number of series in a request: the most that a station accepts, because it sorts all series for
/// each page. A page with too many bytes ends earlier.
const PAGE: usize = 10_000;
/// Number of series after which no page is requested: the most that a station may be set to keep.
const SERIES_MAX: usize = 1_000_000;

/// Number of names in an error: enough for a wrong word in any of the three parts.
const NEAREST_MAX: usize = 3;

const EXAMPLES: &str = "Examples:
  barograph series
  barograph series --quantity rtt --json";

#[cfg(test)]
mod tests {
    use barograph_api::SeriesList;

    use super::*;

    #[test]
    fn only_the_target_of_a_series_name_has_slashes() {
        let parse =
            |text: &str| SeriesName::parse(text).map(|name| [name.source, name.target, name.quantity]);
        assert_eq!(parse("here/south/rtt"), Ok(["here", "south", "rtt"].map(String::from)));
        let url = parse("here/https://example.org/a/first_byte");
        assert_eq!(url, Ok(["here", "https://example.org/a", "first_byte"].map(String::from)));
        for text in ["", "here", "here/rtt", "/south/rtt", "here//rtt", "here/south/"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_nearest_names_come_first() {
        let names =
            ["here/south/loss", "here/north/rtt", "there/south/rtt", "here/south/rtt"].map(String::from);
        let found = nearest("here/suoth/rtt", names.to_vec());
        assert_eq!(found.len(), NEAREST_MAX);
        assert_eq!(found[0], "here/south/rtt");
    }

    #[test]
    fn a_row_has_the_newest_record_and_the_next_value() {
        let list: SeriesList<'_> = serde_json::from_str(
            r#"{"series": [
            {"source": "here", "target": "south", "quantity": "rtt", "unit": "s", "count": 40, "failures": 2,
             "last": {"source": "here", "target": "south", "quantity": "rtt", "unit": "s", "time_s": 90, "value": 0.0317},
             "next": {"source": "here", "target": "south", "quantity": "rtt", "unit": "s", "time_s": 90, "count": 40,
               "level": 0.9, "mean": {"value": 0.03, "method": "m"}, "median": {"value": 0.0321, "method": "m"},
               "lower": 0.031, "upper": 0.0334}},
            {"source": "here", "target": "a\u001b", "quantity": "connect", "unit": "s", "count": 0, "failures": 1,
             "last": {"source": "here", "target": "a", "quantity": "connect", "unit": "s", "time_s": 40,
               "error": "timed_out", "after_s": 1}, "next": null}]}"#,
        )
        .expect("an answer");
        let shown = table(&list.series, 100.0);
        let rows: Vec<Vec<&str>> = shown
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect();
        let row = ["here", "south", "rtt", "40", "2", "31.7 ms", "10 s", "32.1 ms", "31.0 ms to 33.4 ms"];
        assert_eq!(rows[1], row, "{shown}");
        assert_eq!(
            rows[2],
            ["here", r"a\u{1b}", "connect", "0", "1", "timed_out", "60 s", "-", "-"],
            "{shown}"
        );
    }

    #[test]
    fn pages_are_joined_and_each_begins_after_the_one_before() {
        let page = |text: &str| serde_json::from_str::<SeriesPage>(text).expect("a page");
        let mut answers = vec![
            page(r#"{"series": [{"new": 2}], "next": null}"#),
            page(r#"{"series": [{"source": "b"}, {"source": "c"}], "next": "rtt x h"}"#),
            page(r#"{"series": [{"source": "a"}], "next": "rtt a&b h"}"#),
        ];
        let mut asked = Vec::new();
        let rows = all_pages(|parameters| {
            asked.push(parameters.to_owned());
            Ok(answers.pop().expect("no page after the last one"))
        });
        let rows = rows.expect("all pages");
        let expected = ["limit=10000", "limit=10000&after=rtt%20a%26b%20h", "limit=10000&after=rtt%20x%20h"];
        assert_eq!(asked, expected);
        let joined = r#"{"series":[{"source": "a"},{"source": "b"},{"source": "c"},{"new": 2}]}"#;
        assert_eq!(json(&rows), joined, "unknown keys stay");
    }

    #[test]
    fn an_older_station_sends_all_series_at_once() {
        let refused = |sentence: &str| RequestError::Refused { status: 400, sentence: sentence.into() };
        let all = || serde_json::from_str::<SeriesPage>(r#"{"series": [{"source": "a"}]}"#).expect("a list");
        let rows = all_pages(|parameters| match parameters {
            "" => Ok(all()),
            _ => Err(refused("unknown field `limit`")),
        });
        assert_eq!(json(&rows.expect("a list")), r#"{"series":[{"source": "a"}]}"#);
        let error = all_pages(|parameters| Err(refused(&format!("{parameters}: no such quantity"))));
        assert_eq!(error.expect_err("a wrong filter").to_string(), ": no such quantity");
    }

    #[test]
    fn values_have_their_unit() {
        for (unit, number, text) in [
            ("s", 0.0, "0 s"),
            ("s", 0.25, "250 ms"),
            ("bit/s", 2.5e6, "2.50 Mbit/s"),
            ("ratio", 0.25, "25 %"),
            ("bytes", 1.5e9, "1.50 GB"),
            ("", -3.25, "-3.25"),
        ] {
            assert_eq!(value(unit, number), text);
        }
    }
}
