//! The native half of the Python package `barograph`: each class is a thin shell around a type of the core
//! crates. What calls, retries, asyncio and HTTP clients need is written in Python, beside it.
//!
//! Times are seconds, as everywhere in Python. Every class may be used from several threads at once: what
//! learns is behind a mutex, which is waited for without holding the interpreter back.
// The macros of pyo3 write the unsafe code that an extension module consists of; we write none.
#![deny(unsafe_code)]

mod decision;
mod forecaster;
mod seconds;
mod timeout;
mod values;

use pyo3::prelude::*;

/// The native half of barograph.
#[pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    use crate::decision::Decision;
    #[pymodule_export]
    use crate::forecaster::{Forecast, Forecaster, Interval};
    #[pymodule_export]
    use crate::timeout::{AdaptiveTimeout, Host};
    use pyo3::prelude::*;

    /// Hands `error`, which cannot be raised, to `sys.unraisablehook`; Python code alone cannot.
    #[pyfunction]
    fn write_unraisable(py: Python<'_>, error: Bound<'_, PyAny>, object: &Bound<'_, PyAny>) {
        PyErr::from_value(error).write_unraisable(py, Some(object));
    }
}
