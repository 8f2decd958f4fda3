//! `lab reduction`: what timeouts do to a distributed program, after Allen, Wolski and Plank, *Adaptive
//! timeout discovery using the Network Weather Service* (2002).

mod apps;
mod beyond;
mod engine;
mod figures;
mod load;
mod over_link;
mod paper;
mod pieces;
mod promises;
mod ratios;
mod row;
mod scenario;
mod shapes;
mod sizes;
mod strategy;
mod tables;
mod tcp;
mod traces;
mod tree;

use anyhow::Context;
use clap::{Args as ClapArgs, Subcommand, value_parser};
use std::io::Write;
use std::path::PathBuf;

use strategy::Strategy;

/// What `lab reduction` was asked; without anything, the paper's experiment.
#[derive(ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    beyond: Option<Beyond>,
    /// Run scenarios of your own, TOML files (see lab/scenarios), instead of the paper's experiment.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "scenarios")]
    scenario: Vec<PathBuf>,
    /// Compare all scenarios of a folder (*.toml) by their ratios to the best static timeout.
    #[arg(long, value_name = "DIR")]
    scenarios: Option<PathBuf>,
    /// Print one JSON object a strategy.
    #[arg(long)]
    json: bool,
    /// Run it over the real link code, in virtual time, instead of the engine that stands for it.
    #[arg(long, requires = "scenario", conflicts_with = "seeds")]
    over_link: bool,
    /// This seed instead of the scenario's.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Average the ratios over so many seeds, one after the other.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Only these strategies.
    #[arg(long, value_name = "NAME", num_args = 1..)]
    strategy: Vec<Strategy>,
    /// Attempts of a message in all, instead of the scenario's (the paper: 6, a first send and 5 resends).
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100))]
    tries: Option<u32>,
    /// Where the paper's figures go.
    #[arg(long, value_name = "DIR", default_value = "lab/figures")]
    out: PathBuf,
}

/// Questions that the paper leaves open (its §6), and its experiment over real TCP.
#[derive(Subcommand)]
enum Beyond {
    /// At which sizes of messages do adaptive timeouts gain, and at which not?
    Sizes(BeyondArgs),
    /// Does it pay to cut large messages into pieces, each acknowledged?
    Pieces(BeyondArgs),
    /// Two other programs: a request to replicas, and a pipeline of small messages.
    Apps(BeyondArgs),
    /// How many answers of real series would each estimator have cut off?
    Traces(traces::TraceArgs),
    /// Does the same hold over real TCP, through a bottleneck with losses and other traffic? (root)
    Tcp(tcp::Args),
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

/// Runs what was asked and prints it.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.beyond {
        Some(Beyond::Sizes(args)) => print(&sizes::markdown(args)?),
        Some(Beyond::Pieces(args)) => print(&pieces::markdown(args)?),
        Some(Beyond::Apps(args)) => print(&apps::markdown(args)?),
        Some(Beyond::Traces(args)) => print(&traces::markdown(args)?),
        Some(Beyond::Tcp(args)) => tcp::run(args),
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
                ratios::run(args, &scenarios)
            } else {
                scenarios.iter().try_for_each(|scenario| scenario::run(args, scenario))
            }
        }
        None => paper::run(args),
    }
}

/// The strategies that were asked for, or all.
fn strategies(args: &Args) -> Vec<Strategy> {
    if args.strategy.is_empty() { Strategy::ALL.to_vec() } else { args.strategy.clone() }
}

/// To standard output, without a panic where nobody reads it.
fn print(text: &str) -> anyhow::Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}

/// Every object on a line of its own.
fn json_lines<T: serde::Serialize>(rows: &[T]) -> anyhow::Result<String> {
    let lines: Result<Vec<String>, _> = rows.iter().map(serde_json::to_string).collect();
    Ok(lines?.into_iter().map(|line| line + "\n").collect())
}
