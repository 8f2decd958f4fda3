//! `AdaptiveTimeout`: the estimator of one link.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use barograph_timeout::{
    Adaptive, AdaptiveConfig, Attempt, AttemptOutcome, FixedTimeout, INITIAL_TIMEOUT, MAX_TIMEOUT, Nws,
    NwsEscalating, QuantileTimeout, Rfc6298, TimeoutEstimator,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyBytes;

use crate::decision::Decision;
use crate::forecaster::is_share;
use crate::seconds::{not_negative, positive};

/// What all links of this host learn together.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct Host {
    inner: barograph_timeout::HostStatistics,
}

#[pymethods]
impl Host {
    #[new]
    fn new() -> Self {
        Self { inner: barograph_timeout::HostStatistics::default() }
    }
}

/// Decides how long an attempt on one link may take, and learns how attempts ended.
#[pyclass(frozen, subclass, module = "barograph._native")]
pub(crate) struct AdaptiveTimeout {
    inner: Mutex<Estimator>,
    /// Attempts of an exchange, unless a call gives another number.
    #[pyo3(get)]
    tries: u32,
    limit: Duration,
}

/// The default estimator, which can do more, or another one.
enum Estimator {
    Adaptive(Box<Adaptive>),
    Other(Box<dyn TimeoutEstimator + Send>),
}

impl Estimator {
    fn as_timeout(&self) -> &dyn TimeoutEstimator {
        match self {
            Self::Adaptive(adaptive) => &**adaptive,
            Self::Other(other) => other,
        }
    }

    fn as_timeout_mut(&mut self) -> &mut dyn TimeoutEstimator {
        match self {
            Self::Adaptive(adaptive) => &mut **adaptive,
            Self::Other(other) => other,
        }
    }
}

#[pymethods]
impl AdaptiveTimeout {
    #[new]
    #[pyo3(signature = (
        strategy="default", *, k=None, share=None, seconds=None, budget=None, tries=3, limit=None, start=None, host=None, saved=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python names them at the call")]
    fn new(
        strategy: &str,
        k: Option<f64>,
        share: Option<f64>,
        seconds: Option<f64>,
        budget: Option<f64>,
        tries: u32,
        limit: Option<f64>,
        start: Option<f64>,
        host: Option<&Host>,
        saved: Option<&[u8]>,
    ) -> PyResult<Self> {
        let limit = limit.map_or(Ok(MAX_TIMEOUT), |limit| positive("limit", limit))?;
        let is_nws = matches!(strategy, "nws" | "nws-escalating");
        for (name, is_given, is_used) in [
            ("k", k.is_some(), is_nws),
            ("share", share.is_some(), strategy == "quantile"),
            ("seconds", seconds.is_some(), strategy == "static"),
            ("budget", budget.is_some(), strategy == "default"),
            ("start", start.is_some(), is_nws || matches!(strategy, "default" | "quantile")),
            ("host", host.is_some(), strategy == "default"),
            ("a saved state", saved.is_some(), strategy == "default"),
        ] {
            if is_given && !is_used {
                return Err(PyValueError::new_err(format!("strategy '{strategy}' does not take {name}")));
            }
        }
        let start = start.map_or(Ok(INITIAL_TIMEOUT), |start| positive("start", start))?;
        let nws = || Ok::<_, PyErr>(Nws::new(deviations(k.unwrap_or(DEVIATIONS_DEFAULT))?).with_start(start));
        let inner = match strategy {
            "default" => Estimator::Adaptive(Box::new(adaptive(budget, start, limit, host, saved)?)),
            "nws" => Estimator::Other(Box::new(nws()?)),
            "nws-escalating" => Estimator::Other(Box::new(NwsEscalating(nws()?))),
            "quantile" => Estimator::Other(Box::new(quantile(share)?.with_start(start))),
            "rfc6298" => Estimator::Other(Box::new(Rfc6298::default())),
            "static" => {
                let seconds =
                    seconds.ok_or_else(|| PyValueError::new_err("strategy 'static' needs seconds"))?;
                Estimator::Other(Box::new(FixedTimeout(positive("seconds", seconds)?)))
            }
            _ => {
                return Err(PyValueError::new_err(format!(
                    "strategy must be one of {STRATEGIES}, not '{strategy}'"
                )));
            }
        };
        Ok(Self { inner: Mutex::new(inner), tries: at_least_one(tries)?, limit })
    }

