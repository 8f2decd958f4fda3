//! The scores as Markdown tables.

use barograph_forecast::Objective;

use super::Trace;
use super::score::{BATTERIES, BLOCK, FIRST_STEP, IntervalScore, LEVEL, Score, preset_name};
use crate::stats::{geometric_mean, range};
use crate::table::{Table, bold, cells, dash};

pub(crate) fn markdown(traces: &[Trace]) -> String {
    let mut text = format!(
        "# Forecasts of {} traces\n\nErrors are divided by those of the last value, over steps {FIRST_STEP} on; \
         means are geometric. Under 1 is better than the last value.\n",
        traces.len()
    );
    for (objective, title) in
        [(Objective::Squared, "Mean squared error"), (Objective::Absolute, "Mean absolute error")]
    {
        text += &format!("\n## {title}\n\n{}", rules(traces, objective));
    }
    text += &format!("\n## Rules that select by the whole series, of `nws`\n\n{}", differing(traces));
    text += &format!("\n## Intervals at {:.0} % of `full`, `blend`\n\n{}", LEVEL * 100.0, intervals(traces));
    text += &format!("\n## The start, and values after gaps, of `full`, `blend`\n\n{}", gaps(traces));
    text += &format!("\n## Methods with a daily and a weekly cycle\n\n{}", cycles(traces));
    for (objective, title) in
        [(Objective::Squared, "mean squared error"), (Objective::Absolute, "mean absolute error")]
    {
        for (battery, (preset, _)) in BATTERIES.iter().enumerate() {
            // The first battery of each preset stands for all in the tables of single methods.
            if BATTERIES.iter().position(|(other, _)| other == preset) == Some(battery) {
                let (name, methods) = (preset_name(*preset), methods(traces, battery, objective));
                text += &format!("\n## Single methods of `{name}`, {title}\n\n{methods}");
            }
        }
    }
    text
}

fn mean(traces: &[Trace], of: impl Fn(&Trace) -> f64) -> String {
    bold(&ratio(geometric_mean(traces.iter().map(of))))
}

/// Errors of the default battery's first ten forecasts, and its accuracy after gaps with and
/// without the times of values.
fn gaps(traces: &[Trace]) -> Table {
    let mut table = Table::titled(
        "trace | first ten: MAE ÷ last value's | gaps | coverage after them | without times | \
         MAE ÷ last value's | without times",
    );
    for trace in traces {
        let Score { start, gaps, .. } = trace.blend();
        let mut row = cells![trace.name, ratio(*start), gaps.map_or(0, |gaps| gaps.count)];
        let numbers = gaps.map(|gaps| [gaps.coverage, gaps.coverage_untimed, gaps.mae, gaps.mae_untimed]);
        row.extend(numbers.into_iter().flatten().map(ratio));
        table.push(row);
    }
    table.push([bold("geometric mean"), mean(traces, |trace| trace.blend().start)]);
    table
}

/// Scores with the daily and weekly methods on each trace of a week or more.
fn cycles(traces: &[Trace]) -> String {
    let mut table =
        Table::titled("trace | error | full | daily alone | weekly alone | full with both | with ÷ without");
    for trace in traces {
        for (error, score) in ["MSE", "MAE"].into_iter().zip(trace.cycles.iter().flatten()) {
            let numbers = [score.full, score.day, score.week, score.with, score.with / score.full];
            table.push(cells![trace.name, error].into_iter().chain(numbers.map(ratio)));
        }
    }
    if table.is_empty() { "No trace is a week long.\n".to_owned() } else { table.to_string() }
}

fn rules(traces: &[Trace], objective: Objective) -> Table {
    let batteries = traces[0].scores.iter().map(|score| format!("{} {}", score.preset, score.rule));
    let mut table = Table::new(["trace", "values"]).and(batteries).and([
        "best of nws in hindsight",
        "full blend ÷ best",
        "which",
    ]);
    let blend = |trace: &Trace| trace.blend().errors.of(objective);
    for trace in traces {
        let (which, best) = trace.best_of_nws(objective);
        let mut row = cells![trace.name, trace.count];
        row.extend(trace.scores.iter().map(|score| ratio(score.errors.of(objective))));
        row.extend(cells![ratio(best), ratio(blend(trace) / best), which]);
        table.push(row);
    }
    let mut row = cells![bold("geometric mean"), ""];
    row.extend(
        (0..BATTERIES.len()).map(|battery| mean(traces, |trace| trace.scores[battery].errors.of(objective))),
    );
    row.push(mean(traces, |trace| trace.best_of_nws(objective).1));
    row.push(mean(traces, |trace| blend(trace) / trace.best_of_nws(objective).1));
    table.push(row);
    table
}

/// How often the papers' rule and the rule of two selectors select different methods.
fn differing(traces: &[Trace]) -> String {
    let mut table = Table::titled("trace | forecasts | mse differs from two-selectors | mae differs from it");
    for trace in traces {
        table.push(cells![trace.name, trace.count - 1, trace.differing[0], trace.differing[1]]);
    }
    format!("{table}\nA forecast differs if the rules select different methods.\n")
}

fn intervals(traces: &[Trace]) -> String {
    let worst = format!("worst block of {BLOCK}");
    let mut table = Table::new(["trace", "coverage", &worst, "width ÷ hindsight"]);
    let of = |trace: &Trace| trace.blend().interval;
    for trace in traces {
        let IntervalScore { coverage, worst_block, width } = of(trace);
        table.push(cells![trace.name, ratio(coverage), ratio(worst_block), ratio(width)]);
    }
    let (low, high) = range(traces.iter().map(|trace| of(trace).coverage));
    table.push([
        bold("least to greatest; least; geometric mean"),
        bold(&format!("{} to {}", ratio(low), ratio(high))),
        bold(&ratio(range(traces.iter().map(|trace| of(trace).worst_block)).0)),
        mean(traces, |trace| of(trace).width),
    ]);
    format!(
        "{table}\nWidth is the mean half-width divided by the constant that covers that share of the values around the same \
         forecasts, taken with hindsight.\n"
    )
}

/// Error of each method of a preset on each trace; the best on average comes first.
fn methods(traces: &[Trace], battery: usize, objective: Objective) -> Table {
    let error = |trace: &Trace, method: usize| trace.scores[battery].methods[method].errors.of(objective);
    let methods = &traces[0].scores[battery].methods;
    let mut rows: Vec<(f64, usize)> = (0..methods.len())
        .map(|method| (geometric_mean(traces.iter().map(|trace| error(trace, method))), method))
        .collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut table = Table::new(["method", "geometric mean"]).and(traces.iter().map(|trace| &trace.name));
    for (mean, method) in rows {
        let of_traces = traces.iter().map(|trace| ratio(error(trace, method)));
        table.push(cells![methods[method].method, bold(&ratio(mean))].into_iter().chain(of_traces));
    }
    table
}

/// A ratio with three decimals; a dash if it is not defined.
fn ratio(ratio: f64) -> String {
    if ratio.is_finite() { format!("{ratio:.3}") } else { dash() }
}
