//! The scores as Markdown.

use std::fmt::Write;

use barograph_forecast::Loss;

use super::Trace;
use super::score::{BATTERIES, BLOCK, FIRST_STEP, IntervalScore, LEVEL, Score, geometric_mean, preset_name};

/// The whole report.
pub(crate) fn markdown(traces: &[Trace]) -> String {
    let mut text = format!(
        "# Forecasts of {} traces\n\nErrors are divided by those of the last value, over steps {FIRST_STEP} on; \
         means are geometric. Under 1 is better than the last value.\n",
        traces.len()
    );
    for (loss, title) in [(Loss::Squared, "Mean squared error"), (Loss::Absolute, "Mean absolute error")] {
        let _ = write!(text, "\n## {title}\n\n{}", rules(traces, loss));
    }
    let _ =
        write!(text, "\n## Intervals at {:.0} % of `full`, `blend`\n\n{}", LEVEL * 100.0, intervals(traces));
    let _ = write!(text, "\n## The start, and values after gaps, of `full`, `blend`\n\n{}", gaps(traces));
    let _ = write!(text, "\n## A member that knows the time of day and of the week\n\n{}", cycles(traces));
    for (loss, title) in [(Loss::Squared, "mean squared error"), (Loss::Absolute, "mean absolute error")] {
        for (battery, (preset, _)) in BATTERIES.iter().enumerate() {
            // One battery of each preset tells of the preset's methods.
            if BATTERIES.iter().position(|(other, _)| other == preset) == Some(battery) {
                let name = preset_name(*preset);
                let _ = write!(
                    text,
                    "\n## Single methods of `{name}`, {title}\n\n{}",
                    methods(traces, battery, loss)
                );
            }
        }
    }
    text
}

/// The best single method of NWS with hindsight: its name and error.
pub(crate) fn best_of_nws(trace: &Trace, loss: Loss) -> (&'static str, f64) {
    let methods = trace.scores[0].methods.iter().map(|method| (method.method, method.errors.of(loss)));
    methods.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("–", f64::NAN))
}

/// The default battery's first ten forecasts, and how it does after gaps with times and without.
fn gaps(traces: &[Trace]) -> String {
    let columns = [
        "trace",
        "first ten: MAE ÷ last value's",
        "gaps",
        "coverage after them",
        "without times",
        "MAE ÷ last value's",
        "without times",
    ];
    let mut table = vec![columns.map(str::to_owned).to_vec()];
    for trace in traces {
        let Score { start, gaps, .. } = blend(trace);
        let mut row = vec![trace.name.clone(), ratio(*start)];
        row.push(gaps.map_or("0".to_owned(), |gaps| gaps.count.to_string()));
        let numbers = gaps.map(|gaps| [gaps.coverage, gaps.coverage_untimed, gaps.mae, gaps.mae_untimed]);
        row.extend(numbers.map_or([const { String::new() }; 4], |numbers| numbers.map(ratio)));
        table.push(row);
    }
    let mean = ratio(geometric_mean(traces.iter().map(|trace| blend(trace).start)));
    let mut row = vec![bold("geometric mean"), bold(&mean)];
    row.resize(columns.len(), String::new());
    table.push(row);
    aligned(&table)
}

/// Each trace of a week or more with the daily and weekly members.
fn cycles(traces: &[Trace]) -> String {
    let columns =
        ["trace", "error", "full", "daily alone", "weekly alone", "full with both", "with ÷ without"];
    let mut table = vec![columns.map(str::to_owned).to_vec()];
    for trace in traces {
        for (error, score) in ["MSE", "MAE"].into_iter().zip(trace.cycles.iter().flatten()) {
            let mut row = vec![trace.name.clone(), error.to_owned()];
            let with = score.with / score.full;
            row.extend([score.full, score.day, score.week, score.with, with].map(ratio));
            table.push(row);
        }
    }
    if table.len() == 1 {
        return "No trace is a week long.\n".to_owned();
    }
    aligned(&table)
}

