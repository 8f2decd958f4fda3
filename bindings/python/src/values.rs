//! Values from Python: a number, a buffer such as a NumPy array, or any iterable.

use barograph_forecast::{Battery, InvalidValue};
use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString};

/// One value or many; a battery accepts each of them.
pub(crate) fn values(given: &Bound<'_, PyAny>) -> PyResult<Vec<f64>> {
    // Text and bytes can be iterated, too, but are hardly intended.
    if given.is_instance_of::<PyString>()
        || given.is_instance_of::<PyBytes>()
        || given.is_instance_of::<PyByteArray>()
    {
        let kind = given.get_type().name()?.to_string();
        return Err(PyTypeError::new_err(format!("values must be numbers, not {kind}")));
    }
    if !has_elements(given)? {
        let value = given.extract()?;
        return if is_accepted(value) {
            Ok(vec![value])
        } else {
            Err(PyValueError::new_err(InvalidValue(value).to_string()))
        };
    }
    let values = elements(given)?;
    match values.iter().position(|&value| !is_accepted(value)) {
        None => Ok(values),
        Some(index) => Err(PyValueError::new_err(format!("value {index}: {}", InvalidValue(values[index])))),
    }
}

/// Whether `given` has elements. A NumPy scalar or an array without dimensions has none, although
/// it has a buffer.
fn has_elements(given: &Bound<'_, PyAny>) -> PyResult<bool> {
    match given.getattr_opt("ndim")? {
        Some(dimensions) => match dimensions.extract::<u32>()? {
            0 => Ok(false),
            1 => Ok(true),
            more => Err(PyValueError::new_err(format!("a series must have one dimension, not {more}"))),
        },
        None => Ok(given.hasattr("__iter__")? || given.hasattr("__getitem__")?),
    }
}

/// All elements; those of common arrays without a Python object for each.
fn elements(given: &Bound<'_, PyAny>) -> PyResult<Vec<f64>> {
    if let Some(values) = buffer::<f64>(given, |value| value)
        .or_else(|| buffer::<f32>(given, f64::from))
        .or_else(|| buffer::<i32>(given, f64::from))
        // The nearest double, as from Python's own float().
        .or_else(|| buffer::<i64>(given, |value| value as f64))
    {
        return values;
    }
    given
        .try_iter()?
        .enumerate()
        .map(|(index, value)| {
            let value = value?;
            // NumPy would drop the imaginary part, and only warn.
            if value.get_type().name()?.to_string().starts_with("complex") {
                return Err(PyTypeError::new_err(format!(
                    "value {index} is a complex number; expected a real number"
                )));
            }
            value.extract().map_err(|error: PyErr| {
                let error = error.value(value.py()).to_string();
                PyTypeError::new_err(format!("value {index} is not a number: {error}"))
            })
        })
        .collect()
}

/// The elements of a buffer of `T`, in any memory layout; `None` if `given` is no such buffer.
fn buffer<T: Element>(given: &Bound<'_, PyAny>, float: impl Fn(T) -> f64) -> Option<PyResult<Vec<f64>>> {
    let buffer = PyBuffer::<T>::get(given).ok().filter(|buffer| buffer.dimensions() == 1)?;
    // The format may name a byte order before the type; only that of this machine is read.
    if !matches!(buffer.format().to_bytes(), [_] | [b'@', _]) {
        return None;
    }
    Some(buffer.to_vec(given.py()).map(|values| values.into_iter().map(float).collect()))
}

/// Whether a battery accepts `value`; NaN fails the comparison.
fn is_accepted(value: f64) -> bool {
    value.abs() <= Battery::VALUE_MAX
}
