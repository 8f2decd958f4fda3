//! `lab probe`: the probes against what others measure on the same emulated paths, in the same run.

mod exchange;
mod path;
mod peer;
mod row;
mod transfer;

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::emulation::is_permitted;
use crate::jobs::bar;
use crate::machine::load;
use crate::output::Output;
use path::Bench;
use row::{Row, table};

/// What `lab probe` was asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print the numbers as JSON: seconds, bit/s and shares.
    #[arg(long)]
    json: bool,
    /// Fewer exchanges and transfers: about a minute instead of five.
    #[arg(long)]
    quick: bool,
}

/// Everything that was measured, and how busy the machine was meanwhile.
#[derive(Serialize)]
struct Findings {
    processors: usize,
    load_before: String,
    load_after: String,
    rows: Vec<Row>,
}

/// Measures and prints.
pub(crate) fn run(args: &Args, page: Option<&Path>) -> anyhow::Result<()> {
    if !is_permitted("probe")? {
        return Ok(());
    }
    let load_before = load();
    let bar = bar(exchange::STEPS + transfer::steps(args.quick), "{msg}");
    let bench = Bench::new(bar.clone(), if args.quick { QUICK } else { FULL });
    let mut rows = exchange::rows(&bench, args.quick);
    rows.extend(transfer::rows(&bench, args.quick));
    bar.finish_and_clear();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let findings = Findings { processors, load_before, load_after: load(), rows };
    let output = Output::new(page, args.json);
    output.json(&findings)?;
    let Findings { load_before, load_after, rows, .. } = findings;
    output.print(&format!(
        "# Probes on emulated paths\n\n\
         {processors} processors, load {load_before} before and {load_after} after. Numbers are medians; \
         what an overloaded emulator spoilt was repeated or is void.\n\n{}",
        table(&rows)
    ))
}

/// After so long nothing is repeated any more, so that the whole ends in about a minute, or in five.
const QUICK: Duration = Duration::from_secs(30);
const FULL: Duration = Duration::from_secs(190);
