//! Decisions: a timeout, its forecast and its reason.

use core::fmt;
use core::time::Duration;

/// A timeout, the forecast that it is based on, and the reason for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeoutDecision {
    /// How long the attempt may take.
    pub timeout: Duration,
    /// The forecast of the response time, if there is one.
    pub forecast: Option<Duration>,
    /// Typical error of the forecast: the root mean square of the errors of the forecasts issued so
    /// far.
    ///
    /// [`Adaptive`](crate::Adaptive) computes the mean over errors relative to their forecasts,
    /// because sizes differ, and multiplies this mean by the current forecast.
    /// [`Rfc6298`](crate::Rfc6298) gives the mean deviation.
    pub error: Option<Duration>,
    /// Expected share of attempts like this one that reach this timeout, 0 to 1; `None` if the
    /// estimator cannot estimate it.
    pub timeout_probability: Option<f64>,
    /// Probability that a retry is quick, that is, that its response arrives before the timeout of
    /// the first attempt, 0 to 1; `None` if the estimator does not learn it.
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
    /// Nothing was learned yet: the generous start value.
    Initial,
    /// Forecast plus a multiple of its error.
    ForecastError,
    /// Cutting the attempt off here minimises the expected time to the response.
    Optimal,
    /// No timeout is expected to gain time: a long timeout that only detects a missing response.
    Backstop,
    /// The retry budget is spent: as [`TimeoutReason::Backstop`] until responses have refilled it.
    BudgetSpent,
    /// A retry, which may take longer than the attempt before it.
    Escalated,
    /// The last attempt runs to the limit, because cutting it off gains nothing.
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
            Self::Optimal => "a retry after this time is expected to be fastest",
            Self::Backstop => "no timeout is expected to gain time",
            Self::BudgetSpent => "the retry budget is spent",
            Self::Escalated => "a retry, with more time than the attempt before",
            Self::LastAttempt => "the last attempt runs to the limit",
            Self::Floor => "the configured minimum",
        })
    }
}
