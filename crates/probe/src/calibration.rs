//! What a path's full-length tests say of its shorter ones. Pure.
//!
//! A test passes [`CHECKPOINTS`]. For each, a [`Calibration`] keeps how far what had come by then lay from what the
//! full length gave, and beside them the path's own level. A test that may end early ends at the first checkpoint that
//! has been a good enough guide on this path: within 5 %, or, after half a second, not much worse than the level
//! itself, for of a path that scatters by a third a full test tells little more of the next than its first second does.
//! The level is never predicted better than within a tenth, for the usual deviation counts as one of five tests: so after
//! half a second 12 % (after four tests 13 %) are good enough on the quietest path, too.
//!
//! Only tests of full length teach what a checkpoint is worth: those before the path was calibrated, and audits.
//! The level follows every test, by what that test alone says, so that an estimate never confirms itself.

/// Checkpoints, in rounds since the rate last grew by a quarter; at the third start-up is over.
pub const CHECKPOINTS: [u32; 7] = [1, 2, 3, 6, 12, 24, 48];

/// The rate since it last grew, at each checkpoint that a test has passed, in bit/s.
pub type Partials = [Option<f64>; CHECKPOINTS.len()];

/// What one path's tests say of it; the caller keeps it, one for each path and congestion control.
///
/// ```
/// use barograph_probe::calibration::{Calibration, Partials};
/// let mut calibration = Calibration::default();
/// let partials: Partials = [Some(80e6); 7];
/// for _ in 0..Calibration::TESTS_MIN {
///     assert!(calibration.expected().is_none(), "too few");
///     calibration.learn_full(&partials, 100e6);
/// }
/// assert!(calibration.expected().is_some());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Calibration {
    /// The logarithm of the path's rate.
    level: Running,
    /// The logarithm of full-length rate over the rate at each checkpoint.
    ratios: [Running; CHECKPOINTS.len()],
    /// Tests in a row that lay outside what was expected.
    surprises: u32,
}

impl Calibration {
    /// Full-length tests before the first early stop.
    pub const TESTS_MIN: u64 = 4;
    /// So many tests in a row that lie outside what was expected say that the path has changed: it is calibrated anew.
    pub const SURPRISES_MAX: u32 = 2;

    /// Takes a test of full length that had no leave to end early: what had come at its checkpoints, and its rate
    /// after start-up. Rates that are no positive numbers are left out.
    pub fn learn_full(&mut self, partials: &Partials, full_bit_s: f64) {
        let Some(full) = log(full_bit_s) else { return };
        self.surprises = 0;
        self.level.learn(full);
        for (ratio, partial) in self.ratios.iter_mut().zip(partials) {
            if let Some(partial) = partial.and_then(log) {
                ratio.learn(full - partial);
            }
        }
    }

    /// Takes a test that ended early. What it says of the level it says by itself; of checkpoints it says nothing.
    pub fn learn_early(&mut self, reason: &Reason) {
        self.surprises = 0;
        if let Some(alone) = log(reason.alone_bit_s) {
            self.level.learn(alone);
        }
    }

    /// Takes a test that had leave and went to its full length because its estimate was not believed.
    ///
    /// One alone teaches nothing: to learn from what is unusual would make it the rule. After
    /// [`SURPRISES_MAX`](Self::SURPRISES_MAX) in a row the path is another one, and this its first test.
    pub fn learn_surprise(&mut self, partials: &Partials, full_bit_s: f64) {
        self.surprises += 1;
        if Self::SURPRISES_MAX <= self.surprises {
            *self = Self::default();
            self.learn_full(partials, full_bit_s);
        }
    }

    /// What the next test is expected to show; `None` while there are too few tests to know, and where no checkpoint
    /// is a good enough guide.
    #[must_use]
    pub fn expected(&self) -> Option<Expectation> {
        if self.level.count < Self::TESTS_MIN {
            return None;
        }
        let level = self.level.next(LEVEL_DEVIATION);
        let most = (LEVEL_FACTOR.powi(2) * level.variance).max(DEVIATION_MAX.powi(2));
        let ratios = self.ratios.map(|ratio| {
            let next = ratio.next(RATIO_DEVIATION);
            let is_guide = Self::TESTS_MIN <= ratio.count && next.variance <= most;
            Some(next).filter(|next| is_guide && next.mean.abs() <= RATIO_MAX.ln())
        });
        ratios.iter().any(Option::is_some).then_some(Expectation { level, ratios })
    }
}

/// What the next test of a path is expected to show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expectation {
    level: Next,
    /// Of the checkpoints that are good guides.
    ratios: [Option<Next>; CHECKPOINTS.len()],
}

