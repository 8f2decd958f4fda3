//! `Forecaster`: a battery of methods over one series, with forecasts further ahead and quantiles.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use barograph_forecast::{
    BatteryConfig, ForecasterConfig, Horizon, HorizonBasis, HorizonConfig, HorizonForecast, HorizonOf,
    LEVEL_RANGE, Method, Objective, Preset, QUANTILE_RANGE, QuantileMethod, Rule,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyByteArray, PyDict};

use crate::values::values;

/// A battery of forecasting methods over one series, and the rule that combines them.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct Forecaster {
    inner: Mutex<barograph_forecast::Forecaster>,
}

#[pymethods]
impl Forecaster {
    #[new]
    #[pyo3(
        signature = (
            preset="full", rule=None, levels=Vec::new(), horizons=Vec::new(), quantiles=None, availability=false
        ),
        text_signature = "(preset='full', rule=None, levels=(), horizons=(), quantiles=None, availability=False)"
    )]
    fn new(
        preset: &str,
        rule: Option<&str>,
        levels: Vec<f64>,
        horizons: Vec<Bound<'_, PyAny>>,
        quantiles: Option<&str>,
        availability: bool,
    ) -> PyResult<Self> {
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
        let horizons = horizons.iter().map(|horizon| Ok(HorizonConfig::exact(horizon_of(horizon)?)));
        let config = ForecasterConfig {
            battery: BatteryConfig { preset, rule, levels },
            horizons: horizons.collect::<PyResult<_>>()?,
            quantiles: quantiles.map(quantiles_named).transpose()?,
            availability,
            transfers: false,
        };
        let forecaster = barograph_forecast::Forecaster::new(&config);
        let forecaster = forecaster.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { inner: Mutex::new(forecaster) })
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
            let mut forecaster = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            values.into_iter().zip(times).for_each(|(value, time_s)| learn(&mut forecaster, value, time_s));
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
            let mut forecaster = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            let step = |(value, time_s)| {
                let issued =
                    forecast_of(&forecaster, loss, time_s).map_or(f64::NAN, |forecast| forecast.value);
                learn(&mut forecaster, value, time_s);
                issued
            };
            values.into_iter().zip(times).map(step).collect()
        });
        into_kind_of(series, issued)
    }

    /// Returns the forecast of the next value, or of the value at the time `at` (seconds); None
    /// before the first value. It is the mean, or with loss="absolute" the median. With `horizon`,
    /// a number of values or a timedelta, it is the forecast of the mean of the values until then,
    /// or with of="value" of the value then; None also for a timedelta without five known times
    /// between values.
    #[pyo3(signature = (loss="squared", at=None, horizon=None, of="mean"))]
    fn forecast(
        &self,
        py: Python<'_>,
        loss: &str,
        at: Option<f64>,
        horizon: Option<&Bound<'_, PyAny>>,
        of: &str,
    ) -> PyResult<Option<Forecast>> {
        let (loss, target) = (loss_named(loss)?, target_of(at, horizon, of)?);
        let forecaster = self.forecaster(py);
        let inner = match target {
            Some((horizon, of)) => forecaster.forecast_over(horizon, of, loss),
            None => forecast_of(&forecaster, loss, at).map(HorizonForecast::from),
        };
        Ok(inner.map(|inner| Forecast { inner }))
    }

    /// Returns the interval around the median that holds the next value with probability `level`
    /// (0.01 to 0.999), or None until ten forecasts were scored. With `horizon` and `of`, it holds
    /// what `forecast` forecasts for them.
    #[pyo3(signature = (level=0.9, at=None, horizon=None, of="mean"))]
    fn interval(
        &self,
        py: Python<'_>,
        level: f64,
        at: Option<f64>,
        horizon: Option<&Bound<'_, PyAny>>,
        of: &str,
    ) -> PyResult<Option<Interval>> {
        in_range(level)?;
        let target = target_of(at, horizon, of)?;
        let forecaster = self.forecaster(py);
        let interval = match (target, at) {
            (Some((horizon, of)), _) => forecaster.interval_over(horizon, of, level),
            (None, Some(time_s)) => forecaster.battery().interval_at(level, time_s),
            (None, None) => forecaster.battery().interval(level),
        };
        Ok(interval.map(|inner| Interval { inner }))
    }

    /// Returns the number that the next value stays below with probability `share` (0.005 to
    /// 0.995), calibrated on its own side of the forecast; None until ten forecasts were scored,
    /// and without `quantiles`. With `horizon` and `of`, it is a quantile of what `forecast`
    /// forecasts for them.
    #[pyo3(signature = (share, at=None, horizon=None, of="mean"))]
    fn quantile(
        &self,
        py: Python<'_>,
        share: f64,
        at: Option<f64>,
        horizon: Option<&Bound<'_, PyAny>>,
        of: &str,
    ) -> PyResult<Option<f64>> {
        is_share(share)?;
        let target = target_of(at, horizon, of)?;
        let forecaster = self.forecaster(py);
        Ok(match (target, at) {
            (Some((horizon, of)), _) => forecaster.quantile_over(horizon, of, share),
            (None, Some(time_s)) => forecaster.quantile_at(share, time_s),
            (None, None) => forecaster.quantile_over(Horizon::Steps(1), HorizonOf::Value, share),
        })
    }

    /// Returns for each of `horizons`, by default the kept ones, the forecast of the mean until
    /// then and the interval at `level` that holds that mean, all after the same values. The
    /// forecast is the median; either is None where `forecast` or `interval` is None.
    #[pyo3(signature = (horizons=None, level=0.9))]
    fn means_ahead(
        &self,
        py: Python<'_>,
        horizons: Option<Vec<Bound<'_, PyAny>>>,
        level: f64,
    ) -> PyResult<Vec<(Option<Forecast>, Option<Interval>)>> {
        in_range(level)?;
        let given = horizons.map(|horizons| horizons.iter().map(horizon_of).collect::<PyResult<Vec<_>>>());
        let given = given.transpose()?;
        let forecaster = self.forecaster(py);
        let horizons = given.unwrap_or_else(|| forecaster.horizons().collect());
        let mean = |horizon| {
            let forecast = forecaster.forecast_over(horizon, HorizonOf::Mean, Objective::Absolute);
            let interval = forecaster.interval_over(horizon, HorizonOf::Mean, level);
            (forecast.map(|inner| Forecast { inner }), interval.map(|inner| Interval { inner }))
        };
        Ok(horizons.into_iter().map(mean).collect())
    }

    /// Returns the forecast of the value at the time `at` (seconds), however long ago the newest
    /// value was measured; None before the first value. Soon after the newest value, and after gaps
    /// like earlier ones, it is `forecast(at=at)`, else the forecast of the value at the horizon
    /// that ends at `at`.
    #[pyo3(signature = (at, loss="squared"))]
    fn forecast_aged(&self, py: Python<'_>, at: f64, loss: &str) -> PyResult<Option<Forecast>> {
        let loss = loss_named(loss)?;
        Ok(self.forecaster(py).forecast_aged(loss, at).map(|inner| Forecast { inner }))
    }

    /// Returns the interval that holds the value at the time `at` (seconds) with probability
    /// `level` (0.01 to 0.999). It widens with the age of the newest value. None until ten
    /// forecasts were scored.
    #[pyo3(signature = (at, level=0.9))]
    fn interval_aged(&self, py: Python<'_>, at: f64, level: f64) -> PyResult<Option<Interval>> {
        in_range(level)?;
        Ok(self.forecaster(py).interval_aged(level, at).map(|inner| Interval { inner }))
    }

    /// Returns the number that the value at the time `at` (seconds) stays below with probability
    /// `share` (0.005 to 0.995); None until ten forecasts were scored, and without `quantiles`.
    fn quantile_aged(&self, py: Python<'_>, share: f64, at: f64) -> PyResult<Option<f64>> {
        is_share(share)?;
        Ok(self.forecaster(py).quantile_aged(share, at))
    }

    /// Learns that a measurement failed. Only the availability changes.
    fn fail(&self, py: Python<'_>) {
        self.forecaster(py).fail();
    }

    /// Returns the forecast of whether the next measurement succeeds, as it is now; None without
    /// `availability`.
    fn availability(&self, py: Python<'_>) -> Option<Availability> {
        self.forecaster(py).availability().map(|inner| Availability { inner: inner.clone() })
    }

    /// Returns every method with its own forecast of the next value; empty before the first value.
    fn method_forecasts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        by_name(py, self.forecaster(py).battery().method_forecasts())
    }

    /// Returns every method with its weight (0 to 1, sum 1); empty before the first value.
    #[pyo3(signature = (loss="squared"))]
    fn weights<'py>(&self, py: Python<'py>, loss: &str) -> PyResult<Bound<'py, PyDict>> {
        let loss = loss_named(loss)?;
        by_name(py, self.forecaster(py).battery().weights(loss))
    }
}

