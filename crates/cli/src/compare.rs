//! `barograph compare`: whether two series of the same thing are equivalent, and equally predictable.
//!
//! The comparison is that of Krintz and Wolski, "JavaNws: The Network Weather Service for the Desktop" (1999), §4
//! and §5: there of measurements by C and by Java, here of any two series.

mod print;

use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use barograph_forecast::{Config, NotFinite};
use barograph_study::compare::{Better, Series, SeriesError, Study, plot};
use barograph_study::input::{InputError, cause, smaller_is_better};
use clap::ValueEnum;

use crate::forecast::{PresetName, RuleName, shown, unit};

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
    match compare(args) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has seen enough (`| head`).
        Err(Problem::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(problem) => {
            // Standard error may be closed; there is nothing left to tell that to.
            let _ = writeln!(io::stderr(), "barograph: {problem}");
            ExitCode::from(problem.exit_code())
        }
    }
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
        let svg = plot::study(&study, &file_name(&args.a), &file_name(&args.b), labels.unit)
            .map_err(Problem::Drawing)?;
        fs::write(path, svg).map_err(|error| Problem::Unwritten { path: path.clone(), error })?;
    }
    Ok(())
}

fn read(args: &Args, path: &Path) -> Result<Series, Problem> {
    let unopened = |error| Problem::Unopened { path: path.to_owned(), error };
    let metadata = fs::metadata(path).map_err(unopened)?;
    if metadata.is_dir() {
        return Err(unopened(io::ErrorKind::IsADirectory.into()));
    }
    let plot = args.plot.as_ref().and_then(|plot| fs::metadata(plot).ok());
    if plot.is_some_and(|plot| (plot.dev(), plot.ino()) == (metadata.dev(), metadata.ino())) {
        return Err(Problem::Overwriting { path: path.to_owned() });
    }
    let file = File::open(path).map_err(unopened)?;
    Series::read_quantity(BufReader::new(file), args.quantity.as_deref())
        .map_err(|error| Problem::Series { path: path.to_owned(), error })
}

/// As asked, or as the quantities say.
fn better(args: &Args, a: &Series, b: &Series) -> Result<Better, Problem> {
    if let Some(better) = args.better {
        return Ok(better.into());
    }
    let of =
        |series: &Series| series.quantity.as_deref().or(args.quantity.as_deref()).and_then(smaller_is_better);
    match (of(a), of(b)) {
        (Some(a_smaller), Some(b_smaller)) if a_smaller != b_smaller => Err(Problem::Opposed {
            a: a.quantity.clone().unwrap_or_default(),
            b: b.quantity.clone().unwrap_or_default(),
        }),
        (Some(true), _) | (None, Some(true)) => Ok(Better::Smaller),
        (Some(false), _) | (None, Some(false)) => Ok(Better::Larger),
        (None, None) => Err(Problem::Undirected),
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

/// Why there is no comparison.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("{}: cannot be opened: {}", shown(path), cause(error))]
    Unopened { path: PathBuf, error: io::Error },
    #[error("{}: {error}", shown(path))]
    Series { path: PathBuf, error: SeriesError },
    #[error("{}: is one of the series; draw into another file", shown(path))]
    Overwriting { path: PathBuf },
    #[error(
        "the series are of {a} and {b}: smaller is better of one, larger of the other; expected the same quantity, or --better"
    )]
    Opposed { a: String, b: String },
    #[error(
        "whether larger or smaller values are better is not known; expected --better, or a column `quantity` with rtt…, goodput…"
    )]
    Undirected,
    #[error("{}: cannot be written: {}", shown(path), cause(error))]
    Unwritten { path: PathBuf, error: io::Error },
    #[error("the output cannot be written: {}", cause(.0))]
    Output(#[from] io::Error),
    #[error("the comparison cannot be drawn: {0}")]
    Drawing(String),
    #[error("the battery refused a value: {0}")]
    Refused(#[from] NotFinite),
}

impl Problem {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Series { error: SeriesError::Input(InputError::Io(_)), .. }
            | Self::Unwritten { .. }
            | Self::Output(_)
            | Self::Drawing(_) => 1,
            Self::Unopened { .. }
            | Self::Series { .. }
            | Self::Overwriting { .. }
            | Self::Opposed { .. }
            | Self::Undirected
            | Self::Refused(_) => 2,
        }
    }
}