    /// How long an attempt may take, in seconds: `decide(…).timeout`.
    #[pyo3(signature = (bytes=0, number=0, tries=None, elapsed=0.0))]
    fn timeout(
        &self,
        py: Python<'_>,
        bytes: u64,
        number: u32,
        tries: Option<u32>,
        elapsed: f64,
    ) -> PyResult<f64> {
        let attempt = self.attempt_of(bytes, number, tries, elapsed)?;
        Ok(self.estimator(py).as_timeout().timeout(&attempt).min(self.limit).as_secs_f64())
    }

    /// The timeout of an attempt, with the reason for it.
    #[pyo3(signature = (bytes=0, number=0, tries=None, elapsed=0.0))]
    fn decide(
        &self,
        py: Python<'_>,
        bytes: u64,
        number: u32,
        tries: Option<u32>,
        elapsed: f64,
    ) -> PyResult<Decision> {
        let attempt = self.attempt_of(bytes, number, tries, elapsed)?;
        let decision = self.estimator(py).as_timeout().decide(&attempt);
        let timeout = decision.timeout.min(self.limit);
        Ok(barograph_timeout::TimeoutDecision { timeout, ..decision }.into())
    }

    /// Records that the response came after `seconds`.
    #[pyo3(signature = (seconds, bytes=0, number=0, tries=None, elapsed=0.0))]
    fn answered(
        &self,
        py: Python<'_>,
        seconds: f64,
        bytes: u64,
        number: u32,
        tries: Option<u32>,
        elapsed: f64,
    ) -> PyResult<()> {
        let attempt = self.attempt_of(bytes, number, tries, elapsed)?;
        self.record(py, &attempt, AttemptOutcome::Completed(positive("seconds", seconds)?));
        Ok(())
    }

    /// Records that the attempt was cut off after `seconds`, because its timeout had passed.
    #[pyo3(signature = (seconds, bytes=0, number=0, tries=None, elapsed=0.0))]
    fn timed_out(
        &self,
        py: Python<'_>,
        seconds: f64,
        bytes: u64,
        number: u32,
        tries: Option<u32>,
        elapsed: f64,
    ) -> PyResult<()> {
        let attempt = self.attempt_of(bytes, number, tries, elapsed)?;
        self.record(py, &attempt, AttemptOutcome::TimedOut(positive("seconds", seconds)?));
        Ok(())
    }

    /// Records that the attempt was abandoned after `seconds`, for another reason than its timeout.
    #[pyo3(signature = (seconds, bytes=0, number=0, tries=None, elapsed=0.0))]
    fn superseded(
        &self,
        py: Python<'_>,
        seconds: f64,
        bytes: u64,
        number: u32,
        tries: Option<u32>,
        elapsed: f64,
    ) -> PyResult<()> {
        let attempt = self.attempt_of(bytes, number, tries, elapsed)?;
        self.record(py, &attempt, AttemptOutcome::Cancelled(positive("seconds", seconds)?));
        Ok(())
    }

    /// Records that the attempt failed after `seconds`: refused, reset, broken.
    #[pyo3(signature = (seconds, bytes=0, number=0, tries=None, elapsed=0.0))]
    fn failed(
        &self,
        py: Python<'_>,
        seconds: f64,
        bytes: u64,
        number: u32,
        tries: Option<u32>,
        elapsed: f64,
    ) -> PyResult<()> {
        let attempt = self.attempt_of(bytes, number, tries, elapsed)?;
        self.record(py, &attempt, AttemptOutcome::Failed(positive("seconds", seconds)?));
        Ok(())
    }

    /// Records that a connection took `seconds` to open; this is not part of any attempt.
    fn connected(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let took = positive("seconds", seconds)?;
        self.estimator(py).as_timeout_mut().record_connect(took);
        Ok(())
    }

