//! The default: learns from what it cut off, asks whether a retry helps, knows sizes, keeps a budget.

mod histogram;
mod host;
mod level;
mod optimum;
mod state;

use alloc::vec::Vec;
use barograph_forecast::Battery;
use core::time::Duration;

use crate::time::bounded;
use crate::{Attempt, Decision, Ended, LIMIT, Reason, START, Timeout};
use histogram::{BINS, Counts, Histogram, PRIOR, bin};
use level::{Ground, Level, PART_MAX};
use optimum::{Optimum, Retries, weighed};
use state::{Reader, Writer};

pub use host::Host;
pub use state::StateError;

/// What an [`Adaptive`] is to do. The default is meant to be right.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The budget: the largest share of messages that may be sent again because of a timeout, 0 to 1. It is
    /// given as far as retries, or what happens to the messages after slow ones, show that retries help;
    /// until then, three in a hundred. 0 leaves the backstop alone. NaN counts as 0.
    pub budget: f64,
    /// The timeout while nothing is known.
    pub start: Duration,
    /// How long the last try may run, and so an attempt that is the only one; no timeout is longer. Two hours
    /// unless set: who would rather hear earlier sets it, or a deadline around it all. At least 1 ms.
    pub limit: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self { budget: BUDGET, start: START, limit: LIMIT }
    }
}

/// The default estimator of one link: the timeout that makes the expected time to the answer least.
///
/// It forecasts the time of an attempt on a logarithmic scale, from its size and the answers so far; keeps
/// a fading histogram of how answers scatter around their forecasts, in which an attempt that was cut off
/// counts as one that would have taken longer (Kaplan and Meier 1958); learns from retries whether they are
/// fresh draws or meet the same slowness; and of all timeouts takes the one with which the answer is
/// expected soonest, with the time to connect anew and the retries in the reckoning. Where no timeout gains
/// anything, or the budget is spent, a backstop remains, far beyond what was seen.
#[derive(Clone, Debug)]
pub struct Adaptive {
    config: Config,
    host: Host,
    level: Level,
    histogram: Histogram,
    optimum: Optimum,
    /// How likely a retry is to be quick, see [`Decision::help`].
    help: f64,
    /// Timeouts that the budget has left, and what an answer adds to them.
    tokens: f64,
    refill: f64,
    /// Mean square of the forecasts' errors, each divided by its forecast.
    error2: f64,
    /// Mean time to set up a connection, s; 0 if it was never measured.
    connect_s: f64,
    /// How far above the forecast answers are just now, in octaves, after two slow ones in a row.
    lift: f64,
    /// How far above its forecast the last first attempt was cut off, in octaves, until its retry ends.
    cut: Option<f64>,
    /// How far above its forecast the last answer came, in octaves, if it was slow.
    slow: Option<f64>,
    /// log2 of the seconds that the last answer was expected to take.
    usual: f64,
    answers: u64,
    /// Fits anew when there are so many answers.
    fit_at: u64,
    /// What the host has not been told yet.
    pending: Pending,
}

impl Default for Adaptive {
    fn default() -> Self {
        Self::new(&Config::default(), &Host::default())
    }
}

impl Adaptive {
    /// A link that knows nothing but what `host` has learned on others.
    #[must_use]
    pub fn new(config: &Config, host: &Host) -> Self {
        let budget = if config.budget.is_nan() { 0.0 } else { config.budget.clamp(0.0, 1.0) };
        let limit = config.limit.max(LEAST);
        let config = Config { budget, limit, start: config.start.clamp(LEAST, limit) };
        let refill = UNPROVEN.min(budget);
        Self {
            config,
            host: host.clone(),
            level: Level::new(),
            histogram: Histogram::new(Counts::NONE),
            optimum: Optimum::START,
            help: 0.5,
            tokens: TOKENS_START,
            refill,
            error2: 0.0,
            connect_s: 0.0,
            lift: 0.0,
            cut: None,
            slow: None,
            usual: 0.0,
            answers: 0,
            fit_at: 1,
            pending: Pending::NONE,
        }
    }

