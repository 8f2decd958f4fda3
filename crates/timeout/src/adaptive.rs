//! The default estimator. It also learns from attempts that were cut off, measures whether retries
//! help, takes sizes into account and keeps a retry budget.

mod histogram;
mod host;
mod optimum;
mod response_time;
mod state;

use alloc::vec::Vec;
use barograph_forecast::Battery;
use core::time::Duration;

use crate::time::bounded;
use crate::{
    Attempt, AttemptOutcome, INITIAL_TIMEOUT, MAX_TIMEOUT, TimeoutDecision, TimeoutEstimator, TimeoutReason,
};
use histogram::{BINS, BinCounts, Histogram, PRIOR, bin};
use host::EvidenceSource;
use optimum::{Optimum, Retries, weighed};
use response_time::{ForecastSource, OFFSET_MAX, ResponseTimeModel};
use state::{Reader, Writer};

pub use host::HostStatistics;
pub use state::StateError;

/// Configuration of an [`Adaptive`]; the defaults suit most programs.
///
/// ```
/// use barograph_timeout::{
///     Adaptive, AdaptiveConfig, HostStatistics, MessageAttempts, TimeoutEstimator,
/// };
/// use std::time::Duration;
///
/// let max_timeout = Duration::from_secs(10);
/// let config = AdaptiveConfig { max_timeout, ..AdaptiveConfig::default() };
/// let link = Adaptive::new(&config, &HostStatistics::default());
/// let only_attempt = MessageAttempts::new(1024, 1).attempt(Duration::ZERO);
/// assert_eq!(link.timeout(&only_attempt), max_timeout);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptiveConfig {
    /// Retry budget: the largest share of messages that may be sent again because of a timeout, 0
    /// to 1. Until retries have proven to help, the share is at most 0.03. The share grows to
    /// `retry_budget` when quick retries, or quick messages after a slow message, show that retries
    /// help. With 0, attempts are cut off only by the backstop, a timeout far beyond all response
    /// times. NaN counts as 0.
    pub retry_budget: f64,
    /// Timeout before anything was learned.
    pub initial_timeout: Duration,
    /// Timeout of the last attempt, or of the only attempt; no timeout is longer. The default is
    /// two hours, and the minimum is 1 ms. Callers that need a result earlier set this limit, or a
    /// deadline for the whole message.
    pub max_timeout: Duration,
}

impl Default for AdaptiveConfig {
    fn default() -> Self {
        Self { retry_budget: RETRY_BUDGET, initial_timeout: INITIAL_TIMEOUT, max_timeout: MAX_TIMEOUT }
    }
}

/// The default estimator of one link: it chooses the timeout with the least expected time to the
/// response.
///
/// - It forecasts the response time on a logarithmic scale, from the size of the message and the
///   responses so far.
/// - It keeps a fading histogram of response times around their forecasts. An attempt that was cut
///   off counts as one that would have taken longer (Kaplan and Meier 1958).
/// - It learns whether the time of a retry is independent, or whether retries are affected by the
///   same slowness.
/// - It takes the time to connect again and the timeouts of retries into account.
///
/// If no timeout gains time, or if the budget is spent, a backstop far beyond all response times
/// remains.
///
/// ```
/// use barograph_timeout::{
///     Adaptive, AttemptOutcome, INITIAL_TIMEOUT, MessageAttempts, TimeoutEstimator,
/// };
/// use std::time::Duration;
///
/// let mut link = Adaptive::default();
/// let mut message = MessageAttempts::new(1024, 3);
/// let first = message.attempt(Duration::ZERO);
/// assert_eq!(link.timeout(&first), INITIAL_TIMEOUT);
/// link.record(&first, AttemptOutcome::TimedOut(INITIAL_TIMEOUT));
/// message.advance();
/// let retry = message.attempt(INITIAL_TIMEOUT);
/// link.record(&retry, AttemptOutcome::Completed(Duration::from_millis(20)));
/// let forecast = link.decide(&first).forecast.expect("a response was recorded");
/// assert!(forecast < Duration::from_millis(30), "{forecast:?}");
/// ```
#[derive(Clone, Debug)]
pub struct Adaptive {
    config: AdaptiveConfig,
    host: HostStatistics,
    model: ResponseTimeModel,
    histogram: Histogram,
    optimum: Optimum,
    /// Probability that a retry is quick; see [`TimeoutDecision::retry_success`].
    retry_success: f64,
    /// Number of timeouts left in the budget; negative for a debt.
    tokens: f64,
    refill: f64,
    /// Mean square of the errors of forecasts, where each error is divided by its forecast.
    error2: f64,
    /// Mean time to set up a connection, s; 0 if it was never measured.
    connect_s: f64,
    /// Temporary increase of the forecast, in octaves. The increase begins when the first retry of
    /// a message is slow.
    lift: f64,
    /// Ratio of the time of the last message's first attempt to the forecast of that time, in
    /// octaves; `None` if that attempt was not cut off. The ratio is kept until the retry ends.
    cut: Option<f64>,
    /// Ratio of the last response time to its forecast, in octaves, if the response was slow.
    slow: Option<f64>,
    /// log2 of the response time that was forecast for the last response, in seconds.
    usual: f64,
    answers: u64,
    /// Number of responses of this link at which the timeouts are fitted next.
    fit_at: u64,
    /// Observations that were not yet added to the counts of the host.
    pending: Pending,
}