    /// Starts from a forecast made elsewhere, and its error, both in seconds. It is ignored once
    /// this link has responses of its own.
    fn start_from(&self, py: Python<'_>, forecast: f64, error: f64) -> PyResult<()> {
        let (forecast, error) = (positive("forecast", forecast)?, not_negative("error", error)?);
        match &mut *self.estimator(py) {
            Estimator::Adaptive(adaptive) => adaptive.start_from(forecast, error),
            Estimator::Other(_) => return Err(only_default("can start from a forecast")),
        }
        Ok(())
    }

    /// Returns all that the link has learned, for `AdaptiveTimeout.load`.
    fn save<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        match &*self.estimator(py) {
            Estimator::Adaptive(adaptive) => Ok(PyBytes::new(py, &adaptive.save())),
            Estimator::Other(_) => Err(only_default("can be saved")),
        }
    }

    /// The longest time that any attempt may take, in seconds.
    #[getter]
    fn limit(&self) -> f64 {
        self.limit.as_secs_f64()
    }
}

impl AdaptiveTimeout {
    fn estimator(&self, py: Python<'_>) -> MutexGuard<'_, Estimator> {
        self.inner.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }

    fn attempt_of(&self, bytes: u64, number: u32, tries: Option<u32>, elapsed: f64) -> PyResult<Attempt> {
        let tries = at_least_one(tries.unwrap_or(self.tries))?;
        if tries <= number {
            return Err(PyValueError::new_err(format!("number must be below tries ({tries}), not {number}")));
        }
        Ok(Attempt { bytes, number, max_attempts: tries, elapsed: not_negative("elapsed", elapsed)? })
    }

    fn record(&self, py: Python<'_>, attempt: &Attempt, ended: AttemptOutcome) {
        self.estimator(py).as_timeout_mut().record(attempt, ended);
    }
}

/// Creates the default estimator, new or from a saved state.
fn adaptive(
    budget: Option<f64>,
    start: Duration,
    limit: Duration,
    host: Option<&Host>,
    saved: Option<&[u8]>,
) -> PyResult<Adaptive> {
    let mut config = AdaptiveConfig::default();
    if let Some(budget) = budget {
        config.retry_budget = budget;
    }
    if !(0.0..=1.0).contains(&config.retry_budget) {
        return Err(PyValueError::new_err(format!(
            "budget must be a share from 0 to 1, not {}",
            config.retry_budget
        )));
    }
    config.initial_timeout = start.min(limit);
    config.max_timeout = limit;
    let host = host.map_or_else(barograph_timeout::HostStatistics::default, |host| host.inner.clone());
    match saved {
        None => Ok(Adaptive::new(&config, &host)),
        Some(saved) => {
            Adaptive::load(saved, &config, &host).map_err(|error| PyValueError::new_err(error.to_string()))
        }
    }
}

fn quantile(share: Option<f64>) -> PyResult<QuantileTimeout> {
    let share = share.unwrap_or(SHARE_DEFAULT);
    is_share(share)?;
    Ok(QuantileTimeout::new(share).expect("the share was checked"))
}

fn deviations(k: f64) -> PyResult<f64> {
    if k.is_finite() && k >= 0.0 {
        return Ok(k);
    }
    Err(PyValueError::new_err(format!("k must be a finite number of at least 0, not {k}")))
}

fn at_least_one(tries: u32) -> PyResult<u32> {
    if tries == 0 { Err(PyValueError::new_err("tries must be at least 1, not 0")) } else { Ok(tries) }
}

fn only_default(does: &str) -> PyErr {
    PyValueError::new_err(format!("only the strategy 'default' {does}"))
}

const STRATEGIES: &str = "'default', 'nws', 'nws-escalating', 'quantile', 'rfc6298', 'static'";

/// One first attempt in a hundred is cut off: few enough that retries hardly load the target.
const SHARE_DEFAULT: f64 = 0.99;

/// The better of the two that the paper tried (Allen, Wolski, Plank 2002, §4.3).
const DEVIATIONS_DEFAULT: f64 = 2.0;
