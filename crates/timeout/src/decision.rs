//! Decisions: a timeout, its forecast and its reason.

use core::fmt;
use core::time::Duration;

/// A timeout, the forecast that it is based on, and the reason for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
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
    /// Expected share of attempts like this one that reach this timeout, 0 to 1; NaN if the
    /// estimator cannot estimate it.
    pub expected_timeouts: f64,
    /// Probability that a retry is quick, that is, that its response arrives before the timeout of
    /// the first attempt, 0 to 1; NaN if the estimator does not learn it.
    pub help: f64,
    /// Reason for this timeout.
    pub reason: Reason,
}

impl Decision {
    /// A decision without a forecast.
    pub(crate) fn bare(timeout: Duration, reason: Reason) -> Self {
        Self { timeout, forecast: None, error: None, expected_timeouts: f64::NAN, help: f64::NAN, reason }
    }
}

/// Reason for a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A fixed timeout that the caller set.
    Set,
    /// Nothing was learned yet: the generous start value.
    Start,
    /// Forecast plus a multiple of its error.
    Error,
    /// Cutting the attempt off here minimises the expected time to the response.
    Restart,
    /// No timeout is expected to gain time: a long timeout that only detects a missing response.
    Backstop,
    /// The retry budget is spent: as [`Reason::Backstop`] until responses have refilled it.
    Budget,
    /// A retry, which may take longer than the attempt before it.
    Escalated,
    /// The last attempt runs to the limit, because cutting it off gains nothing.
    LastTry,
    /// The minimum that the caller set.
    Floor,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Set => "set by hand",
            Self::Start => "nothing known yet",
            Self::Error => "forecast and a multiple of its error",
            Self::Restart => "a retry here is expected to be the quickest",
            Self::Backstop => "no timeout is expected to pay",
            Self::Budget => "the budget of timeouts is spent",
            Self::Escalated => "longer than the attempt before",
            Self::LastTry => "the last try runs to the limit",
            Self::Floor => "the floor set by hand",
        })
    }
}
