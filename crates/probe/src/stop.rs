//! Decides when a timed stream may end before its full time.
//!
//! On an unknown path, the rate has *settled* when five consecutive rounds, none of which grew by a
//! quarter, agree within 5 %. This rule is exact on quiet paths. The rule is wrong by a large
//! amount on paths with random losses, where a loss-based sender slows down only after the stop,
//! and on paths with a competing flow that has not yet yielded. Within the first second, neither
//! kind of path can be distinguished from a quiet path. On a path that is tested repeatedly, three
//! mechanisms decide:
//!
//! - [`Calibration`](crate::calibration::Calibration) of the path: at which checkpoint the rate
//!   predicted the results of full-length tests, and by which factor to correct the rate. An
//!   estimate far from the path's mean rate is rejected.
//! - [`ForecastInterval`], the guard, from the path's own forecast: an estimate outside the
//!   forecast's interval sends the test to its full length. Once start-up is over, that decision is
//!   final. Repeating the check until a rate fits would confirm the forecast instead of testing it.
//! - Random audits: one test in twenty runs at full length. The planner draws the audits at random,
//!   independent of the path.
//!
//! Only the audits are independent of earlier measurements. The guard checks the estimate, which
//! includes the path's mean rate. The mean rate and the forecast come from the same tests. So on a
//! path with much variation, the guard rejects fewer estimates than a check of the rate of this
//! test alone would reject. Until start-up is over (three rounds after the rate last grew), a
//! rejected estimate is not final: there are up to three checks, at the checkpoints after one, two
//! and three rounds, and each check may end the test. `tests/pure/calibration.rs` bounds the cost
//! of both effects.

use crate::calibration::{CHECKPOINTS, CheckpointRates, ExpectedRate};
use crate::rounds::{Round, RoundDetector, StartupDetector};
use crate::samples::Sample;

pub use crate::calibration::RateEstimate;

/// Parameters of the settled-rate rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SettledRateConfig {
    /// Number of consecutive rounds that must agree, at least 2.
    pub rounds: usize,
    /// Maximum coefficient of variation of the rates of these rounds.
    pub variation_max: f64,
}

impl Default for SettledRateConfig {
    fn default() -> Self {
        Self { rounds: 5, variation_max: 0.05 }
    }
}

/// Interval in which the path's forecast expects the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForecastInterval {
    /// Lower end of the forecast interval, in bit/s.
    pub lower_bit_s: f64,
    /// Upper end of the forecast interval, in bit/s.
    pub upper_bit_s: f64,
}

impl ForecastInterval {
    /// Whether the interval contains this rate. An interval with a bound of NaN contains no rate.
    #[must_use]
    pub fn holds(&self, rate_bit_s: f64) -> bool {
        (self.lower_bit_s..=self.upper_bit_s).contains(&rate_bit_s)
    }

    /// The interval, with each bound moved outwards by `share` of its value.
    #[must_use]
    pub fn widened(&self, share: f64) -> Self {
        Self { lower_bit_s: self.lower_bit_s * (1.0 - share), upper_bit_s: self.upper_bit_s * (1.0 + share) }
    }
}

/// Conditions under which a stream may end early.
///
/// The default is for an unknown path: any settled rate ends the stream, without correction.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct EarlyStopPolicy {
    /// Settled-rate rule. This rule makes the decision only when `expected` is `None`.
    pub config: SettledRateConfig,
    /// Interval of the path's forecast; `None` allows every estimate to stop the stream.
    pub guard: Option<ForecastInterval>,
    /// Expectation from the path's own tests ([`Calibration`](crate::calibration::Calibration)). If
    /// `expected` is present, the stream ends at a checkpoint, whether the rate has settled or not.
    pub expected: Option<ExpectedRate>,
}

/// Decision after each sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// The stream goes on.
    Continue,
    /// The stream may end, with this estimate.
    Stop(RateEstimate),
}

/// Detects when a stream may end, from its samples.
#[derive(Clone, Debug)]
pub struct EarlyStopRule {
    config: SettledRateConfig,
    early: Option<EarlyStopPolicy>,
    rounds: RoundDetector,
    startup: StartupDetector,
    /// Rounds since the rate last grew, oldest first, at most `config.rounds`.
    latest: Vec<Round>,
    proposed: Option<RateEstimate>,
    partials: CheckpointRates,
    estimate_rejected: bool,
}

impl EarlyStopRule {
    /// Creates a rule. With `early` = `None` the rule only observes and never stops the stream.
    #[must_use]
    pub fn new(early: Option<EarlyStopPolicy>) -> Self {
        let mut config = early.map(|early| early.config).unwrap_or_default();
        config.rounds = config.rounds.clamp(ROUNDS_MIN, ROUNDS_MAX);
        Self {
            config,
            early,
            rounds: RoundDetector::default(),
            startup: StartupDetector::default(),
            latest: Vec::new(),
            proposed: None,
            partials: CheckpointRates::default(),
            estimate_rejected: false,
        }
    }

