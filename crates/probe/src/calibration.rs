//! Predicts the result of a full-length test of a path from its first part. Pure.
//!
//! A test passes [`CHECKPOINTS`]. For each of them, a [`Calibration`] records how far the rate up
//! to the checkpoint was from the rate of the full length. It also records the path's own level. A
//! test that may end early ends at the first checkpoint that has predicted well enough on this
//! path: within 5 %, or, after half a second, with an error of at most 1.2 times the error with
//! which the level predicts the next test. (On a path that varies by a third, a full-length test
//! predicts the next test hardly better than its first second does.) The expected error of the
//! level is never below 10 %, because the usual deviation counts as one of five tests. So after
//! half a second, 12 % (after four tests 13 %) is good enough, even on the quietest path.
//!
//! Only full-length tests calibrate the checkpoints: those before the path was calibrated, and
//! audits. Every test updates the level, with the rate that this test alone gives, so that an
//! estimate never confirms itself.

/// Checkpoints, in rounds since the rate last grew by a quarter; start-up is over at the third.
pub const CHECKPOINTS: [u32; 7] = [1, 2, 3, 6, 12, 24, 48];

/// Rate since the last growth at each checkpoint that a test has passed, in bit/s.
pub type CheckpointRates = [Option<f64>; CHECKPOINTS.len()];

/// Results of the tests of one path, from which it predicts the next test. The caller keeps a
/// separate `Calibration` for each path and congestion control.
///
/// ```
/// use barograph_probe::calibration::{Calibration, CheckpointRates};
/// let mut calibration = Calibration::default();
/// let partials: CheckpointRates = [Some(80e6); 7];
/// for _ in 0..Calibration::TESTS_MIN {
///     assert!(calibration.expected().is_none(), "too few");
///     calibration.add_full(&partials, 100e6);
/// }
/// assert!(calibration.expected().is_some());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Calibration {
    /// Logarithm of the path's rate.
    level: RunningStats,
    /// For each checkpoint, the logarithm of full-length rate divided by rate at the checkpoint.
    ratios: [RunningStats; CHECKPOINTS.len()],
    /// Consecutive tests outside the expected range.
    rejections: u32,
}

impl Calibration {
    /// Number of full-length tests before the first early stop.
    pub const TESTS_MIN: u64 = 4;
    /// After this many consecutive tests outside the expected range, the path has changed, and
    /// calibration starts again.
    pub const REJECTIONS_MAX: u32 = 2;

    /// Adds a full-length test that was not allowed to end early: its rates at the checkpoints, and
    /// its rate after start-up. Rates that are not positive and finite are ignored.
    pub fn add_full(&mut self, partials: &CheckpointRates, full_bit_s: f64) {
        let Some(full) = log(full_bit_s) else { return };
        self.rejections = 0;
        self.level.add(full);
        for (ratio, partial) in self.ratios.iter_mut().zip(partials) {
            if let Some(partial) = partial.and_then(log) {
                ratio.add(full - partial);
            }
        }
    }

    /// Adds a test that ended early. It updates the level with its own rate, and no checkpoint.
    pub fn add_early(&mut self, estimate: &RateEstimate) {
        self.rejections = 0;
        if let Some(alone) = log(estimate.uncombined_bit_s) {
            self.level.add(alone);
        }
    }

    /// Adds a test that was allowed to end early, but ran to full length because its estimate was
    /// rejected.
    ///
    /// A single such test changes nothing, so that an outlier does not become the expectation.
    /// After [`REJECTIONS_MAX`](Self::REJECTIONS_MAX) in a row, the path has changed: calibration
    /// starts again with this test as the first.
    pub fn add_rejected(&mut self, partials: &CheckpointRates, full_bit_s: f64) {
        self.rejections += 1;
        if Self::REJECTIONS_MAX <= self.rejections {
            *self = Self::default();
            self.add_full(partials, full_bit_s);
        }
    }

    /// Expected rate of the next test; `None` while there are too few tests, or if no checkpoint
    /// predicts well enough.
    #[must_use]
    pub fn expected(&self) -> Option<ExpectedRate> {
        if self.level.count < Self::TESTS_MIN {
            return None;
        }
        let level = self.level.predict(LEVEL_DEVIATION);
        let most = (LEVEL_FACTOR.powi(2) * level.variance).max(DEVIATION_MAX.powi(2));
        let ratios = self.ratios.map(|ratio| {
            let next = ratio.predict(RATIO_DEVIATION);
            let is_guide = Self::TESTS_MIN <= ratio.count && next.variance <= most;
            Some(next).filter(|next| is_guide && next.mean.abs() <= RATIO_MAX.ln())
        });
        ratios.iter().any(Option::is_some).then_some(ExpectedRate { level, ratios })
    }
}

/// Expected rate of the next test of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpectedRate {
    level: Prediction,
    /// Correction of each checkpoint that predicts well enough; `None` for the others.
    ratios: [Option<Prediction>; CHECKPOINTS.len()],
}

/// Estimate of a full-length test's rate from the rate at a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckpointEstimate {
    /// Estimate from this test alone: the corrected rate at the checkpoint, in bit/s.
    pub uncombined_bit_s: f64,
    /// Mean of that estimate and the path's level, weighted by precision, in bit/s.
    pub rate_bit_s: f64,
    /// Expected error of `rate_bit_s`: one standard deviation, as a share of the rate.
    pub deviation: f64,
    /// Whether the test agrees with the path's level, within the uncertainty of both.
    pub agrees: bool,
}

