//! `lab forecast`: every preset, rule and method on every trace of a folder.

mod cycle;
mod dots;
pub(crate) mod report;
mod score;

use std::fs::{self, File};
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, ensure};
use barograph_forecast::Loss;
use barograph_study::input::{Sample, SeriesReader};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use cycle::CycleScore;
use score::{BATTERIES, Score, score};

/// What `lab forecast` was asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder with the traces (*.csv).
    #[arg(value_name = "DIR")]
    traces: PathBuf,
    /// Write forecast.md and the figure forecast.svg here too.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the numbers as JSON.
    #[arg(long)]
    json: bool,
}

/// One trace with the scores of all batteries, in the order of [`BATTERIES`].
#[derive(Serialize)]
pub(crate) struct Trace {
    pub(crate) name: String,
    pub(crate) count: usize,
    pub(crate) scores: Vec<Score>,
    /// The daily and weekly members by MSE and by MAE, where the trace is a week long.
    pub(crate) cycles: Option<[CycleScore; 2]>,
}

/// Reads, scores and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let series = read_folder(&args.traces)?;
    let traces = score_all(series);
    for short in traces.iter().filter(|trace| trace.scores.is_empty()) {
        eprintln!("lab: {} is too short to be scored ({} values)", short.name, short.count);
    }
    let traces: Vec<Trace> = traces.into_iter().filter(|trace| !trace.scores.is_empty()).collect();
    ensure!(!traces.is_empty(), "no trace in {} is long enough to be scored", args.traces.display());

    let markdown = report::markdown(&traces);
    let text = if args.json { serde_json::to_string(&traces)? + "\n" } else { markdown.clone() };
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    if let Some(folder) = &args.out {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        for (name, content) in [("forecast.md", markdown), ("forecast.svg", dots::svg(&traces)?)] {
            let path = folder.join(name);
            fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

/// The traces of a folder by name, in order.
pub(crate) fn read_folder(folder: &Path) -> anyhow::Result<Vec<(String, Vec<Sample>)>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "csv") {
            paths.push(path);
        }
    }
    ensure!(!paths.is_empty(), "no *.csv in {}", folder.display());
    paths.sort();
    let read = |path: PathBuf| {
        let shown = path.display().to_string();
        let file = File::open(&path).with_context(|| format!("cannot open {shown}"))?;
        let samples = SeriesReader::new(BufReader::new(file))
            .collect::<Result<Vec<Sample>, _>>()
            .with_context(|| format!("cannot read {shown}"))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, samples))
    };
    paths.into_iter().map(read).collect()
}

/// Scores every battery on every trace, on all processors, with a bar on a terminal.
fn score_all(series: Vec<(String, Vec<Sample>)>) -> Vec<Trace> {
    let jobs: Vec<(usize, usize)> = (0..series.len())
        .flat_map(|trace| (0..BATTERIES.len()).map(move |battery| (trace, battery)))
        .collect();
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(jobs.len() as u64).with_style(style);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)).copied() {
            let ((name, samples), (preset, rule)) = (&series[job.0], BATTERIES[job.1]);
            bar.set_message(name.clone());
            done.push((job, score(preset, rule, samples)));
            bar.inc(1);
        }
        done
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut scores: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("scoring does not panic")).collect()
    });
    bar.finish_and_clear();
    scores.sort_by_key(|(job, _)| *job);
    let of = |trace: usize| {
        scores
            .iter()
            .filter(move |((of, _), _)| *of == trace)
            .filter_map(|(_, score)| score.clone())
            .collect()
    };
    series
        .iter()
        .enumerate()
        .map(|(i, (name, samples))| {
            let cycle = |loss| cycle::score(samples, loss);
            let cycles = cycle(Loss::Squared).zip(cycle(Loss::Absolute)).map(<[CycleScore; 2]>::from);
            Trace { name: name.clone(), count: samples.len(), scores: of(i), cycles }
        })
        .collect()
}
