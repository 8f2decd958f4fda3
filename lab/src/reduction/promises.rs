//! Whether the default keeps on P1 what is promised of it: computed, like the shapes.

use super::experiment::Experiment;
use super::row::Row;
use super::strategy::Strategy;
use crate::stats::Summary;

/// The promises; empty where a strategy was not run that they need.
pub(crate) fn markdown(experiment: &Experiment) -> String {
    let lines = [against_nws(experiment), against_static(experiment), retries(experiment)];
    let lines: String = lines.into_iter().flatten().map(|line| format!("- {line}\n")).collect();
    if lines.is_empty() { lines } else { format!("\n## What is promised of the default\n\n{lines}") }
}

fn verdict(holds: bool) -> &'static str {
    if holds { "**holds**" } else { "**does not hold**" }
}

fn against_nws(experiment: &Experiment) -> Option<String> {
    let (ours, theirs) = (experiment.summary(Strategy::Default)?, experiment.summary(Strategy::Nws(2.0))?);
    let ratios = [ours.mean / theirs.mean, ours.p95 / theirs.p95, ours.variance() / theirs.variance()];
    let holds = ratios.iter().all(|ratio| *ratio <= 1.0 + WORSE);
    let [mean, p95, variance] = ratios;
    Some(format!(
        "Mean, 95th percentile and variance no worse than those of mean + 2 SD within 1 %: {}. They are {mean:.3}, {p95:.3} \
         and {variance:.3} times as large.",
        verdict(holds)
    ))
}

fn against_static(experiment: &Experiment) -> Option<String> {
    let ours = experiment.summary(Strategy::Default)?;
    let statics = [2.0, 5.0, 15.0, 45.0].map(Strategy::Static).into_iter().chain([Strategy::StaticBest]);
    let statics: Vec<Summary> =
        statics.map(|strategy| experiment.summary(strategy)).collect::<Option<_>>()?;
    let least = |of: fn(&Summary) -> f64| statics.iter().map(of).fold(f64::INFINITY, f64::min);
    let (mean, p95) = (least(|summary| summary.mean), least(|summary| summary.p95));
    Some(format!(
        "Mean and 95th percentile less than those of every static timeout: {}. They are {:.3} and {:.3} s, the least \
         static ones {mean:.3} and {p95:.3} s.",
        verdict(ours.mean < mean && ours.p95 < p95),
        ours.mean,
        ours.p95
    ))
}

fn retries(experiment: &Experiment) -> Option<String> {
    let row = Row::of(Strategy::Default, experiment.of(Strategy::Default)?);
    Some(format!(
        "At most 1.2 retries of a message that is retried, and no reduction abandoned: {}. They are {:.3} and {}.",
        verdict(row.retries_per_retried <= 1.2 && row.abandoned == 0),
        row.retries_per_retried,
        row.abandoned
    ))
}

/// What counts as no worse.
const WORSE: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::super::run::Run;
    use super::*;
    use barograph_sim::Scenario;

    #[test]
    fn a_promise_is_kept_or_not() {
        let run = |times: [f64; 2], gave_up| Run {
            times: times.to_vec(),
            gave_up: vec![gave_up, false],
            sends: 10,
            retried: 1,
            retries: 1,
            ..Run::default()
        };
        let with = |default: Run| {
            let mut runs: Vec<(Strategy, Run)> =
                Strategy::ALL.map(|strategy| (strategy, run([7.0, 9.0], false))).to_vec();
            for (strategy, run) in &mut runs {
                if *strategy == Strategy::Default {
                    *run = default.clone();
                }
            }
            markdown(&Experiment { scenario: Scenario::default(), runs })
        };
        let count = |text: &str| text.matches("**holds**").count();
        assert_eq!(count(&with(run([7.0, 8.9], false))), 3, "{}", with(run([7.0, 8.9], false)));
        assert_eq!(count(&with(run([7.0, 9.0], false))), 2, "as good as a static one is not better");
        assert_eq!(count(&with(run([7.0, 9.5], true))), 0);
    }
}
