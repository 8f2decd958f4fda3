//! `barograph tradeoff`: computes the forecast error that a longer period or a shorter test costs,
//! and the bytes that this change saves.
//!
//! The computation is from Lee, Stepanek, Wolski, Kesselman and Foster, "A Network Performance Tool
//! for Grid Environments" (SC '99, "Gloperf"), §4: a series is subsampled to longer periods, at
//! every offset, and predictors of the next measurement are scored on each subsample.

mod print;

use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use barograph_forecast::Horizon;
use barograph_study::ForecastTarget;
use barograph_study::input::InputError;
use barograph_study::tradeoff::{MeasuredSeries, ReadError, ReadOptions, TradeoffScores, read, svg};
use barograph_study::units::duration_s;
use indicatif::{ProgressBar, ProgressStyle};

use crate::forecast::horizon::{self, OfName};
use crate::forecast::unit;
use crate::problem::{Problem, draw, ended, open, shown};

/// Arguments of `barograph tradeoff`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Series with times: CSV (`time_s,value`, or more columns with a header) or JSON lines.
    ///
    /// The length of a file's tests comes from --length, else from the column or key test_s (a file
    /// may hold several lengths), else from a number with an s in the file's name, such as 10s in
    /// goodput_10s.csv.
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Length of a file's tests, in seconds; may be given once for each file.
    #[arg(long = "length", value_name = "FILE=S", value_parser = length)]
    pub(crate) lengths: Vec<(PathBuf, f64)>,
    /// Periods to compare, such as 300, 5m, 2h or 1d. The nearest multiples of the base period are
    /// used, and the base period itself.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = duration_s, default_value = PERIODS)]
    pub(crate) periods: Vec<f64>,
    /// Time between measurements [default: the median]; periods without a measurement stay blank.
    #[arg(long, value_name = "TIME", value_parser = duration_s)]
    pub(crate) base: Option<f64>,
    /// Read only the rows of this quantity, such as goodput, if the files have several quantities.
    #[arg(long, value_name = "Q")]
    pub(crate) quantity: Option<String>,
    /// Column of a CSV file with a header, or key of JSON lines, that has the values [default:
    /// value, the name of a quantity, or the only column with numbers].
    #[arg(long, value_name = "NAME")]
    pub(crate) column: Option<String>,
    /// Unit of the values; bytes per hour need bit/s, kbit/s, Mbit/s or Gbit/s [default: bit/s for
    /// goodput].
    #[arg(long, default_value = "", hide_default_value = true, value_parser = unit)]
    pub(crate) unit: String,
    /// Forecast further ahead than the next test: the next N values of the whole series, or a TIME
    /// such as 10m or 1h.
    #[arg(long, value_name = "N|TIME", value_parser = horizon::parse)]
    pub(crate) horizon: Option<Horizon>,
    /// What to forecast at the horizon.
    #[arg(long, value_enum, default_value_t = OfName::Mean, requires = "horizon")]
    pub(crate) of: OfName,
    /// Seed of the random predictor.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Draw the errors by period, with bytes per hour, and by length of the tests, as SVG.
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Computes the forecast errors by period and prints them. A failure of the command is reported as
/// one line on standard error.
///
/// The exit code is 0 on success, 1 when the output cannot be written, and 2 when the input is not
/// a series, or too short to be scored.
#[must_use]
pub(crate) fn run(args: &Args) -> ExitCode {
    ended(trade(args))
}

fn trade(args: &Args) -> Result<(), Problem> {
    if let Some((path, _)) = args.lengths.iter().find(|(path, _)| !args.files.contains(path)) {
        let path = shown(path);
        return Err(Problem::input(format_args!("--length names {path}, which is not one of the files")));
    }
    let mut series = Vec::new();
    for path in &args.files {
        series.extend(measured(args, path)?);
    }
    let study = scored(series, args)?;
    if study.rows.is_empty() {
        let why = match args.horizon {
            None => "no two measurements are one period apart",
            Some(_) => "the series has no complete horizon",
        };
        return Err(Problem::input(format_args!("no forecast could be scored: {why}")));
    }
    let mut out = io::stdout().lock();
    if args.json {
        print::json(&mut out, &study, args)?
    } else {
        print::text(&mut out, &study, args)?
    }
    out.flush()?;
    if let Some(path) = &args.plot {
        draw(path, "the errors", svg(&study))?;
    }
    Ok(())
}

fn measured(args: &Args, path: &Path) -> Result<Vec<MeasuredSeries>, Problem> {
    let file = open(path, args.plot.as_deref())?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let options = ReadOptions {
        name: &name,
        length_s: args.lengths.iter().find(|(of, _)| of == path).map(|(_, length_s)| *length_s),
        base_s: args.base,
        quantity: args.quantity.as_deref(),
        column: args.column.as_deref(),
        unit: &args.unit,
    };
    read(BufReader::new(file), &options).map_err(|error| {
        let is_unread = matches!(error, ReadError::Input(InputError::Io(_)));
        Problem::of_series(shown(path), error, is_unread)
    })
}

/// Computes the study, with a progress bar on a terminal.
fn scored(series: Vec<MeasuredSeries>, args: &Args) -> Result<TradeoffScores, Problem> {
    let (periods_s, seed) = (&args.periods[..], args.seed);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} periods and predictors")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(TradeoffScores::progress_steps(&series, periods_s) as u64).with_style(style);
    let on_progress = || bar.inc(1);
    let study = match args.horizon {
        None => Ok(TradeoffScores::of(series, periods_s, seed, &on_progress)),
        Some(horizon) => {
            let target = ForecastTarget { horizon, of: args.of.into() };
            TradeoffScores::ahead(series, periods_s, target, seed, &on_progress)
        }
    };
    bar.finish_and_clear();
    study.map_err(Problem::input)
}

/// Parses `FILE=S`; the file's name may contain `=`.
fn length(text: &str) -> Result<(PathBuf, f64), String> {
    let (file, length) = text.rsplit_once('=').ok_or("expected FILE=SECONDS, such as goodput.csv=10")?;
    Ok((file.into(), duration_s(length)?))
}

/// Default periods to compare: the test periods of Gloperf §4, figure 10.
const PERIODS: &str = "5m,10m,15m,30m,45m,60m,2h,4h,8h,12h,24h";

const EXAMPLES: &str = "Examples:
  barograph tradeoff goodput_10s.csv --unit Mbit/s --horizon 1h
  barograph tradeoff a_1s.csv b_5s.csv --periods 5m,1h --plot errors.svg";
