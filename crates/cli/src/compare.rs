//! `barograph compare`: whether two series of the same thing are equivalent, and equally predictable.
//!
//! The comparison is that of Krintz and Wolski, "JavaNws: The Network Weather Service for the Desktop" (1999), §4
//! and §5: there of measurements by C and by Java, here of any two series.

mod print;

use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use barograph_forecast::Config;
use barograph_study::compare::{Better, Series, SeriesError, Study, plot};
use barograph_study::input::{InputError, smaller_is_better};
use clap::ValueEnum;

use crate::forecast::{PresetName, RuleName, unit};
use crate::problem::{Problem, draw, ended, open, shown};

/// What `barograph compare` was asked.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The first series, with times: CSV (`time_s,value`, more columns under a header) or JSON lines.
    #[arg(value_name = "A")]
    pub(crate) a: PathBuf,
    /// The second series; a coefficient below 1 means that this one reports worse.
    #[arg(value_name = "B")]
    pub(crate) b: PathBuf,
    /// Only the rows of this quantity, such as rtt, of files that hold several: a page's CSV, lines of `probe --json`.
    #[arg(long, value_name = "Q")]
    pub(crate) quantity: Option<String>,
    /// Which values are better [default: as the quantity says, where the series name it].
    #[arg(long, value_enum)]
    pub(crate) better: Option<BetterName>,
    /// The forecasting methods whose errors are compared.
    #[arg(long, value_enum, default_value_t = PresetName::Full)]
    pub(crate) preset: PresetName,
    /// How the methods' forecasts become one [default: blend for full, two-level for nws and classic].
    #[arg(long, value_enum, value_name = "RULE")]
    pub(crate) select: Option<RuleName>,
    /// Draw the two series, the histograms of their forecast errors, and the distributions over each other.
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// The unit of the values [default: that of the quantity, where it is one of ours].
    #[arg(long, default_value = "", hide_default_value = true, value_parser = unit)]
    pub(crate) unit: String,
    /// Print JSON: one object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// [`Better`] as it is written on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BetterName {
    /// As of goodput: the coefficient is B ÷ A
    Larger,
    /// As of times: the coefficient is A ÷ B
    Smaller,
}

impl From<BetterName> for Better {
    fn from(name: BetterName) -> Self {
        match name {
            BetterName::Larger => Self::Larger,
            BetterName::Smaller => Self::Smaller,
        }
    }
}

/// Compares as asked; what goes wrong is one line on standard error.
///
/// The exit code is 0 when all went well, 1 when the output could not be written, and 2 when the
/// input is not two series that can be compared.
#[must_use]
pub(crate) fn run(args: &Args) -> ExitCode {
    ended(compare(args))
}

fn compare(args: &Args) -> Result<(), Problem> {
    let (a, b) = (read(args, &args.a)?, read(args, &args.b)?);
    let better = better(args, &a, &b)?;
    let rule = args.preset.rule(args.select);
    let config = Config { preset: args.preset.into(), rule: rule.into(), levels: Vec::new() };
    let quantity = a.quantity.clone().or_else(|| b.quantity.clone()).or_else(|| args.quantity.clone());
    let study = Study::of(a, b, better, &config)?;
    let labels = print::Labels {
        a: &shown(&args.a),
        b: &shown(&args.b),
        unit: if args.unit.is_empty() { quantity.as_deref().map_or("", unit_of) } else { &args.unit },
        quantity: quantity.as_deref(),
        methods: &format!("{}, {}", word(args.preset), word(rule)),
    };
    let mut out = io::stdout().lock();
    if args.json {
        print::json(&mut out, &study, &labels)?
    } else {
        print::text(&mut out, &study, &labels)?
    }
    out.flush()?;
    if let Some(path) = &args.plot {
        let svg = plot::study(&study, &file_name(&args.a), &file_name(&args.b), labels.unit);
        draw(path, "the comparison", svg)?;
    }
    Ok(())
}

fn read(args: &Args, path: &Path) -> Result<Series, Problem> {
    let file = open(path, args.plot.as_deref())?;
    Series::read_quantity(BufReader::new(file), args.quantity.as_deref()).map_err(|error| {
        let is_unread = matches!(error, SeriesError::Input(InputError::Io(_)));
        Problem::of_series(shown(path), error, is_unread)
    })
}

/// As asked, or as the quantities say.
fn better(args: &Args, a: &Series, b: &Series) -> Result<Better, Problem> {
    if let Some(better) = args.better {
        return Ok(better.into());
    }
    let of =
        |series: &Series| series.quantity.as_deref().or(args.quantity.as_deref()).and_then(smaller_is_better);
    match (of(a), of(b)) {
        (Some(a_smaller), Some(b_smaller)) if a_smaller != b_smaller => Err(Problem::input(format_args!(
            "the series are of {} and {}: smaller is better of one, larger of the other; expected the same quantity, or --better",
            a.quantity.as_deref().unwrap_or_default(),
            b.quantity.as_deref().unwrap_or_default(),
        ))),
        (Some(true), _) | (None, Some(true)) => Ok(Better::Smaller),
        (Some(false), _) | (None, Some(false)) => Ok(Better::Larger),
        (None, None) => Err(Problem::input(
            "whether larger or smaller values are better is not known; expected --better, or a column `quantity` with rtt…, goodput…",
        )),
    }
}

/// A choice as it is written on the command line.
fn word(choice: impl ValueEnum) -> String {
    choice.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The unit of a quantity of ours, else nothing.
fn unit_of(quantity: &str) -> &'static str {
    barograph_forecast::Quantity::new(quantity).map_or("", |quantity| quantity.unit())
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
