//! `Forecaster`: a battery over one series.

use std::sync::{Mutex, MutexGuard, PoisonError};

use barograph_forecast::{Battery, Config, LEVELS, Loss, Method, Preset, Rule};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyByteArray, PyDict};

use crate::values::values;

/// A battery of forecasters over one series, and the rule that chooses among them.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct Forecaster {
    inner: Mutex<Battery>,
}

#[pymethods]
impl Forecaster {
    #[new]
    #[pyo3(
        signature = (preset="full", rule=None, levels=Vec::new()),
        text_signature = "(preset='full', rule=None, levels=())"
    )]
    fn new(preset: &str, rule: Option<&str>, levels: Vec<f64>) -> PyResult<Self> {
        for &level in &levels {
            in_range(level)?;
        }
        let preset = preset_named(preset)?;
        let rule = match (rule, preset) {
            (Some(name), _) => rule_named(name)?,
            // What each preset is made for.
            (None, Preset::Full) => Rule::Blend,
            (None, Preset::Nws) => Rule::TwoLevel,
            (None, Preset::Classic) => Rule::Flat,
        };
        Ok(Self { inner: Mutex::new(Battery::new(&Config { preset, rule, levels })) })
    }

    /// Learns a value, or all of a sequence, an array or an iterator, in order. If one of them is not
    /// finite, ValueError names it and nothing is learnt.
    fn update(&self, py: Python<'_>, series: &Bound<'_, PyAny>) -> PyResult<()> {
        let values = values(series)?;
        py.detach(|| {
            let mut battery = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            values.into_iter().for_each(|value| learn(&mut battery, value));
        });
        Ok(())
    }

    /// Learns a series, and gives for each of its values the forecast that was issued before it was seen
    /// (NaN where there was none).
    #[pyo3(signature = (series, loss="squared"))]
    fn predict<'py>(
        &self,
        py: Python<'py>,
        series: &Bound<'py, PyAny>,
        loss: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let loss = loss_named(loss)?;
        let values = values(series)?;
        let issued: Vec<f64> = py.detach(|| {
            let mut battery = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            let step = |value| {
                let issued = battery.forecast(loss).map_or(f64::NAN, |forecast| forecast.value);
                learn(&mut battery, value);
                issued
            };
            values.into_iter().map(step).collect()
        });
        like(series, issued)
    }

    /// The forecast of the next value, or None before the first.
    #[pyo3(signature = (loss="squared"))]
    fn forecast(&self, py: Python<'_>, loss: &str) -> PyResult<Option<Forecast>> {
        let loss = loss_named(loss)?;
        Ok(self.battery(py).forecast(loss).map(|inner| Forecast { inner }))
    }

    /// The interval that the next value should fall into with probability `level` (0.01 to 0.999), or None
    /// before the first scored forecast.
    #[pyo3(signature = (level=0.9))]
    fn interval(&self, py: Python<'_>, level: f64) -> PyResult<Option<Interval>> {
        in_range(level)?;
        Ok(self.battery(py).interval(level).map(|inner| Interval { inner }))
    }

    /// Every method with its own forecast of the next value; empty before the first value.
    fn method_forecasts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        by_name(py, self.battery(py).method_forecasts())
    }

    /// Every method with its weight (0 to 1, sum 1); empty before the first value.
    #[pyo3(signature = (loss="squared"))]
    fn weights<'py>(&self, py: Python<'py>, loss: &str) -> PyResult<Bound<'py, PyDict>> {
        let loss = loss_named(loss)?;
        by_name(py, self.battery(py).weights(loss))
    }
}

impl Forecaster {
    fn battery(&self, py: Python<'_>) -> MutexGuard<'_, Battery> {
        self.inner.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }
}

/// The forecast of the next value, with the errors of those issued so far (None until one is scored).
#[pyclass(frozen, module = "barograph")]
pub(crate) struct Forecast {
    inner: barograph_forecast::Forecast,
}

#[pymethods]
impl Forecast {
    /// The forecast, in the series' unit.
    #[getter]
    fn value(&self) -> f64 {
        self.inner.value
    }

    /// Mean squared error.
    #[getter]
    fn mse(&self) -> Option<f64> {
        self.scored(self.inner.mse)
    }

    /// Mean absolute error.
    #[getter]
    fn mae(&self) -> Option<f64> {
        self.scored(self.inner.mae)
    }