    /// Forecasts with a battery instead of the lean mean: it costs a microsecond an answer, and follows
    /// series in which the last values say much about the next.
    #[must_use]
    pub fn with_battery(self, config: &barograph_forecast::Config) -> Self {
        let mut level = self.level;
        level.use_battery(Battery::new(config));
        Self { level, ..self }
    }

    /// Starts from a forecast made elsewhere, such as a station's for this pair, and its error; ignored
    /// once this link has answers of its own.
    pub fn start_from(&mut self, forecast: Duration, error: Duration) {
        if self.level.ground == Ground::Answers {
            return;
        }
        self.level.tell(log2(forecast));
        // Four errors, as RFC 6298 §2.3 allows for what it knows little of.
        let ratio = 1.0 + 4.0 * error.as_secs_f64() / forecast.as_secs_f64().max(TINY_S);
        let first = libm::log2(ratio).clamp(Optimum::START.first, Optimum::START.retries[0]);
        self.optimum = Optimum { first, explore: first, ..Optimum::START };
    }

    /// All it has learned, in a small versioned format that [`Adaptive::load`] reads. What its host has
    /// learned is not in it: see [`Host::save`].
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        let mut writer = Writer::new(KIND);
        let known = self.level.ground == Ground::Answers;
        writer.double(f64::from(u8::from(known)));
        for number in if known { self.level.save() } else { Level::new().save() } {
            writer.double(number);
        }
        let bytes = (self.level.usual_bytes() as f64).min(BYTES_MAX);
        let answers = (self.answers as f64).min(ANSWERS_MAX);
        for number in [bytes, self.usual, self.tokens, self.error2, self.connect_s, answers] {
            writer.double(number);
        }
        let counts = self.histogram.counts();
        counts.answered.iter().chain(&counts.censored).for_each(|count| writer.single(*count));
        writer.bytes()
    }

    /// What [`Adaptive::save`] saved, under a configuration that may be another.
    ///
    /// # Errors
    /// [`StateError`] when `saved` is nothing of the kind; what it lets through makes no timeout wild.
    pub fn load(saved: &[u8], config: &Config, host: &Host) -> Result<Self, StateError> {
        let mut reader = Reader::new(saved, KIND)?;
        let known = 0.5 < reader.double(0.0, 1.0)?;
        let most = [LEVEL_MAX, PART_MAX, PART_MAX, LEVEL_MAX, LEVEL_MAX, LEVEL_MAX];
        let least = [-LEVEL_MAX, -PART_MAX, -PART_MAX, 0.0, -LEVEL_MAX, 0.0];
        let mut level = [0.0; 6];
        for ((number, least), most) in level.iter_mut().zip(least).zip(most) {
            *number = reader.double(least, most)?;
        }
        let bytes = reader.double(0.0, BYTES_MAX)?;
        let mut new = Self::new(config, host);
        new.usual = reader.double(-LEVEL_MAX, LEVEL_MAX)?;
        new.tokens = reader.double(TOKENS_MIN, TOKENS_MAX)?;
        new.error2 = reader.double(0.0, ERROR2_MAX)?;
        new.connect_s = reader.double(0.0, SECONDS_MAX)?;
        let answers = reader.double(0.0, ANSWERS_MAX)?;
        let mut counts = Counts::NONE;
        for count in counts.all_mut() {
            *count = reader.count()?;
        }
        reader.end()?;
        if known {
            // Casts of floats that were checked.
            new.level = Level::load(level, bytes as u64);
            new.answers = answers as u64;
            new.histogram = Histogram::new(counts);
            new.fit();
        }
        Ok(new)
    }

    /// Memory of this link in bytes, heap included; not that of its host.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.level.size_bytes()
    }

    /// log2 of the seconds that an attempt is expected to take now.
    fn forecast(&self, bytes: u64) -> f64 {
        self.level.forecast(bytes) + self.lift
    }

    /// The timeout of a first attempt in octaves above the forecast.
    fn first(&self) -> f64 {
        let Optimum { first, explore, backstop, .. } = self.optimum;
        if self.tokens < 1.0 {
            // An answer that never comes must be noticed all the same; but each timeout that the budget did
            // not have doubles the next, so that there are soon none.
            backstop + (-self.tokens).max(0.0)
        } else if self.tokens < TOKENS_EXPLORE {
            first
        } else {
            explore
        }
    }

    /// The timeout of an attempt that is not the last, in octaves above the forecast.
    fn octaves(&self, number: u32) -> f64 {
        let first = self.first();
        let [one, two] = self.optimum.retries;
        let slack = RETRY_SLACK * f64::from(number);
        match number {
            0 => first,
            1 => one.clamp(first, first + RETRY_STEP_MAX) + slack,
            2 => two.clamp(first, first + 2.0 * RETRY_STEP_MAX) + slack,
            // Nothing is learned of later retries: four times as long each.
            more => two.clamp(first, first + 2.0 * RETRY_STEP_MAX) + slack + 2.0 * f64::from(more - 2),
        }
    }

    /// The share of such attempts that run into their timeout; of retries little is known.
    fn expected_timeouts(&self, attempt: &Attempt) -> f64 {
        match attempt.number {
            _ if attempt.is_last() => 0.0,
            0 if self.answers == 0 => f64::NAN,
            0 => self.optimum.exceed_at(self.first()),
            _ => f64::NAN,
        }
    }

    fn reason(&self, attempt: &Attempt) -> Reason {
        match attempt.number {
            0 if self.level.ground == Ground::Told => Reason::Error,
            0 if self.tokens < 1.0 => Reason::Budget,
            0 if self.optimum.pays
                || TOKENS_EXPLORE <= self.tokens && self.optimum.explore < self.optimum.backstop =>
            {
                Reason::Restart
            }
            0 => Reason::Backstop,
            _ => Reason::Escalated,
        }
    }

    fn answered(&mut self, attempt: &Attempt, took: Duration) {
        let y = log2(took);
        let forecast = self.level.forecast(attempt.bytes);
        if self.level.ground != Ground::Nothing {
            let error = libm::exp2(y - forecast - self.lift) - 1.0;
            let gain = (1.0 / (self.answers + 1) as f64).max(ERROR_GAIN);
            self.error2 += gain * ((error * error).min(ERROR2_MAX) - self.error2);
        }
        if self.level.ground == Ground::Answers {
            self.place(attempt, y - forecast);
        }
        self.level.learn(attempt.bytes, y, forecast);
        self.usual = forecast;
        self.answers += 1;
        self.tokens = (self.tokens + self.refill).min(TOKENS_MAX);
        if self.fit_at <= self.answers {
            self.fit();
        }
    }

    /// Learns from an answer that came `above` the forecast without lift, in octaves.
    fn place(&mut self, attempt: &Attempt, above: f64) {
        if 0.0 < self.lift && above < self.lift - SETTLED {
            self.lift = 0.0;
        }
        let octaves = above - self.lift;
        let late = match self.cut.take_if(|_| attempt.number == 1) {
            Some(cut) => cut < above,
            None => self.first() + CLOCK_SLACK < octaves,
        };
        match attempt.number {
            0 => {
                if let Some(slow) = self.slow {
                    self.host.witness(above < slow - SETTLED, false);
                }
            }
            1 => self.host.witness(!late, true),
            _ => {}
        }
        self.slow = (SLOW < octaves).then_some(above);
        self.observe(octaves, false);
        let again = late && attempt.number == 1;
        self.lift = if (again || 0.0 < self.lift) && LIFT_MIN < above { above.min(LIFT_MAX) } else { 0.0 };
    }

    fn timed_out(&mut self, attempt: &Attempt, took: Duration) {
        self.spend(attempt);
        if self.level.ground == Ground::Answers {
            let above = log2(took) - self.level.forecast(attempt.bytes);
            self.observe(above - self.lift, true);
            if attempt.number == 1 {
                self.host.witness(false, true);
            }
            if attempt.number == 0 {
                self.cut = Some(above);
            }
            // What was just learned matters to the next message already.
            self.fit_at = self.answers + 1;
        }
    }

    fn superseded(&mut self, attempt: &Attempt, took: Duration) {
        if self.level.ground != Ground::Answers || took.is_zero() {
            return;
        }
        let octaves = log2(took) - self.forecast(attempt.bytes);
        self.observe(octaves, true);
        // Otherwise it was given up before its timeout, for reasons that are not ours.
        if attempt.number == 1 && self.first() < octaves {
            self.host.witness(false, true);
        }
    }

    /// The message is sent again because of a timeout, which the budget bears. Where many are under way at
    /// once, all of them may run out before anything was learned, so there is an end to what can be owed.
    fn spend(&mut self, attempt: &Attempt) {
        if !attempt.is_last() {
            self.tokens = (self.tokens - 1.0).max(TOKENS_MIN);
        }
    }

    /// Counts an observation, here and for the host.
    fn observe(&mut self, octaves: f64, censored: bool) {
        let bin = bin(octaves);
        self.histogram.count(bin, censored);
        if self.pending.is_full() {
            self.pending.publish(&self.host);
        }
        self.pending.add(bin, censored);
    }

    /// Works out the best timeouts from what is known now.
    fn fit(&mut self) {
        self.pending.publish(&self.host);
        let host = self.host.counts();
        let total: f64 = host.answered.iter().chain(&host.censored).map(|count| f64::from(*count)).sum();
        self.host.fade(total);
        self.help = self.host.evidence().quick();
        let proven = ((self.help - PROVEN_FROM) / PROVEN_OVER).clamp(0.0, 1.0);
        let unproven = UNPROVEN.min(self.config.budget);
        self.refill = unproven + (self.config.budget - unproven) * proven;
        // A fresh draw is quick unless it is among those that exceed the timeout anyway.
        let help = (self.help / (1.0 - self.optimum.exceed).max(0.5)).min(1.0);
        let retries = Retries {
            connect: self.connect_s * libm::exp2(-self.usual),
            help,
            exceed_max: self.refill,
            explore_max: self.config.budget,
        };
        let host_weight = if 0.0 < total { HOST_WEIGHT * (HOST_MAX / total).min(1.0) } else { 0.0 };
        let counts = weighed(self.histogram.stored(), &host, host_weight, &PRIOR);
        self.optimum = Optimum::of(&counts, retries);
        self.fit_at = self.answers + (self.answers / 8).clamp(1, FIT_EVERY);
    }
}

