//! The paper's timeouts: the forecast of NWS plus a multiple of its error.

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
/// the successful attempt were recorded, a path that became slow would be cut off again and again,
/// because the battery would never learn it.
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

    /// Sets the timeout until three responses were recorded; [`INITIAL_TIMEOUT`] unless set.
    #[must_use]
    pub fn with_start(self, start: Duration) -> Self {
        Self { start, ..self }
    }

    /// Sets a minimum, which the paper needed on fast links (§6); none unless set.
    #[must_use]
    pub fn with_floor(self, floor: Duration) -> Self {
        Self { floor: floor.min(MAX_TIMEOUT), ..self }
    }
}

impl TimeoutEstimator for Nws {
    fn decide(&self, _attempt: &Attempt) -> TimeoutDecision {
        let forecast = self.battery.forecast(Objective::Squared).filter(|forecast| WARM <= forecast.count);
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
/// On congested paths this achieves about two thirds or more of what [`Adaptive`](crate::Adaptive)
/// gains over the paper's timeouts (S6 to S8 in `lab/results/reduction.md`).
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

/// Three responses give two errors; a single error may be 0 by chance.
const WARM: u64 = 3;

/// Factor from each attempt to the next: two retries reach the factor of 16 that a congested path
/// may need.
const ESCALATION: u32 = 4;
