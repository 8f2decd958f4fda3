//! The native half of the Python package `barograph`: each class is a thin shell around a type of
//! the core crates. Calls, retries, asyncio and HTTP clients are written in Python, beside it.
//!
//! Three classes matter: `AdaptiveTimeout` and its `Decision`, and `Forecaster`; `TransferForecast`
//! reads two forecasters, and `LossClassifier` finds the causes of packet losses. The crate opens
//! no socket and reads no clock.
//!
//! Times are in seconds, as everywhere in Python. Every class may be used from several threads at
//! once: state that learns is behind a mutex, and waiting for the mutex does not block the
//! interpreter.
// The macros of pyo3 generate the unsafe code of an extension module; this crate has none.
#![deny(unsafe_code)]

mod decision;
mod forecaster;
mod loss;
mod seconds;
mod timeout;
mod transfer;
mod values;

use pyo3::prelude::*;

/// The native half of barograph.
#[pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    use crate::decision::Decision;
    #[pymodule_export]
    use crate::forecaster::{Availability, BrierScore, Forecast, Forecaster, Interval};
    #[pymodule_export]
    use crate::loss::{LossClassifier, LossDiagnosis};
    #[pymodule_export]
    use crate::timeout::{AdaptiveTimeout, Host};
    #[pymodule_export]
    use crate::transfer::TransferForecast;
    use pyo3::prelude::*;

    /// Hands `error`, which cannot be raised, to `sys.unraisablehook`; Python code alone cannot.
    #[pyfunction]
    fn write_unraisable(py: Python<'_>, error: Bound<'_, PyAny>, object: &Bound<'_, PyAny>) {
        PyErr::from_value(error).write_unraisable(py, Some(object));
    }
}
