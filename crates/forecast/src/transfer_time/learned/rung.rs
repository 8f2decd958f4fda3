//! Virtual transfers of one amount.

use alloc::collections::VecDeque;

use libm::{exp, exp2, floor, log, sqrt};

use super::rates::{MEMORIES, MeanTimes, at_memory};
use super::similar::{Entry, Features, LEVELS, MEDIAN, Scratch, SimilarErrors};

/// Number of forecasts that are combined: the fading means, and the forecasts of means.
const CANDIDATES: usize = MEMORIES + 1;

/// State of the series after its newest value.
#[derive(Clone, Copy, Debug)]
pub(super) struct LatestValue {
    /// Number of the value.
    pub(super) count: u64,
    /// Time since the start (s), without gaps.
    pub(super) time_s: f64,
    /// Time since the value before it (s), without a gap.
    pub(super) elapsed_s: f64,
    pub(super) period_s: f64,
    /// Amount moved until the value before, and until this one (unit · s).
    pub(super) moved_before: f64,
    pub(super) moved: f64,
    /// Logarithms of the fading means, and of the changes.
    pub(super) rates: [f64; MEMORIES],
    pub(super) variations: [f64; MEMORIES],
}

/// Transfers of one amount: those that wait for their end, and the errors of the others.
#[derive(Clone, Debug)]
pub(super) struct Rung {
    exponent: i32,
    ln_amount: f64,
    amount: f64,
    waiting: VecDeque<Waiting>,
    ended: u64,
    /// Fading sums of the candidates' absolute errors.
    losses: [f64; CANDIDATES],
    errors: SimilarErrors,
    /// Corrections of the ends, in units of their distance from the median.
    shifts: [f64; LEVELS.len()],
    /// Ends of the errors before and after the corrections, as last forecast.
    raw_ends: [f64; LEVELS.len()],
    ends: [f64; LEVELS.len()],
    /// Logarithm of the time that is forecast.
    centre: f64,
    is_active: bool,
    /// Numbers of the values at which a transfer was begun, and one was begun that will be kept.
    begun_at: u64,
    kept_at: u64,
}

/// A virtual transfer that has not ended.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    began_s: f64,
    /// Amount moved when it ends.
    goal: f64,
    centre: f64,
    /// Forecasts of the candidates less the centre.
    offsets: [f32; CANDIDATES],
    features: Features,
    ends: [f32; LEVELS.len()],
    /// Ends that the transfer is already known to exceed.
    exceeded: [bool; LEVELS.len()],
    /// Number of values since the transfer before it.
    stride: f32,
    /// Number of values for which the transfer stands among the errors; `None` if it is not kept.
    values: Option<f32>,
}

impl Rung {
    /// A rung for transfers of 4 to the power of `exponent`, from the value with the number `count`
    /// on.
    pub(super) fn new(exponent: i32, count: u64) -> Self {
        let amount = exp2(super::RUNG_BITS * f64::from(exponent));
        Self {
            exponent,
            ln_amount: log(amount),
            amount,
            waiting: VecDeque::new(),
            ended: 0,
            losses: [0.0; CANDIDATES],
            errors: SimilarErrors::default(),
            shifts: [0.0; LEVELS.len()],
            raw_ends: [0.0; LEVELS.len()],
            ends: [0.0; LEVELS.len()],
            centre: 0.0,
            is_active: false,
            begun_at: count,
            kept_at: count,
        }
    }

    pub(super) fn exponent(&self) -> i32 {
        self.exponent
    }

    pub(super) fn ln_amount(&self) -> f64 {
        self.ln_amount
    }

    /// Number of transfers that have ended.
    pub(super) fn ended(&self) -> u64 {
        self.ended
    }

    /// Whether the rung forecasts the present, with at least one error.
    pub(super) fn is_known(&self) -> bool {
        self.is_active && 0 < self.ended
    }

    pub(super) fn raw_ends(&self) -> [f64; LEVELS.len()] {
        self.raw_ends
    }

    /// Begins no transfer at the value with the number `count`: transfers of this amount take much
    /// less than one value.
    pub(super) fn pause(&mut self, count: u64) {
        self.is_active = false;
        self.begun_at = count;
        self.kept_at = count;
    }

