//! The long series: figures 10 and 11, and the errors of shifted subsamples.

use std::f64::consts::TAU;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::Context as _;
use barograph_sim::SeededRng;
use barograph_study::tradeoff::{
    Grid, MeasuredSeries, OffsetStatistics, Predictor, ReadOptions, ScoreRow, TradeoffScores, format_period,
    read,
};

use crate::stats::{Rank, mean_of_some, population_deviation, quantile, sorted};
use crate::table::{Table, cells, dash, number, shown};

pub(crate) struct Long {
    /// Name of the series; says if it is synthetic.
    pub(crate) name: String,
    /// The study of this series alone.
    pub(crate) study: TradeoffScores,
    /// Number of base periods in a day.
    pub(crate) slots_a_day: usize,
}

impl Long {
    /// The synthetic series, as if measured by tests of 10 s.
    pub(crate) fn synthetic(seed: u64) -> Self {
        let grid = series(seed, 1.0);
        let name = format!("SYNTHETIC bandwidth, seed {seed}");
        Self::of(MeasuredSeries { name, length_s: Some(10.0), bit_per_s: Some(1e6), grid }, seed)
    }

    pub(crate) fn of_file(path: &Path, seed: u64) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let options = ReadOptions { name: &name, ..ReadOptions::default() };
        let series = read(BufReader::new(file), &options);
        let measured = series.with_context(|| format!("cannot read {}", path.display()))?.into_iter().next();
        Ok(Self::of(measured.with_context(|| format!("{} has no series", path.display()))?, seed))
    }

    fn of(measured: MeasuredSeries, seed: u64) -> Self {
        let slots_a_day = (DAY_S / measured.grid.base_s).round() as usize;
        let name = measured.name.clone();
        let study = TradeoffScores::of(vec![measured], &PERIODS_S, seed, &|| {});
        Self { name, study, slots_a_day }
    }

    pub(crate) fn grid(&self) -> &Grid {
        &self.study.series[0].grid
    }

    pub(crate) fn row(&self, period_s: f64, predictor: Predictor) -> Option<&ScoreRow> {
        let every = (period_s / self.grid().base_s).round().max(1.0) as usize;
        self.study.row(0, every, predictor)
    }

    pub(crate) fn percent(&self, number: f64) -> f64 {
        100.0 * number / self.grid().mean()
    }
}

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
            let over = |over: Option<OffsetStatistics>| {
                shown(over, |over| {
                    let [mean, spread, worst] = [over.mean, over.spread, over.worst].map(|x| long.percent(x));
                    format!("{mean:.2} ± {spread:.2}, {worst:.2}")
                })
            };
            let period_s = every as f64 * grid.base_s;
            let mut cells = vec![format_period(period_s)];
            cells.extend(rows().map(|row| over(row.map(ScoreRow::mae))));
            cells.extend(rows().map(|row| over(row.map(ScoreRow::root_mse))));
            let bytes = long.study.series[0].bytes_per_hour(period_s);
            cells.push(shown(bytes, |bytes| format!("{bytes:.3e}")));
            table.push(cells);
        }
        text += &table.to_string();
    }
    text
}

