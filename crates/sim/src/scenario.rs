//! A scenario: what the links of a distributed program are like, as plain data that TOML can hold.

mod base;
mod check;

use serde::Deserialize;
use std::path::PathBuf;

pub use base::Base;

/// What [`crate::Weather`] and the program that runs under it are made of. An absent key leaves its effect
/// out. All times are seconds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// What it is called.
    pub name: String,
    /// What it is like, in a sentence.
    pub about: String,
    /// Processes, the root included.
    pub nodes: usize,
    /// How many reductions are run.
    pub reductions: usize,
    /// Sizes of messages in bytes; one is drawn for every send.
    pub message_bytes: Vec<u64>,
    /// Instead of the list: log-uniform between these.
    pub message_bytes_range: Option<Range>,
    /// Whether all sends of a reduction have the size that one draw gave.
    pub same_size_in_reduction: bool,
    /// How many attempts a send has.
    pub tries: u32,
    /// To set up a connection anew takes this…
    pub reconnect_s: f64,
    /// …and this many times the link's base.
    pub reconnect_factor: f64,
    /// Between the end of a reduction and the start of the next one.
    pub pause_s: f64,
    /// Reductions start at least so far apart, from start to start, instead of a pause.
    pub period_s: Option<f64>,
    /// The seed of all that is random.
    pub seed: u64,
    /// The response time of an attempt without anything else.
    pub link: LinkLaw,
    /// Now and then an attempt takes much longer.
    pub stall: Option<Stall>,
    /// Further kinds of stalls, each drawn on its own.
    pub more_stalls: Vec<Stall>,
    /// Some attempts are lost.
    pub loss: Option<Loss>,
    /// Some attempts end in a reset.
    pub reset: Option<Reset>,
    /// A state in which all attempts are slow.
    pub congestion: Option<Congestion>,
    /// The base changes for good.
    pub regime: Option<Regime>,
    /// The base is multiplied during some reductions.
    pub shifts: Vec<Shift>,
}

/// The response time of an attempt: base × law × (1 − `size_share` + `size_share` × bytes ÷ 65 536).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkLaw {
    /// The base of a link. Both directions between two nodes have the same.
    pub base_s: Base,
    /// A direction's base differs from the link's by a lognormal factor with this sigma.
    pub direction_sigma: f64,
    /// The share of the response time that grows with the size, 0 to 1.
    pub size_share: f64,
    /// The variation from attempt to attempt.
    pub law: Law,
}

/// From `min` to `max`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

/// The variation of the response time from attempt to attempt; every law has median 1 (of lognormal, that
/// holds for the attempts that are not slow).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "lowercase")]
pub enum Law {
    /// None.
    Constant {},
    /// The logarithm is normal.
    Lognormal {
        /// Deviation of the logarithm.
        sigma: f64,
        /// Some attempts are slower by `slow_factor`: their share.
        #[serde(default)]
        slow_share: f64,
        /// How much slower.
        #[serde(default = "one")]
        slow_factor: f64,
    },
    /// A tail that falls as a power: ((1 − share) + share × u^(−1/alpha)) × lognormal(sigma), ÷ the median.
    Pareto {
        /// The tail's exponent; below 1 there is no mean.
        alpha: f64,
        /// The part that varies.
        #[serde(default = "one")]
        share: f64,
        /// A lognormal factor on top.
        #[serde(default)]
        sigma: f64,
        /// No response takes longer than this many seconds.
        #[serde(default = "boundless")]
        cap_s: f64,
    },
    /// The numbers of a file, divided by their median; each link starts somewhere in it, every reduction
    /// takes the next one, a retry those after it.
    Trace {
        /// Its path.
        file: PathBuf,
        /// The numbers, once read.
        #[serde(skip)]
        values: Vec<f64>,
    },
}

/// A stall: independent in each attempt, adds a duration.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Stall {
    /// The share of attempts that stall.
    pub probability: f64,
    /// Instead: so many stalls, on average, in so many bytes (their number is Poisson's), so that large
    /// messages stall more often.
    pub per_bytes: Option<u64>,
    /// For how long.
    pub duration_s: Duration,
}

