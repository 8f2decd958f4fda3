//! `lab transfer`: what each way to set a transfer's rate makes of a path, in virtual time: throughput, fairness, a busy host, a receiver that lies.

mod contention;
mod fairness;
mod host;
mod lies;
mod path;
mod run;
mod stalls;
mod throughput;

use std::io::Write as _;

use anyhow::Context as _;
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::forecast::report::aligned;

/// What `lab transfer` was asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these parts.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::ALL)]
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
    const ALL: [Self; 5] = [Self::Throughput, Self::Fairness, Self::Contention, Self::Lies, Self::Stalls];

    fn table(self, setting: Setting) -> anyhow::Result<Table> {
        match self {
            Self::Throughput => throughput::table(setting),
            Self::Fairness => fairness::table(setting),
            Self::Contention => contention::table(setting),
            Self::Lies => lies::table(setting),
            Self::Stalls => stalls::table(setting),
        }
    }
}

/// What all runs have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    seconds: u64,
    seed: u64,
}

/// How long a flow may take to find its rate before it is measured (s).
const START_S: u64 = 5;

/// What a part found: as text, and a value for each row.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) text: String,
    pub(crate) rows: Vec<Value>,
}

impl Table {
    /// A title, a line below it, and rows of cells under their names; `numbers` are what the rows hold.
    pub(crate) fn new(
        title: &str,
        legend: &str,
        header: &[&str],
        cells: Vec<Vec<String>>,
        numbers: Vec<Value>,
    ) -> Self {
        let header: Vec<String> = header.iter().map(|&name| name.to_owned()).collect();
        let all: Vec<Vec<String>> = std::iter::once(header).chain(cells).collect();
        Self { text: format!("\n## {title}\n\n{legend}\n\n{}", aligned(&all)), rows: numbers }
    }

    /// With lines below it.
    pub(crate) fn with(mut self, lines: &[String]) -> Self {
        self.text += "\n";
        self.text += &lines.concat();
        self
    }
}

/// Computes and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let setting = Setting { seconds: args.seconds, seed: args.seed };
    let mut text = String::new();
    if !args.json {
        text += &format!("# Transfers in virtual time, seed {}\n", args.seed);
    }
    for part in Part::ALL.iter().filter(|part| args.parts.contains(part)) {
        let table = part.table(setting)?;
        if args.json {
            let name = part.to_possible_value().map(|value| value.get_name().to_owned());
            for row in table.rows {
                text += &format!("{}\n", json!({ "part": name, "row": row }));
            }
        } else {
            text += &table.text;
        }
    }
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}

/// A share in percent, without the sign.
pub(crate) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent < 0.995 && 0.0 < percent { format!("{percent:.2}") } else { format!("{percent:.1}") }
}
