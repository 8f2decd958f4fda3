//! The paper's figures, drawn from our series.

use barograph_study::tradeoff::{MeasuredSeries, Predictor, ScoreRow, TradeoffScores, format_period};

use super::long::{DAY_S, Long, PERIODS_S, periodogram, spread};
use crate::figure::{Axis, Chart, Layer, Shape, charts, highest, largest};
use crate::stats::range;

/// Figure 10 on the left and Figure 11 on the right, a row for each series.
pub(crate) fn long(all: &[Long]) -> anyhow::Result<String> {
    let rows: Vec<Chart> = all.iter().flat_map(|long| [figure_10(long), figure_11(long)]).collect();
    charts(&rows, 2)
}

/// Mean absolute errors and the roots of mean squared errors by test period, and the worst offset.
fn figure_10(long: &Long) -> Chart {
    let rows = |predictor: Predictor| long.study.rows.iter().filter(move |row| row.predictor == predictor);
    let mut layers = Vec::new();
    for (colour, predictor) in
        [Predictor::Last, Predictor::Exponential, Predictor::Battery].into_iter().enumerate()
    {
        let points = |of: &dyn Fn(&ScoreRow) -> f64| {
            rows(predictor).map(|row| (row.period_s, long.percent(of(row)))).collect::<Vec<_>>()
        };
        let name = predictor.name();
        layers.push(Layer::new(format!("MAE {name}"), Shape::Line, points(&|row| row.mae().mean), colour));
        layers.push(Layer::new("", Shape::Thin, points(&|row| row.mae().worst), colour));
        if predictor == Predictor::Exponential {
            let roots = points(&|row| row.root_mse().mean);
            layers.push(Layer::new(format!("√MSE {name}"), Shape::Line, roots, 4));
        }
    }
    let top = highest(&layers) * 1.05;
    let measured = &long.study.series[0];
    let bytes: Option<Vec<(f64, f64)>> = rows(Predictor::Last)
        .map(|row| Some((row.period_s, measured.bytes_per_hour(row.period_s)?)))
        .collect();
    let title = format!("Figure 10: {} (thin: worst offset)", long.name);
    let x = periods(long.study.rows.iter().map(|row| row.period_s));
    Chart::new(title, x, Axis::linear("% of the mean", 0.0, top), layers)
        .with_right(bytes.map(|bytes| (bytes_axis(&bytes), bytes)))
}

/// Histogram of the exponential predictor's MAEs over all offsets, for each period.
fn figure_11(long: &Long) -> Chart {
    let shown = [1800.0, 14_400.0, 43_200.0, DAY_S];
    let rows: Vec<_> = shown.iter().filter_map(|s| long.row(*s, Predictor::Exponential)).collect();
    let maes =
        |row: &ScoreRow| row.offsets.iter().map(|errors| long.percent(errors.mae)).collect::<Vec<f64>>();
    let high = largest(rows.iter().flat_map(|row| maes(row))) * 1.02;
    let width = high / BINS as f64;
    let layer = |(colour, row): (usize, &&ScoreRow)| {
        let maes = maes(row);
        let share = |bin: usize| {
            let inside = |mae: &&f64| (**mae / width) as usize == bin;
            100.0 * maes.iter().filter(inside).count() as f64 / maes.len() as f64
        };
        let bars = (0..BINS).map(|bin| ((bin as f64 + 0.5) * width, share(bin))).filter(|bar| bar.1 > 0.0);
        Layer::new(format_period(row.period_s), Shape::Bars(0.8 / BINS as f64), bars.collect(), colour)
    };
    let layers: Vec<Layer> = rows.iter().enumerate().map(layer).collect();
    let title = format!("Figure 11: {}, exponential, over all offsets", long.name);
    let y = Axis::linear("% of the offsets", 0.0, highest(&layers) * 1.05);
    Chart::new(title, Axis::linear("MAE of an offset (% of the mean)", 0.0, high), y, layers)
}

/// Periodogram on the left, spread of the MAE by period on the right.
pub(crate) fn offsets(all: &[Long]) -> anyhow::Result<String> {
    let row = |long: &Long| {
        let base_s = long.grid().base_s;
        let lines: Vec<(f64, f64)> =
            periodogram(long.grid()).into_iter().map(|(slots, power)| (slots * base_s, power)).collect();
        let spreads: Vec<(f64, f64)> = long
            .study
            .periods(0)
            .into_iter()
            .filter_map(|every| Some((every as f64 * base_s, 100.0 * spread(long.grid(), every)?)))
            .collect();
        let ends = (lines[0].0, lines[lines.len() - 1].0);
        let days = [3600.0, 14_400.0, 43_200.0, DAY_S, 2.0 * DAY_S, 7.0 * DAY_S];
        let ticks = days.map(|s| (s, format_period(s))).to_vec();
        let (lines, spreads) =
            ([Layer::new("", Shape::Thin, lines, 0)], [Layer::new("", Shape::Line, spreads, 1)]);
        let share = Axis::linear("share of the variance", 0.0, highest(&lines) * 1.05);
        let deviation = Axis::linear("deviation (% of the mean MAE)", 0.0, highest(&spreads) * 1.05);
        let spread_periods = periods(spreads[0].points.iter().map(|point| point.0));
        [
            Chart::new(
                format!("Periodogram: {}", long.name),
                Axis::log("period", ends.0, ends.1).with_ticks(ticks),
                share,
                lines.into(),
            ),
            Chart::new(
                format!("Spread of the MAE over offsets: {}", long.name),
                spread_periods,
                deviation,
                spreads.into(),
            ),
        ]
    };
    charts(&all.iter().flat_map(row).collect::<Vec<Chart>>(), 2)
}