/// Each trace with each battery.
fn rules(traces: &[Trace], loss: Loss) -> String {
    let mut header = vec!["trace".to_owned(), "values".to_owned()];
    header.extend(traces[0].scores.iter().map(|score| format!("{} {}", score.preset, score.rule)));
    header.extend([
        "best of nws in hindsight".to_owned(),
        "full blend ÷ best".to_owned(),
        "which".to_owned(),
    ]);
    let blend = |trace: &Trace| blend(trace).errors.of(loss);
    let mut table = vec![header];
    for trace in traces {
        let (which, best) = best_of_nws(trace, loss);
        let mut row = vec![trace.name.clone(), trace.count.to_string()];
        row.extend(trace.scores.iter().map(|score| ratio(score.errors.of(loss))));
        row.extend([ratio(best), ratio(blend(trace) / best), which.to_owned()]);
        table.push(row);
    }
    let mean = |of: &dyn Fn(&Trace) -> f64| bold(&ratio(geometric_mean(traces.iter().map(of))));
    let mut row = vec![bold("geometric mean"), String::new()];
    row.extend((0..BATTERIES.len()).map(|battery| mean(&|trace| trace.scores[battery].errors.of(loss))));
    row.push(mean(&|trace| best_of_nws(trace, loss).1));
    row.push(mean(&|trace| blend(trace) / best_of_nws(trace, loss).1));
    row.push(String::new());
    table.push(row);
    aligned(&table)
}

/// The scores of the default battery.
pub(crate) fn blend(trace: &Trace) -> &Score {
    trace
        .scores
        .iter()
        .find(|score| (score.preset, score.rule) == ("full", "blend"))
        .unwrap_or(&trace.scores[0])
}

/// The intervals of the default battery.
fn intervals(traces: &[Trace]) -> String {
    let worst = format!("worst block of {BLOCK}");
    let mut table = vec![["trace", "coverage", &worst, "width ÷ hindsight"].map(str::to_owned).to_vec()];
    let of = |trace: &Trace| blend(trace).interval;
    for trace in traces {
        let IntervalScore { coverage, worst_block, width } = of(trace);
        table.push(vec![trace.name.clone(), ratio(coverage), ratio(worst_block), ratio(width)]);
    }
    let range = |of: &dyn Fn(&Trace) -> f64| {
        let (low, high) =
            traces.iter().map(of).fold((f64::INFINITY, 0.0_f64), |(a, b), x| (a.min(x), b.max(x)));
        (low, high)
    };
    let (low, high) = range(&|trace| of(trace).coverage);
    table.push(vec![
        bold("least to greatest; least; geometric mean"),
        bold(&format!("{} to {}", ratio(low), ratio(high))),
        bold(&ratio(range(&|trace| of(trace).worst_block).0)),
        bold(&ratio(geometric_mean(traces.iter().map(|trace| of(trace).width)))),
    ]);
    aligned(&table)
        + "\nWidth is the mean half-width divided by the constant that covers that share of the values around the same \
           forecasts, taken with hindsight.\n"
}

/// Each method of a preset on each trace, the best on the mean first.
fn methods(traces: &[Trace], battery: usize, loss: Loss) -> String {
    let mut header = vec!["method".to_owned(), "geometric mean".to_owned()];
    header.extend(traces.iter().map(|trace| trace.name.clone()));
    let error = |trace: &Trace, method: usize| trace.scores[battery].methods[method].errors.of(loss);
    let mut rows: Vec<(f64, Vec<String>)> = (0..traces[0].scores[battery].methods.len())
        .map(|method| {
            let mean = geometric_mean(traces.iter().map(|trace| error(trace, method)));
            let name = traces[0].scores[battery].methods[method].method.to_owned();
            let mut row = vec![name, bold(&ratio(mean))];
            row.extend(traces.iter().map(|trace| ratio(error(trace, method))));
            (mean, row)
        })
        .collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let table: Vec<Vec<String>> = [header].into_iter().chain(rows.into_iter().map(|(_, row)| row)).collect();
    aligned(&table)
}

/// A Markdown table whose columns stand under each other in plain text too.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(3);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut text = String::new();
    for (i, row) in rows.iter().enumerate() {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = if column == 0 {
                write!(text, "| {cell:<width$} ")
            } else {
                write!(text, "| {cell:>width$} ")
            };
        }
        text += "|\n";
        if i == 0 {
            for (column, width) in widths.iter().enumerate() {
                let dashes = "-".repeat(width + 1);
                let _ = if column == 0 { write!(text, "|{dashes}-") } else { write!(text, "|{dashes}:") };
            }
            text += "|\n";
        }
    }
    text
}

pub(crate) fn bold(text: &str) -> String {
    format!("**{text}**")
}

/// A ratio to three decimals; a dash where it is not defined.
fn ratio(ratio: f64) -> String {
    if ratio.is_finite() { format!("{ratio:.3}") } else { "–".to_owned() }
}
