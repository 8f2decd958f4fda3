//! Scenario of a distributed program: the behaviour of its links, as plain data that TOML can
//! represent.

mod base;
mod check;

use serde::Deserialize;
use std::path::PathBuf;

pub use base::LinkBase;

/// Parameters of [`crate::LinkSimulation`] and of the program that runs on it. A missing key
/// disables its effect. All times are in seconds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// Name of the scenario.
    pub name: String,
    /// Description in one sentence.
    pub about: String,
    /// Number of processes, including the root.
    pub nodes: usize,
    /// Number of reductions to run.
    pub reductions: usize,
    /// Message sizes in bytes; each send draws one of them.
    pub message_bytes: Vec<u64>,
    /// Range of message sizes in bytes, log-uniform; replaces `message_bytes`.
    pub message_bytes_range: Option<FloatRange>,
    /// Whether all sends of a reduction have the same size, from one draw.
    pub same_size_in_reduction: bool,
    /// Maximum number of attempts of a send.
    pub tries: u32,
    /// Fixed part of the time to reconnect, in seconds.
    pub reconnect_s: f64,
    /// Additional time to reconnect, as a multiple of the base response time of the link.
    pub reconnect_factor: f64,
    /// Pause between the end of a reduction and the start of the next.
    pub pause_s: f64,
    /// Minimum time between the starts of two reductions; replaces the pause.
    pub period_s: Option<f64>,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Response time of an attempt without any other effect.
    pub link: LinkLaw,
    /// Occasional stalls of single attempts.
    pub stall: Option<Stall>,
    /// Further kinds of stalls, drawn independently.
    pub more_stalls: Vec<Stall>,
    /// Loss of some attempts.
    pub loss: Option<AttemptLoss>,
    /// Connection resets of some attempts.
    pub reset: Option<Reset>,
    /// State in which all attempts on a link are slow.
    pub congestion: Option<Congestion>,
    /// Changes of the base at regular intervals.
    pub regime: Option<Regime>,
    /// Factors of the base during some reductions.
    pub shifts: Vec<BaseShift>,
}

/// Response time of an attempt: base × law × (1 − `size_share` + `size_share` × bytes ÷ 65 536).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkLaw {
    /// Base of a link in seconds, the same for both of its directions.
    pub base_s: LinkBase,
    /// Sigma of the lognormal factor by which the base of a direction differs from the base of the
    /// link.
    pub direction_sigma: f64,
    /// Share of the response time that grows with the message size, 0 to 1.
    pub size_share: f64,
    /// Variation of the response time between attempts.
    pub law: ResponseTimeLaw,
}

/// Range from `min` to `max`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FloatRange {
    /// Lower end of the range.
    pub min: f64,
    /// Upper end of the range.
    pub max: f64,
}

/// Variation of the response time between attempts. Every law has the median 1 (the lognormal law
/// without its slow attempts).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "lowercase")]
pub enum ResponseTimeLaw {
    /// No variation: the factor is 1.
    Constant {},
    /// Lognormal distribution, with a share of slow attempts.
    Lognormal {
        /// Standard deviation of the logarithm.
        sigma: f64,
        /// Share of attempts that are slower by `slow_factor`.
        #[serde(default)]
        slow_share: f64,
        /// Factor of the slow attempts.
        #[serde(default = "one")]
        slow_factor: f64,
    },
    /// Distribution with a power-law tail: ((1 − share) + share × u^(−1/alpha)) × lognormal(sigma),
    /// divided by the median.
    Pareto {
        /// Exponent of the tail; below 1 there is no mean.
        alpha: f64,
        /// Share of the factor that varies.
        #[serde(default = "one")]
        share: f64,
        /// Sigma of an additional lognormal factor.
        #[serde(default)]
        sigma: f64,
        /// Maximum response time in seconds, before stalls.
        #[serde(default = "boundless")]
        cap_s: f64,
    },
    /// Numbers from a file, divided by their median. Each direction of a link starts at a random
    /// position; each reduction takes the next number, and each retry the number after that.
    Trace {
        /// Path of the file.
        file: PathBuf,
        /// The numbers, after the file was read.
        #[serde(skip)]
        values: Vec<f64>,
    },
}