pub(crate) fn statements(long: &Long) -> Vec<Statement> {
    let mut statements = Vec::new();
    let mut say = said_of(&long.name, &mut statements);
    let mae = |period_s, predictor| Some(long.percent(long.row(period_s, predictor)?.mae().mean));
    let [base, hour, day] = [300.0, HOUR_S, DAY_S].map(|period_s| mae(period_s, Predictor::Exponential));
    say(
        "beyond one hour the MAE rises more quickly (exponential, in % of the mean: to 1 h, then to 24 h)",
        hour.zip(base).zip(day).map(|((hour, base), day)| {
            (format!("+{:.2}, +{:.2} points", hour - base, day - hour), hour - base < day - hour)
        }),
    );
    for predictor in [Predictor::Last, Predictor::Exponential] {
        let name = predictor.name();
        say(&rise(name), risen(mae(300.0, predictor), mae(HOUR_S, predictor)));
        let day = mae(DAY_S, predictor);
        say(
            &format!("under 20 % of the mean at 24 h ({name})"),
            day.map(|mae| (format!("{mae:.2} %"), mae < 20.0)),
        );
    }
    let worst = long.row(DAY_S, Predictor::Exponential).map(|row| long.percent(row.mae().worst));
    say(
        "the worst offset at 24 h about 25 % of the mean (exponential; holds: up to 30 %)",
        worst.map(|worst| (format!("{worst:.2} %"), worst <= 30.0)),
    );
    let spreads =
        long.study.periods(0).into_iter().filter_map(|every| Some((every, spread(long.grid(), every)?)));
    let widest = spreads.max_by(|a, b| a.1.total_cmp(&b.1));
    say(
        "the widest variability over the offsets is that of 24 h",
        widest.map(|(every, share)| {
            let period = format_period(every as f64 * long.grid().base_s);
            (format!("{period} (± {:.1} % of its mean)", 100.0 * share), every == long.slots_a_day)
        }),
    );
    if let Some((base, hour, day)) = bytes(long) {
        let (first, second) = (base / hour, hour / day);
        let holds = (first - 12.0).abs() < 0.1 && (second - 24.0).abs() < 0.1;
        let found = Some((format!("{first:.2}, {second:.2}"), holds));
        say("12 × fewer bytes from 5 min to 1 h, 24 × from 1 h to 24 h", found);
    }
    drop(say);
    statements
}

/// A statement of Gloperf §4 on one series: the series, the statement, and what was found here with
/// whether it agrees; `None` if it was not computed.
pub(crate) type Statement = (String, String, Option<(String, bool)>);

/// Returns a function that adds statements on this series to `statements`.
pub(crate) fn said_of<'a>(
    series: &'a str,
    statements: &'a mut Vec<Statement>,
) -> impl FnMut(&str, Option<(String, bool)>) + 'a {
    |says, found| statements.push((series.to_owned(), says.to_owned(), found))
}

/// The statement "about +10 %" of the MAE, with the bounds that count as agreement.
pub(crate) fn rise(of: &str) -> String {
    format!("about +10 % MAE from 5 min to 1 h ({of}; holds: 0 to 20 %)")
}

pub(crate) fn risen(base: Option<f64>, hour: Option<f64>) -> Option<(String, bool)> {
    let ratio = hour? / base?;
    Some((format!("{:+.1} %", 100.0 * (ratio - 1.0)), (1.0..=1.2).contains(&ratio)))
}

pub(crate) fn statements_table(statements: &[Statement]) -> Table {
    let mut table = Table::new(["series", "the paper says (§4)", "here", "holds"]);
    for (series, says, found) in statements {
        let (here, holds) = match found {
            Some((here, holds)) => (here.as_str(), if *holds { "yes" } else { "no" }),
            None => ("not computed", "–"),
        };
        table.push(cells![series, says, here, holds]);
    }
    table
}

fn bytes(long: &Long) -> Option<(f64, f64, f64)> {
    let of = |period_s| long.study.series[0].bytes_per_hour(long.row(period_s, Predictor::Last)?.period_s);
    Some((of(300.0)?, of(HOUR_S)?, of(DAY_S)?))
}