impl Forecaster {
    pub(crate) fn forecaster(&self, py: Python<'_>) -> MutexGuard<'_, barograph_forecast::Forecaster> {
        self.inner.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }
}

/// A forecast, with the errors of the forecasts that were issued for the same horizon so far (None
/// until one is scored).
#[pyclass(frozen, module = "barograph")]
pub(crate) struct Forecast {
    inner: HorizonForecast,
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
        self.known(self.inner.mse)
    }

    /// Mean absolute error, in the series' unit.
    #[getter]
    fn mae(&self) -> Option<f64> {
        self.known(self.inner.mae)
    }

    /// Mean squared error in which old errors fade (half-life 100 values or ten horizons), in the
    /// unit squared.
    #[getter]
    fn recent_mse(&self) -> Option<f64> {
        self.known(self.inner.recent_mse)
    }

    /// Mean absolute error in which old errors fade (half-life 100 values or ten horizons), in the
    /// series' unit.
    #[getter]
    fn recent_mae(&self) -> Option<f64> {
        self.known(self.inner.recent_mae)
    }

    /// The square root of `mse`, in the series' unit.
    #[getter]
    fn rmse(&self) -> Option<f64> {
        self.known(self.inner.mse.sqrt())
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

    /// Number of forecasts that were scored.
    #[getter]
    fn scored(&self) -> u64 {
        self.inner.scored
    }

    /// Whether the errors are those of forecasts for this horizon ("own"), or if the horizon is not
    /// kept, interpolated ("between") or those of the longest one ("beyond").
    #[getter]
    fn basis(&self) -> &'static str {
        match self.inner.basis {
            HorizonBasis::Own => "own",
            HorizonBasis::Between { .. } => "between",
            HorizonBasis::Beyond { .. } => "beyond",
        }
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
    fn known(&self, error: f64) -> Option<f64> {
        (self.inner.scored != 0).then_some(error)
    }
}

/// A range that holds the next value with a given probability.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct Interval {
    pub(crate) inner: barograph_forecast::Interval,
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

/// A forecast of whether measurements succeed.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct Availability {
    inner: barograph_forecast::Availability,
}

