//! `lab transfer`: congestion controllers in virtual time: throughput, fairness, a busy host, a
//! receiver that lies, and a sender that holds packets.

mod contention;
mod fairness;
mod host;
mod lies;
mod run;
mod stalls;
mod throughput;

use std::path::Path;

use clap::ValueEnum;
use serde_json::json;

use crate::output::{Output, name};
use crate::table::Section;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only these parts of the study.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::value_variants().iter().copied())]
    parts: Vec<Part>,
    /// Measured time of each run of throughput and contention, after 5 seconds of start (s,
    /// virtual); fairness takes four times as long.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(4..=600))]
    seconds: u64,
    /// Seed of losses, stalls and probes. The constants of `model` were chosen on seeds 1 to 5 and
    /// checked on 11 to 13.
    #[arg(long, value_name = "N", default_value_t = 31)]
    seed: u64,
    /// Print a line of JSON for each row.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// One flow alone on a path that loses packets at random
    Throughput,
    /// Beside a cubic flow, and among four of a kind
    Fairness,
    /// To a host that does not always read
    Contention,
    /// To a receiver that attributes all losses to its host
    Lies,
    /// Packets are held while the host is expected to stall
    Stalls,
}

impl Part {
    fn table(self, setting: Setting) -> anyhow::Result<Section> {
        match self {
            Self::Throughput => throughput::table(setting),
            Self::Fairness => fairness::table(setting),
            Self::Contention => contention::table(setting),
            Self::Lies => lies::table(setting),
            Self::Stalls => stalls::table(setting),
        }
    }
}

pub(crate) fn run(args: &Args, page: Option<&Path>) -> anyhow::Result<()> {
    let setting = Setting { seconds: args.seconds, seed: args.seed };
    let output = Output::new(page, args.json);
    output.print(&format!("# Transfers in virtual time, seed {}\n", args.seed))?;
    for part in Part::value_variants().iter().filter(|part| args.parts.contains(part)) {
        let Section { text, rows } = part.table(setting)?;
        rows.into_iter().try_for_each(|row| output.json(&json!({ "part": name(*part), "row": row })))?;
        output.print(&text)?;
    }
    Ok(())
}

/// Measured time of runs, and their seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) seconds: u64,
    pub(crate) seed: u64,
}

/// Time for a flow to find its rate before it is measured (s).
pub(crate) const START_S: u64 = 5;
