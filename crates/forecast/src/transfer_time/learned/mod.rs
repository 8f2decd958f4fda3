//! Times in which a series of rates moves an amount, learned from transfers that are replayed on
//! the series itself (docs/spec/transfer-time.md, Learned times).

mod rates;
mod rung;
mod similar;

use alloc::vec::Vec;

use libm::{ceil, exp, floor, log, log2};

use crate::SCORED_MIN_FOR_INTERVAL;
use crate::gap::GAP;
use rates::{FadingRates, MeanTimes};
use rung::{LatestValue, Rung};
use similar::Scratch;

/// Distribution of the time of a transfer, in logarithms, for amounts of a geometric ladder.
///
/// A virtual transfer of each amount begins at past values, and ends when the series has moved its
/// amount. The ratio of its time to the time that was forecast is an error. The quantiles of the
/// errors of transfers that began in a similar state are the quantiles of the next one.
#[derive(Clone, Debug, Default)]
pub(crate) struct LearnedTimes {
    rates: FadingRates,
    means: MeanTimes,
    /// In ascending order of the amounts.
    rungs: Vec<Rung>,
    /// Amount that the series moved since the start (unit · s).
    moved: f64,
    /// Number of values that were learned.
    count: u64,
    latest_s: Option<f64>,
    scratch: Scratch,
}

impl LearnedTimes {
    /// Learns that the rate since the value before was `value`. `period_s` is the median time
    /// between values. `means` are forecasts: the next value, and pairs of a number of seconds and
    /// the mean over them. A pair that is not above the one before is ignored.
    pub(crate) fn update(
        &mut self,
        value: f64,
        time_s: f64,
        period_s: Option<f64>,
        (next, means): (f64, impl Iterator<Item = (f64, f64)>),
    ) {
        let elapsed_s = self.latest_s.map(|latest_s| time_s - latest_s);
        self.latest_s = time_s.is_finite().then_some(time_s);
        let Some(elapsed_s) = elapsed_s.filter(|elapsed_s| 0.0 <= *elapsed_s && elapsed_s.is_finite()) else {
            // No transfer is measured across a change of the clock.
            self.rungs.iter_mut().for_each(Rung::drop_waiting);
            return;
        };
        let Some(period_s) = period_s else { return };
        // A value does not show the rate in a gap before it.
        let elapsed_s = elapsed_s.min(GAP * period_s);
        self.count += 1;
        let before = self.moved;
        self.moved += value.max(0.0) * elapsed_s;
        self.rates.learn(value.max(0.0), elapsed_s, period_s);
        if self.rates.average() <= 0.0 {
            return;
        }
        self.means.set(period_s, self.rates.floor(), next, means);
        let latest = LatestValue {
            count: self.count,
            time_s: self.rates.age_s(),
            elapsed_s,
            period_s,
            moved_before: before,
            moved: self.moved,
            rates: self.rates.logs(),
            variations: self.rates.variations(),
        };
        let least = self.adjust_rungs(period_s);
        let mut prior = PRIOR;
        for rung in &mut self.rungs {
            rung.learn(&latest);
            if rung.exponent() < least {
                rung.pause(latest.count);
                continue;
            }
            rung.forecast(&latest, &self.means, &prior, &mut self.scratch);
            prior = rung.raw_ends();
        }
    }

    /// Adds and removes rungs as the rates and the amount moved so far need, and returns the
    /// exponent of the least active one.
    fn adjust_rungs(&mut self, period_s: f64) -> i32 {
        let exponent = |amount: f64| log2(amount.max(AMOUNT_MIN)) / RUNG_BITS;
        let least = ceil(exponent(LEAST_PERIODS * self.rates.slow() * period_s)) as i32;
        let most = (floor(exponent(AHEAD * self.moved)) as i32).min(least + RUNGS_UP);
        self.rungs.retain(|rung| (least - RUNGS_DOWN..=least + RUNGS_UP).contains(&rung.exponent()));
        for exponent in least..=most {
            if let Err(at) = self.rungs.binary_search_by_key(&exponent, Rung::exponent) {
                self.rungs.insert(at, Rung::new(exponent, self.count));
            }
        }
        least
    }

