//! The scores as Markdown tables.

use super::score::{BLOCK, LEVEL, SHARES, Score};
use super::{FORECASTERS, Row, STEPS};
use crate::stats::{geometric_mean, mean_of_some, range};
use crate::table::{Table, bold, cells, dash, list, percent};

pub(super) fn markdown(rows: &[Row]) -> String {
    let mut text = format!(
        "# Forecasts further ahead\n\nForecasts of the mean of the next *H* values and of the value *H* ahead, issued \
         after every value but the first 100 + 2 *H*. Barograph's are those of `barograph forecast --horizon H`.\n\n\
         Coverage is that of the intervals at {:.0} %, in percent; *block* is the lowest coverage of a disjoint block \
         of {BLOCK}. Width is the mean width divided by that of the constant interval around Barograph's forecasts \
         that has this coverage in hindsight. MSE, MAE and pinball loss (mean over the shares {}) are divided by \
         those of the last value; means of ratios are geometric. The other forecasters have the quantiles of their \
         own errors as intervals and quantiles: of the last 300 or 20 *H* errors that are known. NWS is the two-level \
         rule on the means of blocks of *H* values, EWMA has the gain 1/8. The constant is the best one in \
         hindsight; its interval and quantiles are those of what was measured.\n",
        100.0 * LEVEL,
        list(SHARES)
    );
    for (of, title) in [("mean", "The mean of the next *H* values"), ("value", "The value *H* ahead")] {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.of == of).collect();
        text += &format!("\n## {title}\n\n### Intervals of Barograph by trace\n\n{}", intervals(&rows));
        text += &format!("\n### Errors of Barograph by trace\n\n{}", errors(&rows));
        text += &format!("\n### All forecasters\n\n{}", forecasters(&rows));
    }
    text
}

/// Names and lengths of the traces, in order.
fn traces<'a>(rows: &[&'a Row]) -> Vec<(&'a str, usize)> {
    let mut traces: Vec<(&str, usize)> = rows.iter().map(|row| (row.trace.as_str(), row.values)).collect();
    traces.sort_unstable();
    traces.dedup();
    traces
}

fn at<'a>(rows: &[&'a Row], trace: &str, steps: usize) -> Option<&'a Row> {
    rows.iter().find(|row| row.trace == trace && row.steps == steps).copied()
}

fn steps_of(rows: &[&Row]) -> Vec<usize> {
    STEPS.into_iter().filter(|steps| rows.iter().any(|row| row.steps == *steps)).collect()
}

fn intervals(rows: &[&Row]) -> Table {
    let steps = steps_of(rows);
    let header = steps.iter().flat_map(|steps| [format!("{steps}"), "block".to_owned(), "width".to_owned()]);
    let mut table = Table::new(["trace", "values"]).and(header);
    for (trace, values) in traces(rows) {
        let cells_at = |steps: &usize| match at(rows, trace, *steps) {
            Some(row) => {
                let own = &row.scores[0];
                [
                    percent(own.coverage),
                    percent(own.worst_block),
                    ratio(own.half_width / row.hindsight_half_width),
                ]
            }
            None => [dash(), dash(), dash()],
        };
        table.push(cells![trace, values].into_iter().chain(steps.iter().flat_map(cells_at)));
    }
    let long = |steps: usize| rows.iter().filter(move |row| row.steps == steps && row.values >= LONG);
    let summary = |steps: &usize| {
        let (low, high) = range(long(*steps).map(|row| row.scores[0].coverage));
        let worst = range(long(*steps).map(|row| row.scores[0].worst_block)).0;
        let width =
            geometric_mean(long(*steps).map(|row| row.scores[0].half_width / row.hindsight_half_width));
        [format!("{}–{}", percent(low), percent(high)), percent(worst), ratio(width)].map(|cell| bold(&cell))
    };
    let first = bold(&format!("{LONG} values or more: range, least, geometric mean"));
    table.push([first, String::new()].into_iter().chain(steps.iter().flat_map(summary)));
    table
}

/// Traces with fewer values are not in the last row of the table of intervals.
const LONG: usize = 3000;

type Part = fn(&Score) -> f64;

const PARTS: [Part; 3] = [|score| score.mse, |score| score.mae, |score| score.pinball];

/// A part of the score of a forecaster, divided by that of the last value.
fn relative(row: &Row, forecaster: usize, part: Part) -> f64 {
    part(&row.scores[forecaster]) / part(&row.scores[1])
}

fn errors(rows: &[&Row]) -> Table {
    let steps = steps_of(rows);
    let header =
        steps.iter().flat_map(|steps| [format!("{steps}: MSE"), "MAE".to_owned(), "pinball".to_owned()]);
    let mut table = Table::new(["trace"]).and(header);
    for (trace, _) in traces(rows) {
        let cells_at = |steps: &usize| {
            PARTS.map(|part| at(rows, trace, *steps).map_or_else(dash, |row| ratio(relative(row, 0, part))))
        };
        table.push(cells![trace].into_iter().chain(steps.iter().flat_map(cells_at)));
    }
    let summary = |steps: &usize| {
        let rows = || rows.iter().filter(|row| row.steps == *steps);
        PARTS.map(|part| bold(&ratio(geometric_mean(rows().map(|row| relative(row, 0, part))))))
    };
    table.push([bold("geometric mean")].into_iter().chain(steps.iter().flat_map(summary)));
    table
}

fn forecasters(rows: &[&Row]) -> Table {
    let mut table =
        Table::titled("forecaster | H | coverage | least | worst block | width | MSE | MAE | pinball");
    for steps in steps_of(rows) {
        let rows: Vec<&Row> = rows.iter().copied().filter(|row| row.steps == steps).collect();
        for (forecaster, name) in FORECASTERS.iter().enumerate() {
            let all =
                |part: Part| rows.iter().map(move |row| part(&row.scores[forecaster])).collect::<Vec<f64>>();
            let coverage = all(|score| score.coverage);
            let width = rows.iter().map(|row| row.scores[forecaster].half_width / row.hindsight_half_width);
            let mut cells = cells![
                name,
                steps,
                percent(mean_of_some(&coverage).unwrap_or(f64::NAN)),
                percent(range(coverage.iter().copied()).0),
                percent(range(all(|score| score.worst_block).into_iter()).0),
                ratio(geometric_mean(width)),
            ];
            cells.extend(
                PARTS.map(|part| {
                    ratio(geometric_mean(rows.iter().map(|row| relative(row, forecaster, part))))
                }),
            );
            table.push(cells);
        }
    }
    table
}

fn ratio(ratio: f64) -> String {
    format!("{ratio:.3}")
}