impl Default for Adaptive {
    fn default() -> Self {
        Self::new(&AdaptiveConfig::default(), &HostStatistics::default())
    }
}

impl Adaptive {
    /// Creates a link that starts with what `host` has learned on other links.
    #[must_use]
    pub fn new(config: &AdaptiveConfig, host: &HostStatistics) -> Self {
        let budget = config.retry_budget;
        let retry_budget = if budget.is_nan() { 0.0 } else { budget.clamp(0.0, 1.0) };
        let max_timeout = config.max_timeout.max(LEAST);
        let initial_timeout = config.initial_timeout.clamp(LEAST, max_timeout);
        let config = AdaptiveConfig { retry_budget, initial_timeout, max_timeout };
        let refill = UNPROVEN.min(retry_budget);
        Self {
            config,
            host: host.clone(),
            model: ResponseTimeModel::new(),
            histogram: Histogram::new(BinCounts::NONE),
            optimum: Optimum::START,
            retry_success: 0.5,
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

    /// Forecasts with a battery instead of the mean of logarithms. The battery takes about a
    /// microsecond for each response. Such a battery suits a series in which the last values
    /// predict the next value.
    ///
    /// ```
    /// use barograph_forecast::BatteryConfig;
    /// use barograph_timeout::{Adaptive, AttemptOutcome, MessageAttempts, TimeoutEstimator};
    /// use std::time::Duration;
    ///
    /// let mut link = Adaptive::default().with_battery(&BatteryConfig::default());
    /// let attempt = MessageAttempts::new(1024, 3).attempt(Duration::ZERO);
    /// for _ in 0..20 {
    ///     link.record(&attempt, AttemptOutcome::Completed(Duration::from_millis(20)));
    /// }
    /// let forecast = link.decide(&attempt).forecast.expect("responses were recorded");
    /// assert!(forecast < Duration::from_millis(30), "{forecast:?}");
    /// ```
    #[must_use]
    pub fn with_battery(self, config: &barograph_forecast::BatteryConfig) -> Self {
        let mut model = self.model;
        model.use_battery(Battery::new(config));
        Self { model, ..self }
    }

    /// Starts from `forecast`, a forecast of the response time, and `error`, the error of this
    /// forecast. Both come from outside, for example from a station that measures this pair. The
    /// forecast is ignored once this link has responses of its own.
    ///
    /// ```
    /// use barograph_timeout::{Adaptive, MessageAttempts, TimeoutEstimator, TimeoutReason};
    /// use std::time::Duration;
    ///
    /// let mut link = Adaptive::default();
    /// link.start_from(Duration::from_millis(20), Duration::from_millis(2));
    /// let decision = link.decide(&MessageAttempts::new(1024, 3).attempt(Duration::ZERO));
    /// assert_eq!(decision.reason, TimeoutReason::ForecastError);
    /// assert!(decision.timeout < Duration::from_secs(1), "{decision:?}");
    /// ```
    pub fn start_from(&mut self, forecast: Duration, error: Duration) {
        if self.model.source == ForecastSource::Responses {
            return;
        }
        self.model.preset(log2(forecast));
        // The timeout adds four times the error, as RFC 6298 §2.3 adds four times the deviation.
        let ratio = 1.0 + 4.0 * error.as_secs_f64() / forecast.as_secs_f64().max(TINY_S);
        let first = libm::log2(ratio).clamp(Optimum::START.first, Optimum::START.retries[0]);
        self.optimum = Optimum { first, explore: first, ..Optimum::START };
    }

    /// Saves what was learned, in a small versioned format that [`Adaptive::load`] reads. What the
    /// host has learned is saved by [`HostStatistics::save`].
    ///
    /// ```
    /// use barograph_timeout::{
    ///     Adaptive, AdaptiveConfig, AttemptOutcome, HostStatistics, MessageAttempts,
    ///     TimeoutEstimator,
    /// };
    /// use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let mut link = Adaptive::default();
    /// let attempt = MessageAttempts::new(1024, 3).attempt(Duration::ZERO);
    /// link.record(&attempt, AttemptOutcome::Completed(Duration::from_millis(20)));
    /// let saved = link.save();
    /// let (config, host) = (AdaptiveConfig::default(), HostStatistics::default());
    /// let restored = Adaptive::load(&saved, &config, &host)?;
    /// assert_eq!(restored.decide(&attempt).forecast, link.decide(&attempt).forecast);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        let mut writer = Writer::new(KIND);
        let known = self.model.source == ForecastSource::Responses;
        writer.double(f64::from(u8::from(known)));
        for number in if known { self.model.save() } else { ResponseTimeModel::new().save() } {
            writer.double(number);
        }
        let bytes = (self.model.usual_bytes() as f64).min(BYTES_MAX);
        let answers = (self.answers as f64).min(ANSWERS_MAX);
        for number in [bytes, self.usual, self.tokens, self.error2, self.connect_s, answers] {
            writer.double(number);
        }
        let counts = self.histogram.counts();
        counts.answered.iter().chain(&counts.censored).for_each(|count| writer.single(*count));
        writer.bytes()
    }

    /// Loads what [`Adaptive::save`] saved. The configuration may differ from the configuration of
    /// the saved link.
    ///
    /// # Errors
    /// [`StateError`] if `saved` is not the state of a link. If a damaged state is accepted, the
    /// timeouts are still within the limits.
    pub fn load(saved: &[u8], config: &AdaptiveConfig, host: &HostStatistics) -> Result<Self, StateError> {
        let mut reader = Reader::new(saved, KIND)?;
        let known = reader.double(0.0, 1.0)? > 0.5;
        let most = [LEVEL_MAX, OFFSET_MAX, OFFSET_MAX, LEVEL_MAX, LEVEL_MAX, LEVEL_MAX];
        let least = [-LEVEL_MAX, -OFFSET_MAX, -OFFSET_MAX, 0.0, -LEVEL_MAX, 0.0];
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
        let mut counts = BinCounts::NONE;
        for count in counts.all_mut() {
            *count = reader.count()?;
        }
        reader.end()?;
        if known {
            // Both floats were checked to be within the range of the casts.
            new.model = ResponseTimeModel::load(level, bytes as u64);
            new.answers = answers as u64;
            new.histogram = Histogram::new(counts);
            new.fit();
        }
        Ok(new)
    }

    /// Memory of this link in bytes, including its heap memory. The shared [`HostStatistics`] are
    /// not included.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.model.size_bytes()
    }