    /// Mean squared error in which old errors fade (half-life 100 values).
    #[getter]
    fn recent_mse(&self) -> Option<f64> {
        self.scored(self.inner.recent_mse)
    }

    /// Mean absolute error in which old errors fade (half-life 100 values).
    #[getter]
    fn recent_mae(&self) -> Option<f64> {
        self.scored(self.inner.recent_mae)
    }

    /// The square root of `mse`, in the series' unit.
    #[getter]
    fn rmse(&self) -> Option<f64> {
        self.scored(self.inner.mse.sqrt())
    }

    /// The method that made it; of a blend, the one with the largest weight.
    #[getter]
    fn method(&self) -> &'static str {
        self.inner.method.0
    }

    /// How many values have been learnt.
    #[getter]
    fn count(&self) -> u64 {
        self.inner.count
    }

    fn __repr__(&self) -> String {
        let rmse = self.rmse().map_or_else(|| "None".to_owned(), |rmse| rmse.to_string());
        let inner = &self.inner;
        format!(
            "Forecast(value={}, rmse={rmse}, method='{}', count={})",
            inner.value, inner.method, inner.count
        )
    }
}

impl Forecast {
    fn scored(&self, error: f64) -> Option<f64> {
        self.inner.is_scored().then_some(error)
    }
}

/// A prediction interval.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct Interval {
    inner: barograph_forecast::Interval,
}

#[pymethods]
impl Interval {
    /// The share of values that should fall inside.
    #[getter]
    fn level(&self) -> f64 {
        self.inner.level
    }

    /// Lower end, in the series' unit.
    #[getter]
    fn lower(&self) -> f64 {
        self.inner.lower
    }

    /// Upper end, in the series' unit.
    #[getter]
    fn upper(&self) -> f64 {
        self.inner.upper
    }

    fn __repr__(&self) -> String {
        let barograph_forecast::Interval { level, lower, upper } = self.inner;
        format!("Interval(level={level}, lower={lower}, upper={upper})")
    }
}

fn learn(battery: &mut Battery, value: f64) {
    battery.update(value).expect("values() lets only values through that a battery takes");
}

/// `values` as what `given` is: a NumPy array if that was one, else a list.
fn like<'py>(given: &Bound<'py, PyAny>, values: Vec<f64>) -> PyResult<Bound<'py, PyAny>> {
    let py = given.py();
    // Who has no NumPy has no array of it: it is not imported for the question's sake.
    let numpy = py.import("sys")?.getattr("modules")?.call_method1("get", ("numpy",))?;
    if numpy.is_none() || !given.is_instance(&numpy.getattr("ndarray")?)? {
        return Ok(values.into_pyobject(py)?.into_any());
    }
    let bytes: Vec<u8> = values.into_iter().flat_map(f64::to_ne_bytes).collect();
    numpy.call_method1("frombuffer", (PyByteArray::new(py, &bytes), "=f8"))
}

fn by_name<'py>(py: Python<'py>, methods: Vec<(Method, f64)>) -> PyResult<Bound<'py, PyDict>> {
    let named = PyDict::new(py);
    for (method, value) in methods {
        named.set_item(method.0, value)?;
    }
    Ok(named)
}

fn in_range(level: f64) -> PyResult<()> {
    if LEVELS.contains(&level) {
        return Ok(());
    }
    let (least, most) = (LEVELS.start(), LEVELS.end());
    Err(PyValueError::new_err(format!("level must be from {least} to {most}, not {level}")))
}

fn preset_named(name: &str) -> PyResult<Preset> {
    match name {
        "full" => Ok(Preset::Full),
        "nws" => Ok(Preset::Nws),
        "classic" => Ok(Preset::Classic),
        _ => Err(PyValueError::new_err(format!("preset must be 'full', 'nws' or 'classic', not '{name}'"))),
    }
}

fn rule_named(name: &str) -> PyResult<Rule> {
    match name {
        "blend" => Ok(Rule::Blend),
        "two-level" => Ok(Rule::TwoLevel),
        "flat" => Ok(Rule::Flat),
        _ => Err(PyValueError::new_err(format!("rule must be 'blend', 'two-level' or 'flat', not '{name}'"))),
    }
}

fn loss_named(name: &str) -> PyResult<Loss> {
    match name {
        "squared" => Ok(Loss::Squared),
        "absolute" => Ok(Loss::Absolute),
        _ => Err(PyValueError::new_err(format!("loss must be 'squared' or 'absolute', not '{name}'"))),
    }
}
