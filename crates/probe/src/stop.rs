//! When a timed stream may end before its time.
//!
//! Of a path of which nothing is known, a rate has *settled* when five rounds in a row, none of which grew by a quarter
//! any more, agree within 5 %. That alone is exact on quiet paths and far off on two kinds of others: where losses come
//! at random, a loss-based sender falls after the stop, and a flow that competes has not yet yielded. Nothing within
//! the first second tells either from a quiet path. So on a path that is tested again and again three things decide:
//!
//! - the path's own [`Calibration`](crate::calibration::Calibration): at which checkpoint the rate was a good guide to
//!   what full-length tests gave, and by what to correct it; far from the path's level it is not believed;
//! - the path's own forecast ([`Guard`]): an estimate outside its interval sends the test to its full length, and, once
//!   start-up is over, for good, for to look again until a rate pleases would confirm the forecast and not test it;
//! - a random audit: one test in twenty, drawn by the planner and of no choice of the path's, has the full length.
//!
//! Of these the audit alone is independent of what was measured before. What the guard judges is the estimate, which
//! leans on the path's level, and that is of the same tests as the forecast: on a path that scatters it holds back less
//! than the rate of this test alone would. And until start-up is over, three rounds after the rate last grew, a look
//! that disagrees is not the last: there may be three, at the checkpoints after one, two and three rounds, and any of
//! them may end the test. What both cost is bounded in `tests/pure/calibration.rs`.

use crate::calibration::{CHECKPOINTS, Expectation, Partials};
use crate::rounds::{Round, Rounds, Startup};
use crate::samples::Sample;

pub use crate::calibration::Reason;

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

/// Leave to end a stream early.
///
/// The default is for a path of which nothing is known: any rate that settles, as it is.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Early {
    /// What counts as settled on a path of which nothing is known.
    pub config: Config,
    /// Where the path's own forecast expects the rate; `None` lets every estimate stop the stream.
    pub guard: Option<Guard>,
    /// What the path's own tests let expect ([`Calibration`](crate::calibration::Calibration)); with it the stream ends
    /// at a checkpoint, whether the rate has settled or not.
    pub expected: Option<Expectation>,
}

/// Go on, or not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// Go on sending.
    Continue,
    /// The stream may end.
    Stop(Reason),
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
    partials: Partials,
    surprised: bool,
}

impl Rule {
    /// Watches for what `early` calls settled; `None` only watches, and never stops anything.
    #[must_use]
    pub fn new(early: Option<Early>) -> Self {
        let mut config = early.map(|early| early.config).unwrap_or_default();
        config.rounds = config.rounds.clamp(ROUNDS_MIN, ROUNDS_MAX);
        Self {
            config,
            early,
            rounds: Rounds::default(),
            startup: Startup::default(),
            latest: Vec::new(),
            proposed: None,
            partials: Partials::default(),
            surprised: false,
        }
    }

    /// Takes the next sample. Of the rates that settle the first decides; what is not believed is not asked again,
    /// once start-up is over.
    pub fn push(&mut self, sample: &Sample) -> Decision {
        let Some(round) = self.rounds.push(sample) else { return Decision::Continue };
        self.startup.push(&round);
        let settled = self.settle(round);
        let passed = self.pass(&round);
        let Some(early) = self.early.filter(|_| !self.surprised) else { return Decision::Continue };
        let (reason, agrees) = match early.expected {
            None => match settled {
                Some(reason) => (reason, true),
                None => return Decision::Continue,
            },
            Some(expected) => match passed.and_then(|at| self.estimate(&expected, at, round.end_s)) {
                Some(estimate) => estimate,
                None => return Decision::Continue,
            },
        };
        if agrees && early.allows(&reason) {
            return Decision::Stop(reason);
        }
        // Before start-up is over, what is far off says no more than that.
        self.surprised = self.startup.ended().is_some();
        Decision::Continue
    }

    /// The first rate that settled, whether it was allowed to stop the stream or not.
    #[must_use]
    pub fn proposed(&self) -> Option<Reason> {
        self.proposed
    }

    /// The rates at the checkpoints passed.
    #[must_use]
    pub fn partials(&self) -> &Partials {
        &self.partials
    }

    /// Whether an estimate was not believed, so that the stream has its full length.
    #[must_use]
    pub fn surprised(&self) -> bool {
        self.surprised
    }

    /// The checkpoint that this round has reached. A sender that had nothing to send now and then had so in the full
    /// tests, too, which calibrate.
    fn pass(&mut self, round: &Round) -> Option<usize> {
        let (since, from_s, from_bytes) = self.startup.since_growth()?;
        let at = CHECKPOINTS.iter().position(|rounds| *rounds == since)?;
        if self.partials[at].is_some() {
            return None;
        }
        let rate = round.end_bytes.saturating_sub(from_bytes) as f64 * 8.0 / (round.end_s - from_s);
        self.partials[at] = Some(rate).filter(|rate| rate.is_finite() && 0.0 < *rate);
        self.partials[at].map(|_| at)
    }

    fn estimate(&self, expected: &Expectation, at: usize, time_s: f64) -> Option<(Reason, bool)> {
        let settled_bit_s = self.partials[at]?;
        let estimate = expected.estimate(at, time_s, settled_bit_s)?;
        let reason = Reason {
            time_s,
            settled_bit_s,
            alone_bit_s: estimate.alone_bit_s,
            rate_bit_s: estimate.rate_bit_s,
            deviation: estimate.deviation,
        };
        Some((reason, estimate.agrees))
    }

    /// The rate that has settled with this round, the first time that one does.
    fn settle(&mut self, round: Round) -> Option<Reason> {
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
        if !(settled_bit_s.is_finite() && 0.0 < settled_bit_s) {
            return None;
        }
        let (alone_bit_s, rate_bit_s) = (settled_bit_s, settled_bit_s);
        Some(Reason { time_s: last.end_s, settled_bit_s, alone_bit_s, rate_bit_s, deviation: variation })
    }
}

impl Early {
    /// The estimate is judged, which leans on the path's level, and not what this test says alone. One that may itself
    /// be off by so much cannot contradict a forecast by less: on a quiet path the interval is narrower than that, and
    /// would send nearly every test to its full length.
    fn allows(&self, reason: &Reason) -> bool {
        let own = if self.expected.is_some() { DEVIATIONS * reason.deviation } else { 0.0 };
        let share = self.config.variation_max.max(own).clamp(0.0, 1.0);
        reason.rate_bit_s.is_finite()
            && self.guard.is_none_or(|guard| guard.widened(share).holds(reason.rate_bit_s))
    }
}

/// 95 % of a normal error.
const DEVIATIONS: f64 = 2.0;
/// Two rounds are the fewest that can agree.
const ROUNDS_MIN: usize = 2;
/// A bound for configuration; five are used.
const ROUNDS_MAX: usize = 1000;
