//! What a station has learned of a path before it lets a test end early: the calibration and a
//! forecast of the rate.

use barograph_forecast::{Battery, BatteryConfig};
use barograph_probe::StreamResult;
use barograph_probe::calibration::{Calibration, CheckpointRates};
use barograph_probe::stop::ForecastInterval;
use barograph_probe::stream::{EarlyStopPolicy, StreamEnd};

/// State learned from the tests of one path so far.
pub(crate) struct Calibrated {
    calibration: Calibration,
    battery: Battery,
}

impl Calibrated {
    pub(crate) fn new() -> Self {
        Self { calibration: Calibration::default(), battery: Battery::new(&BatteryConfig::default()) }
    }

    /// Parameters for the next test to end early; `None` while the path is not calibrated.
    pub(crate) fn early(&self) -> Option<EarlyStopPolicy> {
        let interval = self.battery.interval(LEVEL)?;
        let guard = ForecastInterval { lower_bit_s: interval.lower, upper_bit_s: interval.upper };
        let expected = self.calibration.expected()?;
        Some(EarlyStopPolicy { guard: Some(guard), expected: Some(expected), ..EarlyStopPolicy::default() })
    }

    pub(crate) fn learn_full(&mut self, partials: &CheckpointRates, rate_bit_s: f64) -> anyhow::Result<()> {
        self.calibration.add_full(partials, rate_bit_s);
        Ok(self.battery.update(rate_bit_s)?)
    }

    pub(crate) fn learn(&mut self, test: &StreamResult, was_allowed: bool) -> anyhow::Result<()> {
        let rate_bit_s = test.rate_bit_s();
        match test.ended {
            StreamEnd::Early(reason) => self.calibration.add_early(&reason),
            _ if !was_allowed => self.calibration.add_full(&test.partials, rate_bit_s),
            _ if test.estimate_rejected => self.calibration.add_rejected(&test.partials, rate_bit_s),
            _ => {}
        }
        Ok(self.battery.update(rate_bit_s)?)
    }
}

/// Level of the interval that the station shows and alerts on.
const LEVEL: f64 = 0.9;
