//! Decisions: a timeout, its forecast and its reason.

use core::fmt;
use core::time::Duration;

/// A timeout, the forecast that it is based on, and the reason for it.
///
/// ```
/// use barograph_timeout::{
///     AttemptOutcome, MessageAttempts, Rfc6298, TimeoutEstimator, TimeoutReason,
/// };
/// use std::time::Duration;
///
/// let mut timer = Rfc6298::default();
/// let attempt = MessageAttempts::new(1024, 3).attempt(Duration::ZERO);
/// timer.record(&attempt, AttemptOutcome::Completed(Duration::from_millis(250)));
/// let decision = timer.decide(&attempt);
/// assert_eq!(decision.forecast, Some(Duration::from_millis(250)));
/// assert_eq!(decision.error, Some(Duration::from_millis(125)));
/// assert_eq!(decision.timeout, Duration::from_millis(750));
/// assert_eq!(decision.reason, TimeoutReason::ForecastError);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeoutDecision {
    /// Longest time that the attempt may take.
    pub timeout: Duration,
    /// The forecast of the response time, if there is one.
    pub forecast: Option<Duration>,
    /// Typical error of the forecast: the root mean square of the errors of the forecasts issued so
    /// far.
    ///
    /// [`Adaptive`](crate::Adaptive) divides each error by its forecast, because sizes differ. The
    /// root mean square of these ratios is then multiplied by the current forecast.
    /// [`Rfc6298`](crate::Rfc6298) gives the mean deviation.
    pub error: Option<Duration>,
    /// Expected share of similar attempts that reach this timeout, 0 to 1; `None` if the estimator
    /// cannot estimate this share.
    pub timeout_probability: Option<f64>,
    /// Probability that a retry is quick, 0 to 1. A retry is quick if its response time is below
    /// the timeout of the first attempt. The value is `None` if the estimator does not learn this
    /// probability.
    pub retry_success: Option<f64>,
    /// Reason for this timeout.
    pub reason: TimeoutReason,
}

impl TimeoutDecision {
    /// A decision without a forecast.
    pub(crate) fn bare(timeout: Duration, reason: TimeoutReason) -> Self {
        Self { timeout, forecast: None, error: None, timeout_probability: None, retry_success: None, reason }
    }
}

/// Reason for a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeoutReason {
    /// A fixed timeout that the caller set.
    Fixed,
    /// Nothing was learned yet, so the timeout is the generous start value.
    Initial,
    /// Forecast plus a multiple of its error.
    ForecastError,
    /// A quantile of the forecast response time.
    Quantile,
    /// This timeout minimises the expected time to the response.
    Optimal,
    /// No timeout is expected to gain time, so this long timeout only detects a missing response.
    Backstop,
    /// The retry budget is spent. Until responses have refilled the budget, the timeout is at least
    /// as long as with [`TimeoutReason::Backstop`].
    BudgetSpent,
    /// A retry, which may take longer than the attempt before it.
    Escalated,
    /// The last attempt runs to the limit, because an earlier timeout gains nothing.
    LastAttempt,
    /// The minimum that the caller set.
    Floor,
}

impl fmt::Display for TimeoutReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fixed => "fixed by the caller",
            Self::Initial => "no response recorded yet",
            Self::ForecastError => "forecast and a multiple of its error",
            Self::Quantile => "a quantile of the forecast response time",
            Self::Optimal => "a retry after this time is expected to be fastest",
            Self::Backstop => "no timeout is expected to gain time",
            Self::BudgetSpent => "the retry budget is spent",
            Self::Escalated => "a retry, with more time than the attempt before",
            Self::LastAttempt => "the last attempt runs to the limit",
            Self::Floor => "the configured minimum",
        })
    }
}
