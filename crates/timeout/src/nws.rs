//! The paper's timeouts: the forecast of NWS and a multiple of its error.

use barograph_forecast::{Battery, Config, Loss, Preset, Rule};
use core::time::Duration;

use crate::time::bounded;
use crate::{Attempt, Decision, Ended, LIMIT, Reason, START, Timeout};

/// Forecast + k·√MSE, from the Network Weather Service's battery (Allen, Wolski, Plank 2002, §3).
///
/// What an exchange feeds it is the time from the start of its first attempt to its answer, cancelled
/// attempts and set-ups of connections included; an exchange that was abandoned feeds the time until it
/// was. The paper does not say what it fed. Were it the answered attempt's own time, a path that became slow
/// would be cut off again and again, since nothing would tell it so.
#[derive(Clone, Debug)]
pub struct Nws {
    battery: Battery,
    k: f64,
    start: Duration,
    floor: Duration,
}

impl Nws {
    /// The paper tried `k` = 1 and 2 and found 2 the better.
    #[must_use]
    pub fn new(k: f64) -> Self {
        let config = Config { preset: Preset::Nws, rule: Rule::TwoLevel, levels: alloc::vec::Vec::new() };
        Self { battery: Battery::new(&config), k: k.max(0.0), start: START, floor: Duration::ZERO }
    }

    /// The timeout while fewer than three answers have come; [`START`] unless set.
    #[must_use]
    pub fn with_start(self, start: Duration) -> Self {
        Self { start, ..self }
    }

    /// A floor set by hand, as the paper needed on fast links (its §6); none unless set.
    #[must_use]
    pub fn with_floor(self, floor: Duration) -> Self {
        Self { floor: floor.min(LIMIT), ..self }
    }
}

impl Timeout for Nws {
    fn decide(&self, _attempt: &Attempt) -> Decision {
        let forecast = self.battery.forecast(Loss::Squared).filter(|forecast| WARM <= forecast.count);
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

/// [`Nws`] whose retries wait longer and longer, and whose last try runs to the [`LIMIT`].
///
/// On congested paths this is two thirds and more of what [`Adaptive`](crate::Adaptive) gains over the paper's
/// (S6 to S8 in `lab/README.md`).
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

/// The decision for a first attempt, made that of a later one.
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

/// Three answers score two forecasts; one error alone may be 0 by chance.
const WARM: u64 = 3;

/// Each retry waits so many times longer: two retries reach the 16 times that a congested path may need.
const ESCALATION: u32 = 4;
