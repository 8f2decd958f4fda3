//! The long series: figures 10 and 11, and the errors of shifted subsamples.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::Context as _;
use barograph_study::tradeoff::{Grid, Measured, Over, Predictor, Row, Source, Study, read, shown_s};

use super::periodicity::{Null, Tested, power, spread};
use super::statements::Statement;
use super::synthetic;
use crate::stats::mean_of_some;
use crate::table::{Table, cells, dash, number, shown};

/// One series with its errors at the paper's periods.
pub(crate) struct Long {
    /// With what it is, where it is no measurement.
    pub(crate) name: String,
    /// A study of this series alone.
    pub(crate) study: Study,
    /// How many base periods a day has.
    pub(crate) slots_a_day: usize,
}

impl Long {
    /// The synthetic series, as if measured by tests of 10 s.
    pub(crate) fn synthetic(seed: u64) -> Self {
        let grid = synthetic::series(seed, 1.0);
        let name = format!("SYNTHETIC bandwidth, seed {seed}");
        Self::of(Measured { name, length_s: Some(10.0), bit_per_s: Some(1e6), grid }, seed)
    }

    /// The series of a file of round-trip times in ms.
    pub(crate) fn of_file(path: &Path, seed: u64) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let source = Source { name: &name, ..Source::default() };
        let series = read(BufReader::new(file), &source);
        let measured = series.with_context(|| format!("cannot read {}", path.display()))?.into_iter().next();
        Ok(Self::of(measured.context("a file that was read has a series")?, seed))
    }

    fn of(measured: Measured, seed: u64) -> Self {
        let slots_a_day = (DAY_S / measured.grid.base_s).round() as usize;
        let name = measured.name.clone();
        let study = Study::of(vec![measured], &PERIODS_S, seed, &|| {});
        Self { name, study, slots_a_day }
    }

    pub(crate) fn grid(&self) -> &Grid {
        &self.study.series[0].grid
    }

    pub(crate) fn row(&self, period_s: f64, predictor: Predictor) -> Option<&Row> {
        let every = (period_s / self.grid().base_s).round().max(1.0) as usize;
        self.study.row(0, every, predictor)
    }

    /// A number of the unit of the values in % of the mean.
    pub(crate) fn percent(&self, number: f64) -> f64 {
        100.0 * number / self.grid().mean()
    }
}

/// Figures 10 and 11 as a table of each series.
pub(crate) fn tables(all: &[Long]) -> String {
    let mut text = String::new();
    for long in all {
        let grid = long.grid();
        text += &format!(
            "\n### {}\n\n{} of {} periods of {:.0} s have a value, {} are blank. % of the mean; mean ± deviation over \
             all offsets, then the worst.\n\n",
            long.name,
            grid.values().count(),
            grid.slots.len(),
            grid.base_s,
            grid.blanks()
        );
        let mut table = Table::new(["period"])
            .and(Predictor::ALL.map(|predictor| format!("MAE {}", predictor.name())))
            .and(Predictor::ALL.map(|predictor| format!("√MSE {}", predictor.name())))
            .and(["bytes/h"]);
        for every in long.study.periods(0) {
            let rows = || Predictor::ALL.into_iter().map(|predictor| long.study.row(0, every, predictor));
            let over = |over: Option<Over>| {
                shown(over, |over| {
                    let [mean, spread, worst] = [over.mean, over.spread, over.worst].map(|x| long.percent(x));
                    format!("{mean:.2} ± {spread:.2}, {worst:.2}")
                })
            };
            let period_s = every as f64 * grid.base_s;
            let mut cells = vec![shown_s(period_s)];
            cells.extend(rows().map(|row| over(row.map(Row::mae))));
            cells.extend(rows().map(|row| over(row.map(Row::root_mse))));
            let bytes = long.study.series[0].bytes_per_hour(period_s);
            cells.push(shown(bytes, |bytes| format!("{bytes:.3e}")));
            table.push(cells);
        }
        text += &table.to_string();
    }
    text
}