#[pymethods]
impl Availability {
    /// The probability that the next measurement succeeds, 0 to 1; None before the first one.
    #[getter]
    fn probability(&self) -> Option<f64> {
        self.inner.probability()
    }

    /// Returns the probability that the measurement `steps` ahead succeeds; 1 is the next one. None
    /// before the first one, and if `steps` is below 1 or not finite.
    fn probability_ahead(&self, steps: f64) -> Option<f64> {
        self.inner.probability_ahead(steps)
    }

    /// The Brier scores of the issued probabilities, 0 (best) to 1; None before one was scored.
    #[getter]
    fn brier(&self) -> Option<BrierScore> {
        self.inner.brier().map(|inner| BrierScore { inner })
    }

    fn __repr__(&self) -> String {
        let probability = self.inner.probability().map_or_else(|| "None".to_owned(), |p| p.to_string());
        format!("Availability(probability={probability})")
    }
}

/// Mean squared differences between a probability and the outcome, 1 or 0.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct BrierScore {
    inner: barograph_forecast::BrierScore,
}

#[pymethods]
impl BrierScore {
    /// Score of the issued probabilities.
    #[getter]
    fn issued(&self) -> f64 {
        self.inner.issued
    }

    /// Score of the share of successes so far, for the same outcomes.
    #[getter]
    fn climatology(&self) -> f64 {
        self.inner.climatology
    }