    pub(super) fn drop_waiting(&mut self) {
        self.waiting.clear();
    }

    /// Logarithm of the time (s) that the share `share` of transfers takes at most.
    pub(super) fn ln_time(&self, share: f64) -> f64 {
        let above = LEVELS.partition_point(|level| *level < share).clamp(1, LEVELS.len() - 1);
        let share = share.clamp(LEVELS[0], LEVELS[LEVELS.len() - 1]);
        let end = super::between(
            (LEVELS[above - 1], self.ends[above - 1]),
            (LEVELS[above], self.ends[above]),
            share,
        );
        self.centre + end
    }

    /// Learns from transfers that have ended, or have exceeded an end, with the newest value.
    pub(super) fn learn(&mut self, latest: &LatestValue) {
        while let Some(first) = self.waiting.front().copied().filter(|first| first.goal <= latest.moved) {
            self.waiting.pop_front();
            let share = (first.goal - latest.moved_before) / (latest.moved - latest.moved_before);
            let end_s = latest.time_s - (1.0 - share) * latest.elapsed_s;
            self.learn_end(&first, (end_s - first.began_s).max(TIME_MIN_S), latest.period_s);
        }
        for waiting in &mut self.waiting {
            let time_s = latest.time_s - waiting.began_s;
            if time_s <= 0.0 {
                continue;
            }
            let error = log(time_s) - waiting.centre;
            let step = step(waiting.stride, (time_s / latest.period_s).max(1.0));
            for (at, level) in LEVELS.iter().enumerate() {
                if !waiting.exceeded[at] && f64::from(waiting.ends[at]) <= error {
                    waiting.exceeded[at] = true;
                    self.shifts[at] += step * level;
                }
            }
        }
    }

    fn learn_end(&mut self, transfer: &Waiting, time_s: f64, period_s: f64) {
        self.ended += 1;
        let steps = (time_s / period_s).max(1.0);
        let error = log(time_s) - transfer.centre;
        let fade = exp2(-f64::from(transfer.stride) / (HALF_LIFE_TRANSFERS * steps));
        for (loss, offset) in self.losses.iter_mut().zip(transfer.offsets) {
            *loss = *loss * fade + (error - f64::from(offset)).abs().min(LOSS_MAX);
        }
        let step = step(transfer.stride, steps);
        for (at, level) in LEVELS.iter().enumerate().filter(|(at, _)| !transfer.exceeded[*at]) {
            let missed = if error < f64::from(transfer.ends[at]) { 1.0 } else { 0.0 };
            self.shifts[at] += step * (level - missed);
        }
        if let Some(values) = transfer.values {
            let (error, steps) = (error as f32, steps as f32);
            self.errors.push(Entry { error, values, steps, features: transfer.features, serial: 0 });
        }
    }

    /// Forecasts the time of a transfer that begins now, and begins one if it is due.
    pub(super) fn forecast(
        &mut self,
        latest: &LatestValue,
        means: &MeanTimes,
        prior: &[f64; LEVELS.len()],
        scratch: &mut Scratch,
    ) {
        self.is_active = true;
        let candidates: [f64; CANDIDATES] = core::array::from_fn(|at| match latest.rates.get(at) {
            Some(ln_rate) => self.ln_amount - ln_rate,
            None => means.ln_time(self.ln_amount),
        });
        self.centre = self.combined(&candidates);
        let steps = (exp(self.centre) / latest.period_s).max(1.0);
        let stride = floor((steps / TRANSFERS).max(1.0));
        let since = latest.count - self.begun_at;
        let is_first = self.ended == 0 && self.waiting.is_empty();
        if WAITING_MAX <= self.waiting.len() || ((since as f64) < stride && !is_first) {
            return;
        }
        let ln_rate = self.ln_amount - self.centre;
        let relative = |periods: f64| (ln_rate - at_memory(periods, &latest.rates)) as f32;
        let variation = at_memory(steps.max(VARIATION_MIN), &latest.variations) as f32;
        let features = [relative(steps / TRANSFERS), relative(2.0 * steps), variation];
        self.raw_ends = self.errors.quantiles(&features, prior, scratch);
        self.ends = corrected(&self.raw_ends, &self.shifts);
        let since_kept = latest.count - self.kept_at;
        let is_kept = is_first || stride.max(floor(latest.count as f64 / KEPT_SPAN)) <= since_kept as f64;
        if is_kept {
            self.kept_at = latest.count;
        }
        self.begun_at = latest.count;
        self.waiting.push_back(Waiting {
            began_s: latest.time_s,
            goal: latest.moved + self.amount,
            centre: self.centre,
            offsets: candidates.map(|candidate| (candidate - self.centre) as f32),
            features,
            ends: self.ends.map(|end| end as f32),
            exceeded: [false; LEVELS.len()],
            stride: (since as f32).max(1.0),
            values: is_kept.then_some((since_kept as f32).max(1.0)),
        });
    }

