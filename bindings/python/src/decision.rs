//! A timeout with the grounds for it.

use pyo3::prelude::*;

/// A timeout, what it is based on, and why it is not another.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct Decision {
    inner: barograph_timeout::Decision,
}

impl From<barograph_timeout::Decision> for Decision {
    fn from(inner: barograph_timeout::Decision) -> Self {
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

    /// The forecast of the response time in seconds, if there is one.
    #[getter]
    fn forecast(&self) -> Option<f64> {
        self.inner.forecast.map(|forecast| forecast.as_secs_f64())
    }

    /// The forecast's typical error in seconds, if one was scored.
    #[getter]
    fn error(&self) -> Option<f64> {
        self.inner.error.map(|error| error.as_secs_f64())
    }

    /// The share of such attempts that is expected to run into this timeout, 0 to 1, if it is known.
    #[getter]
    fn expected_timeouts(&self) -> Option<f64> {
        known(self.inner.expected_timeouts)
    }

    /// How likely a retry is to be a fresh draw rather than to meet the same slowness, 0 to 1, if that is asked.
    #[getter]
    fn help(&self) -> Option<f64> {
        known(self.inner.help)
    }

    /// Why, in a few words.
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

/// The core says NaN where Python says `None`.
fn known(share: f64) -> Option<f64> {
    (!share.is_nan()).then_some(share)
}