    /// log2 of the expected time of an attempt in seconds.
    fn forecast(&self, bytes: u64) -> f64 {
        self.model.forecast(bytes) + self.lift
    }

    /// Timeout of a first attempt, in octaves above the forecast.
    fn first(&self) -> f64 {
        let Optimum { first, explore, backstop, .. } = self.optimum;
        if self.tokens < 1.0 {
            // A missing response must be detected even without budget. Each timeout that the budget
            // did not cover doubles the next timeout, so that such timeouts soon become rare.
            backstop + (-self.tokens).max(0.0)
        } else if self.tokens < TOKENS_EXPLORE {
            first
        } else {
            explore
        }
    }

    /// Timeout of an attempt other than the last, in octaves above the forecast.
    fn octaves(&self, number: u32) -> f64 {
        let first = self.first();
        let [one, two] = self.optimum.retries;
        let slack = RETRY_SLACK * f64::from(number);
        match number {
            0 => first,
            1 => one.clamp(first, first + RETRY_STEP_MAX) + slack,
            2 => two.clamp(first, first + 2.0 * RETRY_STEP_MAX) + slack,
            // The timeouts of later retries are not computed from responses. Each of these timeouts
            // is about 4.4 times as long as the timeout of the attempt before.
            more => two.clamp(first, first + 2.0 * RETRY_STEP_MAX) + slack + 2.0 * f64::from(more - 2),
        }
    }