/// The second open question: the power of a daily line beside the spread of the errors over the
/// offsets.
pub(crate) fn offsets(all: &[Long], seed: u64) -> String {
    let mut table = Table::titled(
        "series | period | daily line | half-daily line | spread | shuffled: median, 95th | chance | \
         days rotated: median, 95th | chance",
    );
    for long in all {
        let day = long.slots_a_day;
        let lines = [day as f64, day as f64 / 2.0].map(|period| format!("{:.4}", power(long.grid(), period)));
        for period_s in [HOUR_S, 8.0 * HOUR_S, DAY_S] {
            let every = (period_s / long.grid().base_s).round().max(1.0) as usize;
            let mut row = vec![long.name.clone(), format_period(every as f64 * long.grid().base_s)];
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
    let mut table =
        Table::titled("SYNTHETIC, daily cycle × | daily line | spread at 24 h | MAE at 24 h, % of the mean");
    for depth in [0.0, 0.5, 1.0, 2.0, 3.0] {
        let grid = series(seed, depth);
        let every = SLOTS_A_DAY;
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

/// Share of the variance that a sine of this period explains, 0 to 1; slots without a value are
/// left out.
///
/// This is the least-squares periodogram (Lomb 1976), which permits gaps; the mean is subtracted
/// first.
pub(crate) fn power(grid: &Grid, period_slots: f64) -> f64 {
    let mean = grid.mean();
    let (mut cc, mut ss, mut cs, mut yc, mut ys, mut yy) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
    for (index, value) in
        grid.slots.iter().enumerate().filter_map(|(index, slot)| slot.map(|v| (index, v - mean)))
    {
        let (sin, cos) = (TAU * index as f64 / period_slots).sin_cos();
        cc += cos * cos;
        ss += sin * sin;
        cs += cos * sin;
        yc += value * cos;
        ys += value * sin;
        yy += value * value;
    }
    let determinant = cc * ss - cs * cs;
    if determinant <= 0.0 || yy <= 0.0 {
        return 0.0;
    }
    ((yc * yc * ss - 2.0 * yc * ys * cs + ys * ys * cc) / determinant / yy).clamp(0.0, 1.0)
}

/// The periodogram at periods from an hour to a quarter of the series, in equal steps of the
/// logarithm: periods in slots and shares of the variance.
pub(crate) fn periodogram(grid: &Grid) -> Vec<(f64, f64)> {
    let (shortest, longest) = (3600.0 / grid.base_s, grid.slots.len() as f64 / 4.0);
    let at = |i: usize| shortest * (longest / shortest).powf(i as f64 / (LINES - 1) as f64);
    (0..LINES).map(at).map(|period| (period, power(grid, period))).collect()
}

/// Standard deviation over the offsets of the exponential predictor's MAE, as a share of its mean.
pub(crate) fn spread(grid: &Grid, every: usize) -> Option<f64> {
    let errors = (0..every).filter_map(|offset| Predictor::Exponential.errors(grid, every, offset, 0));
    let maes: Vec<f64> = errors.map(|errors| errors.mae).collect();
    let mean = mean_of_some(&maes)?;
    (mean > 0.0).then(|| population_deviation(&maes) / mean)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Null {
    /// The values in random order: no memory and no line.
    Shuffled,
    /// Each day rotated by a random number of hours: the memory within days stays, but the hour of
    /// the day has no meaning.
    Turned,
}

impl Null {
    fn draw(self, grid: &Grid, slots_a_day: usize, rng: &mut SeededRng) -> Grid {
        let mut slots = grid.slots.clone();
        match self {
            Self::Shuffled => {
                let filled: Vec<usize> = (0..slots.len()).filter(|index| slots[*index].is_some()).collect();
                for last in (1..filled.len()).rev() {
                    slots.swap(filled[last], filled[rng.index_below(last + 1)]);
                }
            }
            Self::Turned => {
                slots.chunks_mut(slots_a_day).for_each(|day| day.rotate_left(rng.index_below(day.len())))
            }
        }
        Grid { slots, ..grid.clone() }
    }

    /// Median and 95th percentile of the spread of such series, and the share of them with at least
    /// the spread of `grid`. The series itself counts among them, so the share is never 0.
    pub(crate) fn test(self, grid: &Grid, every: usize, slots_a_day: usize, seed: u64) -> Option<Tested> {
        let observed = spread(grid, every)?;
        let mut rng = SeededRng::new(seed, 77);
        let draw = |_| spread(&self.draw(grid, slots_a_day, &mut rng), every);
        let drawn = sorted((0..DRAWS).filter_map(draw));
        let at_least = drawn.iter().filter(|spread| observed <= **spread).count();
        let at = |share: f64| quantile(&drawn, share, Rank::Above);
        let chance = (at_least + 1) as f64 / (drawn.len() + 1) as f64;
        Some(Tested { observed, median: at(0.5)?, high: at(0.95)?, chance })
    }
}

/// A spread beside those of series without the line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tested {
    pub(crate) observed: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
    /// Share of the other series with a spread at least as large.
    pub(crate) chance: f64,
}

/// Enough to distinguish a chance of 1 % from one of 5 %.
const DRAWS: usize = 200;

/// As many periods as a figure can show.
const LINES: usize = 300;

/// A series of 28.8 days at 300 s in Mbit/s: level shifts × daily cycle × slow and fast noise ×
/// dips, with outages.
///
/// The paper's trace "contained 69751 high-frequency tests over a 28.8 day period", subsampled to
/// "7163 tests at a test period of 300 seconds over the same 28.8 days" (§4). 28.8 days have
/// [`SLOTS`] periods of 300 s, so 1131 of them have no test; here random outages leave exactly that
/// many without a value. `daily` multiplies the depth of the daily cycle.
pub(crate) fn series(seed: u64, daily: f64) -> Grid {
    // Each ingredient has its own random stream, so that one can change without the others.
    let [mut shifts, mut slow, mut fast, mut dips, mut outages] =
        [1, 2, 3, 4, 5].map(|stream| SeededRng::new(seed, stream));
    let (mut level, mut shift_at) = (LEVEL_MBPS, shifts.exponential(SHIFT_EVERY));
    let (mut state, mut dip, mut dip_left) = (0.0, 1.0, 0_u32);
    let mut values = Vec::with_capacity(SLOTS);
    for slot in 0..SLOTS {
        if shift_at <= slot as f64 {
            level = LEVEL_MBPS * (SHIFT_SIZE * shifts.normal()).exp();
            shift_at += shifts.exponential(SHIFT_EVERY);
        }
        let hour = TAU * (slot as f64 / SLOTS_A_DAY as f64 - BUSIEST_DAY);
        let cycle = 1.0 - daily * DAILY_DEPTH * (1.0 + hour.cos()) / 2.0;
        state = MEMORY * state + (1.0 - MEMORY * MEMORY).sqrt() * slow.normal();
        let noise = (SLOW_NOISE * state + FAST_NOISE * fast.normal()).exp();
        if dip_left == 0 {
            dip = 1.0;
            if dips.bernoulli(DIP_CHANCE) {
                dip_left = 1 + dips.exponential(DIP_SLOTS) as u32;
                dip = 1.0 / (1.0 + dips.pareto(DIP_SHAPE));
            }
        }
        dip_left = dip_left.saturating_sub(1);
        values.push(Some(level * cycle.max(0.0) * noise * dip));
    }
    let mut blank = 0;
    while blank < SLOTS - TESTS {
        let (from, length) = (outages.index_below(SLOTS), 1 + outages.exponential(OUTAGE_SLOTS) as usize);
        // The first and last slot keep their values, so that the series is as long as the paper's.
        for slot in values.iter_mut().take(SLOTS - 1).skip(from.max(1)).take(length) {
            if blank < SLOTS - TESTS && slot.take().is_some() {
                blank += 1;
            }
        }
    }
    Grid { base_s: 300.0, slots: values, duplicates: 0 }
}

/// Periods of 300 s in 28.8 days, and the paper's tests in them.
pub(crate) const SLOTS: usize = 8294;
pub(crate) const TESTS: usize = 7163;
pub(crate) const SLOTS_A_DAY: usize = 288;

/// Any level would do, because errors are shares of the mean; this one is near that of a path of
/// 1999.
const LEVEL_MBPS: f64 = 5.0;

/// Three days between shifts on average: routes change after days rather than hours. Paxson
/// ("End-to-End Routing Behavior in the Internet", 1997) found that two thirds of paths had a route
/// that persisted for days or weeks. A new path differs by about a fifth: enough to be a shift, too
/// little to be another kind of link.
const SHIFT_EVERY: f64 = 3.0 * SLOTS_A_DAY as f64;
const SHIFT_SIZE: f64 = 0.2;

/// The rate is a quarter lower in the busiest hour, in the afternoon, than in the quietest: a
/// shared link of working people.
const DAILY_DEPTH: f64 = 0.25;
const BUSIEST_DAY: f64 = 15.0 / 24.0;

/// Queues and other flows come and go within an hour (0.92 per 300 s is e⁻¹ after an hour). The
/// noise of a single test is as large.
const MEMORY: f64 = 0.92;
const SLOW_NOISE: f64 = 0.1;
const FAST_NOISE: f64 = 0.1;

/// One period in fifty begins a dip of about ten minutes. Its depth has the tail of a Lomax
/// distribution of shape 2: half of the dips cost over 29 %, one in a hundred over 90 %.
const DIP_CHANCE: f64 = 0.02;
const DIP_SLOTS: f64 = 2.0;
const DIP_SHAPE: f64 = 2.0;

/// A host that is down is down for hours: three on average.
const OUTAGE_SLOTS: f64 = 36.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(value: impl Fn(usize) -> f64) -> Grid {
        let slots = (0..2880).map(|i| (i % 7 != 0).then(|| value(i))).collect();
        Grid { base_s: 300.0, slots, duplicates: 0 }
    }

    #[test]
    fn the_power_of_a_cycle_is_at_its_period() {
        let daily = grid(|i| 10.0 + 3.0 * (TAU * i as f64 / 288.0 + 1.0).cos());
        // With gaps the mean of the sine is not exactly its middle.
        assert!((power(&daily, 288.0) - 1.0).abs() < 1e-4);
        assert!(power(&daily, 144.0) < 0.01);
        let strongest = periodogram(&daily).into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        assert!((strongest.0 / 288.0 - 1.0).abs() < 0.05, "{strongest:?}");
        assert_eq!(power(&grid(|_| 4.0), 288.0), 0.0);
    }

    #[test]
    fn errors_that_depend_on_the_hour_are_detected_and_chance_is_not() {
        let mut rng = SeededRng::new(1, 0);
        let noise: Vec<f64> = (0..2880).map(|_| rng.normal()).collect();
        let quiet = grid(|i| 100.0 + noise[i]);
        let tested = Null::Turned.test(&quiet, 288, 288, 1).unwrap();
        assert!(tested.chance > 0.01, "{tested:?}");
        // Ten times the noise in the afternoon.
        let loud = grid(|i| 100.0 + noise[i] * if i % 288 >= 144 { 10.0 } else { 1.0 });
        let tested = Null::Turned.test(&loud, 288, 288, 1).unwrap();
        assert!(tested.chance < 0.01 && tested.high < tested.observed, "{tested:?}");
    }

    #[test]
    fn the_series_has_the_length_and_the_gaps_of_the_paper() {
        let grid = series(1, 1.0);
        assert_eq!((grid.slots.len(), grid.values().count(), grid.blanks()), (SLOTS, TESTS, SLOTS - TESTS));
        assert!(grid.values().all(|value| value.is_finite() && value > 0.0));
        assert_eq!(grid, series(1, 1.0), "the same seed gives the same series");
        assert_ne!(grid, series(2, 1.0));
        // Only the daily cycle differs; outages and everything else are the same.
        let flat = series(1, 0.0);
        let ratios: Vec<f64> =
            grid.values().zip(flat.values()).map(|(with, without)| with / without).collect();
        assert!(ratios.iter().all(|ratio| (1.0 - DAILY_DEPTH - 1e-12..=1.0 + 1e-12).contains(ratio)));
    }
}
