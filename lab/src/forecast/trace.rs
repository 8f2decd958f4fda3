//! A trace with the scores of every battery on it.

use barograph_forecast::Loss;
use barograph_study::input::Sample;
use serde::Serialize;

use super::cycle::{self, CycleScore};
use super::score::{BATTERIES, Score, score};
use crate::jobs;

/// One trace with the scores of all batteries, in the order of [`BATTERIES`].
#[derive(Serialize)]
pub(crate) struct Trace {
    pub(crate) name: String,
    pub(crate) count: usize,
    pub(crate) scores: Vec<Score>,
    /// The daily and weekly members by MSE and by MAE, where the trace is a week long.
    pub(crate) cycles: Option<[CycleScore; 2]>,
}

impl Trace {
    /// Scores every battery on every trace, on all processors.
    pub(crate) fn score_all(series: &[(String, Vec<Sample>)]) -> Vec<Self> {
        let jobs: Vec<_> =
            series.iter().flat_map(|series| BATTERIES.map(|battery| (series, battery))).collect();
        let scores = jobs::all(
            &jobs,
            |((name, _), _)| name.clone(),
            |((_, samples), (preset, rule))| score(*preset, *rule, samples),
        );
        let trace = |((name, samples), scores): (&(String, Vec<Sample>), &[Option<Score>])| {
            let cycle = |loss| cycle::score(samples, loss);
            let cycles = cycle(Loss::Squared).zip(cycle(Loss::Absolute)).map(<[CycleScore; 2]>::from);
            let scores = scores.iter().flatten().cloned().collect();
            Self { name: name.clone(), count: samples.len(), scores, cycles }
        };
        series.iter().zip(scores.chunks(BATTERIES.len())).map(trace).collect()
    }

    /// The best single method of NWS with hindsight: its name and error.
    pub(crate) fn best_of_nws(&self, loss: Loss) -> (&'static str, f64) {
        let methods = self.scores[0].methods.iter().map(|method| (method.method, method.errors.of(loss)));
        methods.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("–", f64::NAN))
    }

    /// The scores of the default battery.
    pub(crate) fn blend(&self) -> &Score {
        let is_default = |score: &&Score| (score.preset, score.rule) == ("full", "blend");
        self.scores.iter().find(is_default).unwrap_or(&self.scores[0])
    }
}
