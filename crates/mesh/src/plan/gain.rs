//! What a test of a pair is worth, learnt from tests: by how much the error of its forecast grows while it is not
//! tested.
//!
//! The aim is the least mean error over all pairs and all time. If the error e of pair i grows by gᵢ with each turn
//! that it is left out, the mean error over a wait of T turns is e(0) + gᵢ T / 2, and over all pairs it is least, at
//! one test a turn, where gᵢ T² is equal for all (Lagrange): so the next is the one with the largest √gᵢ × age. Error
//! that does not grow, the noise around a level that is known, counts for nothing, however large: no test lessens it.
//!
//! gᵢ shows at each test, as if the one before had not been made: how much farther from the new value is the forecast
//! of before it? That is what the test before was worth, so it is what the turns before *that* one had added. Such
//! differences are few and scatter, so gᵢ is drawn towards what the pair's own error would have, were the same part of
//! it to be gained as in the mean of all pairs (docs/spec/plan.md §3).

/// What tests of one pair taught; older ones fade.
#[derive(Debug, Default)]
pub(super) struct Record {
    tests: u64,
    /// Mean of the rates measured (bit/s): errors are shares of it. Those of the forecast of the moment would be
    /// largest where that is low by chance.
    level: f64,
    /// The turn of the last test that gave a rate.
    last: Option<u64>,
    /// How many turns after the one before that was.
    gap: Option<u64>,
    /// The forecast that stood before it.
    before: Option<f64>,
    /// Tests that met a forecast, and their errors, each 1 at most.
    forecasts: f64,
    error: f64,
    /// Turns that tests came after the ones before, and what was gained by them, −1 to 1 each.
    turns: f64,
    gain: f64,
}

impl Record {
    /// A test was made in this turn, met this forecast, and found this rate; rates that are no numbers, or below 0,
    /// teach nothing.
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
        // Above 0, so that all shares are numbers, and 1 at most, so that their difference is one.
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
    /// What was gained, and in how many turns.
    pub(super) fn gained(&self) -> (f64, f64) {
        (self.gain, self.turns)
    }
}

/// What all pairs have in common.
#[derive(Debug)]
pub(super) struct Pool {
    /// The mean error of a forecast.
    error: f64,
    /// Which part of its error a pair gains by a test.
    part: f64,
    /// Turns between two tests of a pair, were all tested in turn.
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

    /// √ of what a turn without a test adds to a pair's error. One that met no forecast yet is known as well as the
    /// mean.
    pub(super) fn root(&self, record: &Record) -> f64 {
        let error = if 0.0 < record.forecasts { record.error / record.forecasts } else { self.error };
        let expected = self.part * error;
        let drawn = (PRIOR_TESTS * expected + record.gain) / (PRIOR_TESTS * self.cycle + record.turns);
        drawn.max(GAIN_MIN * expected / self.cycle).sqrt()
    }
}

/// The level is that of about the last hundred tests.
const LEVEL_TESTS: u64 = 100;

/// What is left of a test when the next is made: all together count for 20. Without fading it did as well; but paths
/// change.
const KEPT: f64 = 0.95;

/// What all pairs know together weighs as many tests of one. On the second halves of the traces of `lab plan` 8, 16 and
/// 32 were within a hundredth of each other, and 16 never worse than the list.
const PRIOR_TESTS: f64 = 16.0;

/// At least a fifth of what is expected of a pair: differences below 0 are chance. A twentieth and three tenths did as
/// well.
const GAIN_MIN: f64 = 0.2;

/// Where nothing seems to be gained at all, errors alone decide.
const PART_MIN: f64 = 0.02;
