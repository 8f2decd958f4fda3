//! `lab earlystop`: what a timed stream costs and how wrong it is when it ends as soon as its rate has settled,
//! and whether its full length agrees with iperf3, over a grid of emulated paths.

mod args;
mod bench;
mod grid;
mod study;
mod table;

use std::path::Path;

use anyhow::Context as _;

pub(crate) use args::Args;

use crate::emulation::is_permitted;
use crate::jobs::bar;
use crate::machine::load;
use crate::output::Output;
use study::Study;

/// Measures and prints.
pub(crate) fn run(args: &Args, page: Option<&Path>) -> anyhow::Result<()> {
    if !is_permitted("earlystop")? {
        return Ok(());
    }
    if let Some(directory) = &args.out {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let mut cells = if args.full || args.only.is_some() { grid::all() } else { grid::covering(args.seed) };
    cells.retain(|cell| args.only.as_ref().is_none_or(|only| cell.name() == *only));
    anyhow::ensure!(!cells.is_empty(), "there is no such cell");
    cells.truncate(args.cells.unwrap_or(usize::MAX));
    let bar = bar(cells.len() as u64, "{msg}");
    let mut studies: Vec<Study> = Vec::new();
    let load_before = load();
    for cell in cells {
        bar.set_message(cell.name());
        studies.push(study::cell(cell, args));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let output = Output::new(page, args.json);
    output.json(&studies)?;
    output.print(&table::markdown(&studies, &[load_before, load()]))
}
