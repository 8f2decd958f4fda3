//! `lab earlystop`: cost and error of a timed stream that ends as soon as its rate has settled, and
//! whether its full length agrees with iperf3, over a grid of emulated paths.

mod study;
mod testbed;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::emulation::is_permitted;
use crate::jobs::bar;
use crate::machine::load;
use crate::output::Output;
use study::CellStudy;

pub(crate) fn run(args: &Args, page: Option<&Path>) -> anyhow::Result<()> {
    if !is_permitted("earlystop")? {
        return Ok(());
    }
    if let Some(directory) = &args.out {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let mut cells =
        if args.full || args.only.is_some() { testbed::all() } else { testbed::covering(args.seed) };
    cells.retain(|cell| args.only.as_ref().is_none_or(|only| cell.name() == *only));
    anyhow::ensure!(!cells.is_empty(), "no cell has the name that --only gives");
    cells.truncate(args.cells.unwrap_or(usize::MAX));
    let bar = bar(cells.len() as u64, "{msg}");
    let mut studies: Vec<CellStudy> = Vec::new();
    let load_before = load();
    for cell in cells {
        bar.set_message(cell.name());
        studies.push(study::cell(cell, args));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let output = Output::new(page, args.json);
    output.json(&studies)?;
    output.print(&study::markdown(&studies, &[load_before, load()]))
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Measure every cell of the grid, instead of a subset in which each pair of levels occurs.
    #[arg(long, conflicts_with = "cells")]
    pub(crate) full: bool,
    /// Measure only the cell of this name, such as `300 Mbit/s, 100 ms, bbr, 0.1 % loss`.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["full", "cells"])]
    pub(crate) only: Option<String>,
    /// Measure only the first N cells, for a quick check.
    #[arg(long, value_name = "N")]
    pub(crate) cells: Option<usize>,
    /// Seed of the losses, and of the choice of cells.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Tests of full length in each cell, in turns with iperf3: the first of 10 s, the others of 5
    /// s. Four calibrate the path for the tests that may end early.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(5..=100))]
    pub(crate) tests: u32,
    /// Tests in each cell that may end early.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) early: u32,
    /// Write the samples of each long test as CSV into this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print the results as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}
