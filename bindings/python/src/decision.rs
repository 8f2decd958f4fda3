//! A timeout, with the reason for it.

use pyo3::prelude::*;

/// A timeout, the forecast behind it, and the reason for it.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct Decision {
    inner: barograph_timeout::TimeoutDecision,
}

impl From<barograph_timeout::TimeoutDecision> for Decision {
    fn from(inner: barograph_timeout::TimeoutDecision) -> Self {
        Self { inner }
    }
}

#[pymethods]
impl Decision {
    /// How long the attempt may take, in seconds.
    #[getter]
    fn timeout(&self) -> f64 {
        self.inner.timeout.as_secs_f64()
    }

    /// The forecast of the response time, in seconds; None if there is none.
    #[getter]
    fn forecast(&self) -> Option<f64> {
        self.inner.forecast.map(|forecast| forecast.as_secs_f64())
    }

    /// Typical error of the forecast, in seconds; None if none was scored.
    #[getter]
    fn error(&self) -> Option<f64> {
        self.inner.error.map(|error| error.as_secs_f64())
    }

    /// The share of such attempts that is expected to reach this timeout, 0 to 1; None if not
    /// known.
    #[getter]
    fn expected_timeouts(&self) -> Option<f64> {
        self.inner.timeout_probability
    }

    /// The probability that a retry is quick, that is, answered before the first attempt's timeout,
    /// 0 to 1; None if the strategy does not learn it.
    #[getter]
    fn help(&self) -> Option<f64> {
        self.inner.retry_success
    }

    /// The reason for this timeout, in a few words.
    #[getter]
    fn reason(&self) -> String {
        self.inner.reason.to_string()
    }

    fn __repr__(&self) -> String {
        let or_none =
            |value: Option<f64>| value.map_or_else(|| "None".to_owned(), |value| format!("{value:.6}"));
        format!(
            "Decision(timeout={:.6}, forecast={}, error={}, expected_timeouts={}, help={}, reason='{}')",
            self.timeout(),
            or_none(self.forecast()),
            or_none(self.error()),
            or_none(self.expected_timeouts()),
            or_none(self.help()),
            self.reason(),
        )
    }
}
