//! Predicts the result of a full-length test of a path from the first part of the test. Pure.
//!
//! A test passes [`CHECKPOINTS`]. For each checkpoint, a [`Calibration`] records how far the rate
//! at the checkpoint was from the rate of the full-length test. The `Calibration` also records the
//! mean rate of the path (`level`). A test that may end early ends at the first checkpoint that
//! predicts well enough on this path. A checkpoint predicts well enough if its expected error is at
//! most 5 %. After half a second, the limit is 1.2 times the expected error of the mean rate, if
//! this limit is larger. (If the rate of a path varies by a third, a full-length test predicts the
//! next test hardly better than the first second of the full-length test does.) The expected error
//! of the mean rate is never below about 10 %, because the usual deviation counts as one of five
//! tests. So after half a second, the limit is at least 12 % (after four tests 13 %), even on the
//! quietest path.
//!
//! Only full-length tests calibrate the checkpoints: the tests before the path was calibrated, and
//! audits. An audit is a test that must not end early although the path is calibrated. Every test
//! without a rejected estimate updates the mean rate. The update uses the rate that this test alone
//! gives, so that an estimate never confirms itself.

/// Checkpoints: numbers of rounds since the rate last grew by a quarter. Start-up is over at the
/// third checkpoint.
pub const CHECKPOINTS: [u32; 7] = [1, 2, 3, 6, 12, 24, 48];

/// Rate at each checkpoint, in bit/s, measured since the rate last grew by a quarter; `None` if the
/// test did not reach the checkpoint.
pub type CheckpointRates = [Option<f64>; CHECKPOINTS.len()];

/// Statistics of the tests of one path, from which the result of the next test is predicted. The
/// caller keeps a separate `Calibration` for each path and congestion control.
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
    /// Mean and variance of the logarithm of the path's rate.
    level: RunningStats,
    /// Mean and variance of log(full-length rate ÷ rate at the checkpoint), for each checkpoint.
    ratios: [RunningStats; CHECKPOINTS.len()],
    /// Number of consecutive tests with a rejected estimate.
    rejections: u32,
}

impl Calibration {
    /// Minimum number of full-length tests before the first early stop.
    pub const TESTS_MIN: u64 = 4;
    /// Number of consecutive tests with a rejected estimate after which the path counts as changed.
    /// Calibration then starts again.
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

    /// Adds a test that ended early. The rate that this test alone gives updates the mean rate of
    /// the path. The checkpoints do not change.
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
    /// After [`REJECTIONS_MAX`](Self::REJECTIONS_MAX) such tests in a row, the path counts as
    /// changed: calibration starts again with this test as the first.
    pub fn add_rejected(&mut self, partials: &CheckpointRates, full_bit_s: f64) {
        self.rejections += 1;
        if self.rejections >= Self::REJECTIONS_MAX {
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
            let is_guide = ratio.count >= Self::TESTS_MIN && next.variance <= most;
            Some(next).filter(|next| is_guide && next.mean.abs() <= RATIO_MAX.ln())
        });
        ratios.iter().any(Option::is_some).then_some(ExpectedRate { level, ratios })
    }
}

/// Expected rate of the next test of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpectedRate {
    level: Prediction,
    /// Correction of each checkpoint that predicts well enough; `None` for every other checkpoint.
    ratios: [Option<Prediction>; CHECKPOINTS.len()],
}

/// Estimate of a full-length test's rate from the rate at a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckpointEstimate {
    /// Estimate from this test alone: the corrected rate at the checkpoint, in bit/s.
    pub uncombined_bit_s: f64,
    /// Mean of `uncombined_bit_s` and the path's mean rate, weighted by precision, in bit/s.
    pub rate_bit_s: f64,
    /// Expected error of `rate_bit_s`: one standard deviation, as a share of the rate.
    pub deviation: f64,
    /// Whether the rate of the test agrees with the path's mean rate, within the uncertainty of
    /// both rates.
    pub agrees: bool,
}