    /// Adds the next sample. Without an [`ExpectedRate`] only the first settled rate counts. After
    /// start-up is over, a rejected estimate is final: the stream runs to its full length.
    pub fn push(&mut self, sample: &Sample) -> Decision {
        let Some(round) = self.rounds.push(sample) else { return Decision::Continue };
        self.startup.push(&round);
        let settled = self.settle(round);
        let passed = self.pass(&round);
        let Some(early) = self.early.filter(|_| !self.estimate_rejected) else { return Decision::Continue };
        let (estimate, agrees) = match early.expected {
            None => match settled {
                Some(estimate) => (estimate, true),
                None => return Decision::Continue,
            },
            Some(expected) => match passed.and_then(|at| self.estimate(&expected, at, round.end_s)) {
                Some(estimate) => estimate,
                None => return Decision::Continue,
            },
        };
        if agrees && early.allows(&estimate) {
            return Decision::Stop(estimate);
        }
        // Before start-up is over, a rejected estimate is not final.
        self.estimate_rejected = self.startup.ended().is_some();
        Decision::Continue
    }

    /// The first settled rate, whether it was allowed to stop the stream or not.
    #[must_use]
    pub fn proposed(&self) -> Option<RateEstimate> {
        self.proposed
    }

    /// Rates at the checkpoints that the stream has passed.
    #[must_use]
    pub fn partials(&self) -> &CheckpointRates {
        &self.partials
    }

    /// Whether an estimate was rejected, so that the stream runs to its full length.
    #[must_use]
    pub fn estimate_rejected(&self) -> bool {
        self.estimate_rejected
    }

    /// Index of the checkpoint that this round reaches; `None` if the stream has reached this
    /// checkpoint before. Application-limited rounds count too, because they also occur in the full
    /// tests that calibrate.
    fn pass(&mut self, round: &Round) -> Option<usize> {
        let (since, from_s, from_bytes) = self.startup.since_growth()?;
        let at = CHECKPOINTS.iter().position(|rounds| *rounds == since)?;
        if self.partials[at].is_some() {
            return None;
        }
        let rate = round.end_bytes.saturating_sub(from_bytes) as f64 * 8.0 / (round.end_s - from_s);
        self.partials[at] = Some(rate).filter(|rate| rate.is_finite() && *rate > 0.0);
        self.partials[at].map(|_| at)
    }

    fn estimate(&self, expected: &ExpectedRate, at: usize, time_s: f64) -> Option<(RateEstimate, bool)> {
        let settled_bit_s = self.partials[at]?;
        let at_checkpoint = expected.estimate(at, time_s, settled_bit_s)?;
        let estimate = RateEstimate {
            time_s,
            settled_bit_s,
            uncombined_bit_s: at_checkpoint.uncombined_bit_s,
            rate_bit_s: at_checkpoint.rate_bit_s,
            deviation: at_checkpoint.deviation,
        };
        Some((estimate, at_checkpoint.agrees))
    }

    /// Returns the settled rate in the first round in which the rate has settled, else `None`.
    fn settle(&mut self, round: Round) -> Option<RateEstimate> {
        if self.proposed.is_some() {
            return None;
        }
        if self.startup.grew() {
            self.latest.clear();
            return None;
        }
        if self.latest.len() == self.config.rounds {
            self.latest.remove(0);
        }
        self.latest.push(round);
        self.proposed = self.settled();
        self.proposed
    }

    fn settled(&self) -> Option<RateEstimate> {
        let last = self.latest.last().filter(|_| self.latest.len() == self.config.rounds)?;
        // If the kernel had nothing to send, this host limited the rate, and the path did not.
        if self.latest.iter().any(|round| round.app_limited) {
            return None;
        }
        let count = self.latest.len() as f64;
        let mean = self.latest.iter().map(Round::rate_bit_s).sum::<f64>() / count;
        let squares = self.latest.iter().map(|round| (round.rate_bit_s() - mean).powi(2)).sum::<f64>();
        let variation = (squares / count).sqrt() / mean;
        // With a mean of 0 the variation is NaN: no data arrived, so no rate has settled.
        if variation.is_nan() || variation > self.config.variation_max {
            return None;
        }
        let seconds: f64 = self.latest.iter().map(|round| round.seconds).sum();
        let bytes: u64 = self.latest.iter().map(|round| round.bytes).sum();
        let settled_bit_s = bytes as f64 * 8.0 / seconds;
        if !(settled_bit_s.is_finite() && settled_bit_s > 0.0) {
            return None;
        }
        let (uncombined_bit_s, rate_bit_s) = (settled_bit_s, settled_bit_s);
        Some(RateEstimate {
            time_s: last.end_s,
            settled_bit_s,
            uncombined_bit_s,
            rate_bit_s,
            deviation: variation,
        })
    }
}

impl EarlyStopPolicy {
    /// Whether the guard allows the estimate to stop the stream. The guard checks the estimate,
    /// which includes the path's mean rate. The guard does not check the rate of this test alone.
    /// The interval is widened by the estimate's own error, because an uncertain estimate does not
    /// contradict the forecast. On a quiet path, the interval is narrower than the estimate's
    /// error. Without widening, nearly every test would run to its full length.
    fn allows(&self, estimate: &RateEstimate) -> bool {
        let own = if self.expected.is_some() { DEVIATIONS * estimate.deviation } else { 0.0 };
        let share = self.config.variation_max.max(own).clamp(0.0, 1.0);
        estimate.rate_bit_s.is_finite()
            && self.guard.is_none_or(|guard| guard.widened(share).holds(estimate.rate_bit_s))
    }
}

/// Number of standard deviations by which the interval is widened. Two standard deviations contain
/// 95 % of normally distributed errors.
const DEVIATIONS: f64 = 2.0;
/// Minimum number of rounds that must agree. With a single round, there would be nothing to
/// compare.
const ROUNDS_MIN: usize = 2;
/// Maximum number of rounds that a configuration may require; the default is five.
const ROUNDS_MAX: usize = 1000;
