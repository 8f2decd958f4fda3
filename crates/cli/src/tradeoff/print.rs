//! Output of `barograph tradeoff`.

use std::io::{self, Write};

use barograph_study::tradeoff::{MeasuredSeries, OffsetStatistics, Predictor, ScoreRow, TradeoffScores};
use barograph_study::units::{format_period, format_significant};
use serde::Serialize;

use super::Args;
use crate::forecast::horizon::HorizonAnswer;

/// Writes text: the errors of each series by period, then by length of the tests.
pub(super) fn text(out: &mut impl Write, study: &TradeoffScores, args: &Args) -> io::Result<()> {
    for (i, measured) in study.series.iter().enumerate() {
        if i != 0 {
            writeln!(out)?;
        }
        head(out, measured, &args.unit)?;
        if let Some(target) = study.target {
            writeln!(out, "forecasts of {target}, from tests at each period")?;
        }
        periods(out, study, i)?;
        let too_long: Vec<String> =
            study.too_long_s(i, &args.periods).into_iter().map(format_period).collect();
        if !too_long.is_empty() {
            let why = match study.target {
                None => "no two measurements are so far apart",
                Some(_) => "no horizon could be scored at these periods",
            };
            writeln!(out, "{why}: {}", too_long.join(", "))?;
        }
    }
    lengths(out, study)
}

fn head(out: &mut impl Write, measured: &MeasuredSeries, unit: &str) -> io::Result<()> {
    let MeasuredSeries { name, length_s, grid, .. } = measured;
    let length = length_s
        .map_or_else(|| "of unknown length".to_owned(), |s| format!("of {} s", format_significant(s)));
    let unit = match (unit, measured.bit_per_s) {
        ("", Some(_)) => " bit/s".to_owned(),
        ("", None) => String::new(),
        (unit, _) => format!(" {unit}"),
    };
    writeln!(
        out,
        "{name}: {} tests {length}, one in {} s; {} of {} periods blank, {} values left out, because their period has one already; mean {}{unit}",
        grid.values().count(),
        format_significant(grid.base_s),
        grid.blanks(),
        grid.slots.len(),
        grid.duplicates,
        format_significant(grid.mean()),
    )
}

/// Writes a line for each period and predictor.
fn periods(out: &mut impl Write, study: &TradeoffScores, series: usize) -> io::Result<()> {
    writeln!(
        out,
        "{:>10}  {:<11}  {:>10} {:>6} {:>6} {:>7}  {:>10} {:>7} {:>7} {:>8}  {:>8} {:>8}  {:>10}",
        "period",
        "predictor",
        "MAE",
        "%",
        "± %",
        "worst %",
        "MSE",
        "√MSE %",
        "± %",
        "worst %",
        "offsets",
        "scored",
        "bytes/h",
    )?;
    let measured = &study.series[series];
    let mean = measured.grid.mean();
    for row in study.rows.iter().filter(|row| row.series == series) {
        let (mae, mse) = (row.mae(), row.root_mse());
        let bytes = measured.bytes_per_hour(row.period_s).map_or_else(|| "–".to_owned(), format_significant);
        writeln!(
            out,
            "{:>10}  {:<11}  {:>10} {:>6} {:>6} {:>7}  {:>10} {:>7} {:>7} {:>8}  {:>8} {:>8}  {:>10}",
            format_period(row.period_s),
            row.predictor.name(),
            format_significant(mae.mean),
            percent(mae.mean, mean),
            percent(mae.spread, mean),
            percent(mae.worst, mean),
            format_significant(row.mse().mean),
            percent(mse.mean, mean),
            percent(mse.spread, mean),
            percent(mse.worst, mean),
            row.offsets.len(),
            row.scored(),
            bytes,
        )?;
    }
    Ok(())
}