/// The law of a stall's duration.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "lowercase")]
pub enum Duration {
    /// Always the same.
    Constant {
        /// How long.
        #[serde(alias = "s", alias = "seconds", alias = "duration", alias = "mean", alias = "min")]
        value: f64,
    },
    /// Uniform.
    Uniform {
        /// The least.
        min: f64,
        /// The greatest.
        max: f64,
    },
    /// Exponential, cut off at `max` if there is one.
    Exponential {
        /// Its mean.
        #[serde(alias = "mean_s", alias = "scale")]
        mean: f64,
        /// The greatest.
        #[serde(default = "boundless")]
        max: f64,
    },
    /// Pareto from `min` on, cut off at `max`.
    Pareto {
        /// The tail's exponent.
        alpha: f64,
        /// The least.
        min: f64,
        /// The greatest.
        #[serde(default = "boundless")]
        max: f64,
    },
}

/// An attempt is lost, independently of others: nothing arrives and nothing comes back, until the sender's
/// TCP gives up on the connection, which then counts as broken. Who waits for less than that times out.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loss {
    /// The share of attempts that are lost.
    pub probability: f64,
    /// When TCP gives up. Unless given, what 15 retransmissions take on Linux (`tcp_retries2`), from 0.2 s
    /// doubling up to 120 s: 924.6 s. RFC 1122 §4.2.3.5 asks for 100 s at least.
    #[serde(default = "linux_gives_up_s")]
    pub gives_up_s: f64,
}

/// An attempt's connection is reset, independently of others, unless its answer comes sooner.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reset {
    /// The share of attempts that meet one.
    pub probability: f64,
    /// When, from the start of the attempt.
    pub after_s: f64,
}

/// A state of each link, shared by both directions and by retries.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Congestion {
    /// Mean stay in the good state, exponential; links start in it. Endless unless given.
    pub good_s: f64,
    /// Mean stay in the bad state, exponential.
    pub bad_s: f64,
    /// The response time is so many times longer in the bad state.
    pub factor: f64,
    /// Each cancelled copy still in flight multiplies the response time by 1 + this.
    pub load_feedback: f64,
    /// Instead: copies that were cancelled count for this long from their beginning (their weight falls by e
    /// in it), whether in flight or not, and the response time is multiplied by 1 + `load_feedback` × their weight.
    pub load_fade_s: Option<f64>,
    /// Load counts in the bad state only.
    pub load_when_bad: bool,
}

/// The base of each link is multiplied anew, log-uniformly, each time by a new factor of its first base.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Regime {
    /// How often.
    pub every_s: f64,
    /// By what: a factor of the base that the link had at the start, which holds until the next change.
    pub factor: Range,
}

impl Default for Stall {
    fn default() -> Self {
        Self { probability: 0.0, per_bytes: None, duration_s: Duration::Constant { value: 0.0 } }
    }
}

impl Default for Regime {
    fn default() -> Self {
        Self { every_s: f64::INFINITY, factor: Range { min: 1.0, max: 1.0 } }
    }
}

/// The base of some links is multiplied during some reductions.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shift {
    /// The first reduction it touches, from 0.
    pub from: usize,
    /// The first one after it; to the end unless given.
    #[serde(default = "never")]
    pub until: usize,
    /// By what.
    pub factor: f64,
    /// Every other link only.
    #[serde(default)]
    pub every_other_link: bool,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            name: String::new(),
            about: String::new(),
            nodes: 31,
            reductions: 1000,
            message_bytes: vec![65_536],
            message_bytes_range: None,
            same_size_in_reduction: false,
            tries: 5,
            reconnect_s: 0.0,
            reconnect_factor: 0.0,
            pause_s: 0.0,
            period_s: None,
            seed: 1,
            link: LinkLaw::default(),
            stall: None,
            more_stalls: Vec::new(),
            loss: None,
            reset: None,
            congestion: None,
            regime: None,
            shifts: Vec::new(),
        }
    }
}

impl Default for LinkLaw {
    fn default() -> Self {
        Self { base_s: Base::Constant(1.0), direction_sigma: 0.0, size_share: 0.0, law: Law::Constant {} }
    }
}

impl Default for Congestion {
    fn default() -> Self {
        Self {
            good_s: f64::INFINITY,
            bad_s: 1.0,
            factor: 1.0,
            load_feedback: 0.0,
            load_fade_s: None,
            load_when_bad: false,
        }
    }
}

fn one() -> f64 {
    1.0
}

fn boundless() -> f64 {
    f64::INFINITY
}

fn linux_gives_up_s() -> f64 {
    924.6
}

fn never() -> usize {
    usize::MAX
}

#[cfg(test)]
mod tests;
