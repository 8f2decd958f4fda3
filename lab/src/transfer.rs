//! `lab transfer`: congestion controllers in virtual time: throughput, fairness, a busy host and a
//! trace of its first seconds, a receiver that lies, and a sender that holds packets.

mod contention;
mod fairness;
mod host;
mod lies;
mod run;
mod stalls;
mod throughput;
mod trace;

use std::path::{Path, PathBuf};

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
    /// virtual); fairness takes four times as long. [default: 30; with --quick 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(4..=600))]
    seconds: Option<u64>,
    /// Shorter runs; of contention only the controllers with floors, without random loss.
    #[arg(long)]
    quick: bool,
    /// Seed of losses, stalls, phases of quotas, and probes. The constants of `model` were chosen
    /// on seeds 1 to 5 and checked on 11 to 13.
    #[arg(long, value_name = "N", default_value_t = 31)]
    seed: u64,
    /// Folder to write the figure of trace to.
    #[arg(long, value_name = "DIR", default_value = "lab/figures")]
    out: PathBuf,
    /// Print a line of JSON for each row.
    #[arg(long)]
    json: bool,
}

impl Args {
    fn setting(&self) -> Setting {
        let default = if self.quick { QUICK_S } else { FULL_S };
        Setting { seconds: self.seconds.unwrap_or(default), seed: self.seed }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// One flow alone on a path that loses packets at random
    Throughput,
    /// Beside a cubic flow, and among four of a kind
    Fairness,
    /// To a host that does not always read
    Contention,
    /// Rate, verdicts and estimate of `paper` in its first seconds to such a host, with a figure
    Trace,
    /// To a receiver that attributes all losses to its host
    Lies,
    /// Packets are held while the host is expected to stall
    Stalls,
}

impl Part {
    fn table(self, args: &Args) -> anyhow::Result<Section> {
        let setting = args.setting();
        match self {
            Self::Throughput => throughput::table(setting),
            Self::Fairness => fairness::table(setting),
            Self::Contention => contention::table(setting, args.quick),
            Self::Trace => trace::table(setting.seed, &args.out),
            Self::Lies => lies::table(setting),
            Self::Stalls => stalls::table(setting),
        }
    }
}

pub(crate) fn run(args: &Args, page: Option<&Path>) -> anyhow::Result<()> {
    let output = Output::new(page, args.json);
    output.print(&format!("# Transfers in virtual time, seed {}\n", args.seed))?;
    for part in Part::value_variants().iter().filter(|part| args.parts.contains(part)) {
        let Section { text, rows } = part.table(args)?;
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

/// Measured times of runs (s): a hundred cycles of the generator, and dozens.
const FULL_S: u64 = 30;
const QUICK_S: u64 = 8;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn quick_runs_are_shorter_unless_their_time_is_given() {
        let seconds = |words: &[&str]| {
            let words = ["lab"].into_iter().chain(words.iter().copied());
            Cli::try_parse_from(words).unwrap().args.setting().seconds
        };
        assert_eq!([seconds(&[]), seconds(&["--quick"])], [FULL_S, QUICK_S]);
        assert_eq!(seconds(&["--quick", "--seconds", "5"]), 5);
    }
}
