//! `barograph classify fit`: learns a model from labelled windows, and tells how good it is on runs that it has not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use barograph_loss::{Cause, Evidence, FitError, Labelled, Verdict};

use super::{Judge, Method, Problem, labelled, window};

/// What `barograph classify fit` was asked.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Args {
    /// Windows whose cause is known, also gzipped: tables as `lab signatures` writes them, or lines as for classify with cause=cpu,
    /// network or both, and kind=K and run=R. Windows of one run are not independent: name it.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// What learns.
    #[arg(long, value_enum, default_value_t = Method::Default)]
    method: Method,
    /// Packets of each window, of files that do not say so by a line `# window N`; without it their name does, as in w20000_cpu.txt.
    #[arg(long, value_name = "N", value_parser = window())]
    window: Option<u32>,
    /// Where the model goes [default: standard output].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn fit(args: &Args) -> Result<(), Problem> {
    let mut windows = Vec::new();
    for path in &args.files {
        windows.append(&mut labelled::read(path, args.window)?);
    }
    say(counts(&windows));
    let model = match learn(args.method, &windows)? {
        Judge::Default(classifier) => classifier.write(),
        Judge::Paper(classifier) => classifier.write(),
    };
    match &args.out {
        Some(path) => {
            fs::write(path, model).map_err(|error| Problem::Unwritten { path: path.clone(), error })?;
        }
        None => {
            let mut out = io::stdout().lock();
            out.write_all(model.as_bytes()).and_then(|()| out.flush())?;
        }
    }
    say(match validate(args.method, &windows) {
        Ok(table) => table,
        Err(error) => format!("not cross-validated: without a fifth of the runs, {error}\n"),
    });
    Ok(())
}

fn learn(method: Method, windows: &[Labelled]) -> Result<Judge, FitError> {
    Ok(match method {
        Method::Default => Judge::Default(barograph_loss::fit(windows)?),
        Method::Paper => Judge::Paper(barograph_loss::fit_paper(windows)?),
    })
}

/// How many windows and runs there are of each cause.
fn counts(windows: &[Labelled]) -> String {
    let mut text = format!("{:<9} {:>8} {:>6}\n", "cause", "windows", "runs");
    for name in GROUPS {
        let of_cause = || windows.iter().filter(|window| group(window) == name);
        let runs = of_cause().map(|window| window.run.as_str()).collect::<BTreeSet<_>>().len();
        text += &format!("{name:<9} {:>8} {runs:>6}\n", of_cause().count());
    }
    text
}

/// Each window is judged by a classifier that has learned from other runs alone.
fn validate(method: Method, windows: &[Labelled]) -> Result<String, FitError> {
    let folds = folds(windows);
    let evidences: &[_] = match method {
        Method::Default => &[("pattern", false), ("pattern, delay", true)],
        Method::Paper => &[("pattern", false)],
    };
    let mut tallies: BTreeMap<(usize, &str), Tally> = BTreeMap::new();
    for fold in 0..FOLDS {
        let is_in = |window: &&Labelled| folds.get(window.run.as_str()) == Some(&fold);
        let others: Vec<Labelled> = windows.iter().filter(|window| !is_in(window)).cloned().collect();
        let judge = learn(method, &others)?;
        for window in windows.iter().filter(is_in) {
            let rate = f64::from(window.metrics.lost) / f64::from(window.metrics.packets.max(1));
            if !LOSS_RATES.contains(&rate) {
                continue;
            }
            for (index, (_, with_delay)) in evidences.iter().enumerate() {
                // Never with the kernel's count: it is where the label comes from.
                let delay_s = window.evidence.delay_s.filter(|_| *with_delay);
                let evidence = Evidence { delay_s, host_drops: None, ..window.evidence };
                let verdict = judge.diagnose(&window.signature, &window.metrics, &evidence).verdict;
                tallies.entry((index, group(window))).or_default().count(window.cause, verdict);
            }
        }
    }
    let mut text = format!(
        "cross-validated over {FOLDS} parts of the runs, windows of loss {} to {}, in percent:\n{:<15} {:<9} {:>8} {:>7} {:>7} {:>13}\n",
        LOSS_RATES.start(),
        LOSS_RATES.end(),
        "evidence",
        "cause",
        "windows",
        "right",
        "wrong",
        "inconclusive"
    );
    for (index, (evidence, _)) in evidences.iter().enumerate() {
        for name in GROUPS {
            let Some(tally) = tallies.get(&(index, name)) else { continue };
            let percent = |count: u32| 100.0 * f64::from(count) / f64::from(tally.windows);
            text += &format!(
                "{evidence:<15} {name:<9} {:>8} {:>7.2} {:>7.2} {:>13.2}\n",
                tally.windows,
                percent(tally.right),
                percent(tally.wrong),
                percent(tally.windows - tally.right - tally.wrong)
            );
        }
    }
    Ok(text)
}

#[derive(Default)]
struct Tally {
    windows: u32,
    right: u32,
    wrong: u32,
}

impl Tally {
    /// Every verdict but the right one and `inconclusive` is wrong, also one that sees two causes where there was one.
    fn count(&mut self, cause: Cause, verdict: Verdict) {
        let right = match cause {
            Cause::Host => Verdict::Cpu,
            Cause::Network => Verdict::Network,
            Cause::Unknown => Verdict::Hybrid,
        };
        self.windows += 1;
        self.right += u32::from(verdict == right);
        self.wrong += u32::from(verdict != right && verdict != Verdict::Inconclusive);
    }
}

/// Which part each run is in: those of a kind are dealt in turn, so that each part has some of every kind.
fn folds(windows: &[Labelled]) -> BTreeMap<&str, usize> {
    let runs: BTreeSet<_> =
        windows.iter().map(|window| (window.kind.as_str(), window.run.as_str())).collect();
    let mut folds = BTreeMap::new();
    for (_, run) in runs {
        let next = folds.len() % FOLDS;
        folds.entry(run).or_insert(next);
    }
    folds
}

fn say(text: String) {
    // Standard error may be closed; the model is what was asked for.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Under which cause a window is counted: a path that carried nothing for a while looks like the host, and is counted apart.
fn group(window: &Labelled) -> &'static str {
    match window.cause {
        Cause::Host => "cpu",
        Cause::Network if window.kind == "outage" => "outage",
        Cause::Network => "network",
        Cause::Unknown => "both",
    }
}

const GROUPS: [&str; 4] = ["cpu", "network", "outage", "both"];
/// Parts of the runs: the usual number, of which each model learns from four.
const FOLDS: usize = 5;
/// The loss rates that the paper's classifier is for (Dickens §3.2).
const LOSS_RATES: std::ops::RangeInclusive<f64> = 0.00008..=0.05;

const EXAMPLE: &str = "Example:

  barograph classify fit w20000_cpu.txt.gz w20000_net.txt.gz --out my.model
  barograph classify --model my.model --window 20000 windows.txt";
