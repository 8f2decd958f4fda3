//! `lab reduction`: what timeouts do to a distributed program, after Allen, Wolski and Plank, *Adaptive
//! timeout discovery using the Network Weather Service* (2002).

mod apps;
mod args;
mod beyond;
mod engine;
mod experiment;
mod links;
mod load;
mod over_link;
mod paper;
mod pieces;
mod promises;
mod ratios;
mod row;
mod run;
mod scenario;
mod shapes;
mod sizes;
mod strategy;
mod tables;
#[cfg(target_os = "linux")]
mod tcp;
mod times;
mod traces;
mod tree;

use std::path::Path;

pub(crate) use args::Args;
use args::Beyond;

use crate::output::Output;

/// Runs what was asked and prints it.
pub(crate) fn run(args: &Args, page: Option<&Path>) -> anyhow::Result<()> {
    let output = Output::new(page, args.json);
    match &args.beyond {
        Some(Beyond::Sizes(args)) => output.print(&sizes::markdown(args)?),
        Some(Beyond::Pieces(args)) => output.print(&pieces::markdown(args)?),
        Some(Beyond::Apps(args)) => output.print(&apps::markdown(args)?),
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
                ratios::run(args, &scenarios, &output)
            } else {
                scenarios.iter().try_for_each(|scenario| scenario::run(args, scenario, &output))
            }
        }
        None => paper::run(args, &output),
    }
}
