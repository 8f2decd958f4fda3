//! A timeout with the grounds for it.

use core::fmt;
use core::time::Duration;

/// A timeout, what it is based on, and why it is not another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// How long the attempt may take.
    pub timeout: Duration,
    /// The forecast of the response time, if there is one.
    pub forecast: Option<Duration>,
    /// The forecast's typical error: the root mean square of the errors of the forecasts really issued; of
    /// [`Adaptive`](crate::Adaptive) that of the errors relative to their forecasts, times this forecast, since
    /// sizes differ; of [`Rfc6298`](crate::Rfc6298) the mean deviation.
    pub error: Option<Duration>,
    /// The share of such attempts that is expected to run into this timeout, 0 to 1; NaN where the
    /// estimator does not know.
    pub expected_timeouts: f64,
    /// How likely a retry is to be quick, that is to be answered before the first attempt's timeout, 0 to 1;
    /// NaN where the estimator does not ask.
    pub help: f64,
    /// Why.
    pub reason: Reason,
}

impl Decision {
    /// A timeout that rests on no forecast.
    pub(crate) fn bare(timeout: Duration, reason: Reason) -> Self {
        Self { timeout, forecast: None, error: None, expected_timeouts: f64::NAN, help: f64::NAN, reason }
    }
}

/// Why a timeout is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// It was set by hand.
    Set,
    /// Nothing is known yet: a generous start.
    Start,
    /// The forecast and a multiple of its error.
    Error,
    /// Cutting here makes the expected time to the answer least.
    Restart,
    /// No timeout is expected to pay: far beyond what was seen, to notice an answer that never comes.
    Backstop,
    /// The budget of timeouts is spent: as [`Reason::Backstop`], until answers have earned more.
    Budget,
    /// A retry: longer than the attempt before it.
    Escalated,
    /// The last try: nothing is gained by cutting it, so it runs to the limit.
    LastTry,
    /// The floor that was set by hand.
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