impl Timeout for Adaptive {
    fn decide(&self, attempt: &Attempt) -> Decision {
        if self.level.ground == Ground::Nothing {
            let reason = if attempt.is_last() { Reason::LastTry } else { Reason::Start };
            let timeout = self.timeout(attempt);
            return Decision { help: self.help, ..Decision::bare(timeout, reason) };
        }
        let forecast = libm::exp2(self.forecast(attempt.bytes));
        let known = 0 < self.answers;
        Decision {
            timeout: self.timeout(attempt),
            forecast: Some(bounded(forecast, self.config.limit)),
            error: known.then(|| bounded(forecast * libm::sqrt(self.error2), self.config.limit)),
            expected_timeouts: self.expected_timeouts(attempt),
            help: self.help,
            reason: if attempt.is_last() { Reason::LastTry } else { self.reason(attempt) },
        }
    }

    fn timeout(&self, attempt: &Attempt) -> Duration {
        if attempt.is_last() {
            return self.config.limit;
        }
        if self.level.ground == Ground::Nothing {
            return self.config.start;
        }
        let octaves = self.forecast(attempt.bytes) + self.octaves(attempt.number);
        bounded(libm::exp2(octaves), self.config.limit)
    }

    fn record(&mut self, attempt: &Attempt, ended: Ended) {
        match ended {
            Ended::Answered(took) => self.answered(attempt, took),
            Ended::TimedOut(took) => self.timed_out(attempt, took),
            Ended::Overdue(_) => self.spend(attempt),
            Ended::Superseded(took) => self.superseded(attempt, took),
            Ended::Failed(_) => {}
        }
    }