    /// Mean of the candidates, weighted by their errors so far.
    fn combined(&self, candidates: &[f64; CANDIDATES]) -> f64 {
        if self.ended == 0 {
            return 0.5 * (candidates[START[0]] + candidates[START[1]]);
        }
        let least = self.losses.iter().copied().fold(f64::INFINITY, f64::min).max(LOSS_MIN);
        let (mut sum, mut weights) = (0.0, 0.0);
        for (candidate, loss) in candidates.iter().zip(self.losses) {
            let weight = eighth_power(least / loss.max(LOSS_MIN));
            sum += weight * candidate;
            weights += weight;
        }
        sum / weights
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.waiting.capacity() * size_of::<Waiting>() + self.errors.heap_bytes()
    }
}

/// The exponent of the weights is 8: with 4 and 16, the pinball loss of the ends was no lower.
fn eighth_power(number: f64) -> f64 {
    let squared = number * number;
    let fourth = squared * squared;
    fourth * fourth
}

/// The ends with their corrections, in ascending order.
fn corrected(raw: &[f64; LEVELS.len()], shifts: &[f64; LEVELS.len()]) -> [f64; LEVELS.len()] {
    let mut most = f64::NEG_INFINITY;
    core::array::from_fn(|at| {
        let distance = (raw[at] - raw[MEDIAN]).abs().max(DISTANCE_MIN);
        most = (raw[at] + shifts[at] * distance).max(most);
        most
    })
}

/// Step of the corrections after a transfer of `steps` values that began `stride` values after the
/// one before it. It falls with the length of a transfer, because overlapping transfers are
/// similar, and are known late.
fn step(stride: f32, steps: f64) -> f64 {
    let each = (STEP / sqrt(steps.min(STEP_LENGTH_MAX))).min(STABLE_STEP / steps);
    (f64::from(stride) * each).min(STEP_MAX)
}

/// Transfers that are begun within the forecast time of one.
const TRANSFERS: f64 = 8.0;
/// Largest number of transfers that wait: those of four forecast times.
const WAITING_MAX: usize = 32;
/// Values over which the kept errors spread before they are kept more rarely.
const KEPT_SPAN: f64 = 500.0;
/// Half-life of the candidates' errors, in transfers. With 300, ends on the open traces were no
/// better, and a rate that fell to a tenth was detected 20 values later instead of four.
const HALF_LIFE_TRANSFERS: f64 = 20.0;
/// Bounds of the errors of a candidate: a factor of 150, and that of rounding.
const LOSS_MAX: f64 = 5.0;
const LOSS_MIN: f64 = 1e-9;
/// Candidates before a transfer has ended: the means over 32 periods and since the start.
const START: [usize; 2] = [3, MEMORIES - 1];
/// Least memory of the size of changes, in periods.
const VARIATION_MIN: f64 = 8.0;
/// Shortest time of a transfer (s): the resolution of clocks.
pub(super) const TIME_MIN_S: f64 = 1e-9;
/// Least distance of an end from the median in its corrections: 1 % of the time.
const DISTANCE_MIN: f64 = 0.01;
/// Steps of the corrections: the formula of `HorizonIntervals::new`, with smaller steps.
const STEP: f64 = 0.05;
const STEP_LENGTH_MAX: f64 = 30.0;
const STABLE_STEP: f64 = 0.5;
const STEP_MAX: f64 = 0.1;
