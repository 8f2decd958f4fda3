//! `lab reduction tcp`: the experiment over real TCP, through an emulated bottleneck, beside the simulated P1.

mod hosts;
mod nodes;
mod ordering;
mod round;
mod sets;
mod simulated;
mod tables;
#[cfg(test)]
mod tests;
mod timeouts;
mod turns;

use std::time::Duration;

use super::args::TcpArgs;
use super::experiment::TRIES;
use super::strategy::Strategy;
use crate::emulation::is_permitted;
use crate::output::Output;
use sets::Sets;
use simulated::Simulated;
use tables::Findings;
use turns::Plan;

/// Simulates, measures and prints.
pub(crate) fn run(args: &TcpArgs, output: &Output) -> anyhow::Result<()> {
    if !is_permitted("reduction tcp")? {
        return Ok(());
    }
    let plan = Plan { seed: args.seed, ..if args.quick { QUICK } else { FULL } };
    // The simulation keeps all processors busy, so it does not run beside the measurement.
    let simulated = Simulated::run(&STRATEGIES)?;
    let sets = Sets::run(&plan, &STRATEGIES, simulated.median_s())?;
    let findings = Findings::new(&plan, &sets, &simulated)?;
    output.json(&findings)?;
    output.print(&tables::markdown(&findings))
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
