//! `barograph compare`: checks whether two series of the same quantity are equivalent and equally
//! predictable.
//!
//! The method of comparison is from Krintz and Wolski, "JavaNws: The Network Weather Service for
//! the Desktop" (2000), §4 and §5. The paper compares measurements by C and by Java; this verb
//! compares any two series.

mod print;

use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use barograph_forecast::{BatteryConfig, Horizon};
use barograph_study::ForecastTarget;
use barograph_study::compare::{AheadError, Preference, SeriesComparison, SeriesError, TimedSeries, plot};
use barograph_study::input::{InputError, smaller_is_better};
use clap::ValueEnum;

use crate::forecast::horizon::{self, OfName};
use crate::forecast::{PresetName, RuleName, unit};
use crate::problem::{Problem, draw, ended, open, shown};

/// Arguments of `barograph compare`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// First series, with times: CSV (`time_s,value`, or more columns with a header) or JSON lines.
    #[arg(value_name = "A")]
    pub(crate) a: PathBuf,
    /// Second series; a coefficient below 1 means that the second series reports worse values.
    #[arg(value_name = "B")]
    pub(crate) b: PathBuf,
    /// Read only the rows of this quantity, such as rtt. Use it for files with several quantities:
    /// the page's CSV, or the lines of `barograph probe --json`.
    #[arg(long, value_name = "Q")]
    pub(crate) quantity: Option<String>,
    /// Column of a CSV file with a header, or key of JSON lines, that has the values of both series
    /// [default: value, the name of a quantity, or the only column with numbers].
    #[arg(long, value_name = "NAME")]
    pub(crate) column: Option<String>,
    /// Which values are better [default: by the quantity in the files or in --quantity].
    #[arg(long, value_enum)]
    pub(crate) better: Option<BetterName>,
    /// Forecasting methods to use; the errors of their forecasts are compared.
    #[arg(long, value_enum, default_value_t = PresetName::Full)]
    pub(crate) preset: PresetName,
    /// How the methods' forecasts are combined [default: blend for full and lean, two-level for nws
    /// and classic].
    #[arg(long, value_enum, value_name = "RULE")]
    pub(crate) select: Option<RuleName>,
    /// Compare the errors of forecasts further ahead than the next value: of the next N values, or
    /// of a TIME such as 10m or 1h.
    #[arg(long, value_name = "N|TIME", value_parser = horizon::parse)]
    pub(crate) horizon: Option<Horizon>,
    /// What to forecast at the horizon.
    #[arg(long, value_enum, default_value_t = OfName::Mean, requires = "horizon")]
    pub(crate) of: OfName,
    /// Draw the two series, the histograms of their forecast errors and the distributions as SVG.
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// Unit of the values [default: the unit of the quantity, if Barograph knows the quantity].
    #[arg(long, default_value = "", hide_default_value = true, value_parser = unit)]
    pub(crate) unit: String,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// [`Preference`] as a value of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BetterName {
    /// Larger values are better, as for goodput: the coefficient is B ÷ A
    Larger,
    /// Smaller values are better, as for times: the coefficient is A ÷ B
    Smaller,
}

impl From<BetterName> for Preference {
    fn from(name: BetterName) -> Self {
        match name {
            BetterName::Larger => Self::Larger,
            BetterName::Smaller => Self::Smaller,
        }
    }
}

/// Compares two series. An error is one line on standard error.
///
/// The exit code is 0 on success, 1 when the output cannot be written, and 2 when the input is not
/// two series that can be compared.
#[must_use]
pub(crate) fn run(args: &Args) -> ExitCode {
    ended(compare(args))
}

fn compare(args: &Args) -> Result<(), Problem> {
    let (a, b) = (read(args, &args.a)?, read(args, &args.b)?);
    let better = better(args, &a, &b)?;
    let rule = args.preset.rule(args.select);
    let config = BatteryConfig { preset: args.preset.into(), rule: rule.into(), levels: Vec::new() };
    let quantity = a.quantity.clone().or_else(|| b.quantity.clone()).or_else(|| args.quantity.clone());
    let target = args.horizon.map(|horizon| ForecastTarget { horizon, of: args.of.into() });
    let study = match target {
        Some(target) => {
            SeriesComparison::ahead(a, b, better, &config, target).map_err(|error| match error {
                AheadError::Value(error) => error.into(),
                AheadError::Horizon(error) => Problem::input(error),
            })?
        }
        None => SeriesComparison::of(a, b, better, &config)?,
    };
    let labels = print::Labels {
        a: &shown(&args.a),
        b: &shown(&args.b),
        unit: if args.unit.is_empty() { quantity.as_deref().map_or("", unit_of) } else { &args.unit },
        quantity: quantity.as_deref(),
        methods: &format!("{}, {}", word(args.preset), word(rule)),
        target,
    };
    let mut out = io::stdout().lock();
    if args.json {
        print::json(&mut out, &study, &labels)?
    } else {
        print::text(&mut out, &study, &labels)?
    }
    out.flush()?;
    if let Some(path) = &args.plot {
        let svg = plot::comparison_svg(&study, &file_name(&args.a), &file_name(&args.b), labels.unit);
        draw(path, "the comparison", svg)?;
    }
    Ok(())
}

fn read(args: &Args, path: &Path) -> Result<TimedSeries, Problem> {
    let file = open(path, args.plot.as_deref())?;
    let (quantity, column) = (args.quantity.as_deref(), args.column.as_deref());
    TimedSeries::read_selected(BufReader::new(file), quantity, column).map_err(|error| {
        let is_unread = matches!(error, SeriesError::Input(InputError::Io(_)));
        Problem::of_series(shown(path), error, is_unread)
    })
}

/// Whether larger or smaller values are better: by `--better`, else by the quantities.
fn better(args: &Args, a: &TimedSeries, b: &TimedSeries) -> Result<Preference, Problem> {
    if let Some(better) = args.better {
        return Ok(better.into());
    }
    let of = |series: &TimedSeries| {
        series.quantity.as_deref().or(args.quantity.as_deref()).and_then(smaller_is_better)
    };
    match (of(a), of(b)) {
        (Some(a_smaller), Some(b_smaller)) if a_smaller != b_smaller => Err(Problem::input(format_args!(
            "the series hold {} and {}: smaller is better for one, larger for the other; compare one quantity, or pass --better",
            a.quantity.as_deref().unwrap_or_default(),
            b.quantity.as_deref().unwrap_or_default(),
        ))),
        (Some(true), _) | (None, Some(true)) => Ok(Preference::Smaller),
        (Some(false), _) | (None, Some(false)) => Ok(Preference::Larger),
        (None, None) => Err(Problem::input(
            "cannot tell whether larger or smaller values are better; pass --better, or add a column `quantity` with rtt…, goodput…",
        )),
    }
}

/// Name of a choice, as it is given on the command line.
fn word(choice: impl ValueEnum) -> String {
    choice.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The unit of a known quantity, else an empty string.
fn unit_of(quantity: &str) -> &'static str {
    barograph_forecast::Quantity::new(quantity).map_or("", |quantity| quantity.unit())
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

const EXAMPLES: &str = "Examples:
  barograph compare a.csv b.csv --quantity goodput --horizon 10m
  barograph compare a.csv b.csv --better smaller --plot comparison.svg";