/// What a rate at a checkpoint says of the full test's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// By this test alone: the rate at the checkpoint, corrected, in bit/s.
    pub alone_bit_s: f64,
    /// Together with the path's level, each by its precision, in bit/s.
    pub rate_bit_s: f64,
    /// How far that is expected to be off: one standard deviation, as a share of it.
    pub deviation: f64,
    /// Whether the test agrees with the path's level, as far as both are known.
    pub agrees: bool,
}

impl Expectation {
    /// The estimate at checkpoint `index`, reached `time_s` seconds after the stream began, if that one is a guide.
    #[must_use]
    pub fn estimate(&self, index: usize, time_s: f64, partial_bit_s: f64) -> Option<Estimate> {
        let is_late = HASTE_S <= time_s;
        let ratio =
            (*self.ratios.get(index)?).filter(|ratio| is_late || ratio.variance <= DEVIATION_MAX.powi(2))?;
        let alone = log(partial_bit_s)? + ratio.mean;
        let off = alone - self.level.mean;
        let weight = self.level.variance / (self.level.variance + ratio.variance);
        let most = SURPRISE_DEVIATIONS * (self.level.variance + ratio.variance).sqrt();
        let estimate = Estimate {
            alone_bit_s: alone.exp(),
            rate_bit_s: (self.level.mean + weight * off).exp(),
            // Their errors may be one and the same, so that both together are no better than the better one.
            deviation: self.level.variance.min(ratio.variance).sqrt(),
            agrees: off.abs() <= most,
        };
        Some(estimate).filter(|estimate| estimate.rate_bit_s.is_finite() && estimate.alone_bit_s.is_finite())
    }
}

/// A rate that may stand for a full test's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reason {
    /// When, in seconds since the stream began.
    pub time_s: f64,
    /// Mean rate of the rounds that it is taken from, in bit/s.
    pub settled_bit_s: f64,
    /// What this test alone says of a full-length test's rate after start-up, in bit/s: the settled rate, corrected.
    pub alone_bit_s: f64,
    /// The same together with what the path's earlier tests say, in bit/s: the estimate.
    pub rate_bit_s: f64,
    /// How far the estimate is expected to be off: one standard deviation, as a share of it. Of a path of which nothing
    /// is known it is the coefficient of variation of the rounds, and says little.
    pub deviation: f64,
}

/// A running mean and variance in which what is old fades.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
struct Running {
    count: u64,
    mean: f64,
    variance: f64,
}

/// The next value: its mean and the variance of the error of saying so.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Next {
    mean: f64,
    variance: f64,
}

impl Running {
    fn learn(&mut self, value: f64) {
        self.count = self.count.saturating_add(1);
        let off = value - self.mean;
        let others = self.others();
        if 0.0 < others {
            // From the mean of n others a value lies farther than from the true one, by 1 + 1/n in variance.
            self.variance += (off * off * others / (others + 1.0) - self.variance) / others;
        }
        self.mean += off / (others + 1.0);
    }

    /// What stands behind the mean beside the latest value.
    fn others(&self) -> f64 {
        self.count.saturating_sub(1).min(MEMORY - 1) as f64
    }

    /// With so few values the deviation is partly that of paths in general.
    fn next(&self, usual_deviation: f64) -> Next {
        let seen = self.others();
        let usual = USUAL_TESTS * usual_deviation * usual_deviation;
        let variance = (usual + seen * self.variance) / (USUAL_TESTS + seen);
        Next { mean: self.mean, variance: variance * (1.0 + 1.0 / (seen + 1.0)) }
    }
}

/// The logarithm of a rate that is one.
fn log(rate_bit_s: f64) -> Option<f64> {
    (rate_bit_s.is_finite() && 0.0 < rate_bit_s).then(|| rate_bit_s.ln())
}

// Chosen on replayed tests of one set of emulated paths, and reported on another (lab/README.md).

/// What is older than some five tests fades, of checkpoints five audits: paths change.
const MEMORY: u64 = 5;
/// How much the usual deviation counts, in tests.
const USUAL_TESTS: f64 = 1.0;
/// So far a path's rate lies from its mean, before more is known.
const LEVEL_DEVIATION: f64 = 0.2;
/// So far a ratio lies from its mean, before more is known.
const RATIO_DEVIATION: f64 = 0.07;
/// A checkpoint is a guide if it is right within this,
const DEVIATION_MAX: f64 = 0.05;
/// or not so many times worse than the path's level, which on the quietest path is 12 or 13 %,
const LEVEL_FACTOR: f64 = 1.2;
/// but that only from here on, in seconds: what comes before is a twentieth of a 10 s test's bytes.
const HASTE_S: f64 = 0.5;
/// What has to be corrected by more is start-up, or a policer's bucket, and no measure of the rate.
const RATIO_MAX: f64 = 3.0;
/// An estimate so many deviations from the level is not believed. With the usual deviations in them, that is a
/// quarter more or less on the quietest path.
const SURPRISE_DEVIATIONS: f64 = 2.5;
