//! `barograph classify fit`: learns a model from labelled windows, and tells how good it is on runs that it has not seen.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;

use barograph_loss::{FitError, Labelled, LeftOut, PAPER_KINDS};

use super::{Judge, Method, Problem, labelled, report, save, window};

/// What `barograph classify fit` was asked.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Args {
    /// Windows whose cause is known, also gzipped: tables as `lab signatures` writes them, or lines as for classify with cause=cpu,
    /// network or both, and kind=K and run=R. Windows of one run are not independent: name it. The order of files changes nothing; none may
    /// be named twice, and no window of a table be in two.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// What learns.
    #[arg(long, value_enum, default_value_t = Method::Default)]
    method: Method,
    /// Packets of each window, of files that do not say so by a line `# window N`; without it their name does, as in w20000_cpu.txt.
    #[arg(long, value_name = "N", value_parser = window())]
    window: Option<u32>,
    /// Learn only from windows of these lengths, in packets; several with commas.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = window())]
    lengths: Vec<u32>,
    /// Learn only from windows of these kinds; several with commas. `paper` stands for those that the paper was fitted on: random,
    /// poisson, onoff, tcp, gen and quota.
    #[arg(long, value_name = "K", value_delimiter = ',')]
    kinds: Vec<String>,
    /// Where the model goes; what is there stays until the new one is complete [default: standard output].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn fit(args: &Args) -> Result<(), Problem> {
    let (mut windows, mut seen) = (Vec::new(), labelled::Seen::default());
    for path in &args.files {
        windows.append(&mut labelled::read(path, args.window, &mut seen)?);
    }
    choose(&mut windows, args)?;
    say(&report::counts(&windows));
    let Learned { judge, left_out } = learn(args.method, &windows)
        .map_err(|error| Problem::Input(format!("nothing was learned: {error}")))?;
    for left_out in left_out {
        say(&format!("left out, the model of the nearest length is used for them: {left_out}\n"));
    }
    let model = match judge {
        Judge::Default(classifier) => classifier.write(),
        Judge::Paper(classifier) => classifier.write(),
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
    say(&match report::validate(args.method, &windows) {
        Ok(table) => table,
        Err(error) => format!("not cross-validated: without a fifth of the runs, {error}\n"),
    });
    Ok(())
}

/// Leaves the kinds and lengths that were asked for, each of which there must be: a name that was mistyped would teach something else.
fn choose(windows: &mut Vec<Labelled>, args: &Args) -> Result<(), Problem> {
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
    Problem::Input(format!("no window has {what}; there are: {there}"))
}

/// A classifier, and the lengths of windows that it has nothing of.
pub(super) struct Learned {
    pub(super) judge: Judge,
    pub(super) left_out: Vec<LeftOut>,
}

pub(super) fn learn(method: Method, windows: &[Labelled]) -> Result<Learned, FitError> {
    Ok(match method {
        Method::Default => {
            let judge = Judge::Default(Box::new(barograph_loss::fit(windows)?));
            Learned { judge, left_out: Vec::new() }
        }
        Method::Paper => {
            let fit = barograph_loss::fit_paper(windows)?;
            Learned { judge: Judge::Paper(fit.classifier), left_out: fit.left_out }
        }
    })
}

fn say(text: &str) {
    // Standard error may be closed; the model is what was asked for.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// The name of [`PAPER_KINDS`] among kinds.
const PAPER: &str = "paper";

const EXAMPLE: &str = "Example:

  barograph classify fit w20000_cpu.txt.gz w20000_net.txt.gz --out my.model
  barograph classify --model my.model --window 20000 windows.txt";