/// Errors of a campaign by test length, for the shortest and the longest period: figures 3, 7 and
/// 8.
pub(crate) fn by_length(study: &TradeoffScores, title: &str, predictors: &[Predictor]) -> Chart {
    let ends = ends_of(study);
    let mut layers = Vec::new();
    for (i, predictor) in predictors.iter().enumerate() {
        for (j, every) in ends.iter().enumerate() {
            let point = |series: usize| {
                let (row, measured) = (study.row(series, *every, *predictor)?, &study.series[series]);
                Some((measured.length_s?, row))
            };
            let points: Vec<(f64, &ScoreRow)> = (0..study.series.len()).filter_map(point).collect();
            let name = format!("{} {}", predictor.name(), format_period(*every as f64 * BASE_S));
            layers.extend(mae_and_root_mse(study, name, &points, 2 * i + j));
        }
    }
    let lengths = [1.0, 2.0, 5.0, 7.0, 10.0].map(|s| (s, format!("{s}"))).to_vec();
    let x = Axis::linear("test length (s of the paper's time)", 0.0, 10.5).with_ticks(lengths);
    let y = Axis::linear("MAE; thin √MSE (% of the mean)", 0.0, highest(&layers) * 1.05);
    Chart::new(title, x, y, layers)
}

/// Errors of a campaign by test period, a line for each length: figures 4 and 9. The axis of bytes
/// is that of the longest test.
pub(crate) fn by_period(study: &TradeoffScores, title: &str, predictor: Predictor) -> Chart {
    let scale = |every: usize| every as f64 * BASE_S;
    let layers = |(colour, measured): (usize, &MeasuredSeries)| {
        let rows = study.rows.iter().filter(|row| (row.series, row.predictor) == (colour, predictor));
        let points: Vec<(f64, &ScoreRow)> = rows.map(|row| (scale(row.every), row)).collect();
        mae_and_root_mse(study, format!("{:.0} s", measured.length_s.unwrap_or(0.0)), &points, colour)
    };
    let layers: Vec<Layer> = study.series.iter().enumerate().flat_map(layers).collect();
    let longest = study.series.last();
    let bytes: Vec<(f64, f64)> = study
        .periods(0)
        .into_iter()
        .filter_map(|every| Some((scale(every), longest?.bytes_per_hour(scale(every))?)))
        .collect();
    let x = periods(bytes.iter().map(|point| point.0));
    let y = Axis::linear("MAE; thin √MSE (% of the mean)", 0.0, highest(&layers) * 1.05);
    Chart::new(title, x, y, layers).with_right((!bytes.is_empty()).then(|| (bytes_axis(&bytes), bytes)))
}

/// Mean absolute errors with their name, and the roots of mean squared errors as a thin line of the
/// same colour.
fn mae_and_root_mse(
    study: &TradeoffScores,
    name: String,
    points: &[(f64, &ScoreRow)],
    colour: usize,
) -> [Layer; 2] {
    let percent = |of: &dyn Fn(&ScoreRow) -> f64| {
        let at = |(x, row): &(f64, &ScoreRow)| (*x, 100.0 * of(row) / study.series[row.series].grid.mean());
        points.iter().map(at).collect::<Vec<(f64, f64)>>()
    };
    let (mae, root) = (percent(&|row| row.mae().mean), percent(&|row| row.root_mse().mean));
    [Layer::new(name, Shape::Line, mae, colour), Layer::new("", Shape::Thin, root, colour)]
}

/// The base period and the longest scored period, in base periods.
pub(crate) fn ends_of(study: &TradeoffScores) -> Vec<usize> {
    let periods = study.periods(0);
    let mut ends: Vec<usize> = periods.first().into_iter().chain(periods.last()).copied().collect();
    ends.dedup();
    ends
}

fn bytes_axis(bytes: &[(f64, f64)]) -> Axis {
    let (low, high) = range(bytes.iter().map(|point| point.1));
    Axis::log("bytes an hour", low / 1.5, high * 1.5)
}

/// The axis of test periods.
fn periods(seconds: impl Iterator<Item = f64> + Clone) -> Axis {
    let (low, high) = range(seconds);
    let shown = [300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0];
    let ticks = PERIODS_S.into_iter().filter(|s| shown.contains(s)).map(|s| (s, format_period(s))).collect();
    Axis::log("test period", low / 1.15, high * 1.15).with_ticks(ticks)
}

/// "five minutes between tests" of one length (§4).
pub(crate) const BASE_S: f64 = 300.0;

/// The most bars that can be distinguished.
const BINS: usize = 40;