    /// The logarithms of amounts (unit · s), and of the times (s) that the share `share` of their
    /// transfers takes at most, both ascending; empty until one rung is calibrated.
    fn curve(&self, share: f64) -> impl Iterator<Item = (f64, f64)> + '_ {
        // A lower rung that was added when the rates fell has fewer errors than the next one.
        let first = self.rungs.iter().position(|rung| rung.is_known() && ENDED_MIN <= rung.ended());
        let known = self.rungs[first.unwrap_or(self.rungs.len())..].iter().filter(|rung| rung.is_known());
        let mut most = f64::NEG_INFINITY;
        known.map(move |rung| {
            // A larger amount does not take less time.
            most = rung.ln_time(share).max(most);
            (rung.ln_amount(), most)
        })
    }

    /// The time (s) in which the share `share` of transfers moves `amount` (unit · s); does not
    /// fall with the amount. `None` until enough transfers have ended.
    pub(crate) fn time_s(&self, amount: f64, share: f64) -> Option<f64> {
        on_curve(self.curve(share), log(amount)).map(exp)
    }

    /// The largest mean rate that the share `share` of transfers reaches over `seconds`; at 0 s,
    /// over the next value. `None` until enough transfers have ended, and for infinite `seconds`.
    pub(crate) fn rate(&self, seconds: f64, share: f64) -> Option<f64> {
        let ln_seconds = log(seconds.max(rung::TIME_MIN_S));
        if !ln_seconds.is_finite() {
            return None;
        }
        let by_time = self.curve(share).map(|(ln_amount, ln_time)| (ln_time, ln_amount));
        on_curve(by_time, ln_seconds).map(|ln_amount| exp(ln_amount - ln_seconds))
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let rungs = self.rungs.iter().map(Rung::heap_bytes).sum::<usize>();
        rungs
            + self.rungs.capacity() * size_of::<Rung>()
            + self.means.heap_bytes()
            + self.scratch.heap_bytes()
    }
}

/// The ordinate at `x` on the lines between points in ascending order. Below the first and above
/// the last one, abscissa and ordinate grow alike: these are logarithms of proportional numbers.
/// `None` without a point.
fn on_curve(points: impl Iterator<Item = (f64, f64)>, x: f64) -> Option<f64> {
    let mut before: Option<(f64, f64)> = None;
    for point in points {
        if x <= point.0 {
            return Some(match before {
                None => point.1 + x - point.0,
                Some(before) => between(before, point, x),
            });
        }
        before = Some(point);
    }
    before.map(|point| point.1 + x - point.0)
}

/// The ordinate at `x` on the line through two points with ascending coordinates, and between
/// theirs. It does not fall if an ordinate of a point grows, not even by rounding.
fn between(before: (f64, f64), after: (f64, f64), x: f64) -> f64 {
    let share = (x - before.0) / (after.0 - before.0);
    ((1.0 - share) * before.1 + share * after.1).max(before.1).min(after.1)
}

// The constants were chosen on the first halves of the open traces of goodput and on simulated
// series. All of them may be doubled or halved with little effect.

/// Binary logarithm of the ratio of an amount to the one before it: a factor of four. With a factor
/// of two, the pinball loss of the ends was no lower.
const RUNG_BITS: f64 = 2.0;
/// Least amount, in typical rates times periods. Within one value, times are proportional to the
/// amount, unless the rate may be 0: an interruption delays a small amount as much as a large one.
const LEAST_PERIODS: f64 = 1.0 / 64.0;
/// Largest amount, in amounts moved so far. Larger transfers would not end for long.
const AHEAD: f64 = 16.0;
/// Rungs that are kept above and below the least active one: at least 67 million periods, and rates
/// that were 256 times lower.
const RUNGS_UP: i32 = 16;
const RUNGS_DOWN: i32 = 4;
/// Amounts below count as this one, so that an exponent is a small number.
const AMOUNT_MIN: f64 = 1e-30;
/// Transfers that must have ended before there is a forecast, as for intervals.
const ENDED_MIN: u64 = SCORED_MIN_FOR_INTERVAL;
/// Ends before any transfer has ended: between a seventh and seven times the forecast.
const PRIOR: [f64; similar::LEVELS.len()] = [-2.0, -1.4, -1.0, -0.5, -0.2, 0.0, 0.2, 0.5, 1.0, 1.4, 2.0];
