//! `barograph classify`: who lost the packets, the receiving host or the network, window by window.

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
    Classifier, Diagnosis, Evidence, Meter, Metrics, ModelError, PaperClassifier, Signature, Table, read_line,
};
use clap::ValueEnum;

use self::source::{Lines, Source};
use crate::problem::{Problem, ended, shown};

/// What `barograph classify` was asked.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Verb {
    /// Learn a classifier from windows whose cause is known, and save it as a model.
    Fit(fit::Args),
}

#[derive(Clone, Debug, clap::Args)]
struct Asked {
    /// Windows, one a line, also gzipped; `-` is standard input. Without --window each is bits, 1 = received, 0 = lost. Evidence may
    /// follow, after tabs: burst=B (packets that the sender sends at once), delay_us=D (one-way delay above its minimum just before the
    /// losses), host_drops=H (packets that the receiving socket dropped), marks=M (packets marked as congested).
    #[arg(value_name = "FILE|-", required = true)]
    file: Option<PathBuf>,
    /// Packets of each window: lines are run lengths, `received,lost,received,lost,…`, and the rest was received.
    #[arg(long, value_name = "N", value_parser = window())]
    window: Option<u32>,
    /// Who tells.
    #[arg(long, value_enum, default_value_t = Method::Default)]
    method: Method,
    /// Pass over this evidence, as if no line had it; several with commas.
    #[arg(long, value_enum, value_name = "KEY", value_delimiter = ',')]
    ignore_evidence: Vec<Key>,
    /// A model that `barograph classify fit` has made of this method, in place of the one that comes with it.
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Print JSON: an object a line, with the names of the CSV's columns; evidence is an array.
    #[arg(long)]
    json: bool,
}

/// Who tells whose loss it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Method {
    /// The best evidence there is: the kernel's count of drops, marks, delay, and the pattern of losses
    Default,
    /// The pattern of losses alone, exactly as the paper has it (Dickens §3)
    Paper,
}

/// Evidence as it is named on lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Key {
    /// The sender's burst
    #[value(name = "burst")]
    Burst,
    /// One-way delay
    #[value(name = "delay_us", alias = "delay")]
    Delay,
    /// The kernel's count of drops
    #[value(name = "host_drops")]
    HostDrops,
    /// Congestion marks
    #[value(name = "marks")]
    Marks,
}

impl Key {
    fn forget(self, evidence: &mut Evidence) {
        match self {
            Self::Burst => evidence.burst = None,
            Self::Delay => evidence.delay_s = None,
            Self::HostDrops => evidence.host_drops = None,
            Self::Marks => evidence.marks = None,
        }
    }
}

/// A classifier of either method.
enum Judge {
    Default(Box<Classifier>),
    Paper(PaperClassifier),
}

impl Judge {
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

/// Classifies or learns as asked; what goes wrong is one line on standard error.
///
/// The exit code is 0 when all went well, 1 when the output could not be written, and 2 when the input is none.
#[must_use]
pub(crate) fn run(args: &Args) -> ExitCode {
    ended(match &args.verb {
        Some(Verb::Fit(asked)) => fit::fit(asked),
        None => classify(&args.asked),
    })
}

fn classify(asked: &Asked) -> Result<(), Problem> {
    let judge = judge(asked)?;
    let path = asked.file.as_deref().unwrap_or(Path::new("-"));
    let source = Source::open(path)?;
    let (name, is_live) = (source.name.clone(), source.is_live);
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
    if !asked.json {
        print::header(&mut out)?;
        flush_if(is_live, &mut out)?;
    }
    let answered = follow(asked, &judge, source, &mut out);
    // What was answered before a bad line is not lost with it.
    out.flush()?;
    match answered {
        Ok(0) => Err(empty(&name)),
        Ok(_) => Ok(()),
        Err(problem) => Err(problem),
    }
}

/// Answers line by line, and says how many windows there were.
fn follow(asked: &Asked, judge: &Judge, source: Source, out: &mut impl Write) -> Result<u64, Problem> {
    let (name, is_live) = (source.name.clone(), source.is_live);
    let mut lines = Lines::new(source)?;
    let (mut signature, mut meter) = (Signature::new(), Meter::new());
    let (mut windows, mut is_table) = (0, false);
    while let Some((number, text)) = lines.next_line()? {
        is_table |= !matches!(Table::of_header(text), Ok(None));
        let line = read_line(text, asked.window, &mut signature).map_err(|error| {
            let hint = if is_table {
                "; this is a table of labelled windows, which `barograph classify fit` reads"
            } else {
                ""
            };
            Problem::input(format_args!("{name}: line {number}: {error}{hint}"))
        })?;
        let Some(line) = line else { continue };
        let mut evidence = line.evidence;
        asked.ignore_evidence.iter().for_each(|key| key.forget(&mut evidence));
        let metrics = meter.measure(&signature);
        let row = print::Row::new(number, &metrics, &judge.diagnose(&signature, &metrics, &evidence));
        if asked.json {
            row.json(out)?
        } else {
            row.csv(out)?
        }
        flush_if(is_live, out)?;
        windows += 1;
    }
    Ok(windows)
}

fn judge(asked: &Asked) -> Result<Judge, Problem> {
    let Some(path) = &asked.model else { return Ok(Judge::shipped(asked.method)) };
    let name = shown(path);
    let unopened = |error| Problem::unopened(&name, &error);
    // A device or a pipe has no length beforehand.
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(unopened)?;
    file.take(MODEL_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unopened)?;
    if MODEL_BYTES_MAX < bytes.len() as u64 {
        return Err(Problem::Input(format!("{name}: larger than any model, {MODEL_BYTES_MAX} bytes")));
    }
    let model = |error: ModelError| Problem::Input(format!("{name}: {error}"));
    let text = String::from_utf8(bytes).map_err(|_| model(ModelError::Invalid("no text".to_owned())))?;
    Judge::read(asked.method, &text).map_err(model)
}

/// A window's length on the command line.
fn window() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(Signature::PACKETS_MAX))
}

fn empty(name: &str) -> Problem {
    Problem::Input(format!("{name}: no windows: expected lines of bits, or with --window of run lengths"))
}

/// Hands on what was printed where someone may be waiting for it.
fn flush_if(live: bool, out: &mut impl Write) -> io::Result<()> {
    if live { out.flush() } else { Ok(()) }
}

/// A model has some hundred numbers, and the library reads no longer one; this bounds what a wrong file costs.
const MODEL_BYTES_MAX: u64 = 1 << 20;
/// Large enough that reading and writing files costs few system calls.
const BUFFER_BYTES: usize = 64 * 1024;

const EXAMPLE: &str = "Example: of 1000 packets, 60 lost in a row, and the host's socket dropped 60:

  printf '400,60\\thost_drops=60\\n' | barograph classify --window 1000 -";
