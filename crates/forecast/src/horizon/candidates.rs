//! The forecasts that are combined at a horizon.

use alloc::vec::Vec;

use crate::Method;
use crate::methods::autoregressive::StepScale;
use crate::quantiles::sort;

/// Candidates that come from the forecast of the next value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OneStep {
    /// Methods of the battery; `MethodSet::HORIZON_METHODS` has their names.
    pub(crate) methods: [f64; Self::METHODS],
    /// The forecasts for squared and for absolute error.
    pub(crate) mean: f64,
    pub(crate) median: f64,
}

impl OneStep {
    /// Number of methods of the battery that are candidates.
    pub(crate) const METHODS: usize = 5;
}

pub(crate) const METHODS: usize = OneStep::METHODS;
/// Number of candidates without the regressions. Forecasts of the mean and of the value at the
/// horizon have these candidates in common.
pub(crate) const SHARED: usize = METHODS + 7;
/// Number of regressions; each kind of target has its own.
pub(crate) const REGRESSIONS: usize = 2;
pub(crate) const CANDIDATES: usize = SHARED + REGRESSIONS;
/// Number of distances that are kept until the values are known.
pub(crate) const OFFSETS: usize = SHARED + 2 * REGRESSIONS;

// Indices of candidates. The methods of the battery are first.
pub(crate) const RUNNING_MEAN: usize = 1;
pub(crate) const LONG_MEDIAN: usize = 3;
pub(crate) const NEXT_MEAN: usize = METHODS;
pub(crate) const NEXT_MEDIAN: usize = METHODS + 1;
pub(crate) const SMOOTH_1: usize = METHODS + 3;
pub(crate) const SMOOTH_4: usize = METHODS + 4;
pub(crate) const SMOOTH_16: usize = METHODS + 5;

/// Name of a candidate that is not a method of the battery. Names have no comma, because they are
/// cells of CSV.
pub(crate) fn name(candidate: usize) -> Method {
    const NAMES: [&str; CANDIDATES - METHODS] = [
        "Next Value Mean",
        "Next Value Median",
        "Sliding Mean over Horizon",
        "Exp Smooth over Horizon",
        "Exp Smooth over 4 Horizons",
        "Exp Smooth over 16 Horizons",
        "Median over Horizons",
        "Direct Regression",
        "Direct Median Regression",
    ];
    Method(NAMES[candidate.saturating_sub(METHODS) % NAMES.len()])
}

/// The candidates of one moment, as they are kept until the values are known.
///
/// Distances are rounded to `f32` before they are combined, so that exactly what was combined is
/// learned later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CandidateSet {
    /// Newest value at this moment.
    pub(crate) origin: f64,
    /// Unit of the distances: the mean step from value to value, or more after a plateau.
    pub(crate) unit: f64,
    pub(crate) offsets: [f32; SHARED],
}

impl CandidateSet {
    /// Rounded distance of a forecast from `origin`.
    pub(crate) fn offset(&self, forecast: f64) -> f32 {
        let offset = (forecast - self.origin) / self.unit;
        let most = f64::from(f32::MAX);
        offset.clamp(-most, most) as f32
    }
}

/// State of the candidates of one horizon that the battery does not have.
#[derive(Clone, Debug)]
pub(crate) struct Candidates {
    count: u64,
    /// Exponential smoothers with the memory of 1, 4 and 16 horizons.
    levels: [f64; 3],
    /// Mean size of the steps from value to value, and the newest value.
    steps: StepScale,
    latest: f64,
    /// Least and greatest value of the present block of [`RANGE_VALUES`], and of the block before.
    ranges: [(f64, f64); 2],
    /// Means of the newest windows that are over: a ring.
    windows: Vec<f64>,
    windows_max: usize,
    newest: usize,
}

impl Candidates {
    /// Creates candidates of a horizon in which at most `ticks_max` forecasts are issued.
    pub(crate) fn new(ticks_max: usize) -> Self {
        let windows_max = (BLOCKS - 1) * ticks_max + 1;
        Self {
            count: 0,
            levels: [0.0; 3],
            steps: StepScale::default(),
            latest: 0.0,
            ranges: [(f64::INFINITY, f64::NEG_INFINITY); 2],
            windows: Vec::with_capacity(windows_max),
            windows_max,
            newest: 0,
        }
    }

