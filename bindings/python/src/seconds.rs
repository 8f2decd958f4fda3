//! Conversion of Python's seconds to `Duration`.

use std::time::Duration;

use pyo3::PyResult;
use pyo3::exceptions::PyValueError;

/// A time above 0, in seconds; `name` is the argument in the error.
pub(crate) fn positive(name: &str, seconds: f64) -> PyResult<Duration> {
    match Duration::try_from_secs_f64(seconds) {
        // Less than a nanosecond rounds to 0, and is as wrong as 0.
        Ok(duration) if duration != Duration::ZERO => Ok(duration),
        _ => Err(PyValueError::new_err(format!(
            "{name} must be a positive, finite time in seconds, not {seconds:?}"
        ))),
    }
}

/// A time of 0 or more, in seconds; `name` is the argument in the error.
pub(crate) fn not_negative(name: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        PyValueError::new_err(format!("{name} must be a finite time of at least 0 seconds, not {seconds:?}"))
    })
}
