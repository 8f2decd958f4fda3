//! Value of a test of a pair: how fast the error of the pair's forecast grows while the pair is not
//! tested. The value is learned from earlier tests of the pair.
//!
//! The aim is the least mean error over all pairs and all time. If the error e of pair i grows by
//! gᵢ with each turn in which the pair is not tested, the mean error over a wait of T turns is e(0)
//! plus gᵢ T / 2. At one test a turn, the mean over all pairs is least where gᵢ T² is equal for all
//! (Lagrange). So the next pair is the one with the largest √gᵢ × age. Only the growth of an error
//! counts, not the error itself. A large error that stays the same is noise around a known mean,
//! and no test reduces this noise.
//!
//! Each test shows gᵢ by comparing two forecasts with the new value: the forecast before the last
//! test, and the forecast after the last test. The difference of these two errors is the gain of
//! the last test. This gain is the error that the turns before the last test had added. These
//! differences are few and vary much. So gᵢ is shifted towards an expected value: the pair's own
//! error times the share of the error that a test gains in the mean of all pairs (docs/spec/plan.md
//! §3).

/// Results of the tests of one pair; the weight of older tests decreases.
#[derive(Debug, Default)]
pub(super) struct PairGains {
    tests: u64,
    /// Mean of the measured rates (bit/s). Errors are shares of this mean. If errors were shares of
    /// the current forecast, the errors would be largest when the forecast is low by chance.
    level: f64,
    /// Turn of the last test that gave a rate.
    last: Option<u64>,
    /// Number of turns between the last test that gave a rate and the previous such test.
    gap: Option<u64>,
    /// Forecast before the last test that gave a rate.
    before: Option<f64>,
    /// Number of tests with a forecast, and the sum of their errors, each 1 at most.
    forecasts: f64,
    error: f64,
    /// Sum of the turns between tests. `gain`: sum of the gains of these tests, each from −1 to 1.
    turns: f64,
    gain: f64,
}

impl PairGains {
    /// Learns from a test in `turn` that measured `rate`; `forecast` is the forecast before the
    /// test. Ignores rates that are not finite, or below 0.
    pub(super) fn learn(&mut self, turn: u64, forecast: Option<f64>, rate: f64) {
        let is_rate = |rate: &f64| rate.is_finite() && *rate >= 0.0;
        if !is_rate(&rate) {
            return;
        }
        self.tests += 1;
        self.level += (rate - self.level) / self.tests.min(LEVEL_TESTS) as f64;
        let forecast = forecast.filter(is_rate);
        let before = std::mem::replace(&mut self.before, forecast);
        let gap = std::mem::replace(&mut self.gap, self.last.map(|last| turn.saturating_sub(last)));
        self.last = Some(turn);
        // If the mean rate `level` were 0, the shares would be NaN. Each share is limited to 1, so
        // that the difference of two shares is finite.
        let Some(forecast) = forecast.filter(|_| self.level > 0.0) else { return };
        let error = |forecast: f64| ((forecast - rate).abs() / self.level).min(1.0);
        for sum in [&mut self.forecasts, &mut self.error, &mut self.turns, &mut self.gain] {
            *sum *= KEPT;
        }
        self.forecasts += 1.0;
        self.error += error(forecast);
        if let (Some(before), Some(gap)) = (before, gap) {
            self.turns += gap as f64;
            self.gain += error(before) - error(forecast);
        }
    }
}

#[cfg(test)]
impl PairGains {
    /// The sum of the gains, and the number of turns in which these gains were made.
    pub(super) fn gained(&self) -> (f64, f64) {
        (self.gain, self.turns)
    }
}

/// Means over all pairs of a plan. The expected gain of a pair is computed from these means, and
/// from the pair's own error if a forecast of the pair was tested.
#[derive(Debug)]
pub(super) struct GainPrior {
    /// Mean error of a forecast, as a share of the rate.
    error: f64,
    /// Mean share by which a test reduces the error of a pair.
    part: f64,
    /// Number of turns between two tests of a pair if all pairs were tested equally often.
    cycle: f64,
}

impl GainPrior {
    pub(super) fn new<'a>(all: impl Iterator<Item = &'a PairGains>) -> Self {
        let (mut pairs, mut forecasts, mut error, mut gain) = (0_u64, 0.0, 0.0, 0.0);
        for gains in all {
            pairs += 1;
            forecasts += gains.forecasts;
            error += gains.error;
            gain += gains.gain;
        }
        let share = |a: f64, b: f64| if b > 0.0 { a / b } else { 1.0 };
        Self {
            error: share(error, forecasts),
            part: share(gain, error).clamp(PART_MIN, 1.0),
            cycle: pairs as f64,
        }
    }

    /// Square root of the error that each turn without a test adds to the forecast of a pair. A
    /// pair without a forecast has the mean error.
    pub(super) fn sqrt_gain(&self, gains: &PairGains) -> f64 {
        let error = if gains.forecasts > 0.0 { gains.error / gains.forecasts } else { self.error };
        let expected = self.part * error;
        let drawn = (PRIOR_TESTS * expected + gains.gain) / (PRIOR_TESTS * self.cycle + gains.turns);
        drawn.max(GAIN_MIN * expected / self.cycle).sqrt()
    }
}

/// The mean rate of a pair is computed from about the last hundred tests.
const LEVEL_TESTS: u64 = 100;

/// Factor by which the weight of earlier tests shrinks at each new test: all tests together count
/// as 20. Results without fading were as good, but paths change.
const KEPT: f64 = 0.95;

/// The estimate from all pairs counts as this many tests of one pair. On the second halves of the
/// traces of `lab plan`, the errors with values of 8, 16 and 32 tests differed by less than 1 %.
/// With 16 tests, the error was never larger than with the paper's plan.
const PRIOR_TESTS: f64 = 16.0;

/// Smallest allowed gain of a pair, as a share of its expected gain, because measured gains below 0
/// are due to chance. The values 0.05 and 0.3 gave equally good results.
const GAIN_MIN: f64 = 0.2;

/// Smallest allowed value of the mean share by which a test reduces the error. If tests seem to
/// gain nothing, the order depends on the errors alone.
const PART_MIN: f64 = 0.02;
