//! The paper's timeouts: the forecast of NWS plus a multiple of its error.

use barograph_forecast::{Battery, Config, Objective, Preset, Rule};
use core::time::Duration;

use crate::time::bounded;
use crate::{Attempt, Decision, Ended, LIMIT, Reason, START, Timeout};

/// Forecast + k·√MSE of the Network Weather Service's battery (Allen, Wolski, Plank 2002, §3).
///
/// The battery learns the time from the start of the first attempt to the response, including
/// cancelled attempts and the set-up of connections; for an abandoned exchange, it learns the time
/// until the exchange was abandoned. The paper does not state what it recorded. If only the time of
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
        let config = Config { preset: Preset::Nws, rule: Rule::TwoLevel, levels: alloc::vec::Vec::new() };
        Self { battery: Battery::new(&config), k: k.max(0.0), start: START, floor: Duration::ZERO }
    }

    /// Sets the timeout until three responses were recorded; [`START`] unless set.
    #[must_use]
    pub fn with_start(self, start: Duration) -> Self {
        Self { start, ..self }
    }

    /// Sets a minimum, which the paper needed on fast links (§6); none unless set.
    #[must_use]
    pub fn with_floor(self, floor: Duration) -> Self {
        Self { floor: floor.min(LIMIT), ..self }
    }
}

impl Timeout for Nws {
    fn decide(&self, _attempt: &Attempt) -> Decision {
        let forecast = self.battery.forecast(Objective::Squared).filter(|forecast| WARM <= forecast.count);
        let Some(forecast) = forecast else {
            return Decision::bare(self.start.max(self.floor), Reason::Start);
        };
        let error = libm::sqrt(forecast.mse);
        let timeout = bounded(forecast.value + self.k * error, LIMIT);
        Decision {
            timeout: timeout.max(self.floor),
            forecast: Some(bounded(forecast.value, LIMIT)),
            error: Some(Duration::try_from_secs_f64(error).unwrap_or(LIMIT)),
            expected_timeouts: f64::NAN,
            help: f64::NAN,
            reason: if timeout < self.floor { Reason::Floor } else { Reason::Error },
        }
    }

    fn record(&mut self, attempt: &Attempt, ended: Ended) {
        let took = match ended {
            Ended::Answered(took) => took,
            Ended::TimedOut(took) if attempt.is_last() => took,
            Ended::TimedOut(_) | Ended::Overdue(_) | Ended::Superseded(_) | Ended::Failed(_) => return,
        };
        let elapsed = attempt.elapsed.saturating_add(took).as_secs_f64();
        self.battery.update(elapsed).expect("a Duration in seconds is below 2e19, and finite");
    }
}

/// [`Nws`] with a longer timeout for each retry, and the [`LIMIT`] for the last attempt.
///
/// On congested paths this achieves about two thirds or more of what [`Adaptive`](crate::Adaptive)
/// gains over the paper's timeouts (S6 to S8 in `lab/results/reduction.md`).
#[derive(Clone, Debug)]
pub struct NwsEscalating(pub Nws);

impl Timeout for NwsEscalating {
    fn decide(&self, attempt: &Attempt) -> Decision {
        escalate(self.0.decide(attempt), attempt, LIMIT)
    }

    fn record(&mut self, attempt: &Attempt, ended: Ended) {
        self.0.record(attempt, ended);
    }
}

/// Turns the decision for a first attempt into the decision for `attempt`.
pub(crate) fn escalate(first: Decision, attempt: &Attempt, limit: Duration) -> Decision {
    if attempt.is_last() {
        return Decision { timeout: limit, reason: Reason::LastTry, ..first };
    }
    if attempt.number == 0 {
        return first;
    }
    let factor = ESCALATION.saturating_pow(attempt.number);
    Decision { timeout: first.timeout.saturating_mul(factor).min(limit), reason: Reason::Escalated, ..first }
}

/// Three responses give two errors; a single error may be 0 by chance.
const WARM: u64 = 3;

/// Factor from each attempt to the next: two retries reach the factor of 16 that a congested path
/// may need.
const ESCALATION: u32 = 4;
