//! The paper's two tables beside ours.

use super::engine::Run;
use super::paper::{Experiment, TABLE_1, TABLE_2};
use super::row::{Row, Summary, mean};
use super::strategy::Strategy;
use crate::forecast::report::aligned;

/// Both tables, and how abandoned reductions enter them.
pub(crate) fn markdown(experiment: &Experiment) -> String {
    let scenario = &experiment.scenario;
    let sets = experiment.runs.first().map_or(0, |(_, run)| run.times.len() / scenario.reductions);
    format!(
        "\n{} nodes in a binary tree, messages of 64 kB, {sets} sets of {} reductions, {} tries a message, seed {}; \
         the links are those of the scenario {}: {}. Every strategy meets the same links and the \
         same luck.\n\n\
         ## Table 1: reduction times in seconds\n\n{}\n\
         ## Table 2: timeouts\n\n{}\n{}",
        scenario.nodes,
        scenario.reductions,
        scenario.tries,
        scenario.seed,
        scenario.name,
        scenario.about,
        table_1(experiment),
        table_2(experiment),
        abandoned(experiment)
    )
}

/// One number of a summary.
type Statistic = fn(&Summary) -> f64;

fn table_1(experiment: &Experiment) -> String {
    let statistics: [(&str, Statistic); 6] = [
        ("mean", |summary| summary.mean),
        ("max", |summary| summary.max),
        ("min", |summary| summary.min),
        ("95th percentile", |summary| summary.p95),
        ("variance", Summary::variance),
        ("SD", |summary| summary.sd),
    ];
    let mut table: Vec<Vec<String>> = vec![vec![String::new()]];
    table.extend(statistics.iter().map(|(name, _)| vec![(*name).to_owned()]));
    let mut column = |title: String, values: &[f64]| {
        table[0].push(title);
        for (row, value) in table[1..].iter_mut().zip(values) {
            row.push(format!("{value:.3}"));
        }
    };
    for paper in TABLE_1 {
        let theirs = [paper.mean, paper.max, paper.min, paper.p95, paper.variance, paper.sd];
        column(format!("{}, paper", paper.strategy.name()), &theirs);
        if let Some(run) = experiment.of(paper.strategy) {
            column(paper.strategy.name(), &statistics.map(|(_, of)| of(&Summary::of(&run.times))));
        }
    }
    for ours in [Strategy::StaticBest, Strategy::NwsEscalating, Strategy::Default, Strategy::DefaultHedged] {
        if let Some(run) = experiment.of(ours) {
            let best = run.best_s.map_or(String::new(), |best| format!(" ({best:.2} s)"));
            let values = statistics.map(|(_, of)| of(&Summary::of(&run.times)));
            column(ours.name() + &best, &values);
        }
    }
    aligned(&table)
}

fn table_2(experiment: &Experiment) -> String {
    let header =
        ["", "retried %, paper", "retried %", "average retries, paper", "average retries", "abandoned"];
    let mut table = vec![header.map(str::to_owned).to_vec()];
    let ours = experiment.runs.iter().map(|(strategy, _)| *strategy);
    let paper = TABLE_2.map(|(strategy, ..)| strategy);
    for strategy in paper.into_iter().chain(ours.filter(|strategy| !paper.contains(strategy))) {
        let stated = TABLE_2.iter().find(|(other, ..)| *other == strategy);
        let stated = stated.map(|(_, percent, retries)| [format!("{percent:.3}"), format!("{retries:.3}")]);
        let [percent, retries] = stated.unwrap_or(["–", "–"].map(str::to_owned));
        let Some(run) = experiment.of(strategy) else { continue };
        let row = Row::of(strategy, run);
        let average =
            if run.retried == 0 { "–".to_owned() } else { format!("{:.3}", row.retries_per_retried) };
        let measured = format!("{:.3}", 100.0 * row.retried_share);
        table.push(vec![row.strategy, percent, measured, retries, average, row.abandoned.to_string()]);
    }
    aligned(&table)
}

/// How abandoned reductions enter the means, and what the means would be without them.
fn abandoned(experiment: &Experiment) -> String {
    let mut text = format!(
        "The paper abandons a reduction when a message has been sent {} times; it does not say how such \
         reductions enter its means. Here the message is then sent once more and waited for, so that every \
         reduction has a time and all enter the means.",
        experiment.scenario.tries
    );
    let without = |run: &Run| {
        let kept = run.times.iter().zip(&run.gave_up).filter(|(_, gave_up)| !**gave_up);
        kept.map(|(time, _)| *time).collect::<Vec<f64>>()
    };
    let mut differ = Vec::new();
    for (strategy, run) in experiment.runs.iter().filter(|(_, run)| 0 < run.abandoned()) {
        let kept = without(run);
        let alone = if kept.is_empty() { "none is left".to_owned() } else { format!("{:.3} s", mean(&kept)) };
        differ.push(format!("{} {alone} instead of {:.3} s", strategy.name(), mean(&run.times)));
    }
    text += &if differ.is_empty() {
        " None was abandoned.\n".to_owned()
    } else {
        format!(" Without them the means would be: {}.\n", differ.join(", "))
    };
    text
}
