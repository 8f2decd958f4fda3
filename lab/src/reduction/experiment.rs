//! The paper's experiment on links whose tail is fitted to its Table 1: 10 sets of 100 reductions, the
//! forecasters fresh in each set.

use std::path::Path;

use barograph_sim::Scenario;

use super::args::Args;
use super::run::Run;
use super::strategy::Strategy;
use super::{load, tree};
use crate::jobs;
use crate::stats::Summary;

/// What came out.
pub(crate) struct Experiment {
    pub(crate) scenario: Scenario,
    pub(crate) runs: Vec<(Strategy, Run)>,
}

impl Experiment {
    /// Runs a scenario as the paper ran its experiment.
    pub(crate) fn run(args: &Args, text: &str, stem: &str) -> anyhow::Result<Self> {
        let mut scenario = built_in(text, stem)?;
        scenario.reductions = REDUCTIONS;
        scenario.tries = args.tries.unwrap_or(TRIES);
        scenario.seed = args.seed.unwrap_or(scenario.seed);
        let strategies = args.strategies();
        let work =
            |strategy: &Strategy| strategy.run(|strategy| tree::run(&scenario, SETS, strategy, |_| {}));
        let runs = jobs::all(&strategies, |strategy| format!("{stem} {}", strategy.name()), work);
        Ok(Self { runs: strategies.into_iter().zip(runs).collect(), scenario })
    }

    /// The run of a strategy, if it was asked for.
    pub(crate) fn of(&self, strategy: Strategy) -> Option<&Run> {
        self.runs.iter().find(|(other, _)| *other == strategy).map(|(_, run)| run)
    }

    /// The statistics of its times.
    pub(crate) fn summary(&self, strategy: Strategy) -> Option<Summary> {
        self.of(strategy).map(|run| Summary::of(&run.times))
    }
}

/// A scenario that the program carries along.
pub(crate) fn built_in(text: &str, stem: &str) -> anyhow::Result<Scenario> {
    load::parse(text, stem, Path::new("")).map_err(|error| anyhow::anyhow!("{stem}: {error}"))
}

/// The paper's links, as far as its tables tell.
pub(crate) const P1: &str = include_str!("../../scenarios/p1.toml");

/// Links that also show its second mode, as far as they can.
pub(crate) const P2: &str = include_str!("../../scenarios/p2.toml");

/// §5: "10 sets of 100 reductions each".
pub(crate) const SETS: usize = 10;
pub(crate) const REDUCTIONS: usize = 100;

/// §5: "Nodes attempted to resend data 5 times", after the first send.
pub(crate) const TRIES: u32 = 6;

/// The paper's Table 1, in seconds: mean, maximum, minimum, 95th percentile, standard deviation. Its "Dynamic" is mean + 2 SD; it
/// states the variances too.
pub(crate) const TABLE_1: [(Strategy, Summary, f64); 3] = [
    (Strategy::Static(45.0), Summary { mean: 8.317, max: 51.796, min: 4.447, p95: 13.942, sd: 2.809 }, 7.888),
    (Strategy::Static(15.0), Summary { mean: 8.056, max: 51.187, min: 5.129, p95: 12.642, sd: 2.297 }, 5.261),
    (Strategy::Nws(2.0), Summary { mean: 7.495, max: 29.230, min: 5.303, p95: 10.794, sd: 1.650 }, 2.722),
];

/// The paper's Table 2: percent of the sends retried, and how often on average.
pub(crate) const TABLE_2: [(Strategy, f64, f64); 6] = [
    (Strategy::Static(45.0), 0.050, 1.000),
    (Strategy::Static(15.0), 0.312, 1.380),
    (Strategy::Static(5.0), 2.513, 1.542),
    (Strategy::Static(2.0), 45.538, 2.638),
    (Strategy::Nws(2.0), 9.056, 1.176),
    (Strategy::Nws(1.0), 20.851, 1.241),
];
