//! `lab reduction tcp`: the experiment over real TCP, through an emulated bottleneck, beside the
//! simulated P1.

mod nodes;
mod tables;
mod turns;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use barograph_sim::{Network, RelayReport};
use indicatif::ProgressBar;

use super::engine::Run;
use super::paper::{P1, REDUCTIONS, SETS, TRIES, built_in};
use super::strategy::Strategy;
use super::{TcpArgs, engine};
use crate::emulation::{Traffic, is_permitted};
use crate::jobs;
use crate::jobs::bar;
use crate::machine::load;
use crate::output::Output;
use crate::stats::{Rank, quantile, sorted};
use tables::{Blocks, Findings};
use turns::{Hosts, Plan, StrategyResult, StrategyRun, bottleneck, take_turns};

#[cfg(test)]
mod tests;

pub(crate) fn run(args: &TcpArgs, output: &Output) -> anyhow::Result<()> {
    if !is_permitted("reduction tcp")? {
        return Ok(());
    }
    let plan = Plan { seed: args.seed, ..if args.quick { QUICK } else { FULL } };
    // The simulation uses all processors, so it does not run at the same time as the measurement.
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
    // Eight minutes; the simulation, the pilot and the last block come on top.
    time_max: Duration::from_secs(8 * 60),
};

const QUICK: Plan = Plan { pilot: 4, blocks: 6, turn: 1, time_max: Duration::from_secs(70), ..FULL };

pub(crate) struct Sets {
    pub(crate) outcomes: Vec<StrategyResult>,
    /// Times (s) of messages that were never cut off, ascending.
    pub(crate) uncut_s: Vec<f64>,
    /// Median of these times divided by the simulated median.
    pub(crate) scale: f64,
    /// Why blocks were left out: the emulator was their bottleneck.
    pub(crate) void_blocks: Vec<String>,
    /// Report of each set's emulator.
    pub(crate) reports: Vec<RelayReport>,
    pub(crate) took_s: f64,
    /// Bytes of both directions and all sets.
    pub(crate) background_bytes: u64,
    pub(crate) load_before: String,
    pub(crate) load_after: String,
}

struct Set {
    plan: Plan,
    // Declared before the hosts, so dropped before them.
    traffic: Vec<Traffic>,
    hosts: Hosts,
}

impl Sets {
    /// Measures how long messages take, scales the strategies accordingly, and runs them in turns.
    pub(crate) fn run(plan: &Plan, strategies: &[Strategy], simulated_median_s: f64) -> anyhow::Result<Self> {
        let (load_before, began) = (load(), Instant::now());
        let sets: Vec<Set> = (0..plan.sets).map(|set| Set::new(plan, set)).collect::<anyhow::Result<_>>()?;
        let reductions = plan.sets * (plan.pilot + plan.blocks * plan.turn * strategies.len());
        let bar = bar(reductions as u64, "reductions: {msg}");
        bar.set_message("how long a message takes");
        let uncut_s = sorted(all(&sets, |set| set.uncut(&bar))?.concat());
        let scale = quantile(&uncut_s, 0.5, Rank::Nearest).unwrap_or(f64::NAN) / simulated_median_s;
        bar.set_message("strategies in turns");
        let done = all(&sets, |set| set.turns(strategies, scale, &bar))?;
        bar.finish_and_clear();
        let (mut outcomes, mut void_blocks): (Vec<StrategyResult>, Vec<String>) = (Vec::new(), Vec::new());
        for (of_set, voids) in done {
            void_blocks.extend(voids);
            if outcomes.is_empty() {
                outcomes = of_set;
            } else {
                outcomes.iter_mut().zip(of_set).for_each(|(all, more)| all.absorb(more));
            }
        }
        Ok(Self {
            outcomes,
            uncut_s,
            scale,
            void_blocks,
            reports: sets.iter().filter_map(|set| set.hosts.network()?.report()).collect(),
            took_s: began.elapsed().as_secs_f64(),
            background_bytes: sets.iter().flat_map(|set| &set.traffic).map(Traffic::bytes).sum(),
            load_before,
            load_after: load(),
        })
    }
}

