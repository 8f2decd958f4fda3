//! The paper's two tables beside ours.

use super::experiment::{Experiment, TABLE_1, TABLE_2};
use super::row::Row;
use super::run::Run;
use super::strategy::Strategy;
use crate::stats::{Summary, mean};
use crate::table::{Table, cells, dash, joined};

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

fn table_1(experiment: &Experiment) -> Table {
    let numbers = |of: &Summary, variance: f64| [of.mean, of.max, of.min, of.p95, variance, of.sd];
    let measured = |strategy: Strategy, run: &Run| {
        let summary = Summary::of(&run.times);
        (strategy.name() + &run.best(), numbers(&summary, summary.variance()))
    };
    let mut columns = Vec::new();
    for (strategy, paper, variance) in &TABLE_1 {
        columns.push((format!("{}, paper", strategy.name()), numbers(paper, *variance)));
        columns.extend(experiment.of(*strategy).map(|run| measured(*strategy, run)));
    }
    let ours = [Strategy::StaticBest, Strategy::NwsEscalating, Strategy::Default, Strategy::DefaultHedged];
    columns.extend(ours.iter().filter_map(|ours| Some(measured(*ours, experiment.of(*ours)?))));
    let mut table = Table::new([""]).and(columns.iter().map(|(title, _)| title));
    for (i, name) in ["mean", "max", "min", "95th percentile", "variance", "SD"].iter().enumerate() {
        table.push(cells![name].into_iter().chain(columns.iter().map(|(_, of)| format!("{:.3}", of[i]))));
    }
    table
}

fn table_2(experiment: &Experiment) -> Table {
    let mut table = Table::new([
        "",
        "retried %, paper",
        "retried %",
        "average retries, paper",
        "average retries",
        "abandoned",
    ]);
    let ours = experiment.runs.iter().map(|(strategy, _)| *strategy);
    let paper = TABLE_2.map(|(strategy, ..)| strategy);
    for strategy in paper.into_iter().chain(ours.filter(|strategy| !paper.contains(strategy))) {
        let stated = TABLE_2.iter().find(|(other, ..)| *other == strategy);
        let stated = stated.map(|(_, percent, retries)| [percent, retries].map(|x| format!("{x:.3}")));
        let [percent, retries] = stated.unwrap_or([dash(), dash()]);
        let Some(run) = experiment.of(strategy) else { continue };
        let row = Row::of(strategy, run);
        let measured = format!("{:.3}", 100.0 * row.retried_share);
        table.push(cells![row.strategy, percent, measured, retries, row.retries(3), row.abandoned]);
    }
    table
}

/// How abandoned reductions enter the means, and what the means would be without them.
fn abandoned(experiment: &Experiment) -> String {
    let alone = |run: &Run| {
        let kept = run.times.iter().zip(&run.gave_up).filter(|(_, gave_up)| !**gave_up);
        let kept: Vec<f64> = kept.map(|(time, _)| *time).collect();
        if kept.is_empty() { "none is left".to_owned() } else { format!("{:.3} s", mean(&kept)) }
    };
    let differ = experiment.runs.iter().filter(|(_, run)| 0 < run.abandoned()).map(|(strategy, run)| {
        format!("{} {} instead of {:.3} s", strategy.name(), alone(run), mean(&run.times))
    });
    let differ = joined(differ, ", ");
    format!(
        "The paper abandons a reduction when a message has been sent {} times; it does not say how such \
         reductions enter its means. Here the message is then sent once more and waited for, so that every \
         reduction has a time and all enter the means.{}\n",
        experiment.scenario.tries,
        if differ.is_empty() {
            " None was abandoned.".to_owned()
        } else {
            format!(" Without them the means would be: {differ}.")
        }
    )
}
