//! `TransferForecast`: the time of a transfer, from the forecasters of a path.

use std::ptr;

use barograph_forecast::{GoodputForecast, TransferModel};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::forecaster::{Forecaster, Interval, is_share};

/// Forecasts the time of a transfer over a new TCP connection, in seconds, from the forecasters of
/// the goodput (bit/s) and of the round-trip time (seconds) of a path.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct TransferForecast {
    goodput: Py<Forecaster>,
    rtt: Py<Forecaster>,
    model: TransferModel,
    /// Size of the tests that measured the goodput, if their goodputs include slow start.
    test_bytes: Option<u64>,
    /// The least goodput that was measured (bit/s).
    least: Option<f64>,
}

#[pymethods]
impl TransferForecast {
    #[new]
    #[pyo3(signature = (goodput, rtt, *, tls=false, test_bytes=None, least=None))]
    fn new(
        goodput: Py<Forecaster>,
        rtt: Py<Forecaster>,
        tls: bool,
        test_bytes: Option<u64>,
        least: Option<f64>,
    ) -> PyResult<Self> {
        // A forecaster cannot be locked twice.
        if goodput.as_ptr() == rtt.as_ptr() {
            return Err(PyValueError::new_err("goodput and rtt must be two forecasters"));
        }
        let model = if tls { TransferModel::TLS } else { TransferModel::TCP };
        Ok(Self { goodput, rtt, model, test_bytes, least })
    }

    /// Returns the forecast time of a transfer of `bytes` that starts at the time `at` (seconds).
    /// None without values, and if the transfer would take longer than a year.
    fn forecast(&self, py: Python<'_>, bytes: u64, at: f64) -> Option<f64> {
        self.read(py, at, |transfer| transfer.forecast(bytes))
    }

    /// Returns the time that the share `share` (0.005 to 0.995) of such transfers takes at most;
    /// 0.5 is the forecast. None as for `forecast`, and until both series have intervals.
    fn quantile(&self, py: Python<'_>, bytes: u64, share: f64, at: f64) -> PyResult<Option<f64>> {
        is_share(share)?;
        Ok(self.read(py, at, |transfer| transfer.quantile(bytes, share)))
    }

    /// Returns the interval that holds the time of such a transfer with probability `level` (0.01
    /// to 0.99). None as for `quantile`.
    #[pyo3(signature = (bytes, at, level=0.9))]
    fn interval(&self, py: Python<'_>, bytes: u64, at: f64, level: f64) -> PyResult<Option<Interval>> {
        if !(0.01..=0.99).contains(&level) {
            return Err(PyValueError::new_err(format!("level must be from 0.01 to 0.99, not {level}")));
        }
        let interval = self.read(py, at, |transfer| transfer.interval(bytes, level));
        Ok(interval.map(|inner| Interval { inner }))
    }
}

impl TransferForecast {
    fn read<T>(
        &self,
        py: Python<'_>,
        at: f64,
        read: impl FnOnce(&barograph_forecast::TransferForecast<'_>) -> Option<T>,
    ) -> Option<T> {
        let (goodput, rtt) = (self.goodput.get(), self.rtt.get());
        // In the order of their addresses, so that two threads never wait for each other.
        let (goodput, rtt) = if ptr::from_ref(goodput) < ptr::from_ref(rtt) {
            let goodput = goodput.forecaster(py);
            (goodput, rtt.forecaster(py))
        } else {
            let rtt = rtt.forecaster(py);
            (goodput.forecaster(py), rtt)
        };
        let test = match self.test_bytes {
            Some(bytes) => Some((bytes, rtt.quantile_ahead(0.5, at, 0.0)?)),
            None => None,
        };
        read(&barograph_forecast::TransferForecast {
            model: self.model,
            goodput: GoodputForecast { forecaster: &goodput, now_s: at, test, least_bit_s: self.least },
            rtt: &rtt,
        })
    }
}