impl ExpectedRate {
    /// Estimate at checkpoint `index`, which the stream reached after `time_s` seconds; `None` if
    /// that checkpoint does not predict well enough.
    #[must_use]
    pub fn estimate(&self, index: usize, time_s: f64, partial_bit_s: f64) -> Option<CheckpointEstimate> {
        let is_late = time_s >= EARLY_CHECK_MIN_S;
        let ratio =
            (*self.ratios.get(index)?).filter(|ratio| is_late || ratio.variance <= DEVIATION_MAX.powi(2))?;
        let alone = log(partial_bit_s)? + ratio.mean;
        let off = alone - self.level.mean;
        let weight = self.level.variance / (self.level.variance + ratio.variance);
        let most = REJECTION_DEVIATIONS * (self.level.variance + ratio.variance).sqrt();
        let estimate = CheckpointEstimate {
            uncombined_bit_s: alone.exp(),
            rate_bit_s: (self.level.mean + weight * off).exp(),
            // The errors of the two combined rates may have the same cause. So the smaller error
            // counts as the error of the combination.
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
    /// Mean rate, in bit/s, of the rounds from which the estimate was computed.
    pub settled_bit_s: f64,
    /// Estimate of a full-length test's rate after start-up, from this test alone, in bit/s:
    /// `settled_bit_s`, multiplied by the checkpoint's correction if the path is calibrated.
    pub uncombined_bit_s: f64,
    /// `uncombined_bit_s` combined with the mean rate of the path's earlier tests, in bit/s.
    pub rate_bit_s: f64,
    /// Expected error of the estimate: one standard deviation, as a share of the estimate. On an
    /// unknown path, `deviation` is the coefficient of variation of the rounds' rates. This
    /// coefficient indicates the error only roughly.
    pub deviation: f64,
}

/// Running mean and variance. The weight of old values decreases, as if there were only [`MEMORY`]
/// values.
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
        if others > 0.0 {
            // `off` is the distance of a value from the mean of n other values. The variance of
            // `off` is 1 + 1/n times the variance of the values.
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
    (rate_bit_s.is_finite() && rate_bit_s > 0.0).then(|| rate_bit_s.ln())
}

// The constants were chosen on replayed tests of one set of emulated paths, and evaluated on
// another set (lab/README.md).

/// Effective number of tests in a running mean; for a checkpoint's mean, only full-length tests
/// count. The number is small, because paths change.
const MEMORY: u64 = 5;
/// Weight of the usual deviation, as a number of tests.
const USUAL_TESTS: f64 = 1.0;
/// Usual standard deviation of the logarithm of a path's rate, used while the path has few tests.
const LEVEL_DEVIATION: f64 = 0.2;
/// Usual standard deviation of the logarithm of a checkpoint's ratio, used while the path has few
/// tests.
const RATIO_DEVIATION: f64 = 0.07;
/// Maximum standard deviation of a checkpoint that predicts well enough.
const DEVIATION_MAX: f64 = 0.05;
/// Maximum deviation of a checkpoint after [`EARLY_CHECK_MIN_S`], as a multiple of the deviation of
/// the path's mean rate. On the quietest path, this maximum is 12 or 13 %.
const LEVEL_FACTOR: f64 = 1.2;
/// Time in seconds before which only [`DEVIATION_MAX`] applies. At this time, the stream has sent a
/// twentieth of the bytes of a 10 s test.
const EARLY_CHECK_MIN_S: f64 = 0.5;
/// Maximum correction of a checkpoint, as a factor. If the correction is larger, the checkpoint
/// measured start-up or a policer's token bucket, not the rate of the path.
const RATIO_MAX: f64 = 3.0;
/// Number of standard deviations by which an estimate may differ from the path's mean rate. An
/// estimate that differs more is rejected. On the quietest path, the limit is a difference of a
/// quarter, because the usual deviations are included.
const REJECTION_DEVIATIONS: f64 = 2.5;
