//! When a timed stream may end before its time.
//!
//! A rate has *settled* when five rounds in a row, none of which grew by a quarter any more, agree within 5 %.
//! That alone is exact on quiet paths and far off on two kinds of others: where losses come at random, a
//! loss-based sender falls after the stop, and a flow that competes has not yet yielded. Nothing within the first
//! second tells either from a quiet path. So a settled rate is only *proposed*, and stands when three things
//! agree:
//!
//! - the path's own [`Calibration`]: what the same rule proposed in this path's full-length tests, against what
//!   they gave in the end; the estimate is corrected by it, and where it scatters no test ends early;
//! - the path's own forecast ([`Guard`]): an estimate outside its interval sends the test to its full length,
//!   and for good, for to look again until a rate pleases would confirm the forecast and not test it;
//! - a random audit: one test in twenty, drawn by the planner and of no choice of the path's, has the full length.

use crate::rounds::{Round, Rounds, Startup};
use crate::stream::{Early, Sample};

/// What counts as settled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// How many rounds have to agree, at least 2.
    pub rounds: usize,
    /// Their coefficient of variation at most.
    pub variation_max: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self { rounds: 5, variation_max: 0.05 }
    }
}

/// Where the path's own forecast expects the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guard {
    /// Lower end of the forecast's interval, in bit/s.
    pub lower_bit_s: f64,
    /// Upper end, in bit/s.
    pub upper_bit_s: f64,
}

impl Guard {
    /// Whether the interval holds this rate; one whose ends are no numbers holds none.
    #[must_use]
    pub fn holds(&self, rate_bit_s: f64) -> bool {
        (self.lower_bit_s..=self.upper_bit_s).contains(&rate_bit_s)
    }

    /// The same, wider by `share` of each end.
    #[must_use]
    pub fn widened(&self, share: f64) -> Self {
        Self { lower_bit_s: self.lower_bit_s * (1.0 - share), upper_bit_s: self.upper_bit_s * (1.0 + share) }
    }
}

/// Go on, or not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// Go on sending.
    Continue,
    /// The stream may end.
    Stop(Reason),
}

/// A rate that has settled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reason {
    /// When, in seconds since the stream began.
    pub time_s: f64,
    /// Mean rate of the rounds that agree, in bit/s.
    pub settled_bit_s: f64,
    /// The estimate of a full-length test's rate after start-up, in bit/s: the settled rate, corrected.
    pub rate_bit_s: f64,
    /// The coefficient of variation of those rounds.
    pub variation: f64,
}

/// Watches a stream.
#[derive(Clone, Debug)]
pub struct Rule {
    config: Config,
    early: Option<Early>,
    rounds: Rounds,
    startup: Startup,
    /// The latest rounds since the rate last grew, oldest first.
    latest: Vec<Round>,
    proposed: Option<Reason>,
}

impl Rule {
    /// Watches for what `early` calls settled; `None` only watches, and never stops anything.
    #[must_use]
    pub fn new(early: Option<Early>) -> Self {
        let mut config = early.map(|early| early.config).unwrap_or_default();
        config.rounds = config.rounds.clamp(ROUNDS_MIN, ROUNDS_MAX);
        let (rounds, startup) = (Rounds::new(), Startup::new());
        Self { config, early, rounds, startup, latest: Vec::new(), proposed: None }
    }

    /// Takes the next sample. The first rate that settles decides; later ones do not.
    pub fn push(&mut self, sample: &Sample) -> Decision {
        if self.proposed.is_some() {
            return Decision::Continue;
        }
        let Some(round) = self.rounds.push(sample) else { return Decision::Continue };
        self.startup.push(&round);
        if self.startup.grew() {
            self.latest.clear();
            return Decision::Continue;
        }
        if self.latest.len() == self.config.rounds {
            self.latest.remove(0);
        }
        self.latest.push(round);
        self.proposed = self.settled();
        match (self.proposed, self.early) {
            (Some(reason), Some(early)) if early.allows(reason.rate_bit_s) => Decision::Stop(reason),
            _ => Decision::Continue,
        }
    }

    /// The first rate that settled, whether it was allowed to stop the stream or not.
    #[must_use]
    pub fn proposed(&self) -> Option<Reason> {
        self.proposed
    }

