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
    /// finite, ValueError names it and nothing is learnt. `times` is when each was measured (s). Values
    /// after gaps in time have their own forecasts and intervals.
    #[pyo3(signature = (series, times=None))]
    fn update(
        &self,
        py: Python<'_>,
        series: &Bound<'_, PyAny>,
        times: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let values = values(series)?;
        let times = times_of(times, values.len())?;
        py.detach(|| {
            let mut battery = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            values.into_iter().zip(times).for_each(|(value, time_s)| learn(&mut battery, value, time_s));
        });
        Ok(())
    }

    /// Learns a series, and gives for each of its values the forecast that was issued before it was seen
    /// (NaN where there was none).
    #[pyo3(signature = (series, loss="squared", times=None))]
    fn predict<'py>(
        &self,
        py: Python<'py>,
        series: &Bound<'py, PyAny>,
        loss: &str,
        times: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let loss = loss_named(loss)?;
        let values = values(series)?;
        let times = times_of(times, values.len())?;
        let issued: Vec<f64> = py.detach(|| {
            let mut battery = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            let step = |(value, time_s)| {
                let issued = battery.forecast_at(loss, time_s).map_or(f64::NAN, |forecast| forecast.value);
                learn(&mut battery, value, time_s);
                issued
            };
            values.into_iter().zip(times).map(step).collect()
        });
        like(series, issued)
    }

    /// The forecast of the next value, or of one at the time `at` (s); None before the first.
    #[pyo3(signature = (loss="squared", at=None))]
    fn forecast(&self, py: Python<'_>, loss: &str, at: Option<f64>) -> PyResult<Option<Forecast>> {
        let loss = loss_named(loss)?;
        Ok(self.battery(py).forecast_at(loss, at.unwrap_or(f64::NAN)).map(|inner| Forecast { inner }))
    }

    /// The interval that the next value should fall into with probability `level` (0.01 to 0.999), or None
    /// until ten forecasts were scored.
    #[pyo3(signature = (level=0.9, at=None))]
    fn interval(&self, py: Python<'_>, level: f64, at: Option<f64>) -> PyResult<Option<Interval>> {
        in_range(level)?;
        Ok(self.battery(py).interval_at(level, at.unwrap_or(f64::NAN)).map(|inner| Interval { inner }))
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

    /// The method's weight in a blend, 0 to 1; None where the rule picks one method.
    #[getter]
    fn weight(&self) -> Option<f64> {
        self.inner.weight
    }

    /// What made it, for people: a method, or a blend and its largest member.
    #[getter]
    fn made_by(&self) -> String {
        self.inner.made_by().to_string()
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
            "Forecast(value={}, rmse={rmse}, made_by='{}', count={})",
            inner.value,
            inner.made_by(),
            inner.count
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

/// A time for each of `count` values, NaN where none is given: that says nothing to a battery.
fn times_of(given: Option<&Bound<'_, PyAny>>, count: usize) -> PyResult<Vec<f64>> {
    let Some(given) = given else { return Ok(vec![f64::NAN; count]) };
    let times = values(given)?;
    if times.len() == count {
        return Ok(times);
    }
    Err(PyValueError::new_err(format!("{} times for {count} values", times.len())))
}

fn learn(battery: &mut Battery, value: f64, time_s: f64) {
    battery.update_at(value, time_s).expect("values() lets only values through that a battery takes");
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
