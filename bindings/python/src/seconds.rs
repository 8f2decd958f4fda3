//! Between Python's seconds and `Duration`.

use std::time::Duration;

use pyo3::PyResult;
use pyo3::exceptions::PyValueError;

/// A time that must have taken, or may take, something.
pub(crate) fn positive(name: &str, seconds: f64) -> PyResult<Duration> {
    match Duration::try_from_secs_f64(seconds) {
        // Less than a nanosecond rounds to nothing, and is as wrong as nothing.
        Ok(duration) if duration != Duration::ZERO => Ok(duration),
        _ => Err(PyValueError::new_err(format!(
            "{name} must be a positive, finite time in seconds, not {seconds:?}"
        ))),
    }
}

/// A time that may be nothing.
pub(crate) fn not_negative(name: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        PyValueError::new_err(format!("{name} must be a finite time in seconds from 0, not {seconds:?}"))
    })
}
