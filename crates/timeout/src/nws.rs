//! Timeouts of Allen, Wolski and Plank (2002): the forecast of NWS plus a multiple of its error.

use barograph_forecast::{Battery, BatteryConfig, Objective, Preset, Rule};
use core::time::Duration;

use crate::time::bounded;
use crate::{
    Attempt, AttemptOutcome, INITIAL_TIMEOUT, MAX_TIMEOUT, TimeoutDecision, TimeoutEstimator, TimeoutReason,
};

/// Forecast + k·√MSE of the Network Weather Service's battery (Allen, Wolski, Plank 2002, §3).
///
/// The battery learns the time from the start of the first attempt to the response, including
/// cancelled attempts and the set-up of connections; for an abandoned message, it learns the time
/// until the message was abandoned. The paper does not state what it recorded. If only the time of
/// the successful attempt were recorded, the battery would never learn the longer times of a path
/// that became slow. Attempts on this path would then be cut off again and again.
///
/// ```
/// use barograph_timeout::{AttemptOutcome, MessageAttempts, Nws, TimeoutEstimator, TimeoutReason};
/// use std::time::Duration;
///
/// let mut estimator = Nws::new(2.0).with_floor(Duration::from_millis(500));
/// let attempt = MessageAttempts::new(1024, 3).attempt(Duration::ZERO);
/// assert_eq!(estimator.decide(&attempt).reason, TimeoutReason::Initial);
/// for _ in 0..3 {
///     estimator.record(&attempt, AttemptOutcome::Completed(Duration::from_millis(250)));
/// }
/// let decision = estimator.decide(&attempt);
/// assert_eq!(decision.timeout, Duration::from_millis(500));
/// assert_eq!(decision.reason, TimeoutReason::Floor);
/// ```
#[derive(Clone, Debug)]
pub struct Nws {
    battery: Battery,
    k: f64,
    start: Duration,
    floor: Duration,
}

impl Nws {
    /// Forecast plus `k` times the error. The paper found that `k` = 2 is better than 1.
    #[must_use]
    pub fn new(k: f64) -> Self {
        let config =
            BatteryConfig { preset: Preset::Nws, rule: Rule::TwoLevel, levels: alloc::vec::Vec::new() };
        Self { battery: Battery::new(&config), k: k.max(0.0), start: INITIAL_TIMEOUT, floor: Duration::ZERO }
    }

    /// Sets the timeout that is used until three responses have been recorded. The default is
    /// [`INITIAL_TIMEOUT`].
    #[must_use]
    pub fn with_start(self, start: Duration) -> Self {
        Self { start, ..self }
    }

    /// Sets a minimum timeout. The paper needed such a minimum on fast links (§6). The default is
    /// no minimum.
    #[must_use]
    pub fn with_floor(self, floor: Duration) -> Self {
        Self { floor: floor.min(MAX_TIMEOUT), ..self }
    }
}

impl TimeoutEstimator for Nws {
    fn decide(&self, _attempt: &Attempt) -> TimeoutDecision {
        let forecast = self.battery.forecast(Objective::Squared).filter(|forecast| forecast.count >= WARM);
        let Some(forecast) = forecast else {
            return TimeoutDecision::bare(self.start.max(self.floor), TimeoutReason::Initial);
        };
        let error = libm::sqrt(forecast.mse);
        let timeout = bounded(forecast.value + self.k * error, MAX_TIMEOUT);
        TimeoutDecision {
            timeout: timeout.max(self.floor),
            forecast: Some(bounded(forecast.value, MAX_TIMEOUT)),
            error: Some(Duration::try_from_secs_f64(error).unwrap_or(MAX_TIMEOUT)),
            timeout_probability: None,
            retry_success: None,
            reason: if timeout < self.floor { TimeoutReason::Floor } else { TimeoutReason::ForecastError },
        }
    }

    fn record(&mut self, attempt: &Attempt, ended: AttemptOutcome) {
        let took = match ended {
            AttemptOutcome::Completed(took) => took,
            AttemptOutcome::TimedOut(took) if attempt.is_last() => took,
            AttemptOutcome::TimedOut(_)
            | AttemptOutcome::Hedged(_)
            | AttemptOutcome::Cancelled(_)
            | AttemptOutcome::Failed(_) => return,
        };
        let elapsed = attempt.elapsed.saturating_add(took).as_secs_f64();
        self.battery.update(elapsed).expect("a Duration in seconds is below 2e19, and finite");
    }
}

/// [`Nws`] with a longer timeout for each retry, and the [`MAX_TIMEOUT`] for the last attempt.
///
/// On congested paths, this estimator saves about two thirds or more of the time that
/// [`Adaptive`](crate::Adaptive) saves compared with the paper's timeouts (S6 to S8 in
/// `lab/results/reduction.md`).
///
/// ```
/// use barograph_timeout::{MAX_TIMEOUT, MessageAttempts, Nws, NwsEscalating, TimeoutEstimator};
/// use std::time::Duration;
///
/// let estimator = NwsEscalating(Nws::new(2.0).with_start(Duration::from_secs(1)));
/// let mut message = MessageAttempts::new(1024, 3);
/// assert_eq!(estimator.timeout(&message.attempt(Duration::ZERO)), Duration::from_secs(1));
/// message.advance();
/// assert_eq!(estimator.timeout(&message.attempt(Duration::ZERO)), Duration::from_secs(4));
/// message.advance();
/// assert_eq!(estimator.timeout(&message.attempt(Duration::ZERO)), MAX_TIMEOUT);
/// ```
#[derive(Clone, Debug)]
pub struct NwsEscalating(pub Nws);

impl TimeoutEstimator for NwsEscalating {
    fn decide(&self, attempt: &Attempt) -> TimeoutDecision {
        escalate(self.0.decide(attempt), attempt, MAX_TIMEOUT)
    }

    fn record(&mut self, attempt: &Attempt, ended: AttemptOutcome) {
        self.0.record(attempt, ended);
    }
}

/// Turns the decision for a first attempt into the decision for `attempt`.
pub(crate) fn escalate(first: TimeoutDecision, attempt: &Attempt, limit: Duration) -> TimeoutDecision {
    if attempt.is_last() {
        return TimeoutDecision { timeout: limit, reason: TimeoutReason::LastAttempt, ..first };
    }
    if attempt.number == 0 {
        return first;
    }
    let factor = ESCALATION.saturating_pow(attempt.number);
    TimeoutDecision {
        timeout: first.timeout.saturating_mul(factor).min(limit),
        reason: TimeoutReason::Escalated,
        ..first
    }
}

/// Smallest number of responses at which the forecast and its error are used. Three responses give
/// two errors. A single error may be 0 by chance.
const WARM: u64 = 3;

/// Factor by which the timeout grows from each attempt to the next: two retries reach the factor of
/// 16 that a congested path may need.
const ESCALATION: u32 = 4;