    fn settled(&self) -> Option<Reason> {
        let last = self.latest.last().filter(|_| self.latest.len() == self.config.rounds)?;
        // The kernel had nothing to send: that is this host's rate and not the path's.
        if self.latest.iter().any(|round| round.app_limited) {
            return None;
        }
        let count = self.latest.len() as f64;
        let mean = self.latest.iter().map(Round::rate_bit_s).sum::<f64>() / count;
        let squares = self.latest.iter().map(|round| (round.rate_bit_s() - mean).powi(2)).sum::<f64>();
        let variation = (squares / count).sqrt() / mean;
        // A mean of 0 has no variation, and nothing that arrives has settled.
        if variation.is_nan() || self.config.variation_max < variation {
            return None;
        }
        let seconds: f64 = self.latest.iter().map(|round| round.seconds).sum();
        let bytes: u64 = self.latest.iter().map(|round| round.bytes).sum();
        let settled_bit_s = bytes as f64 * 8.0 / seconds;
        let correction = self.early.map_or(1.0, |early| early.correction);
        let rate_bit_s = settled_bit_s * correction;
        if !(settled_bit_s.is_finite() && 0.0 < settled_bit_s) {
            return None;
        }
        Some(Reason { time_s: last.end_s, settled_bit_s, rate_bit_s, variation })
    }
}

impl Early {
    /// An estimate whose own rounds may vary by so much cannot contradict a forecast by less: on a quiet path the
    /// interval is narrower than that, and would send nearly every test to its full length.
    fn allows(&self, rate_bit_s: f64) -> bool {
        let share = self.config.variation_max.clamp(0.0, 1.0);
        rate_bit_s.is_finite() && self.guard.is_none_or(|guard| guard.widened(share).holds(rate_bit_s))
    }
}

/// What one path's full-length tests say of its early estimates; the caller keeps it, one for each path and
/// congestion control.
///
/// ```
/// use barograph_probe::stop::Calibration;
/// let mut calibration = Calibration::default();
/// for _ in 0..3 {
///     assert_eq!(calibration.correction(), None, "too few");
///     calibration.learn(Some(80e6), 100e6);
/// }
/// assert!(calibration.correction().is_some_and(|factor| (factor - 1.25).abs() < 1e-9));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Calibration {
    /// How many full-length tests it has seen.
    pub tests: u64,
    /// Running mean of the logarithm of full-length rate over settled rate.
    pub log_ratio: f64,
    /// Running mean of how far a logarithm lay from that mean, before it was learned.
    pub log_deviation: f64,
}

impl Calibration {
    /// Full-length tests before the first early stop.
    pub const TESTS_MIN: u64 = 3;
    /// A path whose early estimates scatter more is tested at full length. If they are off by a tenth on average,
    /// one in ten is off by about a fifth (2.06 times the mean absolute deviation, were they normal).
    pub const DEVIATION_MAX: f64 = 0.10;

    /// Takes what the rule proposed in a full-length test, if it did, and the rate after start-up.
    ///
    /// Only tests that had no leave to stop may teach: audits, and those of a path that is not calibrated yet. A test that
    /// had leave and ran on did so because its estimate lay outside the forecast; to learn from these alone would make what is unusual the rule.
    ///
    /// A test in which no rate settled says nothing: it could not have been stopped early either. Rates that
    /// are no positive numbers are left out.
    pub fn learn(&mut self, settled_bit_s: Option<f64>, full_bit_s: f64) {
        let usable = |rate: &f64| rate.is_finite() && 0.0 < *rate;
        let (Some(settled), Some(full)) = (settled_bit_s.filter(usable), Some(full_bit_s).filter(usable))
        else {
            return;
        };
        let log = (full / settled).ln();
        self.tests += 1;
        let weight = WEIGHT_MIN.max(1.0 / self.tests as f64);
        if 1 < self.tests {
            // The first has nothing to lie far from.
            let weight = WEIGHT_MIN.max(1.0 / (self.tests - 1) as f64);
            self.log_deviation += weight * ((log - self.log_ratio).abs() - self.log_deviation);
        }
        self.log_ratio += weight * (log - self.log_ratio);
    }

    /// The factor by which an early estimate of this path is to be corrected; `None` while there are too few
    /// tests to know, and where early estimates scatter too much to be used.
    #[must_use]
    pub fn correction(&self) -> Option<f64> {
        let known = Self::TESTS_MIN <= self.tests && self.log_deviation <= Self::DEVIATION_MAX;
        known.then(|| self.log_ratio.exp()).filter(|factor| factor.is_finite())
    }

    /// Leave for the next test of this path to end early; `None` sends it to its full length: an audit, a path
    /// without a forecast, or one that is not calibrated.
    #[must_use]
    pub fn early(&self, guard: Option<Guard>, is_audit: bool) -> Option<Early> {
        let (guard, correction) = (guard.filter(|_| !is_audit)?, self.correction()?);
        Some(Early { config: Config::default(), guard: Some(guard), correction })
    }
}

/// Two rounds are the fewest that can agree.
const ROUNDS_MIN: usize = 2;
/// A bound for configuration; five are used.
const ROUNDS_MAX: usize = 1000;
/// What is older than some five audits, a hundred tests, fades: paths change.
const WEIGHT_MIN: f64 = 0.2;
