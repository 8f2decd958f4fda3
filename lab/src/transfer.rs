//! `lab transfer`: what each way to set a transfer's rate makes of a path, in virtual time: throughput, fairness, a busy host, a receiver that lies.

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

/// What `lab transfer` was asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these parts.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::value_variants().iter().copied())]
    parts: Vec<Part>,
    /// How long each run of throughput and contention is measured, after 5 seconds of start (s, virtual); fairness takes four times as long.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(4..=600))]
    seconds: u64,
    /// The seed of losses, stalls and probes; the constants of `model` were chosen on 1 to 5 and looked at on 11 to 13.
    #[arg(long, value_name = "N", default_value_t = 31)]
    seed: u64,
    /// Print JSON, a line for each row.
    #[arg(long)]
    json: bool,
}

/// The parts of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Alone on a path that loses packets at random
    Throughput,
    /// Beside a cubic flow, and among four of a kind
    Fairness,
    /// To a host that does not always read
    Contention,
    /// To a receiver that blames its host for everything
    Lies,
    /// Held while the host is expected to stall
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

/// How long runs are measured, and what they are drawn from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) seconds: u64,
    pub(crate) seed: u64,
}

/// How long a flow may take to find its rate before it is measured (s).
pub(crate) const START_S: u64 = 5;