/// A stall adds a duration to an attempt, independently of other attempts.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Stall {
    /// Probability that an attempt stalls.
    pub probability: f64,
    /// If given, `probability` is the mean number of stalls in this many bytes (Poisson), so that
    /// large messages stall more often.
    pub per_bytes: Option<u64>,
    /// Distribution of a stall's duration.
    pub duration_s: StallDuration,
}

/// Distribution of a stall's duration in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "lowercase")]
pub enum StallDuration {
    /// The same duration for every stall.
    Constant {
        /// Duration of a stall in seconds.
        #[serde(alias = "s", alias = "seconds", alias = "duration", alias = "mean", alias = "min")]
        value: f64,
    },
    /// Uniform distribution from `min` to `max`.
    Uniform {
        /// Minimum duration in seconds.
        min: f64,
        /// Maximum duration in seconds.
        max: f64,
    },
    /// Exponential distribution, limited to `max`.
    Exponential {
        /// Mean duration in seconds.
        #[serde(alias = "mean_s", alias = "scale")]
        mean: f64,
        /// Maximum duration in seconds.
        #[serde(default = "boundless")]
        max: f64,
    },
    /// Pareto distribution from `min` on, limited to `max`.
    Pareto {
        /// Exponent of the tail.
        alpha: f64,
        /// Minimum duration in seconds.
        min: f64,
        /// Maximum duration in seconds.
        #[serde(default = "boundless")]
        max: f64,
    },
}

/// Loss of an attempt, independent of other attempts: no response arrives until the sender's TCP
/// aborts the connection, which then counts as broken. A caller with a shorter timeout times out
/// first.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptLoss {
    /// Probability that an attempt is lost.
    pub probability: f64,
    /// Time until TCP aborts. The default is the time of 15 retransmissions on Linux
    /// (`tcp_retries2`), from 0.2 s doubling up to 120 s: 924.6 s. RFC 1122 §4.2.3.5 requires at
    /// least 100 s.
    #[serde(default = "linux_gives_up_s")]
    pub gives_up_s: f64,
}

/// Reset of an attempt's connection, unless the response arrives earlier. The resets of different
/// attempts are independent.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reset {
    /// Probability that an attempt is reset.
    pub probability: f64,
    /// Time from the start of the attempt to the reset.
    pub after_s: f64,
}

/// Good and bad state of each link, shared by both directions and by retries.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Congestion {
    /// Mean time in the good state, exponentially distributed. Links start in the good state.
    /// Infinite by default.
    pub good_s: f64,
    /// Mean time in the bad state, exponentially distributed.
    pub bad_s: f64,
    /// Factor of the response time in the bad state.
    pub factor: f64,
    /// Load of a cancelled copy: each cancelled copy still in flight multiplies the response time
    /// by 1 + `load_feedback`.
    pub load_feedback: f64,
    /// If given, the weight of a cancelled copy decays exponentially from the start of its attempt
    /// with this time constant, whether the copy is in flight or not. The response time is then
    /// multiplied by 1 + `load_feedback` × the sum of the weights.
    pub load_fade_s: Option<f64>,
    /// Whether cancelled copies increase the response time only in the bad state.
    pub load_when_bad: bool,
}

/// Changes of the base of each link: in each interval after the first, the base is the initial base
/// times a new log-uniform factor.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Regime {
    /// Interval between changes in seconds.
    pub every_s: f64,
    /// Range of the factor. Each factor applies to the link's initial base until the next change.
    pub factor: FloatRange,
}

impl Default for Stall {
    fn default() -> Self {
        Self { probability: 0.0, per_bytes: None, duration_s: StallDuration::Constant { value: 0.0 } }
    }
}

impl Default for Regime {
    fn default() -> Self {
        Self { every_s: f64::INFINITY, factor: FloatRange { min: 1.0, max: 1.0 } }
    }
}

/// Change of the base of some links, by a factor, during a range of reductions.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BaseShift {
    /// First reduction with the factor, from 0.
    pub from: usize,
    /// First later reduction without the factor. By default, the factor applies to all later
    /// reductions.
    #[serde(default = "never")]
    pub until: usize,
    /// Factor of the base.
    pub factor: f64,
    /// Whether the factor applies only to links with an even number.
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
        Self {
            base_s: LinkBase::Constant(1.0),
            direction_sigma: 0.0,
            size_share: 0.0,
            law: ResponseTimeLaw::Constant {},
        }
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