    fn connected(&mut self, took: Duration) {
        let took = took.as_secs_f64().min(SECONDS_MAX);
        self.connect_s += if self.connect_s == 0.0 { took } else { CONNECT_GAIN * (took - self.connect_s) };
    }
}

/// Observations on their way to the host, so that most messages touch nothing that links share.
#[derive(Clone, Debug)]
struct Pending {
    /// Bins of answers; of attempts that were cut off, `BINS` is added.
    bins: [u8; PENDING],
    count: u8,
}

impl Pending {
    const NONE: Self = Self { bins: [0; PENDING], count: 0 };

    fn is_full(&self) -> bool {
        usize::from(self.count) == PENDING
    }

    fn add(&mut self, bin: usize, censored: bool) {
        let coded = bin + if censored { BINS } else { 0 };
        self.bins[usize::from(self.count)] = u8::try_from(coded).expect("twice the bins are fewer than 256");
        self.count += 1;
    }

    fn publish(&mut self, host: &Host) {
        for coded in &self.bins[..usize::from(self.count)] {
            let coded = usize::from(*coded);
            host.count(coded % BINS, BINS <= coded);
        }
        self.count = 0;
    }
}

/// log2 of a time in seconds; no time at all counts as a nanosecond.
fn log2(time: Duration) -> f64 {
    libm::log2(time.as_secs_f64().max(TINY_S))
}

