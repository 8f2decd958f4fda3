//! `Forecaster`: a battery of methods over one series.

use std::sync::{Mutex, MutexGuard, PoisonError};

use barograph_forecast::{Battery, BatteryConfig, LEVEL_RANGE, Method, Objective, Preset, Rule};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyByteArray, PyDict};

use crate::values::values;

/// A battery of forecasting methods over one series, and the rule that combines them.
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
            // The default rule of each preset. The command line has `two-level` for `classic`.
            (None, Preset::Full | Preset::Lean) => Rule::Blend,
            (None, Preset::Nws) => Rule::TwoLevel,
            (None, Preset::Classic) => Rule::TwoSelectors,
        };
        Ok(Self { inner: Mutex::new(Battery::new(&BatteryConfig { preset, rule, levels })) })
    }

    /// Learns a value, or all values of a sequence, an array or an iterator, in order. If a value
    /// is not finite, ValueError names it and none is learned. `times` are the times of
    /// measurement, in seconds. Values after gaps in time have their own forecasts and intervals.
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

    /// Learns a series, and returns for each value the forecast that was issued before it was seen
    /// (NaN if there was none, because an array of floats has no None).
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
                let issued = forecast_of(&battery, loss, time_s).map_or(f64::NAN, |forecast| forecast.value);
                learn(&mut battery, value, time_s);
                issued
            };
            values.into_iter().zip(times).map(step).collect()
        });
        into_kind_of(series, issued)
    }

    /// Returns the forecast of the next value, or of the value at the time `at` (seconds); None
    /// before the first value. It is the mean, or with loss="absolute" the median.
    #[pyo3(signature = (loss="squared", at=None))]
    fn forecast(&self, py: Python<'_>, loss: &str, at: Option<f64>) -> PyResult<Option<Forecast>> {
        let loss = loss_named(loss)?;
        Ok(forecast_of(&self.battery(py), loss, at).map(|inner| Forecast { inner }))
    }

    /// Returns the interval around the median that holds the next value with probability `level`
    /// (0.01 to 0.999), or None until ten forecasts were scored.
    #[pyo3(signature = (level=0.9, at=None))]
    fn interval(&self, py: Python<'_>, level: f64, at: Option<f64>) -> PyResult<Option<Interval>> {
        in_range(level)?;
        let battery = self.battery(py);
        let interval = match at {
            Some(time_s) => battery.interval_at(level, time_s),
            None => battery.interval(level),
        };
        Ok(interval.map(|inner| Interval { inner }))
    }

    /// Returns every method with its own forecast of the next value; empty before the first value.
    fn method_forecasts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        by_name(py, self.battery(py).method_forecasts())
    }

    /// Returns every method with its weight (0 to 1, sum 1); empty before the first value.
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

/// The forecast of the next value, with the errors of the forecasts issued so far (None until one
/// is scored).
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

    /// Mean squared error, in the unit squared.
    #[getter]
    fn mse(&self) -> Option<f64> {
        self.scored(self.inner.mse)
    }

    /// Mean absolute error, in the series' unit.
    #[getter]
    fn mae(&self) -> Option<f64> {
        self.scored(self.inner.mae)
    }

    /// Mean squared error in which old errors fade (half-life 100 values), in the unit squared.
    #[getter]
    fn recent_mse(&self) -> Option<f64> {
        self.scored(self.inner.recent_mse)
    }

    /// Mean absolute error in which old errors fade (half-life 100 values), in the series' unit.
    #[getter]
    fn recent_mae(&self) -> Option<f64> {
        self.scored(self.inner.recent_mae)
    }

    /// The square root of `mse`, in the series' unit.
    #[getter]
    fn rmse(&self) -> Option<f64> {
        self.scored(self.inner.mse.sqrt())
    }

    /// The method that made the forecast; in a blend, the one with the largest weight.
    #[getter]
    fn method(&self) -> &'static str {
        self.inner.method.0
    }

    /// The method's weight in a blend, 0 to 1; None if the rule picks one method.
    #[getter]
    fn weight(&self) -> Option<f64> {
        self.inner.weight
    }

    /// A text for people: the method, or a blend and its largest member.
    #[getter]
    fn made_by(&self) -> String {
        self.inner.method_label().to_string()
    }

    /// Number of values that were learned.
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
            inner.method_label(),
            inner.count
        )
    }
}

