//! `barograph history`: the stored values of one series of a station.

use std::process::ExitCode;

use barograph_api::{HistoryPage, Record};
use barograph_forecast::Horizon;

use crate::client::{Client, StationArgs};
use crate::exit::{self, Failure, print_line};
use crate::peers::utc;
use crate::probe::now_s;
use crate::series::{SeriesName, outcome};

/// Arguments of `barograph history`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Host that measures the target
    source: String,
    /// Host, URL or address that is measured
    target: String,
    /// Quantity, such as rtt
    quantity: String,
    /// First time to print: seconds since 1970, or a time ago such as 90m, 2h or 7d
    #[arg(long, value_name = "TIME", value_parser = moment)]
    from: Option<Moment>,
    /// Print only what was measured before this time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    to: Option<Moment>,
    /// Print at most the newest N measurements
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=LIMIT_MAX))]
    limit: u64,
    /// Print CSV with the columns time_s, quantity, value and error, as `barograph forecast` reads
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    station: StationArgs,
}

/// A time on the command line.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    /// Seconds since 1970-01-01 UTC.
    At(f64),
    /// Number of seconds before now.
    Ago(f64),
}

impl Moment {
    /// Seconds since 1970-01-01 UTC.
    fn time_s(self, now_s: f64) -> f64 {
        match self {
            Self::At(time_s) => time_s,
            Self::Ago(seconds) => now_s - seconds,
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let client = Client::new(&args.station)?;
    let records = records(args, &client)?;
    if args.json {
        for record in &records {
            // Cannot fail: the keys are texts, and the serializers return no errors.
            if !print_line(serde_json::to_string(record).unwrap_or_default()) {
                break;
            }
        }
    } else if args.csv {
        print_line(csv(&records));
    } else if records.is_empty() {
        print_line("no measurements in this time");
    } else {
        print_line(table(&records));
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the newest measurements of the time range, and returns them with the oldest first.
fn records(args: &Args, client: &Client) -> Result<Vec<Record<'static>>, Failure> {
    let series = SeriesName {
        source: args.source.clone(),
        target: args.target.clone(),
        quantity: args.quantity.clone(),
    };
    let now_s = now_s();
    let bound = |key: &str, moment: Option<Moment>| {
        moment.map_or(String::new(), |moment| format!("&{key}={}", moment.time_s(now_s)))
    };
    let range = format!("{}{}{}", series.query(), bound("from_s", args.from), bound("until_s", args.to));
    let (mut records, mut after) = (Vec::new(), String::new());
    loop {
        let limit = (args.limit - records.len() as u64).min(PAGE);
        let page = client.get(&format!("/v1/history?{range}&limit={limit}{after}"));
        let page: HistoryPage<'static> = page.map_err(|error| series.failure(client, error))?.read();
        let is_empty = page.records.is_empty();
        records.extend(page.records);
        match page.next {
            Some(next) if !is_empty && (records.len() as u64) < args.limit => {
                after = format!("&after={next}")
            }
            _ => break,
        }
    }
    records.reverse();
    Ok(records)
}

fn table(records: &[Record<'_>]) -> String {
    let mut rows = vec![["TIME", "VALUE"].map(String::from)];
    rows.extend(records.iter().map(|record| [utc(record.time_s), outcome(record)]));
    exit::table(&rows)
}

fn csv(records: &[Record<'_>]) -> String {
    let mut text = "time_s,quantity,value,error".to_owned();
    for record in records {
        let value = record.value.map_or(String::new(), |value| value.to_string());
        let error = record.error.as_deref().unwrap_or_default();
        text += &format!("\n{},{},{value},{error}", record.time_s, record.quantity);
    }
    text
}

/// Parses a time: seconds since 1970, or a time ago with its unit.
fn moment(text: &str) -> Result<Moment, String> {
    if let Ok(time_s) = text.parse::<f64>()
        && time_s.is_finite()
    {
        return Ok(Moment::At(time_s));
    }
    match text.parse() {
        Ok(Horizon::Seconds(seconds)) => Ok(Moment::Ago(seconds)),
        _ => Err("expected seconds since 1970, or a time ago such as 90m, 2h or 7d, at most a year".into()),
    }
}

/// Number of measurements in a request: the most that a station returns.
const PAGE: u64 = 10_000;
/// Largest `--limit`: the measurements of a series every 10 s in four months, in some hundred MB.
const LIMIT_MAX: u64 = 1_000_000;

const EXAMPLES: &str = "Examples:
  barograph history here south rtt --from 2h
  barograph history here south rtt --csv | barograph forecast -";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_absolute_or_ago() {
        assert_eq!(moment("1767225600"), Ok(Moment::At(1_767_225_600.0)));
        assert_eq!(moment("90m"), Ok(Moment::Ago(5400.0)));
        assert_eq!(Moment::Ago(60.0).time_s(100.0), 40.0);
        for text in ["", "inf", "nan", "yesterday", "0s", "2y"] {
            assert!(moment(text).is_err(), "{text}");
        }
    }

    #[test]
    fn csv_has_all_digits_and_failures_without_a_value() {
        let record = |value, error: Option<&'static str>| Record {
            quantity: "rtt".into(),
            unit: "s".into(),
            time_s: 1_767_225_600.25,
            value,
            error: error.map(Into::into),
            ..Record::default()
        };
        let records = [record(Some(0.1 + 0.2), None), record(None, Some("timed_out"))];
        let expected = "time_s,quantity,value,error
1767225600.25,rtt,0.30000000000000004,
1767225600.25,rtt,,timed_out";
        assert_eq!(csv(&records), expected);
        let rows = table(&records);
        assert!(rows.ends_with("2026-01-01 00:00:00Z  timed_out") && rows.contains("300 ms"), "{rows}");
    }
}
