//! `barograph classify fit`: fits a model to labelled windows, and reports the accuracy of models
//! on runs that they were not fitted to.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;

use barograph_loss::{FitError, LabelledWindow, PAPER_KINDS, UnfittedLength};

use super::{AnyClassifier, Method, Problem, labelled, report, save, window};

/// Arguments of `barograph classify fit`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Labelled windows, optionally gzipped: tables as `lab signatures` writes them, or lines as
    /// `barograph classify` reads them, with further fields: kind=K, run=R, and cause=cpu,
    /// cause=network or cause=both. Windows of one run are not independent, so name the run. The
    /// order of the files does not matter; a file may be named once only, and a window of a table
    /// may be in one file only.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Classifier to fit to the windows.
    #[arg(long, value_enum, default_value_t = Method::Default)]
    method: Method,
    /// Number of packets in each window, for files without a line `# window N` [default for tables:
    /// from the file's name, such as w20000_cpu.txt].
    #[arg(long, value_name = "N", value_parser = window())]
    window: Option<u32>,
    /// Use only windows of these lengths, in packets, separated by commas.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = window())]
    lengths: Vec<u32>,
    /// Use only windows of these kinds, separated by commas. `paper` stands for the kinds that the
    /// paper's models were fitted on: random, poisson, onoff, tcp, gen and quota.
    #[arg(long, value_name = "K", value_delimiter = ',')]
    kinds: Vec<String>,
    /// File for the model; an existing file stays until the new one is complete [default: standard
    /// output].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn fit(args: &Args) -> Result<(), Problem> {
    let (mut windows, mut read_before) = (Vec::new(), labelled::ReadWindows::default());
    for path in &args.files {
        windows.append(&mut labelled::read(path, args.window, &mut read_before)?);
    }
    choose(&mut windows, args)?;
    write_stderr(&report::counts(&windows));
    let Learned { classifier, left_out } = learn(args.method, &windows)
        .map_err(|error| Problem::Input(format!("cannot fit a model: {error}")))?;
    for left_out in left_out {
        write_stderr(&format!("left out, using the model of the nearest length: {left_out}\n"));
    }
    let model = match classifier {
        AnyClassifier::Default(classifier) => classifier.write(),
        AnyClassifier::Paper(classifier) => classifier.write(),
    };
    match &args.out {
        Some(path) => {
            save::save(path, model.as_bytes()).map_err(|error| Problem::unwritten(path, &error))?;
        }
        None => {
            let mut out = io::stdout().lock();
            out.write_all(model.as_bytes()).and_then(|()| out.flush())?;
        }
    }
    write_stderr(&match report::validate(args.method, &windows) {
        Ok(table) => table,
        Err(error) => format!("not cross-validated: with a fifth of the runs left out, {error}\n"),
    });
    Ok(())
}

/// Keeps the windows of the chosen kinds and lengths. Returns an error for a chosen kind or length
/// that no window has. Without this error, a mistyped name would give a different model.
fn choose(windows: &mut Vec<LabelledWindow>, args: &Args) -> Result<(), Problem> {
    let lengths: BTreeSet<u32> = windows.iter().map(|window| window.metrics.packets).collect();
    if let Some(none) = args.lengths.iter().find(|length| !lengths.contains(length)) {
        let there = lengths.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        return Err(none_of(format_args!("{none} packets"), &there));
    }
    let kinds: BTreeSet<&str> = windows.iter().map(|window| window.kind.as_str()).collect();
    let named = || args.kinds.iter().map(String::as_str).filter(|kind| *kind != PAPER);
    if let Some(none) = named().find(|kind| !kinds.contains(kind)) {
        let there = kinds.into_iter().filter(|kind| !kind.is_empty()).collect::<Vec<_>>().join(", ");
        return Err(none_of(format_args!("kind {none:?}"), &there));
    }
    let is_papers = args.kinds.iter().any(|kind| kind == PAPER);
    windows.retain(|window| {
        let is_kind = named().any(|kind| kind == window.kind)
            || is_papers && PAPER_KINDS.contains(&window.kind.as_str());
        (args.kinds.is_empty() || is_kind)
            && (args.lengths.is_empty() || args.lengths.contains(&window.metrics.packets))
    });
    Ok(())
}

fn none_of(what: impl Display, there: &str) -> Problem {
    Problem::Input(format!("no window has {what}; available: {there}"))
}

/// A fitted classifier, and the lengths of windows for which it has no model.
pub(super) struct Learned {
    pub(super) classifier: AnyClassifier,
    pub(super) left_out: Vec<UnfittedLength>,
}

pub(super) fn learn(method: Method, windows: &[LabelledWindow]) -> Result<Learned, FitError> {
    Ok(match method {
        Method::Default => {
            let classifier = AnyClassifier::Default(Box::new(barograph_loss::fit(windows)?));
            Learned { classifier, left_out: Vec::new() }
        }
        Method::Paper => {
            let fit = barograph_loss::fit_paper(windows)?;
            Learned { classifier: AnyClassifier::Paper(fit.classifier), left_out: fit.left_out }
        }
    })
}

fn write_stderr(text: &str) {
    // Ignore errors: standard error may be closed, and the result of the command is the model.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Name that stands for [`PAPER_KINDS`] in `--kinds`.
const PAPER: &str = "paper";

const EXAMPLES: &str = "Examples:
  barograph classify fit w20000_cpu.txt.gz w20000_net.txt.gz --out my.model
  barograph classify --model my.model --window 20000 windows.txt";