    /// Expected share of attempts like `attempt` that reach their timeout; `None` for retries.
    fn timeout_probability(&self, attempt: &Attempt) -> Option<f64> {
        match attempt.number {
            _ if attempt.is_last() => Some(0.0),
            0 if self.answers > 0 => Some(self.optimum.exceed_at(self.first())),
            _ => None,
        }
    }

    fn reason(&self, attempt: &Attempt) -> TimeoutReason {
        match attempt.number {
            0 if self.model.source == ForecastSource::Preset => TimeoutReason::ForecastError,
            0 if self.tokens < 1.0 => TimeoutReason::BudgetSpent,
            0 if self.optimum.pays
                || self.tokens >= TOKENS_EXPLORE && self.optimum.explore < self.optimum.backstop =>
            {
                TimeoutReason::Optimal
            }
            0 => TimeoutReason::Backstop,
            _ => TimeoutReason::Escalated,
        }
    }

    fn completed(&mut self, attempt: &Attempt, took: Duration) {
        let y = log2(took);
        let forecast = self.model.forecast(attempt.bytes);
        if self.model.source != ForecastSource::None {
            let error = libm::exp2(y - forecast - self.lift) - 1.0;
            let gain = (1.0 / (self.answers + 1) as f64).max(ERROR_GAIN);
            self.error2 += gain * ((error * error).min(ERROR2_MAX) - self.error2);
        }
        if self.model.source == ForecastSource::Responses {
            self.classify_response(attempt, y - forecast);
        }
        self.model.learn(attempt.bytes, y, forecast);
        self.usual = forecast;
        self.answers += 1;
        self.tokens = (self.tokens + self.refill).min(TOKENS_MAX);
        if self.fit_at <= self.answers {
            self.fit();
        }
    }

    /// Learns from a response that took 2^`above` times the forecast. This forecast does not
    /// include the lift.
    fn classify_response(&mut self, attempt: &Attempt, above: f64) {
        if self.lift > 0.0 && above < self.lift - SETTLED {
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
                    self.host.record_retry_evidence(EvidenceSource::NextMessage, above < slow - SETTLED);
                }
            }
            1 => self.host.record_retry_evidence(EvidenceSource::Retry, !late),
            _ => {}
        }
        self.slow = (octaves > SLOW).then_some(above);
        self.observe(octaves, false);
        let again = late && attempt.number == 1;
        self.lift = if (again || self.lift > 0.0) && above > LIFT_MIN { above.min(LIFT_MAX) } else { 0.0 };
    }

    fn timed_out(&mut self, attempt: &Attempt, took: Duration) {
        self.spend(attempt);
        if self.model.source == ForecastSource::Responses {
            let above = log2(took) - self.model.forecast(attempt.bytes);
            self.observe(above - self.lift, true);
            if attempt.number == 1 {
                self.host.record_retry_evidence(EvidenceSource::Retry, false);
            }
            if attempt.number == 0 {
                self.cut = Some(above);
            }
            // Fit again at the next response, so that the new observation is used soon.
            self.fit_at = self.answers + 1;
        }
    }

    fn cancelled(&mut self, attempt: &Attempt, took: Duration) {
        if self.model.source != ForecastSource::Responses || took.is_zero() {
            return;
        }
        let octaves = log2(took) - self.forecast(attempt.bytes);
        self.observe(octaves, true);
        // An attempt that was dropped before its timeout does not show whether retries help.
        if attempt.number == 1 && self.first() < octaves {
            self.host.record_retry_evidence(EvidenceSource::Retry, false);
        }
    }

    /// Takes one timeout from the budget, because the message is sent again. If many messages are
    /// in progress at once, all these messages may time out before anything was learned. So the
    /// debt has a limit.
    fn spend(&mut self, attempt: &Attempt) {
        if !attempt.is_last() {
            self.tokens = (self.tokens - 1.0).max(TOKENS_MIN);
        }
    }

    /// Adds an observation to the counts of this link, and later to the counts of the host.
    fn observe(&mut self, octaves: f64, censored: bool) {
        let bin = bin(octaves);
        self.histogram.count(bin, censored);
        if self.pending.is_full() {
            self.pending.publish(&self.host);
        }
        self.pending.add(bin, censored);
    }

    /// Computes the best timeouts from all observations so far.
    fn fit(&mut self) {
        self.pending.publish(&self.host);
        let host = self.host.counts();
        let total: f64 = host.answered.iter().chain(&host.censored).map(|count| f64::from(*count)).sum();
        self.host.fade(total);
        self.retry_success = self.host.evidence().quick();
        let proven = ((self.retry_success - PROVEN_FROM) / PROVEN_OVER).clamp(0.0, 1.0);
        let unproven = UNPROVEN.min(self.config.retry_budget);
        self.refill = unproven + (self.config.retry_budget - unproven) * proven;
        // An independent retry is quick unless its own time exceeds the timeout, so divide by the
        // share of attempts within the timeout.
        let help = (self.retry_success / (1.0 - self.optimum.exceed).max(0.5)).min(1.0);
        let retries = Retries {
            connect: self.connect_s * libm::exp2(-self.usual),
            help,
            exceed_max: self.refill,
            explore_max: self.config.retry_budget,
        };
        let host_weight = if total > 0.0 { HOST_WEIGHT * (HOST_MAX / total).min(1.0) } else { 0.0 };
        let counts = weighed(self.histogram.stored(), &host, host_weight, &PRIOR);
        self.optimum = Optimum::of(&counts, retries);
        self.fit_at = self.answers + (self.answers / 8).clamp(1, FIT_EVERY);
    }
}