impl Set {
    fn new(plan: &Plan, number: usize) -> anyhow::Result<Self> {
        let plan = Plan { seed: plan.seed.wrapping_add(SEEDS_APART * number as u64), ..*plan };
        let network = Network::new(bottleneck(plan.seed)).context("cannot make an emulated network")?;
        let hosts = Hosts::joined(network)?;
        let traffic = hosts.start_traffic(plan.seed)?;
        Ok(Self { plan, traffic, hosts })
    }

    /// Times (s) of messages that are never cut off.
    fn uncut(&self, bar: &ProgressBar) -> anyhow::Result<Vec<f64>> {
        let mut pilot = StrategyRun::new(&self.hosts, &self.plan, Strategy::Static(UNCUT_S), 1.0)?;
        let reduced = pilot.reduce(&self.hosts, &self.plan, self.plan.pilot, bar)?;
        Ok(reduced.iter().flat_map(|reduced| &reduced.sent).map(|sent| sent.took_s).collect())
    }

    fn turns(
        &self,
        strategies: &[Strategy],
        scale: f64,
        bar: &ProgressBar,
    ) -> anyhow::Result<(Vec<StrategyResult>, Vec<String>)> {
        let new = |strategy: &Strategy| StrategyRun::new(&self.hosts, &self.plan, *strategy, scale);
        let mut runs: Vec<StrategyRun> = strategies.iter().map(new).collect::<anyhow::Result<_>>()?;
        let voids = take_turns(&self.hosts, &self.plan, &mut runs, bar)?;
        let outcomes = runs.into_iter().map(StrategyRun::finish).collect();
        Ok((outcomes, voids.iter().map(ToString::to_string).collect()))
    }
}

/// Runs `work` on all sets at the same time.
fn all<T: Send>(sets: &[Set], work: impl Fn(&Set) -> anyhow::Result<T> + Sync) -> anyhow::Result<Vec<T>> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = sets.iter().map(|set| scope.spawn(move || work(set))).collect();
        threads.into_iter().map(|thread| thread.join().expect("work does not panic")).collect()
    })
}

/// Seeds of the sets are this far apart, so that runs with neighbouring seeds share no set.
const SEEDS_APART: u64 = 1_000_003;

pub(crate) struct Simulated {
    pub(crate) runs: Vec<Run>,
    /// Times (s) of messages that are never cut off, ascending.
    pub(crate) uncut_s: Vec<f64>,
}

impl Simulated {
    /// Runs all strategies on the same links with the same random numbers.
    pub(crate) fn run(strategies: &[Strategy]) -> anyhow::Result<Self> {
        let mut scenario = built_in(P1, "p1")?;
        (scenario.reductions, scenario.tries) = (REDUCTIONS, TRIES);
        let work = |strategy: &Strategy| engine::run_tree(&scenario, SETS, *strategy, |_| {});
        let runs = jobs::all(strategies, |strategy| format!("simulated {}", strategy.name()), work);
        let mut uncut_s = Vec::new();
        engine::run_tree(&scenario, 1, Strategy::Static(UNCUT_S), |sent| uncut_s.push(sent.took_s));
        Ok(Self { runs, uncut_s: sorted(uncut_s) })
    }

    pub(crate) fn median_s(&self) -> f64 {
        quantile(&self.uncut_s, 0.5, Rank::Nearest).unwrap_or(f64::NAN)
    }

    /// Times of each strategy, in blocks of ten reductions.
    pub(crate) fn times(&self) -> Vec<Blocks> {
        self.runs.iter().map(|run| run.times.chunks(BLOCK).map(<[f64]>::to_vec).collect()).collect()
    }
}

/// A static timeout that cuts off nothing.
pub(crate) const UNCUT_S: f64 = 7200.0;

/// About as long as the states of the links last: neighbouring reductions are resampled together.
const BLOCK: usize = 10;
