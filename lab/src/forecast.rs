//! `lab forecast`: every preset, rule and method on every trace of a folder.

mod cycle;
mod dots;
mod report;
mod score;
mod trace;

use std::path::{Path, PathBuf};

use anyhow::ensure;

use crate::output::{Output, save};
use crate::series::read_folder;
use trace::Trace;

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

/// Reads, scores and prints.
pub(crate) fn run(args: &Args, page: Option<&Path>) -> anyhow::Result<()> {
    let mut traces = Trace::score_all(&read_folder(&args.traces)?);
    for short in traces.iter().filter(|trace| trace.scores.is_empty()) {
        eprintln!("lab: {} is too short to be scored ({} values)", short.name, short.count);
    }
    traces.retain(|trace| !trace.scores.is_empty());
    ensure!(!traces.is_empty(), "no trace in {} is long enough to be scored", args.traces.display());
    let markdown = report::markdown(&traces);
    let output = Output::new(page, args.json);
    output.print(&markdown)?;
    output.json(&traces)?;
    if let Some(folder) = &args.out {
        save(folder, "forecast.md", &markdown)?;
        save(folder, "forecast.svg", &dots::svg_of(&traces)?)?;
    }
    Ok(())
}