impl TimeoutEstimator for Adaptive {
    fn decide(&self, attempt: &Attempt) -> TimeoutDecision {
        if self.model.source == ForecastSource::None {
            let reason = if attempt.is_last() { TimeoutReason::LastAttempt } else { TimeoutReason::Initial };
            let timeout = self.timeout(attempt);
            return TimeoutDecision {
                retry_success: Some(self.retry_success),
                ..TimeoutDecision::bare(timeout, reason)
            };
        }
        let forecast = libm::exp2(self.forecast(attempt.bytes));
        let known = self.answers > 0;
        TimeoutDecision {
            timeout: self.timeout(attempt),
            forecast: Some(bounded(forecast, self.config.max_timeout)),
            error: known.then(|| bounded(forecast * libm::sqrt(self.error2), self.config.max_timeout)),
            timeout_probability: self.timeout_probability(attempt),
            retry_success: Some(self.retry_success),
            reason: if attempt.is_last() { TimeoutReason::LastAttempt } else { self.reason(attempt) },
        }
    }

    fn timeout(&self, attempt: &Attempt) -> Duration {
        if attempt.is_last() {
            return self.config.max_timeout;
        }
        if self.model.source == ForecastSource::None {
            return self.config.initial_timeout;
        }
        let octaves = self.forecast(attempt.bytes) + self.octaves(attempt.number);
        bounded(libm::exp2(octaves), self.config.max_timeout)
    }

    fn record(&mut self, attempt: &Attempt, ended: AttemptOutcome) {
        match ended {
            AttemptOutcome::Completed(took) => self.completed(attempt, took),
            AttemptOutcome::TimedOut(took) => self.timed_out(attempt, took),
            AttemptOutcome::Hedged(_) => self.spend(attempt),
            AttemptOutcome::Cancelled(took) => self.cancelled(attempt, took),
            AttemptOutcome::Failed(_) => {}
        }
    }

    fn record_connect(&mut self, took: Duration) {
        let took = took.as_secs_f64().min(SECONDS_MAX);
        self.connect_s += if self.connect_s == 0.0 { took } else { CONNECT_GAIN * (took - self.connect_s) };
    }
}

/// Observations that will be added to the counts of the host together. So most messages do not
/// write to shared memory.
#[derive(Clone, Debug)]
struct Pending {
    /// Bin of each observation. For an attempt that was cut off, `BINS` is added to the bin number.
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

    fn publish(&mut self, host: &HostStatistics) {
        for coded in &self.bins[..usize::from(self.count)] {
            let coded = usize::from(*coded);
            host.count(coded % BINS, coded >= BINS);
        }
        self.count = 0;
    }
}

