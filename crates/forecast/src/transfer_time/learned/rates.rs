//! Means of past rates over times of different length, and the times that forecasts of means give.

use alloc::vec::Vec;

use libm::{expm1, log};

/// Number of fading means.
pub(super) const MEMORIES: usize = 8;

/// Fading means of a rate, weighted by time, and of the changes of its logarithm.
#[derive(Clone, Debug, Default)]
pub(super) struct FadingRates {
    means: [f64; MEMORIES],
    changes: [f64; MEMORIES],
    ln_latest: Option<f64>,
    age_s: f64,
}

impl FadingRates {
    /// Learns a rate of at least 0 that held for `elapsed_s`.
    pub(super) fn learn(&mut self, rate: f64, elapsed_s: f64, period_s: f64) {
        if elapsed_s <= 0.0 {
            return;
        }
        self.age_s += elapsed_s;
        let gains = MEMORY_PERIODS.map(|periods| {
            // Until its memory is full, a mean is that of all values.
            (-expm1(-elapsed_s / (periods * period_s))).max(elapsed_s / self.age_s)
        });
        for (mean, gain) in self.means.iter_mut().zip(gains) {
            *mean += gain * (rate - *mean);
        }
        if self.average() <= 0.0 {
            return;
        }
        let ln_rate = log(rate.max(self.floor()));
        if let Some(ln_latest) = self.ln_latest {
            for (change, gain) in self.changes.iter_mut().zip(gains) {
                *change += gain * ((ln_rate - ln_latest).abs() - *change);
            }
        }
        self.ln_latest = Some(ln_rate);
    }

    /// Time (s) that the rates count for: since the start, without gaps.
    pub(super) fn age_s(&self) -> f64 {
        self.age_s
    }

    /// Mean since the start.
    pub(super) fn average(&self) -> f64 {
        self.means[MEMORIES - 1]
    }

    /// Mean over 512 median periods.
    pub(super) fn slow(&self) -> f64 {
        self.means[SLOW].max(self.floor())
    }

    /// Lower rates count as this one: a rate of 0 has no logarithm.
    pub(super) fn floor(&self) -> f64 {
        FLOOR_SHARE * self.average()
    }

    /// Logarithms of the means. The average is above 0.
    pub(super) fn logs(&self) -> [f64; MEMORIES] {
        self.means.map(|mean| log(mean.max(self.floor())))
    }

    /// Logarithms of the mean changes of the logarithm from one value to the next.
    pub(super) fn variations(&self) -> [f64; MEMORIES] {
        self.changes.map(|change| log(change.max(CHANGE_MIN)))
    }
}

/// The number at a memory of `periods`, linear between the logarithms of the memories. The last
/// memory has no end, and is left out.
pub(super) fn at_memory(periods: f64, numbers: &[f64; MEMORIES]) -> f64 {
    let last = (MEMORIES - 2) as f64;
    let position = (log(periods / MEMORY_PERIODS[0]) / MEMORY_STEP_LN).clamp(0.0, last);
    let below = (position as usize).min(MEMORIES - 3);
    numbers[below] + (numbers[below + 1] - numbers[below]) * (position - below as f64)
}

/// Times in which forecasts of means move amounts.
#[derive(Clone, Debug, Default)]
pub(super) struct MeanTimes {
    /// Logarithms of times and of the amounts moved until then, both ascending.
    knots: Vec<(f64, f64)>,
}

impl MeanTimes {
    /// `means` are pairs of seconds and of the mean over them; a pair that is not above the one
    /// before is ignored. Up to one period, the mean is that of the `next` value.
    pub(super) fn set(
        &mut self,
        period_s: f64,
        floor: f64,
        next: f64,
        means: impl Iterator<Item = (f64, f64)>,
    ) {
        self.knots.clear();
        for (seconds, mean) in core::iter::once((period_s, next)).chain(means) {
            let ln_seconds = log(seconds);
            let knot = (ln_seconds, ln_seconds + log(mean.max(floor)));
            let is_later = |(seconds, moved): &(f64, f64)| *seconds < knot.0 && *moved < knot.1;
            if self.knots.last().is_none_or(is_later) {
                self.knots.push(knot);
            }
        }
    }

    /// Logarithm of the time in which the amount moves. Beyond the last mean, its rate stays.
    pub(super) fn ln_time(&self, ln_amount: f64) -> f64 {
        let by_amount = self.knots.iter().map(|(ln_seconds, ln_moved)| (*ln_moved, *ln_seconds));
        super::on_curve(by_amount, ln_amount).unwrap_or(ln_amount)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.knots.capacity() * size_of::<(f64, f64)>()
    }
}

/// Memories in median periods, each four times the one before, and the whole series.
const MEMORY_PERIODS: [f64; MEMORIES] = [0.5, 2.0, 8.0, 32.0, 128.0, 512.0, 2048.0, f64::INFINITY];
/// Logarithm of the ratio of two memories.
const MEMORY_STEP_LN: f64 = 2.0 * core::f64::consts::LN_2;
/// Position of the mean over 512 periods.
const SLOW: usize = 5;
/// Share of the average that a rate counts as at least. A mean that is lower shows that nothing
/// moves now, not how long. With 0.05, a rate that fell to a thirtieth was overestimated for 50
/// values; with 0.01, intervals on the open traces had slightly fewer hits.
const FLOOR_SHARE: f64 = 0.02;
/// Changes of less than a thousandth are alike.
const CHANGE_MIN: f64 = 1e-3;