    /// Number of scored outcomes.
    #[getter]
    fn count(&self) -> u64 {
        self.inner.count
    }

    fn __repr__(&self) -> String {
        let barograph_forecast::BrierScore { issued, climatology, count } = self.inner;
        format!("BrierScore(issued={issued}, climatology={climatology}, count={count})")
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

fn learn(forecaster: &mut barograph_forecast::Forecaster, value: f64, time_s: Option<f64>) {
    let updated = match time_s {
        Some(time_s) => forecaster.update_at(value, time_s),
        None => forecaster.update(value),
    };
    updated.expect("values() returns only values that a battery accepts");
}

/// The battery's forecast for a value at `time_s`, or for the next value.
fn forecast_of(
    forecaster: &barograph_forecast::Forecaster,
    loss: Objective,
    time_s: Option<f64>,
) -> Option<barograph_forecast::Forecast> {
    match time_s {
        Some(time_s) => forecaster.battery().forecast_at(loss, time_s),
        None => forecaster.battery().forecast(loss),
    }
}

/// What to forecast at a horizon; `None` if no horizon is given.
fn target_of(
    at: Option<f64>,
    horizon: Option<&Bound<'_, PyAny>>,
    of: &str,
) -> PyResult<Option<(Horizon, HorizonOf)>> {
    let of = match of {
        "mean" => HorizonOf::Mean,
        "value" => HorizonOf::Value,
        _ => return Err(PyValueError::new_err(format!("of must be 'mean' or 'value', not '{of}'"))),
    };
    match (at, horizon) {
        (Some(_), Some(_)) => Err(PyValueError::new_err("pass either at or horizon, not both")),
        (_, horizon) => Ok(horizon.map(horizon_of).transpose()?.map(|horizon| (horizon, of))),
    }
}

/// A horizon from a number of values or a `timedelta`.
fn horizon_of(given: &Bound<'_, PyAny>) -> PyResult<Horizon> {
    let horizon = if let Ok(steps) = given.extract::<u32>() {
        Horizon::Steps(steps)
    } else if let Ok(time) = given.extract::<Duration>() {
        Horizon::Seconds(time.as_secs_f64())
    } else {
        let message = format!("a horizon must be a number of values or a timedelta, not {}", given.repr()?);
        return Err(PyValueError::new_err(message));
    };
    horizon.checked().map_err(|error| PyValueError::new_err(error.to_string()))
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

pub(crate) fn is_share(share: f64) -> PyResult<()> {
    if QUANTILE_RANGE.contains(&share) {
        return Ok(());
    }
    let (least, most) = (QUANTILE_RANGE.start(), QUANTILE_RANGE.end());
    Err(PyValueError::new_err(format!("share must be from {least} to {most}, not {share}")))
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

fn quantiles_named(name: &str) -> PyResult<QuantileMethod> {
    match name {
        "blended" => Ok(QuantileMethod::Blended),
        "tracked" => Ok(QuantileMethod::Tracked),
        _ => Err(PyValueError::new_err(format!("quantiles must be 'blended' or 'tracked', not '{name}'"))),
    }
}

fn loss_named(name: &str) -> PyResult<Objective> {
    match name {
        "squared" => Ok(Objective::Squared),
        "absolute" => Ok(Objective::Absolute),
        _ => Err(PyValueError::new_err(format!("loss must be 'squared' or 'absolute', not '{name}'"))),
    }
}