/// log2 of a time in seconds; less than a nanosecond counts as a nanosecond.
fn log2(time: Duration) -> f64 {
    libm::log2(time.as_secs_f64().max(TINY_S))
}

/// Resolution of a `Duration`, s.
const TINY_S: f64 = 1e-9;

/// Default retry budget: 0.3. If a fifth of all attempts stall, a message needs 0.25 retries on
/// average. The budget of 0.3 applies only where retries are known to help. Finagle and Linkerd
/// allow 0.2 without that knowledge.
///
/// This constant, the constants below, and the constants of `host.rs` and `optimum.rs` were chosen
/// on the scenarios in `lab/scenarios/settle`. `docs/design/timeout.md` states which of these
/// constants matter.
const RETRY_BUDGET: f64 = 0.3;

/// Share of messages that may be retried until retries have proven to help. This share is large
/// enough to measure whether retries help.
const UNPROVEN: f64 = 0.03;

/// The budget grows if the share of quick retries is above `PROVEN_FROM`. The budget has its full
/// size if the share exceeds `PROVEN_FROM` by `PROVEN_OVER` or more.
const PROVEN_FROM: f64 = 0.5;
const PROVEN_OVER: f64 = 0.2;

/// Numbers of timeouts in the budget: the number for a new link, the maximum, and the smallest
/// number at which the link may try an unproven timeout.
const TOKENS_START: f64 = 3.0;
const TOKENS_MAX: f64 = 10.0;
const TOKENS_EXPLORE: f64 = 8.0;

/// Largest debt of the budget, as a negative number of timeouts. At this debt, the backstop is 16
/// times as long: 128 to 1024 times the forecast. If each response adds [`UNPROVEN`] timeouts to
/// the budget, 133 responses repay this debt.
const TOKENS_MIN: f64 = -4.0;

/// Constants for the timeout of a retry, in octaves: the slack that is added to the timeout (about
/// a tenth of the timeout), and the largest step from one attempt to the next (a factor of about
/// 6).
const RETRY_SLACK: f64 = 0.15;
const RETRY_STEP_MAX: f64 = 2.5;

/// A response is slow if it takes 3 times its forecast or more. Slowness has ended if a response
/// takes less than half the time of the slow response. Both constants are ratios in octaves.
const SLOW: f64 = 1.6;
const SETTLED: f64 = 1.0;

/// Smallest and largest lift of the forecast: half an octave, and 6 octaves (a factor of 64).
const LIFT_MIN: f64 = 0.5;
const LIFT_MAX: f64 = 6.0;

/// Allowed lateness of timers, in octaves: a response that is later than its timeout by no more
/// than this lateness still counts as in time.
const CLOCK_SLACK: f64 = 0.01;

/// A count of the host has half the weight of a count of the link. If the host has more than 200
/// observations, all its counts together have the weight of 100 responses.
const HOST_WEIGHT: f64 = 0.5;
const HOST_MAX: f64 = 200.0;

/// Gain of the mean square error. The weight of an error halves after 100 responses, as for the
/// recent errors of batteries.
const ERROR_GAIN: f64 = 0.007;

/// Gain of the mean time to connect, which changes slowly and is measured seldom.
const CONNECT_GAIN: f64 = 0.2;

/// Largest number of responses between two fits. A fit takes as much time as twenty responses. The
/// next fit comes when the number of responses has grown by an eighth, but at the latest after this
/// number of responses.
const FIT_EVERY: u64 = 32;

/// Largest number of pending observations: the responses between two fits, and as many attempts
/// that were cut off.
const PENDING: usize = 64;

/// Upper limit of every measured or loaded time, in seconds: about a century.
const SECONDS_MAX: f64 = 3e9;

/// Upper limit of a squared relative error: the square for an error of a million times the
/// forecast.
const ERROR2_MAX: f64 = 1e12;

/// Largest number of responses saved, and the largest size that a float holds exactly.
const ANSWERS_MAX: f64 = 1e9;
const BYTES_MAX: f64 = 9e15;

/// Shortest timeout that timers support.
const LEAST: Duration = Duration::from_millis(1);

/// Limit of log2 of a time in seconds. For every `Duration`, log2 of its seconds is between this
/// number and its negative.
const LEVEL_MAX: f64 = 80.0;

/// Kind of a saved state: a link.
const KIND: u8 = b'L';