impl ExpectedRate {
    /// Estimate at checkpoint `index`, which the stream reached after `time_s` seconds; `None` if
    /// that checkpoint does not predict well enough.
    #[must_use]
    pub fn estimate(&self, index: usize, time_s: f64, partial_bit_s: f64) -> Option<CheckpointEstimate> {
        let is_late = EARLY_CHECK_MIN_S <= time_s;
        let ratio =
            (*self.ratios.get(index)?).filter(|ratio| is_late || ratio.variance <= DEVIATION_MAX.powi(2))?;
        let alone = log(partial_bit_s)? + ratio.mean;
        let off = alone - self.level.mean;
        let weight = self.level.variance / (self.level.variance + ratio.variance);
        let most = REJECTION_DEVIATIONS * (self.level.variance + ratio.variance).sqrt();
        let estimate = CheckpointEstimate {
            uncombined_bit_s: alone.exp(),
            rate_bit_s: (self.level.mean + weight * off).exp(),
            // Both errors may have the same cause, so the combined error is taken to be the smaller
            // of the two.
            deviation: self.level.variance.min(ratio.variance).sqrt(),
            agrees: off.abs() <= most,
        };
        Some(estimate)
            .filter(|estimate| estimate.rate_bit_s.is_finite() && estimate.uncombined_bit_s.is_finite())
    }
}

/// An estimate that may replace the rate of a full-length test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateEstimate {
    /// Time of the estimate, in seconds since the stream began.
    pub time_s: f64,
    /// Mean rate of the rounds behind the estimate, in bit/s.
    pub settled_bit_s: f64,
    /// Estimate of a full-length test's rate after start-up, from this test alone, in bit/s: the
    /// settled rate, corrected.
    pub uncombined_bit_s: f64,
    /// The same estimate combined with the path's earlier tests, in bit/s.
    pub rate_bit_s: f64,
    /// Expected error of the estimate: one standard deviation, as a share of the estimate. On an
    /// unknown path it is the coefficient of variation of the rounds, which is a weak indicator.
    pub deviation: f64,
}

/// Running mean and variance of effectively [`MEMORY`] values; older values fade.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
struct RunningStats {
    count: u64,
    mean: f64,
    variance: f64,
}

/// Prediction of the next value: its mean and the variance of the prediction error.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Prediction {
    mean: f64,
    variance: f64,
}

impl RunningStats {
    fn add(&mut self, value: f64) {
        self.count = self.count.saturating_add(1);
        let off = value - self.mean;
        let others = self.others();
        if 0.0 < others {
            // The distance of a value from the mean of n other values has a variance larger by 1 +
            // 1/n than its distance from the true mean.
            self.variance += (off * off * others / (others + 1.0) - self.variance) / others;
        }
        self.mean += off / (others + 1.0);
    }

    /// Effective number of values from which the mean was computed, without the latest value.
    fn others(&self) -> f64 {
        self.count.saturating_sub(1).min(MEMORY - 1) as f64
    }

    /// Prediction of the next value. With few values, the usual deviation of paths has more weight.
    fn predict(&self, usual_deviation: f64) -> Prediction {
        let seen = self.others();
        let usual = USUAL_TESTS * usual_deviation * usual_deviation;
        let variance = (usual + seen * self.variance) / (USUAL_TESTS + seen);
        Prediction { mean: self.mean, variance: variance * (1.0 + 1.0 / (seen + 1.0)) }
    }
}

/// Logarithm of a rate; `None` if the rate is not positive and finite.
fn log(rate_bit_s: f64) -> Option<f64> {
    (rate_bit_s.is_finite() && 0.0 < rate_bit_s).then(|| rate_bit_s.ln())
}

// The constants were chosen on replayed tests of one set of emulated paths, and evaluated on
// another set (lab/README.md).

/// Effective number of tests in a running mean; for a checkpoint's mean, only full-length tests
/// count. The number is small, because paths change.
const MEMORY: u64 = 5;
/// Weight of the usual deviation, in tests.
const USUAL_TESTS: f64 = 1.0;
/// Usual deviation of a path's rate (logarithm), before the path's own is known.
const LEVEL_DEVIATION: f64 = 0.2;
/// Usual deviation of a checkpoint's ratio (logarithm), before the path's own is known.
const RATIO_DEVIATION: f64 = 0.07;
/// A checkpoint predicts well enough if its standard deviation is at most this.
const DEVIATION_MAX: f64 = 0.05;
/// After [`EARLY_CHECK_MIN_S`], a checkpoint's deviation may also be this many times the deviation
/// of the level: 12 or 13 % on the quietest path.
const LEVEL_FACTOR: f64 = 1.2;
/// Before this time, in seconds, only [`DEVIATION_MAX`] applies: the data so far are a twentieth of
/// the bytes of a 10 s test.
const EARLY_CHECK_MIN_S: f64 = 0.5;
/// Maximum correction of a checkpoint, as a factor. If the correction is larger, the checkpoint
/// measured start-up or a policer's token bucket, not the rate of the path.
const RATIO_MAX: f64 = 3.0;
/// An estimate that differs from the level by this number of standard deviations is rejected. The
/// usual deviations are included, so on the quietest path this is a difference of a quarter.
const REJECTION_DEVIATIONS: f64 = 2.5;
