//! `lab earlystop`: what a timed stream costs and how wrong it is when it ends as soon as its rate has settled,
//! and whether its full length agrees with iperf3, over a grid of emulated paths.

#[cfg(target_os = "linux")]
mod bench;
#[cfg(target_os = "linux")]
mod grid;
#[cfg(target_os = "linux")]
mod study;
#[cfg(target_os = "linux")]
mod table;

use std::path::PathBuf;

/// What `lab earlystop` was asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Every cell of the grid, instead of a set in which each pair of levels meets.
    #[arg(long, conflicts_with = "cells")]
    full: bool,
    /// Only the cell of this name, such as `300 Mbit/s, 100 ms, bbr, 0.1 % loss`.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["full", "cells"])]
    only: Option<String>,
    /// Only so many cells, for a quick look.
    #[arg(long, value_name = "N")]
    cells: Option<usize>,
    /// Seed of the losses, and of which cells stand for the others.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Tests of full length in each cell: the first of 10 s, the others of 5 s, each in turn with one of iperf3.
    /// Four calibrate what comes after
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(5..=100))]
    tests: u32,
    /// Tests in each cell that may end early.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    early: u32,
    /// Leave iperf3 out: tests of 10 s alone, to see what a rule would have done with them
    #[arg(long)]
    without_iperf3: bool,
    /// Write the samples of each long test as CSV into this directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON: one object.
    #[arg(long)]
    json: bool,
}

/// Emulated paths are made of Linux's network namespaces.
#[cfg(not(target_os = "linux"))]
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Args { full: _, only: _, cells: _, seed: _, tests: _, early: _, without_iperf3: _, out: _, json: _ } =
        args;
    eprintln!("SKIPPED: lab earlystop needs Linux's network namespaces");
    Ok(())
}

#[cfg(target_os = "linux")]
pub(crate) use {linux::run, study::leave};

#[cfg(target_os = "linux")]
mod linux {
    use std::io::Write;

    use anyhow::Context;
    use barograph_sim::{Error, Link, Network, say_skipped};
    use indicatif::{ProgressBar, ProgressStyle};

    use super::study::Study;
    use super::{Args, grid, study, table};

    /// Measures and prints.
    pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
        match Network::new(Link::Veth { rate_bps: None }) {
            Err(error @ Error::NotPermitted { .. }) => {
                say_skipped(&format!("lab earlystop: {error}"));
                return Ok(());
            }
            tried => drop(tried.context("cannot make an emulated network")?),
        }
        if let Some(directory) = &args.out {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        let mut cells =
            if args.full || args.only.is_some() { grid::all() } else { grid::covering(args.seed) };
        cells.retain(|cell| args.only.as_ref().is_none_or(|only| cell.name() == *only));
        anyhow::ensure!(!cells.is_empty(), "there is no such cell");
        cells.truncate(args.cells.unwrap_or(usize::MAX));
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(cells.len() as u64).with_style(style);
        let mut studies: Vec<Study> = Vec::new();
        let load_before = load();
        for cell in cells {
            bar.set_message(cell.name());
            studies.push(study::cell(cell, args));
            bar.inc(1);
        }
        bar.finish_and_clear();
        let loads = [load_before, load()];
        let text = if args.json { table::json(&studies)? } else { table::markdown(&studies, &loads) };
        std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
    }

    /// The machine's load over the last minute.
    fn load() -> String {
        let loads = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        loads.split(' ').next().unwrap_or_default().to_owned()
    }
}