/// What a `Duration` can tell from nothing.
const TINY_S: f64 = 1e-9;

/// The numbers below, and those of `host.rs` and `optimum.rs`, were settled on the scenarios in
/// `lab/scenarios/settle`, where most of them hardly matter: DESIGN.md tells which do.
///
/// Three in ten, and only where retries are known to help: where one attempt in five stalls, each message
/// needs a quarter of a retry. Services allow a fifth or so for retries that nobody knows the use of
/// (Finagle and Linkerd: 20 %).
const BUDGET: f64 = 0.3;

/// The share of messages that may be retried before retries have proven to help: enough to find out.
const UNPROVEN: f64 = 0.03;

/// From which share of quick retries on the budget grows, and over how much of it.
const PROVEN_FROM: f64 = 0.5;
const PROVEN_OVER: f64 = 0.2;

/// Timeouts that a new link may have at once; that a link may save up; and from which on it may try out what
/// has not proven itself.
const TOKENS_START: f64 = 3.0;
const TOKENS_MAX: f64 = 10.0;
const TOKENS_EXPLORE: f64 = 8.0;

/// What can be owed: the backstop is 16 times as long then, 128 to 1024 times the forecast, and a hundred or
/// so answers repay it.
const TOKENS_MIN: f64 = -4.0;

/// Each retry may take a tenth longer than worked out, and its step over the first attempt is 6 times at most.
const RETRY_SLACK: f64 = 0.15;
const RETRY_STEP_MAX: f64 = 2.5;

/// An answer is slow that takes three times its forecast, and things have settled when it takes half of that.
const SLOW: f64 = 1.6;
const SETTLED: f64 = 1.0;

/// The forecast is lifted by half an octave at least and at most to 64 times.
const LIFT_MIN: f64 = 0.5;
const LIFT_MAX: f64 = 6.0;

/// An answer may be this late, in octaves, before its timeout counts as passed: timers are.
const CLOCK_SLACK: f64 = 0.01;

/// The links of a host count half, and for no more than 200 answers.
const HOST_WEIGHT: f64 = 0.5;
const HOST_MAX: f64 = 200.0;

/// Half-life of 100 answers, as that of the forecasters' recent errors.
const ERROR_GAIN: f64 = 0.007;

/// Connections change slowly, and are measured seldom.
const CONNECT_GAIN: f64 = 0.2;

/// A fit costs as much as twenty answers: it is done after each eighth of all answers more, and every 32.
const FIT_EVERY: u64 = 32;

/// What fits between two fits, with room for as many attempts that were cut off.
const PENDING: usize = 64;

/// A century is more than any time here.
const SECONDS_MAX: f64 = 3e9;

/// The square of an error of a million times the forecast.
const ERROR2_MAX: f64 = 1e12;

/// As many answers as matter, and sizes that a float holds exactly.
const ANSWERS_MAX: f64 = 1e9;
const BYTES_MAX: f64 = 9e15;

/// No timeout can be shorter than what timers can do.
const LEAST: Duration = Duration::from_millis(1);

/// log2 of more seconds than a `Duration` holds, either way.
const LEVEL_MAX: f64 = 80.0;

/// Marks a saved link.
const KIND: u8 = b'L';
