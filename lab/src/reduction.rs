//! `lab reduction`: what timeouts do to a distributed program, after Allen, Wolski and Plank, *Adaptive
//! timeout discovery using the Network Weather Service* (2002).

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
            if args.scenarios.is_some() || 1 < args.seeds {
                scenario::run_ratios(args, &scenarios, &output)
            } else {
                scenarios.iter().try_for_each(|scenario| scenario::run(args, scenario, &output))
            }
        }
        None => paper::run(args, &output),
    }
}

/// What `lab reduction` was asked; without anything, the paper's experiment.
#[derive(ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) beyond: Option<Beyond>,
    /// Run scenarios of your own, TOML files (see lab/scenarios), instead of the paper's experiment.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "scenarios")]
    pub(crate) scenario: Vec<PathBuf>,
    /// Compare all scenarios of a folder (*.toml) by their ratios to the best static timeout.
    #[arg(long, value_name = "DIR")]
    pub(crate) scenarios: Option<PathBuf>,
    /// Print one JSON object a strategy.
    #[arg(long)]
    pub(crate) json: bool,
    /// Run it over the real link code, in virtual time, instead of the engine that stands for it.
    #[arg(long, requires = "scenario", conflicts_with = "seeds")]
    pub(crate) over_link: bool,
    /// This seed instead of the scenario's.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Average the ratios over so many seeds, one after the other.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u64).range(1..=1000))]
    pub(crate) seeds: u64,
    /// Only these strategies.
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub(crate) strategy: Vec<Strategy>,
    /// Attempts of a message in all, instead of the scenario's (the paper: 6, a first send and 5 resends).
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100))]
    pub(crate) tries: Option<u32>,
    /// Where the paper's figures go.
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
    /// At which sizes of messages do adaptive timeouts gain, and at which not?
    Sizes(BeyondArgs),
    /// Does it pay to cut large messages into pieces, each acknowledged?
    Pieces(BeyondArgs),
    /// Two other programs: a request to replicas, and a pipeline of small messages.
    Apps(BeyondArgs),
    /// How many answers of real series would each estimator have cut off?
    Traces(TraceArgs),
    /// Does the same hold over real TCP, through a bottleneck with losses and other traffic? (root)
    #[cfg(target_os = "linux")]
    Tcp(TcpArgs),
}

/// What the further experiments have in common.
#[derive(ClapArgs)]
pub(crate) struct BeyondArgs {
    /// This seed instead of the scenario's.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// How many messages, or rounds, each number rests on.
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = value_parser!(u32).range(3..=1_000_000))]
    pub(crate) rounds: u32,
    /// Where the figure goes.
    #[arg(long, value_name = "DIR", default_value = "lab/figures")]
    pub(crate) out: PathBuf,
}

/// What is replayed.
#[derive(ClapArgs)]
pub(crate) struct TraceArgs {
    /// A folder of series; its `resp_*.csv` and `rtt_*.csv` are replayed, in milliseconds where the name says
    /// `_ms_`, else in seconds.
    pub(crate) dir: PathBuf,
}

/// What `lab reduction tcp` was asked.
#[cfg(target_os = "linux")]
#[derive(ClapArgs)]
pub(crate) struct TcpArgs {
    /// Print the numbers as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Fewer reductions: two minutes instead of nine.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Of the emulated losses, the background traffic, the turns and the integers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}