impl Forecast {
    fn scored(&self, error: f64) -> Option<f64> {
        self.inner.is_scored().then_some(error)
    }
}

/// A range that holds the next value with a given probability.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct Interval {
    inner: barograph_forecast::Interval,
}

#[pymethods]
impl Interval {
    /// The probability that a value falls inside, 0 to 1.
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

/// A time for each of `count` values; `None` for all of them if no times are given.
fn times_of(given: Option<&Bound<'_, PyAny>>, count: usize) -> PyResult<Vec<Option<f64>>> {
    let Some(given) = given else { return Ok(vec![None; count]) };
    let times = values(given)?;
    if times.len() == count {
        return Ok(times.into_iter().map(Some).collect());
    }
    Err(PyValueError::new_err(format!("expected {count} times, one for each value, found {}", times.len())))
}

fn learn(battery: &mut Battery, value: f64, time_s: Option<f64>) {
    let updated = match time_s {
        Some(time_s) => battery.update_at(value, time_s),
        None => battery.update(value),
    };
    updated.expect("values() returns only values that a battery accepts");
}

/// The battery's forecast for a value at `time_s`, or for the next value.
fn forecast_of(
    battery: &Battery,
    loss: Objective,
    time_s: Option<f64>,
) -> Option<barograph_forecast::Forecast> {
    match time_s {
        Some(time_s) => battery.forecast_at(loss, time_s),
        None => battery.forecast(loss),
    }
}

/// Converts `values` to the kind of `given`: a NumPy array if it is one, else a list.
fn into_kind_of<'py>(given: &Bound<'py, PyAny>, values: Vec<f64>) -> PyResult<Bound<'py, PyAny>> {
    let py = given.py();
    // If NumPy is not imported yet, `given` is not one of its arrays; this check does not import
    // it.
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
    if LEVEL_RANGE.contains(&level) {
        return Ok(());
    }
    let (least, most) = (LEVEL_RANGE.start(), LEVEL_RANGE.end());
    Err(PyValueError::new_err(format!("level must be from {least} to {most}, not {level}")))
}

fn preset_named(name: &str) -> PyResult<Preset> {
    match name {
        "full" => Ok(Preset::Full),
        "nws" => Ok(Preset::Nws),
        "classic" => Ok(Preset::Classic),
        "lean" => Ok(Preset::Lean),
        _ => {
            let expected = "'full', 'lean', 'nws' or 'classic'";
            Err(PyValueError::new_err(format!("preset must be {expected}, not '{name}'")))
        }
    }
}

fn rule_named(name: &str) -> PyResult<Rule> {
    match name {
        "blend" => Ok(Rule::Blend),
        "two-level" => Ok(Rule::TwoLevel),
        // "flat" is the old name.
        "two-selectors" | "flat" => Ok(Rule::TwoSelectors),
        "mse" => Ok(Rule::LeastMse),
        "mae" => Ok(Rule::LeastMae),
        _ => {
            let expected = "'blend', 'two-level', 'two-selectors', 'mse' or 'mae'";
            Err(PyValueError::new_err(format!("rule must be {expected}, not '{name}'")))
        }
    }
}

fn loss_named(name: &str) -> PyResult<Objective> {
    match name {
        "squared" => Ok(Objective::Squared),
        "absolute" => Ok(Objective::Absolute),
        _ => Err(PyValueError::new_err(format!("loss must be 'squared' or 'absolute', not '{name}'"))),
    }
}
