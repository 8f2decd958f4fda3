//! The simulated P1, run as the paper ran its experiment, for comparison.

use super::super::experiment::{P1, REDUCTIONS, SETS, TRIES, built_in};
use super::super::run::Run;
use super::super::strategy::Strategy;
use super::super::tree;
use super::ordering::Blocks;
use crate::jobs;
use crate::stats::{Rank, quantile, sorted};

/// What came of it.
pub(crate) struct Simulated {
    /// Of each strategy.
    pub(crate) runs: Vec<Run>,
    /// Times of messages that are never cut off, in seconds, sorted.
    pub(crate) uncut_s: Vec<f64>,
}

impl Simulated {
    /// All strategies on the same links with the same luck.
    pub(crate) fn run(strategies: &[Strategy]) -> anyhow::Result<Self> {
        let mut scenario = built_in(P1, "p1")?;
        (scenario.reductions, scenario.tries) = (REDUCTIONS, TRIES);
        let work = |strategy: &Strategy| tree::run(&scenario, SETS, *strategy, |_| {});
        let runs = jobs::all(strategies, |strategy| format!("simulated {}", strategy.name()), work);
        let mut uncut_s = Vec::new();
        tree::run(&scenario, 1, Strategy::Static(UNCUT_S), |sent| uncut_s.push(sent.took_s));
        Ok(Self { runs, uncut_s: sorted(uncut_s) })
    }

    pub(crate) fn median_s(&self) -> f64 {
        quantile(&self.uncut_s, 0.5, Rank::Nearest).unwrap_or(f64::NAN)
    }

    /// The times of each strategy, ten reductions a block.
    pub(crate) fn times(&self) -> Vec<Blocks> {
        self.runs.iter().map(|run| run.times.chunks(BLOCK).map(<[f64]>::to_vec).collect()).collect()
    }
}

/// A static timeout that cuts off nothing.
pub(crate) const UNCUT_S: f64 = 7200.0;

/// As long as the links' states last, roughly: neighbouring reductions are drawn together.
const BLOCK: usize = 10;