/// What the paper says of its long trace, and what holds here.
pub(crate) fn statements(long: &Long) -> Vec<Statement> {
    let mae = |period_s, predictor| Some(long.percent(long.row(period_s, predictor)?.mae().mean));
    let over_hour = |predictor| Some(mae(HOUR_S, predictor)? / mae(300.0, predictor)?);
    let worst = Predictor::Exponential;
    let worst = long.row(DAY_S, worst).map(|row| long.percent(row.mae().worst));
    let mut statements = vec![Statement::new(
        &long.name,
        "beyond one hour the MAE rises more quickly (exponential, in % of the mean: to 1 h, then to 24 h)",
        mae(HOUR_S, Predictor::Exponential)
            .zip(mae(300.0, Predictor::Exponential))
            .zip(mae(DAY_S, Predictor::Exponential))
            .map(|((hour, base), day)| {
                (format!("+{:.2}, +{:.2} points", hour - base, day - hour), hour - base < day - hour)
            }),
    )];
    for predictor in [Predictor::Last, Predictor::Exponential] {
        let name = predictor.name();
        statements.push(Statement::new(
            &long.name,
            format!("about +10 % MAE from 5 min to 1 h ({name}; holds: 0 to 20 %)"),
            over_hour(predictor)
                .map(|ratio| (format!("{:+.1} %", 100.0 * (ratio - 1.0)), (1.0..=1.2).contains(&ratio))),
        ));
        statements.push(Statement::new(
            &long.name,
            format!("under 20 % of the mean at 24 h ({name})"),
            mae(DAY_S, predictor).map(|mae| (format!("{mae:.2} %"), mae < 20.0)),
        ));
    }
    statements.push(Statement::new(
        &long.name,
        "the worst offset at 24 h about 25 % of the mean (exponential; holds: up to 30 %)",
        worst.map(|worst| (format!("{worst:.2} %"), worst <= 30.0)),
    ));
    let spreads =
        long.study.periods(0).into_iter().filter_map(|every| Some((every, spread(long.grid(), every)?)));
    let widest = spreads.max_by(|a, b| a.1.total_cmp(&b.1));
    statements.push(Statement::new(
        &long.name,
        "the widest variability over the offsets is that of 24 h",
        widest.map(|(every, share)| {
            let period = shown_s(every as f64 * long.grid().base_s);
            (format!("{period} (± {:.1} % of its mean)", 100.0 * share), every == long.slots_a_day)
        }),
    ));
    if let Some((base, hour, day)) = bytes(long) {
        let (first, second) = (base / hour, hour / day);
        let holds = (first - 12.0).abs() < 0.1 && (second - 24.0).abs() < 0.1;
        let said = Some((format!("{first:.2}, {second:.2}"), holds));
        statements.push(Statement::new(
            &long.name,
            "12 × fewer bytes from 5 min to 1 h, 24 × from 1 h to 24 h",
            said,
        ));
    }
    statements
}

fn bytes(long: &Long) -> Option<(f64, f64, f64)> {
    let of = |period_s| long.study.series[0].bytes_per_hour(long.row(period_s, Predictor::Last)?.period_s);
    Some((of(300.0)?, of(HOUR_S)?, of(DAY_S)?))
}

/// The second open question: a daily line's power beside the spread of the errors over the offsets.
pub(crate) fn offsets(all: &[Long], seed: u64) -> String {
    let mut table = Table::new([
        "series",
        "period",
        "daily line",
        "half-daily line",
        "spread",
        "shuffled: median, 95th",
        "chance",
        "days turned: median, 95th",
        "chance",
    ]);
    for long in all {
        let day = long.slots_a_day;
        let lines = [day as f64, day as f64 / 2.0].map(|period| format!("{:.4}", power(long.grid(), period)));
        for period_s in [HOUR_S, 8.0 * HOUR_S, DAY_S] {
            let every = (period_s / long.grid().base_s).round().max(1.0) as usize;
            let mut row = vec![long.name.clone(), shown_s(every as f64 * long.grid().base_s)];
            row.extend(lines.clone());
            let tests = [Null::Shuffled, Null::Turned].map(|null| null.test(long.grid(), every, day, seed));
            let share = |share: f64| format!("{:.1} %", 100.0 * share);
            row.push(shown(tests[0], |tested| share(tested.observed)));
            for tested in tests {
                let cells = tested.map(|Tested { median, high, chance, .. }| {
                    [format!("{}, {}", share(median), share(high)), format!("{chance:.3}")]
                });
                row.extend(cells.unwrap_or_else(|| [dash(), dash()]));
            }
            table.push(row);
        }
    }
    format!(
        "{table}\nLine: share of the variance (0 to 1). Spread: deviation over the offsets of the exponential predictor's \
         MAE ÷ its mean. Chance: the share of 200 series without a line that spread at least as much.\n\n{}",
        depths(seed)
    )
}

/// The same synthetic series with daily cycles of other depths.
fn depths(seed: u64) -> Table {
    let mut table = Table::new([
        "SYNTHETIC, daily cycle ×",
        "daily line",
        "spread at 24 h",
        "MAE at 24 h, % of the mean",
    ]);
    for depth in [0.0, 0.5, 1.0, 2.0, 3.0] {
        let grid = synthetic::series(seed, depth);
        let every = synthetic::SLOTS_A_DAY;
        let spread = shown(spread(&grid, every), |share| format!("{:.1} %", 100.0 * share));
        let errors =
            (0..every).filter_map(|offset| Predictor::Exponential.errors(&grid, every, offset, seed));
        let mae = mean_of_some(&errors.map(|errors| errors.mae).collect::<Vec<f64>>()).unwrap_or(0.0);
        let line = format!("{:.4}", power(&grid, every as f64));
        table.push(cells![depth, line, spread, number(Some(100.0 * mae / grid.mean()), 2)]);
    }
    table
}

pub(crate) const HOUR_S: f64 = 3600.0;
pub(crate) const DAY_S: f64 = 86_400.0;

/// "test periods of 5, 10, 15, 30, 45, 60 minutes and 2, 4, 8, 12, 24 hours" (§4).
pub(crate) const PERIODS_S: [f64; 11] =
    [300.0, 600.0, 900.0, 1800.0, 2700.0, 3600.0, 7200.0, 14_400.0, 28_800.0, 43_200.0, 86_400.0];
