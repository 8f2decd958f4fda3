//! Timeouts at a quantile of the forecast response time.

use barograph_forecast::{
    Battery, BatteryConfig, Objective, QUANTILE_RANGE, QuantileForecaster, QuantileMethod,
};
use core::time::Duration;

use crate::nws::escalate;
use crate::time::bounded;
use crate::{
    Attempt, AttemptOutcome, INITIAL_TIMEOUT, MAX_TIMEOUT, TimeoutDecision, TimeoutEstimator, TimeoutReason,
};

/// A quantile of the forecast response time: with the share 0.99, about one first attempt in a
/// hundred reaches its timeout, whatever the response times are.
///
/// This timeout suits programs that plan the number of their retries or hedges: *The Tail at Scale*
/// (Dean, Barroso 2013) sends a second request at the quantile 0.95. It does not know whether a
/// retry helps; [`Adaptive`](crate::Adaptive) does, and also considers the size of a message.
///
/// The forecast learns from first attempts only. An attempt that was cut off counts as one that
/// took twice as long, so quantiles do not shrink because slow responses are never seen. So while a
/// target does not respond, each attempt has a longer timeout than the one before, and many
/// responses must follow until it is short again.
///
/// The first retry may take four times as long as the first attempt, each further retry four times
/// as long again, and the last attempt [`MAX_TIMEOUT`].
///
/// ```
/// use barograph_timeout::{
///     AttemptOutcome, MessageAttempts, QuantileTimeout, TimeoutEstimator, TimeoutReason,
/// };
/// use std::time::Duration;
///
/// let mut link = QuantileTimeout::new(0.95).expect("the share is within its range");
/// let attempt = MessageAttempts::new(1024, 2).attempt(Duration::ZERO);
/// let mut random = 1_u32;
/// for _ in 0..500 {
///     // Each response time from 20 to 40 ms is equally likely.
///     random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
///     let took = Duration::from_micros(20_000 + u64::from(random >> 8) % 20_000);
///     link.record(&attempt, AttemptOutcome::Completed(took));
/// }
/// let decision = link.decide(&attempt);
/// assert_eq!(decision.reason, TimeoutReason::Quantile);
/// assert!(Duration::from_millis(37) < decision.timeout, "{decision:?}");
/// assert!(decision.timeout < Duration::from_millis(42), "{decision:?}");
/// ```
#[derive(Clone, Debug)]
pub struct QuantileTimeout {
    battery: Battery,
    quantiles: QuantileForecaster,
    share: f64,
    start: Duration,
    floor: Duration,
}

impl QuantileTimeout {
    /// Share of the first attempts that end before the timeout: 0.005 to 0.995, such as 0.99.
    /// `None` if `share` is outside this range.
    #[must_use]
    pub fn new(share: f64) -> Option<Self> {
        QUANTILE_RANGE.contains(&share).then(|| Self {
            battery: Battery::new(&BatteryConfig::default()),
            quantiles: QuantileForecaster::new(QuantileMethod::Blended),
            share,
            start: INITIAL_TIMEOUT,
            floor: Duration::ZERO,
        })
    }

    /// Sets the timeout that is used until eleven first attempts have been recorded, for example
    /// the quantile that a station forecasts for the pair. The default is [`INITIAL_TIMEOUT`].
    #[must_use]
    pub fn with_start(self, start: Duration) -> Self {
        Self { start: start.min(MAX_TIMEOUT), ..self }
    }

    /// Sets a minimum timeout. The default is no minimum.
    #[must_use]
    pub fn with_floor(self, floor: Duration) -> Self {
        Self { floor: floor.min(MAX_TIMEOUT), ..self }
    }

    /// Decides about a first attempt that is not the last one.
    fn first(&self) -> TimeoutDecision {
        let forecast = self.battery.forecast(Objective::Absolute);
        let Some((forecast, quantile_s)) = forecast.zip(self.quantiles.quantile(self.share)) else {
            return TimeoutDecision::bare(self.start.max(self.floor), TimeoutReason::Initial);
        };
        let quantile = bounded(quantile_s, MAX_TIMEOUT);
        let is_floor = quantile < self.floor;
        TimeoutDecision {
            timeout: quantile.max(self.floor),
            forecast: Some(bounded(forecast.value, MAX_TIMEOUT)),
            error: Some(bounded(libm::sqrt(forecast.mse), MAX_TIMEOUT)),
            timeout_probability: (!is_floor).then_some(1.0 - self.share),
            retry_success: None,
            reason: if is_floor { TimeoutReason::Floor } else { TimeoutReason::Quantile },
        }
    }

    /// The time to learn from a first attempt, s; `None` if its end shows nothing about the
    /// quantile.
    fn learned_s(&self, ended: AttemptOutcome) -> Option<f64> {
        match ended {
            AttemptOutcome::Completed(took) => Some(took.as_secs_f64()),
            AttemptOutcome::TimedOut(took) => Some(CENSORED * took.as_secs_f64()),
            // Dropped for its copy, after it had reached its timeout.
            AttemptOutcome::Cancelled(took) => {
                let quantile_s = self.quantiles.quantile(self.share)?;
                (quantile_s <= took.as_secs_f64()).then_some(CENSORED * took.as_secs_f64())
            }
            AttemptOutcome::Hedged(_) | AttemptOutcome::Failed(_) => None,
        }
    }
}

impl TimeoutEstimator for QuantileTimeout {
    fn decide(&self, attempt: &Attempt) -> TimeoutDecision {
        let decision = escalate(self.first(), attempt, MAX_TIMEOUT);
        let timeout_probability = match attempt.number {
            _ if attempt.is_last() => Some(0.0),
            0 => decision.timeout_probability,
            _ => None,
        };
        TimeoutDecision { timeout_probability, ..decision }
    }

    fn record(&mut self, attempt: &Attempt, ended: AttemptOutcome) {
        if attempt.number != 0 {
            return;
        }
        let Some(learned_s) = self.learned_s(ended) else { return };
        self.battery.update(learned_s).expect("twice a Duration in seconds is below 4e19, and finite");
        self.quantiles.update(&self.battery, learned_s, false);
    }
}

/// Factor for the time of an attempt that was cut off. The time that it would have taken is
/// unknown, but longer than the quantile. If the attempt counted with its own time, the quantile
/// would stay where it is after the path became slow.
const CENSORED: f64 = 2.0;
