//! `lab reduction tcp`: the experiment over real TCP, through an emulated bottleneck, beside the simulated P1.

#[cfg(target_os = "linux")]
mod hosts;
#[cfg(target_os = "linux")]
mod nodes;
#[cfg(target_os = "linux")]
mod ordering;
#[cfg(target_os = "linux")]
mod round;
#[cfg(target_os = "linux")]
mod sets;
#[cfg(target_os = "linux")]
mod simulated;
#[cfg(target_os = "linux")]
mod tables;
#[cfg(all(test, target_os = "linux"))]
mod tests;
#[cfg(target_os = "linux")]
mod timeouts;
#[cfg(target_os = "linux")]
mod traffic;
#[cfg(target_os = "linux")]
mod turns;

/// What `lab reduction tcp` was asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print the numbers as one JSON object.
    #[arg(long)]
    json: bool,
    /// Fewer reductions: two minutes instead of nine.
    #[arg(long)]
    quick: bool,
    /// Of the emulated losses, the background traffic, the turns and the integers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Emulated paths are made of Linux's network namespaces.
#[cfg(not(target_os = "linux"))]
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Args { json: _, quick: _, seed: _ } = args;
    eprintln!("SKIPPED: lab reduction tcp needs Linux's network namespaces");
    Ok(())
}

#[cfg(target_os = "linux")]
pub(crate) use linux::run;

#[cfg(target_os = "linux")]
mod linux {
    use std::time::Duration;

    use anyhow::Context;
    use barograph_sim::{Error, Network, say_skipped};

    use super::super::paper::TRIES;
    use super::super::print;
    use super::super::strategy::Strategy;
    use super::hosts::bottleneck;
    use super::sets::Sets;
    use super::simulated::Simulated;
    use super::tables::Findings;
    use super::turns::Plan;
    use super::{Args, tables};

    /// Simulates, measures and prints.
    pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
        match Network::new(bottleneck(args.seed)) {
            Err(error @ Error::NotPermitted { .. }) => {
                say_skipped(&format!("lab reduction tcp: {error}"));
                return Ok(());
            }
            tried => drop(tried.context("cannot make an emulated network")?),
        }
        let plan = Plan { seed: args.seed, ..if args.quick { QUICK } else { FULL } };
        // The simulation keeps all processors busy, so it does not run beside the measurement.
        let simulated = Simulated::run(&STRATEGIES)?;
        let sets = Sets::run(&plan, &STRATEGIES, simulated.median_s())?;
        let findings = Findings::new(&plan, &sets, &simulated)?;
        if args.json {
            return print(&(serde_json::to_string(&findings)? + "\n"));
        }
        print(&tables::markdown(&findings))
    }

    /// The best of the paper's static timeouts, its two dynamic ones, and those that came later.
    const STRATEGIES: [Strategy; 6] = [
        Strategy::Static(15.0),
        Strategy::Nws(1.0),
        Strategy::Nws(2.0),
        Strategy::NwsEscalating,
        Strategy::Rfc6298,
        Strategy::Default,
    ];

    const FULL: Plan = Plan {
        nodes: 31,
        // §4: 16 k integers, 64 kB.
        integers: 16_384,
        tries: TRIES,
        seed: 0,
        sets: 4,
        pilot: 12,
        blocks: 20,
        turn: 2,
        // Eight minutes, and room for the simulation, the pilot and the last block.
        time_max: Duration::from_secs(8 * 60),
    };

    const QUICK: Plan = Plan { pilot: 4, blocks: 6, turn: 1, time_max: Duration::from_secs(70), ..FULL };
}
