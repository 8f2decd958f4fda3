//! `lab forecast`: scores every preset, rule and method on every trace of a folder.

mod report;
mod score;

use std::path::{Path, PathBuf};

use anyhow::ensure;
use barograph_forecast::Objective;
use barograph_study::input::Sample;
use serde::Serialize;

use crate::jobs;
use crate::output::Output;
use crate::series::read_folder;
use score::{BATTERIES, CycleScore, Score, score};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder with the traces (*.csv).
    #[arg(value_name = "DIR")]
    traces: PathBuf,
    /// Print the numbers as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, page: Option<&Path>) -> anyhow::Result<()> {
    let mut traces = Trace::score_all(&read_folder(&args.traces)?);
    for short in traces.iter().filter(|trace| trace.scores.is_empty()) {
        eprintln!("lab: {} is too short to be scored ({} values)", short.name, short.count);
    }
    traces.retain(|trace| !trace.scores.is_empty());
    ensure!(!traces.is_empty(), "no trace in {} is long enough to be scored", args.traces.display());
    let output = Output::new(page, args.json);
    output.print(&report::markdown(&traces))?;
    output.json(&traces)
}

/// One trace with the scores of all batteries, in the order of [`BATTERIES`].
#[derive(Serialize)]
pub(crate) struct Trace {
    pub(crate) name: String,
    pub(crate) count: usize,
    pub(crate) scores: Vec<Score>,
    /// Number of forecasts for which the rules `mse` and `mae` differ from `two-selectors`.
    pub(crate) differing: [usize; 2],
    /// Scores of the daily and weekly methods by MSE and by MAE, if the trace is at least a week
    /// long.
    pub(crate) cycles: Option<[CycleScore; 2]>,
}

impl Trace {
    pub(crate) fn score_all(series: &[(String, Vec<Sample>)]) -> Vec<Self> {
        let jobs: Vec<_> =
            series.iter().flat_map(|series| BATTERIES.map(|battery| (series, battery))).collect();
        let scores = jobs::all(
            &jobs,
            |((name, _), _)| name.clone(),
            |((_, samples), (preset, rule))| score(*preset, *rule, samples),
        );
        let trace = |((name, samples), scores): (&(String, Vec<Sample>), &[Option<Score>])| {
            let cycle = |objective| score::score_cycle(samples, objective);
            let cycles =
                cycle(Objective::Squared).zip(cycle(Objective::Absolute)).map(<[CycleScore; 2]>::from);
            let scores = scores.iter().flatten().cloned().collect();
            let differing = score::count_differing(samples);
            Self { name: name.clone(), count: samples.len(), scores, differing, cycles }
        };
        series.iter().zip(scores.chunks(BATTERIES.len())).map(trace).collect()
    }

    /// The best single method of NWS in hindsight: its name and error.
    pub(crate) fn best_of_nws(&self, objective: Objective) -> (&'static str, f64) {
        let methods =
            self.scores[0].methods.iter().map(|method| (method.method, method.errors.of(objective)));
        methods.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("–", f64::NAN))
    }

    pub(crate) fn blend(&self) -> &Score {
        let is_default = |score: &&Score| (score.preset, score.rule) == ("full", "blend");
        self.scores.iter().find(is_default).unwrap_or(&self.scores[0])
    }
}
