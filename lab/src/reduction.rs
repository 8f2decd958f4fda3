//! `lab reduction`: effect of timeouts on a distributed program, after Allen, Wolski and Plank,
//! *Adaptive timeout discovery using the Network Weather Service* (2002).

mod beyond;
mod engine;
mod figures;
mod load;
mod over_link;
mod paper;
mod scenario;
mod strategy;
#[cfg(target_os = "linux")]
mod tcp;
mod traces;

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, Subcommand, value_parser};

use crate::output::Output;
use strategy::Strategy;

pub(crate) fn run(args: &Args, page: Option<&Path>) -> anyhow::Result<()> {
    let output = Output::new(page, args.json);
    match &args.beyond {
        Some(Beyond::Sizes(args)) => output.print(&beyond::sizes_markdown(args)?),
        Some(Beyond::Pieces(args)) => output.print(&beyond::pieces_markdown(args)?),
        Some(Beyond::Apps(args)) => output.print(&beyond::apps_markdown(args)?),
        Some(Beyond::Traces(args)) => output.print(&traces::markdown(args)?),
        #[cfg(target_os = "linux")]
        Some(Beyond::Tcp(args)) => tcp::run(args, &Output::new(page, args.json)),
        None if args.scenarios.is_some() || !args.scenario.is_empty() => {
            let mut scenarios = match &args.scenarios {
                Some(folder) => load::load_folder(folder)?,
                None => args.scenario.iter().map(|file| load::load(file)).collect::<Result<_, _>>()?,
            };
            for scenario in &mut scenarios {
                scenario.seed = args.seed.unwrap_or(scenario.seed);
                scenario.tries = args.tries.unwrap_or(scenario.tries);
            }
            if args.scenarios.is_some() || args.seeds > 1 {
                scenario::run_ratios(args, &scenarios, &output)
            } else {
                scenarios.iter().try_for_each(|scenario| scenario::run(args, scenario, &output))
            }
        }
        None => paper::run(args, &output),
    }
}

#[derive(ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) beyond: Option<Beyond>,
    /// Run your own scenarios, TOML files (see lab/scenarios), instead of the paper's experiment.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "scenarios")]
    pub(crate) scenario: Vec<PathBuf>,
    /// Compare all scenarios of a folder (*.toml) by their ratios to the best static timeout.
    #[arg(long, value_name = "DIR")]
    pub(crate) scenarios: Option<PathBuf>,
    /// Print one JSON object for each strategy.
    #[arg(long)]
    pub(crate) json: bool,
    /// Run the real link code in virtual time, instead of the engine that models it.
    #[arg(long, requires = "scenario", conflicts_with = "seeds")]
    pub(crate) over_link: bool,
    /// Use this seed instead of the scenario's.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Average the ratios over N consecutive seeds.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u64).range(1..=1000))]
    pub(crate) seeds: u64,
    /// Run only these strategies.
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub(crate) strategy: Vec<Strategy>,
    /// Attempts of a message, instead of the scenario's (the paper: 6, a first send and 5 resends).
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100))]
    pub(crate) tries: Option<u32>,
    /// Folder to write the paper's figures to.
    #[arg(long, value_name = "DIR", default_value = "lab/figures")]
    pub(crate) out: PathBuf,
}

impl Args {
    pub(crate) fn strategies(&self) -> Vec<Strategy> {
        if self.strategy.is_empty() { Strategy::ALL.to_vec() } else { self.strategy.clone() }
    }
}

/// Questions that the paper leaves open (its §6), and its experiment over real TCP.
#[derive(Subcommand)]
pub(crate) enum Beyond {
    /// Compare timeouts by size of message: where do adaptive ones gain?
    Sizes(BeyondArgs),
    /// Send large messages in pieces, each acknowledged: does it pay?
    Pieces(BeyondArgs),
    /// Run two other programs: a request to replicas, and a pipeline of small messages.
    Apps(BeyondArgs),
    /// Count the responses of real series that each estimator would have cut off.
    Traces(TraceArgs),
    /// Repeat the experiment over real TCP, through a bottleneck with losses and other traffic
    /// (root).
    #[cfg(target_os = "linux")]
    Tcp(TcpArgs),
}

/// Options that the further experiments share.
#[derive(ClapArgs)]
pub(crate) struct BeyondArgs {
    /// Use this seed instead of the scenario's.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Number of messages or rounds for each result.
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = value_parser!(u32).range(3..=1_000_000))]
    pub(crate) rounds: u32,
    /// Folder to write the figure to.
    #[arg(long, value_name = "DIR", default_value = "lab/figures")]
    pub(crate) out: PathBuf,
}

#[derive(ClapArgs)]
pub(crate) struct TraceArgs {
    /// Folder of series; its `resp_*.csv` and `rtt_*.csv` are replayed. Values are in milliseconds
    /// if the name contains `_ms_`, else in seconds.
    pub(crate) dir: PathBuf,
}

#[cfg(target_os = "linux")]
#[derive(ClapArgs)]
pub(crate) struct TcpArgs {
    /// Print the numbers as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Fewer reductions: two minutes instead of nine.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Seed of the emulated losses, the background traffic, the turns and the integers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}