    /// Learns a value; a horizon has `length` values.
    pub(crate) fn learn(&mut self, value: f64, length: f64) {
        if self.count == 0 {
            self.levels = [value; 3];
        }
        if self.count.is_multiple_of(RANGE_VALUES) {
            self.ranges = [(value, value), self.ranges[0]];
        }
        let (low, high) = &mut self.ranges[0];
        *low = if value < *low { value } else { *low };
        *high = if *high < value { value } else { *high };
        self.count += 1;
        if 1 < self.count {
            self.steps.learn(value - self.latest);
        }
        self.latest = value;
        for (level, memory) in self.levels.iter_mut().zip(MEMORIES) {
            *level += (1.0 / (memory * length)).max(1.0 / self.count as f64).min(1.0) * (value - *level);
        }
    }

    /// Range of the last 64 to 127 values, for forecasts that could extrapolate too far.
    pub(crate) fn bounds(&self) -> (f64, f64) {
        let [(low, high), (older_low, older_high)] = self.ranges;
        (if older_low < low { older_low } else { low }, if high < older_high { older_high } else { high })
    }

    /// Learns the mean of a window that is over.
    pub(crate) fn learn_window(&mut self, mean: f64) {
        if self.windows.len() < self.windows_max {
            self.windows.push(mean);
            self.newest = self.windows.len() - 1;
        } else {
            self.newest = (self.newest + 1) % self.windows_max;
            self.windows[self.newest] = mean;
        }
    }

    /// The candidates after `value`. In a horizon, `ticks` forecasts are issued.
    pub(crate) fn forecasts(&self, value: f64, one: &OneStep, ticks: usize) -> CandidateSet {
        let [smooth_1, smooth_4, smooth_16] = self.levels;
        // Until a window is over, its mean is the mean of all values.
        let window = self.windows.get(self.newest).copied().unwrap_or(one.methods[RUNNING_MEAN]);
        let median = self.window_median(ticks).unwrap_or(window);
        let own = [one.mean, one.median, window, smooth_1, smooth_4, smooth_16, median];
        let mut forecasts = [0.0; SHARED];
        forecasts[..METHODS].copy_from_slice(&one.methods);
        forecasts[METHODS..].copy_from_slice(&own);
        let furthest = forecasts.iter().fold(0.0, |most: f64, forecast| most.max((forecast - value).abs()));
        let unit = self.steps.get().max(furthest / OFFSET_MAX);
        let mut set = CandidateSet { origin: value, unit, offsets: [0.0; SHARED] };
        set.offsets = forecasts.map(|forecast| set.offset(forecast));
        set
    }

    /// The median of the means of the last windows that do not overlap; at most [`BLOCKS`] of them.
    fn window_median(&self, ticks: usize) -> Option<f64> {
        let (mut means, mut len) = ([0.0; BLOCKS], 0);
        while len < BLOCKS && len * ticks < self.windows.len() {
            let at = (self.newest + self.windows.len() - len * ticks) % self.windows.len();
            means[len] = self.windows[at];
            len += 1;
        }
        sort(&mut means[..len]);
        let middle = len / 2;
        match len {
            0 => None,
            _ if len % 2 == 1 => Some(means[middle]),
            _ => Some(0.5 * (means[middle - 1] + means[middle])),
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.windows.capacity() * size_of::<f64>()
    }
}

/// Largest distance of a candidate from the newest value, in units. After a plateau, steps are
/// small and distances are not: with the mean step as the unit, features of the regressions would
/// be huge, and distances beyond the range of `f32` would be cut.
const OFFSET_MAX: f64 = 1e3;
/// Memories of the smoothers, in horizons.
const MEMORIES: [f64; 3] = [1.0, 4.0, 16.0];
/// Number of windows in the median of windows: one of five may be an outlier, and so may two.
const BLOCKS: usize = 5;
/// Number of values in a block of the range.
const RANGE_VALUES: u64 = 64;