/// Writes mean absolute errors by length of the tests, if there are several lengths.
fn lengths(out: &mut impl Write, study: &TradeoffScores) -> io::Result<()> {
    let mut known: Vec<usize> =
        (0..study.series.len()).filter(|i| study.series[*i].length_s.is_some()).collect();
    known.sort_by(|a, b| {
        let length = |i: &usize| study.series[*i].length_s.unwrap_or(0.0);
        length(a).total_cmp(&length(b))
    });
    if known.len() < 2 {
        return Ok(());
    }
    for predictor in Predictor::ALL {
        writeln!(out, "\nMAE in % of the mean against the length of the tests: {}", predictor.name())?;
        let periods = study.periods(known[0]);
        let base_s = study.series[known[0]].grid.base_s;
        write!(out, "{:>8}  {:>10}", "test", "mean")?;
        for every in &periods {
            write!(out, "  {:>8}", format_period(*every as f64 * base_s))?;
        }
        writeln!(out)?;
        for i in &known {
            let MeasuredSeries { length_s, grid, .. } = &study.series[*i];
            let length = format!("{} s", format_significant(length_s.unwrap_or(0.0)));
            write!(out, "{length:>8}  {:>10}", format_significant(grid.mean()))?;
            for every in &periods {
                let mae = study.row(*i, *every, predictor).map(|row| row.mae().mean);
                let mae = mae.map_or_else(|| "–".to_owned(), |mae| percent(mae, grid.mean()));
                write!(out, "  {mae:>8}")?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}

/// A number in percent of the mean; a dash if the mean is 0.
fn percent(number: f64, mean: f64) -> String {
    if mean > 0.0 { format!("{:.2}", 100.0 * number / mean) } else { "–".to_owned() }
}

/// Writes the study as one line of JSON.
pub(super) fn json(out: &mut impl Write, study: &TradeoffScores, args: &Args) -> io::Result<()> {
    let series = study.series.iter().enumerate().map(|(i, measured)| {
        let MeasuredSeries { name, length_s, grid, .. } = measured;
        let rows = study.rows.iter().filter(|row| row.series == i);
        SeriesAnswer {
            name,
            test_s: *length_s,
            base_s: grid.base_s,
            periods: grid.slots.len(),
            blank: grid.blanks(),
            left_out: grid.duplicates,
            mean: grid.mean(),
            too_long_s: study.too_long_s(i, &args.periods),
            rows: rows.map(|row| RowAnswer::of(row, measured)).collect(),
        }
    });
    let horizon = study.target.map(HorizonAnswer::from);
    let answer = Answer { unit: &args.unit, seed: args.seed, horizon, series: series.collect() };
    serde_json::to_writer(&mut *out, &answer)?;
    out.write_all(b"\n")
}

#[derive(Serialize)]
struct Answer<'a> {
    unit: &'a str,
    seed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    horizon: Option<HorizonAnswer>,
    series: Vec<SeriesAnswer<'a>>,
}

#[derive(Serialize)]
struct SeriesAnswer<'a> {
    name: &'a str,
    test_s: Option<f64>,
    base_s: f64,
    periods: usize,
    blank: usize,
    left_out: usize,
    mean: f64,
    too_long_s: Vec<f64>,
    rows: Vec<RowAnswer>,
}

#[derive(Serialize)]
struct RowAnswer {
    period_s: f64,
    predictor: Predictor,
    offsets: usize,
    scored: usize,
    mae: OffsetStatistics,
    mse: OffsetStatistics,
    root_mse: OffsetStatistics,
    mae_percent: Option<f64>,
    mae_worst_percent: Option<f64>,
    root_mse_percent: Option<f64>,
    bytes_per_hour: Option<f64>,
}

impl RowAnswer {
    fn of(row: &ScoreRow, measured: &MeasuredSeries) -> Self {
        let mean = measured.grid.mean();
        let percent = |number: f64| (mean > 0.0).then(|| 100.0 * number / mean);
        Self {
            period_s: row.period_s,
            predictor: row.predictor,
            offsets: row.offsets.len(),
            scored: row.scored(),
            mae: row.mae(),
            mse: row.mse(),
            root_mse: row.root_mse(),
            mae_percent: percent(row.mae().mean),
            mae_worst_percent: percent(row.mae().worst),
            root_mse_percent: percent(row.root_mse().mean),
            bytes_per_hour: measured.bytes_per_hour(row.period_s),
        }
    }
}
