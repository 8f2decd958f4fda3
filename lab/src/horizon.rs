//! `lab horizon`: scores forecasts further ahead than the next value on every trace of a folder,
//! beside simpler forecasters.

mod issue;
mod report;
mod score;

use std::path::{Path, PathBuf};

use anyhow::ensure;
use barograph_forecast::HorizonOf;
use barograph_study::input::Sample;
use serde::Serialize;

use crate::jobs;
use crate::output::Output;
use crate::series::read_folder;
use issue::{block_means, constant, last_values, moving_average, ours, with_error_quantiles};
use score::{Score, hindsight_half_width, score};

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
    let series = read_folder(&args.traces)?;
    let jobs: Vec<_> =
        STEPS.iter().flat_map(|steps| series.iter().map(move |trace| (trace, *steps))).collect();
    let rows: Vec<Row> = jobs::all(
        &jobs,
        |((name, _), steps)| format!("{name}, {steps} values"),
        |((name, samples), steps)| measure(name, samples, *steps),
    )
    .into_iter()
    .flatten()
    .collect();
    ensure!(!rows.is_empty(), "no trace in {} is long enough to be scored", args.traces.display());
    let output = Output::new(page, args.json);
    output.print(&report::markdown(&rows))?;
    output.json(&rows)
}

/// Scores of all forecasters on one trace, for one horizon and one kind of target.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) trace: String,
    pub(crate) values: usize,
    pub(crate) steps: usize,
    pub(crate) of: &'static str,
    /// The constant half-width around Barograph's forecasts that would have had the intended
    /// coverage.
    pub(crate) hindsight_half_width: f64,
    /// In the order of [`FORECASTERS`].
    pub(crate) scores: Vec<Score>,
}

/// Names of the forecasters that are scored; Barograph's is the first, the last value the second.
pub(crate) const FORECASTERS: [&str; 6] =
    ["Barograph", "last value", "EWMA", "NWS, block means", "Barograph, next value", "constant, hindsight"];

/// Horizons that are scored, in values.
const STEPS: [usize; 6] = [1, 5, 10, 30, 100, 120];

/// Scores one trace at one horizon, for the mean up to it and the value at it; empty if the trace
/// is too short.
fn measure(name: &str, samples: &[Sample], steps: usize) -> Vec<Row> {
    let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
    let Some((own, next)) = ours(samples, steps) else { return Vec::new() };
    let row = |(of, own): (HorizonOf, Vec<_>)| {
        let targets = targets(&values, steps, of);
        let first = first_scored(steps);
        let scored = targets.get(first..).filter(|scored| !scored.is_empty())?;
        let simple =
            [last_values(&values), moving_average(&values), block_means(&values, steps), next.clone()];
        let simple = simple.map(|points| with_error_quantiles(&points, &targets, steps));
        let issued = [own].into_iter().chain(simple).chain([constant(scored, targets.len())]);
        let issued: Vec<Vec<_>> = issued.map(|all| all[first..targets.len()].to_vec()).collect();
        Some(Row {
            trace: name.to_owned(),
            values: values.len(),
            steps,
            of: if of == HorizonOf::Mean { "mean" } else { "value" },
            hindsight_half_width: hindsight_half_width(&issued[0], scored)?,
            scores: issued.iter().map(|issued| score(issued, scored)).collect::<Option<_>>()?,
        })
    };
    own.into_iter().filter(|(of, _)| steps != 1 || *of == HorizonOf::Mean).filter_map(row).collect()
}

/// Forecasts issued before this one are not scored: Barograph has an interval two horizons after
/// the first value, and methods learn for a hundred values.
fn first_scored(steps: usize) -> usize {
    100 + 2 * steps
}

/// What is measured: for the forecast after each value, as far as it is known.
fn targets(values: &[f64], steps: usize, of: HorizonOf) -> Vec<f64> {
    values
        .windows(steps + 1)
        .map(|window| match of {
            HorizonOf::Mean => crate::stats::mean(&window[1..]),
            HorizonOf::Value => window[steps],
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_noise_all_intervals_hold_and_the_last_value_is_the_worst_forecast() {
        let noise = |i: u32| f64::from(i.wrapping_mul(i | 1).wrapping_mul(2_654_435_761) >> 16);
        let samples: Vec<Sample> =
            (0..800).map(|i| Sample { time_s: f64::from(i), value: noise(i) }).collect();
        for steps in [1, 5] {
            let rows = measure("noise", &samples, steps);
            assert_eq!(rows.len(), if steps == 1 { 1 } else { 2 });
            for row in rows {
                assert_eq!(row.scores.len(), FORECASTERS.len());
                let [own, last, .., constant] = &row.scores[..] else { panic!("{:?}", row.scores) };
                assert!(own.mse < 0.8 * last.mse && constant.mse < 0.8 * last.mse, "{:?}", row.scores);
                let is_near = |score: &&Score| (0.8..=0.97).contains(&score.coverage);
                assert_eq!(row.scores.iter().filter(is_near).count(), FORECASTERS.len(), "{:?}", row.scores);
            }
        }
        assert!(measure("short", &samples[..300], 100).is_empty());
    }

    #[test]
    fn targets_are_the_values_after_the_forecast() {
        let values = [1.0, 2.0, 4.0, 9.0];
        assert_eq!(targets(&values, 2, HorizonOf::Mean), [3.0, 6.5]);
        assert_eq!(targets(&values, 2, HorizonOf::Value), [4.0, 9.0]);
    }
}
