//! `barograph classify`: finds the cause of each window's losses: the receiving host, the network
//! or both.

#[cfg_attr(not(feature = "fit"), path = "classify/without_fit.rs")]
mod fit;
#[cfg(feature = "fit")]
mod labelled;
mod print;
#[cfg(feature = "fit")]
mod report;
#[cfg(feature = "fit")]
mod save;
mod source;

use std::fs;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use barograph_loss::{
    Classifier, Diagnosis, Evidence, LineError, Meter, Metrics, ModelError, PaperClassifier, Signature,
    TableReader, read_line,
};
use clap::ValueEnum;

use self::source::{Lines, Source};
use crate::problem::{Problem, ended, shown};

/// Arguments of `barograph classify`.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    classify: ClassifyArgs,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Verb {
    /// Fit a classifier to labelled windows, and save it as a model.
    Fit(fit::Args),
}

#[derive(Clone, Debug, clap::Args)]
struct ClassifyArgs {
    /// Windows, one a line, optionally gzipped; `-` is standard input. Without --window, a line has
    /// one bit for each packet: 1 = received, 0 = lost. Evidence may follow, after tabs: burst=B
    /// (packets that the sender sends at once), delay_us=D (one-way delay above its minimum just
    /// before the losses), host_drops=H (packets that the receiving socket dropped), marks=M
    /// (packets marked as congested).
    #[arg(value_name = "FILE|-", required = true)]
    file: Option<PathBuf>,
    /// Number of packets in each window. Lines are then run lengths,
    /// `received,lost,received,lost,…`; the remaining packets were received.
    #[arg(long, value_name = "N", value_parser = window())]
    window: Option<u32>,
    /// Classifier to use for the windows.
    #[arg(long, value_enum, default_value_t = Method::Default)]
    method: Method,
    /// Ignore these kinds of evidence on every line, separated by commas.
    #[arg(long, value_enum, value_name = "KEY", value_delimiter = ',')]
    ignore_evidence: Vec<Key>,
    /// Model from `barograph classify fit` to use instead of the built-in model; it must be of the
    /// method of --method.
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Print one JSON object a line; its keys are the names of the CSV's columns, and evidence is
    /// an array.
    #[arg(long)]
    json: bool,
}

/// Classifier of the cause of losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Method {
    /// All evidence: the kernel's drop counter, marks, delay, and the pattern of losses
    Default,
    /// The pattern of losses alone, exactly as in the paper (Dickens §3)
    Paper,
}

/// Kind of evidence, named by its key on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Key {
    /// Packets that the sender sends at once
    #[value(name = "burst")]
    Burst,
    /// One-way delay just before the losses
    #[value(name = "delay_us", alias = "delay")]
    Delay,
    /// Drop counter of the receiving socket
    #[value(name = "host_drops")]
    HostDrops,
    /// Packets marked as congested
    #[value(name = "marks")]
    Marks,
}

impl Key {
    fn clear(self, evidence: &mut Evidence) {
        match self {
            Self::Burst => evidence.burst = None,
            Self::Delay => evidence.delay_s = None,
            Self::HostDrops => evidence.host_drops = None,
            Self::Marks => evidence.marks = None,
        }
    }
}

/// The classifier of the chosen method.
enum AnyClassifier {
    Default(Box<Classifier>),
    Paper(PaperClassifier),
}

impl AnyClassifier {
    fn shipped(method: Method) -> Self {
        match method {
            Method::Default => Self::Default(Box::new(Classifier::shipped())),
            Method::Paper => Self::Paper(PaperClassifier::shipped()),
        }
    }

    fn read(method: Method, model: &str) -> Result<Self, ModelError> {
        Ok(match method {
            Method::Default => Self::Default(Box::new(Classifier::read(model)?)),
            Method::Paper => Self::Paper(PaperClassifier::read(model)?),
        })
    }

    fn diagnose(&self, signature: &Signature, metrics: &Metrics, evidence: &Evidence) -> Diagnosis {
        match self {
            Self::Default(classifier) => classifier.diagnose(signature, metrics, evidence),
            Self::Paper(classifier) => classifier.diagnose(metrics),
        }
    }
}

/// Classifies windows, or fits a classifier to them. An error is one line on standard error.
///
/// The exit code is 0 on success, 1 when the output cannot be written, and 2 when the input is
/// wrong.
#[must_use]
pub(crate) fn run(args: &Args) -> ExitCode {
    ended(match &args.verb {
        Some(Verb::Fit(args)) => fit::fit(args),
        None => classify(&args.classify),
    })
}

