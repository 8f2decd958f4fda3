//! Value of testing a pair, learned from its tests: how fast the error of its forecast grows while
//! it is not tested.
//!
//! The aim is the least mean error over all pairs and all time. If the error e of pair i grows by
//! gᵢ with each turn that it is left out, the mean error over a wait of T turns is e(0) + gᵢ T / 2.
//! At one test a turn, the mean over all pairs is least where gᵢ T² is equal for all (Lagrange). So
//! the next pair is the one with the largest √gᵢ × age. An error that does not grow, the noise
//! around a known level, does not count, however large: no test reduces it.
//!
//! Each test shows gᵢ by comparing two forecasts with the new value: the one before the last test,
//! and the one after it. The difference of their errors is what the last test was worth, so it is
//! the error that the turns before the last test had added. Such differences are few and scatter.
//! So gᵢ is pulled towards the value that follows from the pair's own error, if a test gained the
//! same share of it as in the mean of all pairs (docs/spec/plan.md §3).

/// What the tests of one pair showed; older tests fade.
#[derive(Debug, Default)]
pub(super) struct Record {
    tests: u64,
    /// Mean of the measured rates (bit/s). Errors are shares of it. Shares of the current forecast
    /// would be largest where that forecast is low by chance.
    level: f64,
    /// Turn of the last test that gave a rate.
    last: Option<u64>,
    /// Turns between that test and the one before it.
    gap: Option<u64>,
    /// The forecast before that test.
    before: Option<f64>,
    /// Number of tests with a forecast, and the sum of their errors, each 1 at most.
    forecasts: f64,
    error: f64,
    /// Sum of the gaps between tests (turns), and of what those tests gained, −1 to 1 each.
    turns: f64,
    gain: f64,
}

impl Record {
    /// Learns from a test in this turn, with the forecast before it and its rate. Ignores rates
    /// that are not finite, or below 0.
    pub(super) fn learn(&mut self, turn: u64, forecast: Option<f64>, rate: f64) {
        let is_rate = |rate: &f64| rate.is_finite() && 0.0 <= *rate;
        if !is_rate(&rate) {
            return;
        }
        self.tests += 1;
        self.level += (rate - self.level) / self.tests.min(LEVEL_TESTS) as f64;
        let forecast = forecast.filter(is_rate);
        let before = std::mem::replace(&mut self.before, forecast);
        let gap = std::mem::replace(&mut self.gap, self.last.map(|last| turn.saturating_sub(last)));
        self.last = Some(turn);
        // Above 0, so that shares are numbers. They are 1 at most, so that their difference is a
        // number.
        let Some(forecast) = forecast.filter(|_| 0.0 < self.level) else { return };
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
impl Record {
    /// The gain, and the number of turns in which it was made.
    pub(super) fn gained(&self) -> (f64, f64) {
        (self.gain, self.turns)
    }
}

/// Sums over all pairs of a plan.
#[derive(Debug)]
pub(super) struct Pool {
    /// Mean error of a forecast, as a share of the rate.
    error: f64,
    /// Share of its error that a test takes from a pair.
    part: f64,
    /// Turns between two tests of a pair if all were tested in turn.
    cycle: f64,
}

impl Pool {
    pub(super) fn new<'a>(records: impl Iterator<Item = &'a Record>) -> Self {
        let (mut pairs, mut forecasts, mut error, mut gain) = (0_u64, 0.0, 0.0, 0.0);
        for record in records {
            pairs += 1;
            forecasts += record.forecasts;
            error += record.error;
            gain += record.gain;
        }
        let share = |a: f64, b: f64| if 0.0 < b { a / b } else { 1.0 };
        Self {
            error: share(error, forecasts),
            part: share(gain, error).clamp(PART_MIN, 1.0),
            cycle: pairs as f64,
        }
    }

    /// √ of the error that a turn without a test adds to a pair. A pair without a forecast has the
    /// mean error.
    pub(super) fn root(&self, record: &Record) -> f64 {
        let error = if 0.0 < record.forecasts { record.error / record.forecasts } else { self.error };
        let expected = self.part * error;
        let drawn = (PRIOR_TESTS * expected + record.gain) / (PRIOR_TESTS * self.cycle + record.turns);
        drawn.max(GAIN_MIN * expected / self.cycle).sqrt()
    }
}

/// The level is that of about the last hundred tests.
const LEVEL_TESTS: u64 = 100;

/// Factor by which the weight of earlier tests shrinks at each new test: all tests together count
/// as 20. Results without fading were as good, but paths change.
const KEPT: f64 = 0.95;

/// The estimate from all pairs counts as this many tests of one pair. On the second halves of the
/// traces of `lab plan`, 8, 16 and 32 were within 1 % of each other, and 16 never worse than the
/// list.
const PRIOR_TESTS: f64 = 16.0;

/// Least share of the expected gain of a pair, because differences below 0 are chance. A twentieth
/// and three tenths gave results as good.
const GAIN_MIN: f64 = 0.2;

/// Least share of error that a test gains. Where tests seem to gain nothing, errors alone decide.
const PART_MIN: f64 = 0.02;