fn classify(args: &ClassifyArgs) -> Result<(), Problem> {
    let classifier = classifier(args)?;
    let path = args.file.as_deref().unwrap_or(Path::new("-"));
    let source = Source::open(path)?;
    let (name, is_live) = (source.name.clone(), source.is_live);
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
    if !args.json {
        print::header(&mut out)?;
        flush_if(is_live, &mut out)?;
    }
    let answered = follow(args, &classifier, source, &mut out);
    // Also print the rows before a bad line.
    out.flush()?;
    match answered {
        Ok(0) => Err(empty(&name)),
        Ok(_) => Ok(()),
        Err(problem) => Err(problem),
    }
}

/// Prints a row for each window; returns the number of windows.
fn follow(
    args: &ClassifyArgs,
    classifier: &AnyClassifier,
    source: Source,
    out: &mut impl Write,
) -> Result<u64, Problem> {
    let (name, is_live) = (source.name.clone(), source.is_live);
    let mut lines = Lines::new(source)?;
    let (mut signature, mut meter) = (Signature::new(), Meter::new());
    let (mut windows, mut is_table) = (0, false);
    while let Some((number, text)) = lines.next_line()? {
        is_table |= !matches!(TableReader::from_header(text), Ok(None));
        let line = read_line(text, args.window, &mut signature).map_err(|error| {
            let hint = match &error {
                _ if is_table => "; this is a table of labelled windows: use `barograph classify fit`",
                LineError::InvalidPacket { hint, .. } if !hint.is_empty() => " (--window N)",
                _ => "",
            };
            Problem::input(format_args!("{name}: line {number}: {error}{hint}"))
        })?;
        let Some(line) = line else { continue };
        let mut evidence = line.evidence;
        args.ignore_evidence.iter().for_each(|key| key.clear(&mut evidence));
        let metrics = meter.measure(&signature);
        let row = print::Row::new(number, &metrics, &classifier.diagnose(&signature, &metrics, &evidence));
        if args.json {
            row.json(out)?
        } else {
            row.csv(out)?
        }
        flush_if(is_live, out)?;
        windows += 1;
    }
    Ok(windows)
}

fn classifier(args: &ClassifyArgs) -> Result<AnyClassifier, Problem> {
    let Some(path) = &args.model else { return Ok(AnyClassifier::shipped(args.method)) };
    model(path, |text| AnyClassifier::read(args.method, text))
}

/// Reads a model; an error is a sentence that names the file.
pub(crate) fn read_model<T>(
    path: &Path,
    read: impl FnOnce(&str) -> Result<T, ModelError>,
) -> Result<T, String> {
    model(path, read).map_err(Problem::into_text)
}

/// Reads labelled windows; an error is a sentence that names the file.
#[cfg(feature = "fit")]
pub(crate) fn read_windows(path: &Path) -> Result<Vec<barograph_loss::LabelledWindow>, String> {
    labelled::read(path, None, &mut labelled::ReadWindows::default()).map_err(Problem::into_text)
}

fn model<T>(path: &Path, read: impl FnOnce(&str) -> Result<T, ModelError>) -> Result<T, Problem> {
    let name = shown(path);
    let unopened = |error| Problem::unopened(&name, &error);
    // The length of a device or pipe is unknown before it is read.
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(unopened)?;
    file.take(MODEL_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unopened)?;
    if bytes.len() as u64 > MODEL_BYTES_MAX {
        return Err(Problem::Input(format!(
            "{name}: too large for a model, which has at most {MODEL_BYTES_MAX} bytes"
        )));
    }
    let invalid = |error: ModelError| Problem::Input(format!("{name}: {error}"));
    let text = String::from_utf8(bytes)
        .map_err(|_| invalid(ModelError::Invalid("expected UTF-8 text".to_owned())))?;
    read(&text).map_err(invalid)
}

/// Parser for the length of a window.
fn window() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(Signature::PACKETS_MAX))
}

fn empty(name: &str) -> Problem {
    Problem::Input(format!("{name}: no windows; expected lines of bits, or of run lengths with --window"))
}

/// Flushes the output if a reader may wait for each row.
fn flush_if(live: bool, out: &mut impl Write) -> io::Result<()> {
    if live { out.flush() } else { Ok(()) }
}

/// Maximum number of bytes read from a model file, so that a wrong file takes little memory. A
/// model has a few hundred numbers.
const MODEL_BYTES_MAX: u64 = 1 << 20;
/// Size of a file buffer, in bytes: large enough that few system calls are needed.
const BUFFER_BYTES: usize = 64 * 1024;

const EXAMPLES: &str =
    "The first example: 60 of 1000 packets were lost in a row, and the receiving socket dropped 60.

Examples:
  printf '400,60\\thost_drops=60\\n' | barograph classify --window 1000 -
  barograph classify --json windows.txt.gz";
